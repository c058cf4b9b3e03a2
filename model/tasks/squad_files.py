"""Read the official JSON of SQuAD: questions, each with its passage and answers. Tables with a
question per row, as on the Hub (`_QuestionRow`), are read too.

The structs below have the fields of the file that are used, and msgspec checks their types::

    {"version": "1.1", "data": [                                       _SquadFile
      {"title": "...", "paragraphs": [                                 _Article
        {"context": "the passage", "qas": [                            _Paragraph
          {"id": "...", "question": "...",                             _FileQuestion
           "answers": [{"text": "...", "answer_start": 4}]}]}]}]}      GoldAnswer
"""

from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

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


# No file is refused for the type of a field that is `Any`: little depends on it.


class _FileQuestion(Struct, kw_only=True):
    id: str | int
    question: str
    is_impossible: Any = False


# Apart, so that a file without answers is an error in training, but not in prediction.
class _LabelledQuestion(_FileQuestion, kw_only=True):
    answers: tuple[GoldAnswer, ...]


_Q = TypeVar("_Q", bound=_FileQuestion)


class _Paragraph(Struct, Generic[_Q]):
    context: str
    qas: list[_Q]


class _Article(Struct, Generic[_Q]):
    paragraphs: list[_Paragraph[_Q]]
    title: Any = None


class _SquadFile(Struct, Generic[_Q]):
    data: list[_Article[_Q]]
    version: Any = ""


class _RowAnswers(Struct):
    text: list[str]
    answer_start: list[int]


class _QuestionRow(Struct, kw_only=True):
    """A row of a table, as the Hub has SQuAD::

    id, title, context, question, answers: {"text": ["..."], "answer_start": [4]}
    """

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
        content = _parse_rows(path, labelled)
    else:
        check_file(path)
        content = _parse(path, labelled)
    # Questions on one article are alike, so they must not be both trained on and held out.
    titles = {str(article.title) for article in content.data}
    groups_are_articles = len(titles) >= MIN_ARTICLES
    # "1.1" and "v2.0" in SQuAD, "KorQuAD_v1.0_train" in KorQuAD, whose version is left unknown.
    name_and_version = str(content.version).lower()
    version = _VERSIONS.get(name_and_version.removeprefix("v")[:1])
    questions: dict[str, Question] = {}
    for article in content.data:
        for paragraph in article.paragraphs:
            passage = paragraph.context
            group = passage
            if groups_are_articles:
                group = str(article.title)
            for record in paragraph.qas:
                question = _question(record, passage, group, path)
                if record.is_impossible is True:
                    version = "2.0"
                if question.id in questions:
                    raise UserError(
                        f"{question.where} occurs twice; predictions are keyed by id, so ids must "
                        "be unique."
                    )
                questions[question.id] = question
    is_korquad = name_and_version.startswith("korquad")
    return QuestionFile(version, list(questions.values()), is_korquad)


def _parse(path: Path, labelled: bool) -> _SquadFile[_FileQuestion]:
    kind: Any = _SquadFile[_FileQuestion]
    if labelled:
        kind = _SquadFile[_LabelledQuestion]
    content = path.read_bytes().removeprefix(_UTF8_BOM)
    try:
        return decode_json(content, kind)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{path} is not in the official format of SQuAD ({describe_fault(error)})."
        ) from None


def _parse_rows(path: Path, labelled: bool) -> _SquadFile[_FileQuestion]:
    """Return a table's rows as the file that they were made from; SQuAD 2.0 has questions without
    answers.
    """
    articles: list[_Article[_FileQuestion]] = []
    has_silence = False
    for row in read_rows(path):
        try:
            values = convert_values(row.values, _QuestionRow)
        except ValueError as error:
            raise UserError(
                f"{row.where} is not a question as in SQuAD ({describe_fault(error)})."
            ) from None
        question = _FileQuestion(id=values.id, question=values.question)
        if labelled:
            if values.answers is None:
                raise UserError(f"{row.where} has no column answers.")
            texts = values.answers.text
            starts = values.answers.answer_start
            if len(texts) != len(starts):
                raise UserError(f"{row.where}: {len(texts)} answers have {len(starts)} starts.")
            answers = map(GoldAnswer, texts, starts)
            question = _LabelledQuestion(
                id=values.id, question=values.question, answers=tuple(answers)
            )
            has_silence = has_silence or not question.answers
        articles.append(_Article([_Paragraph(values.context, [question])], values.title))
    return _SquadFile(articles, version="2.0" if has_silence else "")


def _question(record: _FileQuestion, passage: str, group: str, path: Path) -> Question:
    where = f"{path}, question {record.id}"
    answers = None
    if isinstance(record, _LabelledQuestion):
        answers = record.answers
    if record.is_impossible is True and answers:
        raise UserError(f"{where} is marked as impossible but has answers; fix one of the two.")
    return Question(where, str(record.id), record.question, passage, group, answers)
