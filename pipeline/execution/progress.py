"""Progress of a run, read from the output directory, which shows it on every runner."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from ..errors import RunError, UserError
from ..storage import is_remote

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
def progress_shown(
    read_progress: Callable[[], Progress | None], show: ShowProgress | None, output: str
) -> Iterator[None]:
    """Call `show` with what `read_progress` returns, now and then while the body runs.

    It is called in a thread: the work stays in the caller's, so that an interrupt ends all of it.
    """
    if show is None:
        yield
        return
    poll_s = POLL_S
    if is_remote(output):
        poll_s = REMOTE_POLL_S
    body_is_done = threading.Event()

    def poll() -> None:
        while not body_is_done.wait(poll_s):
            # Not opened or planned yet, or the store cannot be reached just now.
            with suppress(UserError, RunError):
                progress = read_progress()
                if progress is not None:
                    show(progress)

    poller = threading.Thread(target=poll, daemon=True)
    poller.start()
    try:
        yield
    finally:
        body_is_done.set()
        poller.join()
