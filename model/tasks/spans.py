"""Entities as character spans of a text, as annotators' tools write them, and as `predict` answers.

A row has a ``text`` and a list of spans under a name of `SPAN_COLUMNS`: doccano's
``"label": [[0, 5, "PER"]]``, Prodigy's ``"spans": [{"start": 0, "end": 5, "label": "PER"}]``,
and spaCy's ``"entities"`` in either form. A span is characters, and its end is exclusive.

A text is cut into words where WordPiece can begin one: at white space, around punctuation, and
around each ideograph.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from tokenizers import Regex
from tokenizers.pre_tokenizers import BertPreTokenizer, Split
from tokenizers.pre_tokenizers import Sequence as Steps

from ...pipeline.errors import UserError
from .tables import TableRow, UnusableRowError, shown
from .tagged import Entity, Sentence, bio_tags

SPAN_COLUMNS = ("spans", "entities", "label", "labels")
# The blocks that google-research's BERT cuts at each character.
_IDEOGRAPH = "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]"


class Span(NamedTuple):
    """Characters `start` up to but excluding `end` of a text."""

    start: int
    end: int
    label: str


def has_text(row: TableRow) -> bool:
    """Return whether a row holds a text, and no list of words; Prodigy's ``tokens`` are not one."""
    for name in ("tokens", "words"):
        values = row.values.get(name)
        if isinstance(values, list) and all(isinstance(value, str) for value in values):
            return False
    return "text" in row.values


def sentence_of_text(text: str) -> Sentence:
    """Return the words of a text, without tags.

    >>> sentence_of_text("Ana (Riga)").words
    ('Ana', '(', 'Riga', ')')
    """
    offsets = tuple(offsets for _, offsets in _steps().pre_tokenize_str(text))
    words = tuple(text[start:end] for start, end in offsets)
    return Sentence(words, None, text=text, offsets=offsets)


def with_spans(sentence: Sentence, spans: Iterable[Span], oddities: Counter[str]) -> Sentence:
    """Return the sentence of a text with the BIO tags of its spans.

    A span that begins or ends within a word is that whole word; of spans that overlap the longest
    stays; what marks no word is left out. Each is counted in `oddities`.

    >>> with_spans(sentence_of_text("Ana (Riga)"), [Span(5, 9, "LOC")], Counter()).tags
    ('O', 'O', 'B-LOC', 'O')
    """
    starts = [start for start, _ in sentence.offsets]
    ends = [end for _, end in sentence.offsets]
    is_taken = [False] * len(starts)
    chosen: list[Entity] = []
    # The longest first, equal ones from left to right.
    for span in sorted(spans, key=lambda span: (span.start - span.end, span.start)):
        first = bisect_right(ends, span.start)
        after = bisect_left(starts, span.end)
        if not 0 <= span.start < span.end <= len(sentence.text or "") or first >= after:
            oddities["are empty or outside their text, and are left out"] += 1
            continue
        if any(is_taken[first:after]):
            oddities["overlap a longer one, and are left out"] += 1
            continue
        if starts[first] < span.start or ends[after - 1] > span.end:
            oddities["begin or end within a word, and are taken as whole words"] += 1
        is_taken[first:after] = [True] * (after - first)
        chosen.append(Entity(first, after, span.label))
    return sentence._replace(tags=tuple(bio_tags(chosen, len(starts))))


def sentence_of_row(row: TableRow, labelled: bool, oddities: Counter[str]) -> Sentence:
    """Return the sentence in a row that `has_text`; raises `UserError` for what is not a span."""
    text = row.values["text"]
    if not isinstance(text, str):
        raise UserError(f"{row.where}: the text is {shown(text)}.")
    sentence = sentence_of_text(text)
    if not labelled:
        return sentence
    if row.values.get("answer") in ("reject", "ignore"):  # Prodigy's
        raise UnusableRowError(row.where, "the annotator refused it", "refused by an annotator")
    values = row.value(row.first_column(SPAN_COLUMNS))
    if values is None:
        raise UnusableRowError(row.where, "the spans are empty", "without spans")
    if not isinstance(values, list):
        raise UserError(f"{row.where}: the spans are {shown(values)}, not a list.")
    return with_spans(sentence, [_span(value, row.where) for value in values], oddities)


@cache
def _steps() -> Steps:
    return Steps([BertPreTokenizer(), Split(Regex(_IDEOGRAPH), "isolated")])


def _span(value: object, where: str) -> Span:
    if isinstance(value, dict):
        start = value.get("start", value.get("start_offset"))
        end = value.get("end", value.get("end_offset"))
        label = value.get("label", value.get("type"))
    elif isinstance(value, list) and len(value) == 3:
        start, end, label = value
    else:
        start = end = label = None
    if type(start) is int and type(end) is int and isinstance(label, str) and label:
        return Span(start, end, label.strip())
    raise UserError(
        f'{where}: a span is {shown(value)}, not such as [0, 5, "PER"] or '
        '{"start": 0, "end": 5, "label": "PER"}.'
    )
