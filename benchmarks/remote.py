"""Object stores beside a local disk: `ingest`, and how long training waits for instances on S3.

    python -m benchmarks.remote SOURCE INSTANCES [--delay-ms 20] [--rows-per-second 4000]
        [--block-rows 8192]

The store is moto's S3 server on this machine. For the loader each of its answers is delayed, and
the model is replaced by a sleep: 4,000 rows a second of 128 tokens are about what a base model
trains on one H200. Blocks are smaller than in training, so that there are several in a short time.
The first batch, which nothing can hide, is reported by itself.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from clozeworks.model.pretraining import sequence
from clozeworks.model.pretraining.data import open_instances
from clozeworks.model.training.prefetch import prefetch
from clozeworks.pipeline import storage
from clozeworks.pipeline.config import IngestConfig, RunOptions
from clozeworks.pipeline.documents.pipeline import ingest
from rich.console import Console
from rich.table import Column, Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "fixtures"))

from object_stores import object_store

BATCH_ROWS = 256
NUM_BLOCKS = 8


class Loading(NamedTuple):
    """Seconds that a consumer of batches waited."""

    first_s: float
    later_s: float
    total_s: float


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source")
    parser.add_argument("instances")
    parser.add_argument("--delay-ms", type=float, default=20.0)
    parser.add_argument("--rows-per-second", type=float, default=4000.0)
    parser.add_argument("--block-rows", type=int, default=8192)
    arguments = parser.parse_args()
    sequence.BLOCK_ROWS = arguments.block_rows
    table = Table("", *(Column(name, justify="right") for name in ("local", "S3")))
    with tempfile.TemporaryDirectory() as folder:
        local_s = time_ingest(arguments.source, folder)
        with object_store("s3") as bucket:
            remote_s = time_ingest(copy(arguments.source, f"{bucket}/source"), bucket)
    table.add_row("ingest", f"{local_s:.1f} s", f"{remote_s:.1f} s")
    local = load(arguments.instances, arguments.rows_per_second)
    with object_store("s3", arguments.delay_ms / 1000) as bucket:
        remote = load(copy(arguments.instances, f"{bucket}/instances"), arguments.rows_per_second)
    table.add_row("first batch", f"{local.first_s:.2f} s", f"{remote.first_s:.2f} s")
    table.add_row(
        "data wait afterwards", *(f"{each.later_s / each.total_s:.2%}" for each in (local, remote))
    )
    Console().print(table)


def copy(source: str, target: str) -> str:
    for path in storage.find_files(source):
        storage.upload(
            path, storage.join(target, path.removeprefix(source).strip("/") or Path(path).name)
        )
    return target


def time_ingest(source: str, folder: str) -> float:
    start = time.perf_counter()
    ingest([source], f"{folder}/documents", IngestConfig(), RunOptions(workers=1))
    return time.perf_counter() - start


def load(instances: str, rows_per_second: float) -> Loading:
    """Take the batches of `NUM_BLOCKS` blocks at the pace of a model."""
    rows = sequence.RowSequence(open_instances(instances), seed=1)
    steps = range(NUM_BLOCKS * sequence.BLOCK_ROWS // BATCH_ROWS)
    batches = prefetch(lambda step: rows.rows(step * BATCH_ROWS, (step + 1) * BATCH_ROWS), steps)
    waits = []
    start = time.perf_counter()
    for _ in steps:
        before = time.perf_counter()
        next(batches)
        waits.append(time.perf_counter() - before)
        time.sleep(BATCH_ROWS / rows_per_second)
    return Loading(waits[0], sum(waits[1:]), time.perf_counter() - start)


if __name__ == "__main__":
    main()
