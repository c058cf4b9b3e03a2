"""Load batches of instances beside `datasets` and MosaicML's `streaming`, in one thread.

    python -m benchmarks.loading INSTANCES

All load the same rows in padded batches, in CPU time. `datasets` is measured in its default form
and in its fastest: rows as Arrow, whose ids are padded and masked for a whole batch at once. Our
loaders mask, too; `streaming` only pads. A random order is drawn by each in its own way; "one order
on disk" was shuffled beforehand and is read as it lies there.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from clozeworks.model.pretraining import data
from clozeworks.model.pretraining.batches import make_batches
from clozeworks.model.pretraining.dataset import InstanceDataset, collate
from clozeworks.model.pretraining.sequence import RowSequence
from datasets import __version__ as datasets_version
from datasets import load_dataset
from datasets.utils.logging import disable_progress_bar
from torch.utils.data import DataLoader
from transformers import AutoTokenizer, DataCollatorForLanguageModeling

from .peers import print_figure, run_peer

BATCH_ROWS = 256
NUM_ROWS = 100_000
SLOW_ROWS = 20_000
"""For the loaders that take Python objects of each row."""


def main(path: str) -> None:
    disable_progress_bar()
    directory = data.open_instances(path)
    ours = own_rate(directory)
    public = public_rate(directory)
    peer = f"`datasets` {datasets_version}"
    with TemporaryDirectory() as cache:
        source = f"{directory.path}/train-*.parquet"
        rows: Any = load_dataset(
            "parquet", data_files=source, split="train", columns=["input_ids"], cache_dir=cache
        )
        shuffled = rows.shuffle(seed=0)
        default = DataLoader(
            shuffled,
            batch_size=BATCH_ROWS,
            collate_fn=DataCollatorForLanguageModeling(AutoTokenizer.from_pretrained(path)),
        )
        rates = {
            f"{peer}, default format, `DataCollatorForLanguageModeling`": rate_of(
                iter(default), SLOW_ROWS
            ),
            f"{peer}, Arrow format, own collator": rate_of(arrow_batches(shuffled), NUM_ROWS),
            f"{peer}, the same in one order on disk": rate_of(
                arrow_batches(shuffled.flatten_indices()), NUM_ROWS
            ),
        }
        rates |= streaming_rate(directory, Path(cache))
    for name, rate in rates.items():
        print_figure(
            "load batches, one thread",
            f"{ours:,.0f} rows/s (`InstanceDataset` {public:,.0f})",
            name,
            f"{rate:,.0f}",
            ours / rate,
        )


def own_rate(directory: data.InstanceDirectory) -> float:
    """Return the rows a second that `pretrain` loads."""
    sequence = RowSequence(directory, 0)
    started = time.process_time()
    for first in range(0, NUM_ROWS, BATCH_ROWS):
        make_batches(sequence.rows(first, first + BATCH_ROWS), BATCH_ROWS)
    return NUM_ROWS / (time.process_time() - started)


def public_rate(directory: data.InstanceDirectory) -> float:
    """Return the rows a second of a `DataLoader` over the public data set."""
    dataset = InstanceDataset(directory.path, batch_size=BATCH_ROWS, seed=0)
    batches = DataLoader(dataset, batch_size=BATCH_ROWS, collate_fn=collate)
    return rate_of(iter(batches), NUM_ROWS)


def arrow_batches(rows: Any) -> Iterator[dict[str, torch.Tensor]]:
    """Yield masked, padded batches that are made of Arrow's buffers."""
    rng = np.random.default_rng(0)
    for table in rows.with_format("arrow").iter(BATCH_ROWS):
        column = table["input_ids"].combine_chunks()
        lengths = np.diff(column.offsets.to_numpy())
        width = np.arange(lengths.max())
        ids = np.zeros((len(lengths), len(width)), np.int64)
        ids[width < lengths[:, None]] = column.flatten().to_numpy()
        chosen = (rng.random(ids.shape) < 0.15) & (width > 0) & (width < lengths[:, None] - 1)
        labels = np.where(chosen, ids, -100)
        kind = rng.random(ids.shape)
        ids[chosen & (kind < 0.8)] = 4
        random = chosen & (kind >= 0.9)
        ids[random] = rng.integers(5, 30_000, random.sum())
        yield {"input_ids": torch.from_numpy(ids), "labels": torch.from_numpy(labels)}


def streaming_rate(directory: data.InstanceDirectory, work: Path) -> dict[str, float]:
    """Return the rows a second of MosaicML's `streaming`, by its name."""
    paths = sorted(Path(directory.path).glob("train-*.parquet"))
    tables = [pq.read_table(path, columns=["input_ids"]) for path in paths]
    ids = pa.concat_tables(tables)["input_ids"].slice(0, NUM_ROWS).combine_chunks()
    np.savez(
        work / "rows.npz",
        ids=ids.flatten().to_numpy(),
        lengths=np.diff(ids.offsets.to_numpy()),
    )
    rates = run_peer("streaming", "stream_rows", work / "rows.npz", work / "mds", BATCH_ROWS)
    return {f"{name}, MDS, shuffled, not masked": rate for name, rate in rates.items()}


def rate_of(batches: Iterator[Any], most_rows: int) -> float:
    """Return the rows a second of CPU time, but for the first batch, which opens the files."""
    next(batches)
    started, num_rows = time.process_time(), 0
    while num_rows < most_rows and (batch := next(batches, None)):
        num_rows += len(batch["input_ids"])
    return num_rows / (time.process_time() - started)


if __name__ == "__main__":
    main(*sys.argv[1:])
