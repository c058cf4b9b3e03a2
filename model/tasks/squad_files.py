"""Read the official JSON of SQuAD: questions, each with its passage and answers."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple

from ...pipeline.errors import UserError
from .tables import check_file, check_text, listed, shown

MIN_ARTICLES = 10
"""With at least so many, whole articles are held out for development; with fewer, single passages."""

_KINDS = {str: "text", list: "a list", int: "a whole number", str | int: "text or a whole number"}


class GoldAnswer(NamedTuple):
    """A gold answer."""

    text: str
    start: int
    """Index of its first character in the passage."""


class Question(NamedTuple):
    """A question on a passage."""

    where: str
    """File and id, or file and line: for messages."""
    id: str
    text: str
    passage: str
    group: str
    """The title of its article, or the passage itself in a file of few articles."""
    answers: tuple[GoldAnswer, ...] | None
    """None if not read; empty if the question has none."""

    @property
    def located_answer(self) -> GoldAnswer | None:
        """The first answer that is at its ``answer_start`` in the passage."""
        return next((answer for answer in self.answers or () if _is_located(answer, self.passage)), None)


class QuestionFile(NamedTuple):
    """A file's questions."""

    version: str | None
    """``2.0``, ``1.1``, or None if unknown."""
    questions: list[Question]


def read_questions(path: Path, labelled: bool) -> QuestionFile:
    """Return the questions of a SQuAD file in order.

    It is SQuAD 2.0 if its version says so or a question is marked as impossible. Raises `UserError`, naming the file
    and the question or paragraph, for a missing field, one of the wrong type, or a repeated id.
    """
    content = _read_json(path)
    articles = _field(content, "data", list, str(path))
    titles = {str(article.get("title")) for article in articles if isinstance(article, dict)}
    questions: list[Question] = []
    impossible = False
    for where, title, paragraph in _paragraphs(articles, str(path)):
        passage = _text(paragraph, "context", where)
        group = title if len(titles) >= MIN_ARTICLES else passage
        for number, record in enumerate(_field(paragraph, "qas", list, where), 1):
            questions.append(_question(record, passage, group, (path, f"{where}, question {number}"), labelled))
            impossible = impossible or record.get("is_impossible") is True
    _check_ids(questions)
    return QuestionFile("2.0" if impossible else _version(content), questions)


def _read_json(path: Path) -> Any:
    check_file(path)
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8; convert the file.") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not valid JSON: {error}.") from None


def _paragraphs(articles: list[Any], file: str) -> Iterator[tuple[str, str, Any]]:
    for number, article in enumerate(articles, 1):
        where = f"{file}, article {number}"
        records = _field(article, "paragraphs", list, where)
        title = check_text(str(article.get("title")), f"{where}: title")
        for index, paragraph in enumerate(records, 1):
            yield f"{where}, paragraph {index}", title, paragraph


def _question(record: Any, passage: str, group: str, source: tuple[Path, str], labelled: bool) -> Question:
    """Return the question in `record`; `source` is its file, and its location for errors until its id is known."""
    path, where = source
    question_id = check_text(str(_field(record, "id", str | int, where)), f"{where}: id")
    where = f"{path}, question {question_id}"
    answers = _answers(record, where) if labelled else None
    return Question(where, question_id, _text(record, "question", where), passage, group, answers)


def _answers(record: dict[str, Any], where: str) -> tuple[GoldAnswer, ...]:
    records = _field(record, "answers", list, where)
    if record.get("is_impossible") is True and records:
        raise UserError(f"{where} is marked as impossible but has answers; fix one of the two.")
    return tuple(GoldAnswer(_text(each, "text", where), _field(each, "answer_start", int, where)) for each in records)


def _text(record: Any, name: str, where: str) -> str:
    return check_text(_field(record, name, str, where), f"{where}: {name}")


def _field(record: Any, name: str, kind: type | UnionType, where: str) -> Any:
    if not isinstance(record, dict):
        raise UserError(f"{where} is not a JSON object; use the official format of SQuAD.")
    if name not in record:
        raise UserError(f"{where} has no {name}, only {listed(record) or 'nothing'}.")
    value = record[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise UserError(f"{where}: {name} is {shown(value)}, not {_KINDS[kind]}.")
    return value


def _check_ids(questions: list[Question]) -> None:
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise UserError(f"{question.where} occurs twice; predictions are keyed by id, so ids must be unique.")
        seen.add(question.id)


def _version(content: dict[str, Any]) -> str | None:
    number = str(content.get("version", "")).lower().removeprefix("v")
    return {"1": "1.1", "2": "2.0"}.get(number[:1])


def _is_located(answer: GoldAnswer, passage: str) -> bool:
    return bool(answer.text) and answer.start >= 0 and passage.startswith(answer.text, answer.start)
