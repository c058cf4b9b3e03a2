"""Set up this process, which libraries leave to their caller: how threads compute and wait, the
standard streams, data stages, Ctrl-C and SIGTERM, and its end.

OpenMP and MKL read the environment once, when PyTorch loads them, so it is set before any import of
it. What the user has set stays.
"""

import logging
import os
import signal
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import Any, NoReturn, Self

from ..model.notices import StopRequest


def prepare_threads() -> None:
    """Set the environment of this process for PyTorch, unless PyTorch is there already."""
    if "torch" in sys.modules:
        return
    # Intel's two conditions for the same bits in every process: the same code path whatever the
    # memory's alignment, and a fixed number of threads ("Conditional Numerical Reproducibility").
    os.environ.setdefault("MKL_CBWR", "AUTO")
    os.environ.setdefault("MKL_DYNAMIC", "FALSE")
    # At the end of each operation the threads wait for the slowest. By default libgomp, which
    # PyTorch's wheels for Linux bundle, then spins for milliseconds: beside other work, often for a
    # thread whose core the spinning keeps busy. After a thousand rounds a thread sleeps instead,
    # which costs little on an idle machine (benchmarks/results/2026-11-23-contention.md).
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = "1000"


def wait_for_width(hidden_size: int) -> None:
    """Let the threads of a wide model wait longer; PyTorch must not be imported yet."""
    # The operations of a wide model last so long that its threads would sleep through the beginning
    # of the next one: with a thousand rounds `base` (768) is 14% slower alone, with these about 4%.
    if "torch" in sys.modules or hidden_size < 768:
        return
    # Only what `prepare_threads` set is replaced (or the same number, if the user set that).
    if os.environ.get("GOMP_SPINCOUNT") == "1000":
        os.environ["GOMP_SPINCOUNT"] = "20000"


def prepare_streams() -> None:
    """Point closed standard streams at the null device; show what an encoding lacks escaped."""
    # The first data file to be opened would get a closed one's descriptor, and the messages.
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r+"))
        elif isinstance(stream, TextIOWrapper) and name != "stdin":
            stream.reconfigure(errors="backslashreplace")


def prepare_data_stage(verbose: bool) -> None:
    """Set the environment, Arrow's memory and Beam's log for a data stage and its workers."""
    import pyarrow as pa

    from ..pipeline.execution.workers import ENVIRONMENT, skip_pandas

    skip_pandas()
    os.environ.update(ENVIRONMENT)  # for child processes, Beam's too
    # The same for this process, which has imported Arrow and does the work with one worker.
    pa.set_memory_pool(pa.system_memory_pool())
    beam_log = logging.getLogger("apache_beam")
    beam_log.setLevel(logging.INFO if verbose else logging.ERROR)
    # A recipe runs several stages in this process; each line would come once per handler.
    if verbose and not beam_log.handlers:
        beam_log.addHandler(logging.StreamHandler())


class Terminated(KeyboardInterrupt):
    """An interrupt by SIGTERM, after which a command ends with another code than after Ctrl-C."""


def terminate(number: int, frame: object) -> None:
    """Interrupt this process, as the handler of SIGTERM."""
    raise Terminated


class StopOnSignal(StopRequest):
    """Asks a training to stop at the first SIGINT or SIGTERM; a second one acts as without this."""

    was_terminated = False

    def interrupt(self) -> KeyboardInterrupt:
        """Return the interrupt that the training was asked to stop by."""
        return Terminated() if self.was_terminated else KeyboardInterrupt()

    def __enter__(self) -> Self:
        self._handlers_before: dict[int, Any] = {}
        for number in (signal.SIGINT, signal.SIGTERM):
            self._handlers_before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: object) -> None:
        self.request()
        self.was_terminated = number == signal.SIGTERM
        # The next one acts as it would without a training: who asks twice will not wait.
        signal.signal(number, self._handlers_before[number])


def abandon(exit_code: int) -> NoReturn:
    """End this process at once: threads of a failed run may still be at work."""
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    # `os._exit` skips the clean-up that deletes local copies of remote files. Looked up instead of
    # imported: if no command has imported it, there are no copies.
    if copies := sys.modules.get("clozeworks.model.copies"):
        copies.delete_copies()
    os._exit(exit_code)
