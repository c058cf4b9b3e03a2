"""Load shuffled rows by MosaicML's `StreamingDataset`, whose documentation names its format MDS and
a `DataLoader` as the fastest way.

    stream_rows.py ROWS.npz FOLDER BATCH_ROWS

ROWS.npz holds the ids of all rows and their lengths; prints the rows a second of CPU time.
"""

import json
import sys
import time
from importlib.metadata import version

import numpy as np
import torch
from streaming import MDSWriter, StreamingDataset
from torch.utils.data import DataLoader


def main(path: str, folder: str, batch_rows: str) -> None:
    size = int(batch_rows)
    with np.load(path) as archive:
        ids, lengths = archive["ids"], archive["lengths"]
    with MDSWriter(out=folder, columns={"ids": "ndarray:int32"}) as writer:
        for row in np.split(ids, np.cumsum(lengths)[:-1]):
            writer.write({"ids": row.astype(np.int32)})
    rows = StreamingDataset(local=folder, shuffle=True, batch_size=size)
    batches = iter(DataLoader(rows, batch_size=size, collate_fn=pad))
    next(batches)  # opens the files
    begin, num_rows = time.process_time(), 0
    for batch in batches:
        num_rows += len(batch)
    rate = num_rows / (time.process_time() - begin)
    print(json.dumps({f"mosaicml-streaming {version('mosaicml-streaming')}": rate}))


def pad(rows: list[dict[str, np.ndarray]]) -> torch.Tensor:
    lengths = np.array([len(row["ids"]) for row in rows])
    batch = np.zeros((len(rows), lengths.max()), np.int64)
    batch[np.arange(lengths.max()) < lengths[:, None]] = np.concatenate([r["ids"] for r in rows])
    return torch.from_numpy(batch)


if __name__ == "__main__":
    main(*sys.argv[1:])
