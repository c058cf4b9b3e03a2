"""Load shuffled, padded batches of the rows of an .npz by MosaicML's `streaming`, one process.

python stream.py ROWS FOLDER BATCH_ROWS
"""

import json
import sys
import time
from importlib.metadata import version

import numpy as np
import torch
from streaming import MDSWriter, StreamingDataLoader, StreamingDataset

COLUMNS = ("input_ids", "masked_lm_positions", "masked_lm_ids")


def write(rows: str, folder: str) -> None:
    with np.load(rows) as archive:
        columns = [
            np.split(archive[name], archive[f"{name}_offsets"][1:-1].tolist()) for name in COLUMNS
        ]
    types = {
        name: f"ndarray:{values[0].dtype}" for name, values in zip(COLUMNS, columns, strict=True)
    }
    with MDSWriter(out=folder, columns=types) as writer:
        for values in zip(*columns, strict=True):
            writer.write(dict(zip(COLUMNS, values, strict=True)))


def collate(rows: list[dict[str, np.ndarray]]) -> dict[str, torch.Tensor]:
    lengths = np.array([len(row["input_ids"]) for row in rows])
    mask = np.arange(lengths.max()) < lengths[:, None]
    ids = np.zeros(mask.shape, np.int64)
    ids[mask] = np.concatenate([row["input_ids"] for row in rows])
    labels = np.full(mask.shape, -100)
    counts = [len(row["masked_lm_ids"]) for row in rows]
    owners = np.repeat(np.arange(len(rows)), counts)
    positions = np.concatenate([row["masked_lm_positions"] for row in rows])
    labels[owners, positions] = np.concatenate([row["masked_lm_ids"] for row in rows])
    arrays = {"input_ids": ids, "labels": labels, "attention_mask": mask}
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def main(rows: str, folder: str, batch_rows: str) -> None:
    write(rows, folder)
    size = int(batch_rows)
    dataset = StreamingDataset(local=folder, shuffle=True, batch_size=size)
    batches = iter(StreamingDataLoader(dataset, batch_size=size, collate_fn=collate))
    next(batches)  # opens the files and draws the order
    begin = time.process_time()
    num_rows = sum(len(batch["input_ids"]) for batch in batches)
    rate = num_rows / (time.process_time() - begin)
    print(json.dumps({"version": version("mosaicml-streaming"), "figure": rate}))


if __name__ == "__main__":
    main(*sys.argv[1:])
