"""Audit a directory of instances."""

from ..execution.directory import read_manifest
from ..manifests import InstancesManifest
from ..vocab.vocabulary import read_vocabulary
from .checks import Audit, audit_instances


def audit(instances: str) -> Audit:
    """Measure a directory of instances against the configuration it was built with.

    Raises `UserError` if the directory is unfinished or damaged. Whether all checks hold: ``not audit(...).failed``.
    """
    return audit_instances(instances, read_manifest(instances, InstancesManifest), read_vocabulary(instances))
