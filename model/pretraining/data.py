"""Read instances from Parquet, a row group at a time.

A row group becomes `rows`; `sequence` decides in which order rows are read, and `batches` makes
tensors of them.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...pipeline import storage
from ...pipeline.config import BuildConfig
from ...pipeline.errors import RunError, UserError
from ...pipeline.instances.masking import mask_rows, mask_sequences, positions_in
from ...pipeline.instances.rows import (
    Rows,
    are_misdivided,
    are_outside,
    check_rows,
    concatenate,
    rows_of,
    sequences,
)
from ...pipeline.manifests import InstancesManifest, InstancesShard
from ...pipeline.schemas import SEQUENCE_STARTS, instances_schema
from ...pipeline.storage.shards import checked, first_sentence
from ...pipeline.storage.state import read_manifest
from ...pipeline.vocabulary.files import vocabulary_of_instances
from ...pipeline.vocabulary.vocabulary import Vocabulary

COLUMNS = [
    "input_ids",
    "segment_b_start",
    "masked_lm_positions",
    "masked_lm_ids",
    "next_sentence_label",
]
PACKED_COLUMNS = ["input_ids", SEQUENCE_STARTS, "masked_lm_positions", "masked_lm_ids"]
# Requests under way at once, as an object store answers each after tens of milliseconds.
NUM_READERS = 8
REBUILD = "rebuild the instances with `overwrite`"


class RowGroup(NamedTuple):
    """One row group of one shard: the unit that is read at once."""

    shard: str
    number: int
    first_row: int
    num_rows: int
    num_tokens: int
    """Including special tokens; rows are stored without padding."""
    version: str = ""
    """The shard's, as `storage.version_of` tells it."""


@dataclass(frozen=True)
class InstanceDirectory:
    """One split of a directory of instances, as its manifest and footers describe it."""

    path: str
    row_groups: tuple[RowGroup, ...]
    manifest: InstancesManifest

    @property
    def max_length(self) -> int:
        """The most tokens that a row may have."""
        return self.manifest.config.max_length

    @property
    def is_packed(self) -> bool:
        """Whether rows hold several documents, each a sequence of its own."""
        return self.manifest.config.packs

    @cached_property
    def num_rows(self) -> int:
        """Number of rows of the split."""
        return sum(group.num_rows for group in self.row_groups)

    @cached_property
    def mean_length(self) -> float:
        """Mean number of tokens in a row, without padding."""
        return sum(group.num_tokens for group in self.row_groups) / self.num_rows

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the token ids."""
        return vocabulary_of_instances(self.path, self.manifest.tokenizer.fingerprint)

    @property
    def has_pairs(self) -> bool:
        """Whether rows are sentence pairs with a next-sentence label."""
        return self.manifest.config.pairing != "none"


def open_instances(path: str, split: str = "train") -> InstanceDirectory:
    """Read the manifest and the footers of the shards of `split` in a local or remote folder."""
    path = str(path).rstrip("/")
    manifest = read_manifest(path, InstancesManifest)
    splits = sorted({shard.split for shard in manifest.shards})
    if split not in splits:
        raise UserError(f"{path} has no split {split}, only {' and '.join(splits)}.")
    shards = [shard for shard in manifest.shards if shard.split == split]
    shards.sort(key=lambda shard: shard.name)
    groups: list[RowGroup] = []
    with ThreadPoolExecutor(NUM_READERS) as pool:
        columns = PACKED_COLUMNS if manifest.config.packs else COLUMNS
        for shard_groups in pool.map(lambda shard: _row_groups(path, shard, columns), shards):
            groups.extend(shard_groups)
    if not any(group.num_rows for group in groups):
        raise UserError(
            f"{path} has no {split} rows; give a directory written by `clozeworks build`."
        )
    return InstanceDirectory(path, tuple(groups), manifest)


def _row_groups(path: str, shard: InstancesShard, wanted: Sequence[str]) -> list[RowGroup]:
    try:
        with storage.open_input(f"{path}/{shard.name}") as file:
            version = storage.version_of(file)
            footer = pq.read_metadata(file)
            # A list's values lie in a column such as input_ids.list.element.
            columns = [
                footer.schema.column(index).path.partition(".")[0]
                for index in range(footer.num_columns)
            ]
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = first_sentence(error)
        raise UserError(f"{path}/{shard.name} is damaged ({reason}); {REBUILD}.") from None
    for name in wanted:
        if name not in columns:
            raise UserError(f"{path}/{shard.name} has no column {name!r}; {REBUILD}.")
    ids_column = columns.index("input_ids")
    groups = []
    first_row = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        row_group = RowGroup(
            shard=shard.name,
            number=number,
            first_row=first_row,
            num_rows=group.num_rows,
            num_tokens=group.column(ids_column).num_values,
            version=version,
        )
        groups.append(row_group)
        first_row += group.num_rows
    if not footer.num_rows == first_row == shard.rows:
        raise UserError(
            f"{path}/{shard.name} has {first_row:,} rows, but manifest.json records "
            f"{shard.rows:,}; {REBUILD}."
        )
    return groups


def read_group(directory: InstanceDirectory, group: RowGroup) -> Rows:
    """Read one row group; raises `UserError` if it is damaged or does not match the directory."""
    path = f"{directory.path}/{group.shard}"
    try:
        with storage.open_input(path) as file:
            if storage.version_of(file) != group.version:
                raise RunError(
                    f"{path} has been written anew since the run began: instances must stay as "
                    "they are while they are read. Rerun the same command."
                )
            # With `pre_buffer` all columns of the group come in one request (see `open_shard`).
            parquet = pq.ParquetFile(
                file,
                pre_buffer=storage.is_remote(path),
                page_checksum_verification=True,
            )
            # One thread: a row group decodes in milliseconds, and the other cores are the model's.
            columns = PACKED_COLUMNS if directory.is_packed else COLUMNS
            table = parquet.read_row_group(group.number, columns=columns, use_threads=False)
    except FileNotFoundError:
        raise UserError(
            f"{path} has disappeared; {REBUILD}, then rerun the same command."
        ) from None
    except (pa.ArrowException, OSError) as error:
        raise UserError(
            f"{path} cannot be read at row {group.first_row} ({first_sentence(error)}); {REBUILD}."
        ) from None
    try:
        vocab_size = directory.manifest.tokenizer.size
        whole_schema = instances_schema(vocab_size, packed=directory.is_packed)
        schema = pa.schema([whole_schema.field(name) for name in columns])
        rows = rows_of(checked(table.to_batches(), schema))
        if len(rows) != group.num_rows:
            raise ValueError(f"{len(rows):,} of {group.num_rows:,} rows are left")
        check_rows(rows, vocab_size)
        # Without these checks a bad row would be an index error inside a kernel; on a GPU one that
        # names no line.
        if rows.lengths.min(initial=3) < 3:
            raise ValueError("a row is shorter than [CLS] and [SEP] around a token")
        longest = int(rows.lengths.max(initial=0))
        if longest > directory.max_length:
            raise ValueError(
                f"a row has {longest} tokens, but its `max_length` is {directory.max_length}"
            )
        if rows.next_sentence_label.max(initial=0) > 1:
            raise ValueError("it contains a next-sentence label other than 0 and 1")
        if are_misdivided(rows).any():
            raise ValueError("column segment_b_start: a value lies outside of its row")
        if are_outside(rows).any():
            raise ValueError("it masks a position beyond the end of its row")
        if (np.diff(rows.masked_index) <= 0).any():
            raise ValueError("column masked_lm_positions: they do not ascend")
    except ValueError as error:
        raise UserError(f"{path}: {error}; {REBUILD}.") from None
    return rows


def mask_anew(
    rows: Rows,
    vocabulary: Vocabulary,
    config: BuildConfig,
    rng: np.random.Generator,
    mask_rates: np.ndarray | None = None,
) -> Rows:
    """Return `rows` with newly drawn tokens to predict, at `mask_rates` [num_rows] if given."""
    ids = rows.unmasked_ids()
    # Both maskers mask `ids` in place.
    if rows.num_sequences is None:
        segment_b_start = rows.segment_b_start.astype(np.int64)
        chosen, originals = mask_rows(
            ids, rows.offsets, segment_b_start, vocabulary, config, rng, mask_rates
        )
    else:
        if mask_rates is not None:
            mask_rates = np.repeat(mask_rates, rows.num_sequences)
        chosen, originals = mask_sequences(
            ids, sequences(rows).offsets, vocabulary, config, rng, mask_rates
        )
    positions, mask_offsets = positions_in(rows.offsets, chosen)
    return replace(
        rows,
        input_ids=ids,
        masked_positions=positions,
        masked_ids=originals,
        num_masked=np.diff(mask_offsets),
    )


def read_split(directory: InstanceDirectory) -> Rows:
    """Read all rows of a split into memory, in the order of its files; meant for validation."""
    return concatenate([read_group(directory, group) for group in directory.row_groups])
