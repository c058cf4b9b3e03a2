"""The files of SQuAD, and tables of its questions."""

import json
from typing import Any

import pytest
from clozeworks.model.finetuning.config import FinetuneConfig
from clozeworks.model.tasks.catalogue import restore_task
from clozeworks.model.tasks.options import TaskOptions, check_task
from clozeworks.model.tasks.splits import read_data
from clozeworks.model.tasks.squad import Squad, squad_task
from clozeworks.model.tasks.squad_files import GoldAnswer, Question, read_questions
from clozeworks.model.tasks.task import read_labelled
from clozeworks.pipeline.errors import UserError

from tests.fixtures.shared_data import needs_shared_data
from tests.fixtures.squad_fixture import VERSION_1, VERSION_2, qa, squad_json
from tests.fixtures.task_files import write

IMPOSSIBLE = {"id": "9", "question": "who?", "answers": [], "is_impossible": True}


def test_questions_come_with_passage_answers_and_location(tmp_path):
    path = write(tmp_path / "a.json", squad_json(qa(), qa(2, "good", 13), version="1.1"))
    version, (first, second), _ = read_questions(path, labelled=True)
    assert version == "1.1"
    passage, answers = "the film was good", (GoldAnswer("film", 4),)
    assert first == Question(f"{path}, question 1", "1", "what was?", passage, passage, answers)
    assert second.located_answer == GoldAnswer("good", 13)
    assert read_questions(path, labelled=False).questions[0].answers is None
    write(path, squad_json({"id": 7, "question": "who?"}))
    assert [each.id for each in Squad(version="1.1").read(path, labelled=False)] == ["7"]


@pytest.mark.parametrize(
    "content, version",
    [
        (squad_json(qa(), version="1.1"), "1.1"),
        (squad_json(qa(), version="2.0"), "2.0"),
        (squad_json(qa(), IMPOSSIBLE, version=None), "2.0"),
        (squad_json(qa(), IMPOSSIBLE, version="mine"), "2.0"),
        (squad_json(qa(is_impossible=False), version=None), None),
    ],
)
def test_the_version_is_recognised(tmp_path, content, version):
    path = write(tmp_path / "a.json", content)
    assert read_questions(path, labelled=True).version == version
    assert squad_task([path], TaskOptions()).version == (version or "1.1")


def test_each_version_has_its_recipe_and_options_belong_to_squad(tmp_path):
    assert Squad(version="1.1").recipe == (32, 3.0, (5e-5,))
    assert Squad(version="2.0").recipe == (48, 2.0, (5e-5,))
    path = write(tmp_path / "a.json", squad_json(qa()))
    task = squad_task([path], TaskOptions(stride=99))
    assert (task.max_length, task.stride) == (384, 99)
    assert (task.max_question_length, task.max_answer_length) == (64, 30)
    assert restore_task(json.loads(json.dumps(task.settings()))) == task
    with pytest.raises(UserError, match="`stride` is for classify, squad; mrpc does not take it"):
        check_task("mrpc", TaskOptions(stride=7))
    with pytest.raises(UserError, match="`stride` is 0: expected int >= 1"):
        FinetuneConfig(stride=0)


def broken(change: Any) -> dict[str, Any]:
    content = squad_json(qa())
    change(content["data"][0]["paragraphs"][0])
    return content


QA = "data[0].paragraphs[0].qas[0]"


@pytest.mark.parametrize(
    "content, message",
    [
        ('{"data": [', "a.json is not in the official format of SQuAD (input data was truncated)"),
        ({"version": "1.1"}, "(object missing required field data)"),
        (broken(lambda paragraph: paragraph.update(context=3)), "paragraphs[0].context: expected"),
        (
            broken(lambda paragraph: paragraph["qas"][0].pop("id")),
            f"({QA}: object missing required field id)",
        ),
        (broken(lambda paragraph: paragraph["qas"][0].pop("answers")), "a.json, question 1 has no"),
        (squad_json(qa(start="4")), f"({QA}.answers[0].answer_start: expected int, got str)"),  # type: ignore
        (squad_json({**qa(), "id": "\ud83d"}), "unexpected end of escaped utf-16 surrogate pair"),
        ("[" * 100_000, "a.json is not in the official format of SQuAD"),
        (squad_json(qa(), qa()), "a.json, question 1 occurs twice"),
        (squad_json(qa(), qa(5, is_impossible=True)), "a.json, question 5 is marked as impossible"),
        (squad_json({**qa(6), "answers": []}), "1 of 1 questions have no answers, which only"),
        (squad_json(qa(), IMPOSSIBLE), "a.json is SQuAD 2.0, but SQuAD 1.1 is trained"),
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
    with pytest.raises(UserError, match=r"train-v1.1.json is SQuAD 1.1, but SQuAD 2.0 is trained"):
        read_labelled(squad_task([first, second], TaskOptions()), [first, second])
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
        articles = []
        for title in range(num_articles):
            contexts = [f"the film {title} {part}" for part in range(5)]
            qas = [[qa(next(numbers)), qa(next(numbers))] for _ in contexts]
            parts = [{"context": each, "qas": two} for each, two in zip(contexts, qas, strict=True)]
            articles.append({"title": str(title), "paragraphs": parts})
        return {"version": "1.1", "data": articles}

    for num_articles, num_dev in [(10, 10), (3, 4)]:
        data = read_data(
            "squad", write(tmp_path / f"{num_articles}.json", content(num_articles)), TaskOptions()
        )
        dev = {each.passage for each in data.dev[""]}
        assert data.held_out
        assert len(data.dev[""]) == num_dev
        assert not dev & {each.passage for each in data.train}


@needs_shared_data
@pytest.mark.parametrize("source", [VERSION_1, VERSION_2], ids=["1.1", "2.0"])
def test_every_answer_of_the_official_files_is_found_again(source):
    version, questions, _ = read_questions(source, labelled=True)
    assert (version, len(questions)) in [("1.1", 11877), ("2.0", 4719)]
    assert sum(not each.answers for each in questions) == (348 if version == "2.0" else 0)
    assert all(each.located_answer for each in questions if each.answers)


def test_rows_that_are_no_questions_are_named(tmp_path):
    row = {"id": "1", "question": "who?", "context": "the film"}
    path = write(tmp_path / "a.jsonl", json.dumps(row) + "\n")
    assert len(read_questions(path, labelled=False).questions) == 1
    with pytest.raises(UserError, match=r"a\.jsonl, question 1 has no field answers"):
        read_questions(path, labelled=True)
    write(path, json.dumps({**row, "answers": {"text": ["film"], "answer_start": [4]}}) + "\n")
    assert read_questions(path, labelled=True).questions[0].answers == (GoldAnswer("film", 4),)
    write(path, json.dumps({**row, "answers": {"text": ["a", "b"], "answer_start": [4]}}) + "\n")
    with pytest.raises(UserError, match="question 1 does not have a start for each answer"):
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
        f"{path}: left out, as 1 of 2 questions have no answers, which only SQuAD 2.0 allows; the "
        f"first: {path}, question 6."
    ) in capsys.readouterr().err
    assert len(list(task.read(path, labelled=False))) == 2
