"""The summary that ``pretrain`` prints of a finished run, and its exit code."""

import re
from typing import Any

import pytest
from clozeworks.cli.main import main

from tests.fixtures.instances_fixture import write_instances

CHANCE = "NSP is at chance (0.5), as usual in a short run"


def summary(mlm_loss: float, nsp_accuracy: float, num_rows: int = 200) -> dict[str, Any]:
    return {
        "status": "finished",
        **dict.fromkeys(("parameters", "step", "rows", "tokens"), 9),
        "initial": {"mlm_loss": 7.0, "mlm_accuracy": 0.1, "nsp_accuracy": 0.5},
        "final": {"mlm_loss": mlm_loss, "mlm_accuracy": 0.1, "nsp_accuracy": nsp_accuracy},
        "validation_rows": num_rows,
    }


@pytest.fixture
def instances(tmp_path) -> str:
    write_instances(tmp_path / "instances")
    return str(tmp_path / "instances")


@pytest.fixture
def end(instances, monkeypatch, capsys):
    """Return a function that ends a run with figures, and returns what is printed and its code."""

    def end(
        mlm_loss: float, nsp_accuracy: float, num_rows: int = 200, **more: object
    ) -> tuple[str, str, object]:
        result = summary(mlm_loss, nsp_accuracy, num_rows) | more
        monkeypatch.setattr(
            "clozeworks.model.pretraining.pretrain.pretrain", lambda *args, **kwargs: result
        )
        try:
            main(["pretrain", instances, "--output", "run"])
            code = None
        except SystemExit as ended:
            code = ended.code
        printed = capsys.readouterr()
        return " ".join(printed.out.split()), printed.err, code

    return end


def test_a_loss_that_rose_is_a_warning_and_exit_code_1(end):
    out, err, code = end(7.25, 0.9)
    line = "Warning: the held-out masked-LM loss rose from 7.000 to 7.250; "
    line += "lower --learning-rate or train longer.\n"
    assert (err, code) == (line, 1)
    assert "status finished" in out
    assert end(7.0, 0.9)[1:] == ("", None)


def test_an_nsp_accuracy_near_chance_is_explained(end):
    assert CHANCE in end(6.0, 0.54)[0]
    assert "chance" not in end(6.0, 0.56)[0]


def test_too_few_held_out_rows_are_no_verdict(end):
    out, err, code = end(7.25, 0.167, num_rows=12)
    assert "masked-LM loss, held out 7.000 before, 7.250 after" in out
    assert "too little to judge: 12 rows; ingest more documents, or" in out
    assert "chance" not in out and (err, code) == ("", None)


def test_what_was_forgotten_is_shown_and_a_warning_beyond_a_tenth(end):
    text = {"tokens_per_word": 1.25, "characters_per_token": 4.0}
    before = {"mlm_loss": 2.0, "mlm_accuracy": 0.6}
    for after, warns in ((2.2, False), (2.3, True)):
        final = {"mlm_loss": after, "mlm_accuracy": 0.5}
        also = {"path": "general", "initial": before, "final": final, "text": text}
        out, err, code = end(6.0, 0.9, text=text | {"tokens_per_word": 1.5}, also=also)
        assert f"masked-LM loss, also 2.000 before, {after:.3f} after" in out
        assert "loss a character, held out 1.750 before, 1.500 after" in out
        assert "tokens a word 1.500 held out, 1.250 also" in out
        assert ("the masked-LM loss on general rose by more than a tenth" in err) is warns
        assert code is None


@pytest.mark.slow
def test_a_dry_run_of_an_interrupted_run_shows_the_time_left(instances, tmp_path, capsys):
    run = tmp_path / "run"
    shape = "--num-layers 1 --hidden-size 8 --num-heads 1 --steps 4 --batch-size 8 --device cpu"
    command = ["pretrain", instances, f"--output={run}", *shape.split()]
    main(command)
    (run / "summary.json").unlink()
    (run / "speed.csv").write_text("step,tokens_per_second\n1,0.01\n")
    capsys.readouterr()
    main([*command, "--dry-run"])
    printed = capsys.readouterr().out
    (num_tokens,) = re.findall(r"tokens +([\d,]+)", printed)
    assert f"{0.75 * int(num_tokens.replace(',', '')) / 0.01 / 3600:.1f} h" in printed
