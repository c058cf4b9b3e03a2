"""A killed process resumes to the same bits; an interrupted one says so in one line."""

import json
import resource
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from clozeworks.cli.main import main

from tests.fixtures.instances_fixture import write_instances
from tests.fixtures.process_fixture import CLI, TIME_LIMIT_S, stop, wait_until

pytestmark = pytest.mark.slow

PRETRAIN = (
    "--model tiny --num-layers 1 --hidden-size 32 --num-heads 2 "
    "--batch-size 8 --learning-rate 1e-3 --device cpu"
)


@pytest.fixture(scope="module")
def instances(tmp_path_factory) -> str:
    return str(write_instances(tmp_path_factory.mktemp("instances")))


def start(*command: str, prepare: Callable[[], None] | None = None) -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*CLI, *command], stdout=pipe, stderr=pipe, text=True, preexec_fn=prepare
    )


def finish(process: "subprocess.Popen[str]") -> None:
    _, errors = process.communicate(timeout=TIME_LIMIT_S)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors


def last_step(run: Path) -> int:
    """Return the number of steps in the latest checkpoint, 0 where there is none."""
    return max((int(path.name[5:]) for path in run.glob("checkpoints/step-???????")), default=0)


def test_pretraining_that_was_killed_ends_in_the_same_bits(instances, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    options = f"{PRETRAIN} --steps 50 --checkpoint-every 7 --evaluate-every 20".split()
    undisturbed = start("pretrain", instances, "--output", str(whole), *options)
    process = start("pretrain", instances, "--output", str(killed), *options)
    wait_until(lambda: last_step(killed) > 0, process, 0.01)
    stop(process, signal.SIGKILL)
    finish(start("pretrain", instances, "--output", str(killed), *options))
    finish(undisturbed)
    names = ("metrics.csv", "summary.json", "run.json", "README.md")
    for name in (*names, "model.safetensors", "checkpoints/best/model.safetensors"):
        assert (whole / name).read_bytes() == (killed / name).read_bytes(), name
    files = [
        run / "checkpoints" / "step-0000050" / "training_state" / "optimizer.pt"
        for run in (whole, killed)
    ]
    one, two = (torch.load(file, weights_only=True)["state"] for file in files)
    torch.testing.assert_close(one, two, rtol=0, atol=0)
    assert {path.name for path in (killed / "checkpoints").iterdir()} == {"step-0000050", "best"}


def test_an_interrupt_and_a_full_disk_are_reported_in_a_line_and_checkpoints_stay(
    instances, tmp_path
):
    run = tmp_path / "run"
    options = f"{PRETRAIN} --steps 60 --checkpoint-every 20 --evaluate-every 100".split()
    process = start("pretrain", instances, "--output", str(run), *options)
    wait_until(lambda: last_step(run) > 0, process)
    last_line = stop(process, signal.SIGINT).splitlines()[-1]
    assert last_line == "Error: Interrupted; rerun the same command to resume."
    step, model = last_step(run), (run / "model.safetensors").read_bytes()
    saved = run / "checkpoints" / f"step-{step:07d}" / "training_state" / "state.json"
    assert json.loads(saved.read_text())["step"] == step < 60

    def small_files() -> None:  # a file of more bytes cannot be written, as on a disk that fills up
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(model) // 2, len(model) // 2))

    full = start("pretrain", instances, "--output", str(run), *options, prepare=small_files)
    _, errors = full.communicate(timeout=TIME_LIMIT_S)
    assert full.returncode == 1 and "File too large" in errors
    assert errors.startswith("Resumes ") and errors.count("\n") == 2
    assert "it resumes" in errors
    assert last_step(run) == step and (run / "model.safetensors").read_bytes() == model
    main(["pretrain", instances, "--output", str(run), *options])
    assert last_step(run) == 60


def test_logs_that_cannot_be_written_end_a_run_in_a_line(instances, tmp_path):
    """TensorBoard's own writer would print a traceback from its thread."""

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))

    options = f"{PRETRAIN} --steps 500 --evaluate-every 500 --checkpoint-every 500".split()
    full = start(
        "pretrain", instances, "--output", str(tmp_path / "run"), *options, prepare=small_files
    )
    _, reported = full.communicate(timeout=TIME_LIMIT_S)
    assert full.returncode and reported.count("\n") == 1
    assert "File too large" in reported and "it resumes" in reported
    assert [path.stat().st_size for path in (tmp_path / "run" / "logs").iterdir()] == [3000]
