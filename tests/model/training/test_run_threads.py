"""The number of threads of a run."""

import pytest
import torch
from clozeworks.model.training.threads import kept_threads, use_threads

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
    assert capsys.readouterr().err == ""


def test_a_resumed_run_goes_on_with_its_threads_and_says_so(two_threads, capsys):
    with kept_threads():
        assert use_threads(3, CPU) == torch.get_num_threads() == 3
    assert torch.get_num_threads() == 2
    assert capsys.readouterr().err == (
        "The run began with 3 threads and goes on with them; this machine would take 2.\n"
    )


def test_the_users_number_of_threads_decides_and_a_line_says_what_changes(
    two_threads, monkeypatch, capsys
):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert use_threads(1, CPU) == torch.get_num_threads() == 2
    assert "began with 1 thread and goes on with 2 (OMP_NUM_THREADS)" in capsys.readouterr().err


def test_a_run_on_a_gpu_has_no_number_of_threads():
    assert use_threads(3, torch.device("cuda")) is None
