"""The files of SQuAD, and tables of its questions."""

import json
from pathlib import Path
from typing import Any

import datasets
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
    assert (task.max_length, task.stride, task.max_question_length, task.max_answer_length) == (
        384,
        99,
        64,
        30,
    )
    assert restore_task(json.loads(json.dumps(task.settings()))) == task
    with pytest.raises(UserError, match="`stride` is for classify, squad; mrpc does not take it"):
        check_task("mrpc", TaskOptions(stride=7))
    with pytest.raises(UserError, match="`stride` is 0: expected int >= 1"):
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
        ({"version": "1.1"}, "(object missing required field data)"),
        (
            broken(lambda _, paragraph, __: paragraph.update(context=3)),
            "paragraphs[0].context: expected str, got int",
        ),
        (broken(lambda *parts: parts[2][0].pop("id")), f"({QA}: object missing required field id)"),
        (
            broken(lambda *parts: parts[2][0].pop("answers")),
            "a.json, question 1 has no field answers",
        ),
        (squad_json(qa(start="4")), f"({QA}.answers[0].answer_start: expected int, got str)"),  # type: ignore
        (squad_json({**qa(), "id": "\ud83d"}), "unexpected end of escaped utf-16 surrogate pair"),
        ("[" * 100_000, "a.json is not in the official format of SQuAD"),
        (squad_json(qa(), qa()), "a.json, question 1 occurs twice"),
        (
            squad_json(qa(), qa(5, is_impossible=True)),
            "a.json, question 5 is marked as impossible but has answers",
        ),
        (
            squad_json({**qa(6), "answers": []}),
            "1 of 1 questions have no answers, which only SQuAD 2.0 allows",
        ),
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
        assert read.task == squad_task([source], TaskOptions())
        questions = sorted([*read.train, *read.dev[""]], key=lambda question: question.id)
        assert [each._replace(where="") for each in questions] == sorted(
            expected, key=lambda question: question.id
        )
    assert len(list(read.task.read(table, labelled=False))) == len(expected)


def test_rows_that_are_no_questions_are_named(tmp_path):
    row = {"id": "1", "question": "who?", "context": "the film"}
    path = write(tmp_path / "a.jsonl", json.dumps(row) + "\n")
    assert len(read_questions(path, labelled=False).questions) == 1
    with pytest.raises(UserError, match=r"a\.jsonl, question 1 has no field answers"):
        read_questions(path, labelled=True)
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
