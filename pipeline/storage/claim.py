"""Decide whether an output directory is new, begun, finished, or somebody else's.

Every command that writes a directory (or the one file of ``features``) asks here: it reads what is
there once (`Found`), `decide` says what that means, and only then is anything written.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from .. import storage
from ..errors import UserError
from ..parsing import parse_json
from .directory import WORK, OutputDirectory, locked

State = Literal["new", "begun", "finished"]
"""Of the work that is asked for, in an output directory."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What an output directory holds, beside the work that is asked for."""

    changes: Sequence[str] | None
    """How the work that has begun there differs from it, in words: none if it is the same work.
    None if no work has begun."""
    is_finished: bool = False
    has_results: bool = True
    """Whether anything would be lost if the work that has begun there were deleted."""
    other_file: str | None = None
    """The name of a file that clozeworks did not write."""


def decide(path: str, found: Found, *, overwrite: bool, advice: str = "") -> State:
    """Return the state of the work; what is "new" may replace all that clozeworks wrote there.

    ============  =======  ===========  =============
    changes       results  overwrite    state
    ============  =======  ===========  =============
    none begun                          new
    some                   yes          new
    some          yes      no           refused
    some          no       no           new: most often it is the same command, corrected
    none                   yes          new
    none                   no           begun or finished
    ============  =======  ===========  =============

    Raise `UserError`, with `advice`, for work that is refused, and for files of others where new
    work would begin.
    """
    if found.changes is None or (found.changes and not found.has_results and not overwrite):
        if found.other_file:
            raise UserError(
                f"{path} already contains other files ({found.other_file}, …). "
                "Choose another `output`."
            )
        return "new"
    if overwrite:
        return "new"
    if found.changes:
        raise UserError(
            f"{path} was written with other settings ({'; '.join(found.changes)}). "
            f"Choose another `output`, or start over with `overwrite`{advice}."
        )
    return "finished" if found.is_finished else "begun"


def changed_fields(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Return the fields in which two identities differ, in words."""
    # As JSON, which the stored one comes from: tuples are lists.
    wanted = json.loads(json.dumps(wanted))
    changes = []
    # The names of both, in the order of the stored ones and then new ones.
    for name in {**stored, **wanted}:
        before = stored.get(name)
        now = wanted.get(name)
        if before != now:
            changes.append(f"{name} was {before}, now {now}")
    return changes


def find_work(
    path: str,
    identity: Mapping[str, Any],
    identity_file: str,
    results: Sequence[str] | None,
    *,
    overwrite: bool,
) -> Found:
    """Return what a directory holds whose identity is stored in `identity_file`; see `claimed`.

    Raise `UserError` if that file is damaged, unless `overwrite`.
    """
    stored_at = storage.join(path, identity_file)
    if not storage.exists(stored_at):
        return Found(changes=None, other_file=other_file(path))
    if overwrite:
        return Found(changes=())
    next_step = "Choose another `output`, or start over with `overwrite`."
    stored = parse_json(storage.read_bytes(stored_at), dict[str, Any], stored_at, next_step)
    has_results = results is None or any(
        storage.find_files(storage.join(path, name)) for name in results
    )
    return Found(changes=changed_fields(stored, identity), has_results=has_results)


def other_file(path: str, but: re.Pattern[str] | None = None) -> str | None:
    """Return the name of a file or folder that is neither hidden nor named like `but`, if any."""
    names: list[str] = []
    if storage.is_remote(path):
        names = storage.file_names(path)
    elif os.path.isdir(path):
        names = sorted(os.listdir(path))
    for name in names:
        is_ours = but is not None and but.fullmatch(name)
        if not name.startswith(".") and not is_ours:
            return name
    return None


@contextmanager
def claimed(
    path: str,
    identity: Mapping[str, Any],
    identity_file: str,
    own_files: Iterable[str],
    *,
    overwrite: bool = False,
    results: Sequence[str] | None = None,
    advice: str = "",
) -> Iterator[OutputDirectory]:
    """Hold a local directory, locked, as the output of the work that `identity` describes.

    `identity` is stored as JSON in `identity_file`. The same identity resumes. Other work is
    replaced (`own_files` are deleted, no others) with `overwrite`, or if none of its `results` is
    there, which are files and folders; else `decide` refuses it.
    """
    directory = OutputDirectory(path)
    with locked(path):
        found = find_work(path, identity, identity_file, results, overwrite=overwrite)
        state = decide(path, found, overwrite=overwrite, advice=advice)
        directory.remove(WORK)  # of a process that was killed
        if state == "new":
            # The identity is deleted last: until then, files that a kill leaves have an owner.
            directory.remove(*own_files, identity_file)
            directory.write_json(identity_file, identity)
        yield directory
