"""The state of an output directory: new, begun, finished, or somebody else's.

Work is known by its *identity*: a stage's head, a trainer's configuration. The same work resumes;
other work is refused, naming the fields that differ, unless nothing of it would be lost; files of
others are never touched. The files of a data stage tell its state::

    (nothing, or only hidden files)    new
    .work/3f9c…/job.json               begun; the folder is named for the work
    manifest.json                      finished, even if a kill has left .work/ beside it
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast

from msgspec import structs

from .. import storage
from ..data_card import CARD
from ..errors import UserError
from ..manifests import (
    KINDS,
    SCHEMA_VERSION,
    AnyManifest,
    Manifest,
    StoredHead,
    VocabularyManifest,
    parse_manifest,
)
from ..parsing import digest_of, parse_json
from .directory import WORK, OutputDirectory, locked

MANIFEST = "manifest.json"
TIMINGS = "timings.json"
MACHINE_MADE = "machine-made.jsonl"
"""The ids that an audit of documents lists."""
JOB = "job.json"
VOCABULARY_FILES = ("vocab.txt", "tokenizer.json", "tokenizer_config.json")
BAD_INPUTS = "bad"
"""The folder of lists of bad input, one for each unit that met any."""
WORD_COUNTS_FILE = "word_counts.parquet"

FORMAT = 10
"""The version of jobs, plans, records and temporary tables; a part of their folder's name."""

State = Literal["new", "replaced", "begun", "finished"]
"""What the work that is asked for is in an output directory; see `look`."""

_OTHER_OUTPUT = "Choose another `output`, or start over with `overwrite`."
_STAGE_FILES = re.compile(
    "|".join(
        [
            r"(train|validation)-\d+-of-\d+\.parquet",
            rf"{BAD_INPUTS}(/range-\d+\.jsonl)?",
            *map(re.escape, (*VOCABULARY_FILES, WORD_COUNTS_FILE, TIMINGS, MACHINE_MADE, CARD)),
        ]
    )
)


def read_manifest(directory: str, kind: type[AnyManifest]) -> AnyManifest:
    """Return the manifest of a finished directory of one kind; raise `UserError` if there is none,
    or a file is missing or cut off.
    """
    stage = next(name for name, stage_kind in KINDS.items() if stage_kind is kind)
    manifest = read_any_manifest(directory, stage)
    if not isinstance(manifest, kind):
        raise UserError(
            f"{directory} was written by `clozeworks {manifest.stage}`, "
            f"not by `clozeworks {stage}`."
        )
    damage = damage_of(directory, manifest)
    if not isinstance(manifest, VocabularyManifest):
        splits = {shard.split for shard in manifest.shards}
        if "train" not in splits:
            damage = f"{storage.join(directory, MANIFEST)} lists no training shard"
    if damage:
        raise UserError(f"{damage}: recreate it with `clozeworks {stage} … --overwrite`.")
    return manifest


def read_any_manifest(directory: str, *stages: str) -> Manifest:
    """Return the manifest of a finished directory; raise `UserError` if there is none, naming the
    folders in it that one of the `stages` (by default any) wrote.
    """
    manifest, _ = read_finished(directory)
    if manifest is not None:
        return manifest
    if unfinished_stage(directory):
        raise UserError(
            f"{directory} is unfinished: rerun the command that writes it; it resumes, or "
            "says what is wrong."
        )
    writer = " or ".join(f"`clozeworks {stage}`" for stage in stages or KINDS)
    fault = describe_absence(directory)
    if not fault:
        fault = f"{directory} has no {MANIFEST}"
        if stages == ("ingest",):
            writer += ", which reads documents that other programs filtered, too"
    heads = {folder: read_finished(folder)[1] for folder in folders_with(directory, MANIFEST)}
    folders = [folder for folder, head in heads.items() if head and head.stage in (stages or KINDS)]
    if folders:
        raise UserError(f"{fault}: give {' or '.join(folders)}.")
    raise UserError(f"{fault}: give a directory written by {writer}.")


def folders_with(directory: str, *names: str) -> list[str]:
    """Return the folders in a directory that hold one of these files."""
    folders = [storage.join(directory, name) for name in storage.folder_names(directory)]
    return [
        folder
        for folder in folders
        if any(storage.exists(storage.join(folder, name)) for name in names)
    ]


def read_finished(directory: str) -> tuple[Manifest | None, StoredHead | None]:
    """Return a directory's manifest, and its head as stored; None for both without one."""
    path = storage.join(directory, MANIFEST)
    try:
        content = storage.read_bytes(path)
    except (FileNotFoundError, NotADirectoryError):
        return None, None
    return parse_manifest(content, path), parse_json(content, StoredHead, path)


@dataclass(frozen=True)
class Begun:
    """What every version writes in ``job.json``; see `execution.job`."""

    head: StoredHead


def begun_in(directory: str) -> dict[str, StoredHead]:
    """Return the heads of the work that has begun in a directory, by its folder below ``.work``."""
    heads = {}
    for folder in storage.folder_names(storage.join(directory, WORK)):
        path = storage.join(directory, WORK, folder, JOB)
        with suppress(FileNotFoundError):  # a folder of temporary files
            # The line after it is its digest, which the work itself checks: other versions' may
            # have none, and what they began can still be named and replaced.
            content, _, _ = storage.read_bytes(path).partition(b"\n")
            heads[folder] = parse_json(content, Begun, path).head
    return heads


def unfinished_stage(directory: str) -> str | None:
    """Return the name of the stage that has begun in a directory and not ended, or None."""
    if not storage.exists(storage.join(directory, MANIFEST)):
        for head in begun_in(directory).values():
            return head.stage
    return None


def describe_absence(directory: str) -> str:
    """Say why a local path is not a directory with files; empty if it is one, or is remote."""
    if storage.is_remote(directory):
        return ""
    if not os.path.exists(directory):
        return f"{directory} does not exist"
    if os.path.isfile(directory):
        return f"{directory} is a file"
    if not os.listdir(directory):
        return f"The folder {directory} is empty"
    return ""


def damage_of(directory: str, manifest: Manifest) -> str | None:
    """Say which file of a finished directory is missing or cut off; None if none is."""
    # By sizes, not digests: this is checked before each command, and a corpus may have terabytes.
    sizes = storage.file_sizes(directory)
    if isinstance(manifest, VocabularyManifest):
        for name in (manifest.word_counts.name, *VOCABULARY_FILES):
            is_needed = name != "vocab.txt" or manifest.config.algorithm != "bpe"
            if is_needed and name not in sizes:
                return f"{storage.join(directory, name)} is missing"
        return None
    for shard in manifest.shards:
        path = storage.join(directory, shard.name)
        if shard.name not in sizes:
            return f"{path} is missing"
        if sizes[shard.name] != shard.bytes:
            return f"{path} does not have the size recorded in {MANIFEST}"
    return None


def verify_files(directory: str) -> None:
    """Raise `UserError` naming the first file that does not have its manifest's digest."""
    manifest = read_any_manifest(directory)
    is_vocabulary = isinstance(manifest, VocabularyManifest)
    for file in [manifest.word_counts] if is_vocabulary else manifest.shards:
        path = storage.join(directory, file.name)
        with storage.open_input(path) as source:
            digest = hashlib.file_digest(cast(Any, source), "sha256").hexdigest()
        if digest != file.sha256:
            raise UserError(
                f"{path} does not have the digest recorded in {MANIFEST}: recreate it with "
                f"`clozeworks {manifest.stage} … --overwrite`."
            )


def refuse_input(output: str, *inputs: str) -> None:
    """Raise `UserError` if what a stage reads lies where it writes, and may delete."""
    output_folder = _real_path(output)
    for path in inputs:
        input_folder = _real_path(path)
        if storage.exists(path):  # a file, such as vocab.txt
            input_folder = os.path.dirname(input_folder)
        if input_folder == output_folder:
            raise UserError(
                f"`output` {output} would overwrite the input {path}: choose another `output`."
            )


def _real_path(path: str) -> str:
    if storage.is_remote(path):
        return path.rstrip("/")
    return os.path.realpath(path)


def manifest_head(
    stage: str, config: Any, inputs: Sequence[dict[str, Any]], *libraries: str
) -> StoredHead:
    """Return the head of a manifest; the output depends on the `libraries`, NumPy and PyArrow."""
    from importlib.metadata import version  # late: workers read no version, and it takes long

    versions = {name: version(name) for name in ("clozeworks", "numpy", "pyarrow", *libraries)}
    work = {
        "stage": stage,
        "config": asdict(config),
        "inputs": list(inputs),
        "versions": versions,
    }
    return StoredHead(**work, fingerprint=digest_of(work), schema_version=SCHEMA_VERSION)


def work_folder(head: StoredHead) -> str:
    """Return the name of the folder of a work's temporary files, below ``.work``."""
    return f"{head.fingerprint[:16]}.{FORMAT}"


def look(output: str, head: StoredHead, *, overwrite: bool) -> tuple[State, Manifest | None]:
    """Return the state of a stage's work in a directory, and its manifest if it is finished; change
    nothing.

    ============  =======  =========  =============================================================
    work there    results  overwrite  state
    ============  =======  =========  =============================================================
    none                              new; refused if there are files of others
    the same               no         begun or finished
    another       no       no         replaced: most often it is the same command, corrected
    another       yes      no         refused, naming the fields that differ
    any                    yes        replaced: what clozeworks wrote there may be deleted
    ============  =======  =========  =============================================================

    Raise `UserError` for what is refused, and if finished work is damaged.
    """
    manifest, stored = read_finished(output)
    if manifest is not None and stored is not None:
        if overwrite:
            return "replaced", None
        # Other library versions count only for resuming.
        _refuse_changes(output, _changes(stored, head))
        if damage := damage_of(output, manifest):
            raise UserError(f"{damage}: recreate all of {output} with `overwrite`.")
        return "finished", structs.replace(manifest, already_finished=True)
    begun = begun_in(output)
    if not begun:
        refuse_foreign(output)
        return "new", None
    if overwrite:
        return "replaced", None
    if work_folder(head) in begun:
        return "begun", None
    for folder, other in begun.items():
        # A record is named for its unit's number.
        for file in storage.find_files(storage.join(output, WORK, folder)):
            if re.search(r"/\d+\.json$", file):
                changes = _changes(other, head) + changed_fields(other.versions, head.versions)
                _refuse_changes(output, changes or ["by another version of clozeworks"])
    refuse_foreign(output, but=_STAGE_FILES)
    return "replaced", None


def _changes(stored: StoredHead, wanted: StoredHead) -> list[str]:
    """Return how the work of two heads differs, in words."""
    if stored.stage != wanted.stage:
        return [f"it was written by `clozeworks {stored.stage}`"]
    changes = changed_fields(stored.config, wanted.config)
    if stored.inputs != wanted.inputs:
        before = {json.dumps(each, sort_keys=True) for each in stored.inputs}
        now = {json.dumps(each, sort_keys=True) for each in wanted.inputs}
        changed = "their order"
        for each in (*stored.inputs, *wanted.inputs):
            if json.dumps(each, sort_keys=True) not in before & now:
                # A file has a name; the output of another stage has that stage instead.
                changed = each.get("name", each.get("stage"))
                break
        changes.append(f"the inputs changed: {changed}")
    return changes


def clear_stage(path: str) -> None:
    """Delete what a stage, of any configuration, has left in the directory `path`."""
    names = storage.file_names(path)
    names += [f"{BAD_INPUTS}/{name}" for name in storage.file_names(storage.join(path, BAD_INPUTS))]
    stage_files = [name for name in names if _STAGE_FILES.fullmatch(name) and name != BAD_INPUTS]
    directory = OutputDirectory(path)
    directory.remove(*stage_files)
    with suppress(OSError):  # not empty, or in a store, where there are no folders
        os.rmdir(directory.file(BAD_INPUTS))
    # The manifest goes last, so that what a kill leaves still has an owner.
    directory.remove(WORK, MANIFEST)


def refuse_foreign(path: str, but: re.Pattern[str] | None = None) -> None:
    """Raise `UserError` if a directory has entries, neither hidden nor named like `but`."""
    for name in storage.visible_names(path):
        if but is None or not but.fullmatch(name):
            raise UserError(
                f"{path} already contains other files ({name}, …). Choose another `output`."
            )


def changed_fields(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Return the fields in which two identities differ, in words."""
    # As JSON, which the stored one comes from: tuples are lists.
    wanted = json.loads(json.dumps(wanted))
    return [
        f"{name} was {stored.get(name)}, now {wanted.get(name)}"
        for name in {**stored, **wanted}  # in the order of the stored ones, then new ones
        if stored.get(name) != wanted.get(name)
    ]


def _refuse_changes(path: str, changes: Sequence[str]) -> None:
    if changes:
        settings = "; ".join(changes)
        raise UserError(f"{path} was written with other settings ({settings}). {_OTHER_OUTPUT}")


def resumes(
    path: str,
    identity: Mapping[str, Any],
    identity_file: str,
    *,
    overwrite: bool = False,
    results: Sequence[str] | None = None,
) -> bool:
    """Return whether `claimed` would resume work; raise `UserError` as it would."""
    stored_at = storage.join(path, identity_file)
    if not storage.exists(stored_at):
        refuse_foreign(path)
        return False
    if overwrite:
        return False
    content = storage.read_bytes(stored_at)
    stored = parse_json(content, dict[str, Any], stored_at, _OTHER_OUTPUT)
    changes = changed_fields(stored, identity)
    # Links too: checkpoints may lie on another disk. No glob: the path may contain its characters.
    places = [storage.join(path, name) for name in results or ()]
    has_results = any(storage.exists(place) or storage.visible_names(place) for place in places)
    if results is None or has_results:
        _refuse_changes(path, changes)
    return not changes


@contextmanager
def claimed(
    path: str,
    identity: Mapping[str, Any],
    identity_file: str,
    own_files: Sequence[str],
    *,
    overwrite: bool = False,
    results: Sequence[str] | None = None,
) -> Iterator[OutputDirectory]:
    """Hold a local directory, locked, as the output of a trainer's run, which `identity` describes.

    `identity` is stored as JSON in `identity_file`. The same identity resumes. Another run is
    refused, naming the fields that differ; it is replaced (`own_files` are deleted, no others) with
    `overwrite`, or if none of its `results` is there, which are files and folders.
    """
    directory = OutputDirectory(path)
    with locked(path):
        same_run = resumes(path, identity, identity_file, overwrite=overwrite, results=results)
        directory.remove(WORK)  # of a process that was killed
        if not same_run:
            # The identity is deleted last: until then, files that a kill leaves have an owner.
            present = [name for name in own_files if os.path.lexists(os.path.join(path, name))]
            directory.remove(*present, identity_file)
            directory.write_json(identity_file, identity)
        try:
            yield directory
        except UserError:
            # Such as a model that does not fit, found before anything was done.
            if _is_unused(path, identity_file):
                directory.remove(WORK, *own_files, identity_file)
            raise


def _is_unused(path: str, identity_file: str) -> bool:
    """Return whether a local directory has no visible file but the identity, in no folder."""
    for entry in Path(path).rglob("*"):
        name = entry.relative_to(path)
        is_file = entry.is_symlink() or not entry.is_dir()
        is_hidden = any(part.startswith(".") for part in name.parts)
        if is_file and not is_hidden and str(name) != identity_file:
            return False
    return True
