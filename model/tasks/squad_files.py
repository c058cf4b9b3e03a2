"""Read the official JSON of SQuAD, or a table with a question per row, as on the Hub."""

from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from ...pipeline.errors import UserError
from ...pipeline.parsing import convert_values, decode_json, describe_fault
from .tables import check_file, is_hub, read_rows

MIN_ARTICLES = 10
"""With this many, whole articles are held out for development; with fewer, single passages."""
Version = Literal["1.1", "2.0"]
_VERSIONS: dict[str, Version] = {"1": "1.1", "2": "2.0"}
_UTF8_BOM = b"\xef\xbb\xbf"
TABLES = (".jsonl", ".parquet")


class GoldAnswer(Struct, frozen=True):
    """A gold answer."""

    text: str
    answer_start: int
    """Index of its first character in the passage."""

    def is_located(self, passage: str) -> bool:
        """Return whether the passage has the text there."""
        if not self.text or self.answer_start < 0:
            return False
        return passage.startswith(self.text, self.answer_start)


# The fields of a file that are used, whose types msgspec checks. No file is refused for the type of
# a field that is `Any`: little depends on it.
#
#     {"version": "1.1", "data": [                                       _SquadFile
#       {"title": "...", "paragraphs": [                                 _Article
#         {"context": "the passage", "qas": [                            _Paragraph
#           {"id": "...", "question": "...",                             _Record
#            "answers": [{"text": "...", "answer_start": 4}]}]}]}]}      GoldAnswer


class _Record(Struct, kw_only=True):
    id: str | int
    question: str
    answers: tuple[GoldAnswer, ...] | None = None
    is_impossible: Any = False


class _Paragraph(Struct):
    context: str
    qas: list[_Record]


class _Article(Struct):
    paragraphs: list[_Paragraph]
    title: Any = None


class _SquadFile(Struct):
    data: list[_Article]
    version: Any = ""


class _RowAnswers(Struct):
    text: list[str]
    answer_start: list[int]


class _Row(Struct, kw_only=True):
    id: str | int
    question: str
    context: str
    title: Any = None
    answers: _RowAnswers | None = None


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
            if answer.is_located(self.passage):
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
    """Return the questions of a SQuAD file, or of a table of such questions, in order.

    It is SQuAD 2.0 if its version says so or a question is marked as impossible. Raises `UserError`
    naming the file and the field that is missing or of the wrong type, or the question whose id is
    repeated.
    """
    if is_hub(path) or path.suffix.lower() in TABLES:
        content = _read_table(path)
    else:
        check_file(path)
        try:
            content = decode_json(path.read_bytes().removeprefix(_UTF8_BOM), _SquadFile)
        except (ValueError, RecursionError) as error:
            raise UserError(
                f"{path} is not in the official format of SQuAD ({describe_fault(error)})."
            ) from None
    # Questions on one article are alike, so they must not be both trained on and held out.
    groups_are_articles = len({str(article.title) for article in content.data}) >= MIN_ARTICLES
    # "1.1" and "v2.0" in SQuAD, "KorQuAD_v1.0_train" in KorQuAD, whose version is left unknown.
    name_and_version = str(content.version).lower()
    version = _VERSIONS.get(name_and_version.removeprefix("v")[:1])
    questions: dict[str, Question] = {}
    for article in content.data:
        for passage in article.paragraphs:
            group = str(article.title) if groups_are_articles else passage.context
            for record in passage.qas:
                where = f"{path}, question {record.id}"
                answers = None
                if labelled:
                    answers = record.answers
                    if answers is None:
                        raise UserError(f"{where} has no field answers.")
                if record.is_impossible is True:
                    version = "2.0"
                    if answers:
                        raise UserError(
                            f"{where} is marked as impossible but has answers; fix one of the two."
                        )
                question = Question(
                    where, str(record.id), record.question, passage.context, group, answers
                )
                if question.id in questions:
                    raise UserError(
                        f"{where} occurs twice; predictions are keyed by id, so ids must be unique."
                    )
                questions[question.id] = question
    is_korquad = name_and_version.startswith("korquad")
    return QuestionFile(version, list(questions.values()), is_korquad)


def _read_table(path: Path) -> _SquadFile:
    """Return a table's rows as the file that they were made from; SQuAD 2.0 has questions without
    answers.
    """
    articles: list[_Article] = []
    has_silence = False
    for row in read_rows(path):
        try:
            values = convert_values(row.values, _Row)
        except ValueError as error:
            raise UserError(
                f"{row.where} is not a question as in SQuAD ({describe_fault(error)})."
            ) from None
        record = _Record(id=values.id, question=values.question)
        if values.answers is not None:
            texts = values.answers.text
            starts = values.answers.answer_start
            if len(texts) != len(starts):
                raise UserError(f"{row.where}: {len(texts)} answers have {len(starts)} starts.")
            record.answers = tuple(map(GoldAnswer, texts, starts))
            has_silence = has_silence or not texts
        articles.append(_Article([_Paragraph(values.context, [record])], values.title))
    return _SquadFile(articles, version="2.0" if has_silence else "")
