"""Files in CoNLL columns, the entities in their tags, and precision, recall and F1 by the rules of
``conlleval``.

A file has one word per line with its tag, and a blank line after each sentence. Columns are
separated by tabs, or by spaces on a line without tabs; the first is the word, the last its tag.
Lines that begin with ``-DOCSTART-`` separate documents; without them each sentence is its own
document. The same rules read every scheme of tags: IOB1 (an entity begins with I-, or with B- right
after another of its type), BIO (always B-) and IOBES (E- ends, S- is a single word). They also
define the entities of invalid sequences, which a model may predict.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, dropwhile, takewhile
from pathlib import Path
from typing import NamedTuple

from ...pipeline.errors import UserError
from .tables import check_file, listed, shown, text_lines

DOCUMENT_START = "-DOCSTART-"
OUTSIDE = "O"
OTHER_FORMS = (".csv", ".json", ".jsonl", ".parquet")
_TAG = re.compile(rf"{OUTSIDE}|[BIES]-.+")


class Sentence(NamedTuple):
    """One sentence of a document."""

    words: tuple[str, ...]
    """As in the file; one may be empty, or only punctuation."""
    tags: tuple[str, ...] | None
    """One per word, in the file's own scheme; None if not read."""
    lines: tuple[str, ...] = ()
    """The file's lines, without line ends."""


def split_words(line: str) -> Sentence:
    """Return the sentence in a plain text, split at spaces, tabs and line ends."""
    return Sentence(tuple(re.findall(r"[^ \t\r\n]+", line)), None)


def read_documents(
    path: Path, labelled: bool, types: Sequence[str] | None = None
) -> Iterator[list[Sentence]]:
    """Yield the sentences of each document; empty documents are left out.

    Tags must be of one of `types`, if given. Raises `UserError` naming file and line for an invalid
    tag, and for a line whose number of columns differs from the first.
    """
    check_file(path)
    if path.suffix in OTHER_FORMS:
        raise UserError(f"{path} is a {path.suffix} file; give one with CoNLL columns.")
    document: list[Sentence] = []
    words: list[tuple[str, str, str]] = []
    has_marks, num_columns = False, 0
    with path.open("rb") as file:
        for where, line in chain(
            text_lines(file, str(path)), [("", "")]
        ):  # a blank line ends the last sentence
            columns = _columns(line)
            is_mark = columns[0] == DOCUMENT_START
            if line.strip() and not is_mark:
                num_columns = num_columns or len(columns)
                _check(columns, num_columns, labelled, types, where)
                words.append((columns[0], columns[-1], line))
                continue
            if words:
                texts, tags, lines = zip(*words, strict=True)
                document.append(Sentence(texts, tags if labelled else None, lines))
                words = []
            has_marks = has_marks or is_mark
            if document and (is_mark or not has_marks):
                yield document
                document = []
    if document:
        yield document


def has_columns(path: Path) -> bool:
    """Return whether each line of the first sentence in a text file is a word and its tag, not a
    sentence itself.
    """
    check_file(path)
    with path.open("rb") as file:
        lines = dropwhile(
            lambda line: not line.strip(), (line for _, line in text_lines(file, str(path)))
        )
        first = next(lines, "")
        return all(_is_tagged(line) for line in chain([first], takewhile(str.strip, lines)))


def _is_tagged(line: str) -> bool:
    word, *others = _columns(line)
    return word == DOCUMENT_START or (bool(others) and _TAG.fullmatch(others[-1]) is not None)


def _columns(line: str) -> list[str]:
    return line.split("\t") if "\t" in line else re.split(" +", line.strip(" "))


def _check(
    columns: Sequence[str],
    num_columns: int,
    labelled: bool,
    types: Sequence[str] | None,
    where: str,
) -> None:
    if labelled and len(columns) < 2:
        raise UserError(
            f"{where} has one column; write a word and its tag, separated by a tab or space."
        )
    if len(columns) != num_columns:
        found = f"{len(columns)}, not {num_columns} as in the lines before it"
        raise UserError(f"{where}: the number of columns is {found}.")
    tag = columns[-1]
    if labelled and not _TAG.fullmatch(tag):
        found = (
            f"the last column is {shown(tag)}, not a tag such as {OUTSIDE}, B-person or I-person"
        )
        raise UserError(f"{where}: {found}.")
    if labelled and types is not None and tag != OUTSIDE and tag[2:] not in types:
        raise UserError(
            f"{where}: the type of {shown(tag)} is not in the training data ({listed(types)})."
        )


class Entity(NamedTuple):
    """The words from `start` up to but excluding `end`."""

    start: int
    end: int
    type: str


def entities(tags: Sequence[str]) -> list[Entity]:
    """Return the entities in a sentence, from left to right.

        An entity begins at B- and S-, after O, E- and S-, and where the type changes; it extends to the next beginning or
        O.

        >>> entities(["I-loc", "I-loc", "B-loc", "O", "I-org", "I-per"])
        [Entity(start=0, end=2, type='loc'), Entity(start=2, end=3, type='loc'), Entity(start=4, end=5, type='org'), \
    Entity(start=5, end=6, type='per')]
    """
    found: list[Entity] = []
    previous = OUTSIDE
    for index, tag in enumerate(tags):
        if tag != OUTSIDE:
            if tag[0] in "BS" or previous[0] in "OES" or previous[2:] != tag[2:]:
                found.append(Entity(index, index, tag[2:]))
            found[-1] = found[-1]._replace(end=index + 1)
        previous = tag
    return found


def bio_tags(found: Iterable[Entity], num_words: int) -> list[str]:
    """Return the BIO tags of a sentence with these entities.

    >>> bio_tags([Entity(1, 3, "loc")], 4)
    ['O', 'B-loc', 'I-loc', 'O']
    """
    tags = [OUTSIDE] * num_words
    for start, end, kind in found:
        tags[start:end] = [f"B-{kind}", *[f"I-{kind}"] * (end - start - 1)]
    return tags


def entity_scores(
    predicted: Iterable[Sequence[Entity]], gold: Iterable[Sequence[Entity]]
) -> dict[str, float]:
    """Return F1, precision and recall over all sentences, 0 if undefined; an entity's words and
    type must be right.
    """
    num_correct = num_predicted = num_gold = 0
    for ours, theirs in zip(predicted, gold, strict=True):
        num_correct += len(set(ours) & set(theirs))
        num_predicted += len(ours)
        num_gold += len(theirs)
    # Undefined is 0, and so is what it divides.
    return {
        "f1": 2 * num_correct / max(1, num_predicted + num_gold),
        "precision": num_correct / max(1, num_predicted),
        "recall": num_correct / max(1, num_gold),
    }
