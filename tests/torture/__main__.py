"""Torture clozeworks: damaged files, kills, full disks and limits, each drawn from a fixed seed.

    python -m tests.torture         # everything: 200 mutations of each kind of file, 200 kills
    python -m tests.torture --share 0.02        # a short form
    python -m tests.torture --only mutations --match manifest --keep failures

Prints a line for each fault and a table at the end; exits with 1 if there was a fault. Damaged
input may be refused in one line or, if it can be read, used; no command may end in a traceback, a
hang of over 60 s of CPU, or over 2 GB of memory; and once undisturbed, it must write the same bytes
as ever.
"""

import argparse
import importlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .cases import LIMITS, MUTATIONS, limit
from .mutations import mutate
from .trial import Outcome, count_events, finish, kill_after, kill_at, run, start
from .world import COMMANDS, command, copy_world, digest, make_world, output_of

EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")
STRUCTURED = (".xml", ".bz2", ".gz", ".parquet")
"""Suffixes of files in which damage shows; a cut from one line of JSON Lines into another may leave
a valid file.
"""
NUM_MUTATIONS = 200
NUM_KILLS = 25  # of each command
NUM_FULL_DISKS = 12


@dataclass
class Tally:
    """What came of the trials of one kind."""

    trials: int = 0
    exit_codes: Counter[int] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Reference:
    """What a command writes undisturbed."""

    digest: str
    seconds: float
    num_documents: int


class Torture:
    """All trials: in a scratch folder, with a copy of the world for each."""

    def __init__(
        self, scratch: Path, seed: int, share: float, match: str, keep: Path | None
    ) -> None:
        self.world, self.folder, self.undisturbed = (
            scratch / name for name in ("world", "trial", "undisturbed")
        )
        self.seed, self.share, self.match, self.keep = seed, share, match, keep
        self.tallies: dict[str, Tally] = {}
        self.references: dict[str, Reference] = {}
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
        for name, (path, line) in MUTATIONS.items():
            for rng in self.trials(f"mutated {name}", NUM_MUTATIONS):
                [file] = self.folder.glob(path)
                file.write_bytes(mutate(file.read_bytes(), rng))
                whole_line = line.replace("FILE", path)
                outcome = run(self.folder, whole_line.split())
                counted = (
                    path.endswith(STRUCTURED)
                    and line.startswith("ingest FILE")
                    and not outcome.exit_code
                )
                self.judge(
                    f"mutated {name}", outcome, self.silent_loss(whole_line) if counted else ""
                )

    def silent_loss(self, line: str) -> str:
        """Name the fault if fewer documents were read and no reason is counted."""
        manifest = json.loads((self.folder / "out" / "manifest.json").read_text())
        num_lost = self.reference(line).num_documents - manifest["counts"]["documents_read"]
        return (
            f"{num_lost} documents lost in silence" if num_lost > 0 and not manifest["bad"] else ""
        )

    def reference(self, line: str) -> Reference:
        """Run a command undisturbed."""
        if line not in self.references:
            copy_world(self.world, self.undisturbed)
            start_s = time.monotonic()
            outcome = run(self.undisturbed, line.split())
            if outcome.fault() or not outcome.is_done:
                raise RuntimeError(f"{line}: {outcome}")
            seconds, num_documents = time.monotonic() - start_s, 0
            output = next(self.undisturbed.glob("out*"))
            if line.startswith("ingest"):
                num_documents = json.loads((output / "manifest.json").read_text())["counts"][
                    "documents_read"
                ]
            self.references[line] = Reference(digest(output), seconds, num_documents)
        return self.references[line]

    def num_events(self, line: str) -> int:
        """Return the number of files that a command opens, renames and so on."""
        copy_world(self.world, self.undisturbed)
        run(self.undisturbed, line.split(), count_events(EVENTS, self.undisturbed / ".events"))
        return int((self.undisturbed / ".events").read_text())

    def kills(self) -> None:
        """Kill each command up to three times, at any file it opens, or with its workers."""
        for stage in COMMANDS:
            line, num_events = command(stage, output_of(stage)), 0
            if stage == "features":
                line += " --overwrite"  # a kill may come when all is done
            for rng in self.trials(f"killed {stage}", NUM_KILLS):
                num_events = num_events or self.num_events(line)
                for _ in range(rng.randint(1, 3)):
                    if rng.random() < 0.7:
                        run(self.folder, line.split(), kill_at(EVENTS, rng.randint(1, num_events)))
                    else:
                        process = start(
                            self.folder, line.replace("--workers 1", "--workers 2").split()
                        )
                        kill_after(process, rng.uniform(0, 1.2 * self.reference(line).seconds))
                        finish(self.folder, process)
                self.finish_and_compare(f"killed {stage}", line)

    def finish_and_compare(self, name: str, line: str) -> None:
        """Run a disturbed command to its end; it must write the bytes of an undisturbed run."""
        outcome = run(self.folder, line.split())
        if not outcome.is_done:
            fault = f"not resumed: {outcome.errors.strip()}"
        else:
            output, *left = sorted(self.folder.glob("out*"), key=lambda path: len(path.name))
            fault = "other bytes" if digest(output) != self.reference(line).digest else ""
            fault = fault or (
                f"left behind: {', '.join(path.name for path in left)}" if left else ""
            )
        self.judge(name, outcome, fault)

    def full_disks(self) -> None:
        """Let no file grow beyond some size, as on a full disk; then run the command again."""
        for stage in COMMANDS:
            line, output = command(stage, output_of(stage)), self.folder / output_of(stage)
            for rng in self.trials(f"full disk {stage}", NUM_FULL_DISKS):
                size = int(2 ** rng.uniform(12, 17))
                full = run(
                    self.folder, line.split(), lambda size=size: limit(resource.RLIMIT_FSIZE, size)
                )
                if full.exit_code == 0 and (
                    not output.exists() or digest(output) != self.reference(line).digest
                ):
                    self.judge(f"full disk {stage}", full, "success on a full disk")
                elif full.fault():
                    self.judge(f"full disk {stage}", full)
                else:
                    self.finish_and_compare(f"full disk {stage}", line)

    def limits(self) -> None:
        """Meet the limits and errors of the operating system."""
        for name, (line, prepare) in LIMITS.items():
            for _ in self.trials(f"limit {name}", 1):
                os.mkfifo(self.folder / "fifo")
                (self.folder / "empty").mkdir()
                (self.folder / "closed").write_text("closed")
                (self.folder / "closed").chmod(0)
                outcome = run(self.folder, line.split(), prepare)
                lines = [line for line in outcome.errors.splitlines() if line.startswith("Error: ")]
                fault = (
                    ""
                    if len(lines) == 1 and outcome.exit_code
                    else f"no error in one line: {outcome.errors[-200:]!r}"
                )
                self.judge(f"limit {name}", outcome, fault)

    def table(self) -> str:
        """Return the tallies as a Markdown table."""
        rows = ["| | trials | succeeded | refused | faults |", "|---|---|---|---|---|"]
        for name, tally in self.tallies.items():
            refused = tally.exit_codes[1] + tally.exit_codes[2]
            cells = (name, tally.trials, tally.exit_codes[0], refused, len(tally.faults))
            rows.append(f"| {' | '.join(map(str, cells))} |")
        return "\n".join(rows)


def main() -> None:
    kinds = ("mutations", "kills", "full_disks", "limits")
    parser = argparse.ArgumentParser(
        "python -m tests.torture",
        description="Torture clozeworks; see the top of tests/torture/__main__.py.",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--share",
        type=float,
        default=1.0,
        help="share of the trials to run, at least one of each kind",
    )
    parser.add_argument(
        "--only", choices=kinds, action="append", help="kinds of torture; by default all"
    )
    parser.add_argument("--match", default="", help="only trials with this in their name")
    parser.add_argument("--keep", type=Path, help="folder for the files of trials with a fault")
    options = parser.parse_args()
    # Imported once, before the processes of the trials are forked.
    stages = [f"pipeline.{stage}.pipeline" for stage in ("documents", "vocabulary", "instances")]
    tuning = [f"model.finetuning.{name}" for name in ("finetune", "predict")]
    loops = ["model.pretraining.pretrain", "model.features.features"]
    for name in ("cli.main", *stages, *loops, *tuning):
        importlib.import_module(f"clozeworks.{name}")

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    scratch = Path(tempfile.mkdtemp(prefix="torture-"))
    try:
        keep = options.keep and options.keep.absolute()
        torture = Torture(scratch, options.seed, options.share, options.match, keep)
        for kind in options.only or kinds:
            getattr(torture, kind)()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(torture.table())
    sys.exit(any(tally.faults for tally in torture.tallies.values()))


if __name__ == "__main__":
    main()
