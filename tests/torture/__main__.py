"""Torture clozeworks: damaged files, kills, double starts, full disks and limits, each drawn from a fixed seed.

    python -m tests.torture                      # everything: 200 mutations of each kind of file, 200 kills
    python -m tests.torture --share 0.02         # a short form
    python -m tests.torture --only mutations --match manifest --keep failures

Prints a line for each fault and a table at the end; exits with 1 if there was a fault. Damaged input may be refused in
one line or, if it can be read, used; no command may end in a traceback, a hang of over 60 s of CPU, or over 2 GB of
memory; and once undisturbed, it must write the same bytes as ever.
"""

import argparse
import importlib
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .mutations import mutate
from .trial import Outcome, count_events, finish, kill_after, kill_at, run, start
from .world import COMMANDS, OTHERS, command_line, copy_world, digest, make_world, output_of

INGEST = "ingest FILE --output out --min-characters 50 --workers 1 --max-bad 1"
TINY = "--device cpu --epochs 0.2 --max-length 24 --learning-rates 1e-3"
RESUME = COMMANDS["pretrain"].replace("OUT", "run-half")
MUTATIONS = {
    "dump.xml": ("sources/dump.xml", INGEST),
    "dump.xml.bz2": ("dump.xml.bz2", INGEST),
    "dump.xml.gz": ("dump.xml.gz", INGEST),
    "text": ("sources/book-0.txt", f"{INGEST} --format text"),
    "Gutenberg": ("gutenberg.txt", f"{INGEST} --format gutenberg"),
    "JSON Lines": ("rows.jsonl", INGEST),
    "Parquet": ("rows.parquet", INGEST),
    "WikiExtractor": ("wiki_00", INGEST),
    "tar": ("books.tar.gz", INGEST),
    "zip": ("books.zip", INGEST),
    "recipe": ("recipe.toml", "run FILE --output out"),
    "--config": ("options.toml", "vocab documents --output out --config FILE --workers 1"),
    "documents: manifest": ("documents/manifest.json", "vocab documents --output out --size 300 --workers 1"),
    "documents: shard": (
        "documents/train-00001-of-00003.parquet",
        "vocab documents --output out --size 300 --workers 1",
    ),
    "vocab: manifest": ("vocab/manifest.json", "build documents --vocab vocab --output out --workers 1"),
    "vocab.txt": ("vocab/vocab.txt", "build documents --vocab FILE --output out --workers 1"),
    "tokenizer.json": ("vocab/tokenizer.json", "build documents --vocab FILE --output out --workers 1"),
    "instances: manifest": ("instances/manifest.json", "audit instances"),
    "instances: manifest, shown": ("instances/manifest.json", "show instances -n 1"),
    "instances: shard": ("instances/train-00000-of-00003.parquet", "audit instances"),
    "instances: shard, trained on": (
        "instances/train-00000-of-00003.parquet",
        COMMANDS["pretrain"].replace("OUT", "out").replace("--steps 12", "--steps 2"),
    ),
    "ingest: plan": ("documents-half/.work/gather/plan.json", COMMANDS["ingest"].replace("OUT", "documents-half")),
    "ingest: record": ("documents-half/.work/scatter/00000.json", COMMANDS["ingest"].replace("OUT", "documents-half")),
    "run.json": ("run-half/run.json", RESUME),
    "metrics.csv": ("run-half/metrics.csv", RESUME),
    "state.json": ("run-half/checkpoints/step-0000008/training_state/state.json", RESUME),
    "optimizer.pt": ("run-half/checkpoints/step-0000008/training_state/optimizer.pt", RESUME),
    "config.json": ("run/config.json", "evaluate run instances --device cpu"),
    "model.safetensors": ("run/model.safetensors", "evaluate run instances --device cpu"),
    "run: tokenizer.json": ("run/tokenizer.json", "fill run [MASK]"),
    "task.json": ("task/task.json", "predict task lines.txt --output out.jsonl --device cpu"),
    "finetune.json": ("task-half/finetune.json", COMMANDS["finetune"].replace("OUT", "task-half")),
    "finetune: run.json": (
        "task-half/runs/learning-rate-0.001-seed-0/run.json",
        COMMANDS["finetune"].replace("OUT", "task-half"),
    ),
    "finetune: summary.json": ("task/summary.json", "results task"),
    "results.csv": ("task/results.csv", "results task"),
    "features": ("features.parquet", COMMANDS["features"].replace("OUT", "features.parquet")),
    "table of a task": ("authors/train.tsv", f"finetune classify authors --checkpoint run --output out {TINY}"),
    "SQuAD": ("squad/train.json", f"finetune squad squad --checkpoint run --output out {TINY}"),
    "CoNLL": ("ner/train.txt", f"finetune ner ner --checkpoint run --output out {TINY}"),
    "SWAG": ("swag/train.csv", f"finetune swag swag --checkpoint run --output out {TINY}"),
    "texts to predict": ("lines.txt", "predict task FILE --output out.jsonl --device cpu"),
}
EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")
NUM_MUTATIONS = 200
NUM_KILLS = 25  # of each command
NUM_DOUBLE_STARTS = 12
NUM_FULL_DISKS = 12


@dataclass
class Tally:
    """What came of the trials of one kind."""

    trials: int = 0
    exit_codes: Counter[int] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


class Torture:
    """All trials: in a scratch folder, with a copy of the world for each."""

    def __init__(self, scratch: Path, seed: int, share: float, match: str, keep: Path | None) -> None:
        self.world = scratch / "world"
        self.folder = scratch / "trial"
        self.seed, self.share, self.match, self.keep = seed, share, match, keep
        self.tallies: dict[str, Tally] = {}
        make_world(self.world)

    def trials(self, name: str, number: int) -> Iterator[random.Random]:
        """Yield a random generator for each trial called `name`, in a fresh copy of the world."""
        if self.match in name:
            for trial in range(max(1, round(number * self.share))):
                copy_world(self.world, self.folder)
                yield random.Random(f"{self.seed} {name} {trial}")

    def judge(self, name: str, outcome: Outcome, fault: str = "") -> None:
        """Count a trial; report its fault, and keep its folder if asked."""
        tally = self.tallies.setdefault(name, Tally())
        tally.trials += 1
        tally.exit_codes[outcome.exit_code] += 1
        if fault := outcome.fault() or fault:
            tally.faults.append(fault)
            print(f"FAULT {name} (trial {tally.trials}): {fault}", flush=True)
            if self.keep:
                kept = self.keep / f"{name}-{tally.trials}".replace("/", "-").replace(" ", "-")
                copy_world(self.folder, kept)
                (kept / "stderr.txt").write_text(outcome.errors)

    def mutations(self) -> None:
        """Read each kind of file in damaged forms."""
        for name, (path, command) in MUTATIONS.items():
            for rng in self.trials(f"mutated {name}", NUM_MUTATIONS):
                file = self.folder / path
                file.write_bytes(mutate(file.read_bytes(), rng))
                words = [path if word == "FILE" else word for word in command.split()]
                self.judge(f"mutated {name}", run(self.folder, words))

    def references(self) -> dict[str, str]:
        """Return the digest of what each command writes undisturbed."""
        digests = {}
        for command in COMMANDS:
            copy_world(self.world, self.folder)
            output = output_of(command)
            outcome = run(self.folder, command_line(command, output))
            digests[command] = digest(self.folder / output)
            if outcome.fault() or (outcome.exit_code and command != "audit"):
                raise RuntimeError(f"{command}: {outcome}")
        return digests

    def kills(self) -> None:
        """Kill each command up to three times, at any file it opens or renames, or with its workers at any time."""
        references = self.references()
        for command in COMMANDS:
            output = self.folder / output_of(command)
            words = command_line(command, output.name)
            num_events, seconds = 0, 0.0
            for rng in self.trials(f"killed {command}", NUM_KILLS):
                if not num_events:
                    began = time.monotonic()
                    run(self.folder, words, count_events(EVENTS, self.folder / ".events"))
                    num_events, seconds = int((self.folder / ".events").read_text()), time.monotonic() - began
                    copy_world(self.world, self.folder)
                two = [*words[:-1], "2"] if words[-2] == "--workers" else words
                for _ in range(rng.randint(1, 3)):
                    if rng.random() < 0.7:
                        run(self.folder, words, kill_at(EVENTS, rng.randint(1, num_events)))
                    else:
                        process = start(self.folder, two)
                        kill_after(process, rng.uniform(0, 1.2 * seconds))
                        finish(self.folder, process)
                self._finish_and_compare(f"killed {command}", command, words, references[command])

    def _finish_and_compare(self, name: str, command: str, words: list[str], reference: str) -> None:
        """Run a disturbed command to its end; it must succeed with the bytes of an undisturbed run."""
        outcome, output = run(self.folder, words), self.folder / output_of(command)
        fault = "" if outcome.exit_code in (0, command == "audit") else f"not resumed: {outcome.errors.strip()}"
        if not fault and digest(output) != reference:
            fault = "other bytes"
        left = [path.name for path in self.folder.glob("out*") if path != output]
        self.judge(name, outcome, fault or (f"left behind: {', '.join(left)}" if left else ""))

    def double_starts(self) -> None:
        """Start each command twice, with the same or other options, at several moments."""
        references = self.references()
        for command in COMMANDS:
            output = output_of(command)
            words = command_line(command, output)
            others = words + OTHERS.get(command, "").split()
            seconds = 0.0
            other_reference = ""
            for rng in self.trials(f"double {command}", NUM_DOUBLE_STARTS):
                if not seconds:
                    began = time.monotonic()
                    run(self.folder, others)
                    other_reference, seconds = digest(self.folder / output), time.monotonic() - began
                    copy_world(self.world, self.folder)
                first = start(self.folder, words)
                time.sleep(rng.uniform(0, seconds) if rng.random() < 0.7 else 0)
                second = start(self.folder, rng.choice((words, others)))
                outcomes = [finish(self.folder, process) for process in (first, second)]
                codes = {outcome.exit_code for outcome in outcomes}
                written = digest(self.folder / output) if (self.folder / output).exists() else ""
                fault = "" if codes & {0, int(command == "audit")} and codes <= {0, 1, 2} else f"exit codes {codes}"
                if not fault and written not in (references[command], other_reference):
                    fault = "bytes of neither"
                self.judge(f"double {command}", max(outcomes, key=lambda outcome: bool(outcome.fault())), fault)

    def full_disks(self) -> None:
        """Let no file grow beyond some size, as on a disk that fills up; then run the command again without it."""
        references = self.references()
        for command in COMMANDS:
            output = output_of(command)
            words = command_line(command, output)
            for rng in self.trials(f"full disk {command}", NUM_FULL_DISKS):
                size = int(2 ** rng.uniform(12, 17))
                full = run(self.folder, words, lambda size=size: _limit(resource.RLIMIT_FSIZE, size))
                written = self.folder / output
                if full.exit_code == 0 and (not written.exists() or digest(written) != references[command]):
                    self.judge(f"full disk {command}", full, "success on a full disk")
                elif full.fault():
                    self.judge(f"full disk {command}", full)
                else:
                    self._finish_and_compare(f"full disk {command}", command, words, references[command])

    def limits(self) -> None:
        """Meet the limits and errors of the operating system."""
        for name, (command, prepare) in LIMITS.items():
            for _ in self.trials(f"limit {name}", 1):
                os.mkfifo(self.folder / "fifo")
                (self.folder / "empty").mkdir()
                (self.folder / "closed").write_text("closed")
                (self.folder / "closed").chmod(0)
                outcome = run(self.folder, command.split(), prepare)
                lines = [line for line in outcome.errors.splitlines() if line.startswith("Error: ")]
                fault = (
                    "" if len(lines) == 1 and outcome.exit_code else f"no error in one line: {outcome.errors[-200:]!r}"
                )
                self.judge(f"limit {name}", outcome, fault)

    def table(self) -> str:
        """Return the tallies as a Markdown table."""
        rows = ["| | trials | succeeded | refused | faults |", "|---|---|---|---|---|"]
        for name, tally in self.tallies.items():
            refused = tally.exit_codes[1] + tally.exit_codes[2]
            rows.append(f"| {name} | {tally.trials} | {tally.exit_codes[0]} | {refused} | {len(tally.faults)} |")
        return "\n".join(rows)


def _limit(which: int, value: int) -> None:
    resource.setrlimit(which, (value, value))


def _full_output() -> None:
    os.dup2(os.open("/dev/full", os.O_WRONLY), sys.stdout.fileno())


def _small_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _limit(resource.RLIMIT_AS, pages * resource.getpagesize() + (24 << 20))


def _other_user() -> None:
    if os.getuid() == 0:
        os.chmod(".", 0o777)
        os.setuid(65_534)


LONG = "x" * 300
LIMITS: dict[str, tuple[str, Callable[[], None] | None]] = {
    "name too long": (COMMANDS["ingest"].replace("OUT", LONG), None),
    "name of a source too long": (f"ingest {LONG} --output out", None),
    "unknown scheme": ("ingest ftp://host/x.txt --output out", None),
    "unknown scheme of an output": (COMMANDS["vocab"].replace("OUT", "ftp://host/out"), None),
    "unreadable source": ("ingest closed --format text --output out --workers 1", _other_user),
    "unreadable data": ("predict task closed --output out.jsonl", _other_user),
    "unwritable output": (COMMANDS["vocab"].replace("OUT", "/proc/out"), None),
    "output in a file": (COMMANDS["vocab"].replace("OUT", "lines.txt/out"), None),
    "output is a file": (COMMANDS["vocab"].replace("OUT", "lines.txt"), None),
    "FIFO as a source": ("ingest fifo --format text --output out", None),
    "FIFO as data": ("predict task fifo --output out.jsonl", None),
    "empty folder": ("ingest empty --output out", None),
    "missing documents": ("vocab nothing --output out", None),
    "folder as a file": ("predict task authors --output out.jsonl", None),
    "huge batch": (f"{COMMANDS['pretrain'].replace('OUT', 'out')} --batch-size 10000000", None),
    "huge model": (f"{COMMANDS['pretrain'].replace('OUT', 'out')} --hidden-size 1000000 --num-heads 1", None),
    "full output of show": ("show instances", _full_output),
    "full output of results": ("results task", _full_output),
    "full output of evaluate": ("evaluate run instances --device cpu", _full_output),
    "full output of a stage": (COMMANDS["vocab"].replace("OUT", "out"), _full_output),
    "little memory, ingest": (COMMANDS["ingest"].replace("OUT", "out"), _small_memory),
    "little memory, build": (COMMANDS["build"].replace("OUT", "out"), _small_memory),
    "little memory, pretrain": (f"{COMMANDS['pretrain'].replace('OUT', 'out')} --model small", _small_memory),
    "few open files, pretrain": (
        COMMANDS["pretrain"].replace("OUT", "out"),
        lambda: _limit(resource.RLIMIT_NOFILE, 8),
    ),
}


def main() -> None:
    kinds = ("mutations", "kills", "double_starts", "full_disks", "limits")
    parser = argparse.ArgumentParser(
        "python -m tests.torture", description="Torture clozeworks; see the top of tests/torture/__main__.py."
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--share", type=float, default=1.0, help="share of the trials to run, at least one of each kind"
    )
    parser.add_argument("--only", choices=kinds, action="append", help="kinds of torture; by default all")
    parser.add_argument("--match", default="", help="only trials with this in their name")
    parser.add_argument("--keep", type=Path, help="folder for the files of trials with a fault")
    options = parser.parse_args()
    # Imported once, before the processes of the trials are forked.
    for name in ("cli.main", "pipeline.ingest.pipeline", "pipeline.vocab.pipeline", "pipeline.build.pipeline"):
        importlib.import_module(f"clozeworks.{name}")
    for name in ("pretraining.pretrain", "finetuning.finetune", "finetuning.predict", "features.features"):
        importlib.import_module(f"clozeworks.model.{name}")

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    scratch = Path(tempfile.mkdtemp(prefix="torture-"))
    try:
        torture = Torture(scratch, options.seed, options.share, options.match, options.keep and options.keep.absolute())
        for kind in options.only or kinds:
            getattr(torture, kind)()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(torture.table())
    sys.exit(any(tally.faults for tally in torture.tallies.values()))


if __name__ == "__main__":
    main()
