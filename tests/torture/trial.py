"""One command under torture: run in a forked process with limits, and judged."""

import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CPU_LIMIT_S = 60
WALL_LIMIT_S = 600
MEMORY_LIMIT_BYTES = 2 << 30
CRASH = 99
SYSTEM_FOLDERS = (sys.prefix, sys.base_prefix, "/proc", "/sys", "/dev", "/usr", "/etc")


@dataclass(frozen=True)
class Outcome:
    """The end of a command: exit code (negative: killed by a signal), output, peak memory."""

    exit_code: int
    output: str
    errors: str
    peak_bytes: int

    @property
    def is_done(self) -> bool:
        """Whether the command did its work; `audit` and `finetune` may end with 1 all the same."""
        return self.exit_code == 0 or (self.exit_code == 1 and "Error: " not in self.errors)

    def fault(self) -> str:
        """Name what must never happen, or return an empty string."""
        lines = self.errors.strip().splitlines()
        if "Traceback" in self.errors or self.exit_code == CRASH:
            return f"traceback: {lines[-1] if lines else ''}"[:200]
        if self.exit_code in (-signal.SIGXCPU, -signal.SIGALRM):
            return "hang"
        if self.exit_code < 0:
            return f"killed by {signal.Signals(-self.exit_code).name}"
        if self.peak_bytes > MEMORY_LIMIT_BYTES:
            return f"memory: {self.peak_bytes >> 20} MB"
        if self.exit_code not in (0, 1, 2):
            return f"exit code {self.exit_code}"
        says_why = any(line.startswith("Error: ") for line in lines)
        if self.exit_code and not says_why and not self.output:
            return "no message"
        return ""


def start(folder: Path, arguments: list[str], prepare: Callable[[], None] | None = None) -> int:
    """Fork a process, the leader of a group, that runs `clozeworks arguments` in `folder`."""
    sys.stdout.flush()
    sys.stderr.flush()
    if process := os.fork():
        return process
    code = CRASH
    try:
        os.setpgid(0, 0)
        os.chdir(folder)
        for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
            with open(folder / f".{os.getpid()}.{name}", "wb") as file:
                os.dup2(file.fileno(), stream.fileno())
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S + 5))
        for number in (signal.SIGALRM, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.alarm(WALL_LIMIT_S)
        if prepare:
            prepare()
        code = _run(arguments)
    finally:
        os._exit(code)
    return 0


def _run(arguments: list[str]) -> int:
    from clozeworks.cli.main import main

    try:
        main(arguments)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    except BaseException:
        traceback.print_exc()
        return CRASH
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def finish(folder: Path, process: int) -> Outcome:
    """Wait for a started process, and end what is left of its group."""
    _, status, usage = os.wait4(process, 0)
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    texts = []
    for name in ("stdout", "stderr"):
        file = folder / f".{process}.{name}"
        texts.append(file.read_text(errors="replace") if file.exists() else "")
        file.unlink(missing_ok=True)
    scale = 1 if sys.platform == "darwin" else 1024
    return Outcome(os.waitstatus_to_exitcode(status), texts[0], texts[1], usage.ru_maxrss * scale)


def run(folder: Path, arguments: list[str], prepare: Callable[[], None] | None = None) -> Outcome:
    """Run `clozeworks arguments` in `folder` and wait for its end."""
    return finish(folder, start(folder, arguments, prepare))


def kill_at(events: tuple[str, ...], number: int, part: str = "") -> Callable[[], None]:
    """Return a preparation: the process dies before the `number`th event on such paths."""
    left = number

    def watch() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return lambda: _watch(events, part, watch)


def count_events(events: tuple[str, ...], path: Path) -> Callable[[], None]:
    """Return a preparation that writes the number of these events to `path`."""
    count = 0

    def watch() -> None:
        nonlocal count
        count += 1
        os.pwrite(descriptor, f"{count:9}".encode(), 0)

    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    return lambda: _watch(events, "", watch)


def _watch(events: tuple[str, ...], part: str, act: Callable[[], None]) -> None:
    def watch(event: str, arguments: tuple) -> None:
        if event in events:
            given = (path for path in arguments[:2] if isinstance(path, str | bytes | os.PathLike))
            paths = [os.fsdecode(path) for path in given]
            of_the_system = any(path.startswith(SYSTEM_FOLDERS) for path in paths)
            if part in "\0".join(paths) and not of_the_system:
                act()

    sys.addaudithook(watch)


def kill_after(process: int, seconds: float) -> None:
    """Kill the process and its workers after some time."""
    time.sleep(seconds)
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
