"""Progress of a run, read from the output directory, which shows it on every runner."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from ..errors import RunError, UserError
from ..storage import is_remote
from .stages import Stage, opened_directory
from .units import finished_units, read_units

POLL_S = 0.25
REMOTE_POLL_S = 5.0
"""Each poll lists a folder of an object store."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The part of a phase that is done."""

    stage: str
    phase: str
    done_bytes: int
    total_bytes: int


ShowProgress = Callable[[Progress], None]


@contextmanager
def progress_shown(stages: Sequence[Stage[Any, Any]], show: ShowProgress | None) -> Iterator[None]:
    """Call `show` with the progress of `stages`, now and then while the body runs.

    It is called in a thread: the work stays in the caller's, so that an interrupt ends all of it.
    """
    if show is None:
        yield
        return
    poll_s = POLL_S
    if is_remote(stages[0].output):
        poll_s = REMOTE_POLL_S
    body_is_done = threading.Event()

    def poll() -> None:
        while not body_is_done.wait(poll_s):
            # Not opened or planned yet, or the store cannot be reached just now.
            with suppress(UserError, RunError):
                progress = progress_of(stages)
                if progress is not None:
                    show(progress)

    poller = threading.Thread(target=poll, daemon=True)
    poller.start()
    try:
        yield
    finally:
        body_is_done.set()
        poller.join()


def progress_of(stages: Sequence[Stage[Any, Any]]) -> Progress | None:
    """Return how far the current phase is; None between phases."""
    for stage in stages:
        directory = opened_directory(stage)
        if directory is None:
            continue  # finished
        for phase in stage.phases():
            units = read_units(directory, phase.name, phase.payload_type)
            finished = finished_units(directory, phase.name)
            if len(finished) < len(units):
                return Progress(
                    stage=stage.name,
                    phase=phase.name,
                    done_bytes=sum(units[number].cost for number in finished),
                    total_bytes=sum(unit.cost for unit in units),
                )
    return None
