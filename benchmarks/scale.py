"""How ingest grows: bytes read in small, with limits as small, and what its planning functions give
up to 10 TB.

    python -m benchmarks.scale [--megabytes 100]

The first table runs ingest on made-up documents in this process, with all limits 128 times smaller
and at most 32 partitions, so that the largest corpus has many shards a partition, as one of a
terabyte has with the true limits. It counts the bytes that are read of temporary files, for each
byte of scattered documents.

The second table asks the planning functions themselves, with the true limits, on records of made-up
sizes. Planning is timed; memory is the peak of the process that plans. The text is taken to be as
large as the input, to compress to 0.4 bytes a byte, and the index of a temporary file to have 24
bytes for each of its batches.
"""

import argparse
import json
import random
import resource
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO, cast
from unittest import mock

import msgspec
import numpy as np
from clozeworks.pipeline import storage
from clozeworks.pipeline.config import IngestConfig, RunOptions
from clozeworks.pipeline.documents import gather, layout, scatter
from clozeworks.pipeline.documents.duplicates import DOCUMENTS_PER_UNIT, Deduplicated
from clozeworks.pipeline.documents.layout import choose_layout, plan_keys
from clozeworks.pipeline.documents.pipeline import ingest
from clozeworks.pipeline.documents.scatter import Scattered
from clozeworks.pipeline.documents.shard_plan import plan_shards
from clozeworks.pipeline.execution import temporary
from clozeworks.pipeline.execution.job import Unit
from clozeworks.pipeline.sources.formats import choose_range_bytes
from clozeworks.pipeline.sources.streams import InputRange
from rich.console import Console
from rich.table import Table

SMALLER = 128  # times, than the true limits
DOCUMENT_BYTES = 4000
INDEX_BYTES, STORED_SHARE = 24, 0.4
SIZES = (20e9, 200e9, 1e12, 10e12)


class CountingFile:
    """A binary file that counts what is read from it."""

    def __init__(self, file: BinaryIO, counts: Counter[str], kind: str) -> None:
        self._file, self._counts, self._kind = file, counts, kind

    def read(self, size: int = -1) -> bytes:
        content = self._file.read(size)
        self._counts[self._kind] += len(content)
        return content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "CountingFile":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


def measure(megabytes: float, work: Path) -> tuple[int, int, Counter[str], int]:
    """Run ingest on so much text; return its numbers of shards, the bytes read by kind, and those
    scattered.
    """
    source, output = work / "texts.jsonl", work / f"documents-{megabytes:g}"
    rng = random.Random(0)
    with source.open("w") as file:
        for number in range(round(megabytes * 1e6 / DOCUMENT_BYTES)):
            text = " ".join(
                f"Sentence {rng.randrange(10**9)} is here." for _ in range(DOCUMENT_BYTES // 28)
            )
            file.write(json.dumps({"id": number, "text": text}) + "\n")
    counts: Counter[str] = Counter()
    scattered = 0
    plain = storage.open_input

    def open_input(path: str) -> BinaryIO:
        kind = next(
            (
                kind
                for kind in ("documents", "keys", "left-out", "dealt")
                if "/.work/" in path and f"/{kind}/" in path
            ),
            "",
        )
        return cast(BinaryIO, CountingFile(plain(path), counts, kind)) if kind else plain(path)

    def plan_and_weigh(*arguments: Any) -> Any:
        nonlocal scattered
        files = output.glob(".work/*/documents/*")
        scattered = sum(path.stat().st_size for path in files)
        return plan_shards(*arguments)

    with (
        mock.patch.object(layout, "SHARD_TEXT_BYTES", layout.SHARD_TEXT_BYTES // SMALLER),
        mock.patch.object(layout, "PARTITION_INPUT_BYTES", layout.PARTITION_INPUT_BYTES // SMALLER),
        mock.patch.object(layout, "MAX_PARTITIONS", 32),
        mock.patch.object(layout, "MAX_KEY_PARTITIONS", 32),
        mock.patch.object(layout, "HUGE_PARTITIONS", 16),
        mock.patch.object(layout, "HUGE_INPUT_BYTES", 16 << 20),
        mock.patch.object(temporary, "CHUNK_BYTES", temporary.CHUNK_BYTES // SMALLER),
        mock.patch.object(scatter, "PART_TEXT_BYTES", scatter.PART_TEXT_BYTES // SMALLER),
        mock.patch.object(storage, "open_input", open_input),
        mock.patch.object(gather, "plan_shards", plan_and_weigh),
    ):
        manifest = ingest(
            [str(source)], str(output), IngestConfig(validation_share=0.02), RunOptions(workers=1)
        )
    shards = Counter(shard.split for shard in manifest.shards)
    return shards["train"], shards["validation"], counts, scattered


def print_measured(megabytes: float) -> None:
    table = Table(
        "text",
        "shards",
        "of validation",
        "documents",
        "dealt",
        "keys and others",
        "in all",
        title="bytes read per byte scattered",
    )
    with tempfile.TemporaryDirectory() as folder:
        for share in (1 / 64, 1 / 16, 1 / 4, 1):
            train, validation, counts, scattered = measure(megabytes * share, Path(folder))
            others = counts["keys"] + counts["left-out"]
            figures = [counts["documents"], counts["dealt"], others, counts.total()]
            shown = (f"{count / scattered:.2f}" for count in figures)
            table.add_row(f"{megabytes * share:.1f} MB", str(train), str(validation), *shown)
    Console().print(table)


def compute(num_bytes: int) -> list[str]:
    """Plan a corpus of this size from made-up records; return a row of the table."""
    rng = np.random.default_rng(0)
    config = IngestConfig()
    chosen = choose_layout(num_bytes, config)
    num_units = -(-num_bytes // choose_range_bytes(num_bytes))
    documents = num_bytes // DOCUMENT_BYTES
    text_a_unit = num_bytes * (1 - config.validation_share) / num_units / chosen.num_buckets
    counters: Any = {
        "counts": {"documents_read": documents // num_units},
        "bad": {},
        "examples": {},
    }
    record = Scattered(
        counters=counters,
        bucket_bytes=rng.normal(text_a_unit, text_a_unit / 10, chosen.num_buckets + 1)
        .astype(np.int64)
        .tobytes(),
        bucket_documents=np.full(chosen.num_buckets + 1, 9, np.uint32).tobytes(),
        documents=documents // num_units,
    )
    ranges = [InputRange(path="gs://a-bucket/dump.xml.bz2", name="dump", format="wikipedia")]
    unit = Unit("range-00000", cost=num_bytes // num_units, payload=ranges)
    encoded = msgspec.json.encode(record)
    begun = time.monotonic()
    scattered = [msgspec.json.decode(encoded, type=Scattered) for _ in range(num_units)]
    dedup = plan_keys("texts", documents, DOCUMENTS_PER_UNIT, chosen)
    left_out = Deduplicated(
        files=(),
        documents=documents // len(dedup),
        left_out=0,
        bucket_bytes=np.zeros(chosen.num_buckets + 1, np.int64).tobytes(),
        bucket_documents=np.zeros(chosen.num_buckets + 1, np.uint32).tobytes(),
        candidates=[],
    )
    units = plan_shards(scattered, [left_out] * len(dedup), None, chosen)
    seconds = time.monotonic() - begun
    reads = (
        sum(len(each.payload.partitions(chosen)) for each in units) / chosen.num_document_partitions
    )
    reads += max(len(each.payload.names()) > 1 for each in units)  # dealt out, and read again
    parts = max(1, num_bytes // num_units // scatter.PART_TEXT_BYTES)
    reads += (
        num_units
        * len(units)
        * parts
        * chosen.num_document_partitions
        * INDEX_BYTES
        / (STORED_SHARE * num_bytes)
    )
    opens = num_units * (len(dedup) + len(units)) + len(dedup) * len(units)
    plan_bytes = max(len(msgspec.json.encode(unit)) * num_units, len(msgspec.json.encode(units)))
    largest = max(len(each.payload.names()) for each in units)
    return [
        f"{num_bytes / 1e12:g} TB" if num_bytes >= 1e12 else f"{num_bytes / 1e9:g} GB",
        f"{num_units:,} + {len(dedup):,} + {len(units):,}",
        f"{units[0].payload.count:,} + {units[-1].payload.count:,}",
        f"{largest:,}",
        f"{opens / 1e6:,.2f} M",
        f"{reads:.2f}",
        f"{plan_bytes / 1e6:.1f} MB",
        f"{seconds:.1f} s",
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB",
    ]


def print_computed() -> None:
    table = Table(
        *(
            "text",
            "units: scatter, deduplicate, gather",
            "shards: train, validation",
            "shards a unit",
            "files opened",
        ),
        *("bytes read per byte scattered", "largest plan", "planning", "peak memory"),
        title="planned with the true limits",
    )
    for num_bytes in SIZES:
        table.add_row(*compute(int(num_bytes)))
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--megabytes", type=float, default=100)
    print_measured(parser.parse_args().megabytes)
    print_computed()


if __name__ == "__main__":
    main()
