"""Read TriviaQA's own files (arXiv 1705.03551): questions, and the articles of Wikipedia that are
their evidence.

As in the paper (section 4.2, footnote): the first 400 tokens of each document that contains an
answer are a passage. No person marked the answers in it; the first place of the first alias that is
found is taken (distant supervision)::

    triviaqa-rc/qa/wikipedia-train.json                   questions with answers and file names
    triviaqa-rc/evidence/wikipedia/England.txt            one document
"""

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from ...pipeline.errors import UserError
from ...pipeline.parsing import decode_json, describe_fault
from .tables import notice_once

NUM_TOKENS = 400
"""Between white space, of a document's beginning."""
EVIDENCE = Path("evidence", "wikipedia")
_MARK = b'"EntityPages"'
_TOKEN = re.compile(r"\S+")


class _Answer(Struct, rename="pascal"):
    value: str
    aliases: list[str] = []


class _Page(Struct, rename="pascal"):
    filename: str


class _TriviaQuestion(Struct, rename="pascal"):
    question_id: str
    question: str
    entity_pages: list[_Page] = []
    answer: _Answer | None = None


class _TriviaFile(Struct, rename="pascal"):
    data: list[_TriviaQuestion]


class TriviaPassage(NamedTuple):
    """A question on a document."""

    question_id: str
    document: str
    """Name of its file."""
    question: str
    passage: str
    answers: list[tuple[str, int]]
    """Each alias and its first character; only the first one is looked for, the others have -1."""


def is_triviaqa(content: bytes) -> bool:
    """Return whether a JSON file is TriviaQA's."""
    return _MARK in content


def read_triviaqa(path: Path, content: bytes, labelled: bool) -> Iterator[TriviaPassage]:
    """Yield each question with each of its documents; if `labelled`, only with those whose
    beginning has an answer, and a notice counts the others.

    Raises `UserError` for a damaged file, and if the documents are missing.
    """
    try:
        questions = decode_json(content, _TriviaFile).data
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not in TriviaQA's format ({describe_fault(error)}).") from None
    folder = _evidence_folder(path)
    num_documents = 0
    num_found = 0
    num_missing = 0
    for question in questions:
        for page in question.entity_pages:
            num_documents += 1
            document = folder / page.filename
            if not document.is_file():
                num_missing += 1
                continue
            passage = _beginning(document.read_text(encoding="utf-8", errors="replace"))
            answers = _located(question.answer, passage)
            if answers:
                num_found += 1
            elif labelled:
                continue
            yield TriviaPassage(
                question.question_id, page.filename, question.question, passage, answers
            )
    if labelled:
        notice_once(
            f"{path}: {num_found:,} of {num_documents:,} documents have an answer in their first "
            f"{NUM_TOKENS} tokens; the others ({num_missing:,} without a file) are left out."
        )


def _evidence_folder(path: Path) -> Path:
    for parent in (path.parent, path.parent.parent):
        if (parent / EVIDENCE).is_dir():
            return parent / EVIDENCE
    raise UserError(
        f"{path} needs its documents: unpack {EVIDENCE} beside it, or in the folder above."
    )


def _beginning(text: str) -> str:
    """Return the first tokens of a document."""
    end = 0
    for token in islice(_TOKEN.finditer(text), NUM_TOKENS):
        end = token.end()
    return text[:end]


def _located(answer: _Answer | None, passage: str) -> list[tuple[str, int]]:
    """Return the aliases, the one that the passage has first; empty if it has none."""
    if answer is None:
        return []
    aliases = list(dict.fromkeys(filter(str.strip, (answer.value, *answer.aliases))))
    for alias in aliases:
        # As a whole word, in any case.
        match = re.search(rf"(?<!\w){re.escape(alias)}(?!\w)", passage, re.IGNORECASE)
        if match:
            others = [(other, -1) for other in aliases if other != alias]
            return [(match.group(), match.start()), *others]
    return []
