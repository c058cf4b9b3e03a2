"""Fifteen minutes of one GPU, in steps that each write what they find to a file as they go:

    python -m benchmarks.card instances --output card                     # all steps
    python -m benchmarks.card instances --output card --from record       # from this one on

    captured   captured updates are those that Python launches (benchmarks.gpu checks)
    speed      benchmarks.gpu, what pages cite of it
    bert       BERT on masked words alone, 100 million tokens, two seeds
    record     docs/records.md by its own rules, three seeds
    blimp      ettin-17m, three seeds, by BLiMP and GLUE, while time is left

`card/STEP.txt` gets the lines of a step when they are printed, so that a machine that is taken away
costs one step; `card/steps.txt` says how each ended. Each has a share of `--minutes`; one that
takes longer is ended, and the next one begins. A repeated step starts anew, in a folder of its own.

`instances` are those of docs/records.md, whose SHA-256 the record is checked against; build them
before, and carry them. It takes what `benchmarks.gpu` takes, click, and rich.
"""

import argparse
import hashlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from .one_card import COMMAND, ENVIRONMENT, ROOT


class Step(NamedTuple):
    """Commands, one after the other."""

    name: str
    seconds: float
    """The most that they may take of 840; the last step has what is left."""
    commands: list[list[str]]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("instances", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--from", dest="first", metavar="STEP", help="Leave out those before it.")
    parser.add_argument("--minutes", type=float, default=14.0, help="Of all steps.")
    parser.add_argument("--blimp", type=Path, action="append", default=[], help="As for one_card.")
    parser.add_argument("--glue", type=Path, help="As for one_card.")
    parser.add_argument("--small", action="store_true", help="Try it on a CPU.")
    given = parser.parse_args(arguments)
    steps = make_steps(given)
    names = [step.name for step in steps]
    if given.first and given.first not in names:
        parser.error(f"--from {given.first}: the steps are {', '.join(names)}")
    given.output.mkdir(parents=True, exist_ok=True)
    stop = time.monotonic() + 60 * given.minutes
    for step in steps[names.index(given.first) if given.first else 0 :]:
        left = stop - time.monotonic()
        started = time.monotonic()
        ending = run_step(step, given.output, min(step.seconds * given.minutes / 14, left))
        line = f"{step.name}: {ending}, {time.monotonic() - started:.0f} s"
        with (given.output / "steps.txt").open("a") as steps_file:
            print(line, file=steps_file)
        print((given.output / f"{step.name}.txt").read_text() + f"\n== {line}\n", flush=True)


def make_steps(given: argparse.Namespace) -> list[Step]:
    """Return all steps, whose commands run in an empty folder."""
    instances = given.instances.resolve()
    num_seeds = 1 if given.small else 3
    gpu = [sys.executable, "-m", "benchmarks.gpu"]
    one_card = [sys.executable, "-m", "benchmarks.one_card", "--instances", str(instances)]
    one_card += ["--output", ".", "--seeds", str(num_seeds)]
    mini, ettin = "mini", "ettin-17m"
    bert_tokens, record_tokens, blimp_tokens = 100_000_000, 130_000_000, 146_000_000
    if given.small:
        gpu += ["--small", "--seconds=0.01"]
        mini = ettin = "tiny"
        bert_tokens = record_tokens = blimp_tokens = 5_000

    captured = [[*gpu, "checks", f"--minutes={given.minutes / 7}"]]
    sections = ["updates", "fine-tuning", "deterministic", "pretrain"]
    speed = [[*gpu, *sections, f"--minutes={given.minutes * 5 / 14}"]]
    # As B0 of benchmarks/results/2026-11-26-encoders.md, but for next sentences.
    bert = [
        clozeworks(
            *("pretrain", instances, "--output", f"run-{seed}", "--model", mini, "--seed", seed),
            *("--objective", "mlm", "--dropout", 0, "--batch-size", 128, "--tokens", bert_tokens),
            *("--mask-rate", "0.3,0.15", "--learning-rate", "1.5e-3"),
        )
        for seed in range(num_seeds)[:2]
    ]
    record = [
        [sys.executable, "-c", "from benchmarks import card; card.check_rows()", str(instances)],
        [*one_card, "--model", mini, "--tokens", str(record_tokens)],
        *(clozeworks("evaluate", f"run-{seed}", instances) for seed in range(num_seeds)),
    ]
    blimp = [*one_card, "--model", ettin, "--tokens", str(blimp_tokens)]
    for pairs in given.blimp:
        blimp += ["--blimp", str(pairs.resolve())]
    if given.glue:
        blimp += ["--glue", str(given.glue.resolve())]
    return [
        Step("captured", 120, captured),
        Step("speed", 300, speed),
        Step("bert", 110, bert),
        Step("record", 200, record),
        Step("blimp", 840, [blimp]),
    ]


def clozeworks(*arguments: object) -> list[str]:
    return [*COMMAND, *map(str, arguments)]


def run_step(step: Step, output: Path, seconds: float) -> str:
    """Run the commands, with what they print in a file, for so long; return how it ended."""
    stop = time.monotonic() + seconds
    folder = tempfile.mkdtemp(prefix=f"{step.name}-", dir=output)
    with (output / f"{step.name}.txt").open("a") as log:
        for command in step.commands:
            print(f"\n$ {shlex.join(command)}", file=log, flush=True)
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=ENVIRONMENT,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,  # to be ended with its processes, which would hold on to the GPU
            )
            try:
                process.wait(max(0.0, stop - time.monotonic()))
            except subprocess.TimeoutExpired:
                return "ENDED, its time is over"
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            if process.returncode:
                return f"FAILED with {process.returncode}"
    return "done"


def check_rows() -> None:
    """Print whether the shards of the instances named last are those of docs/records.md."""
    records = Path(ROOT, "docs", "records.md").read_text()
    for shard in sorted(Path(sys.argv[-1]).glob("*.parquet")):
        digest = hashlib.sha256(shard.read_bytes()).hexdigest()
        verdict = "as in" if digest in records else "NOT THAT OF"
        print(f"{shard.name}: {digest}, {verdict} docs/records.md")


if __name__ == "__main__":
    main()
