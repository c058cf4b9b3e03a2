"""Estimate a run by timing a few throw-away updates on this machine.

Each directory of instances is timed by `pretrain` itself, in a temporary folder, so that all that
makes a run fast or slow counts. An update is timed on one micro-batch; a whole batch takes as much
longer as it has more rows.
"""

import os
import resource
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ...pipeline import storage
from ...pipeline.errors import UserError
from ..config import PretrainConfig
from ..encoders.catalogue import make_pretrain_model
from ..encoders.config import EncoderConfig
from ..training.device import MICRO_BATCH_TOKENS, find_device, rows_per_micro_batch
from ..training.run import SUMMARY, resumes_run
from .card import num_evaluated
from .data import InstanceDirectory
from .plan import make_plan
from .pretrain import train_into

TIMED_S = 5.0
BYTES_PER_WEIGHT = 4
BYTES_PER_CHECKPOINTED_WEIGHT = 12  # the weight, and Adam's two averages
EVALUATION_SHARE = 1 / 3
"""Cost of evaluating a row, as a share of training on it: backward takes twice as long as forward.
"""


@dataclass(frozen=True, kw_only=True)
class PretrainEstimate:
    """The work and the needs of a run: sizes in bytes, times in seconds."""

    resumes: bool
    """Whether there is a run to resume; the figures count from its start."""
    parameters: int
    steps: int
    tokens: int
    epochs: tuple[float, ...]
    """Of each directory of instances."""
    device: str
    device_bytes: int
    """The most memory used while timing: of the GPU, or of this process."""
    output_bytes: int
    seconds: float
    tokens_per_second: float


class _EnoughError(Exception):
    """Ends a timed run."""


class _Timer:
    """The progress callback of a timed run; raises `_EnoughError` when the time per update is
    known.
    """

    def __init__(self) -> None:
        self.reports: list[tuple[float, int]] = []
        self.memory_gb = 0.0

    def __call__(self, figures: Mapping[str, Any]) -> None:
        self.reports.append((time.perf_counter(), figures["step"]))
        self.memory_gb = figures.get("peak_memory_gb", 0.0)
        # The time before the first report is left out: compilation, and the first allocations.
        # Not a `StopRequest`, on which the run would write a checkpoint.
        if len(self.reports) > 1 and self._seconds() > TIMED_S:
            raise _EnoughError

    def _seconds(self) -> float:
        return self.reports[-1][0] - self.reports[0][0]

    def seconds_per_step(self) -> float:
        """Return the mean time of an update after the first report."""
        return self._seconds() / (self.reports[-1][1] - self.reports[0][1])


def estimate_pretraining(
    config: PretrainConfig, instances: list[str], output: str, *, overwrite: bool = False
) -> PretrainEstimate | None:
    """Estimate what `pretrain` would take into `output`, where nothing is written; None if it is
    finished already.

    Time includes evaluation, but not the writing of checkpoints. Raises `UserError` as `pretrain`
    would.
    """
    # torchrun's other processes would wait for this one's gradients.
    if "RANK" in os.environ:
        raise UserError("`dry_run` times a single process; run it without torchrun.")
    plan = make_plan(config, instances)
    resumes = resumes_run(output, plan.identity, overwrite=overwrite)
    if resumes and storage.exists(storage.join(output, SUMMARY)):
        return None
    config = plan.config
    schedule = plan.schedule
    directories = plan.directories
    speeds = [_measure(config, directory) for directory in directories]
    num_steps = schedule.num_steps
    if num_steps is None:
        assert schedule.budget_s is not None
        # A budget of hours has one phase.
        num_steps = max(1, round(schedule.budget_s / (config.batch_size * speeds[0].row_s)))
    step_ends = [0, *schedule.phase_ends, num_steps]
    # A row counts as often as it is trained on.
    phase_rows = [config.batch_size * (end - first) for first, end in pairwise(step_ends)]
    tokens = 0.0
    training_s = 0.0
    epochs = []
    for num_rows, directory, speed in zip(phase_rows, directories, speeds, strict=True):
        tokens += num_rows * directory.mean_length
        training_s += num_rows * speed.row_s
        epochs.append(num_rows / directory.num_rows)
    tokens = round(tokens)
    seconds = training_s
    if schedule.budget_s is None:  # a budget of hours does not count evaluation
        num_evaluations = 2 + num_steps // config.evaluate_every  # one before, one at the end
        num_held_out = num_evaluations * num_evaluated(config, directories[-1].manifest)
        seconds += num_held_out * EVALUATION_SHARE * speeds[-1].row_s
    num_parameters = _num_parameters(plan.shape)
    device = find_device(config.device)
    return PretrainEstimate(
        resumes=resumes,
        parameters=num_parameters,
        steps=num_steps,
        tokens=tokens,
        epochs=tuple(epochs),
        device=_device_name(device),
        device_bytes=max(speed.peak_bytes for speed in speeds),
        output_bytes=_output_bytes(config, num_parameters, num_steps),
        seconds=seconds,
        tokens_per_second=tokens / training_s,
    )


class _Speed(NamedTuple):
    """Measurements on one directory of instances."""

    row_s: float
    """Seconds for a row."""
    peak_bytes: int


def _measure(config: PretrainConfig, directory: InstanceDirectory) -> _Speed:
    """Train on `directory` for some seconds, in a temporary folder."""
    device = find_device(config.device)
    most_tokens = MICRO_BATCH_TOKENS[device.type]
    rows_at_once = rows_per_micro_batch(config.micro_batch_size, directory.max_length, most_tokens)
    short = replace(
        config,
        # Longer than any timing, so that the end is never reached.
        steps=1_000_000,
        tokens=None,
        hours=None,
        warmup_steps=None,
        # One micro-batch: a global batch of thousands of rows takes minutes on a CPU.
        batch_size=min(config.batch_size, rows_at_once),
        phase_shares=PretrainConfig.phase_shares,
        evaluation_rows=1,
        evaluate_every=1_000_000,
        checkpoint_every=1_000_000,
        archive_every=None,
    )
    timer = _Timer()
    with tempfile.TemporaryDirectory(prefix="clozeworks-") as folder, suppress(_EnoughError):
        train_into(short, [directory.path], Path(folder, "run"), timer, logs_online=False)
    peak_bytes = round(timer.memory_gb * 1e9) or _resident_bytes()  # a CPU reports none
    return _Speed(timer.seconds_per_step() / short.batch_size, peak_bytes)


def _resident_bytes() -> int:
    """Return the most memory that this process has had."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if sys.platform == "darwin":
        return most
    return most * 1024  # getrusage(2) counts bytes on macOS alone, elsewhere KiB


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return "CPU"


def _output_bytes(config: PretrainConfig, num_parameters: int, num_steps: int) -> int:
    num_models = 1  # checkpoints/best
    if config.archive_every:
        num_models += num_steps // config.archive_every
    return num_parameters * (BYTES_PER_CHECKPOINTED_WEIGHT + num_models * BYTES_PER_WEIGHT)


def _num_parameters(shape: EncoderConfig) -> int:
    with torch.device("meta"):  # without memory
        return sum(parameter.numel() for parameter in make_pretrain_model(shape).parameters())
