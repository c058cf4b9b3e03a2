"""Near-duplicates by datatrove's MinHash with its own settings (14 buckets of 8 hashes).

    datatrove_minhash.py PARQUET FOLDER

Prints the documents that stay of a file with columns ``id`` and ``text``.
"""

import json
import sys
from collections.abc import Iterator
from importlib.metadata import version

import pyarrow.parquet as pq
from datatrove.data import Document
from datatrove.pipeline.dedup import (
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupFilter,
    MinhashDedupSignature,
)
from datatrove.pipeline.dedup.minhash import MinhashConfig


def main(path: str, folder: str) -> None:
    config = MinhashConfig(num_buckets=14, hashes_per_bucket=8)
    signatures, buckets, removed = (f"{folder}/{name}" for name in ("s", "b", "r"))
    MinhashDedupSignature(output_folder=signatures, config=config)(documents(path), 0, 1)
    for bucket in range(config.num_buckets):
        find = MinhashDedupBuckets(input_folder=signatures, output_folder=buckets, config=config)
        find(None, bucket, config.num_buckets)
    MinhashDedupCluster(input_folder=buckets, output_folder=removed, config=config)(None, 0, 1)
    kept = MinhashDedupFilter(input_folder=removed)(documents(path), 0, 1)
    print(json.dumps({f"datatrove {version('datatrove')}": sum(1 for _ in kept)}))


def documents(path: str) -> Iterator[Document]:
    for batch in pq.ParquetFile(path).iter_batches(columns=["id", "text"]):
        for row in batch.to_pylist():
            yield Document(text=row["text"], id=str(row["id"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
