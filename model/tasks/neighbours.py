"""Pairs of neighbouring sentences, for sentence vectors without labels.

Neighbours are about the same thing more often than any other two sentences. They are read from
documents that `ingest` wrote, and from plain text with a sentence a line and a blank line between
documents.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from .tables import TableRow, check_file, open_text, read_rows, text_lines

PLAIN_TEXT = ".txt"


def read_pairs(path: Path) -> Iterator[TableRow]:
    """Yield the rows of a table; of documents and plain text, a row for each two neighbours, with
    the columns ``anchor`` and ``positive``.

    >>> [row.values for row in _neighbours(iter(["a", "b", "c", "d", "e"]), "")]
    [{'anchor': 'a', 'positive': 'b'}, {'anchor': 'c', 'positive': 'd'}]
    """
    if path.suffix.lower() == PLAIN_TEXT:
        check_file(path)
        with open_text(path) as file:
            yield from _pairs_of_lines(text_lines(file, str(path)))
        return
    for row in read_rows(path):
        sentences = row.values.get("sentences")
        if isinstance(sentences, list):
            yield from _neighbours(iter(sentences), row.where)
        else:
            yield row


def _pairs_of_lines(lines: Iterable[tuple[str, str]]) -> Iterator[TableRow]:
    before = ""
    for where, line in lines:
        line = line.strip()
        if before and line:
            yield TableRow(where, {"anchor": before, "positive": line})
            line = ""
        before = line


def _neighbours(sentences: Iterator[str], where: str) -> Iterator[TableRow]:
    for anchor, positive in zip(sentences, sentences, strict=False):
        yield TableRow(where, {"anchor": anchor, "positive": positive})
