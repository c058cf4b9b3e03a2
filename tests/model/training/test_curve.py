"""The learning curve: what it is drawn from, and that it is a picture."""

import importlib.util
from pathlib import Path

import pytest
from click.testing import CliRunner
from clozeworks.cli.pretrain import pretrain
from clozeworks.model.training import curve
from clozeworks.model.training.logs import METRICS

from tests.fixtures.instances_fixture import write_instances

pytestmark = pytest.mark.slow

HEADER = ",".join(METRICS)


def write_metrics(run: Path, *, steps: int, nsp: bool = True) -> None:
    accuracy = "0.75" if nsp else ""
    lines = [
        f"{step},train,0.001,{8 - step / steps},0.1,,{accuracy},1.5" for step in range(1, steps + 1)
    ]
    lines += [
        f"{step},validation,,{8.1 - step / steps},0.1,,{accuracy},"
        for step in range(0, steps + 1, 10)
    ]
    (run / "metrics.csv").write_text("\n".join([HEADER, *lines]) + "\n")


@pytest.mark.parametrize("nsp", [True, False])
def test_a_picture_is_drawn(tmp_path, nsp):
    write_metrics(tmp_path, steps=40, nsp=nsp)
    curve.draw_curve(tmp_path)
    assert (tmp_path / curve.CURVE).read_bytes().startswith(b"\x89PNG")
    assert not list(tmp_path.glob("*.partial"))


def test_nothing_is_drawn_before_the_first_step_or_without_matplotlib(tmp_path, monkeypatch):
    (tmp_path / "metrics.csv").write_text(f"{HEADER}\n0,validation,,9.0,0.0,,0.5,\n")
    curve.draw_curve(tmp_path)
    assert not (tmp_path / curve.CURVE).exists()
    write_metrics(tmp_path, steps=10)
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "matplotlib" else found(name)
    )
    assert not curve.can_draw()
    curve.draw_curve(tmp_path)
    assert not (tmp_path / curve.CURVE).exists()


def test_the_closing_table_says_so_if_none_is_drawn(tmp_path, monkeypatch):
    instances = write_instances(tmp_path / "instances")
    shape = "--model tiny --num-layers 1 --hidden-size 8 --num-heads 1 --device cpu"
    options = (
        f"{shape} --steps 10 --warmup-steps 0 --batch-size 10 --dropout 0 --learning-rate 1e-2"
    )
    drawn = []
    for run, can_draw in (("with", True), ("without", False)):
        monkeypatch.setattr(curve, "can_draw", lambda can_draw=can_draw: can_draw)
        arguments = [str(instances), "--output", str(tmp_path / run), *options.split()]
        made = CliRunner().invoke(pretrain, arguments, standalone_mode=False).return_value
        drawn.append(((tmp_path / run / curve.CURVE).exists(), dict(made.rows).get("loss curve")))
    note = "not drawn: matplotlib is missing, run pip install 'clozeworks[train]'"
    assert drawn == [(True, None), (False, note)]
