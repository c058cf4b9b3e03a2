"""Stage 4: measure instances against what was asked, from their files alone."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from . import storage
from .config import BuildConfig
from .errors import UserError
from .measures import MAX_ROW_HASHES, Measures, read_rows
from .vocabulary import Vocabulary

# From so many rows on, the share of IsNext must be exact; below, chance is allowed for.
ROWS_FOR_EXACT = 10_000
IS_NEXT_TOLERANCE = 0.005
LENGTH_AUC_TOLERANCE, PART_AUC_TOLERANCE = 0.02, 0.05
MAX_CUT_SHARE = 0.005
MAX_REPEATED_SHARE = 0.01
# Whole words leave some of the budget unused; more than this is a fault.
MIN_WHOLE_WORD_BUDGET = 0.9
# Deviations are judged at 4 standard errors: one false alarm in 16,000 checks; intervals shown are of 95 %.
Z_JUDGED, Z_SHOWN = 4.0, 1.96
NUM_TOP_TOKENS = 30

Verdict = Literal["ok", "bad", "info"]


@dataclass(frozen=True)
class Check:
    """One line of the audit: what was `measured` and `asked`, for people, and the plain `value` and 95 % `interval`."""

    name: str
    measured: str
    asked: str
    verdict: Verdict
    value: float
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Audit:
    """All checks, and the histograms behind the report.

    `lengths` counts rows by length in tokens, by label (2 lists); `mask_positions` masked tokens by position in the
    row; `top_masked` the most often masked tokens with their counts.
    """

    config: dict[str, Any]
    checks: list[Check]
    lengths: list[list[int]]
    mask_positions: list[int]
    top_masked: list[tuple[str, int]]

    @property
    def failed(self) -> list[Check]:
        """The checks that are out of tolerance."""
        return [check for check in self.checks if check.verdict == "bad"]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**asdict(self), "ok": not self.failed}


def audit_instances(directory: str, manifest: Mapping[str, Any], vocabulary: Vocabulary) -> Audit:
    """Measure the shards that `manifest` lists in `directory`, a row group at a time.

    Raises `UserError` for a shard that is missing, cut off or not of the instances' schema.
    """
    names = {field.name for field in fields(BuildConfig)}
    asked = {name: value for name, value in manifest["config"].items() if name in names}
    config = BuildConfig(**{**asked, "mask_split": tuple(asked["mask_split"])})
    measures = Measures(vocabulary, config)
    num_rows = sum(shard["rows"] for shard in manifest["shards"])
    measures.hash_share = min(1.0, MAX_ROW_HASHES / max(num_rows, 1))
    for shard in manifest["shards"]:
        for table in _row_groups(storage.join(directory, shard["name"])):
            measures.add(shard["name"], read_rows(table))
    return judge(measures, manifest)


def _row_groups(path: str) -> Iterator[pa.Table]:
    try:
        with storage.open_input(path) as source, pq.ParquetFile(source) as file:
            for index in range(file.num_row_groups):
                yield file.read_row_group(index, use_threads=False)
    except (OSError, pa.ArrowInvalid) as error:
        raise UserError(f"{path} cannot be read, build the instances again: {error}") from error
