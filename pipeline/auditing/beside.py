"""Find the documents and the vocabulary of instances in the folder that these are in."""

import os
from collections.abc import Iterator
from contextlib import suppress

from .. import storage
from ..errors import UserError
from ..manifests import DocumentsManifest, InstancesManifest, VocabularyManifest
from ..storage.stage import MANIFEST, read_manifest
from .documents import documents_digest


def documents_beside(instances: str) -> str | None:
    """Return the directory of documents that instances were built from, if it is local, whole and
    in the same folder.
    """
    digest = documents_digest(read_manifest(instances, InstancesManifest))
    for directory in _directories_beside(instances):
        with suppress(UserError):  # another stage, or its shards are deleted
            if read_manifest(directory, DocumentsManifest).digest == digest:
                return directory
    return None


def vocabulary_beside(instances: str, fingerprint: str) -> VocabularyManifest | None:
    """Return the manifest of the vocabulary of this fingerprint, if `vocab` learned it and wrote it
    into the local folder that `instances` are in.
    """
    for directory in _directories_beside(instances):
        with suppress(UserError):
            manifest = read_manifest(directory, VocabularyManifest)
            if manifest.tokenizer.fingerprint == fingerprint:
                return manifest
    return None


def _directories_beside(instances: str) -> Iterator[str]:
    """Yield the directories with a manifest in the folder of `instances`, by name."""
    if storage.is_remote(instances):
        return
    parent = os.path.dirname(os.path.abspath(instances))
    # The folder as the user wrote it, for messages; a path such as ".." has another parent.
    shown_parent = os.path.dirname(instances.rstrip("/"))
    if os.path.abspath(shown_parent) != parent:
        shown_parent = os.path.relpath(parent)
    for name in sorted(os.listdir(parent)):
        if os.path.isfile(os.path.join(parent, name, MANIFEST)):
            yield os.path.join(shown_parent, name)
