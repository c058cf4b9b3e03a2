"""Try out an engine: the quickstart's data stages on its cluster, then faults of all kinds.

Each trial compares the digests of all files with those of one machine, and prints a line.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from downloads import MissingError
from hosts import ROOT, SHARED, Host, Network, Process, missing_tools
from store import BUCKET, CREDENTIALS, Store, start_store

QUICKSTART = ROOT / "examples" / "quickstart" / "corpus"
USER = "laptop"
"""The host where the user types the commands."""
WORKERS = ("worker1", "worker2", "worker3")
TIME_LIMIT_S = 900.0
WORKER_DISK = "1g"
"""In this machine's memory."""
STORE_AWAY_S = 10
CLI = (sys.executable, "-m", "clozeworks")

PHASES = {
    "documents": ("scatter", "deduplicate", "gather"),
    "vocab": ("count", "merge", "learn"),
    "instances": ("build",),
}
FIRST_PHASES = {phases[0] for phases in PHASES.values()}
INGEST = ("--language", "en", "--validation-share", "0.08", "--shards", "6")
VOCAB = ("--size", "2000")
BUILD = ("--max-length", "32")

_UPLOAD = """
import sys
from pathlib import Path
from clozeworks.pipeline import storage
from clozeworks.pipeline.storage.directory import write_file
from pyarrow import fs

source, target, endpoint = sys.argv[1:]
bucket = target.split("/")[2]
fs.S3FileSystem(endpoint_override=endpoint, allow_bucket_creation=True).create_dir(bucket)
for path in Path(source).rglob("*"):
    if path.is_file():
        name = storage.join(target, path.relative_to(source).as_posix())
        with write_file(name) as file:
            file.write(path.read_bytes())
"""
_DIGESTS = """
import hashlib, json, sys
from clozeworks.pipeline import storage

digests = {}
root = sys.argv[1]
for path in storage.find_files(root):
    if not path.endswith("timings.json"):
        digest = hashlib.sha256(storage.read_bytes(path)).hexdigest()
        digests[path.removeprefix(root + "/")] = digest
print(json.dumps(digests))
"""


# What Python runs at its start, on a host that is to lack the package.
_NO_PACKAGE = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "clozeworks":
            raise ModuleNotFoundError("No module named " + repr(name), name=name)

sys.meta_path.insert(0, Missing())
"""

# What Python runs at its start, on a host that is to write what it uploads to its disk first, as it
# does with files larger than the quickstart's.
_TO_DISK = """
import tempfile

class OnDisk(tempfile.SpooledTemporaryFile):
    def __init__(self, max_size):
        super().__init__(max_size=4096)

tempfile.SpooledTemporaryFile = OnDisk
"""

# The same on a host on which units of work are to break.
_BREAK = """
import tempfile

def broken(max_size):
    raise RuntimeError("broken on purpose")

tempfile.SpooledTemporaryFile = broken
"""


class Engine(ABC):
    """What a trial needs to know of an engine.

    To make one fetches what it needs; raises `MissingError` if that cannot be had.
    """

    name: ClassVar[str]
    on_store: ClassVar[bool] = True
    """Whether paths can be on an S3 server."""
    needs_shared_folder: ClassVar[bool] = False
    """Whether hosts share a folder even so."""
    variables: ClassVar[Mapping[str, str]] = {}
    """The environment of the user's commands."""
    left_out: ClassVar[Sequence[str]] = ()
    """Trials that make no sense on it."""

    def start_user(self, user: Host) -> None:
        """Start what the user's own host needs."""
        del user

    @abstractmethod
    def start_head(self, head: Host) -> None:
        """Start what manages the cluster."""

    @abstractmethod
    def start_worker(self, worker: Host) -> None:
        """Start what a worker's host runs."""

    @abstractmethod
    def num_workers(self, head: Host) -> int:
        """Return how many workers have joined."""

    def has_work(self, worker: Host) -> bool:
        """Tell whether a job runs on a worker's host, and is to survive its loss."""
        del worker
        return True

    @abstractmethod
    def flags(self) -> list[str]:
        """Return the options after ``--``."""

    def job_flags(self) -> list[str]:
        """Return Beam's options for a program of one's own; nothing if it cannot be run."""
        return self.flags()

    def log(self, shared: Path) -> str:
        """Return what failed jobs have printed elsewhere than in the engine's own processes."""
        del shared
        return ""

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Return the command line of a data stage."""
        return [*CLI, *arguments, "--", *self.flags()]


@dataclass(kw_only=True)
class Trials:
    """What was tried, and what went wrong."""

    name: str
    """Of what is tried."""
    failures: list[str] = field(default_factory=list)

    def check(self, ok: bool, message: str) -> None:
        """Remember what went wrong."""
        if not ok:
            self.failures.append(message)
            print(f"    {message}", flush=True)

    def check_line(self, printed: str, line: str) -> None:
        """Check that a command printed an error line, and no traceback."""
        self.check(line in printed, f"{line!r} should be in: {printed[-1500:]}")
        self.check("Traceback" not in printed, f"a traceback: {printed[-3000:]}")

    @contextmanager
    def trial(self, title: str) -> Iterator[None]:
        """Print a line about a trial: what it is, whether it went well, and how long it took."""
        begun = time.monotonic()
        failures_before = len(self.failures)
        try:
            yield
        except Exception as error:  # the other trials still tell something
            self.check(False, f"{type(error).__name__}: {error}")
        verdict = "ok" if len(self.failures) == failures_before else "FAILED"
        seconds = time.monotonic() - begun
        print(f"{self.name}: {title}: {verdict}, {seconds:.0f} s", flush=True)


@dataclass(kw_only=True)
class Cluster(Trials):
    """A cluster that runs an engine, and the data that its hosts reach."""

    engine: Engine
    network: Network
    shared: Path
    store: Store | None
    """None if the data are in the folder that the hosts share."""
    expected: dict[str, str]
    """The digests of all files, as one machine makes them."""

    @property
    def user(self) -> Host:
        """The host where the user types the commands."""
        return self.network.hosts[USER]

    def add_host(self, name: str, tmp_size: str = "8g") -> Host:
        """Add a host that reaches the data, or a new one in the place of a killed one."""
        environment = {}
        shared = None
        if self.store is not None:
            environment = CREDENTIALS
        if self.store is None or self.engine.needs_shared_folder:
            shared = self.shared
        return self.network.add_host(name, environment, shared, tmp_size)

    def add_worker(self, name: str) -> None:
        """Add a worker's host, or a new one in the place of a killed one."""
        self.engine.start_worker(self.add_host(name, WORKER_DISK))

    def wait_for_workers(self) -> None:
        """Wait until all workers have joined."""
        give_up = time.monotonic() + TIME_LIMIT_S
        while self.engine.num_workers(self.network.hosts["head"]) < len(WORKERS):
            for name in ("head", *WORKERS):
                for process in self.network.hosts[name].processes:
                    if process.has_ended():
                        raise RuntimeError(f"{name} has ended: {process.printed()[-3000:]}")
            if time.monotonic() > give_up:
                raise RuntimeError("the workers do not join")
            time.sleep(1)

    def folder(self, name: str) -> str:
        """Return a path as the hosts know it."""
        if self.store is not None:
            return f"s3://{BUCKET}/{name}"
        return f"{SHARED}/{name}"

    def is_at_work(self, output: str, phase: str) -> bool:
        """Tell whether the job is in a phase, without a request to the store."""
        name = f"{output}/.work"
        work = self.shared / name if self.store is None else self.store.path(name)
        files = {path.name for path in work.glob(f"*/{phase}/*")}
        # A stage's first phase is planned before there is a job.
        if phase in FIRST_PHASES:
            return bool(files - {"plan.json"})
        return "plan.json" in files

    def stages(self, output: str) -> list[list[str]]:
        """Return the commands of the three stages."""
        commands = stage_arguments(self.folder("corpus"), self.folder(output))
        return [self.engine.command(arguments) for arguments in commands]

    def one_job(self, output: str) -> list[str]:
        """Return the command of `examples/beam`, a program of a user's own."""
        program = [sys.executable, str(ROOT / "examples" / "beam" / "one_job.py"), "--shards=6"]
        paths = [f"--source={self.folder('corpus')}", f"--output={self.folder(output)}"]
        return [*program, *paths, *self.engine.job_flags()]

    def run(self, command: Sequence[str], status: int = 0) -> str:
        """Run a command of the user's to its end; return what it printed."""
        return self.end(self.start(command), status)

    def start(self, command: Sequence[str]) -> Process:
        """Start a command of the user's."""
        return self.user.start(*command, environment=self.engine.variables)

    def end(self, process: Process, status: int = 0) -> str:
        """Wait for the end of a command of the user's; return what it printed."""
        try:
            process.wait(TIME_LIMIT_S)
        except TimeoutError as error:
            print(f"    {error}", flush=True)
            process.kill()
        ended_with = process.entered.returncode
        end_of_log = process.printed()[-1500:]
        self.check(ended_with == status, f"exit status {ended_with}, not {status}: {end_of_log}")
        return process.printed()

    def check_bytes(self, output: str, folder: str = "") -> None:
        """Compare all files, or those of one folder, with those of one machine."""
        digests = digests_of(self.user, self.folder(output))
        names = sorted(name for name in {**digests, **self.expected} if name.startswith(folder))
        differing = [name for name in names if digests.get(name) != self.expected.get(name)]
        self.check(not differing, f"{output} has other bytes than on one machine: {differing}")

    def check_reason(self, printed: str, reason: str) -> None:
        """Check that a command printed an error line, and that it has a reason, or the log where it
        says to look.
        """
        print(f"    {printed.strip()}", flush=True)
        self.check_line(printed, "Error: ")
        told = printed + self.engine.log(self.shared)
        self.check(reason in told, f"{reason!r} is told nowhere")

    @contextmanager
    def requests_counted(self) -> Iterator[None]:
        """Print how many requests of each kind the store had meanwhile."""
        if self.store is None:
            yield
            return
        before = self.store.num_requests()
        yield
        counts = self.store.num_requests()
        new = {kind: count - before.get(kind, 0) for kind, count in counts.items()}
        print(f"    requests to the store: {new}", flush=True)


def stage_arguments(source: str, root: str) -> list[list[str]]:
    """Return the arguments of the three stages."""
    documents = f"{root}/documents"
    vocab = f"{root}/vocab"
    instances = f"{root}/instances"
    return [
        ["ingest", source, "--output", documents, *INGEST],
        ["vocab", documents, "--output", vocab, *VOCAB],
        ["build", documents, "--vocab", vocab, "--output", instances, *BUILD],
    ]


def upload(host: Host, folder: Path, target: str) -> None:
    """Copy a folder to the store, from a host; its bucket is made if need be."""
    endpoint = CREDENTIALS["AWS_ENDPOINT_URL"]
    ended = host.run(sys.executable, "-c", _UPLOAD, str(folder), target, endpoint)
    if ended.returncode != 0:
        raise RuntimeError(ended.stderr)


def digests_of(host: Host, folder: str) -> dict[str, str]:
    """Return the digest of each file but the timings, as a host sees them."""
    ended = host.run(sys.executable, "-c", _DIGESTS, folder)
    if ended.returncode != 0:
        raise RuntimeError(ended.stderr)
    return json.loads(ended.stdout)


def wait_until(condition: Callable[[], bool], process: Process, look_s: float = 0.02) -> bool:
    """Wait until a condition holds; return False if a process has ended before."""
    give_up = time.monotonic() + TIME_LIMIT_S
    while not condition():
        if process.has_ended() or time.monotonic() > give_up:
            return False
        time.sleep(look_s)
    return True


def run_stages(cluster: Cluster) -> None:
    """Run the quickstart's data stages one by one."""
    with cluster.requests_counted(), cluster.trial("three stages, one by one"):
        for command in cluster.stages("stages"):
            cluster.run(command)
        cluster.check_bytes("stages")


def run_one_job(cluster: Cluster) -> None:
    """Run them as one job, by a program of the user's own."""
    if not cluster.engine.job_flags():
        return
    with cluster.requests_counted(), cluster.trial("one job, a program of one's own"):
        cluster.run(cluster.one_job("job"))
        cluster.check_bytes("job")


def kill_workers(cluster: Cluster) -> None:
    """Kill the host of one worker in each phase; another one takes its place."""
    output = "lost-workers"
    stages = zip(cluster.stages(output), PHASES.items(), strict=True)
    for arguments, (folder, phases) in stages:
        with cluster.trial(f"a worker's host killed in {', '.join(phases)}"):
            command = cluster.start(arguments)
            for phase in phases:
                if wait_for_phase(cluster, command, f"{output}/{folder}", phase):
                    name = busy_worker(cluster, command)
                    cluster.network.hosts[name].kill()
                    cluster.add_worker(name)
            cluster.end(command)
            cluster.check_bytes(output, folder)


def wait_for_phase(cluster: Cluster, command: Process, output: str, phase: str) -> bool:
    """Wait until a command is in a phase; return False if it has ended before."""
    is_at_work = wait_until(lambda: cluster.is_at_work(output, phase), command)
    cluster.check(is_at_work, f"{phase} was over too soon")
    return is_at_work


def begin_ingest(cluster: Cluster, output: str) -> Process:
    """Start `ingest`, and wait until it is in its first phase."""
    command = cluster.start(cluster.stages(output)[0])
    wait_for_phase(cluster, command, f"{output}/documents", "scatter")
    return command


def busy_worker(cluster: Cluster, command: Process) -> str:
    """Return the name of a worker that has work; Flink and Spark may leave one without any."""

    busy: list[str] = []

    def look() -> bool:
        hosts = cluster.network.hosts
        busy.extend(name for name in WORKERS if cluster.engine.has_work(hosts[name]))
        return bool(busy)

    # On a host that has just been added, an engine may not have started its processes yet.
    if not wait_until(look, command, look_s=0.5):
        raise RuntimeError("no worker has work")
    return busy[0]


def kill_worker(cluster: Cluster) -> None:
    """Kill the host of one worker; no other takes its place."""
    _lose_worker(cluster, "lost-worker", "killed", Host.kill)


def cut_off_worker(cluster: Cluster) -> None:
    """Take one worker's link down: its connections just hang, and no other takes its place."""
    _lose_worker(cluster, "cut-off", "cut off without a word", Host.cut_off)


def _lose_worker(
    cluster: Cluster, output: str, done_to_it: str, lose: Callable[[Host], None]
) -> None:
    with cluster.trial(f"a worker's host {done_to_it}, and not replaced"):
        command = begin_ingest(cluster, output)
        name = busy_worker(cluster, command)
        lose(cluster.network.hosts[name])
        cluster.end(command)
        cluster.check_bytes(output, "documents")
    cluster.network.hosts[name].kill()
    cluster.add_worker(name)
    cluster.wait_for_workers()


def fill_disk(cluster: Cluster) -> None:
    """Fill the disks of two workers: the run goes on, or ends with a line that names one of them.

    With space, the same command resumes.
    """
    script = f"mkdir /tmp/spool; echo '{_TO_DISK}' > /tmp/spool/sitecustomize.py"
    path = f"/tmp/spool:{os.environ.get('PYTHONPATH', '')}"
    with cluster.trial("the disks of workers full"), changed(cluster, script, path) as hosts:
        command = begin_ingest(cluster, "full-disk")
        for host in hosts:
            host.run("sh", "-c", "cat /dev/zero > /tmp/zeros")
        status = command.wait(TIME_LIMIT_S)
        for host in hosts:
            host.run("rm", "/tmp/zeros")
        if status != 0:
            cluster.check_reason(command.printed(), "No space left on device")
            cluster.run(cluster.stages("full-disk")[0])
        cluster.check_bytes("full-disk", "documents")


def lose_head(cluster: Cluster) -> None:
    """Kill the head, and the workers, which may go on without it; start all, and the command."""
    with cluster.trial("the whole cluster killed and started again, the command typed again"):
        command = begin_ingest(cluster, "lost-head")
        for name in ("head", *WORKERS):
            cluster.network.hosts[name].kill()
        cluster.check_line(cluster.end(command, status=1), "Error: ")
        cluster.engine.start_head(cluster.add_host("head"))
        for name in WORKERS:
            cluster.add_worker(name)
        cluster.wait_for_workers()
        cluster.run(cluster.stages("lost-head")[0])
        cluster.check_bytes("lost-head", "documents")


def lose_command(cluster: Cluster) -> None:
    """Kill the user's command, and type it again."""
    with cluster.trial("the user's command killed and typed again"):
        begin_ingest(cluster, "lost-command").kill()
        if cluster.store is not None:  # the next command would name what is to be deleted
            shutil.rmtree(cluster.store.path("lost-command/documents/.lock"))
        cluster.run(cluster.stages("lost-command")[0])
        cluster.check_bytes("lost-command", "documents")


def restart_store(cluster: Cluster) -> None:
    """Kill the S3 server in the middle, and start it again some seconds later."""
    store = cluster.store
    if store is None:
        return
    with cluster.trial(f"the S3 server away for {STORE_AWAY_S} s in the middle"):
        command = begin_ingest(cluster, "lost-store")
        store.stop()
        time.sleep(STORE_AWAY_S)
        store.start()
        cluster.end(command)
        cluster.check_bytes("lost-store", "documents")


def make_mistake(cluster: Cluster) -> None:
    """Let a worker find a mistake of the user's: the failed job ends with its line."""
    with cluster.trial("a mistake of the user's, found by a worker"):
        damaged = f"{cluster.folder('damaged')}/ruined.xml"
        script = (
            "import sys\n"
            "from clozeworks.pipeline.storage.directory import write_file\n"
            "with write_file(sys.argv[1]) as file:\n"
            "    file.write(b'<mediawiki><page><title>A</title>' * 99)\n"
        )
        if cluster.store is None:
            (cluster.shared / "damaged").mkdir()
        written = cluster.user.run(sys.executable, "-c", script, damaged)
        cluster.check(written.returncode == 0, written.stderr)
        arguments = ["ingest", damaged, "--output", cluster.folder("mistake")]
        printed = cluster.run(cluster.engine.command(arguments), status=2)
        cluster.check_line(printed, "ruined.xml")


def take_other_version(cluster: Cluster) -> None:
    """Let hosts have another version of clozeworks: the run ends with a line that says so."""
    metadata = "Metadata-Version: 2.1\\nName: clozeworks\\nVersion: 9.9.9\\n"
    folder = "/tmp/other/clozeworks-9.9.9.dist-info"
    install = f"mkdir -p {folder}; printf '{metadata}' > {folder}/METADATA"
    path = f"/tmp/other:{os.environ.get('PYTHONPATH', '')}"
    with cluster.trial("hosts with another version of clozeworks"), changed(cluster, install, path):
        printed = cluster.run(cluster.stages("other-version")[0], status=2)
        cluster.check_line(printed, "has clozeworks 9.9.9")


def lack_package(cluster: Cluster) -> None:
    """Let hosts have no clozeworks: the run ends with a line that says so, or does without them."""
    hide = f"mkdir /tmp/none; echo '{_NO_PACKAGE}' > /tmp/none/sitecustomize.py"
    with cluster.trial("hosts without clozeworks"), changed(cluster, hide, "/tmp/none"):
        command = cluster.start(cluster.stages("no-package")[0])
        if command.wait(TIME_LIMIT_S) == 0:  # such a worker of Dask leaves the cluster
            cluster.check_bytes("no-package", "documents")
        else:
            cluster.check_reason(command.printed(), "No module named 'clozeworks")


def break_units(cluster: Cluster) -> None:
    """Let units of work break: the run ends with a line, and the traceback is to be found."""
    script = f"mkdir /tmp/broken; echo '{_BREAK}' > /tmp/broken/sitecustomize.py"
    path = f"/tmp/broken:{os.environ.get('PYTHONPATH', '')}"
    with cluster.trial("units that break"), changed(cluster, script, path) as hosts:
        printed = cluster.run(cluster.stages("broken")[0], status=1)
        cluster.check("Traceback" not in printed, printed)
        print(f"    {printed.strip()}", flush=True)
        log = cluster.user.run("cat", printed.rpartition("Log: ")[2].strip()).stdout
        outputs = [process.printed() for host in hosts for process in host.processes]
        places = {
            "the command's log": log,
            "the output of workers": "".join(outputs),
            "the engine's log": cluster.engine.log(cluster.shared),
        }
        found = [place for place, text in places.items() if "in write_atomically" in text]
        print(f"    the traceback is in {', '.join(found)}", flush=True)
        cluster.check(bool(found), "the traceback is nowhere")


@contextmanager
def changed(cluster: Cluster, script: str, python_path: str) -> Iterator[list[Host]]:
    """Change what Python finds on all workers' hosts but one."""
    names = WORKERS[:-1]  # Flink may leave one host without work
    hosts = []
    for name in names:
        cluster.network.hosts[name].kill()
        host = cluster.add_host(name, WORKER_DISK)
        host.run("sh", "-c", script)
        host.environment["PYTHONPATH"] = python_path
        cluster.engine.start_worker(host)
        hosts.append(host)
    cluster.wait_for_workers()
    yield hosts
    for name in names:
        cluster.network.hosts[name].kill()
        cluster.add_worker(name)
    cluster.wait_for_workers()


TRIALS = {
    "stages": run_stages,
    "job": run_one_job,
    "worker": kill_worker,
    "workers": kill_workers,
    "cut": cut_off_worker,
    "disk": fill_disk,
    "head": lose_head,
    "command": lose_command,
    "store": restart_store,
    "mistake": make_mistake,
    "version": take_other_version,
    "package": lack_package,
    "broken": break_units,
}
STAGES = ("stages", "job")
FAULTS = ("stages", "worker", "store", "mistake")
"""Those that tell most for their time."""


def main(engine_type: type[Engine]) -> None:
    """Try out an engine, as the command line says."""
    parser = argparse.ArgumentParser(description=f"Try out {engine_type.name} on this machine.")
    parser.add_argument(
        "--faults",
        action="store_const",
        const=FAULTS,
        default=STAGES,
        help="Kill a worker's host and the S3 server, and let a worker find a mistake.",
    )
    parser.add_argument("--all", action="store_true", help="Run all trials: an hour for Spark.")
    parser.add_argument("--only", action="append", choices=TRIALS, help="Run only this trial.")
    parser.add_argument(
        "--shared-folder", action="store_true", help="Keep the data in a folder, not on S3."
    )
    parser.add_argument(
        "--corpus", type=Path, default=QUICKSTART, help="Folder of sources, not below /tmp."
    )
    parser.add_argument("--logs", type=Path, help="Folder for what all hosts print.")
    arguments = parser.parse_args()
    # So that hosts are ended one by one: what is stopped on them would outlive this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Interrupted."))
    missing = missing_tools()
    if missing:
        print(f"Skipped: {missing}.")
        return
    names = arguments.only or arguments.faults
    if arguments.all:
        names = list(TRIALS)
    with tempfile.TemporaryDirectory(prefix="trial-") as temporary:
        logs = arguments.logs or Path(temporary, "logs")
        try:
            engine = engine_type()
            on_store = engine.on_store and not arguments.shared_folder
            failures = run(engine, names, arguments.corpus, logs, Path(temporary), on_store)
        except MissingError as error:
            print(f"Skipped: {error}.")
            return
    if failures:
        sys.exit(f"{len(failures)} failures; `--logs DIR` keeps what all hosts print.")


def run(
    engine: Engine,
    names: Sequence[str],
    corpus: Path,
    logs: Path,
    temporary: Path,
    on_store: bool,
) -> list[str]:
    """Bring a cluster up, run trials, and take it down; return what went wrong."""
    shared = temporary / "shared"
    shared.mkdir()
    with Network(logs) as network:
        store = start_store(network) if on_store else None
        cluster = Cluster(
            name=engine.name,
            engine=engine,
            network=network,
            shared=shared,
            store=store,
            expected={},
        )
        cluster.add_host(USER)
        with cluster.trial("three stages on one machine"):
            cluster.expected.update(one_machine(cluster.user, corpus))
        if store is None:
            shutil.copytree(corpus, shared / "corpus")
        else:
            upload(cluster.user, corpus, cluster.folder("corpus"))
        engine.start_user(cluster.user)
        with cluster.trial("a cluster of 3 workers"):
            engine.start_head(cluster.add_host("head"))
            for name in WORKERS:
                cluster.add_worker(name)
            cluster.wait_for_workers()
        if cluster.failures:
            return cluster.failures
        for name in names:
            if name not in engine.left_out:
                TRIALS[name](cluster)
        return cluster.failures


def one_machine(host: Host, corpus: Path) -> dict[str, str]:
    """Return the digests of what worker processes on one machine make of a corpus."""
    for arguments in stage_arguments(str(corpus), "/tmp/one"):
        ended = host.run(*CLI, *arguments)
        if ended.returncode != 0:
            raise RuntimeError(ended.stderr)
    return digests_of(host, "/tmp/one")
