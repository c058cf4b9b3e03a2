"""Exact duplicates: what counts as one text, and which of its documents stays."""

from itertools import pairwise

import pyarrow as pa
from clozeworks.pipeline.counters import Counters
from clozeworks.pipeline.documents.duplicates import decide
from clozeworks.pipeline.documents.gather import choose_rows
from clozeworks.pipeline.documents.phase_tables import KEYS, LEFT_OUT, NEAR_DUPLICATES
from clozeworks.pipeline.documents.scatter import hash_text
from hypothesis import given
from hypothesis import strategies as st


@given(
    st.lists(
        st.sampled_from(["It is so.", "Is it? Yes!", "そうだ。", "「行く。」", "그렇다.", "é"])
    ),
    st.data(),
)
def test_where_a_text_is_cut_does_not_matter(sentences: list[str], data: st.DataObject):
    def space_between(one: str, other: str) -> str:
        return "" if one[-1] in "。」" else " "

    spaces = [space_between(one, other) for one, other in pairwise(sentences)]
    text = "".join(
        sentence + space for sentence, space in zip(sentences, [*spaces, ""], strict=False)
    )
    ends = [
        len("".join(map("".join, zip(sentences[:i], spaces, strict=False))))
        for i in range(1, len(sentences))
    ]
    cuts = [
        0,
        *(data.draw(st.lists(st.sampled_from(ends), unique=True).map(sorted)) if ends else []),
        len(text),
    ]
    pieces = [text[start:stop].strip() for start, stop in pairwise(cuts)]
    assert hash_text(pieces) == hash_text([text]) == hash_text(sentences)


def test_case_punctuation_and_accents_are_part_of_a_text():
    texts = ["It is so.", "it is so.", "It is so", "It is só.", "It is os."]
    assert len({hash_text([text]) for text in texts}) == len(texts)


def key(text: int, document: int) -> dict:
    return {
        "text_hash": text // 2,
        "text_hash_low": text % 2,
        "hash": document * 1000,
        "validation_hash": document,
        "num_bytes": 10 * text,
        "doc_id": f"d{document}",
    }


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), max_size=20),
    st.sets(st.integers(0, 3), max_size=3),
    st.randoms(use_true_random=False),
)
def test_of_each_text_the_document_with_the_lowest_hash_stays(pairs, near, random):
    keys = pa.Table.from_pylist([key(*pair) for pair in pairs], KEYS.schema)
    others = pa.Table.from_pylist(
        [{"text_hash": text, "kept": f"for {text}"} for text in near], NEAR_DUPLICATES.schema
    )
    decided = decide(keys, others)
    first = {text: min(document for other, document in pairs if other == text) for text, _ in pairs}
    expected = {}
    for text, document in pairs:
        if document != first[text]:
            expected[text, document] = ("duplicate_texts", f"d{first[text]}")
        elif text // 2 in near:
            expected[text, document] = ("near_duplicates", f"for {text // 2}")
        else:
            expected[text, document] = ("stays", None)
    rows = decided.to_pylist()
    assert len(rows) == len(expected)
    for row in rows:
        reason = row["reason"] if row["kept"] else "stays"
        text = 2 * row["text_hash"] + row["text_hash_low"]
        assert expected[text, row["hash"] // 1000] == (reason, row["kept"])
        assert row["num_bytes"] == 10 * text
    random.shuffle(pairs)
    again = decide(pa.Table.from_pylist([key(*pair) for pair in pairs], KEYS.schema), others)
    assert again.equals(decided)


def test_of_rows_with_one_id_the_first_that_is_not_left_out_stays():
    types = {name: KEYS.schema.field(name).type for name in ("hash", "text_hash", "doc_id")}
    rows = [{"hash": 5, "text_hash": text, "doc_id": "d"} for text in (3, 2, 1)]
    documents = pa.Table.from_pylist(rows, pa.schema(types))
    duplicates = [
        {"hash": 5, "validation_hash": 0, "text_hash": 3, "reason": "duplicate_texts", "kept": "e"}
    ]
    removals = pa.Table.from_pylist(duplicates, LEFT_OUT.schema)
    for left_out, stay, repeat in ((removals[:0], [0], [1, 2]), (removals, [1], [2])):
        order, repeated = choose_rows(documents, left_out, Counters())
        assert (order.tolist(), repeated.tolist()) == (stay, repeat)
