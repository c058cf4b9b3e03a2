"""Read files in CoNLL columns, and score the entities in their tags by the rules of ``conlleval``.

A file has one word per line with its tag, and a blank line after each sentence::

    -DOCSTART- O

    West B-loc
    Indian I-loc
    players O

Columns are separated by tabs, or by spaces on a line without tabs; the first is the word, the last
its tag. Lines that begin with ``-DOCSTART-`` separate documents; without them each sentence is its
own document. In a table (JSON Lines, Parquet) a row is a sentence, with a list of words in
``tokens`` and one of tags in ``ner_tags``.

The same rules read every scheme of tags: IOB1 (an entity begins with I-, or with B- right after
another of its type), BIO (always B-), IOBES (E- ends, S- is a single word) and BILOU, which calls
these two L- and U-. They also define the entities of invalid sequences, which a model may predict.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from ...pipeline.encodings import AUTO
from ...pipeline.errors import UserError
from .tables import TableRow, check_file, listed, open_text, read_rows, shown, text_lines

DOCUMENT_START = "-DOCSTART-"
OUTSIDE = "O"
TABLES = (".json", ".jsonl", ".parquet")
TAG_COLUMNS = ("ner_tags", "tags", "labels")
"""Of a table, whose column of words is ``tokens`` or ``words``."""
_TAG = re.compile(rf"{OUTSIDE}|[BIESLU]-.+")


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


def read_conll(
    path: Path,
    labelled: bool,
    types: Sequence[str] | None = None,
    encoding: str = AUTO,
) -> Iterator[list[Sentence]]:
    """Yield the sentences of each document; empty documents are left out.

    Tags must be of one of `types`, if given. Raises `UserError` naming file and line for an invalid
    tag, and for a line whose number of columns differs from the first.
    """
    check_file(path)
    if path.suffix in TABLES:
        for row in read_rows(path, encoding=encoding):
            yield [_sentence_of_row(row, labelled, types)]
        return
    if path.suffix == ".csv":
        raise UserError(f"{path} is a .csv file; give CoNLL columns, JSON Lines or Parquet.")
    document: list[Sentence] = []
    sentence: list[_WordLine] = []
    has_marks = False
    num_columns = 0
    with open_text(path, encoding) as file:
        # A blank line more, as the last sentence ends even if the file does not end in one.
        lines = chain(text_lines(file, str(path)), [("", "")])
        for where, line in lines:
            columns = _columns(line)
            is_mark = columns[0] == DOCUMENT_START
            if line.strip() and not is_mark:
                num_columns = num_columns or len(columns)
                _check(columns, num_columns, labelled, types, where)
                sentence.append(_WordLine(columns[0], columns[-1], line))
                continue
            # The line is blank or a mark: the sentence ends here, and perhaps the document.
            if sentence:
                document.append(_sentence(sentence, labelled))
                sentence = []
            has_marks = has_marks or is_mark
            if document and (is_mark or not has_marks):
                yield document
                document = []
    if document:
        yield document


def _sentence_of_row(row: TableRow, labelled: bool, types: Sequence[str] | None) -> Sentence:
    """Return the sentence in a row of lists: words, and their tags."""
    words = _list_of_texts(row, ("tokens", "words"))
    if not labelled:
        return Sentence(words, None)
    tags = _list_of_texts(row, TAG_COLUMNS)
    if len(tags) != len(words):
        raise UserError(f"{row.where}: {len(words)} words have {len(tags)} tags.")
    for tag in tags:
        _check_tag(tag, types, row.where)
    return Sentence(words, tags)


def _list_of_texts(row: TableRow, names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if name not in row.values:
            continue
        values = row.values[name]
        is_list = isinstance(values, list)
        if is_list and all(isinstance(value, str) for value in values):
            return tuple(values)
        # The numbers' meaning is known only where the set comes from.
        raise UserError(
            f"{row.where}: {name} is {shown(values)}, not a list of texts (tags such as B-person, "
            "not their numbers)."
        )
    raise UserError(f"{row.where}: there is no column {names[0]}, only {listed(row.values)}.")


class _WordLine(NamedTuple):
    word: str
    tag: str
    line: str


def _sentence(lines: Sequence[_WordLine], labelled: bool) -> Sentence:
    tags = None
    if labelled:
        tags = tuple(line.tag for line in lines)
    return Sentence(
        words=tuple(line.word for line in lines),
        tags=tags,
        lines=tuple(line.line for line in lines),
    )


def has_columns(path: Path, encoding: str = AUTO) -> bool:
    """Return whether each line of the first sentence is a word and its tag.

    Otherwise the text file holds sentences.
    """
    check_file(path)
    num_words = 0
    with open_text(path, encoding) as file:
        for _, line in text_lines(file, str(path)):
            if line.strip():
                if not _is_tagged(line):
                    return False
                num_words += 1
            elif num_words:
                return True
    return num_words > 0


def _is_tagged(line: str) -> bool:
    columns = _columns(line)
    if columns[0] == DOCUMENT_START:
        return True
    return len(columns) > 1 and _TAG.fullmatch(columns[-1]) is not None


def _columns(line: str) -> list[str]:
    # Between tabs a word may contain spaces. Only spaces separate otherwise: other white space of
    # Unicode, such as a no-break space, is part of a word.
    if "\t" in line:
        return line.split("\t")
    return re.split(" +", line.strip(" "))


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
        raise UserError(
            f"{where}: the number of columns is {len(columns)}, not {num_columns} as in the lines "
            "before it."
        )
    if not labelled:
        return
    _check_tag(columns[-1], types, where)


def _check_tag(tag: str, types: Sequence[str] | None, where: str) -> None:
    if not _TAG.fullmatch(tag):
        raise UserError(
            f"{where}: the tag is {shown(tag)}, not one such as {OUTSIDE}, B-person or I-person."
        )
    if types is not None and tag != OUTSIDE and tag[2:] not in types:
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

    An entity begins at B-, S- and U-, after O, E-, S-, L- and U-, and where the type changes; it
    extends to the next beginning or O::

        I-loc  I-loc  B-loc  O  I-org  I-per
        [----------]  [---]     [---]  [---]

    >>> entities(["I-loc", "I-loc", "B-loc"])
    [Entity(start=0, end=2, type='loc'), Entity(start=2, end=3, type='loc')]
    """
    spans: list[Entity] = []
    previous = OUTSIDE
    for index, tag in enumerate(tags):
        if tag != OUTSIDE:
            follows_end = previous[0] in "OESLU"
            begins = tag[0] in "BSU" or follows_end or previous[2:] != tag[2:]
            start = index
            if not begins:
                start = spans.pop().start  # the entity goes on: replace it by a longer one
            spans.append(Entity(start, index + 1, tag[2:]))
        previous = tag
    return spans


def bio_tags(spans: Iterable[Entity], num_words: int) -> list[str]:
    """Return the BIO tags of a sentence with these entities.

    >>> bio_tags([Entity(1, 3, "loc")], 4)
    ['O', 'B-loc', 'I-loc', 'O']
    """
    tags = [OUTSIDE] * num_words
    for start, end, kind in spans:
        tags[start] = f"B-{kind}"
        tags[start + 1 : end] = [f"I-{kind}"] * (end - start - 1)
    return tags


def lines_in_bio(lines: Sequence[str]) -> list[str]:
    """Return a sentence's lines of a file with their tags in BIO; unchanged if they have none.

    >>> lines_in_bio(["West I-loc", "Indian I-loc"])
    ['West B-loc', 'Indian I-loc']
    """
    columns = [_columns(line) for line in lines]
    tags = [line_columns[-1] for line_columns in columns]
    if min(map(len, columns)) < 2 or not all(map(_TAG.fullmatch, tags)):
        return list(lines)
    new_tags = bio_tags(entities(tags), len(tags))
    new_lines = []
    for line, old_tag, new_tag in zip(lines, tags, new_tags, strict=True):
        # Only spaces may follow the tag, on a line without tabs.
        before, _, after = line.rpartition(old_tag)
        new_lines.append(f"{before}{new_tag}{after}")
    return new_lines


def entity_scores(
    predicted: Iterable[Sequence[Entity]], gold: Iterable[Sequence[Entity]]
) -> dict[str, float]:
    """Return F1, precision and recall over all sentences, 0 if undefined.

    An entity is right if its words and its type are.
    """
    num_correct = num_predicted = num_gold = 0
    for predicted_here, gold_here in zip(predicted, gold, strict=True):
        num_correct += len(set(predicted_here) & set(gold_here))
        num_predicted += len(predicted_here)
        num_gold += len(gold_here)
    # Where a divisor is 0, so is what it divides.
    return {
        "f1": 2 * num_correct / max(1, num_predicted + num_gold),
        "precision": num_correct / max(1, num_predicted),
        "recall": num_correct / max(1, num_gold),
    }
