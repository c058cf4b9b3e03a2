"""The logs of a run: what a resumed run keeps of them."""

import math

import pytest
from clozeworks.model.training.logs import RunLog
from clozeworks.pipeline.errors import UserError


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
