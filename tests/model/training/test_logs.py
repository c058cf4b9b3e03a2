"""The logs of a run: what a resumed run keeps of them."""

import importlib.util
import math
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from clozeworks.cli.pretrain import pretrain
from clozeworks.model.training import logs
from clozeworks.model.training.logs import CURVE, METRICS, RunLog, can_draw, draw_curve, open_wandb
from clozeworks.pipeline.errors import UserError

from tests.fixtures.instances_fixture import write_instances


def test_a_resumed_run_keeps_the_lines_up_to_its_checkpoint(tmp_path):
    for first_step in (-1, 1_234_567):
        with RunLog(tmp_path, first_step) as log:
            for step in (1_234_567, 1_234_568):
                log.speed(step, {"step": step, "data_wait": 0.5})
    lines = (tmp_path / "speed.csv").read_text().splitlines()[1:]
    assert lines == [f"{step},,,0.5,," for step in (1_234_567, 1_234_567, 1_234_568)]


def test_an_update_that_overflowed_is_no_damage(tmp_path):
    for first_step in (-1, 1):
        with RunLog(tmp_path, first_step) as log:
            log.metrics(1, "train", {"mlm_loss": 0.5, "gradient_norm": math.inf})
    with pytest.raises(UserError, match=r"metrics\.csv is damaged"):
        with RunLog(tmp_path, -1) as log:
            log.metrics(1, "train", {"mlm_loss": math.inf})
        RunLog(tmp_path, 1)


def test_columns_may_be_added(tmp_path):
    for _ in range(2):
        with RunLog(tmp_path, 1, ("step", "split", "loss")) as log:
            log.metrics(1, "train", {"loss": 0.5, "accuracy": 0.25})
            log.add_columns(["loss", "accuracy"])
            log.metrics(1, "train", {"loss": 0.5, "accuracy": 0.25})
    assert (tmp_path / "metrics.csv").read_text().splitlines() == [
        "step,split,loss,accuracy",
        "1,train,0.5,",
        *["1,train,0.5,0.25"] * 3,
    ]


class FakeWandb:
    """Weights & Biases as far as it is used."""

    def __init__(self) -> None:
        self.started: list[dict[str, Any]] = []
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.finished = 0

    def init(self, **options: Any) -> "FakeWandb":
        """Start a run."""
        self.started.append(options)
        return self

    def log(self, numbers: dict[str, float], step: int) -> None:
        """Log numbers."""
        self.logged.append((step, numbers))

    def finish(self) -> None:
        """End the run."""
        self.finished += 1


def test_weights_and_biases_gets_the_same_numbers(tmp_path, monkeypatch):
    fake, found = FakeWandb(), importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "wandb" else found(name)
    )
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    assert open_wandb(tmp_path, {}) is None  # not installed
    monkeypatch.delenv("WANDB_PROJECT")
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    assert open_wandb(tmp_path, {}) is None  # nobody asked
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    for _ in range(2):
        with RunLog(tmp_path, 1, wandb=open_wandb(tmp_path, {"steps": 3})) as log:
            log.metrics(1, "train", {"mlm_loss": 0.5})
    first, second = fake.started
    assert first == second and (first["project"], first["resume"], first["config"]) == (
        "mine",
        "allow",
        {"steps": 3},
    )
    assert fake.logged == [(1, {"train/mlm_loss": 0.5})] * 2 and fake.finished == 2


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


@pytest.mark.slow
@pytest.mark.parametrize("nsp", [True, False])
def test_a_picture_is_drawn(tmp_path, nsp):
    write_metrics(tmp_path, steps=40, nsp=nsp)
    draw_curve(tmp_path)
    assert (tmp_path / CURVE).read_bytes().startswith(b"\x89PNG")
    assert not list(tmp_path.glob("*.partial"))


def test_nothing_is_drawn_before_the_first_step_or_without_matplotlib(tmp_path, monkeypatch):
    (tmp_path / "metrics.csv").write_text(f"{HEADER}\n0,validation,,9.0,0.0,,0.5,\n")
    draw_curve(tmp_path)
    assert not (tmp_path / CURVE).exists()
    write_metrics(tmp_path, steps=10)
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "matplotlib" else found(name)
    )
    assert not can_draw()
    draw_curve(tmp_path)
    assert not (tmp_path / CURVE).exists()


@pytest.mark.slow
def test_the_closing_table_says_so_if_none_is_drawn(tmp_path, monkeypatch):
    instances = write_instances(tmp_path / "instances")
    shape = "--model tiny --num-layers 1 --hidden-size 8 --num-heads 1 --device cpu"
    options = (
        f"{shape} --steps 10 --warmup-steps 0 --batch-size 10 --dropout 0 --learning-rate 1e-2"
    )
    drawn = []
    for run, draws in (("with", True), ("without", False)):
        monkeypatch.setattr(logs, "can_draw", lambda draws=draws: draws)
        arguments = [str(instances), "--output", str(tmp_path / run), *options.split()]
        made = CliRunner().invoke(pretrain, arguments, standalone_mode=False).return_value
        drawn.append(((tmp_path / run / CURVE).exists(), dict(made.rows).get("loss curve")))
    note = "not drawn: matplotlib is missing, run pip install 'clozeworks[train]'"
    assert drawn == [(True, None), (False, note)]
