"""Read the sentences of tagged words: CoNLL columns, CoNLL-U, and tables of words or of texts with
spans.

A file has one word per line with its tag, and a blank line after each sentence::

    -DOCSTART- O

    West B-loc
    Indian I-loc
    players O

Columns are separated by tabs, or by spaces on a line without tabs; the first is the word, the last
its tag. Lines that begin with ``-DOCSTART-`` separate documents; without them each sentence is its
own document. Files in CoNLL-U (``.conllu``) have the word second and its part of speech fourth.

In a table (JSON Lines, Parquet, a data set of the Hub) a row is a sentence, with a list of words in
``tokens`` and one of tags in ``ner_tags``, or a ``text`` and spans of its characters, whose end is
exclusive: doccano's ``"label": [[0, 5, "PER"]]``, Prodigy's
``"spans": [{"start": 0, "end": 5, "label": "PER"}]``, and spaCy's ``"entities"`` in either form. A
text is cut into words where WordPiece can begin one: at white space, around punctuation, and around
each ideograph.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import dropwhile, groupby, takewhile
from pathlib import Path
from typing import NamedTuple

from tokenizers import Regex
from tokenizers.pre_tokenizers import BertPreTokenizer, Split
from tokenizers.pre_tokenizers import Sequence as Steps

from ...pipeline.errors import UserError
from .example_tables import (
    TableRow,
    UnusableRowError,
    is_hub,
    lines_of,
    notice_once,
    read_rows,
    shown,
    usable,
)
from .tagged import Entity, Sentence, bio_tags

DOCUMENT_START = "-DOCSTART-"
TABLES = (".json", ".jsonl", ".parquet")
WORD_COLUMNS = ("tokens", "words")
# The blocks that google-research's BERT cuts at each character.
_IDEOGRAPHS = "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]"
_WORDS = Steps([BertPreTokenizer(), Split(Regex(_IDEOGRAPHS), "isolated")])


class TagForm(NamedTuple):
    """What the tags of words say, and how they are written."""

    columns: tuple[str, ...]
    """Alternative names in a table, whose column of words is ``tokens`` or ``words``."""
    pattern: re.Pattern[str]
    example: str

    def check(self, tag: str, where: str) -> None:
        """Raise `UserError` unless the tag is written so."""
        if not self.pattern.fullmatch(tag):
            fault = f"{where}: the tag is {shown(tag)}, not one such as {self.example}"
            if re.fullmatch("[BIESLU]", tag):  # BioBERT's sets
                fault += r". Name the type: sed -E 's/([[:blank:]][BIESLU])$/\1-gene/'"
            raise UserError(f"{fault}.")


ENTITY_TAGS = TagForm(
    ("ner_tags", "tags", "labels"), re.compile("O|[BIESLU]-.+"), "O, B-person or I-person"
)
WORD_TAGS = TagForm(("pos_tags", "upos", "pos", "tags", "labels"), re.compile(".+"), "NOUN or VERB")
ANY_TAGS = TagForm(ENTITY_TAGS.columns + WORD_TAGS.columns, WORD_TAGS.pattern, "NOUN or B-person")


def read_conll(path: Path, labelled: bool, form: TagForm = ENTITY_TAGS) -> Iterator[list[Sentence]]:
    """Yield the sentences of each document; untagged rows and odd spans are counted."""
    if is_hub(path) or path.suffix.lower() in TABLES:
        oddities: Counter[str] = Counter()

        def sentence_of(row: TableRow) -> Sentence:
            # Prodigy's tokens are not a list of words.
            has_words = any(_is_texts(row.values.get(name)) for name in WORD_COLUMNS)
            if "text" in row.values and not has_words:
                return _sentence_of_spans(row, labelled, oddities)
            return _sentence_of_lists(row, labelled, form)

        for sentence in usable(read_rows(path), sentence_of, labelled):
            yield [sentence]
        for oddity, count in oddities.items():
            notice_once(f"{path}: {count:,} spans {oddity}.")
        return
    if path.suffix.lower() == ".csv":
        raise UserError(f"{path} is a .csv file; give CoNLL columns, JSON Lines or Parquet.")
    lines = lines_of(path)
    if path.suffix.lower() == ".conllu":
        lines = _word_and_tag_lines(lines)
    yield from _read_lines(lines, labelled, form)


def has_columns(path: Path) -> bool:
    """Return whether the first sentence is words and their tags; a text has sentences instead."""
    lines = dropwhile(_separates, lines_of(path))
    sentence = takewhile(lambda line: not _separates(line), lines)
    try:
        return any(_read_lines(sentence, True, ENTITY_TAGS))
    except UserError:
        return False


def _separates(line: tuple[str, str]) -> bool:
    _, text = line
    return not text.strip() or text.startswith(DOCUMENT_START)


def _read_lines(
    lines: Iterable[tuple[str, str]], labelled: bool, form: TagForm
) -> Iterator[list[Sentence]]:
    document: list[Sentence] = []
    has_marks = False
    num_columns = 0
    for is_between, group in groupby(lines, _separates):
        if is_between:
            is_mark = any(line.startswith(DOCUMENT_START) for _, line in group)
            has_marks = has_marks or is_mark
            if document and (is_mark or not has_marks):
                yield document
                document = []
            continue
        words: list[str] = []
        tags: list[str] = []
        sentence_lines: list[str] = []
        for where, line in group:
            # Between tabs a word may contain spaces. Only spaces separate otherwise: other white
            # space of Unicode, such as a no-break space, is part of a word.
            if "\t" in line:
                columns = line.rstrip(" ").split("\t")
            else:
                columns = re.split(" +", line.strip(" "))
            num_columns = num_columns or len(columns)
            if len(columns) != num_columns:
                raise UserError(
                    f"{where}: the number of columns is {len(columns)}, not {num_columns} as in "
                    "the lines before it."
                )
            if labelled:
                form.check(columns[-1] if num_columns > 1 else "", where)
            words.append(columns[0])
            tags.append(columns[-1])
            sentence_lines.append(line)
        given = tuple(tags) if labelled else None
        document.append(Sentence(tuple(words), given, tuple(sentence_lines)))
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
    words = _list_of_texts(row, WORD_COLUMNS)
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
    name = next((name for name in names if name in row.values), names[0])
    values = row.value(name)
    if not _is_texts(values):
        # The numbers' meaning is known only where the set comes from.
        raise UserError(
            f"{row.where}: {name} is {shown(values)}, not a list of texts (the tags "
            "themselves, not their numbers)."
        )
    return tuple(values)


def _is_texts(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def sentence_of_text(text: str) -> Sentence:
    """Return the words of a text, without tags.

    >>> sentence_of_text("Ana (Riga)").words
    ('Ana', '(', 'Riga', ')')
    """
    offsets = tuple(offsets for _, offsets in _WORDS.pre_tokenize_str(text))
    words = tuple(text[start:end] for start, end in offsets)
    return Sentence(words, None, text=text, offsets=offsets)


def with_spans(sentence: Sentence, spans: Iterable[Entity], oddities: Counter[str]) -> Sentence:
    """Return the sentence of a text with the BIO tags of its spans.

    Spans are of characters. One that begins or ends within a word is that whole word; of spans that
    overlap the longest stays; what marks no word is left out. Each is counted in `oddities`.

    >>> with_spans(sentence_of_text("Ana (Riga)"), [Entity(5, 9, "LOC")], Counter()).tags
    ('O', 'O', 'B-LOC', 'O')
    """
    starts = [start for start, _ in sentence.offsets]
    ends = [end for _, end in sentence.offsets]
    is_taken = [False] * len(starts)
    chosen: list[Entity] = []
    # The longest first, equal ones from left to right.
    by_length = sorted(spans, key=lambda span: (span.start - span.end, span.start))
    num_characters = len(sentence.text or "")
    for span in by_length:
        first = bisect_right(ends, span.start)
        after = bisect_left(starts, span.end)
        is_inside = 0 <= span.start < span.end <= num_characters
        if not is_inside or first >= after:
            oddities["are empty or outside their text, and are left out"] += 1
            continue
        if any(is_taken[first:after]):
            oddities["overlap a longer one, and are left out"] += 1
            continue
        if starts[first] < span.start or ends[after - 1] > span.end:
            oddities["begin or end within a word, and are taken as whole words"] += 1
        is_taken[first:after] = [True] * (after - first)
        chosen.append(Entity(first, after, span.type))
    return sentence._replace(tags=tuple(bio_tags(chosen, len(starts))))


def _sentence_of_spans(row: TableRow, labelled: bool, oddities: Counter[str]) -> Sentence:
    sentence = sentence_of_text(row.text("text"))
    if not labelled:
        return sentence
    if row.values.get("answer") in ("reject", "ignore"):  # Prodigy's
        raise UnusableRowError(row.where, "the annotator refused it", "refused by an annotator")
    values = row.value("spans", "entities", "label", "labels")
    if not isinstance(values, list):
        raise UserError(f"{row.where}: the spans are {shown(values)}, not a list.")
    return with_spans(sentence, [_span(value, row.where) for value in values], oddities)


def _span(value: object, where: str) -> Entity:
    if isinstance(value, dict):
        start = value.get("start", value.get("start_offset"))
        end = value.get("end", value.get("end_offset"))
        label = value.get("label", value.get("type"))
    elif isinstance(value, list) and len(value) == 3:
        start, end, label = value
    else:
        start = end = label = None
    if type(start) is int and type(end) is int and isinstance(label, str) and label:
        return Entity(start, end, label.strip())
    raise UserError(
        f'{where}: a span is {shown(value)}, not such as [0, 5, "PER"] or '
        '{"start": 0, "end": 5, "label": "PER"}.'
    )
