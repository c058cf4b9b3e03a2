"""Keep the directory of a run, of pre-training or fine-tuning: its claim, its checkpoints, and its
resumption.

run.json                  the run's identity: configuration and data; another one is refused
checkpoints/step-000100/  a model directory, with training_state/ beside it for the exact resume;
                          a finished fine-tuning has none
checkpoints/best/         the model that is best on held-out data
metrics.csv speed.csv logs/
summary.json              once the run is finished

and of pre-training alone

model.safetensors ...     the model of the last checkpoint
archive/step-100/         models of `archive_every`, which nothing deletes; with a `schedule` that
                          can be prolonged, also the optimiser's state
README.md                 the model card, once the run is finished
timings.json
"""

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

import torch
from msgspec import Struct

from ...pipeline.errors import UserError
from ...pipeline.parsing import digest_of_fields, parse_json
from ...pipeline.seeding import stable_hash
from ...pipeline.storage import is_remote
from ...pipeline.storage.directory import TEMPORARY, OutputDirectory
from ...pipeline.storage.state import VOCABULARY_FILES, claimed, resumes
from ..card import CARD
from ..checkpoint import (
    CONFIG,
    WEIGHTS,
    Checkpoint,
    ModelFiles,
    files_digest,
    load_tensors,
    save_model,
    write_json,
)
from .ranks import Ranks
from .update import Updater

RUN = "run.json"
SUMMARY = "summary.json"
CHECKPOINTS = "checkpoints"
BEST = f"{CHECKPOINTS}/best"
STATE = "training_state"
OPTIMIZER = "optimizer.pt"
PROGRESS = "state.json"
MODEL_FILES = (WEIGHTS, CONFIG, *VOCABULARY_FILES)
RECORDS = ("timings.json", "metrics.csv", "speed.csv", "logs", "archive")
RESULTS = (SUMMARY, CHECKPOINTS, "archive")
"""A run without any of these has nothing to lose, so its options may still be changed."""
OWN_FILES = (SUMMARY, CARD, *RECORDS, CHECKPOINTS, *MODEL_FILES)

T = TypeVar("T")


class _Recorded(Struct, frozen=True):
    """The part of ``state.json`` that says whether a checkpoint is whole."""

    sha256: dict[str, str]
    """The digests of other files."""
    digest: str = ""
    """That of all fields but these two; older checkpoints have none."""


def claimed_run(
    output: Path, identity: Mapping[str, object], overwrite: bool
) -> AbstractContextManager[OutputDirectory]:
    """Hold `output` as the directory of a run; another one without results is replaced."""
    return claimed(str(output), identity, RUN, OWN_FILES, overwrite=overwrite, results=RESULTS)


def refuse_inside(checkpoint: str | Path, output: str | Path) -> None:
    """Raise `UserError` if `overwrite` may delete the `checkpoint` before it is read."""
    is_local = not is_remote(str(checkpoint))
    if is_local and Path(checkpoint).resolve().is_relative_to(Path(output).resolve()):
        raise UserError(
            f"`checkpoint` {checkpoint} is inside `output` {output}; choose another `output`."
        )


def resumes_run(output: str | Path, identity: Mapping[str, object], *, overwrite: bool) -> bool:
    """Return whether `claimed_run` would resume a run; raises `UserError` as it would."""
    return resumes(str(output), identity, RUN, overwrite=overwrite, results=RESULTS)


def read_summary(output: Path, kind: type[T]) -> T | None:
    """Return the summary of a finished run, None if it is not finished; see `parse_json`."""
    path = output / SUMMARY
    if not path.exists():
        return None
    return parse_json(path.read_bytes(), kind, path, "Delete it and rerun; the run resumes.")


def checkpoints_of(output: Path) -> list[Path]:
    """Return the complete checkpoints of a run, the oldest first."""
    # Other names are of checkpoints that a kill left unfinished.
    paths = (output / CHECKPOINTS).glob("step-*")
    return sorted(
        (path for path in paths if path.name.removeprefix("step-").isdecimal()),
        key=lambda path: int(path.name.removeprefix("step-")),
    )


def agree_on_run(
    ranks: Ranks, identity: Mapping[str, object], output: Path, start: Checkpoint | None
) -> Path | None:
    """Return the checkpoint that the run resumes from, if any.

    Raises `UserError` unless all ranks see the same files, which several machines without a shared
    disk do not; `start` is the model that a new run begins with, if it is not a random one.
    """
    latest = next(reversed(checkpoints_of(output)), None)
    if ranks.num_ranks == 1:
        return latest
    claim = output / RUN
    resumes_from = "none"
    if latest:
        files = [latest / STATE / name for name in (OPTIMIZER, PROGRESS)]
        resumes_from = f"{latest.name} {files_digest(files)}"
        start = Checkpoint.open(latest)
    facts = {
        "the configuration and the data": f"{stable_hash(json.dumps(identity)):016x}",
        "`output`": files_digest([claim]) if claim.is_file() else "missing",
        "the checkpoint to start from": resumes_from,
        "the model to start from": start.digest() if start else "none",
    }
    ranks.agree(facts)
    ranks.wait()  # until all have read the checkpoint: the first rank deletes older ones
    return latest


def save_checkpoint(
    output: Path,
    step: int,
    model: ModelFiles,
    optimizer: Mapping[str, object],
    state: Mapping[str, object],
) -> Path:
    """Write a checkpoint, complete or not at all, delete those before, and return its folder."""
    name = f"{CHECKPOINTS}/step-{step:07d}"
    with OutputDirectory(str(output)).write_folder(name) as folder:
        save_model(folder, model)
        _save_optimizer(optimizer, folder)
        digests = {"sha256": _digests(folder), "digest": _digest_of_state(state)}
        recorded = {**state, **digests}
        write_json(folder / STATE / PROGRESS, recorded)
    # Only now: a kill before this leaves two checkpoints, never none.
    delete_checkpoints(output, keep=1)
    return output / name


def delete_checkpoints(output: Path, *, keep: int = 0) -> None:
    """Delete the checkpoints of a run but `keep` of the newest; the best model stays."""
    checkpoints = checkpoints_of(output)
    for checkpoint in checkpoints[: len(checkpoints) - keep]:
        shutil.rmtree(checkpoint)


class _Sink:
    """A file for `torch.save`, whose writer in C++ hides why a write failed."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self.error: OSError | None = None

    def write(self, data: bytes | memoryview) -> int:
        """Write `data`; after an error, pretend to."""
        if self.error is None:
            try:
                self._file.write(data)
            except OSError as error:
                self.error = error
        return len(data)

    def flush(self) -> None:
        """Do nothing: closing the file writes what is left."""


def _save_optimizer(optimizer: Mapping[str, object], folder: Path) -> None:
    (folder / STATE).mkdir()
    # Given a path, `torch.save` would put its temporary name into the file.
    with (folder / STATE / OPTIMIZER).open("wb") as file:
        sink = _Sink(file)
        torch.save(optimizer, cast(Any, sink))
        if sink.error:
            raise sink.error


def _digests(checkpoint: Path) -> dict[str, str]:
    """Return the SHA-256 of what a run resumes from, by its path in the checkpoint."""
    digests = {}
    for name in (WEIGHTS, f"{STATE}/{OPTIMIZER}"):
        with (checkpoint / name).open("rb") as file:
            digests[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


def _digest_of_state(state: Mapping[str, object]) -> str:
    # As JSON, which a stored one comes from: tuples are lists, and names are text.
    return digest_of_fields(json.loads(json.dumps(state)), "sha256")


def link_files(names: Iterable[str], source: Path, output: Path) -> None:
    """Make the files `names` of `source`, those that it has, files of `output` too, one after the
    other; each is whole at once for its readers.
    """
    temporary = output / TEMPORARY
    temporary.mkdir(parents=True, exist_ok=True)
    for name in names:
        if not (source / name).exists():  # byte-level BPE has no vocab.txt
            continue
        partial = temporary / uuid.uuid4().hex
        # A link takes no space.
        try:
            os.link(source / name, partial)
        except OSError:  # a file system without hard links
            shutil.copyfile(source / name, partial)
        (output / name).parent.mkdir(exist_ok=True)
        partial.replace(output / name)


def save_best(output: Path, model: ModelFiles, metrics: Mapping[str, float]) -> None:
    """Replace ``checkpoints/best`` by `model`, with its validation `metrics` beside it."""
    with OutputDirectory(str(output)).write_folder(BEST) as folder:
        save_model(folder, model)
        write_json(folder / "metrics.json", metrics)


def save_archive(
    output: Path, model: ModelFiles, step: int, optimizer: Mapping[str, object] | None = None
) -> None:
    """Write `model` to ``archive/step-N``, with an `optimizer` for another run to continue from."""
    with OutputDirectory(str(output)).write_folder(f"archive/step-{step}") as folder:
        save_model(folder, model)
        if optimizer is not None:
            _save_optimizer(optimizer, folder)


def read_state(
    checkpoint: Path, kind: type[T], updater: Updater | None = None
) -> tuple[dict[str, Any], T]:
    """Return the optimiser's state, loaded into `updater`, and the run's."""
    # A run has one checkpoint, except when it was killed between writing one and deleting the last.
    advice = f"Delete {checkpoint} to resume from the checkpoint before it, or to start over."
    folder = checkpoint / STATE
    path = folder / PROGRESS
    try:
        content = path.read_bytes()
    except OSError:
        raise UserError(f"{path} is missing. {advice}") from None
    state = parse_json(content, kind, path, advice)
    recorded = parse_json(content, _Recorded, path, advice)
    if recorded.digest not in ("", _digest_of_state(json.loads(content))):
        raise UserError(f"{path} is damaged. {advice}")
    optimizer = load_tensors(folder / OPTIMIZER, advice)
    for name, digest in _digests(checkpoint).items():
        if digest != recorded.sha256.get(name):
            raise UserError(f"{checkpoint}/{name} is damaged. {advice}")
    if updater and not updater.restore(optimizer):
        raise UserError(f"{folder} is damaged or belongs to another model. {advice}")
    return optimizer, state
