"""Find near-duplicates of a table's texts by datatrove's four steps of MinHash, one process.

python minhash.py PARQUET FOLDER
"""

import sys
from pathlib import Path

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import (
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupFilter,
    MinhashDedupSignature,
)
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.pipeline.readers import ParquetReader
from datatrove.pipeline.writers import ParquetWriter

parquet, folder = map(Path, sys.argv[1:])
config = MinhashConfig()
signatures, buckets, removed = (str(folder / name) for name in ("signatures", "buckets", "removed"))
reader = ParquetReader(str(parquet.parent), glob_pattern=parquet.name)
steps = (
    ([reader, MinhashDedupSignature(signatures, config=config)], 1),
    ([MinhashDedupBuckets(signatures, buckets, config=config)], config.num_buckets),
    ([MinhashDedupCluster(buckets, removed, config=config)], 1),
    ([reader, MinhashDedupFilter(removed), ParquetWriter(str(folder / "kept"))], 1),
)
for number, (pipeline, tasks) in enumerate(steps):
    LocalPipelineExecutor(
        pipeline, tasks=tasks, workers=1, logging_dir=str(folder / f"logs-{number}")
    ).run()
