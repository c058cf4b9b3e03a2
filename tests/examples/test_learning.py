"""examples/compare trains three encoders on the same rows, and says when each equals BERT."""

from pathlib import Path

import curves
import learning
import pytest
from click.testing import CliRunner
from curves import Point, read_points, read_run, tokens_until, write_points

from tests.fixtures.instances_fixture import write_instances


def make_curve(*losses: float) -> list[Point]:
    return [Point("a", 1, 100 * step, loss, 0.5) for step, loss in enumerate(losses, start=1)]


@pytest.mark.parametrize(
    ("loss", "tokens"), [(5.0, 200), (5.5, 150), (4.0, 300), (3.9, None), (6.5, 100)]
)
def test_tokens_until_a_loss_are_interpolated(loss, tokens):
    assert tokens_until(make_curve(6.0, 5.0, 4.0), loss) == tokens


def test_the_first_time_counts_if_the_loss_rises_again():
    assert tokens_until(make_curve(6.0, 5.0, 5.6, 4.0), 5.5) == 150


def test_points_are_written_and_read(tmp_path):
    points = make_curve(6.25, 5.125)
    write_points(tmp_path / "curves.csv", points)
    assert read_points(tmp_path / "curves.csv") == points


@pytest.mark.slow
def test_three_encoders_are_trained_and_compared(tmp_path):
    instances = write_instances(tmp_path / "instances", rows_per_group=100, validation_rows=40)
    output = tmp_path / "learned"
    arguments = [str(instances), f"--output={output}", "--tokens=8000", "--seeds=1", "--rows=40"]
    result = CliRunner().invoke(learning.learning, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    points = read_points(output / "curves.csv")
    kinds = {point.name for point in points}
    assert kinds == {"BERT", "ModernBERT", "ModernBERT by transformers"}
    # Of all three, the same updates are measured, and each learned something.
    updates = {kind: [point.tokens for point in points if point.name == kind] for kind in kinds}
    assert updates["BERT"] == updates["ModernBERT"] == updates["ModernBERT by transformers"]
    for kind in kinds:
        losses = [point.loss for point in points if point.name == kind]
        assert losses[-1] < losses[0]
    assert (output / "learning.md").read_text().count("\n| ") == 3

    # `transformers` measures our model as we do.
    ours = read_run("BERT", 1, output / "bert" / "seed-1")[-1]
    theirs = [point for point in points if point.name == "BERT"][-1]
    assert ours.loss == pytest.approx(theirs.loss, abs=1e-3)

    # A second seed keeps what is there.
    times = {path: path.stat().st_mtime_ns for path in output.rglob("seed-1/learned.json")}
    arguments[3] = "--seeds=2"
    CliRunner().invoke(learning.learning, arguments, catch_exceptions=False)
    assert times == {path: path.stat().st_mtime_ns for path in times}
    assert "[" in (output / "learning.md").read_text()


def test_an_unfinished_run_is_refused_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["curves.py", f"a={tmp_path}"])
    with pytest.raises(SystemExit) as exit_info:
        curves.main()
    assert (
        exit_info.value.code == f"Error: {tmp_path} is not a finished run: it has no summary.json."
    )


def test_a_picture_is_drawn_from_the_points_of_another(tmp_path):
    source = tmp_path / "a.csv"
    write_points(source, make_curve(6.0, 5.0))
    output = tmp_path / "b.svg"
    result = CliRunner().invoke(curves.curves, [str(source), f"--output={output}"])
    assert result.exit_code == 0, result.output
    assert output.read_bytes().startswith(b"<?xml")
    assert Path(output).with_suffix(".csv").read_bytes() == source.read_bytes()
