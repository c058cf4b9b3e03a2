"""Keep the directory of a pre-training run: its claim, its checkpoints, and its resumption.

run.json                  the run's identity: configuration and instances; another one is refused
checkpoints/step-000100/  a model directory, with training_state/ beside it for the exact resume
checkpoints/best/         the model with the lowest validation loss
archive/step-100/         models of `archive_every`, which nothing deletes; with a `schedule` that
                          can be prolonged, also the optimiser's state
model.safetensors ...     the model of the last checkpoint
README.md                 the model card, once the run is finished
metrics.csv speed.csv loss.png logs/ summary.json timings.json
"""

import hashlib
import os
import shutil
import uuid
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import torch
from msgspec import Struct

from ...pipeline.errors import UserError
from ...pipeline.parsing import Count, Finite, parse_json
from ...pipeline.storage.claim import claimed, decide, find_work
from ...pipeline.storage.directory import TEMPORARY, OutputDirectory
from ...pipeline.storage.stage import VOCABULARY_FILES
from ..card import CARD
from ..checkpoint import CONFIG, WEIGHTS, ModelFiles, load_tensors, save_model, write_json
from ..training.curve import CURVE
from .evaluate import NUM_SUMS

RUN = "run.json"
SUMMARY = "summary.json"
STATE = "training_state"
OPTIMIZER = "optimizer.pt"
PROGRESS = "state.json"
MODEL_FILES = (WEIGHTS, CONFIG, *VOCABULARY_FILES)
RECORDS = ("timings.json", "metrics.csv", "speed.csv", CURVE, "logs", "archive")
RESULTS = (SUMMARY, "checkpoints", "archive")
"""A run without any of these has nothing to lose, so its options may still be changed."""
OWN_FILES = (SUMMARY, CARD, *RECORDS, "checkpoints", *MODEL_FILES)


class _Recorded(Struct, frozen=True):
    """The part of ``state.json`` that says whether other files of a checkpoint are whole."""

    sha256: dict[str, str]


class Summary(TypedDict):
    """The content of ``summary.json``, which `pretrain` returns."""

    status: str
    step: Count
    parameters: Count
    tokens: Count
    rows: Count
    initial: Mapping[str, Finite]
    final: Mapping[str, Finite]
    best: Mapping[str, Finite] | None
    validation_rows: Count
    """Held-out rows that the metrics are measured on."""


def _check_metrics(*measured: Mapping[str, float] | None) -> None:
    """Raise `ValueError` unless the metrics before training, at its end and of the best model have
    the same names.
    """
    names = [metrics.keys() - {"step"} for metrics in measured if metrics is not None]
    if any("loss" not in metrics or metrics != names[0] for metrics in names):
        raise ValueError("initial, final and best do not have the same metrics")


@dataclass
class PretrainState:
    """Everything that a run remembers besides weights and optimiser; saved with each checkpoint."""

    step: int = 0
    num_tokens: int = 0
    num_rows: int = 0
    seconds: float = 0.0
    """Time spent training, for a budget of hours; otherwise 0, so that equal runs have equal
    checkpoints.
    """
    sums: list[float] = field(default_factory=lambda: [0.0] * NUM_SUMS)
    """Added up since the last line of the log; see `evaluate.batch_sums`."""
    initial: Mapping[str, int | float] | None = None
    best: Mapping[str, int | float] | None = None
    final: Mapping[str, int | float] | None = None
    num_threads: int | None = None
    """Threads of each operation on a CPU, which decide the last bits; None on a GPU."""

    def __post_init__(self) -> None:
        _check_metrics(self.initial, self.final, self.best)


def claimed_run(
    output: Path, identity: Mapping[str, object], overwrite: bool
) -> AbstractContextManager[OutputDirectory]:
    """Hold `output` as the directory of the run that `identity` describes; another one without a
    checkpoint is replaced.
    """
    advice = f"; to continue from its weights, use `checkpoint` {output} with another `output`"
    return claimed(
        str(output), identity, RUN, OWN_FILES, overwrite=overwrite, results=RESULTS, advice=advice
    )


def resumes_run(output: str, identity: Mapping[str, object], *, overwrite: bool) -> bool:
    """Return whether `claimed_run` would resume a run; raises `UserError` as it would."""
    found = find_work(output, identity, RUN, RESULTS, overwrite=overwrite)
    return decide(output, found, overwrite=overwrite) != "new"


def read_summary(output: Path) -> Summary | None:
    """Return the summary of a finished run, None if it is not finished."""
    path = output / SUMMARY
    if not path.exists():
        return None

    def check(summary: Summary) -> None:
        _check_metrics(summary["initial"], summary["final"], summary["best"])

    return parse_json(
        path.read_bytes(), Summary, path, "Delete it and rerun; the run resumes.", check
    )


def latest_checkpoint(output: Path) -> Path | None:
    """Return the newest complete checkpoint of a run."""
    checkpoints = _checkpoints(output)
    if not checkpoints:
        return None
    return checkpoints[-1]


def _checkpoints(output: Path) -> list[Path]:
    """Return the checkpoints of a run, the oldest first."""
    path_by_step = {}
    for path in (output / "checkpoints").glob("step-*"):
        number = path.name.removeprefix("step-")
        if number.isdecimal():  # else it is a checkpoint that a kill left unfinished
            path_by_step[int(number)] = path
    return [path_by_step[step] for step in sorted(path_by_step)]


def save_checkpoint(
    output: Path, model: ModelFiles, optimizer: Mapping[str, object], state: PretrainState
) -> None:
    """Write a checkpoint, complete or not at all, make its model the run's own, and delete the one
    before.

    Raises `UserError` if it cannot be written; the checkpoint before then stays.
    """
    name = f"checkpoints/step-{state.step:07d}"
    try:
        with OutputDirectory(str(output)).write_folder(name) as folder:
            save_model(folder, *model)
            _save_optimizer(optimizer, folder)
            recorded = {**asdict(state), "sha256": _digests(folder)}
            write_json(folder / STATE / PROGRESS, recorded)
    except (OSError, RuntimeError) as error:  # torch.save reports a full disk as RuntimeError
        reason = str(error).splitlines()[0]
        raise UserError(
            f"Cannot write the checkpoint {output}/{name} ({reason}); the last one is kept."
        ) from None
    publish(output / name, output)


def _save_optimizer(optimizer: Mapping[str, object], folder: Path) -> None:
    (folder / STATE).mkdir()
    # Given a path, `torch.save` would put its temporary name into the file.
    with (folder / STATE / OPTIMIZER).open("wb") as file:
        torch.save(optimizer, file)


def _digests(checkpoint: Path) -> dict[str, str]:
    """Return the SHA-256 of what a run resumes from, by its path in the checkpoint."""
    digests = {}
    for name in (WEIGHTS, f"{STATE}/{OPTIMIZER}"):
        with (checkpoint / name).open("rb") as file:
            digests[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


def publish(checkpoint: Path, output: Path) -> None:
    """Make the model of the newest checkpoint the run's own, and delete all older checkpoints."""
    temporary = output / TEMPORARY
    temporary.mkdir(parents=True, exist_ok=True)
    for name in MODEL_FILES:
        if not (checkpoint / name).exists():  # byte-level BPE has no vocab.txt
            continue
        partial = temporary / f"{name}.{uuid.uuid4().hex}"
        # A link takes no space, and `replace` makes the model whole at once for its readers.
        try:
            os.link(checkpoint / name, partial)
        except OSError:  # a file system without hard links
            shutil.copyfile(checkpoint / name, partial)
        partial.replace(output / name)
    # Only now: a kill before this leaves two checkpoints, never none.
    *older, _newest = _checkpoints(output)
    for checkpoint_before in older:
        shutil.rmtree(checkpoint_before)


def save_best(output: Path, model: ModelFiles, metrics: Mapping[str, float]) -> None:
    """Replace ``checkpoints/best`` by `model`, with its validation `metrics` beside it."""
    with OutputDirectory(str(output)).write_folder("checkpoints/best") as folder:
        save_model(folder, *model)
        write_json(folder / "metrics.json", metrics)


def save_archive(
    output: Path, model: ModelFiles, step: int, optimizer: Mapping[str, object] | None = None
) -> None:
    """Write `model` to ``archive/step-N`` for later study, or with the state of its `optimizer` for
    another run to continue from; nothing deletes it.
    """
    with OutputDirectory(str(output)).write_folder(f"archive/step-{step}") as folder:
        save_model(folder, *model)
        if optimizer is not None:
            _save_optimizer(optimizer, folder)


def read_state(checkpoint: Path) -> tuple[dict[str, Any], PretrainState]:
    """Return the optimiser's and the run's state as `save_checkpoint` was given them."""
    advice = advice_if_damaged(checkpoint)
    folder = checkpoint / STATE
    path = folder / PROGRESS
    try:
        content = path.read_bytes()
    except OSError:
        raise UserError(f"{path} is missing. {advice}") from None
    state = parse_json(content, PretrainState, path, advice)
    recorded = parse_json(content, _Recorded, path, advice).sha256
    optimizer = load_tensors(folder / OPTIMIZER, advice)
    for name, digest in _digests(checkpoint).items():
        if digest != recorded.get(name):
            raise UserError(f"{checkpoint}/{name} is damaged. {advice}")
    return optimizer, state


def advice_if_damaged(checkpoint: Path) -> str:
    """Say how a run continues without this checkpoint of its own."""
    # A run has one checkpoint, except when it was killed between writing one and deleting the last.
    return f"Delete {checkpoint} to resume from the checkpoint before it, or to start over."
