"""Train encoders on one GPU, and measure what others publish: BLiMP by BabyLM's measure, and GLUE.

    python -m benchmarks.one_card books/ wiki.parquet --output work --seeds 3 \\
        --blimp blimp/data --glue glue                   # each in about a minute of an H100
    python -m benchmarks.one_card texts/ --output more --model small --tokens 1500000000 \\
        --blimp blimp/data --glue glue --finetune-seeds 3                      # ten minutes

The texts become instances as in examples/recipes/10-million-words.toml. Each seed gives an encoder,
which is measured on its held-out rows; on minimal pairs, by the mean over paradigms of the measure
that masks each token alone, and by the share of pairs with whole words masked; and by fine-tuning
on each task whose train and dev files are there, at one rate. The table is printed again after each
encoder. Every step is a command of Clozeworks in `--output`, so that the same call resumes.

It runs from a checkout that is not installed, with torch, NumPy, pyarrow, safetensors, tokenizers,
scikit-learn, msgspec, chardet, click and, for texts, what `clozeworks ingest` takes.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TASKS = {
    "cola": "CoLA",
    "sst2": "SST-2",
    "mrpc": "MRPC",
    "stsb": "STS-B",
    "qnli": "QNLI",
    "rte": "RTE",
    "wnli": "WNLI",
}
COMMAND = [
    *(sys.executable, "-c"),
    "import benchmarks; from clozeworks.cli.main import main; main()",  # installed or not
]
ROOT = str(Path(__file__).parents[1])
ENVIRONMENT = os.environ | {
    "PYTHONPATH": os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH")]))
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("texts", nargs="*", help="Sources of `clozeworks ingest`.")
    parser.add_argument("--instances", type=Path, help="Instead of texts.")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--blimp", type=Path, action="append", default=[], help="Also supplement.")
    parser.add_argument("--glue", type=Path, help="Folder of the tasks' folders, such as CoLA.")
    parser.add_argument("--model", default="ettin-17m")
    parser.add_argument("--tokens", type=int, default=146_000_000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--rate", default="1.5e-3")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--finetune-rate", default="3e-4")
    parser.add_argument("--finetune-seeds", type=int, default=1)
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    instances = given.instances or make_instances(given.texts, given.output)
    rows: list[dict[str, str]] = []
    for seed in range(given.seeds):
        run = given.output / f"run-{seed}"
        started = time.perf_counter()
        clozeworks(
            *("pretrain", instances, "--output", run, "--architecture", "modernbert"),
            *("--model", given.model, "--batch-size", given.batch_size, "--tokens", given.tokens),
            *("--learning-rate", given.rate, "--mask-rate", "0.3,0.15", "--seed", seed),
        )
        seconds = time.perf_counter() - started
        row = {"seed": str(seed), "training, s": f"{seconds:.0f}"}
        row |= dict(measurements(run, given))
        rows.append(row)
        print_table(rows)


def make_instances(texts: list[str], output: Path) -> Path:
    documents, vocab, instances = (output / name for name in ("documents", "vocab", "instances"))
    clozeworks("ingest", *texts, "--language", "en", "--output", documents)
    clozeworks("vocab", documents, "--size", 8192, "--output", vocab)
    clozeworks(
        *("build", documents, "--vocab", vocab, "--output", instances, "--pairing", "none"),
        *("--max-length", 128, "--duplicates", 1),
    )
    return instances


def measurements(run: Path, given: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield the names and figures of an encoder."""
    summary = json.loads((run / "summary.json").read_text())
    final = summary["final"]
    yield "M tokens", f"{summary['tokens'] / 1e6:.0f}"
    yield "loss, right", f"{final['mlm_loss']:.3f}, {final['mlm_accuracy']:.1%}"
    for pairs in given.blimp:
        measured = json.loads(clozeworks("evaluate", run, pairs, "--json", reads=True))
        yield (
            f"{pairs.parent.name}/{pairs.name}: BabyLM's mean",
            f"{measured['mean_token_alone']:.1%}",
        )
        whole = measured["all"]
        yield "by whole words", f"{whole['accuracy']:.1%} of {whole['pairs']:,}"
    for task, folder in TASKS.items():
        data = given.glue and given.glue / folder
        if not data or not (data / "train.tsv").exists() or not (data / "dev.tsv").exists():
            continue
        tuned = run.with_name(f"{run.name}-{task}")
        clozeworks(
            *("finetune", task, data, "--checkpoint", run, "--output", tuned),
            *("--learning-rates", given.finetune_rate, "--seeds", given.finetune_seeds),
        )
        found: list[dict[str, Any]] = json.loads(clozeworks("results", tuned, "--json", reads=True))
        yield folder, f"{found[0]['median']:.1f} {found[0]['metric']}"


def clozeworks(*arguments: object, reads: bool = False) -> str:
    """Run a command, showing what it shows; return its standard output if `reads`."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE if reads else None,
        text=True,
    )
    # 1 from `finetune`: as good as a constant answer, which is a result.
    if done.returncode and not (arguments[0] == "finetune" and done.returncode == 1):
        raise SystemExit(f"clozeworks {arguments[0]} ended with {done.returncode}")
    return done.stdout or ""


def print_table(rows: list[dict[str, str]]) -> None:
    names = list(rows[0])
    print("\n| " + " | ".join(names) + " |\n" + "|---" * len(names) + "|")
    for row in rows:
        print("| " + " | ".join(row.get(name, "") for name in names) + " |")
    print(flush=True)


if __name__ == "__main__":
    main()
