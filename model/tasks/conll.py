"""Read files in CoNLL columns: one word per line with its tag, a blank line after each sentence.

Columns are separated by tabs, or by spaces on a line without tabs; the first is the word, the last its tag. Lines that
begin with ``-DOCSTART-`` separate documents, as in CoNLL-2003; without them each sentence is its own document.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from ...pipeline.errors import UserError
from .entities import OUTSIDE, PREFIXES
from .tables import check_file, listed, shown, text_lines

DOCUMENT_START = "-DOCSTART-"
_TAG = re.compile(rf"{OUTSIDE}|[{PREFIXES}]-.+")


class Sentence(NamedTuple):
    """One sentence of a document."""

    words: tuple[str, ...]
    """As in the file; one may be empty, or only punctuation."""
    tags: tuple[str, ...] | None
    """One per word, in the file's own scheme; None if not read."""
    lines: tuple[str, ...] = ()
    """The file's lines, without line ends."""


class Word(NamedTuple):
    """One line; a blank one has no columns."""

    where: str
    line: str
    columns: list[str]


def read_documents(path: Path, labelled: bool, types: Sequence[str] | None = None) -> Iterator[list[Sentence]]:
    """Yield the sentences of each document; empty documents are left out.

    Tags must be of one of `types`, if given. Raises `UserError` naming file and line for an invalid tag, and for a line
    whose number of columns differs from the first.
    """
    document: list[Sentence] = []
    has_marks = False
    for kind, words in groupby(_words(path, labelled), _kind):
        if kind == DOCUMENT_START:
            has_marks = True
        elif kind == "word":
            document.append(_sentence(list(words), labelled, types))
        if document and (kind == DOCUMENT_START or not has_marks):
            yield document
            document = []
    if document:
        yield document


def split_words(line: str) -> Sentence:
    """Return the sentence in a plain text, split at spaces, tabs and line ends."""
    return Sentence(tuple(re.findall(r"[^ \t\r\n]+", line)), None)


def _sentence(words: Sequence[Word], labelled: bool, types: Sequence[str] | None) -> Sentence:
    tags = tuple(_tag(word, types) for word in words) if labelled else None
    return Sentence(tuple(word.columns[0] for word in words), tags, tuple(word.line for word in words))


def _tag(word: Word, types: Sequence[str] | None) -> str:
    tag = word.columns[-1]
    if not _TAG.fullmatch(tag):
        found = f"the last column is {shown(tag)}, not a tag such as {OUTSIDE}, B-person or I-person"
        raise UserError(f"{word.where}: {found}.")
    if types is not None and tag != OUTSIDE and tag[2:] not in types:
        raise UserError(f"{word.where}: the type of {shown(tag)} is not in the training data ({listed(types)}).")
    return tag


def _kind(word: Word) -> str:
    if not word.columns:
        return "blank"
    return DOCUMENT_START if word.columns[0] == DOCUMENT_START else "word"


def _words(path: Path, labelled: bool) -> Iterator[Word]:
    check_file(path)
    num_columns = 0
    with path.open("rb") as file:
        for where, line in text_lines(file, str(path)):
            columns = line.split("\t") if "\t" in line else re.split(" +", line.strip(" "))
            word = Word(where, line, columns if line.strip() else [])
            if _kind(word) == "word":
                num_columns = num_columns or len(columns)
                _check_columns(len(columns), num_columns, labelled, where)
            yield word


def _check_columns(found: int, expected: int, labelled: bool, where: str) -> None:
    if labelled and found < 2:
        raise UserError(f"{where} has one column; write a word and its tag, separated by a tab or space.")
    if found != expected:
        raise UserError(f"{where}: the number of columns is {found}, not {expected} as in the lines before it.")
