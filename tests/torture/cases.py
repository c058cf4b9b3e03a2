"""What is tortured: each kind of file with the command that reads it, and limits."""

import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

from .world import command

BOOKS = " ".join(
    f"sources/book-{number}.txt" for number in range(4, 8)
)  # enough documents, whatever is left of FILE
INGEST = f"ingest FILE {BOOKS} --output out --min-characters 50 --workers 1 --max-bad 1"
TINY = "--device cpu --epochs 0.2 --max-length 24 --learning-rates 1e-3"
RESUME = command("pretrain", "run-half")
VOCAB = "vocab documents --output out --size 300 --workers 1"
BUILD = "build documents --vocab FILE --output out --workers 1"
INGEST_HALF = command("ingest", "documents-half")
RUN_TASK = f"--checkpoint run --output out {TINY}"
MUTATIONS = {
    "dump.xml": ("sources/dump.xml", INGEST),
    "dump.xml.bz2": ("dump.xml.bz2", INGEST),
    "dump.xml.gz": ("dump.xml.gz", INGEST),
    "text": ("sources/book-0.txt", f"{INGEST} --format text"),
    "Gutenberg": ("gutenberg.txt", f"{INGEST} --format gutenberg"),
    "JSON Lines": ("rows.jsonl", INGEST),
    "Parquet": ("rows.parquet", INGEST),
    "WikiExtractor": ("wiki_00", INGEST),
    "recipe": ("recipe.toml", "run FILE --output out"),
    "documents: manifest": ("documents/manifest.json", VOCAB),
    "documents: shard": ("documents/train-00001-of-00003.parquet", VOCAB),
    "vocab: manifest": ("vocab/manifest.json", BUILD.replace("FILE", "vocab")),
    "vocab.txt": ("vocab/vocab.txt", BUILD),
    "tokenizer.json": ("vocab/tokenizer.json", BUILD),
    "instances: manifest": ("instances/manifest.json", "audit instances"),
    "instances: manifest, shown": ("instances/manifest.json", "show instances -n 1"),
    "instances: shard": ("instances/train-00000-of-00003.parquet", "audit instances"),
    "instances: shard, trained on": (
        "instances/train-00000-of-00003.parquet",
        command("pretrain", "out").replace("--steps 12", "--steps 2"),
    ),
    # The name of the work's folder depends on library versions.
    "ingest: job": ("documents-half/.work/*/job.json", INGEST_HALF),
    "ingest: plan": ("documents-half/.work/*/gather/plan.json", INGEST_HALF),
    "ingest: record": ("documents-half/.work/*/scatter/00000.json", INGEST_HALF),
    "run.json": ("run-half/run.json", RESUME),
    "metrics.csv": ("run-half/metrics.csv", RESUME),
    "state.json": ("run-half/checkpoints/step-0000008/training_state/state.json", RESUME),
    "optimizer.pt": ("run-half/checkpoints/step-0000008/training_state/optimizer.pt", RESUME),
    "config.json": ("run/config.json", "evaluate run instances --device cpu"),
    "model.safetensors": ("run/model.safetensors", "evaluate run instances --device cpu"),
    "run: tokenizer.json": ("run/tokenizer.json", "fill run [MASK]"),
    "task.json": ("task/task.json", "predict task lines.txt --output out.jsonl --device cpu"),
    "finetune.json": ("task-half/finetune.json", command("finetune", "task-half")),
    "finetune: a run's summary.json": (
        "task-half/runs/learning-rate-0.001-batch-size-8-epochs-2-seed-0/summary.json",
        command("finetune", "task-half"),
    ),
    "finetune: summary.json": ("task/summary.json", "results task"),
    "features": ("features.parquet", command("features", "features.parquet")),
    "table of a task": ("word-order/train.tsv", f"finetune classify word-order {RUN_TASK}"),
    "SQuAD": ("squad/train.json", f"finetune squad squad {RUN_TASK}"),
    "CoNLL": ("ner/train.txt", f"finetune ner ner {RUN_TASK}"),
    "texts to predict": ("lines.txt", "predict task FILE --output out.jsonl --device cpu"),
}


def limit(which: int, value: int) -> None:
    """Limit what this process may use."""
    resource.setrlimit(which, (value, value))


def _full_output() -> None:
    os.dup2(os.open("/dev/full", os.O_WRONLY), sys.stdout.fileno())


def _small_memory(num_bytes: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit(resource.RLIMIT_AS, pages * resource.getpagesize() + num_bytes)


def _other_user() -> None:
    if os.getuid() == 0:
        os.chmod(".", 0o777)
        os.setuid(65_534)


LONG = "x" * 300
PRETRAIN = command("pretrain", "out")
LIMITS: dict[str, tuple[str, Callable[[], None] | None]] = {
    "name too long": (command("ingest", LONG), None),
    "name of a source too long": (f"ingest {LONG} --output out", None),
    "unknown scheme": ("ingest ftp://host/x.txt --output out", None),
    "unknown scheme of an output": (command("vocab", "ftp://host/out"), None),
    "unreadable source": ("ingest closed --format text --output out --workers 1", _other_user),
    "unreadable data": ("predict task closed --output out.jsonl", _other_user),
    "unwritable output": (command("vocab", "/proc/out"), None),
    "output in a file": (command("vocab", "lines.txt/out"), None),
    "output is a file": (command("vocab", "lines.txt"), None),
    "FIFO as a source": ("ingest fifo --format text --output out", None),
    "FIFO as data": ("predict task fifo --output out.jsonl", None),
    "empty folder": ("ingest empty --output out", None),
    "missing documents": ("vocab nothing --output out", None),
    "folder as a file": ("predict task word-order --output out.jsonl", None),
    "huge batch": (f"{PRETRAIN} --batch-size 10000000", None),
    "huge model": (f"{PRETRAIN} --hidden-size 1000000 --num-heads 1", None),
    "full output of show": ("show instances", _full_output),
    "full output of results": ("results task", _full_output),
    "full output of evaluate": ("evaluate run instances --device cpu", _full_output),
    "full output of a stage": (command("vocab", "out"), _full_output),
    "little memory, ingest": (command("ingest", "out"), lambda: _small_memory(6 << 20)),
    "little memory, pretrain": (f"{PRETRAIN} --model small", lambda: _small_memory(24 << 20)),
    "few open files, pretrain": (PRETRAIN, lambda: limit(resource.RLIMIT_NOFILE, 8)),
}
