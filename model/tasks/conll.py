"""Files in CoNLL columns: a word a line with its tag, a blank line after each sentence.

The columns stand apart by a tab, or by blanks in a file without tabs; the first is the word, the last the tag. Where
lines that begin with ``-DOCSTART-`` part the documents, as in CoNLL-2003, a sentence has the other sentences of its
document around it; in a file without them nothing is known of documents, and each sentence is one of its own.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import chain
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
    """As they stand in the file; one may be empty, or of punctuation alone."""
    tags: tuple[str, ...] | None
    """One a word, in the file's own scheme; None where they are not read."""
    lines: tuple[str, ...] = ()
    """The file's lines, without line ends."""


class Word(NamedTuple):
    """One line, with its columns."""

    where: str
    line: str
    columns: list[str]


def read_documents(path: Path, labelled: bool, types: Sequence[str] | None = None) -> Iterator[list[Sentence]]:
    """Yield the sentences of each document; documents without any are left out.

    `types` are those that a tag may have, any where None. Raises `UserError` naming file and line, for tags that are
    none, and for lines with another number of columns than the first.
    """
    document: list[Sentence] = []
    marked = False
    for words in _blocks(path, labelled):
        if words[0].columns[0] == DOCUMENT_START:
            marked = True
            if document:
                yield document
            document = []
            words = words[1:]
        if words:
            document.append(_sentence(words, labelled, types))
        if document and not marked:
            yield document
            document = []
    if document:
        yield document


def split_words(line: str) -> Sentence:
    """Return the sentence in a plain text; blanks, tabs and line ends part the words."""
    return Sentence(tuple(re.findall(r"[^ \t\r\n]+", line)), None)


def _sentence(words: Sequence[Word], labelled: bool, types: Sequence[str] | None) -> Sentence:
    tags = tuple(_tag(word, types) for word in words) if labelled else None
    return Sentence(tuple(word.columns[0] for word in words), tags, tuple(word.line for word in words))


def _tag(word: Word, types: Sequence[str] | None) -> str:
    tag = word.columns[-1]
    if not _TAG.fullmatch(tag):
        raise UserError(
            f"{word.where}: the last column is {shown(tag)}, no tag such as {OUTSIDE}, B-person or I-person."
        )
    if types is not None and tag != OUTSIDE and tag[2:] not in types:
        raise UserError(f"{word.where}: the tag {shown(tag)} is of a type that was not learned ({listed(types)}).")
    return tag


def _blocks(path: Path, labelled: bool) -> Iterator[list[Word]]:
    """Yield the words of each sentence; a line that begins a document begins a block, too."""
    words: list[Word] = []
    for word in chain(_words(path, labelled), [None]):
        if words and (word is None or word.columns[0] == DOCUMENT_START):
            yield words
            words = []
        if word is not None:
            words.append(word)


def _words(path: Path, labelled: bool) -> Iterator[Word | None]:
    """Yield each line with its columns, None for a blank one."""
    check_file(path)
    num_columns = 0
    with path.open("rb") as file:
        for where, line in text_lines(file, str(path)):
            if not line.strip():
                yield None
                continue
            columns = line.split("\t") if "\t" in line else re.split(" +", line.strip(" "))
            if columns[0] != DOCUMENT_START:
                num_columns = num_columns or len(columns)
                _check_columns(len(columns), num_columns, labelled, where)
            yield Word(where, line, columns)


def _check_columns(found: int, wanted: int, labelled: bool, where: str) -> None:
    if labelled and found < 2:
        raise UserError(f"{where} has one column; a word and its tag are needed, with a tab or a blank between.")
    if found != wanted:
        raise UserError(f"{where}: the number of columns is {found}, not {wanted} as in the lines before it.")
