"""What a pre-training run will take, from a few timed updates on this machine that are thrown away.

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
from pathlib import Path
from typing import Any

import torch

from ...pipeline import storage
from ...pipeline.errors import UserError
from ...pipeline.parsing import parse_json
from ...pipeline.storage.directory import changed_fields, other_settings
from ..checkpoint import read_config
from ..config import PretrainConfig
from ..heads import BertForPreTraining
from ..training.device import find_device, rows_per_micro_batch
from .data import InstanceDirectory, open_instances
from .pretrain import pretrain
from .run import RUN, SUMMARY
from .schedule import Schedule, make_schedule
from .sequence import RowSequence
from .setup import identity, new_model, open_directories

TIMED_S = 5.0
BYTES_PER_WEIGHT = 4
BYTES_PER_CHECKPOINTED_WEIGHT = 12  # the weight, and Adam's two averages
EVALUATION_SHARE = 1 / 3
"""Cost of a row that is evaluated, as a share of one that is trained on: forward, without backward.
"""


@dataclass(frozen=True, kw_only=True)
class PretrainEstimate:
    """What a run will do and need: sizes in bytes, times in seconds."""

    resumes: bool
    """Whether there is a run to resume; the figures are those from its start."""
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
        # The first report is that of the warm-up: compilation, and the first allocations.
        if len(self.reports) > 1 and self._seconds() > TIMED_S:
            raise _EnoughError

    def _seconds(self) -> float:
        return self.reports[-1][0] - self.reports[0][0]

    def seconds_per_step(self) -> float:
        """Return the mean time of an update after the first report."""
        return self._seconds() / (self.reports[-1][1] - self.reports[0][1])


def estimate(
    config: PretrainConfig, instances: list[str], output: str, *, overwrite: bool = False
) -> PretrainEstimate | None:
    """Return what `pretrain` would take into `output`, where nothing is written; None if it is
    finished already.

    Time includes evaluation, but not the writing of checkpoints. Raises `UserError` as `pretrain`
    would.
    """
    if "RANK" in os.environ:
        raise UserError("--dry-run times a single process; run it without torchrun.")
    directories = open_directories(config, instances)
    resumes = not overwrite and _resumes(output, identity(config, directories))
    if resumes and storage.exists(storage.join(output, SUMMARY)):
        return None
    schedule = make_schedule(config, [directory.mean_length for directory in directories])
    timed = [
        _time(config, path, directory)
        for path, directory in zip(instances, directories, strict=True)
    ]
    step_s = [config.batch_size * row_s for row_s, _ in timed]
    steps = _steps(schedule, step_s)
    mean_lengths = [directory.mean_length for directory in directories]
    num_parameters = _num_parameters(config, directories)
    tokens = round(
        config.batch_size
        * sum(count * length for count, length in zip(steps, mean_lengths, strict=True))
    )
    evaluated_rows = min(
        config.evaluation_rows, open_instances(instances[-1], "validation").num_rows
    )
    num_evaluations = 2 + sum(steps) // config.evaluate_every
    evaluation_s = num_evaluations * evaluated_rows * EVALUATION_SHARE * timed[-1][0]
    training_s = sum(count * seconds for count, seconds in zip(steps, step_s, strict=True))
    num_models = 1 + (sum(steps) // config.archive_every if config.archive_every else 0)
    device = find_device(config.device)
    return PretrainEstimate(
        resumes=resumes,
        parameters=num_parameters,
        steps=sum(steps),
        tokens=tokens,
        epochs=tuple(
            count
            * config.batch_size
            / RowSequence(directory, config.seed, config.duplicates_per_epoch).epoch_start(1)
            for count, directory in zip(steps, directories, strict=True)
        ),
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU",
        device_bytes=max(memory for _, memory in timed),
        output_bytes=num_parameters
        * (config.keep * BYTES_PER_CHECKPOINTED_WEIGHT + num_models * BYTES_PER_WEIGHT),
        seconds=training_s + (evaluation_s if schedule.budget_s is None else 0),
        tokens_per_second=tokens / training_s,
    )


def _time(config: PretrainConfig, path: str, directory: InstanceDirectory) -> tuple[float, int]:
    """Return the seconds per row of `directory`, and the most memory used, in bytes."""
    num_rows = rows_per_micro_batch(
        config.micro_batch_size, directory.max_length, find_device(config.device)
    )
    short = replace(
        config,
        **{
            "steps": 1_000_000,
            "tokens": None,
            "hours": None,
            "warmup_steps": None,
            "archive_every": None,
        },
        batch_size=min(config.batch_size, num_rows),
        phase_shares=PretrainConfig.phase_shares,
        evaluation_rows=1,
        evaluate_every=1_000_000,
        checkpoint_every=1_000_000,
        probe=None,
        wandb=False,
    )
    timer = _Timer()
    with tempfile.TemporaryDirectory(prefix="clozeworks-") as folder, suppress(_EnoughError):
        pretrain(short, [path], Path(folder, "run"), timer)
    # In KiB, on macOS in bytes.
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )
    return timer.seconds_per_step() / short.batch_size, round(timer.memory_gb * 1e9) or resident


def _steps(schedule: Schedule, step_s: list[float]) -> list[int]:
    """Return the number of steps on each directory."""
    if schedule.num_steps is None:
        assert schedule.budget_s is not None
        return [max(1, round(schedule.budget_s / step_s[0]))]
    ends = [*schedule.phase_ends, schedule.num_steps]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def _num_parameters(config: PretrainConfig, directories: list[InstanceDirectory]) -> int:
    if config.checkpoint:
        shape = replace(read_config(config.checkpoint), vocab_size=directories[0].vocab_size)
    else:
        shape = new_model(config, directories).config
    with torch.device("meta"):  # without memory
        return sum(parameter.numel() for parameter in BertForPreTraining(shape).parameters())


def _resumes(output: str, wanted: Mapping[str, Any]) -> bool:
    """Return whether `output` holds the run of this identity; raises `UserError` if it holds the
    work of another.
    """
    path = storage.join(output, RUN)
    if not storage.exists(path):
        return False
    changes = changed_fields(parse_json(storage.read_bytes(path), dict[str, Any], path), wanted)
    has_work = any(
        storage.find_files(storage.join(output, name))
        for name in (SUMMARY, "checkpoints", "archive")
    )
    if changes and has_work:
        raise other_settings(output, changes)
    return not changes
