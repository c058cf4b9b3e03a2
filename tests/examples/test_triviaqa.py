"""TriviaQA's own files: the beginnings of documents with an answer, as in the paper's footnote."""

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from clozeworks.model.tasks.options import TaskOptions
from clozeworks.model.tasks.splits import read_data
from clozeworks.model.tasks.squad import squad_task
from triviaqa import NUM_TOKENS, convert, main

# In the form of qa/wikipedia-train.json.
QUESTION: dict[str, Any] = {
    "Answer": {
        "Aliases": ["Sunset Blvd", "Sunset Boulevard"],
        "MatchedWikiEntityName": "Sunset Boulevard",
        "NormalizedAliases": ["sunset blvd", "sunset boulevard"],
        "NormalizedMatchedWikiEntityName": "sunset boulevard",
        "NormalizedValue": "sunset boulevard",
        "Type": "WikipediaEntity",
        "Value": "Sunset Boulevard",
    },
    "EntityPages": [
        {"DocSource": "TagMe", "Filename": f"{name}.txt", "Title": name}
        for name in ("Sunset", "Late", "Missing")
    ],
    "Question": "Which Lloyd Webber musical premiered in the US on 10th December 1993?",
    "QuestionId": "tc_33",
    "QuestionSource": "http://www.triviacountry.com/",
    "SearchResults": [],
}
TEXT = "The musical\n\nSUNSET  boulevards (not it) and sunset boulevard, which opened.\n"


@pytest.fixture
def folder(tmp_path) -> Path:
    evidence = tmp_path / "evidence" / "wikipedia"
    evidence.mkdir(parents=True)
    (evidence / "Sunset.txt").write_text(TEXT + "word " * 500)
    (evidence / "Late.txt").write_text("word " * NUM_TOKENS + "Sunset Boulevard")
    content = {"Data": [QUESTION], "Domain": "Wikipedia", "Split": "train", "Version": 1.0}
    (tmp_path / "qa").mkdir()
    (tmp_path / "qa/wikipedia-train.json").write_text(json.dumps(content))
    return tmp_path


def converted(path: Path, *options: str) -> str:
    output = path.parent.parent / "squad" / path.name
    result = CliRunner().invoke(main, [str(path), "--output", str(output), *options])
    assert result.exit_code == 0, result.output
    return result.output


def test_documents_whose_beginning_has_an_answer_are_passages(folder):
    printed = converted(folder / "qa/wikipedia-train.json")
    path = folder / "squad/wikipedia-train.json"
    task = squad_task([path], TaskOptions())
    assert task.version == "1.1"
    (question,) = task.read(path, labelled=True)
    assert question.id == "tc_33:Sunset.txt"
    assert len(question.passage.split()) == NUM_TOKENS
    answer = question.located_answer
    assert answer is not None
    # Whole words, in any case; the alias with a period and the plural before it are not meant.
    assert (answer.text, answer.answer_start) == ("sunset boulevard", TEXT.index("sunset"))
    assert task.truth(question) == ["sunset boulevard", "Sunset Blvd"]
    expected = "1 of 3 documents have an answer in their first 400 tokens; 1 have no file.\n"
    assert printed == expected
    converted(folder / "qa/wikipedia-train.json", "--all")
    ids = [question.id for question in task.read(path, labelled=False)]
    assert ids == ["tc_33:Sunset.txt", "tc_33:Late.txt"]


def test_a_questions_documents_stay_together_and_mistakes_are_named(folder):
    other = {**QUESTION, "QuestionId": "tc_34", "EntityPages": QUESTION["EntityPages"][:1]}
    path = folder / "qa/wikipedia-train.json"
    (folder / "evidence/wikipedia/Late.txt").write_text("of Sunset Boulevard")
    path.write_text(json.dumps({"Data": [QUESTION, other]}))
    converted(path)
    data = read_data("squad", folder / "squad", TaskOptions())
    groups = [{question.group for question in part} for part in (data.train, data.dev[""])]
    assert len(data.train) + len(data.dev[""]) == 3
    assert groups[0].isdisjoint(groups[1])
    path.write_text(json.dumps({"Data": [{"EntityPages": 3}]}))
    with pytest.raises(click.ClickException, match=r"is not in TriviaQA's format \(.*EntityPages"):
        convert(path)
    path.write_text(json.dumps({"Data": [QUESTION]}))
    (folder / "evidence").rename(folder / "elsewhere")
    with pytest.raises(click.ClickException, match="unpack evidence/wikipedia beside it"):
        convert(path)
