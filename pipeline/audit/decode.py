"""Instances in readable form: tokens with their roles in the row."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import UserError
from ..execution import storage
from ..manifests import DocumentsManifest, InstancesManifest
from ..schemas import DOCUMENTS, instances_schema
from ..vocab.vocabulary import Vocabulary

Role = Literal["special", "a", "b", "mask", "random", "kept"]

_COLUMNS = {"ingest": DOCUMENTS.names, "build": instances_schema(0).names}


class Token(NamedTuple):
    """A token of a row: the `text` of its piece, its `role`, and the `original` before masking."""

    text: str
    role: Role
    segment: Literal["a", "b"]
    original: str


def decode_row(row: Mapping[str, Any], vocabulary: Vocabulary) -> list[Token]:
    """Return the tokens of a row of `schemas.instances_schema` (plain Python values by column).

    Raise `UserError` for a row of another vocabulary.
    """
    highest = max([*row["input_ids"], *row["masked_lm_ids"]], default=0)
    if highest >= len(vocabulary):
        raise UserError(
            f"Token id {highest} is beyond the vocabulary's {len(vocabulary)} tokens; build the instances again."
        )
    originals = dict(zip(row["masked_lm_positions"], row["masked_lm_ids"], strict=True))
    specials = {vocabulary.cls_id, vocabulary.sep_id}
    tokens = []
    for position, token_id in enumerate(row["input_ids"]):
        segment = "b" if position >= row["segment_b_start"] else "a"
        role: Role = "special" if token_id in specials else segment
        original = originals.get(position, token_id)
        if position in originals:
            role = "mask" if token_id == vocabulary.mask_id else "kept" if token_id == original else "random"
        tokens.append(Token(vocabulary.tokens[token_id], role, segment, vocabulary.tokens[original]))
    return tokens


def first_rows(
    directory: str, manifest: DocumentsManifest | InstancesManifest, split: str, num_rows: int
) -> Iterator[dict[str, Any]]:
    """Yield the first rows of a split as plain Python values; shards are shuffled, so this is a random sample.

    Raise `UserError` if the manifest lists no such split or a shard is damaged.
    """
    paths = [storage.join(directory, shard.name) for shard in manifest.shards if shard.split == split]
    if not paths:
        splits = sorted({shard.split for shard in manifest.shards})
        raise UserError(f"{directory} has no split {split!r}; there is {' and '.join(splits) or 'none'}.")
    return islice((row for path in paths for row in _rows(path, manifest.stage)), num_rows)


def _rows(path: str, stage: str) -> Iterator[dict[str, Any]]:
    try:
        with storage.open_input(path) as source, pq.ParquetFile(source) as file:
            if missing := sorted({*_COLUMNS[stage]} - {*file.schema_arrow.names}):
                raise ValueError(f"it has no column {missing[0]}")
            for batch in file.iter_batches(batch_size=16, use_threads=False):
                yield from batch.to_pylist()
    except (OSError, ValueError, pa.ArrowException) as error:
        raise UserError(f"{path} cannot be read; run `clozeworks {stage} … --overwrite` again: {error}.") from None
