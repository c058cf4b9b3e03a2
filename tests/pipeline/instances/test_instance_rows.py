"""Rows as flat columns are the rows of the file, in whatever order they are taken."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from clozeworks.pipeline.instances.rows import (
    Rows,
    check_rows,
    concatenate,
    rows_of,
    select,
    sequences,
)
from clozeworks.pipeline.schemas import instances_schema
from hypothesis import given
from hypothesis import strategies as st

VOCAB_SIZE = 100
ROW_COLUMNS = ("segment_b_start", "next_sentence_label", "document_a", "document_b", "duplicate")
PACKED = {
    "input_ids": [2, 10, 4, 3, 2, 4, 11, 3], "sequence_starts": [0, 4], "documents": [7, 5],
    "masked_lm_positions": [2, 5], "masked_lm_ids": [12, 13], "duplicate": 1,
}  # fmt: skip


@st.composite
def instances(draw: st.DrawFn) -> dict[str, Any]:
    ids = draw(st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=3, max_size=9))
    positions = draw(st.sets(st.integers(1, len(ids) - 2), min_size=1, max_size=3))
    return {
        "input_ids": ids,
        "segment_b_start": draw(st.integers(2, len(ids))),
        "masked_lm_positions": sorted(positions),
        "masked_lm_ids": [draw(st.integers(0, VOCAB_SIZE - 1)) for _ in positions],
        "next_sentence_label": draw(st.integers(0, 1)),
        "document_a": draw(st.integers(0, 5)),
        "document_b": draw(st.integers(0, 5)),
        "duplicate": draw(st.integers(0, 5)),
    }


def table(rows: list[dict[str, Any]]) -> pa.Table:
    packed = "sequence_starts" in rows[0]
    return pa.Table.from_pylist(rows, instances_schema(VOCAB_SIZE, packed=packed))


def as_dicts(rows: Rows) -> list[dict[str, Any]]:
    """Return rows without packing as they are stored, by loops."""
    dicts = []
    for row in range(len(rows)):
        tokens = slice(*rows.offsets[row : row + 2])
        masks = slice(*rows.masked_offsets[row : row + 2])
        values = {
            "input_ids": rows.input_ids[tokens].tolist(),
            "masked_lm_positions": rows.masked_positions[masks].tolist(),
            "masked_lm_ids": rows.masked_ids[masks].tolist(),
        }
        values |= {name: int(getattr(rows, name)[row]) for name in ROW_COLUMNS}
        dicts.append(values)
    return dicts


@given(st.lists(instances(), min_size=1, max_size=6), st.randoms())
def test_rows_are_read_chosen_and_joined(stored: list[dict[str, Any]], random):
    batch = table(stored)
    rows = rows_of(batch.slice(len(stored) // 2))
    assert as_dicts(rows) == stored[len(stored) // 2 :]
    rows = rows_of(batch)
    chosen = [random.randrange(len(stored)) for _ in range(4)]
    assert as_dicts(select(rows, np.array(chosen))) == [stored[row] for row in chosen]
    assert as_dicts(concatenate([rows, rows])) == stored + stored


@given(st.lists(instances(), min_size=1, max_size=6))
def test_the_original_tokens_are_restored(stored: list[dict[str, Any]]):
    expected = []
    for row in stored:
        ids = list(row["input_ids"])
        for position, original in zip(
            row["masked_lm_positions"], row["masked_lm_ids"], strict=True
        ):
            ids[position] = original
        expected += ids
    assert rows_of(table(stored)).unmasked_ids().tolist() == expected


def test_a_packed_row_becomes_a_row_for_each_document():
    rows = rows_of(table([PACKED, {**PACKED, "duplicate": 2}]))
    check_rows(rows, VOCAB_SIZE)
    taken = select(rows, np.array([1, 0]))
    first = {
        "input_ids": [2, 10, 4, 3], "masked_lm_positions": [2], "masked_lm_ids": [12],
        "segment_b_start": 4, "next_sentence_label": 0, "document_a": 7, "document_b": 7,
        "duplicate": 2,
    }  # fmt: skip
    second = first | {"input_ids": [2, 4, 11, 3], "masked_lm_positions": [1], "masked_lm_ids": [13]}
    second |= {"document_a": 5, "document_b": 5}
    assert as_dicts(sequences(taken))[:2] == [first, second]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"masked_lm_positions": [5, 2]}, "masked_lm_positions: they do not ascend"),
        ({"masked_lm_positions": [2, 8]}, "lie outside of a row"),
        ({"sequence_starts": [0, 0]}, "sequence_starts: they do not ascend"),
        ({"sequence_starts": [1, 4]}, "no sequence at its start"),
        ({"documents": [7]}, "different lengths"),
        ({"masked_lm_ids": [12, VOCAB_SIZE]}, "masked_lm_ids contains token 100"),
    ],
)
def test_packed_rows_that_do_not_fit_are_refused(change: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        check_rows(rows_of(table([PACKED, {**PACKED, **change}])), VOCAB_SIZE)


def test_training_reads_no_documents():
    columns = ["input_ids", "sequence_starts", "masked_lm_positions", "masked_lm_ids"]
    rows = rows_of(table([PACKED]).select(columns))
    assert rows.document_a is None and rows.duplicate is None
    assert len(sequences(select(rows, np.array([0, 0])))) == 4
