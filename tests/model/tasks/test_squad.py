"""SQuAD: files, windows, answers as parts of the passage, the official metrics, and training end to
end.
"""

import json
import random
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
import transformers
from checkpoint_fixture import make_checkpoint
from clozeworks.model.encoders.bert_config import ModelConfig
from clozeworks.model.encoders.encoder import initialise
from clozeworks.model.finetuning.config import FinetuneConfig
from clozeworks.model.finetuning.evaluate import evaluate_task
from clozeworks.model.finetuning.finetune import finetune
from clozeworks.model.finetuning.predict import predict
from clozeworks.model.tasks.batches import Feature, make_batch
from clozeworks.model.tasks.catalogue import find_entry, restore_task
from clozeworks.model.tasks.options import TaskOptions
from clozeworks.model.tasks.splits import read_data
from clozeworks.model.tasks.squad import SpanClassifier, Squad, read_squad
from clozeworks.model.tasks.squad_files import GoldAnswer, Question, Version, read_questions
from clozeworks.model.tasks.squad_metrics import (
    best_threshold,
    exact_match,
    normalize_answer,
    normalize_english,
    overlap_f1,
    overlap_f1_or_none,
    question_scores,
    squad1_scores,
    squad2_scores,
)
from clozeworks.model.tasks.squad_windows import (
    PassageWindow,
    best_spans,
    most_context,
    predict_answer,
    token_span,
    window_spans,
    window_target,
)
from clozeworks.model.tokenizer import TextTokenizer, TokenRow
from clozeworks.pipeline.errors import UserError
from hypothesis import given
from hypothesis import strategies as st
from parity_fixture import check_learning
from shared_data import DATA, needs_shared_data

SQUAD_DATA = DATA / "squad"
VERSION_1, VERSION_2 = (
    SQUAD_DATA / f"train-subset-{name}.json" for name in ("44articles-v1.1", "10articles-v2.0")
)
QUICK: dict[str, Any] = {
    "max_length": 48,
    "stride": 16,
    "max_question_length": 12,
    "batch_size": 8,
    "device": "cpu",
    "precision": "fp32",
}

STORY_WORDS = ["the", "film", "book", "was", "very", "good", "bad", "dull"]


def quick(**changes: Any) -> FinetuneConfig:
    return FinetuneConfig(**{**QUICK, **changes})


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("model") / "checkpoint")


@pytest.fixture(scope="module")
def tokenizer(checkpoint) -> TextTokenizer:
    return TextTokenizer(checkpoint)


def question(passage: str, *answers: str, text: str = "the film") -> Question:
    placed = tuple(GoldAnswer(answer, passage.find(answer)) for answer in answers)
    return Question("a.json, question 1", "1", text, passage, passage, placed)


# Metrics: expected values worked out by hand from the rules of the official scripts.


@pytest.mark.parametrize(
    "text, expected",
    [
        ("The Cat", "cat"),
        ("an apple a day", "apple day"),
        ("theatre another", "theatre another"),
        ("U.S.", "us"),
        ("24-10", "2410"),
        ("a-b", "ab"),
        ("  two \t\n words\u00a0\u3000here ", "two words here"),
        ("$5 & ~x~ _y_", "5 x y"),
        ("“The” café—naïve", "“ ” café—naïve"),
        ("ÜBER Straße", "über straße"),
        ("the a an", ""),
        ("...", ""),
        ("", ""),
        # Punctuation goes before the articles, so that it makes new words of two, and articles of
        # words.
        ("A.", ""),
        ("t.h.e end", "end"),
        ("the-end", "theend"),
    ],
)
def test_answers_are_normalised_as_in_the_official_scripts(text, expected):
    assert normalize_answer(text) == normalize_english(text) == expected


@pytest.mark.parametrize(
    "prediction, gold, exact, f1, f1_or_none",
    [
        ("The Denver Broncos", "denver broncos!", 1, 1, 1),
        ("Denver", "Denver Broncos", 0, 2 / 3, 2 / 3),
        ("x y z", "y z w v", 0, 2 * (2 / 3) * (1 / 2) / (2 / 3 + 1 / 2), 4 / 7),
        ("b b b", "b b c", 0, 2 / 3, 2 / 3),
        ("x", "y", 0, 0, 0),
        ("", "y", 0, 0, 0),
        ("y", "", 0, 0, 0),
        # Without words on both sides the two scripts differ.
        ("", "", 1, 0, 1),
        ("the", "A.", 1, 0, 1),
    ],
)
def test_exact_match_and_f1_of_one_answer(prediction, gold, exact, f1, f1_or_none):
    assert exact_match(prediction, gold) == exact
    assert overlap_f1(prediction, gold) == pytest.approx(f1)
    assert overlap_f1_or_none(prediction, gold) == pytest.approx(f1_or_none)


def test_the_best_gold_answer_counts_for_each_metric_on_its_own():
    scores = squad1_scores(["b c", "x", "..."], [["b c d", "b", "b, c"], ["y"], ["the"]])
    # Of the third both sides are empty once normalised: exact, but without F1.
    assert scores == {"f1": pytest.approx(100 / 3), "exact_match": pytest.approx(200 / 3)}
    assert list(scores) == ["f1", "exact_match"]


def test_scores_of_squad_2_with_and_without_answers():
    golds = [["b c", "b"], ["d e"], [], [], ["the"]]
    scores = squad2_scores(["b", "d", "", "x", ""], golds)
    assert scores == {
        "exact": 60.0,
        "f1": pytest.approx(100 * (1 + 2 / 3 + 1 + 0 + 1) / 5),
        "total": 5,
        "HasAns_exact": pytest.approx(200 / 3),
        "HasAns_f1": pytest.approx(100 * (1 + 2 / 3 + 1) / 3),
        "HasAns_total": 3,
        "NoAns_exact": 50.0,
        "NoAns_f1": 50.0,
        "NoAns_total": 2,
    }
    # An answer that is nothing once normalised is left out of the gold answers, where there is
    # another one too.
    assert question_scores([""], [["the", "b"]]) == ([0.0], [0.0])
    assert not any(name.startswith("NoAns") for name in squad2_scores(["b"], [["b"]]))
    assert not any(name.startswith("HasAns") for name in squad2_scores(["b"], [[]]))


def test_the_best_threshold_answers_up_to_the_odds_that_gain_most():
    golds, texts, odds = (
        [["b"], [], ["d"], [], ["e"]],
        ["b", "x", "d", "y", "z"],
        [-3.0, -1.0, 0.5, 2.0, 3.0],
    )
    # None answered: 2 right. +1 (b), -1 (x), +1 (d), -1 (y), +0 (z): 3 is first reached at the odds
    # of b.
    assert best_threshold(texts, [1.0, 0.0, 1.0, 0.0, 0.0], odds, golds) == (60.0, -3.0)
    assert best_threshold(texts, [0.4, 0.0, 1.0, 0.0, 0.9], odds, golds) == (
        pytest.approx(48.0),
        -3.0,
    )
    assert best_threshold(texts, [0.4, 0.0, 1.0, 0.0, 1.9], odds, golds) == (
        pytest.approx(46 * 1 + 20),
        3.0,
    )
    # An empty best answer to a question without answer costs nothing.
    assert best_threshold(["b", "", "d", "y", "z"], [1.0, 0.0, 1.0, 0.0, 0.0], odds, golds) == (
        80.0,
        0.5,
    )
    # Where nothing is gained the official script says 0, whatever the odds.
    assert best_threshold(texts, [0.0] * 5, odds, golds) == (40.0, 0.0)


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 4), st.integers(-3, 3)), min_size=1, max_size=12
    )
)
def test_no_threshold_is_better_than_the_best_one(rows):
    golds = [["b"] if has else [] for has, _, _ in rows]
    scores, odds = (
        [score / 4 if has else 0.0 for has, score, _ in rows],
        [float(odds) for _, _, odds in rows],
    )

    def at(threshold: float) -> float:
        answered = [value <= threshold for value in odds]
        gained = (
            score if does else not gold
            for score, does, gold in zip(scores, answered, golds, strict=True)
        )
        return 100 * sum(gained) / len(rows)

    best, threshold = best_threshold(["b"] * len(rows), scores, odds, golds)
    assert best >= max(map(at, [-10.0, *odds])) - 1e-9
    if len(set(odds)) == len(odds) and best > 100 * golds.count([]) / len(rows):
        assert best == pytest.approx(at(threshold))


# Files


def squad_json(
    *qas: dict[str, Any], version: str | None = "1.1", context: str = "the film was good"
) -> dict[str, Any]:
    content: dict[str, Any] = {
        "data": [{"title": "Film", "paragraphs": [{"context": context, "qas": list(qas)}]}]
    }
    return content if version is None else {"version": version, **content}


def qa(number: int = 1, text: str = "film", start: int = 4, **more: Any) -> dict[str, Any]:
    return {
        "id": str(number),
        "question": "what was?",
        "answers": [{"text": text, "answer_start": start}],
        **more,
    }


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


IMPOSSIBLE = {"id": "9", "question": "who?", "answers": [], "is_impossible": True}


def test_questions_come_with_passage_answers_and_location(tmp_path):
    path = write(tmp_path / "a.json", squad_json(qa(), qa(2, "good", 13), version="1.1"))
    version, (first, second), _ = read_questions(path, labelled=True)
    assert version == "1.1"
    assert first == Question(
        f"{path}, question 1",
        "1",
        "what was?",
        "the film was good",
        "the film was good",
        (GoldAnswer("film", 4),),
    )
    assert second.located_answer == GoldAnswer("good", 13)
    assert read_questions(path, labelled=False).questions[0].answers is None
    write(path, squad_json({"id": 7, "question": "who?"}))
    assert [each.id for each in Squad(version="1.1").read(path, labelled=False)] == ["7"]


@pytest.mark.parametrize(
    "content, version",
    [
        (squad_json(qa(), version="1.1"), "1.1"),
        (squad_json(qa(), version="v1.1"), "1.1"),
        (squad_json(qa(), version="v2.0"), "2.0"),
        (squad_json(qa(), version="2.0"), "2.0"),
        (squad_json(qa(), IMPOSSIBLE, version=None), "2.0"),
        (squad_json(qa(), IMPOSSIBLE, version="mine"), "2.0"),
        (squad_json(qa(is_impossible=False), version=None), None),
    ],
)
def test_the_version_is_recognised(tmp_path, content, version):
    path = write(tmp_path / "a.json", content)
    assert read_questions(path, labelled=True).version == version
    assert read_squad([path], TaskOptions()).version == (version or "1.1")


def test_each_version_has_its_recipe_and_options_belong_to_squad(tmp_path):
    assert Squad(version="1.1").recipe == (32, 3.0, (5e-5,))
    assert Squad(version="2.0").recipe == (48, 2.0, (5e-5,))
    path = write(tmp_path / "a.json", squad_json(qa()))
    task = read_squad([path], TaskOptions(stride=99, max_answer_length=7))
    assert (task.max_length, task.stride, task.max_question_length, task.max_answer_length) == (
        384,
        99,
        64,
        7,
    )
    assert restore_task(json.loads(json.dumps(task.settings()))) == task
    with pytest.raises(UserError, match="`max_answer_length` is for squad; mrpc does not take it"):
        find_entry("mrpc", TaskOptions(max_answer_length=7))
    with pytest.raises(UserError, match="`stride` is 0, but must be at least 1"):
        FinetuneConfig(stride=0)


def broken(change: Any) -> dict[str, Any]:
    content = squad_json(qa())
    change(
        content["data"][0],
        content["data"][0]["paragraphs"][0],
        content["data"][0]["paragraphs"][0]["qas"],
    )
    return content


QA = "data[0].paragraphs[0].qas[0]"


@pytest.mark.parametrize(
    "content, message",
    [
        ('{"data": [', "a.json is not in the official format of SQuAD (input data was truncated)"),
        ("[1]", "a.json is not in the official format of SQuAD (expected object, got array)"),
        ({"version": "1.1"}, "(object missing required field data)"),
        ({"data": {}}, "(data: expected array, got object)"),
        ({"data": ["x"]}, "(data[0]: expected object, got str)"),
        (
            broken(lambda article, *_: article.pop("paragraphs")),
            "(data[0]: object missing required field paragraphs)",
        ),
        (
            broken(lambda _, paragraph, __: paragraph.pop("context")),
            "paragraphs[0]: object missing required field context",
        ),
        (
            broken(lambda _, paragraph, __: paragraph.update(context=3)),
            "paragraphs[0].context: expected str, got int",
        ),
        (broken(lambda *parts: parts[2][0].pop("id")), f"({QA}: object missing required field id)"),
        (
            broken(lambda *parts: parts[2][0].pop("question")),
            f"({QA}: object missing required field question)",
        ),
        (
            broken(lambda *parts: parts[2][0].pop("answers")),
            f"({QA}: object missing required field answers)",
        ),
        (
            broken(lambda *parts: parts[2][0]["answers"][0].pop("answer_start")),
            "answers[0]: object missing required",
        ),
        (squad_json(qa(start="4")), f"({QA}.answers[0].answer_start: expected int, got str)"),  # type: ignore
        (squad_json(qa(start=True)), f"({QA}.answers[0].answer_start: expected int, got bool)"),
        (squad_json({**qa(), "id": None}), f"({QA}.id: expected int | str, got null)"),
        (squad_json({**qa(), "id": "\ud83d"}), "unexpected end of escaped utf-16 surrogate pair"),
        (
            broken(lambda article, *_: article.update(title="\ud83d")),
            "unexpected end of escaped utf-16 surrogate pair",
        ),
        ("[" * 100_000, "a.json is not in the official format of SQuAD"),
        (squad_json(qa(), qa()), "a.json, question 1 occurs twice"),
        (
            squad_json(qa(), qa(5, is_impossible=True)),
            "a.json, question 5 is marked as impossible but has answers",
        ),
        (
            squad_json({**qa(6), "answers": []}),
            "a.json, question 6 has no answers, nor has any other",
        ),
        (
            squad_json(qa(), context="the \ud83d film"),
            "unexpected end of escaped utf-16 surrogate pair",
        ),
        (squad_json(qa(), IMPOSSIBLE), "a.json is SQuAD 2.0, but the training file is SQuAD 1.1"),
    ],
)
def test_bad_files_are_refused_with_their_location(tmp_path, content, message):
    path = write(tmp_path / "a.json", content)
    with pytest.raises(UserError) as error:
        list(Squad(version="1.1").read(path, labelled=True))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_files_that_do_not_go_together_are_refused(tmp_path):
    first = write(tmp_path / "train-v1.1.json", squad_json(qa()))
    second = write(tmp_path / "train-v2.0.json", squad_json(qa(), IMPOSSIBLE, version="v2.0"))
    with pytest.raises(
        UserError, match=r"train-v1.1.json is SQuAD 1.1, but .*train-v2.0.json is 2.0; give one of"
    ):
        read_squad([first, second], TaskOptions())
    with pytest.raises(
        UserError, match=r"train-v1.1.json is SQuAD 1.1, but the training file is SQuAD 2.0"
    ):
        list(Squad(version="2.0").read(first, labelled=True))
    (tmp_path / "latin.json").write_bytes(b'{"data": "\xe9"}')
    with pytest.raises(UserError, match=r"latin\.json is not in the official format of SQuAD"):
        read_questions(tmp_path / "latin.json", labelled=True)
    with pytest.raises(UserError, match="does not exist"):
        read_questions(tmp_path / "none.json", labelled=True)
    empty = write(tmp_path / "empty" / "train.json", {"version": "1.1", "data": []})
    with pytest.raises(UserError, match=r"train\.json contains no rows"):
        read_data("squad", empty, TaskOptions())


def test_whole_articles_are_held_out_or_passages_if_there_are_few(tmp_path):
    def content(num_articles: int) -> dict[str, Any]:
        numbers = iter(range(1000))
        paragraphs = [
            {
                "title": str(title),
                "paragraphs": [
                    {
                        "context": f"the film {title} {part}",
                        "qas": [qa(next(numbers)), qa(next(numbers))],
                    }
                    for part in range(5)
                ],
            }
            for title in range(num_articles)
        ]
        return {"version": "1.1", "data": paragraphs}

    for num_articles, num_dev in [(10, 10), (3, 4)]:
        data = read_data(
            "squad",
            write(tmp_path / f"{num_articles}.json", content(num_articles)),
            TaskOptions(),
        )
        dev = {each.passage for each in data.dev[""]}
        assert data.held_out
        assert len(data.dev[""]) == num_dev
        assert not dev & {each.passage for each in data.train}


# Windows


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


def test_an_empty_passage_has_one_empty_window():
    assert window_spans(0, 10, 5) == [(0, 0)]
    assert most_context(0, 10, 5).shape == (0,)


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
            (row,) = feature.rows
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
        ("é café b", "café"),
        ("e\u0301 very good\u0301 b", "good\u0301"),
        ("日本 the film 語", "語"),
        ("a\u200bb the [SEP] film", "[SEP] film"),
        ("x" * 1000 + " good \x00 bad", "good"),
        ("😀 \u2028 \ufffd good\r\n\tbad", "good\r\n\tbad"),
        ("İ ﬁ ß good", "good"),
        ("가나 good", "good"),
        ("नमस्ते good", "नमस्ते"),
    ],
)
def test_answers_keep_their_characters_whatever_the_tokenizer_does(tokenizer, passage, answer):
    example = question(passage, answer)
    (feature,) = Squad(version="1.1", max_length=60).encode([example], tokenizer)
    first, last = feature.target.tolist()  # type: ignore
    assert 2 not in feature.rows[0].input_ids[1:]
    assert np.count_nonzero(feature.rows[0].input_ids == 3) == 2
    logits = np.zeros((feature.length, 2), dtype=np.float32)
    logits[first, 0] = logits[last, 1] = 9
    span = predict_answer([(feature.context, logits)], passage, 30).spans[0]
    assert span.text == answer
    assert passage[span.start : span.start + len(answer)] == answer


def test_lost_answers_are_counted_and_named_and_not_trained_on(tokenizer, capsys):
    good = question("the film was good", "film")
    shifted = good._replace(
        where="a.json, question 2", answers=(GoldAnswer("film", 5), GoldAnswer("book", -3))
    )
    second_stands = good._replace(answers=(GoldAnswer("film", 5), GoldAnswer("good", 13)))
    blank = good._replace(passage="the \u0301 film", answers=(GoldAnswer("\u0301", 4),))
    task = Squad(version="1.1")
    features = task.encode([good, shifted, second_stands, blank], tokenizer)
    assert [feature.target is None for feature in features] == [False, True, False, True]
    assert capsys.readouterr().err == (
        "2 of 4 questions have no answer where answer_start says (the first: a.json, question 2, "
        "'film' at character 5); they are not used for training.\n"
    )
    assert task.encode([good._replace(answers=None)], tokenizer)[0].target is None
    assert Squad(version="2.0").encode([good._replace(answers=())], tokenizer)[
        0
    ].target.tolist() == [0, 0]  # type: ignore
    assert not capsys.readouterr().err


def test_training_leaves_lost_answers_out(checkpoint, tmp_path, capsys):
    for name in ("train", "dev"):
        write(
            tmp_path / "data" / f"{name}.json", squad_json(qa(), qa(2, start=5), qa(3, "good", 13))
        )
    config = quick(epochs=1, learning_rates=(1e-3,), batch_size=1)
    summary = finetune("squad", tmp_path / "data", checkpoint, tmp_path / "run", config)
    assert (summary["train_examples"], summary["dev_examples"]) == (3, 3)
    assert capsys.readouterr().err.count("not used for training") == 2
    metrics = (tmp_path / "run" / "runs" / "learning-rate-0.001-seed-0" / "metrics.csv").read_text()
    assert "\n2,train," in metrics
    assert "\n3,train," not in metrics
    for name in ("train", "dev"):
        write(tmp_path / "data" / f"{name}.json", squad_json(qa(2, start=5)))
    with pytest.raises(
        UserError,
        match=r"No answer is where answer_start says \(the first: .*train\.json, question 2, 'fi",
    ):
        finetune("squad", tmp_path / "data", checkpoint, tmp_path / "again", config)


def test_a_question_that_fills_the_row_is_refused(tokenizer):
    example = question("the film was good", "film", text="very " * 50)
    with pytest.raises(
        UserError,
        match=r"a.json, question 1 has 50 tokens, which leaves no room .* rows of 40; raise",
    ):
        Squad(version="1.1", max_length=40).encode([example], tokenizer)
    assert (
        Squad(version="1.1", max_length=40, max_question_length=36)
        .encode([example], tokenizer)[0]
        .length
        == 40
    )


# Spans


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


def window(first: int, counts: list[int], row_start: int = 2) -> PassageWindow:
    # Words of one letter with a space between them.
    offsets = np.array([[2 * index, 2 * index + 1] for index in range(first, first + len(counts))])
    return PassageWindow(first, row_start, offsets, np.array(counts, dtype=bool))


def logits_of(*rows: tuple[float, float]) -> np.ndarray:
    return np.array(rows, dtype=np.float32)


def test_a_token_is_an_answers_start_only_in_the_window_with_most_context():
    first = window(0, [1, 1, 0]), logits_of((3, 1), (9, 9), (0, 0), (1, 0), (8, 8), (9, 9))
    second = window(1, [0, 1, 1]), logits_of((1, 1), (9, 9), (9, 9), (1, 2), (0, 0), (9, 9))
    prediction = predict_answer([first, second], "p q r s", 3)
    best = prediction.spans[0]
    assert (best.text, best.start, best.score, best.start_logit, best.end_logit) == (
        "q r",
        2,
        9.0,
        1.0,
        8.0,
    )
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


def two_questions() -> tuple[list[Feature], list[Question], list[np.ndarray]]:
    examples = [question("p q", "q")._replace(id="x"), question("p q")._replace(id="y")]
    features = [
        Feature((TokenRow(np.arange(5), 2),), None, index, window(0, [1, 1])) for index in (0, 1)
    ]
    outputs = [
        logits_of((1, 1), (9, 9), (0, 0), (2, 2), (9, 9)),
        logits_of((1, 1), (9, 9), (0, 0), (1.5, 1.5), (9, 9)),
    ]
    return features, examples, outputs


def test_tau_is_tuned_on_dev_kept_and_used():
    features, examples, outputs = two_questions()
    task = Squad(version="2.0")
    assert task.scores(outputs, features, examples) == {
        "best_f1": 100.0,
        "best_f1_thresh": -2.0,
        "best_exact": 100.0,
        "best_exact_thresh": -2.0,
        "exact": 50.0,
        "f1": 50.0,
        "total": 2,
        "HasAns_exact": 100.0,
        "HasAns_f1": 100.0,
        "HasAns_total": 1,
        "NoAns_exact": 0.0,
        "NoAns_f1": 0.0,
        "NoAns_total": 1,
        "exact_at_tau_0": 50.0,
        "f1_at_tau_0": 50.0,
    }
    tuned = restore_task(json.loads(json.dumps(task.tuned(outputs, features, examples).settings())))
    assert isinstance(tuned, Squad)
    assert tuned.tau == 2.0
    scores = tuned.scores(outputs, features, examples)
    assert (scores["f1"], scores["f1_at_tau_0"], next(iter(scores))) == (100.0, 50.0, "best_f1")
    assert [answer["answer"] for answer in task.answers(outputs, features, examples)] == ["q", "q"]
    assert [answer["answer"] for answer in tuned.answers(outputs, features, examples)] == ["q", ""]
    assert Squad(version="1.1").tuned(outputs, features, examples).tau == 0


def test_if_answering_never_pays_tau_answers_nothing():
    features, examples, outputs = two_questions()
    wrong = [examples[0]._replace(answers=(GoldAnswer("z", 0),)), examples[1]]
    task = Squad(version="2.0").tuned(outputs, features, wrong)
    scores = task.scores(outputs, features, wrong)
    assert scores["f1"] == scores["best_f1"] == 50.0
    assert [answer["answer"] for answer in task.answers(outputs, features, wrong)] == ["", ""]


def test_answers_and_the_official_files():
    features, examples, outputs = two_questions()
    task = Squad(version="2.0", tau=2.0)
    answers = task.answers(outputs, features, examples)
    first = answers[0]
    assert (first["id"], first["answer"], first["start"], first["null_odds"]) == ("x", "q", 2, -2.0)
    # q 4, p q and nothing 2 each, p 0, as scores.
    odds = np.exp([4.0, 2.0, 2.0, 0.0])
    shares = [each["probability"] for each in first["n_best"]]
    assert shares == pytest.approx((odds / odds.sum()).tolist())
    assert first["probability"] == shares[0]
    assert {each["text"] for each in first["n_best"]} == {"q", "p q", "", "p"}
    files = task.official(answers, examples, "test")
    assert json.loads(files["predictions.json"]) == {"x": "q", "y": ""}
    assert json.loads(files["null_odds.json"]) == {"x": -2.0, "y": -1.0}
    assert json.loads(files["nbest_predictions.json"])["x"] == first["n_best"]
    version_1 = Squad(version="1.1")
    answers = version_1.answers(outputs, features, examples)
    assert version_1.official(answers, examples, "test").keys() == {
        "predictions.json",
        "nbest_predictions.json",
    }
    assert [answer["answer"] for answer in answers] == ["q", "q"]
    assert "null_odds" not in answers[0]


def test_baselines_are_the_most_frequent_answer_and_none():
    train = [question("p q", "q"), question("p q r", "q"), question("p", "p")]
    dev = [question("p q", "q"), question("p q r", "p")]
    assert Squad(version="1.1").baseline(train, dev) == {"f1": 50.0, "exact_match": 50.0}
    scores = Squad(version="2.0").baseline(train, [*dev, question("p")])
    assert scores["best_f1"] == scores["f1"] == pytest.approx(100 / 3)


# The model


def test_logits_loss_and_gradients_equal_transformers():
    config = ModelConfig(
        vocab_size=60,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
    )
    ours = SpanClassifier(config).eval()
    initialise(ours, config, torch.Generator().manual_seed(2))
    shape: dict[str, Any] = {**config.to_hf(), "attn_implementation": "eager"}
    theirs = transformers.BertForQuestionAnswering(transformers.BertConfig(**shape)).eval()
    state = {name: weight for name, weight in ours.state_dict().items() if "pooler" not in name}
    theirs.load_state_dict(state)
    rng = np.random.default_rng(0)
    features = [
        Feature((TokenRow(rng.integers(1, 60, 17).astype(np.int32), 6),), np.array(target), 0)
        for target in [(7, 9), (0, 0), (16, 16)]
    ]
    batch = make_batch(features)
    assert batch.target is not None
    expected = theirs(
        batch.input_ids_BL,
        batch.attention_mask_BL,
        batch.token_type_ids_BL,
        start_positions=batch.target[:, 0],
        end_positions=batch.target[:, 1],
    )
    logits = ours(batch)
    torch.testing.assert_close(logits[..., 0], expected.start_logits, rtol=0, atol=1e-5)
    torch.testing.assert_close(logits[..., 1], expected.end_logits, rtol=0, atol=1e-5)
    check_learning(ours, ours.loss(logits, batch), theirs, expected.loss)


def test_padding_takes_no_part_in_the_loss():
    config = ModelConfig(
        vocab_size=60,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
    )
    model = SpanClassifier(config).eval()
    initialise(model, config, torch.Generator().manual_seed(2))
    short, long = (
        Feature((TokenRow(np.arange(1, length, dtype=np.int32), 3),), np.array([3, 4]), 0)
        for length in (7, 30)
    )
    losses = [
        model.loss(model(batch), batch).item()
        for batch in map(make_batch, ([short], [long], [short, long]))
    ]
    assert losses[2] == pytest.approx((losses[0] + losses[1]) / 2, abs=1e-6)


# End to end


def stories(num: int, seed: int, version: str) -> dict[str, Any]:
    """Return questions whose answer is the one letter among words; in 2.0 some have none."""
    draw = random.Random(seed)
    paragraphs = []
    for number in range(num):
        words = draw.choices(STORY_WORDS, k=draw.randint(6, 60))
        answers = []
        if version == "1.1" or number % 3:
            index, letter = draw.randrange(len(words)), draw.choice("bcde")
            words.insert(index, letter)
            answers = [{"text": letter, "answer_start": len(" ".join([*words[:index], ""]))}]
        record = {"id": f"q{number}", "question": "the film is?", "answers": answers}
        if version == "2.0":
            record["is_impossible"] = not answers
        paragraphs.append({"context": " ".join(words), "qas": [record]})
    return {"version": version, "data": [{"title": "T", "paragraphs": paragraphs}]}


@pytest.fixture(scope="module", params=["1.1", "2.0"])
def trained(request, tmp_path_factory, checkpoint) -> tuple[str, Path, Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("squad")
    for name, num, seed in [("train", 160, 1), ("dev", 40, 2), ("test", 20, 3)]:
        write(folder / "data" / f"{name}-v{request.param}.json", stories(num, seed, request.param))
    config = quick(epochs=4, learning_rates=(2e-3,))
    summary = finetune("squad", folder / "data", checkpoint, folder / "run", config)
    return request.param, folder / "data", folder / "run", summary


@pytest.mark.slow
def test_it_learns_and_evaluates_as_in_training(trained):
    version, data, output, summary = trained
    best = summary["best"]["scores"]
    metric = {"1.1": "f1", "2.0": "best_f1"}[version]
    assert summary["metric"] == metric
    assert best[metric] > 80 > 2 * summary["baseline"][metric]
    measured = evaluate_task(output, data, "cpu")
    assert measured["examples"] == 40
    assert {name: measured[name] for name in best} == best
    if version == "2.0":
        assert measured["f1"] == pytest.approx(measured["best_f1"])


def test_transformers_gives_the_same_logits_and_the_answers_are_in_the_passage(trained, tmp_path):
    version, data, output, _ = trained
    model, info = transformers.AutoModelForQuestionAnswering.from_pretrained(
        output, output_loading_info=True
    )
    assert not any(info.values())  # nothing is missing or unused, so it prints nothing
    model.eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(output)
    assert type(model).__name__ == "BertForQuestionAnswering"
    passages = {
        each.id: each
        for each in read_questions(data / f"test-v{version}.json", labelled=False).questions
    }
    assert predict(output, data / f"test-v{version}.json", tmp_path / "out.jsonl", "cpu") == 20
    num_compared = 0
    for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines():
        answer = json.loads(line)
        example = passages[answer["id"]]
        if answer["answer"]:
            assert example.passage.startswith(answer["answer"], answer["start"])
        encoded = tokenizer(example.text, example.passage, return_tensors="pt")
        if encoded["input_ids"].shape[1] > 48:
            continue
        with torch.inference_mode():
            logits = model(**encoded)
        starts, ends = logits.start_logits[0], logits.end_logits[0]
        # The best pair of the whole passage is the first that is no empty answer; a separator ends
        # the row.
        sums = (starts[:, None] + ends[None, :])[6:-1, 6:-1]
        allowed = torch.ones_like(sums).triu().tril(29).bool()
        best = next(each for each in answer["n_best"] if each["text"])
        assert best["start_logit"] + best["end_logit"] == pytest.approx(
            sums[allowed].max().item(), abs=1e-4
        )
        if version == "2.0":
            odds = (starts[0] + ends[0]).item() - best["start_logit"] - best["end_logit"]
            assert answer["null_odds"] == pytest.approx(odds, abs=1e-4)
        num_compared += 1
    assert num_compared > 5


def test_plain_text_and_bad_lines(trained, tmp_path):
    output = trained[2]
    write(tmp_path / "a.txt", "the film is?\tthe book was b very good\n")
    assert predict(output, tmp_path / "a.txt", tmp_path / "out.json", "cpu") == 1
    (answer,) = json.loads((tmp_path / "out.json").read_text())
    assert (answer["id"], answer["answer"]) == (f"{tmp_path / 'a.txt'}, line 1", "b")
    write(tmp_path / "a.txt", "no tab\n")
    with pytest.raises(
        UserError, match="line 1: write a question and a passage, separated by one tab"
    ):
        predict(output, tmp_path / "a.txt", tmp_path / "out.json", "cpu")


@needs_shared_data
@pytest.mark.parametrize("source", [VERSION_1, VERSION_2], ids=["1.1", "2.0"])
def test_every_answer_of_the_official_files_is_found_again(source):
    version, questions, _ = read_questions(source, labelled=True)
    assert (version, len(questions)) in [("1.1", 11877), ("2.0", 4719)]
    assert sum(not each.answers for each in questions) == (348 if version == "2.0" else 0)
    assert all(each.located_answer for each in questions if each.answers)


@needs_shared_data
@pytest.mark.parametrize("source", [VERSION_1, VERSION_2], ids=["1.1", "2.0"])
def test_slices_of_the_official_files_end_to_end(source, checkpoint, tmp_path):
    content = json.loads(source.read_text(encoding="utf-8"))
    for name, article in [("train", 0), ("dev", 1)]:
        part = content["data"][article]
        write(
            tmp_path / "data" / f"{name}.json",
            {**content, "data": [{**part, "paragraphs": part["paragraphs"][:2]}]},
        )
    config = quick(epochs=0.1, max_length=64, learning_rates=(1e-3,))
    summary = finetune("squad", tmp_path / "data", checkpoint, tmp_path / "run", config)
    dev = tmp_path / "data" / "dev.json"
    assert predict(tmp_path / "run", dev, tmp_path / "out.tsv", "cpu") == summary["dev_examples"]


def hub_rows(source: Path) -> list[dict[str, Any]]:
    """Return the questions of an official file as the Hub has them: ``rajpurkar/squad``."""
    rows = []
    for article in json.loads(source.read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            for record in paragraph["qas"]:
                answers = {
                    name: [answer[name] for answer in record["answers"]]
                    for name in ("text", "answer_start")
                }
                rows.append(
                    {
                        "id": record["id"],
                        "title": article["title"],
                        "context": paragraph["context"],
                        "question": record["question"],
                        "answers": answers,
                    }
                )
    return rows


@needs_shared_data
@pytest.mark.slow
@pytest.mark.parametrize("source", [VERSION_1, VERSION_2], ids=["1.1", "2.0"])
def test_a_table_and_a_set_of_the_hub_have_the_questions_of_the_official_file(source, tmp_path):
    expected = [each._replace(where="") for each in read_questions(source, True).questions]
    rows = hub_rows(source)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    table = write(tmp_path / "table/train.jsonl", lines)
    saved = datasets.DatasetDict({"train": datasets.Dataset.from_list(rows)})
    saved.save_to_disk(tmp_path / "set")
    for data in (table, f"hf:{tmp_path / 'set'}", f"hf:{tmp_path / 'set'}:train"):
        read = read_data("squad", data, TaskOptions())
        assert read.task == read_squad([source], TaskOptions())
        questions = sorted([*read.train, *read.dev[""]], key=lambda question: question.id)
        assert [each._replace(where="") for each in questions] == sorted(
            expected, key=lambda question: question.id
        )
    assert len(list(read.task.read(table, labelled=False))) == len(expected)


def test_rows_that_are_no_questions_are_named(tmp_path):
    row = {"id": "1", "question": "who?", "context": "the film"}
    path = write(tmp_path / "a.jsonl", json.dumps(row) + "\n")
    assert len(read_questions(path, labelled=False).questions) == 1
    with pytest.raises(UserError, match=r"a\.jsonl, line 1 has no column answers"):
        read_questions(path, labelled=True)
    write(path, json.dumps({**row, "context": 3}) + "\n")
    with pytest.raises(UserError, match=r"line 1 is not a question as in SQuAD .*context"):
        read_questions(path, labelled=False)


def test_questions_without_answers_are_left_out_of_squad_1_and_counted(tmp_path, capsys):
    content = squad_json(qa(), {"id": "6", "question": "who?", "answers": []}, version="1.1")
    path = write(tmp_path / "a.json", content)
    task = Squad(version="1.1")
    assert [question.id for question in task.read(path, labelled=True)] == ["1"]
    assert (
        f"{path}: left out 1 of 2 questions (without answers, which only SQuAD 2.0 has); the "
        f"first: {path}, question 6."
    ) in capsys.readouterr().err
    assert len(list(task.read(path, labelled=False))) == 2
