"""Try out an S3 server on this machine: every command with paths on it, hosts lost, and faults.

Commands run on hosts that share nothing but the server. What no command may show is its secret.
"""

import argparse
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from downloads import MissingError
from hosts import ROOT, Host, Network, Process, missing_tools
from store import BUCKET, CREDENTIALS, NAME, Store, start_store
from trial import (
    CLI,
    QUICKSTART,
    TIME_LIMIT_S,
    Trials,
    digests_of,
    one_machine,
    stage_arguments,
    upload,
    wait_until,
)

RECIPE = ROOT / "examples" / "quickstart"
SECRET = CREDENTIALS["AWS_SECRET_ACCESS_KEY"]
TRAINING = (
    *("--model", "tiny", "--num-layers", "1", "--hidden-size", "32", "--num-heads", "2"),
    *("--batch-size", "8", "--steps", "40", "--device", "cpu"),
)
GIVE_UP_S = 120.0
"""By then a command that cannot reach its store has said so, on a busy machine too."""

DISK = "1g"
"""Of the store, in this machine's memory."""
HANGS = 9001
BUSY = 9002
_FAULTY_SERVERS = f"""
import http.server, socket, threading

listener = socket.create_server(("", {HANGS}))
accepted = []

def accept():
    while True:
        accepted.append(listener.accept())

class Busy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_error(503, "Slow Down")

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

threading.Thread(target=accept, daemon=True).start()
print("listening", flush=True)
http.server.ThreadingHTTPServer(("", {BUSY}), Busy).serve_forever()
"""


@dataclass(kw_only=True)
class StoreTrials(Trials):
    """An S3 server, and hosts whose only disk is their own."""

    network: Network
    store: Store
    shown_by: set[str] = field(default_factory=set)
    """The command lines of processes that showed the secret."""

    def add_host(self, name: str) -> Host:
        """Add a host, or a new one in the place of that of an earlier trial."""
        if name in self.network.hosts:
            self.network.hosts[name].kill()
        return self.network.add_host(name, CREDENTIALS)

    def run(self, host: Host, *arguments: str, status: int = 0) -> str:
        """Run a command of clozeworks to its end; return what it printed."""
        return self.end(host.start(*CLI, *arguments), status)

    def end(self, process: Process, status: int = 0) -> str:
        """Wait for the end of a command; return what it printed."""
        ended_with = process.wait(TIME_LIMIT_S)
        printed = process.printed()
        self.check(ended_with == status, f"exit status {ended_with}, not {status}: {printed}")
        return printed

    @contextmanager
    def processes_watched(self) -> Iterator[None]:
        """Look for the secret in the command lines of all processes meanwhile."""
        end = threading.Event()

        def watch() -> None:
            while not end.wait(0.5):
                for path in Path("/proc").glob("[0-9]*/cmdline"):
                    try:
                        line = path.read_text(errors="replace")
                    except OSError:  # it has ended
                        continue
                    if SECRET in line:
                        self.shown_by.add(line)

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()


def use_all_commands(trials: StoreTrials) -> None:
    """Run the quickstart's recipe and all commands that read what it makes, all on the store."""
    with trials.trial("every command, with paths on the store"):
        host = trials.add_host("laptop")
        root = f"s3://{BUCKET}/made"
        texts = f"s3://{BUCKET}/quickstart"
        options = ["--language", "en", "--validation-share", "0.08"]
        cuts = ["--size", "2000", "--max-length", "32"]
        trials.run(host, "corpus", f"{texts}/corpus", "--output", root, *options, *cuts)
        # Trainers write to their own machine.
        trials.run(host, "pretrain", f"{root}/instances", "--output", "/tmp/model", *TRAINING)
        trials.run(host, "export", "/tmp/model", "--output", f"{root}/model")
        tune = ["--checkpoint", f"{root}/model", "--output", "/tmp/word-order", "--epochs", "1"]
        trials.run(host, "finetune", "classify", f"{texts}/word-order", *tune)
        trials.run(host, "export", "/tmp/word-order", "--output", f"{root}/word-order")
        dev = f"{texts}/word-order/dev.tsv"
        for arguments in (
            ["show", f"{root}/instances"],
            ["audit", f"{root}/instances"],
            ["evaluate", f"{root}/model", f"{root}/instances"],
            ["evaluate", f"{root}/word-order", dev],
            ["predict", f"{root}/word-order", dev, "--output", f"{root}/predictions.tsv"],
            ["features", f"{root}/model", dev, "--output", "/tmp/vectors.parquet"],
        ):
            begun = time.monotonic()
            printed = trials.run(host, *arguments)
            print(f"    {arguments[0]}: {time.monotonic() - begun:.0f} s", flush=True)
            trials.check("Traceback" not in printed, printed)


def fail(trials: StoreTrials) -> None:
    """Meet wrong credentials, no bucket, and servers that do not answer: a line each, in time."""
    there = f"s3://{BUCKET}/made/documents"
    server = {"AWS_ENDPOINT_URL": f"http://{NAME}:{HANGS}"}
    busy = {"AWS_ENDPOINT_URL": f"http://{NAME}:{BUSY}"}
    faults = [
        ("a wrong secret", {"AWS_SECRET_ACCESS_KEY": "wrong"}, there, 2, "access is denied"),
        ("a wrong key", {"AWS_ACCESS_KEY_ID": "nobody"}, there, 2, "access is denied"),
        ("no bucket", {}, "s3://no-bucket/documents", 2, "the bucket does not exist"),
        ("a server that hangs", server, there, 1, "cannot be reached"),
        ("a server that answers 503", busy, there, 1, "is overloaded or down"),
    ]
    faulty = trials.network.hosts[NAME].start(sys.executable, "-c", _FAULTY_SERVERS)
    wait_until(lambda: bool(faulty.printed()), faulty)
    host = trials.add_host("laptop")
    for title, environment, path, status, line in faults:
        with trials.trial(title):
            for arguments in (
                ["show", path],
                ["ingest", str(QUICKSTART), "--output", f"{path}-new", "--language", "en"],
                ["pretrain", path, "--output", f"{path}-run", *TRAINING],
            ):
                begun = time.monotonic()
                process = host.start(*CLI, *arguments, environment=environment)
                printed = trials.end(process, status)
                seconds = time.monotonic() - begun
                print(f"    {arguments[0]}, {seconds:.0f} s: {printed.strip()}", flush=True)
                trials.check_line(printed, line)
                trials.check(seconds < GIVE_UP_S, f"{seconds:.0f} s")


def fill_store(trials: StoreTrials) -> None:
    """Fill the disk of the store: a line; with space, the same command resumes."""
    with trials.trial("the store's disk full"):
        server = trials.network.hosts[NAME]
        server.run("sh", "-c", "cat /dev/zero > /tmp/zeros")
        host = trials.add_host("laptop")
        output = f"s3://{BUCKET}/full"
        command = ["ingest", str(QUICKSTART), "--output", output, "--language", "en"]
        printed = trials.run(host, *command, status=1)
        print(f"    {printed.strip()}", flush=True)
        trials.check_line(printed, "Error: ")
        server.run("rm", "/tmp/zeros")
        trials.run(host, *command)


def start_twice(trials: StoreTrials) -> None:
    """Start a command on two hosts at once: at the end the directory is whole."""
    with trials.trial("one remote directory, two commands at once"):
        hosts = [trials.add_host("laptop"), trials.add_host("other")]
        expected = one_machine(hosts[0], QUICKSTART)
        root = f"s3://{BUCKET}/twice"
        for arguments in stage_arguments(str(QUICKSTART), root):
            processes = [host.start(*CLI, *arguments) for host in hosts]
            for process in processes:
                status = process.wait(TIME_LIMIT_S)
                print(f"    {arguments[0]}: {status}, {process.printed()[-300:]!r}", flush=True)
            trials.run(hosts[0], *arguments)
        trials.check(digests_of(hosts[0], root) == expected, "other bytes than those of one host")


def look_for_secret(trials: StoreTrials) -> None:
    """Look for the secret in all that was printed or uploaded."""
    with trials.trial("the secret in no log, object or command line"):
        for folder in (trials.network.logs, trials.store.path("")):
            for path in folder.rglob("*"):
                if path.is_file():
                    trials.check(SECRET.encode() not in path.read_bytes(), f"{path} has it")
        trials.check(not trials.shown_by, f"shown by {trials.shown_by}")


TRIALS = {
    "commands": use_all_commands,
    "faults": fail,
    "full": fill_store,
    "twice": start_twice,
}


def main() -> None:
    """Run the trials."""
    parser = argparse.ArgumentParser(description="Try out an S3 server on this machine.")
    parser.add_argument(
        "--only",
        action="append",
        choices=TRIALS,
        help="Run only this trial.",
    )
    parser.add_argument("--logs", type=Path, help="Folder for what all hosts print.")
    arguments = parser.parse_args()
    # So that hosts are ended one by one, and their folders deleted.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Interrupted."))
    missing = missing_tools()
    if missing:
        print(f"Skipped: {missing}.")
        return
    with tempfile.TemporaryDirectory(prefix="trial-") as temporary:
        try:
            with Network(arguments.logs or Path(temporary, "logs")) as network:
                trials = StoreTrials(name=NAME, network=network, store=start_store(network, DISK))
                # Makes the bucket.
                upload(trials.add_host("laptop"), RECIPE, f"s3://{BUCKET}/quickstart")
                with trials.processes_watched():
                    for name in arguments.only or TRIALS:
                        TRIALS[name](trials)
                look_for_secret(trials)
        except MissingError as error:
            print(f"Skipped: {error}.")
            return
    if trials.failures:
        sys.exit(f"{len(trials.failures)} failures; `--logs DIR` keeps what all hosts print.")


if __name__ == "__main__":
    main()
