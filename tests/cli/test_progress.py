"""Progress of a run: lines without a terminal, a live line with one, and who prints them."""

import pytest
from clozeworks.cli import progress as module


class Clock:
    """Stands in for the module `time`."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    stopped = Clock()
    monkeypatch.setattr(module, "time", stopped)
    monkeypatch.delenv("RANK", raising=False)
    return stopped


def test_without_a_terminal_there_is_a_plain_line_every_minute(clock: Clock, capsys):
    with module.training_progress() as report:
        for step in range(100, 351, 10):  # resumed at step 100
            numbers = {"step": step, "steps": 350, "loss": 0.51234, "data_wait": 0.001}
            report({"stage": "run 1 of 2 (seed 0)", **numbers})
            clock.now += 7
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "run 1 of 2 (seed 0): 190 of 350, 112 s left, loss 0.512, wait 0.1%",
        "run 1 of 2 (seed 0): 280 of 350, 49 s left, loss 0.512, wait 0.1%",
    ]


def test_a_new_stage_has_a_time_left_of_its_own(clock: Clock, capsys: pytest.CaptureFixture[str]):
    with module.training_progress() as report:
        report({"stage": "a", "step": 10, "steps": 10})
        clock.now += 1000
        report({"stage": "b", "step": 10, "steps": 1310})
        clock.now += 60
        report({"stage": "b", "step": 20, "steps": 1310, "tokens_per_second": 12345.6})
    assert (
        capsys.readouterr().err == "b: 10 of 1,310\nb: 20 of 1,310, 2.1 h left, 12,346 tokens/s\n"
    )


def test_short_work_and_all_processes_but_the_first_are_silent(clock: Clock, capsys, monkeypatch):
    with module.training_progress() as report:
        report({"step": 1, "steps": 2})
        clock.now += 59
        report({"step": 2, "steps": 2})
    monkeypatch.setenv("RANK", "1")
    with module.training_progress() as report:
        clock.now += 1000
        report({"step": 2, "steps": 2})
    assert not capsys.readouterr().err


def test_a_terminal_has_a_live_line(clock: Clock, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "50")
    with module.training_progress() as report:
        report({"step": 5, "steps": 8, "loss": 0.5, "mfu": 0.5, "learning_rate": 1e-3})
    # Whole figures, in one line.
    assert "training: 5 of 8, loss 0.500, MFU 50.0%\n" in capsys.readouterr().err
