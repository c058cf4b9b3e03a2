"""What a data stage would do and need, for ``--dry-run``: units of work and bytes on disk.

Not how long it takes, which depends on the machine.
"""

import os
import shutil
from dataclasses import dataclass

from .. import storage
from ..config import RunOptions
from ..storage.claim import State
from ..storage.stage import look_at_stage
from .stages import Stage, StagePlan

STORED_SHARE = 0.44
"""Bytes of documents on disk per byte of text, about."""


@dataclass(frozen=True, kw_only=True)
class Needs:
    """Sizes in bytes, from those of the input: expect errors of up to a half."""

    units: str
    input_bytes: int
    output_bytes: int
    temporary_bytes: int


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The work and needs of a run."""

    state: State
    needs: Needs
    free_bytes: int | None
    """Of the disk that is written to; None of an object store."""


def estimate_run(stage: Stage, plan: StagePlan, options: RunOptions, needs: Needs) -> Estimate:
    """Return what a stage would do in its output directory; raise `UserError` as it would."""
    claim = look_at_stage(stage.output, plan.head, options.overwrite)
    return Estimate(state=claim.state, needs=needs, free_bytes=_free_bytes(stage.output))


def _free_bytes(path: str) -> int | None:
    if storage.is_remote(path):
        return None
    folder = os.path.abspath(path)
    while not os.path.isdir(folder):  # the output is new
        folder = os.path.dirname(folder)
    return shutil.disk_usage(folder).free
