"""Keep a second command out of a directory where no operating system's lock does: in an object
store, or on a file system without flock.

Who writes a directory has a file in its ``.lock/``, and renews it. Stores list a file as soon as it
is written, so of two that write theirs at once at least one sees the other's; whoever sees another
takes its own back, and waits to see whether the other is renewed.
"""

import json
import logging
import os
import random
import signal
import socket
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field

from .. import storage
from ..errors import RunError, UserError

FOLDER = ".lock"
RENEWED_EVERY_S = 10.0
STALE_AFTER_S = 60.0
"""Of a file that is not renewed. A store that is restarted is away for less."""
POLLED_EVERY_S = 1.0


@dataclass
class Lease:
    """A directory that this process writes, until `give_up` or until it ends."""

    path: str
    output: str
    """The directory as the user named it."""
    renewed_every_s: float = RENEWED_EVERY_S
    stale_after_s: float = STALE_AFTER_S
    _name: str = field(default_factory=lambda: uuid.uuid4().hex)
    _ended: threading.Event = field(default_factory=threading.Event)
    _keeper: threading.Thread | None = None

    def take(self) -> None:
        """Take the directory; raise `UserError` if another process is writing it."""
        while True:
            self._renew()
            others = self._others()
            if not others:
                break
            storage.remove(self._file(self._name))
            for name in others:
                self._wait_for(name)
            # Two that withdrew before each other must not come back at the same time.
            time.sleep(random.uniform(0, POLLED_EVERY_S))
        self._keeper = threading.Thread(target=self._keep, daemon=True, name="lease")
        self._keeper.start()

    def give_up(self) -> None:
        """Leave the directory to others."""
        self._ended.set()
        if self._keeper:
            self._keeper.join()  # it may be renewing the file
        storage.remove(self._file(self._name))
        with suppress(OSError):  # not empty, or in a store, where there are no folders
            os.rmdir(storage.join(self.path, FOLDER))

    def _file(self, name: str) -> str:
        return storage.join(self.path, FOLDER, name)

    def _others(self) -> list[str]:
        names = storage.file_names(storage.join(self.path, FOLDER))
        return [name for name in names if name != self._name]

    def _renew(self) -> None:
        owner = {**_this_process(), "renewed": time.time()}
        temporary = storage.join(self.path, ".work", "tmp")
        with storage.write_atomically(self._file(self._name), temporary) as file:
            file.write(json.dumps(owner).encode())

    def _wait_for(self, name: str) -> None:
        """Wait until another process's file is gone, and delete it if it is not renewed; raise
        `UserError` if it is.
        """
        first = self._content(name)
        deadline = time.monotonic() + self.stale_after_s
        is_told = False
        while content := self._content(name):
            if content != first:
                raise UserError(
                    f"Another process is writing {self.output} ({_named(content)}); wait until it "
                    "ends."
                )
            if _has_ended(content) or time.monotonic() > deadline:
                storage.remove(self._file(name))
                return
            if not is_told:
                logging.getLogger("clozeworks").warning(
                    "Another process (%s) was writing %s; waiting up to %d s to see whether it is "
                    "alive.",
                    _named(content),
                    self.output,
                    self.stale_after_s,
                )
                is_told = True
            time.sleep(POLLED_EVERY_S)

    def _content(self, name: str) -> bytes:
        try:
            return storage.read_bytes(self._file(name))
        except FileNotFoundError:
            return b""

    def _keep(self) -> None:
        """Renew the file until the end; end this process if another one has deleted it."""
        while not self._ended.wait(self.renewed_every_s):
            try:
                if not self._content(self._name):
                    logging.getLogger("clozeworks").warning(
                        "Another process has taken %s over, because this one was not heard of for "
                        "%d s.",
                        self.output,
                        self.stale_after_s,
                    )
                    os.kill(os.getpid(), signal.SIGINT)
                    return
                self._renew()
            except (OSError, RunError, UserError):
                continue  # the store may come back, and what else needs it says what is wrong


def _this_process() -> dict[str, str | int]:
    return {"host": socket.gethostname(), "processes": _process_space(), "process": os.getpid()}


def _process_space() -> str:
    """Return a name for the processes that a process id can mean: those of one container, since one
    start of the machine.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{os.readlink('/proc/self/ns/pid')} {file.read().strip()}"
    except OSError:
        return ""


def _owner(content: bytes) -> dict[str, str | int]:
    try:
        owner = json.loads(content)
    except ValueError:
        owner = None
    return owner if isinstance(owner, dict) else {}


def _named(content: bytes) -> str:
    owner = _owner(content)
    return f"process {owner.get('process')} on {owner.get('host')}"


def _has_ended(content: bytes) -> bool:
    """Return whether a file's owner is known to have ended: it ran on this machine."""
    owner = _owner(content)
    here = _this_process()
    if any(owner.get(name) != here[name] for name in ("host", "processes")):
        return False
    try:
        os.kill(int(owner["process"]), 0)
    except (ProcessLookupError, KeyError, ValueError):
        return True
    except PermissionError:  # it is another user's
        pass
    return False
