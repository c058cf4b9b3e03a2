"""Snapshots: copies taken at once, written in their order by a thread, errors passed on."""

import threading

import pytest
import torch
from clozeworks.model.training.logs import Clock
from clozeworks.model.training.snapshot import SnapshotWriter
from clozeworks.pipeline.errors import UserError


def test_a_snapshot_holds_the_values_of_its_time():
    weight, seen, may_write = torch.zeros(3), [], threading.Event()

    def write(copy: dict) -> None:
        may_write.wait(10)
        seen.append((copy["step"], copy["nested"][0].tolist()))

    with SnapshotWriter() as writer:
        for step in range(2):
            writer.submit(write, {"step": step, "nested": [weight]})
            weight += 1
        assert not seen  # training continues while nothing is written
        may_write.set()
    assert seen == [(0, [0.0] * 3), (1, [1.0] * 3)]


def test_an_error_of_a_write_is_raised_by_the_next_call():
    def fail(_: object) -> None:
        raise UserError("the disk is full")

    with SnapshotWriter() as writer:
        writer.submit(fail, None)
        with pytest.raises(UserError, match="full"):
            writer.wait()
    with pytest.raises(UserError, match="full"), SnapshotWriter() as writer:
        writer.submit(fail, None)
    with pytest.raises(KeyError), SnapshotWriter() as writer:
        writer.submit(fail, None)
        raise KeyError  # the error that came first


def test_evaluation_is_not_training_time(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    clock = Clock(spent=7.0)
    now[0] += 10
    clock.count(num_rows=4, num_tokens=100)
    with clock.evaluating():
        now[0] += 50
    with clock.saving():
        now[0] += 2
    assert (clock.seconds(), clock.elapsed()) == (12.0, 19.0)
    assert (clock.evaluation_s, clock.checkpoint_s) == (50.0, 2.0)
    assert clock.rates()["tokens_per_second"] == pytest.approx(100 / 12)
