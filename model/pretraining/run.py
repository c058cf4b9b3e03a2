"""The directory of a pre-training run: whose it is, its checkpoints, and where it goes on.

run.json                  what the run is: configuration and instances; another one is refused
checkpoints/step-000100/  a model directory, with training_state/ beside it for the exact resume
checkpoints/best/         the model with the lowest validation loss
model.safetensors ...     the model of the last checkpoint
README.md                 the model card, once the run is finished
metrics.csv speed.csv loss.png logs/ summary.json timings.json
"""

import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from ...pipeline.errors import UserError
from ..checkpoint import CONFIG, TOKENIZER_FILES, WEIGHTS, save_model, write_file
from ..training.curve import CURVE
from .card import CARD

RUN = "run.json"
SUMMARY = "summary.json"
STATE = "training_state"
MODEL_FILES = (WEIGHTS, CONFIG, *TOKENIZER_FILES)
RECORDS = ("timings.json", "metrics.csv", "speed.csv", CURVE, "logs")
OWN_FILES = (SUMMARY, CARD, *RECORDS, "checkpoints", *MODEL_FILES, RUN)
FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def claim(
    output: Path,
    identity: dict[str, Any],
    overwrite: bool = False,
    own_files: tuple[str, ...] = OWN_FILES,
    advice: str = "",
) -> None:
    """Make `output` the directory of the run that `identity` describes, or check that it is.

    `own_files` is what a run may leave there, the file of the identity last, so that it outlives a killed clean-up.
    `advice` is what else can be done where the directory belongs to another run.
    Raises `UserError` naming the differing fields where it belongs to another run, and where it holds other files.
    """
    path = output / own_files[-1]
    if overwrite and path.exists():
        _remove(output, own_files)
    if not path.exists():
        try:
            output.mkdir(parents=True, exist_ok=True)
            if any(path.suffix != ".partial" for path in output.iterdir()):
                raise UserError(f"{output} is not empty and holds no run; give another --output.")
            write_json(path, identity)
        except (FileExistsError, FileNotFoundError, NotADirectoryError, PermissionError) as error:
            raise UserError(
                f"{output} cannot be made or written to ({error.strerror}); give another --output."
            ) from None
    stored = read_json(path)
    names = [name for name in {**stored, **identity} if stored.get(name) != identity.get(name)]
    if names:
        changes = ", ".join(f"{name} {stored.get(name)} (now {identity.get(name)})" for name in names)
        what_next = f"give another --output, or --overwrite to start anew{advice}"
        raise UserError(f"{output} holds a run with {changes}; {what_next}.")


def _remove(directory: Path, names: tuple[str, ...]) -> None:
    for name in names:
        path = directory / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


@contextmanager
def full_disk_as_user_error(output: Path) -> Iterator[None]:
    """Turn a file that cannot be written for want of room into a `UserError`."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL_DISK:
            raise
        raise UserError(
            f"{output} cannot be written to ({error.strerror}); the last checkpoint stays. Make room, then run the "
            "same command again."
        ) from None


def read_summary(output: Path) -> dict[str, Any] | None:
    """Return the summary of a finished run, None where it is not finished."""
    path = output / SUMMARY
    return read_json(path) if path.exists() else None


def read_json(path: Path) -> dict[str, Any]:
    """Return what `write_json` wrote; raises `UserError` where the file is damaged."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise UserError(f"{path} is damaged; give another --output, or --overwrite to start anew.")
    return values


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write `values` readably, the whole file or nothing."""
    write_file(path, json.dumps(values, indent=2).encode() + b"\n")


def latest_checkpoint(output: Path) -> Path | None:
    """Return the newest complete checkpoint of a run."""
    return next(reversed(_checkpoints(output)), None)


def _checkpoints(output: Path) -> list[Path]:
    found = (output / "checkpoints").glob("step-*")
    return sorted((path for path in found if not path.suffix), key=lambda path: int(path.name.removeprefix("step-")))


def save_checkpoint(
    output: Path,
    model: Mapping[str, Any],
    optimizer: Mapping[str, Any],
    state: Mapping[str, Any],
    keep: int,
) -> None:
    """Write a checkpoint that is seen complete or not at all, make its model the run's own, and drop the oldest.

    `model` holds the arguments of `save_model` but the directory; `state` is plain JSON with the number of steps
    done in ``step``. Raises `UserError` where the disk is full; the checkpoint before then stays.
    """
    path = output / "checkpoints" / f"step-{state['step']:07d}"
    partial = path.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        (partial / STATE).mkdir(parents=True)
        save_model(partial, **model)
        with (partial / STATE / "optimizer.pt").open("wb") as file:
            torch.save(optimizer, file)
            file.flush()
            os.fsync(file.fileno())
        write_json(partial / STATE / "state.json", state)
        shutil.rmtree(path, ignore_errors=True)
        partial.rename(path)
    except (OSError, RuntimeError) as error:  # torch.save reports a full disk as RuntimeError
        shutil.rmtree(partial, ignore_errors=True)
        reason = str(error).splitlines()[0]
        raise UserError(f"No checkpoint could be written to {path} ({reason}); the last one stays.") from None
    publish(path, output)
    for old in (*_checkpoints(output)[:-keep], *path.parent.glob("step-*.partial")):
        shutil.rmtree(old)


def publish(checkpoint: Path, output: Path) -> None:
    """Make the model of a checkpoint the run's own."""
    for name in MODEL_FILES:
        _link(checkpoint / name, output / name)


def _link(source: Path, target: Path) -> None:
    # A second name for the same bytes where the file system has that; files are only ever replaced whole.
    partial = target.with_name(f"{target.name}.partial")
    partial.unlink(missing_ok=True)
    try:
        os.link(source, partial)
    except OSError:
        shutil.copyfile(source, partial)
    partial.replace(target)


def save_best(output: Path, model: Mapping[str, Any], metrics: Mapping[str, Any]) -> None:
    """Replace ``checkpoints/best`` by `model`, with its validation `metrics` beside it."""
    best = output / "checkpoints" / "best"
    partial, old = best.with_suffix(".partial"), best.with_suffix(".old")
    for left in (partial, old):
        shutil.rmtree(left, ignore_errors=True)
    save_model(partial, **model)
    write_json(partial / "metrics.json", metrics)
    if best.exists():
        best.rename(old)
    partial.rename(best)
    shutil.rmtree(old, ignore_errors=True)


def read_state(checkpoint: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the optimiser's and the run's state as `save_checkpoint` was given them."""
    folder = checkpoint / STATE
    try:
        optimizer = torch.load(folder / "optimizer.pt", map_location="cpu", weights_only=True)
        return optimizer, json.loads((folder / "state.json").read_text(encoding="utf-8"))
    except (OSError, RuntimeError, ValueError, UnpicklingError):
        raise UserError(f"{checkpoint} is damaged; delete it to go on from the one before.") from None
