"""Counters of one unit of work: what was seen, what was skipped on purpose, and what was bad."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

from ..errors import UserError
from .trace import LeftOut, Trace

MAX_EXAMPLES = 3
LONGEST_EXAMPLE = 100
WORDS_LEFT_OUT = "words_left_out_as_"
"""What the counters of words that are left out of documents begin with; the reason follows."""


_SHORT_BYTES = 300  # from here on NumPy is faster
_BLANKS = bytes.maketrans(bytes(range(ord(" "))), b" " * ord(" "))


class CounterRecord(TypedDict):
    """`Counters` as plain values: in the records of units and in manifests."""

    counts: dict[str, int]
    bad: dict[str, int]
    examples: dict[str, list[str]]


class Counters:
    """Named counts that travel with a shard and are summed in the manifest.

    `counts` are neutral (pages seen, redirects skipped); `bad` counts unusable inputs by reason.
    `examples` holds the first few locations of each reason, and of some neutral counts.
    `num_words_left_out` sums what `leave_out` counts. A `trace` is set to explain one document.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.bad: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = {}
        self.num_words_left_out = 0
        self.trace: Trace | None = None

    def count(self, name: str, amount: int = 1) -> None:
        """Add `amount` to a neutral counter."""
        self.counts[name] += amount

    def leave_out(self, reason: str, texts: Sequence[str], kept: str = "") -> None:
        """Count the words of texts that are left out of a document, less those of the text `kept`
        of them.
        """
        num_words = count_words("\n".join(texts))
        if kept:
            num_words -= count_words(kept)
        self._add_left_out(reason, num_words)
        if self.trace:
            for text in texts:
                num_lost = count_words(text) - count_words(kept)
                lost = _words_without(text, kept)
                self.trace.left_out.append(LeftOut(reason=reason, num_words=num_lost, text=lost))

    def leave_out_line(self, reason: str, text: str, doc_id: str) -> None:
        """Count a line or sentence that is left out of a document, and its words; examples are of
        different texts.
        """
        self.leave_out(reason, [text])
        shown = text[:LONGEST_EXAMPLE]
        if any(example.endswith(shown) for example in self.examples.get(reason, ())):
            self.count(reason)
        else:
            self.note(reason, f"{doc_id}: {shown}")

    def count_left_out(self, reason: str, num_words: int) -> None:
        """Count words that are left out of a document, where only their number is at hand."""
        self._add_left_out(reason, num_words)
        if self.trace:
            self.trace.left_out.append(LeftOut(reason=reason, num_words=num_words))

    def _add_left_out(self, reason: str, num_words: int) -> None:
        self.num_words_left_out += num_words
        self.counts[WORDS_LEFT_OUT + reason] += num_words

    def note(self, name: str, where: str) -> None:
        """Add one to a neutral counter and record `where` it occurred."""
        self.counts[name] += 1
        self._remember(name, where)

    def skip(self, reason: str, where: str) -> None:
        """Count one bad input under `reason` and record `where` it was (file and position)."""
        self.bad[reason] += 1
        self._remember(reason, where)

    def _remember(self, name: str, where: str) -> None:
        examples = self.examples.setdefault(name, [])
        if len(examples) < MAX_EXAMPLES:
            examples.append(where)

    def add(self, record: CounterRecord) -> None:
        """Add the `to_record` of other counters."""
        self.counts.update(record["counts"])
        self.bad.update(record["bad"])
        for reason, locations in record["examples"].items():
            known = self.examples.setdefault(reason, [])
            known.extend(locations[: MAX_EXAMPLES - len(known)])

    def to_record(self) -> CounterRecord:
        """Return the counters as plain JSON values with sorted keys."""
        return {
            "counts": dict(sorted(self.counts.items())),
            "bad": dict(sorted(self.bad.items())),
            "examples": dict(sorted(self.examples.items())),
        }


def count_words(text: str | bytes) -> int:
    """Return how many words white space (of ASCII) separates; in a long text six times as fast as
    to split it.
    """
    import numpy as np

    raw = text.encode("utf-8", "replace") if isinstance(text, str) else text
    if len(raw) < _SHORT_BYTES:
        return len(raw.translate(_BLANKS).split())
    is_space = np.frombuffer(b" " + raw, np.uint8) <= ord(" ")
    return int(np.count_nonzero(is_space[:-1] > is_space[1:]))


def _words_without(text: str, kept: str) -> str:
    """Return the words of `text` that are not among those of `kept`."""
    lost = Counter(text.split()) - Counter(kept.split())
    return " ".join(lost.elements()) if kept else " ".join(text.split())


def sum_counters(records: Iterable[CounterRecord], max_bad: float, seen: str) -> Counters:
    """Sum the counters of all units; raise `UserError` if more than the share `max_bad` of the
    inputs was bad.

    `seen` names the counter that, together with the bad inputs, makes up the total.
    """
    total = Counters()
    for record in records:
        total.add(record)
    num_bad = sum(total.bad.values())
    num_all = num_bad + total.counts[seen]
    if num_bad > max_bad * num_all:
        reason = next(reason for reason in total.examples if total.bad[reason])
        raise UserError(
            f"{num_bad} of {num_all} inputs are bad ({name_counts(total.bad)}), "
            f"more than `max_bad` {max_bad} allows; "
            f"the first: {reason.replace('_', ' ')} at {total.examples[reason][0]}. "
            "Fix the input, or raise `max_bad` to continue."
        )
    return total


def count_of(count: int, noun: str) -> str:
    """Format a count with its noun.

    >>> count_of(1, "shard"), count_of(1_200, "shard")
    ('1 shard', '1,200 shards')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def name_counts(counts: Mapping[str, int]) -> str:
    """Format named counts, largest first.

    >>> name_counts({"empty_file": 1, "cut_off_page": 1_200})
    '1,200 x cut off page, 1 x empty file'
    """
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} x {name.replace('_', ' ')}" for name, count in ordered)
