"""Begin, resume or refuse the output directory of a data stage; read and write its manifest.

The files tell the state of a directory::

    (nothing, or only hidden files)    new
    .work/head.json                    begun: the first fields of the manifest to come
    manifest.json                      finished, even if a kill has left .work/ beside it
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from typing import Any, NamedTuple, cast

from msgspec import structs, to_builtins

from .. import storage
from ..data_card import CARD, data_card
from ..errors import UserError
from ..manifests import (
    KINDS,
    SCHEMA_VERSION,
    AnyManifest,
    DocumentsShard,
    File,
    Manifest,
    StoredHead,
    VocabularyManifest,
    parse_manifest,
)
from ..parsing import parse_json
from .claim import Found, State, changed_fields, decide, other_file
from .directory import WORK, OutputDirectory, canonical_json, digest_of

MANIFEST = "manifest.json"
TIMINGS = "timings.json"
HEAD_FILE = f"{WORK}/head.json"
"""What the stage was asked to do, while it is unfinished: the first part of the manifest."""
VOCABULARY_FILES = ("vocab.txt", "tokenizer.json", "tokenizer_config.json")
WORD_COUNTS_FILE = "word_counts.parquet"

_SHARD = r"(train|validation)-\d+-of-\d+\.parquet"
_STAGE_FILES = re.compile(
    "|".join([_SHARD, *map(re.escape, (*VOCABULARY_FILES, WORD_COUNTS_FILE, TIMINGS, CARD))])
)


def write_manifest(
    directory: OutputDirectory, manifest: AnyManifest, seconds: float
) -> AnyManifest:
    """Write the manifest, the last file of a stage, and delete what is temporary.

    Return it with its digest. The time goes into a file of its own, as manifests hold none.
    """
    # Fields at their defaults are left out, but for the version and options.
    always = {"schema_version": manifest.schema_version, "config": asdict(manifest.config)}
    content = canonical_json({**to_builtins(manifest), **always})
    if not isinstance(manifest, VocabularyManifest):
        directory.write_bytes(CARD, data_card(manifest).encode())
    directory.write_bytes(TIMINGS, canonical_json({"seconds": round(seconds, 3)}))
    # From here on the stage is finished; a kill before the next line only leaves litter.
    directory.write_bytes(MANIFEST, content)
    directory.remove(WORK)
    return structs.replace(manifest, digest=digest_of(content))


def read_manifest(directory: str, kind: type[AnyManifest]) -> AnyManifest:
    """Return the manifest of a finished directory of one kind.

    Raise `UserError` if there is none, or a shard that it lists is missing or does not have its
    size.
    """
    stage = next(name for name, stage_kind in KINDS.items() if stage_kind is kind)
    manifest = read_any_manifest(directory, f"`clozeworks {stage}`")
    if not isinstance(manifest, kind):
        raise UserError(
            f"{directory} was written by `clozeworks {manifest.stage}`, "
            f"not by `clozeworks {stage}`."
        )
    damage = _damage(directory, manifest)
    if not isinstance(manifest, VocabularyManifest):
        splits = {shard.split for shard in manifest.shards}
        if "train" not in splits:
            damage = f"{storage.join(directory, MANIFEST)} lists no training shard"
    if damage:
        raise UserError(f"{damage}: recreate it with `clozeworks {stage} … --overwrite`.")
    return manifest


def read_any_manifest(
    directory: str, writer: str = "clozeworks ingest, vocab or build"
) -> Manifest:
    """Return the manifest of a finished directory; raise `UserError`, naming its `writer`, if there
    is none.
    """
    if manifest := _read_manifest(directory):
        return manifest
    if unfinished_stage(directory):
        raise UserError(f"{directory} is unfinished: rerun the command that writes it; it resumes.")
    fault = describe_absence(directory) or f"{directory} has no {MANIFEST}"
    raise UserError(f"{fault}: give a directory written by {writer}.")


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


def unfinished_stage(directory: str) -> str | None:
    """Return the name of the stage that has begun in a directory and not ended, or None."""
    head = read_head(directory)
    if head is None or storage.exists(storage.join(directory, MANIFEST)):
        return None
    return head.stage


def _damage(directory: str, manifest: Manifest) -> str | None:
    """Return the damage of a finished directory: a file is missing or cut off, or all are of an old
    version.
    """
    # By sizes, not digests: this is checked before each command, and a corpus may have terabytes.
    sizes = storage.file_sizes(directory)
    if isinstance(manifest, VocabularyManifest):
        needed = {manifest.word_counts.name, *VOCABULARY_FILES}
        if manifest.config.algorithm == "bpe":
            needed.discard("vocab.txt")
        missing = needed - sizes.keys()
        if missing:
            return f"{storage.join(directory, min(missing))} is missing"
        return None
    for shard in manifest.shards:
        path = storage.join(directory, shard.name)
        if shard.name not in sizes:
            return f"{path} is missing"
        if sizes[shard.name] != shard.bytes:
            return f"{path} does not have the size recorded in {MANIFEST}"
        if isinstance(shard, DocumentsShard) and shard.rows and not shard.groups:
            return f"{directory} was written before documents had a language"
    return None


def verify_files(directory: str) -> None:
    """Read all files whose digests the manifest of a finished directory records.

    Raise `UserError` naming the first one that has another digest.
    """
    manifest = read_any_manifest(directory)
    files: Sequence[File] = ()
    if isinstance(manifest, VocabularyManifest):
        files = [manifest.word_counts]
    else:
        files = manifest.shards
    for file in files:
        path = storage.join(directory, file.name)
        with storage.open_input(path) as source:
            digest = hashlib.file_digest(cast(Any, source), "sha256").hexdigest()
        if digest != file.sha256:
            raise UserError(
                f"{path} does not have the digest recorded in {MANIFEST}: recreate it with "
                f"`clozeworks {manifest.stage} … --overwrite`."
            )


def manifest_head(
    stage: str, config: Any, inputs: Sequence[dict[str, Any]], *libraries: str
) -> StoredHead:
    """Return the head of a manifest: the stage, its configuration, inputs and libraries, and the
    fingerprint of them all.

    The output depends on the `libraries`, and on NumPy and PyArrow.
    """
    versions = {name: version(name) for name in ("clozeworks", "numpy", "pyarrow", *libraries)}
    work = {
        "stage": stage,
        "config": asdict(config),
        "inputs": list(inputs),
        "versions": versions,
    }
    return StoredHead(**work, fingerprint=digest_of(work), schema_version=SCHEMA_VERSION)


class StageClaim(NamedTuple):
    """The state of a stage's work in its output directory."""

    state: State
    manifest: Manifest | None
    """Of finished work."""


def look_at_stage(path: str, head: StoredHead, overwrite: bool) -> StageClaim:
    """Return the state of the work of `head` in the directory `path`; change nothing.

    Raise `UserError` if the directory holds anything else, or the finished work is damaged.
    """
    manifest = _read_manifest(path)
    stored = read_head(path, HEAD_FILE if manifest is None else MANIFEST)
    # Of work that has just begun, nothing is lost.
    has_results = manifest is not None or _has_records(path)
    changes = None
    if stored is not None:
        changes = _changes(stored, head, with_versions=manifest is None)
    found = Found(
        changes=changes,
        is_finished=manifest is not None,
        has_results=has_results,
        other_file=other_file(path, but=None if stored is None else _STAGE_FILES),
    )
    state = decide(path, found, overwrite=overwrite)
    if state != "finished" or manifest is None:
        return StageClaim(state, None)
    damage = _damage(path, manifest)
    if damage:
        raise UserError(f"{damage}: recreate all of {path} with `overwrite`.")
    return StageClaim(state, structs.replace(manifest, already_finished=True))


def _changes(stored: StoredHead, wanted: StoredHead, with_versions: bool) -> list[str]:
    """Return how two heads differ, in words; other library versions count only for resuming."""
    if stored.stage != wanted.stage:
        return [f"it was written by `clozeworks {stored.stage}`"]
    changes = changed_fields(stored.config, wanted.config)
    if with_versions:
        changes += changed_fields(stored.versions, wanted.versions)
    if stored.inputs != wanted.inputs:
        changed_input = _first_changed_input(stored.inputs, wanted.inputs)
        changes.append(f"the inputs changed: {changed_input}")
    return changes


def _first_changed_input(
    stored: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]]
) -> str:
    """Return the name of the first input that only one of them has."""
    before = {json.dumps(each_input, sort_keys=True): each_input for each_input in stored}
    now = {json.dumps(each_input, sort_keys=True): each_input for each_input in wanted}
    for text, each_input in {**before, **now}.items():
        if text not in before or text not in now:
            # A file has a name; the output of another stage has that stage instead.
            return str(each_input.get("name", each_input.get("stage")))
    return "their order"


def begin_stage(path: str, head: StoredHead, overwrite: bool) -> Manifest | None:
    """Begin or resume the work of `head` in the directory `path`, which the caller has locked.

    Return the manifest if the stage is already finished. Raise `UserError` as `look_at_stage` does.
    """
    directory = OutputDirectory(path)
    claim = look_at_stage(path, head, overwrite)
    if claim.state == "finished":
        directory.remove(WORK)  # left by a process that was killed in `write_manifest`
    elif claim.state == "new":
        clear_stage(path)
        directory.write_bytes(HEAD_FILE, canonical_json(to_builtins(head)))
    return claim.manifest


def refuse_input(output: str, *inputs: str) -> None:
    """Raise `UserError` if a directory or file that a stage reads lies where it writes.

    With `overwrite` the stage would delete it.
    """
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


def refuse_other_files(path: str) -> None:
    """Raise `UserError` if the directory `path` has files, but no stage has begun in it."""
    if read_head(path) is None and _read_manifest(path) is None:
        decide(path, Found(changes=None, other_file=other_file(path)), overwrite=False)


def clear_stage(path: str) -> None:
    """Delete what a stage, of any configuration, has left in the directory `path`."""
    stage_files = [name for name in storage.file_sizes(path) if _STAGE_FILES.fullmatch(name)]
    # The manifest goes last, so that what a kill leaves still has an owner.
    OutputDirectory(path).remove(*stage_files, WORK, MANIFEST)


def _read_manifest(directory: str) -> Manifest | None:
    """Return the manifest of a directory, or None if there is none; raise `UserError` if it is
    damaged.
    """
    path = storage.join(directory, MANIFEST)
    with suppress(FileNotFoundError):  # another process may remove it at any time
        if storage.exists(path):
            return parse_manifest(storage.read_bytes(path), path)
    return None


def read_head(directory: str, name: str = HEAD_FILE) -> StoredHead | None:
    """Return the head of the work that has begun in a directory, or with `name` that of its
    manifest; None if there is none.
    """
    path = storage.join(directory, name)
    with suppress(FileNotFoundError):  # another process may remove it at any time
        if storage.exists(path):
            return parse_json(storage.read_bytes(path), StoredHead, path)
    return None


def _has_records(path: str) -> bool:
    """Return whether any unit of work is done in an unfinished directory."""
    files = storage.find_files(storage.join(path, WORK))
    stems = (file.rsplit("/", 1)[1].removesuffix(".json") for file in files)
    return any(stem.isdecimal() for stem in stems)
