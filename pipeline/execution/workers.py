"""Run worker processes on this machine: each does one unit of work at a time, then takes the next.

A worker is a new process of this interpreter, which imports only what the work needs. It reads
pickles of a step and the number of a unit from standard input, and answers each with None or an
error; the traceback goes to standard error. A worker ends with its pipe, or with the
process that started it.
"""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, TypeAlias, TypeVar, cast

from ..errors import RunError, UserError

# Workers share out the cores already, and Arrow's own allocator would keep what is freed: 80 MB
# more at the peak.
ENVIRONMENT = {"TOKENIZERS_PARALLELISM": "false", "ARROW_DEFAULT_MEMORY_POOL": "system"}
LOOK_FOR_INTERRUPT_S = 0.2
"""Ctrl-C does not end a longer wait once a library such as polars has set its own handler."""

Item = TypeVar("Item")
Worker: TypeAlias = "subprocess.Popen[bytes]"


@contextmanager
def started(
    num_workers: int, program: str = f"from {__name__} import serve; serve()"
) -> Iterator[list[Worker]]:
    """Start worker processes, all at once; kill at the end those that are there."""
    environment = {**os.environ, **ENVIRONMENT}
    # -P: what lies in the folder that a command is typed in is not imported.
    command = [sys.executable, "-P", "-c", program]
    workers = [
        subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(num_workers)
    ]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.kill()  # an idle one loses nothing, the work of others can be done again
        for worker in workers:
            worker.wait()
            for pipe in (worker.stdin, worker.stdout):
                with suppress(OSError):  # what a dead one did not read
                    cast(BinaryIO, pipe).close()


def do_all(
    items: Sequence[Item],
    step: Callable[[Item], object],
    workers: Sequence[Worker],
    done: Callable[[Item], object] = lambda item: None,
) -> None:
    """Call `step` on every item in the `workers`, each taking the next item when it is done; then
    `done`, in this process, from any thread.

    Raises the `UserError` or `RunError` that `step` raises, a `RuntimeError` with the message of
    another error, and `RunError` if a worker died.
    """
    # All threads take from one iterator, which is safe: `next` on a sequence's iterator holds the
    # interpreter's lock.
    remaining = iter(items)
    with ThreadPoolExecutor(len(workers)) as threads:
        try:
            running = {threads.submit(_feed, worker, step, done, remaining) for worker in workers}
            while running:
                ended, running = wait(running, LOOK_FOR_INTERRUPT_S, FIRST_EXCEPTION)
                for thread in ended:
                    thread.result()  # raises what broke it
        except BaseException:  # an interrupt too
            for worker in workers:
                worker.kill()  # its thread ends with it
            raise


def _feed(
    worker: Worker,
    step: Callable[[Item], object],
    done: Callable[[Item], object],
    remaining: Iterator[Item],
) -> None:
    """Give one worker items until none is left; other threads take from `remaining` too."""
    requests = cast(BinaryIO, worker.stdin)
    replies = cast(BinaryIO, worker.stdout)
    for item in remaining:
        try:
            _send(requests, (step, item))
            fault = pickle.load(replies)
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            status = worker.wait(5.0)  # its pipe is closed, so it ends at once
            end = f"ended with exit status {status}"
            if status < 0:  # as `subprocess.Popen.returncode` gives a signal
                end = f"was killed by signal {-status}"
            if status == -signal.SIGKILL:
                end += " (out of memory?)"
            raise RunError(f"A worker process {end}; rerun the same command to resume.") from error
        if fault is not None:
            raise fault
        done(item)


def _send(pipe: BinaryIO, message: Any) -> None:
    pickle.dump(message, pipe)
    pipe.flush()


def skip_pandas() -> None:
    """Keep Arrow from importing pandas with its first array, a fifth of the time of a short stage.

    Arrow would know pandas' columns by it, and a stage has none; what asks Arrow for pandas itself,
    such as ``to_pandas``, still gets it.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    sys.meta_path.insert(0, cast(Any, _WithoutPandas))
    try:
        pa.array([])  # tries to import it, once
    finally:
        del sys.meta_path[0]


class _WithoutPandas:
    """Finds all modules as they are found, but not pandas."""

    # Not from `importlib.abc`, whose import takes longer than that of this package's engine.
    @staticmethod
    def find_spec(fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ImportError(fullname)


def serve() -> None:
    """Worker loop: run tasks read from stdin until EOF."""
    skip_pandas()
    # Ctrl-C goes to all processes of a terminal; the launching one decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is not a reply
    with suppress(EOFError):
        while True:
            step, item = pickle.load(sys.stdin.buffer)
            fault: Exception | None = None
            try:
                step(item)
            except (UserError, RunError) as error:
                fault = error
            except Exception as error:  # another error than ours by its message alone
                traceback.print_exc()
                fault = RuntimeError(str(error) or type(error).__name__)
            _send(replies, fault)


def _end_with_parent(parent: int) -> None:
    # A parent that was killed cannot end its workers; they see that another one has adopted them.
    while os.getppid() == parent:
        time.sleep(0.5)  # so an orphan works on for half a second at most
    os._exit(1)
