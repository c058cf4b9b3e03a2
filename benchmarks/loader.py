"""Load shuffled, padded batches of the same rows: `pretrain`'s loader and `InstanceDataset`, beside
`datasets` and MosaicML's `streaming`.

One process, CPU time, without the first batch, which opens the files. All make tensors of ids,
labels and an attention mask, from masks that are drawn already.
"""

import logging
import time
from collections.abc import Iterator
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from clozeworks.model.pretraining import data
from clozeworks.model.pretraining.batches import make_batches
from clozeworks.model.pretraining.dataset import InstanceDataset, collate
from clozeworks.model.pretraining.sequence import RowSequence
from torch.utils.data import DataLoader

from .environments import run_script
from .inputs import Inputs
from .table import Row, peer_row

BATCH_ROWS = 256
EPOCHS = 4
COLUMNS = ["input_ids", "masked_lm_positions", "masked_lm_ids"]


def rows(inputs: Inputs) -> Iterator[Row]:
    directory = data.open_instances(str(inputs.instances))
    num_rows = EPOCHS * directory.num_rows
    # Three times in turn, and the fastest counts.
    rates: dict[str, list[float]] = {}
    shuffled = shuffled_rows(inputs)
    on_disk = shuffled.flatten_indices()
    for _ in range(3):
        for name, batches in (
            ("pretrain", own_batches(directory, num_rows)),
            ("InstanceDataset", public_batches(directory)),
            ("shuffled", arrow_batches(shuffled)),
            ("one fixed order on disk", arrow_batches(on_disk)),
        ):
            rates.setdefault(name, []).append(rate_of(batches))
    fastest = {name: max(values) for name, values in rates.items()}
    archive = inputs.work / "rows.npz"
    write_rows(inputs, archive)
    folder = inputs.work / "mds"
    streamed = run_script(inputs.peers, "streaming", "stream", archive, folder, BATCH_ROWS)
    for ours in ("pretrain", "InstanceDataset"):
        what = f"load batches, `{ours}`"
        for setting in ("shuffled", "one fixed order on disk"):
            peer = f'`datasets` {datasets.__version__}, `with_format("arrow")`, {setting}'
            beside = "`datasets`" if setting == "shuffled" else f"`datasets` in {setting}"
            yield Row(f"{what}, beside {beside}", fastest[ours], peer, fastest[setting], "rows/s")
        name = "MosaicML `streaming`"
        setting = "`StreamingDataLoader`, shuffled"
        yield peer_row(f"{what}, beside {name}", fastest[ours], name, setting, streamed, "rows/s")


def rate_of(batches: Iterator[Any]) -> float:
    """Return the rows a second of CPU time."""
    next(batches)
    started = time.process_time()
    num_rows = sum(len(batch["input_ids"]) for batch in batches)
    return num_rows / (time.process_time() - started)


def own_batches(directory: data.InstanceDirectory, num_rows: int) -> Iterator[Any]:
    sequence = RowSequence(directory, 0)
    for first in range(0, num_rows, BATCH_ROWS):
        for batch in make_batches(sequence.rows(first, first + BATCH_ROWS), BATCH_ROWS):
            yield batch._asdict()


def public_batches(directory: data.InstanceDirectory) -> Iterator[Any]:
    dataset = InstanceDataset(directory.path, batch_size=BATCH_ROWS, seed=0, epochs=EPOCHS)
    return iter(DataLoader(dataset, batch_size=BATCH_ROWS, collate_fn=collate))


def shuffled_rows(inputs: Inputs) -> datasets.Dataset:
    datasets.disable_progress_bars()
    logging.getLogger("datasets").setLevel(logging.ERROR)
    files = f"{inputs.instances}/train-*.parquet"
    rows = datasets.load_dataset(
        "parquet",
        data_files=files,
        split="train",
        columns=COLUMNS,
        cache_dir=str(inputs.work / "datasets"),
    )
    assert isinstance(rows, datasets.Dataset)
    return rows.shuffle(seed=0)


def arrow_batches(rows: datasets.Dataset) -> Iterator[Any]:
    for _ in range(EPOCHS):
        for table in rows.with_format("arrow").iter(BATCH_ROWS):
            yield collate_arrow(table)


def collate_arrow(table: pa.Table) -> dict[str, torch.Tensor]:
    """Pad a batch without a loop over its rows, as a careful user of `datasets` would."""
    ids, positions, masked_ids = (table[name].combine_chunks() for name in COLUMNS)
    lengths = np.diff(ids.offsets)
    mask = np.arange(lengths.max()) < lengths[:, None]
    padded = np.zeros(mask.shape, np.int64)
    padded[mask] = ids.flatten()
    labels = np.full(mask.shape, -100)
    owners = np.repeat(np.arange(len(lengths)), np.diff(positions.offsets))
    labels[owners, positions.flatten()] = masked_ids.flatten()
    arrays = {"input_ids": padded, "labels": labels, "attention_mask": mask}
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def write_rows(inputs: Inputs, path: Any) -> None:
    """Write the rows as arrays, for an environment without PyArrow."""
    shards = sorted(inputs.instances.glob("train-*.parquet"))
    table = pa.concat_tables([pq.read_table(shard, columns=COLUMNS) for shard in shards])
    arrays = {}
    for name in COLUMNS:
        column = table[name].combine_chunks()
        arrays[name] = column.flatten().to_numpy()
        arrays[f"{name}_offsets"] = column.offsets.to_numpy()
    np.savez(path, **arrays)
