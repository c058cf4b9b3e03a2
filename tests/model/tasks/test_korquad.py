"""KorQuAD: Korean questions in the form of SQuAD 1.1, with a metric that normalises otherwise and
counts characters.

Expected values are worked out by hand from the rules of KorQuAD 1.0's ``evaluate-v1.0.py``. The
passages are sentences of the Korean Wikipedia (CC BY-SA).
"""

from typing import Any

import pytest
from clozeworks.model.tasks.options import TaskOptions
from clozeworks.model.tasks.squad import Squad, squad_task
from clozeworks.model.tasks.squad_metrics import (
    exact_match,
    normalize_answer,
    overlap_f1,
    question_scores,
    squad_scores,
)

from tests.fixtures.task_files import write

CARTER = (
    "지미 카터는 조지아주 섬터 카운티 플레인스 마을에서 태어났다. 조지아 공과대학교를 졸업하였다."
)
CHOSUN = "《조선일보》(朝鮮日報)는 1920년 3월 5일에 창간되었다."
QUESTIONS = [
    (CARTER, "지미 카터가 졸업한 학교는?", "조지아 공과대학교"),
    (CHOSUN, "조선일보가 창간된 날은?", "1920년 3월 5일"),
]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("《조선일보》(朝鮮日報)", "조선일보 朝鮮日報"),
        ("가'나\"다(라)마<바>사〈아〉자《차》카‘타’파", "가 나 다 라 마 바 사 아 자 차 카 타 파"),
        # Other punctuation disappears without leaving a space: that of ASCII. The rest stays.
        ("1,000-2,000", "10002000"),
        ("“인용”·『책』", "“인용”·『책』"),
        ("The IBM PC", "the ibm pc"),
    ],
)
def test_answers_are_normalised_as_in_korquads_script(text, expected):
    assert normalize_answer(text, "korquad") == expected
    other: Any = "korquard"
    with pytest.raises(ValueError, match="no script 'korquard'"):
        normalize_answer(text, other)


@pytest.mark.parametrize(
    "prediction, gold, exact, f1, english_f1",
    [
        ("조지아 공과대학교", "조지아 공과대학교", 1, 1, 1),
        # A particle costs one character of nine, in English the word.
        ("조지아 공과대학교를", "조지아 공과대학교", 0, 2 * (8 / 9) * 1 / (8 / 9 + 1), 1 / 2),
        ("플레인스 마을에서", "플레인스", 0, 2 * (4 / 8) * 1 / (4 / 8 + 1), 2 / 3),
        # Spaces do not count in F1, but in the exact match.
        ("1920년3월5일", "1920년 3월 5일", 0, 1, 0),
        ("조선일보(朝鮮日報)", "조선일보 朝鮮日報", 1, 1, 0),
        # Characters count as often as they occur.
        ("가가나", "가나나", 0, 2 / 3, 0),
        ("《》", "()", 1, 0, 0),
    ],
)
def test_exact_match_and_f1_of_one_answer(prediction, gold, exact, f1, english_f1):
    assert exact_match(prediction, gold, "korquad") == exact
    assert overlap_f1(prediction, gold, metric="korquad") == pytest.approx(f1)
    assert overlap_f1(prediction, gold) == pytest.approx(english_f1)


def test_the_best_gold_answer_counts_for_each_metric_on_its_own():
    predictions = ["조지아 공과대학교를", "《조선일보》"]
    golds = [["공과대학교", "조지아 공과대학교"], ["조선일보"]]
    scores = squad_scores(predictions, golds, "1.1", "korquad")
    assert scores == {"f1": pytest.approx(100 * (16 / 17 + 1) / 2), "exact_match": 50.0}
    found = question_scores(["《독일》", ""], [["독일"], []], "2.0", "korquad")
    assert found == ([1.0, 1.0], [1.0, 1.0])


def korquad(*questions: tuple[str, str, str], version: str = "KorQuAD_v1.0_dev") -> dict[str, Any]:
    paragraphs = []
    for number, (passage, text, answer) in enumerate(questions):
        answers = [{"text": answer, "answer_start": passage.index(answer)}]
        qas = [{"id": f"{number}-0-0", "question": text, "answers": answers}]
        paragraphs.append({"context": passage, "qas": qas})
    return {"version": version, "data": [{"title": "위키백과", "paragraphs": paragraphs}]}


def test_the_metric_is_that_of_the_file(tmp_path):
    korean = write(
        tmp_path / "KorQuAD_v1.0_train.json", korquad(*QUESTIONS, version="KorQuAD_v1.0_train")
    )
    other = write(tmp_path / "train.json", korquad(*QUESTIONS, version="1.1"))
    for files, metric in (([korean], "korquad"), ([other], "squad"), ([korean, other], "squad")):
        task = squad_task(files, TaskOptions())
        assert (task.version, task.metric) == ("1.1", metric)
    assert Squad(version="1.1").variant == "1.1"
    assert Squad(version="2.0", metric="korquad").variant == "2.0 korquad"
