"""Read the sentences of tagged words in CoNLL columns and in tables.

A file has one word per line with its tag, and a blank line after each sentence::

    -DOCSTART- O

    West B-loc
    Indian I-loc
    players O

Columns are separated by tabs, or by spaces on a line without tabs; the first is the word, the last
its tag. Lines that begin with ``-DOCSTART-`` separate documents; without them each sentence is its
own document. In a table (JSON Lines, Parquet, a data set of the Hub) a row is a sentence, with a
list of words in ``tokens`` and one of tags in ``ner_tags``, or with a text and spans of it
(`spans`). Files in CoNLL-U (``.conllu``) have the word second and its part of speech fourth.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from ...pipeline.errors import UserError
from .spans import has_text, sentence_of_row
from .tables import (
    TableRow,
    UnusableRowError,
    check_file,
    is_hub,
    notice_once,
    open_text,
    read_rows,
    shown,
    text_lines,
    usable,
)
from .tagged import Sentence

DOCUMENT_START = "-DOCSTART-"
TABLES = (".json", ".jsonl", ".parquet")


class TagForm(NamedTuple):
    """What the tags of words say, and how they are written."""

    columns: tuple[str, ...]
    """Alternative names in a table, whose column of words is ``tokens`` or ``words``."""
    pattern: re.Pattern[str]
    example: str
    """For messages."""

    def check(self, tag: str, where: str) -> None:
        """Raise `UserError` unless the tag is written so."""
        if not self.pattern.fullmatch(tag):
            raise UserError(f"{where}: the tag is {shown(tag)}, not one such as {self.example}.")


ENTITY_TAGS = TagForm(
    ("ner_tags", "tags", "labels"), re.compile("O|[BIESLU]-.+"), "O, B-person or I-person"
)
WORD_TAGS = TagForm(("pos_tags", "upos", "pos", "tags", "labels"), re.compile(".+"), "NOUN or VERB")
ANY_TAGS = TagForm(ENTITY_TAGS.columns + WORD_TAGS.columns, WORD_TAGS.pattern, "NOUN or B-person")


def read_conll(path: Path, labelled: bool, form: TagForm = ENTITY_TAGS) -> Iterator[list[Sentence]]:
    """Yield the sentences of each document; empty documents are left out.

    Rows of a table without tags are left out and counted if `labelled`. Raises `UserError` naming
    file and line for an invalid tag, and for a line whose number of columns differs from the first.
    """
    if is_hub(path) or path.suffix.lower() in TABLES:
        yield from _read_table(path, labelled, form)
        return
    check_file(path)
    if path.suffix.lower() == ".csv":
        raise UserError(f"{path} is a .csv file; give CoNLL columns, JSON Lines or Parquet.")
    with open_text(path) as file:
        lines = text_lines(file, str(path))
        if path.suffix.lower() == ".conllu":
            lines = _word_and_tag_lines(lines)
        yield from _read_lines(lines, labelled, form)


def _read_table(path: Path, labelled: bool, form: TagForm) -> Iterator[list[Sentence]]:
    oddities: Counter[str] = Counter()

    def sentence_of(row: TableRow) -> Sentence:
        if form is not WORD_TAGS and has_text(row):
            return sentence_of_row(row, labelled, oddities)
        return _sentence_of_lists(row, labelled, form)

    for sentence in usable(read_rows(path), sentence_of, labelled):
        yield [sentence]
    for oddity, count in oddities.items():
        notice_once(f"{path}: {count:,} spans {oddity}.")


def _read_lines(
    lines: Iterable[tuple[str, str]], labelled: bool, form: TagForm
) -> Iterator[list[Sentence]]:
    document: list[Sentence] = []
    words: list[str] = []
    tags: list[str] = []
    word_lines: list[str] = []
    has_marks = False
    num_columns = 0
    # A blank line more, as the last sentence ends even if the file does not end in one.
    for where, line in chain(lines, [("", "")]):
        columns = _columns(line)
        is_mark = columns[0] == DOCUMENT_START
        if line.strip() and not is_mark:
            num_columns = num_columns or len(columns)
            if labelled and len(columns) < 2:
                raise UserError(
                    f"{where} has one column; write a word and its tag, separated by a tab or "
                    "space."
                )
            if len(columns) != num_columns:
                raise UserError(
                    f"{where}: the number of columns is {len(columns)}, not {num_columns} as in "
                    "the lines before it."
                )
            if labelled:
                form.check(columns[-1], where)
            words.append(columns[0])
            tags.append(columns[-1])
            word_lines.append(line)
            continue
        # The line is blank or a mark: the sentence ends here, and perhaps the document.
        if words:
            given_tags = tuple(tags) if labelled else None
            document.append(Sentence(tuple(words), given_tags, tuple(word_lines)))
            words, tags, word_lines = [], [], []
        has_marks = has_marks or is_mark
        if document and (is_mark or not has_marks):
            yield document
            document = []
    if document:
        yield document


def _word_and_tag_lines(lines: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the lines of a CoNLL-U file as word and part of speech; comments are left out."""
    for where, line in lines:
        if line.startswith("# newdoc"):
            yield where, DOCUMENT_START
        elif not line.strip():
            yield where, ""
        elif not line.startswith("#"):
            columns = line.split("\t")
            if len(columns) != 10:
                raise UserError(
                    f"{where}: the number of columns is {len(columns)}, not 10 as in CoNLL-U."
                )
            # 3-4 is a contraction, whose words follow; 5.1 is a word that is not in the text.
            if columns[0].isdecimal():
                yield where, f"{columns[1]}\t{columns[3]}"


def _sentence_of_lists(row: TableRow, labelled: bool, form: TagForm) -> Sentence:
    words = _list_of_texts(row, ("tokens", "words"))
    if not labelled:
        return Sentence(words, None)
    if not words:
        raise UnusableRowError(row.where, "there are no words", "without words")
    tags = _list_of_texts(row, form.columns)
    if len(tags) != len(words):
        raise UserError(f"{row.where}: {len(words)} words have {len(tags)} tags.")
    for tag in tags:
        form.check(tag, row.where)
    return Sentence(words, tags)


def _list_of_texts(row: TableRow, names: Sequence[str]) -> tuple[str, ...]:
    name = row.first_column(names)
    values = row.value(name)
    if values is None:
        raise UnusableRowError(row.where, f"{name} is empty", f"without {name}")
    if isinstance(values, list) and all(isinstance(value, str) for value in values):
        return tuple(values)
    # The numbers' meaning is known only where the set comes from.
    raise UserError(
        f"{row.where}: {name} is {shown(values)}, not a list of texts (the tags themselves, not "
        "their numbers)."
    )


def has_columns(path: Path) -> bool:
    """Return whether each line of the first sentence is a word and its tag.

    Otherwise the text file holds sentences.
    """
    check_file(path)
    num_words = 0
    with open_text(path) as file:
        for _, line in text_lines(file, str(path)):
            if line.strip():
                columns = _columns(line)
                is_tagged = len(columns) > 1 and ENTITY_TAGS.pattern.fullmatch(columns[-1])
                if columns[0] != DOCUMENT_START and not is_tagged:
                    return False
                num_words += 1
            elif num_words:
                return True
    return num_words > 0


def _columns(line: str) -> list[str]:
    # Between tabs a word may contain spaces. Only spaces separate otherwise: other white space of
    # Unicode, such as a no-break space, is part of a word.
    if "\t" in line:
        return line.rstrip(" ").split("\t")
    return re.split(" +", line.strip(" "))
