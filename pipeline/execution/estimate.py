"""What a data stage would do and need, for ``--dry-run``: units of work and bytes on disk.

Not how long it takes, which depends on the machine.
"""

import os
import shutil
from dataclasses import dataclass
from typing import Any

from .. import storage
from ..config import RunOptions
from ..storage.claim import State
from ..storage.stage import look_at_stage
from .runner import check_runner
from .stages import Needs, Stage

STORED_SHARE = 0.44
"""Bytes of documents on disk per byte of text, about."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The work and needs of a run."""

    state: State
    needs: Needs
    free_bytes: int | None
    """Of the disk that is written to; None of an object store."""


def estimate_stage(stage: Stage[Any, Any], options: RunOptions) -> Estimate:
    """Return what `run_stage` would do and take, without doing it; raises `UserError` as it
    would.
    """
    check_runner(options, stage.output)
    plan = stage.plan()
    needs = stage.needs(plan)
    claim = look_at_stage(stage.output, plan.head, options.overwrite)
    return Estimate(state=claim.state, needs=needs, free_bytes=_free_bytes(stage.output))


def _free_bytes(path: str) -> int | None:
    if storage.is_remote(path):
        return None
    folder = os.path.abspath(path)
    while not os.path.isdir(folder):  # the output is new
        folder = os.path.dirname(folder)
    return shutil.disk_usage(folder).free
