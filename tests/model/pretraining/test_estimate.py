"""``pretrain --dry-run``: its estimates are what the run then does, and it writes nothing."""

import sys
from dataclasses import replace
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest
from clozeworks.cli.main import main
from clozeworks.model.config import PretrainConfig
from clozeworks.model.pretraining import estimate as module
from clozeworks.model.pretraining.estimate import estimate_pretraining as estimate
from clozeworks.model.pretraining.pretrain import pretrain
from clozeworks.pipeline.errors import UserError

from tests.fixtures.instances_fixture import write_instances

SHAPE: dict[str, Any] = {
    "num_layers": 1,
    "hidden_size": 16,
    "num_heads": 2,
    "batch_size": 8,
    "device": "cpu",
}


class Clock:
    """Stands in for the module `time`; a second passes between two updates."""

    now = 0.0

    def perf_counter(self) -> float:
        self.now += 1
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setattr(module, "time", Clock())


@pytest.mark.slow
def test_an_estimate_is_what_the_run_then_is(instances, tmp_path):
    config = PretrainConfig(**SHAPE, steps=9)
    found = estimate(config, [instances], str(tmp_path / "run"))
    assert list(tmp_path.iterdir()) == []
    summary = pretrain(config, [instances], tmp_path / "run")
    assert found and (found.resumes, found.steps, found.parameters) == (
        False,
        9,
        summary["parameters"],
    )
    assert found.tokens == pytest.approx(summary["tokens"], rel=0.1)
    assert found.epochs == (9 * 8 / 82,)  # the rows of the training split
    checkpoint = tmp_path / "run" / "checkpoints"
    written = sum(
        path.stat().st_size
        for path in checkpoint.rglob("*")
        if path.suffix in (".pt", ".safetensors")
    )
    assert found.output_bytes == pytest.approx(written, rel=0.2)
    num_evaluated_rows = 2 * 16
    assert found.seconds == pytest.approx(9 + num_evaluated_rows / 8 / 3)
    assert found.tokens_per_second == pytest.approx(found.tokens / 9)
    assert found.device_bytes > 10e6
    assert estimate(config, [instances], str(tmp_path / "run")) is None
    with pytest.raises(
        UserError,
        match=r"run was written with other settings \(steps was 9, now 8\)\. Choose another",
    ):
        estimate(replace(config, steps=8), [instances], str(tmp_path / "run"))
    again = estimate(replace(config, steps=8), [instances], str(tmp_path / "run"), overwrite=True)
    assert again and not again.resumes
    (tmp_path / "run" / "summary.json").unlink()
    begun = estimate(config, [instances], str(tmp_path / "run"))
    assert begun and begun.resumes


def test_phases_are_timed_and_counted_apart(instances, tmp_path):
    short = str(write_instances(tmp_path / "short", max_length=12, seed=1))
    found = estimate(PretrainConfig(**SHAPE, steps=100), [short, instances], str(tmp_path / "run"))
    assert found and found.steps == 100
    assert found.epochs == (90 * 8 / 82, 10 * 8 / 82)


def test_a_budget_of_hours_gives_the_steps(instances, tmp_path):
    found = estimate(PretrainConfig(**SHAPE, hours=2), [instances], str(tmp_path / "run"))
    assert found and (found.seconds, found.steps) == (7200, 7200)


def test_it_leaves_out_weights_and_biases(instances, tmp_path, monkeypatch):
    # This one would fail at its first use.
    monkeypatch.setitem(sys.modules, "wandb", ModuleType("wandb"))
    monkeypatch.setattr(sys.modules["wandb"], "__spec__", ModuleSpec("wandb", None))
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    config = PretrainConfig(**SHAPE, hours=1e-9)
    found = estimate(config, [instances], str(tmp_path / "run"))
    assert found and found.steps == 1


@pytest.mark.slow
def test_it_is_an_option_of_the_command(instances, tmp_path, capsys, monkeypatch):
    args = [
        "pretrain",
        instances,
        "--output",
        str(tmp_path / "run"),
        "--model",
        "tiny",
        "--steps",
        "3",
        "--dry-run",
    ]
    main(args)
    table = " ".join(capsys.readouterr().out.split())
    assert "state new" in table
    assert "steps 3, 256 rows each epochs 9.37 of" in table
    assert not (tmp_path / "run").exists()
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(
        UserError, match=r"^`dry_run` times a single process; run it without torchrun\.$"
    ):
        estimate(PretrainConfig(**SHAPE), [instances], str(tmp_path / "run"))
