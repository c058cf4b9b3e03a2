"""Read the directory of a data stage: the manifest of finished work, or what has begun there.

The files tell its state; `claim.look` says what they mean for work that is asked for::

    (nothing, or only hidden files)    new
    .work/3f9c…/job.json               begun; the folder is named for the work
    manifest.json                      finished, even if a kill has left .work/ beside it
"""

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

from msgspec import Struct

from .. import storage
from ..errors import UserError
from ..manifests import (
    KINDS,
    AnyManifest,
    DocumentsShard,
    File,
    Manifest,
    StoredHead,
    VocabularyManifest,
    parse_manifest,
)
from ..parsing import parse_json
from .directory import WORK

MANIFEST = "manifest.json"
TIMINGS = "timings.json"
JOB = "job.json"
VOCABULARY_FILES = ("vocab.txt", "tokenizer.json", "tokenizer_config.json")
WORD_COUNTS_FILE = "word_counts.parquet"


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
    damage = damage_of(directory, manifest)
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
    manifest, _ = read_finished(directory)
    if manifest is not None:
        return manifest
    if unfinished_stage(directory):
        raise UserError(f"{directory} is unfinished: rerun the command that writes it; it resumes.")
    fault = describe_absence(directory) or f"{directory} has no {MANIFEST}"
    raise UserError(f"{fault}: give a directory written by {writer}.")


def read_finished(directory: str) -> tuple[Manifest | None, StoredHead | None]:
    """Return the manifest of a directory, and its head as it is stored; None for both if there is
    none. Raise `UserError` if it is damaged.
    """
    path = storage.join(directory, MANIFEST)
    with suppress(FileNotFoundError):  # another process may remove it at any time
        if storage.exists(path):
            content = storage.read_bytes(path)
            return parse_manifest(content, path), parse_json(content, StoredHead, path)
    return None, None


class _Begun(Struct):
    head: StoredHead


def begun_in(directory: str) -> dict[str, StoredHead]:
    """Return the heads of the work that has begun in a directory, by its folder below ``.work``."""
    heads: dict[str, StoredHead] = {}
    for folder in storage.folder_names(storage.join(directory, WORK)):
        path = storage.join(directory, WORK, folder, JOB)
        with suppress(FileNotFoundError):  # a folder of temporary files
            heads[folder] = parse_json(storage.read_bytes(path), _Begun, path).head
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
    """Say what is wrong with a finished directory: a file is missing or cut off, or all are of an
    old version. None if nothing is.
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
