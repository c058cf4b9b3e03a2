"""Instances from Parquet to tensors (in which order: see `sequence`).

Everything is columnar: a row group becomes flat NumPy arrays, and a batch is made by arithmetic on their offsets.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, BinaryIO, NamedTuple, cast

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from ...pipeline.errors import UserError
from ...pipeline.manifests import InstancesManifest, parse_manifest

COLUMNS = ["input_ids", "segment_b_start", "masked_lm_positions", "masked_lm_ids", "next_sentence_label"]
NOTES = (b"clozeworks.max_length", b"clozeworks.vocab_size", b"clozeworks.tokenizer")


class RowGroup(NamedTuple):
    """One row group of one shard."""

    shard: str
    number: int
    first_row: int
    num_rows: int
    num_tokens: int
    """Special tokens counted, padding not: there is none in the files."""
    duplicate: int | None
    """Which pass over the documents its rows belong to; None where the footer does not tell."""


@dataclass(frozen=True)
class InstanceDirectory:
    """What is known of one split of a directory of instances before any row is read."""

    path: str
    row_groups: tuple[RowGroup, ...]
    max_length: int
    vocab_size: int
    tokenizer: str
    """Fingerprint of the tokenizer that made the token ids."""
    manifest: InstancesManifest

    @cached_property
    def num_rows(self) -> int:
        """Number of rows of the split."""
        return sum(group.num_rows for group in self.row_groups)

    @cached_property
    def mean_length(self) -> float:
        """Mean number of tokens in a row, without padding."""
        return sum(group.num_tokens for group in self.row_groups) / self.num_rows

    @property
    def has_pairs(self) -> bool:
        """Return whether the rows have next-sentence labels."""
        return self.manifest.config.pairing != "none"


@dataclass(frozen=True)
class Rows:
    """Columns of some instances; the items of list columns lie flat, row after row."""

    input_ids: np.ndarray
    offsets: np.ndarray
    """int64 (rows + 1): where each row begins in `input_ids`."""
    masked_positions: np.ndarray
    masked_ids: np.ndarray
    masked_offsets: np.ndarray
    """int64 (rows + 1): where each row begins in the two columns above."""
    segment_b_start: np.ndarray
    next_sentence_label: np.ndarray

    def __len__(self) -> int:
        return len(self.segment_b_start)

    @cached_property
    def lengths(self) -> np.ndarray:
        """Tokens in each row, int64."""
        return np.diff(self.offsets)

    @cached_property
    def num_masked(self) -> np.ndarray:
        """Tokens to predict in each row, int64."""
        return np.diff(self.masked_offsets)

    def unmasked_ids(self) -> np.ndarray:
        """Return `input_ids` with the original tokens put back."""
        restored = self.input_ids.copy()
        restored[np.repeat(self.offsets[:-1], self.num_masked) + self.masked_positions] = self.masked_ids
        return restored


class Batch(NamedTuple):
    """The arguments of ``BertForPreTraining.forward``, in their order."""

    input_ids_BL: Tensor
    token_type_ids_BL: Tensor
    attention_mask_BL: Tensor | None
    token_index_T: Tensor | None
    masked_index_M: Tensor
    masked_ids_M: Tensor
    next_sentence_label_B: Tensor | None

    def pin(self) -> "Batch":
        """Copy the batch to pinned memory, from where a GPU fetches it without waiting."""
        return Batch(*cast(Any, (None if x is None else x.pin_memory() for x in self)))

    def to(self, device: torch.device) -> "Batch":
        """Copy the batch to `device`."""
        return Batch(*cast(Any, (None if x is None else x.to(device, non_blocking=True) for x in self)))


def open_instances(path: str, split: str = "train") -> InstanceDirectory:
    """Read the manifest and the footers of the shards of `split` in `path`, a folder or any fsspec URL.

    Raises `UserError` where the directory is unfinished, a shard is missing or cut off, or the split is empty.
    """
    path = str(path).rstrip("/")
    manifest = _read_manifest(path)
    names = sorted(shard.name for shard in manifest.shards if shard.split == split)
    with ThreadPoolExecutor(8) as pool:
        footers = list(pool.map(_read_footer, (f"{path}/{name}" for name in names)))
    notes = {name: _notes(footer, f"{path}/{name}") for name, footer in zip(names, footers, strict=True)}
    groups = tuple(group for name, footer in zip(names, footers, strict=True) for group in _row_groups(name, footer))
    if not any(group.num_rows for group in groups):
        raise UserError(f"{path} has no {split} rows; give a directory that `clozeworks build` wrote.")
    if len(set(notes.values())) > 1:
        odd = next(name for name in names if notes[name] != notes[names[0]])
        raise UserError(f"{odd} and {names[0]} in {path} were built with other settings; build the directory again.")
    return InstanceDirectory(path, groups, *notes[names[0]], manifest)


def _read_manifest(path: str) -> InstancesManifest:
    try:
        with fsspec.open(f"{path}/manifest.json", "rb") as file:
            content = cast(BinaryIO, file).read()
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{path} holds no finished instances (no manifest.json); build them first.") from None
    manifest = parse_manifest(content, f"{path}/manifest.json")
    if not isinstance(manifest, InstancesManifest):
        raise UserError(f"{path} was written by `clozeworks {manifest.stage}`, not by `clozeworks build`.")
    return manifest


def _read_footer(path: str) -> pq.FileMetaData:
    try:
        with fsspec.open(path, "rb") as file:
            return pq.read_metadata(file)
    except FileNotFoundError:
        raise UserError(f"{path} is missing; build the instances again to make it.") from None
    except pa.ArrowInvalid as error:
        raise UserError(f"{path} is cut off or damaged, delete it and build again: {error}") from None


def _row_groups(shard: str, footer: pq.FileMetaData) -> Iterator[RowGroup]:
    tokens, duplicate = (_columns(footer).index(name) for name in ("input_ids", "duplicate"))
    first_row = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        statistics = group.column(duplicate).statistics
        known = statistics.min if statistics and statistics.has_min_max else None
        yield RowGroup(shard, number, first_row, group.num_rows, group.column(tokens).num_values, known)
        first_row += group.num_rows


def _notes(footer: pq.FileMetaData, where: str) -> tuple[int, int, str]:
    # Longest row, size of the vocabulary, and fingerprint of the tokenizer.
    notes = footer.metadata or {}
    if not ({*COLUMNS, "duplicate"} <= set(_columns(footer)) and set(NOTES) <= notes.keys()):
        raise UserError(f"{where} is no shard that `clozeworks build` wrote; delete it and build the instances again.")
    max_length, vocab_size, tokenizer = (notes[name] for name in NOTES)
    return int(max_length), int(vocab_size), tokenizer.decode()


def _columns(footer: pq.FileMetaData) -> list[str]:
    return [footer.schema.column(index).path.partition(".")[0] for index in range(footer.num_columns)]


def read_group(directory: InstanceDirectory, group: RowGroup) -> Rows:
    """Read one row group; raises `UserError` naming the shard where it is damaged or does not fit the vocabulary."""
    where = f"{directory.path}/{group.shard}"
    try:
        with fsspec.open(where, "rb") as file:
            table = pq.ParquetFile(file).read_row_group(group.number, columns=COLUMNS, use_threads=False)
    except FileNotFoundError:
        raise UserError(f"{where} has gone; build the instances again, then run the same command.") from None
    except (pa.ArrowException, OSError) as error:
        raise UserError(
            f"{where} cannot be read at row {group.first_row}; delete it and build again: {error}"
        ) from None
    ids, masked, positions = (_flat(table, name) for name in ("input_ids", "masked_lm_ids", "masked_lm_positions"))
    scalars = (table[name].to_numpy() for name in ("segment_b_start", "next_sentence_label"))
    rows = Rows(*ids, positions[0], *masked, *scalars)
    _check_rows(rows, directory, where)
    return rows


def _flat(table: pa.Table, name: str) -> tuple[np.ndarray, np.ndarray]:
    column = cast(pa.ListArray, table[name].combine_chunks())
    offsets = column.offsets.to_numpy().astype(np.int64)
    return column.flatten().to_numpy(), offsets - offsets[0]


def _check_rows(rows: Rows, directory: InstanceDirectory, where: str) -> None:
    largest = max((int(ids.max()) for ids in (rows.input_ids, rows.masked_ids) if len(ids)), default=0)
    if largest >= directory.vocab_size:
        raise UserError(f"{where} holds token {largest}, but its vocabulary has {directory.vocab_size} tokens.")
    longest = int(rows.lengths.max(initial=0))
    if longest > directory.max_length:
        raise UserError(f"{where} holds a row of {longest} tokens, but was built for {directory.max_length}.")
    if rows.next_sentence_label.max(initial=0) > 1:
        raise UserError(f"{where} holds a next-sentence label other than 0 and 1; delete it and build again.")
    if (rows.masked_positions >= np.repeat(rows.lengths, rows.num_masked)).any():
        raise UserError(f"{where} masks a position beyond the end of its row; delete it and build again.")


def read_split(directory: InstanceDirectory) -> Rows:
    """Read all rows of a directory's split, in the order of its files; meant for validation."""
    return concatenate([read_group(directory, group) for group in directory.row_groups])


def select(rows: Rows, index: np.ndarray) -> Rows:
    """Return the rows at `index` (int64), in that order."""
    tokens, offsets = _items(rows.offsets, index)
    masked, masked_offsets = _items(rows.masked_offsets, index)
    flat = (rows.input_ids[tokens], offsets, rows.masked_positions[masked], rows.masked_ids[masked], masked_offsets)
    return Rows(*flat, rows.segment_b_start[index], rows.next_sentence_label[index])


def _items(offsets: np.ndarray, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # The places of the items of the chosen rows, and the offsets that these rows have among themselves.
    starts, lengths = offsets[index], offsets[index + 1] - offsets[index]
    chosen = np.concatenate([[0], np.cumsum(lengths)])
    return np.arange(chosen[-1]) + np.repeat(starts - chosen[:-1], lengths), chosen


def concatenate(parts: list[Rows]) -> Rows:
    """Return the rows of all `parts`, one after the other."""
    if len(parts) == 1:
        return parts[0]

    def join(name: str) -> np.ndarray:
        return np.concatenate([getattr(part, name) for part in parts])

    def offsets(lengths: str) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(join(lengths))])

    masked = (join("masked_positions"), join("masked_ids"), offsets("num_masked"))
    return Rows(join("input_ids"), offsets("lengths"), *masked, join("segment_b_start"), join("next_sentence_label"))


def make_batches(rows: Rows, batch_size: int, objective: str = "mlm+nsp", multiple: int = 1) -> list[Batch]:
    """Cut `rows`, sorted by length so that little is padded, into batches of at most `batch_size`.

    Rows are padded to a multiple of `multiple` tokens. `objective` is as in `PretrainConfig`: only ``mlm+nsp`` has
    next-sentence labels; for ``ltr`` the masks are undone and each token but the first is to be predicted from those
    before it.
    """
    return [_make_batch(select(rows, part), objective, multiple) for part in by_length(rows.lengths, batch_size)]


def by_length(lengths: np.ndarray, batch_size: int) -> list[np.ndarray]:
    """Return the indices of the rows of each batch, longest rows first."""
    order = np.argsort(-lengths, kind="stable")
    return [order[first : first + batch_size] for first in range(0, len(order), batch_size)]


def _make_batch(rows: Rows, objective: str, multiple: int) -> Batch:
    num_rows, max_length = len(rows), -(-int(rows.lengths.max()) // multiple) * multiple
    column = np.arange(max_length)
    mask = column < rows.lengths[:, None]
    left_to_right = objective == "ltr"
    ids = np.zeros(mask.shape, np.int64)
    ids[mask] = rows.unmasked_ids() if left_to_right else rows.input_ids
    types = ((column >= rows.segment_b_start[:, None]) & mask).astype(np.int64)
    if left_to_right:
        targets = mask.copy()
        targets[:, 0] = False
        predicted, labels = np.flatnonzero(targets) - 1, ids[targets]
    else:
        predicted = np.repeat(np.arange(num_rows) * max_length, rows.num_masked) + rows.masked_positions
        labels = rows.masked_ids.astype(np.int64)
    tensor = torch.from_numpy
    padding = (None, None) if mask.all() else (tensor(mask), tensor(np.flatnonzero(mask)))
    nsp = tensor(rows.next_sentence_label.astype(np.int64)) if objective == "mlm+nsp" else None
    return Batch(tensor(ids), tensor(types), *padding, tensor(predicted), tensor(labels), nsp)
