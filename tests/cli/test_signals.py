"""Ctrl-C and SIGTERM ask a training to stop, and only while it can."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from clozeworks.cli.main import main
from clozeworks.cli.process import StopOnSignal

from tests.fixtures.checkpoint_fixture import make_checkpoint
from tests.fixtures.instances_fixture import write_instances
from tests.fixtures.process_fixture import TIME_LIMIT_S

SHAPE = ["--num-layers", "1", "--hidden-size", "8", "--num-heads", "1"]
OPTIONS = [*SHAPE, "--batch-size", "8", "--device", "cpu"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_acts_as_before(number: signal.Signals):
    received = []
    before = signal.signal(number, lambda *_: received.append(number))
    handler = signal.getsignal(number)
    try:
        with StopOnSignal() as stop:
            assert not stop.is_set()
            signal.raise_signal(number)
            assert stop.is_set() and not received
            signal.raise_signal(number)
            assert received == [number]
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_pretrain_saves_and_exits_by_the_signal(
    number, tmp_path, monkeypatch, capsys
):
    write_instances(tmp_path / "instances")
    run = tmp_path / "run"
    arguments = ["pretrain", str(tmp_path / "instances"), "--output", str(run), *OPTIONS]
    assert interrupted(arguments, number, monkeypatch) == 128 + number
    assert capsys.readouterr().err == "Error: Interrupted; rerun the same command to resume.\n"
    assert [path.name for path in (run / "checkpoints").glob("step-*")] == ["step-0000001"]


def test_sigterm_interrupts_any_command(tmp_path: Path):
    recipe = tmp_path / "recipe.toml"
    os.mkfifo(recipe)  # which the command waits to read
    command = [sys.executable, "-m", "clozeworks.cli.main", "--log-format", "json"]
    command += ["run", str(recipe), "--output", str(tmp_path / "run")]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        writer = None
        while writer is None:
            try:
                writer = os.open(recipe, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:  # the command has not opened it yet
                time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=TIME_LIMIT_S)
        os.close(writer)
    assert process.returncode == 143
    assert json.loads(error)["exit_code"] == 143


def test_an_interrupted_finetune_saves_and_exits_with_143(tmp_path: Path, monkeypatch, capsys):
    make_checkpoint(tmp_path / "checkpoint")
    (tmp_path / "data").mkdir()
    for name in ("train", "dev"):
        rows = [f"{name} {number} the cat\t{number % 2}\n" for number in range(200)]
        (tmp_path / "data" / f"{name}.tsv").write_text("sentence\tlabel\n" + "".join(rows))
    paths = {name: str(tmp_path / name) for name in ("data", "checkpoint", "tuned")}
    arguments = ["finetune", "classify", paths["data"], "--checkpoint", paths["checkpoint"]]
    arguments += ["--output", paths["tuned"], "--max-length", "16", "--device", "cpu"]
    assert interrupted(arguments, signal.SIGTERM, monkeypatch) == 143
    # Notices of the texts, which are the same for this vocabulary, come before it.
    last_line = capsys.readouterr().err.splitlines()[-1]
    assert last_line == "Error: Interrupted; rerun the same command to resume."
    assert len(list((tmp_path / "tuned").glob("runs/*/checkpoints/step-*"))) == 1


def interrupted(arguments: list[str], number: signal.Signals, monkeypatch) -> int:
    """Run a command that gets a signal as soon as its training begins; return its exit code."""
    enter = StopOnSignal.__enter__

    def enter_and_interrupt(stop: StopOnSignal) -> StopOnSignal:
        enter(stop)
        signal.raise_signal(number)
        return stop

    monkeypatch.setattr(StopOnSignal, "__enter__", enter_and_interrupt)
    with pytest.raises(SystemExit) as exited:
        main(arguments)
    assert isinstance(exited.value.code, int)
    return exited.value.code
