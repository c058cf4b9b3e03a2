"""Batches made ahead, snapshots written behind, and the number of threads of a run."""

import threading

import pytest
import torch
from clozeworks.model.training.logs import Clock
from clozeworks.model.training.threads import SnapshotWriter, kept_threads, prefetch, use_threads
from clozeworks.pipeline.errors import UserError


def test_prefetch_keeps_the_order_and_passes_errors_on():
    assert list(prefetch(lambda item: item * item, range(20))) == [
        item * item for item in range(20)
    ]
    stream = prefetch(lambda item: 1 // (3 - item), range(9))
    assert [next(stream) for _ in range(3)] == [0, 0, 1]
    with pytest.raises(ZeroDivisionError):
        next(stream)


CPU = torch.device("cpu")


@pytest.fixture
def two_threads(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with kept_threads():
        torch.set_num_threads(2)
        yield


def test_a_new_run_takes_the_threads_that_there_are(two_threads, capsys):
    assert use_threads(None, CPU) == 2
    assert use_threads(2, CPU) == 2
    assert use_threads(3, torch.device("cuda")) is None
    assert capsys.readouterr().err == ""


def test_a_resumed_run_goes_on_with_its_threads_and_says_so(two_threads, capsys):
    with kept_threads():
        assert use_threads(3, CPU) == torch.get_num_threads() == 3
    assert torch.get_num_threads() == 2
    assert capsys.readouterr().err == (
        "The run began with 3 threads and resumes with 3 on 2 cores; OMP_NUM_THREADS=2 is faster, "
        "but changes the last digits of the weights.\n"
    )


def test_the_users_number_of_threads_decides_and_a_line_says_what_changes(
    two_threads, monkeypatch, capsys
):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert use_threads(1, CPU) == torch.get_num_threads() == 2
    assert (
        "began with 1 threads and resumes with 2: its weights will differ"
        in capsys.readouterr().err
    )


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
    assert (clock.seconds(), clock.elapsed(), clock.evaluation_s) == (10.0, 17.0, 50.0)
    assert clock.rates()["tokens_per_second"] == pytest.approx(10)
