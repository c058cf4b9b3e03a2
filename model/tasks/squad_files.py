"""Read the official JSON of SQuAD, or a table with a question per row, as on the Hub."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from ...pipeline.errors import UserError
from ...pipeline.parsing import convert_values, decode_json, describe_fault
from .example_tables import check_file, is_hub, read_rows
from .squad_metrics import Version

_UTF8_BOM = b"\xef\xbb\xbf"
TABLES = (".jsonl", ".parquet")


class GoldAnswer(Struct, frozen=True):
    """A gold answer."""

    text: str
    answer_start: int
    """Index of its first character in the passage."""


# The fields of a file that are used, whose types msgspec checks. No file is refused for the type of
# a field that is `Any`: little depends on it.
#
#     {"version": "1.1", "data": [                                       _SquadFile
#       {"title": "...", "paragraphs": [                                 _Article
#         {"context": "the passage", "qas": [                            _Paragraph
#           {"id": "...", "question": "...",                             _Record
#            "answers": [{"text": "...", "answer_start": 4}]}]}]}]}      GoldAnswer
#
# In a table each row has all of it, and lists of the answers' texts and starts.


class _RowAnswers(Struct):
    text: list[str]
    answer_start: list[int]


class _Record(Struct, kw_only=True):
    id: str | int
    question: str
    answers: tuple[GoldAnswer, ...] | _RowAnswers | None = None
    is_impossible: Any = False
    title: Any = None
    context: str = ""


class _Paragraph(Struct):
    context: str
    qas: list[_Record]


class _Article(Struct):
    paragraphs: list[_Paragraph]
    title: Any = None


class _SquadFile(Struct):
    data: list[_Article]
    version: Any = ""


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
        for answer in self.answers or ():
            start = answer.answer_start
            if answer.text and start >= 0 and self.passage.startswith(answer.text, start):
                return answer
        return None


class QuestionFile(NamedTuple):
    """A file's questions."""

    version: Version | None
    """None if unknown."""
    questions: list[Question]
    is_korquad: bool = False
    """Whether its version names KorQuAD, which has the form of SQuAD 1.1."""


def read_questions(path: Path, labelled: bool) -> QuestionFile:
    """Return the questions of a SQuAD file or a table. It is SQuAD 2.0 if its version says so, a
    question is marked as impossible, or one of a table has no answers.
    """
    name = ""
    if is_hub(path) or path.suffix.lower() in TABLES:
        records = list(_table_records(path))
    else:
        check_file(path)
        try:
            content = decode_json(path.read_bytes().removeprefix(_UTF8_BOM), _SquadFile)
        except (ValueError, RecursionError) as error:
            raise UserError(
                f"{path} is not in the official format of SQuAD ({describe_fault(error)})."
            ) from None
        name = str(content.version).lower()
        records: list[_Record] = []
        for article in content.data:
            for passage in article.paragraphs:
                for record in passage.qas:
                    record.title = article.title
                    record.context = passage.context
                    records.append(record)
    # Questions on one article are alike, so they must not be both trained on and held out. A tenth
    # is held out, so of fewer than ten articles it is single passages.
    groups_are_articles = len({str(record.title) for record in records}) >= 10
    # "1.1" and "v2.0" in SQuAD, "KorQuAD_v1.0_train" in KorQuAD, whose version is left unknown.
    versions: dict[str, Version] = {"1": "1.1", "2": "2.0"}
    version = versions.get(name.removeprefix("v")[:1])
    questions: dict[str, Question] = {}
    for record in records:
        where = f"{path}, question {record.id}"
        answers = record.answers
        if isinstance(answers, _RowAnswers):
            if len(answers.text) != len(answers.answer_start):
                raise UserError(f"{where} does not have a start for each answer.")
            answers = tuple(map(GoldAnswer, answers.text, answers.answer_start))
            if not answers:
                version = "2.0"
        if labelled and answers is None:
            raise UserError(f"{where} has no field answers.")
        if record.is_impossible is True:
            version = "2.0"
            if labelled and answers:
                raise UserError(
                    f"{where} is marked as impossible but has answers; fix one of the two."
                )
        question_id = str(record.id)
        if question_id in questions:
            raise UserError(
                f"{where} occurs twice; predictions are keyed by id, so ids must be unique."
            )
        questions[question_id] = Question(
            where=where,
            id=question_id,
            text=record.question,
            passage=record.context,
            group=str(record.title) if groups_are_articles else record.context,
            answers=answers if labelled else None,
        )
    return QuestionFile(version, list(questions.values()), name.startswith("korquad"))


def _table_records(path: Path) -> Iterator[_Record]:
    for row in read_rows(path):
        try:
            record = convert_values(row.values, _Record)
        except ValueError as error:
            raise UserError(
                f"{row.where} is not a question as in SQuAD ({describe_fault(error)})."
            ) from None
        record.context = row.text("context")  # the field's default is for official files
        yield record
