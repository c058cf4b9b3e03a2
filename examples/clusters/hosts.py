"""Make hosts on this machine, for trying out a cluster: Linux's namespaces, no containers.

A host has an address and a name of its own, sees only its own processes, and has its own temporary
folder. It shares the installed programs, but cannot write to their disk. So nothing works by
``localhost`` or by a shared ``/tmp`` by accident. Needs root::

    with Network() as network:
        one = network.add_host("one")
        two = network.add_host("two")
        one.run("ping", "-c1", "two")
        two.kill()

All hosts end with the process that made them, however it ends: each lives as long as a pipe.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
PREFIX = "10.77.0"
TOOLS = ("unshare", "nsenter", "ip", "mount")
NAMESPACES = ("--net", "--pid", "--fork", "--mount-proc", "--mount", "--uts", "--ipc")
"""Of a host's own; options of ``unshare``."""
INHERITED = ("PATH", "PYTHONPATH", "LANG")
"""Variables of this process that those of the hosts keep."""

# The first process of a host. It ends, and all others with it, when its standard input does.
_INIT = """
set -e
hostname "$NAME"
mount --bind "$HOSTS_FILE" /etc/hosts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t tmpfs -o "size=$TMP_SIZE" tmpfs /mnt
mkdir -p -m 1777 /mnt/tmp
for path in $KEPT; do  # what must stay in sight below the new /tmp
    mkdir -p "/mnt$path"
    mount --rbind "$path" "/mnt$path"
done
if [ -n "$SHARED" ]; then mkdir /mnt/tmp/shared; mount --bind "$SHARED" /mnt/tmp/shared; fi
mount --rbind /mnt/tmp /tmp
mount -o remount,bind,ro /
ip link set lo up
echo ready
read -r _ || true
"""

# What making hosts takes; a container often allows namespaces, but no bridge, or no mounts.
_CHECK = """
set -e
ip link add bridge type bridge
ip link add port type veth peer name eth0
mount -t tmpfs tmpfs /mnt
mount -o remount,bind,ro /
"""

LOOK_S = 0.1
END_S = 60.0
SHARED = "/tmp/shared"
"""Where hosts see the folder that they share, if they share one."""


def missing_tools() -> str:
    """Say what this machine lacks for making hosts; empty if nothing."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "hosts are made on Linux, by root"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} is not installed (util-linux, iproute2)"
    allowed = subprocess.run(
        ["unshare", *NAMESPACES, "sh", "-c", _CHECK], capture_output=True, text=True, check=False
    )
    if allowed.returncode != 0:
        return f"hosts cannot be made here: {allowed.stderr.strip()}"
    return ""


@dataclass
class Process:
    """A process in the background of a host."""

    entered: "subprocess.Popen[bytes]"
    """The program that has entered the host; the process is its child."""
    log: Path
    """What it prints, standard error too."""

    def kill(self) -> None:
        """Kill it, but none of its children."""
        for pid in _children(self.entered.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.entered.wait()

    def wait(self, timeout_s: float) -> int:
        """Wait for its end; return its exit status. Raise `TimeoutError`."""
        give_up = time.monotonic() + timeout_s
        while not self.has_ended():
            if time.monotonic() > give_up:
                raise TimeoutError(f"{self.log} has not ended after {timeout_s:.0f} s")
            time.sleep(LOOK_S)
        return self.entered.returncode

    def has_ended(self) -> bool:
        """Tell whether it has ended."""
        _wake(self.entered.pid)
        return self.entered.poll() is not None

    def printed(self) -> str:
        """Return what it has printed."""
        return self.log.read_text(errors="replace")


@dataclass
class Host:
    """A host that runs; made by `Network.add_host`."""

    name: str
    address: str
    environment: dict[str, str]
    init: "subprocess.Popen[str]"
    pid: int
    """Of the host's first process, as this machine counts."""
    switch: "subprocess.Popen[str]"
    logs: Path
    processes: list[Process] = field(default_factory=list)

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs `command` on this host."""
        return ["nsenter", f"--target={self.pid}", "--all", "--wdns=/tmp", "--", *command]

    def variables(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment of a process on this host."""
        kept = {name: os.environ[name] for name in INHERITED if name in os.environ}
        return {**kept, "HOME": "/tmp", **self.environment, **(extra or {})}

    def start(self, *command: str, environment: Mapping[str, str] | None = None) -> Process:
        """Start a process in the background."""
        log = self.logs / f"{self.name}-{len(list(self.logs.iterdir())):03d}.log"
        with log.open("wb") as file:
            entered = subprocess.Popen(
                self.command(command),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=self.variables(environment),
            )
        process = Process(entered, log)
        self.processes.append(process)
        return process

    def run(
        self, *command: str, environment: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run a process to its end."""
        entered = subprocess.Popen(
            self.command(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.variables(environment),
        )
        while True:
            try:
                output, errors = entered.communicate(timeout=LOOK_S)
            except subprocess.TimeoutExpired:
                _wake(entered.pid)
            else:
                return subprocess.CompletedProcess(command, entered.returncode, output, errors)

    def has_process(self, text: str) -> bool:
        """Tell whether a process of this host has a text in its command line."""
        return self.run("pgrep", "--full", text).returncode == 0

    def cut_off(self) -> None:
        """Take the link down: nobody hears of this host any more, and its connections hang."""
        subprocess.run(
            [*_inside(self.switch), "ip", "link", "set", _port(self.address), "down"],
            stderr=subprocess.DEVNULL,  # gone already
            check=False,
        )

    def kill(self) -> None:
        """End the host: all processes killed, then the link gone.

        Its peers see their connections closed. After `cut_off` they see nothing, as with a power
        failure.
        """
        with self.init:  # closes its pipes at the end, and waits
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)  # the kernel kills the others of its namespace
            # First those that have entered: the host ends once all of them are reaped, and none is
            # by an nsenter that has stopped.
            for process in self.processes:
                process.wait(END_S)
        self.cut_off()


class Network:
    """Hosts on one switch; a context manager that ends all of them."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self.hosts: dict[str, Host] = {}
        self._addresses: dict[str, str] = {}

    def __enter__(self) -> Self:
        self.logs.mkdir(parents=True, exist_ok=True)
        self._folder = tempfile.TemporaryDirectory(prefix="hosts-")
        self._hosts_file = Path(self._folder.name, "hosts")
        self._hosts_file.write_text("127.0.0.1 localhost\n")
        script = "set -e; ip link add bridge type bridge; ip link set bridge up; echo ready; read _"
        self._switch = _start_init(["unshare", "--net", "sh", "-c", script], {})
        return self

    def __exit__(self, *_: Any) -> None:
        for host in self.hosts.values():
            host.kill()
        with self._switch:
            self._switch.kill()
        self._folder.cleanup()

    def add_host(
        self,
        name: str,
        environment: Mapping[str, str] | None = None,
        shared: Path | None = None,
        tmp_size: str = "8g",
    ) -> Host:
        """Start a host, or a new one in the place of a killed one of the same name.

        `shared` is a folder that it sees as `SHARED`.
        """
        address = self._addresses.setdefault(name, f"{PREFIX}.{10 + len(self._addresses)}")
        names = [f"{each} {known}" for known, each in self._addresses.items()]
        # Written in place, so that hosts that are up see it too.
        self._hosts_file.write_text("\n".join(["127.0.0.1 localhost", *names, ""]))
        kept = [str(ROOT)] if ROOT.is_relative_to("/tmp") else []
        settings = {
            "NAME": name,
            "HOSTS_FILE": str(self._hosts_file),
            "TMP_SIZE": tmp_size,
            "KEPT": " ".join(kept),
            "SHARED": str(shared or ""),
        }
        init = _start_init(
            ["unshare", *NAMESPACES, "--kill-child", "sh", "-c", _INIT], {**os.environ, **settings}
        )
        pid = _children(init.pid)[0]
        self._connect(address, pid)
        host = Host(name, address, dict(environment or {}), init, pid, self._switch, logs=self.logs)
        self.hosts[name] = host
        return host

    def _connect(self, address: str, pid: int) -> None:
        port = _port(address)
        on_switch = _inside(self._switch)
        on_host = ["nsenter", f"--target={pid}", "--net", "ip"]
        _do([*on_switch, "sh", "-c", f"ip link delete {port} 2>/dev/null || true"])
        # The same card in the place of a killed host, or others would remember the old one's.
        card = f"02:00:00:00:00:{int(address.rpartition('.')[2]):02x}"
        peer = ["peer", "name", "eth0", "address", card, "netns", str(pid)]
        _do([*on_switch, "ip", "link", "add", port, "type", "veth", *peer])
        _do([*on_switch, "ip", "link", "set", port, "master", "bridge", "up"])
        _do([*on_host, "address", "add", f"{address}/24", "dev", "eth0"])
        _do([*on_host, "link", "set", "eth0", "up"])


def _start_init(command: Sequence[str], environment: Mapping[str, str]) -> "subprocess.Popen[str]":
    """Start a process that lives as long as its standard input, and wait until it is ready."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=dict(environment) or None,
    )
    assert process.stdout is not None
    answer = process.stdout.readline()
    if answer != "ready\n":
        raise RuntimeError(f"a host could not be made: {answer.strip()}")
    return process


def _children(pid: int) -> list[int]:
    with suppress(FileNotFoundError):
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    return []


def _wake(pid: int) -> None:
    """Wake a stopped nsenter, unless its process is stopped too: an nsenter stops when its process
    does, but is not woken with it.
    """
    if _is_stopped(pid) and not any(_is_stopped(child) for child in _children(pid)):
        os.kill(pid, signal.SIGCONT)


def _is_stopped(pid: int) -> bool:
    with suppress(OSError):
        # "24211 (nsenter) T 24087 …"
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("T")
    return False


def _inside(switch: "subprocess.Popen[str]") -> list[str]:
    return ["nsenter", f"--target={switch.pid}", "--net"]


def _port(address: str) -> str:
    """Return the name of the switch's end of a host's cable."""
    return f"port{address.rpartition('.')[2]}"


def _do(command: Sequence[str]) -> None:
    subprocess.run(command, check=True)
