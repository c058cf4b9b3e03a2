"""Find the documents that instances were built from."""

import os
from contextlib import suppress

from .. import storage
from ..errors import UserError
from ..manifests import DocumentsManifest, InstancesManifest
from ..storage.stage import MANIFEST, read_manifest


def documents_digest(manifest: InstancesManifest) -> str:
    """Return the digest of the documents that instances were built from; "" if unknown."""
    for source in manifest.inputs:
        if source.get("stage") == "ingest":
            return str(source.get("digest", ""))
    return ""


def documents_beside(instances: str) -> str | None:
    """Return the directory of documents that instances were built from, if it is local, whole and
    in the same folder.
    """
    digest = documents_digest(read_manifest(instances, InstancesManifest))
    if storage.is_remote(instances):
        return None
    parent = os.path.dirname(os.path.abspath(instances))
    # The folder as the user wrote it, for messages; a path such as ".." has another parent.
    shown_parent = os.path.dirname(instances.rstrip("/"))
    if os.path.abspath(shown_parent) != parent:
        shown_parent = os.path.relpath(parent)
    for name in sorted(os.listdir(parent)):
        if os.path.isfile(os.path.join(parent, name, MANIFEST)):
            directory = os.path.join(shown_parent, name)
            with suppress(UserError):  # another stage, or its shards are deleted
                if read_manifest(directory, DocumentsManifest).digest == digest:
                    return directory
    return None
