"""Windows of passages, and the best spans in them."""

import random

import numpy as np
import pytest
from clozeworks.model.tasks.squad import Squad
from clozeworks.model.tasks.squad_files import Version
from clozeworks.model.tasks.squad_windows import (
    PassageWindow,
    best_spans,
    most_context,
    predict_answer,
    token_span,
    window_spans,
    window_target,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.squad_fixture import STORY_WORDS, logits_of, question, window


def google_windows(num_tokens: int, room: int, stride: int) -> list[tuple[int, int]]:
    # google-research/bert, run_squad.py, convert_examples_to_features
    spans, start = [], 0
    while start < num_tokens:
        length = min(num_tokens - start, room)
        spans.append((start, start + length))
        if start + length == num_tokens:
            break
        start += min(length, stride)
    return spans


def google_most_context(spans: list[tuple[int, int]], position: int) -> int:
    # google-research/bert, run_squad.py, _check_is_max_context
    best, owner = None, -1
    for index, (start, end) in enumerate(spans):
        if not start <= position < end:
            continue
        score = min(position - start, end - 1 - position) + 0.01 * (end - start)
        if best is None or score > best:
            best, owner = score, index
    return owner


@given(st.integers(1, 200), st.integers(1, 60), st.integers(1, 80))
def test_windows_and_their_context_are_those_of_the_release(num_tokens, room, stride):
    spans = window_spans(num_tokens, room, stride)
    assert spans == google_windows(num_tokens, room, stride)
    expected = [google_most_context(spans, position) for position in range(num_tokens)]
    assert most_context(num_tokens, room, stride).tolist() == expected


def test_an_answer_is_labelled_only_in_windows_that_contain_all_of_it():
    offsets = np.array([[0, 3], [4, 8], [9, 12], [13, 17], [18, 20]])
    assert token_span(offsets, 4, 12) == (1, 2)
    # A part of a word is answered by the whole word.
    assert token_span(offsets, 5, 7) == (1, 1)
    assert token_span(offsets, 8, 9) is None
    window = PassageWindow(1, 10, offsets[1:4], np.ones(3, dtype=bool))
    assert window_target((1, 3), window).tolist() == [10, 12]
    for span in [(0, 2), (2, 4), (0, 4), (4, 4), None]:
        assert window_target(span, window).tolist() == [0, 0]


def test_every_token_counts_in_one_window_and_labels_decode_to_the_answer(tokenizer):
    draw = random.Random(3)
    for length in (5, 60, 200):
        text = " ".join(draw.choices(STORY_WORDS, k=length)) + " b c d " + "very " * 20
        example = question(text, "b c d", text="the film, " * 9)
        task = Squad(version="1.1", max_length=40, stride=11, max_question_length=12)
        features = task.encode([example], tokenizer)
        owners = np.zeros(length + 23, dtype=int)
        found = 0
        for feature in features:
            window, (first, last) = feature.context, feature.target.tolist()  # type: ignore
            row = feature.row
            assert len(row.input_ids) <= 40
            assert row.segment_b_start == window.row_start == 14
            assert row.input_ids[13] == row.input_ids[-1] == 3
            owners[window.first_token : window.first_token + len(window.offsets_P2)] += (
                window.may_start_P
            )
            if first:
                start, end = window.offsets_P2[first - 14, 0], window.offsets_P2[last - 14, 1]
                assert text[start:end] == "b c d"
                found += 1
        assert found >= 1
        assert (owners == 1).all()


@pytest.mark.parametrize(
    "passage, answer",
    [
        ("e\u0301 very good\u0301 b", "good\u0301"),
        ("a\u200bb the [SEP] film", "[SEP] film"),
        ("x" * 1000 + " good \x00 bad", "good"),
        ("😀 \u2028 \ufffd good\r\n\tbad", "good\r\n\tbad"),
        ("İ ﬁ ß good", "good"),
        ("नमस्ते good", "नमस्ते"),
    ],
)
def test_answers_keep_their_characters_whatever_the_tokenizer_does(tokenizer, passage, answer):
    example = question(passage, answer)
    (feature,) = Squad(version="1.1", max_length=60).encode([example], tokenizer)
    first, last = feature.target.tolist()  # type: ignore
    assert 2 not in feature.row.input_ids[1:]
    assert np.count_nonzero(feature.row.input_ids == 3) == 2
    logits = np.zeros((feature.length, 2), dtype=np.float32)
    logits[first, 0] = logits[last, 1] = 9
    span = predict_answer([(feature.context, logits)], passage, 30).spans[0]
    assert span.text == answer
    assert passage[span.start : span.start + len(answer)] == answer


def plain_best_spans(starts, ends, counts, max_tokens: int) -> list[tuple[float, int, int]]:
    spans = [
        (-(starts[first] + ends[last]), first, last)
        for first in range(len(starts))
        for last in range(first, min(first + max_tokens, len(starts)))
        if counts[first]
    ]
    return sorted(spans)[:20]


@given(st.integers(0, 40), st.integers(1, 8), st.integers(0, 10**6))
def test_the_best_spans_are_those_of_a_plain_search(length, max_tokens, seed):
    rng = np.random.default_rng(seed)
    starts, ends = rng.normal(size=(2, length))
    counts = rng.random(length) < 0.7
    found = best_spans(starts, ends, counts, max_tokens).tolist()
    assert found == [
        [first, last] for _, first, last in plain_best_spans(starts, ends, counts, max_tokens)
    ]


def test_a_token_is_an_answers_start_only_in_the_window_with_most_context():
    first = window(0, [1, 1, 0]), logits_of((3, 1), (9, 9), (0, 0), (1, 0), (8, 8), (9, 9))
    second = window(1, [0, 1, 1]), logits_of((1, 1), (9, 9), (9, 9), (1, 2), (0, 0), (9, 9))
    prediction = predict_answer([first, second], "p q r s", 3)
    best = prediction.spans[0]
    assert (best.text, best.start, best.score, best.start_logit, best.end_logit) == (
        "q r", 2, 9.0, 1.0, 8.0,
    )  # fmt: skip
    # The same text once, the lowest score of having no answer.
    assert len({span.text for span in prediction.spans}) == len(prediction.spans)
    assert prediction.null_logits == (1.0, 1.0)
    assert prediction.null_odds == 2.0 - 9.0


def test_the_same_text_at_two_positions_counts_once():
    rows = [(0, 0), (0, 0), (5, 5), (0, 0), (6, 6), (0, 0)]
    prediction = predict_answer([(window(0, [1, 1, 1]), logits_of(*rows))], "p q p", 1)
    assert [(span.text, span.start, span.score) for span in prediction.spans] == [
        ("p", 4, 12.0),
        ("q", 2, 0.0),
    ]


def test_an_empty_passage_has_no_answer(tokenizer):
    versions: list[tuple[Version, int]] = [("1.1", 2), ("2.0", 3)]
    for version, file in versions:
        task, example = Squad(version=version), question("", text="")._replace(answers=())
        features = task.encode([example], tokenizer)
        assert [feature.length for feature in features] == [3]
        (answer,) = task.answers([np.ones((3, 2), dtype=np.float32)], features, [example])
        assert (answer["answer"], answer["start"], answer["probability"]) == ("", None, 1.0)
        assert len(task.official([answer], [example], "test")) == file
