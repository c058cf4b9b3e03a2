"""Count what a unit of work sees, skips on purpose, and finds unusable."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

from .errors import UserError

MAX_EXAMPLES = 3
Z_95 = 1.959963984540054
"""95% of a normal distribution lie within this many standard deviations of the mean."""
WORDS_LEFT_OUT = "words_left_out_as_"
"""Prefix of the counters of words that are left out of documents; the reason follows."""

# A terminal obeys them, an editor ends a line at them, or they show text in another order or not at
# all. JSON escapes those below the space by itself.
_MISLEADING = re.compile(
    "[\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
# Maps all control characters to blanks, so that `bytes.split` splits at each of them.
_BLANKS = bytes.maketrans(bytes(range(ord(" "))), b" " * ord(" "))


class CounterRecord(TypedDict):
    """`Counters` as plain values, for records of units and manifests."""

    counts: dict[str, int]
    bad: dict[str, int]
    examples: dict[str, list[str]]


class Counters:
    """Named counts that travel with a shard and are summed in the manifest.

    `counts` are neutral (pages seen, redirects skipped); `bad` counts unusable inputs by reason.
    `examples` holds the first few locations of each reason, and of some neutral counts.
    `num_words_left_out` sums what `leave_out` counts. `listed` are lines of JSON, one for each bad
    input, up to a megabyte; `file` is the one that is being read.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.bad: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = {}
        self.num_words_left_out = 0
        self.listed: list[str] = []
        self.file = ""
        self._free_bytes = 1 << 20

    def count(self, name: str, amount: int = 1) -> None:
        """Add `amount` to a neutral counter."""
        self.counts[name] += amount

    def leave_out(self, reason: str, texts: Sequence[str], kept: str = "") -> None:
        """Count the words of texts that are left out of a document, except those `kept` of them."""
        num_words = count_words("\n".join(texts))
        if kept:
            num_words -= count_words(kept)
        self.count_left_out(reason, num_words)

    def leave_out_line(self, reason: str, text: str, doc_id: str) -> None:
        """Count a line or sentence that is left out of a document, and its words."""
        self.leave_out(reason, [text])
        shown = text[:100]
        # A menu that is on every page should not fill all the examples.
        if any(example.endswith(shown) for example in self.examples.get(reason, ())):
            self.count(reason)
        else:
            self.note(reason, f"{doc_id}: {shown}")

    def count_left_out(self, reason: str, num_words: int) -> None:
        """Count words that are left out of a document, where only their number is at hand."""
        self.num_words_left_out += num_words
        self.counts[WORDS_LEFT_OUT + reason] += num_words

    def note(self, name: str, where: str) -> None:
        """Add one to a neutral counter and record `where` it occurred."""
        self.counts[name] += 1
        self._remember(name, where)

    def skip(self, kind: str, where: str, reason: str = "", record: object = b"") -> None:
        """Count one bad input under its `kind`, and record `where` it was (file and position), the
        `reason` if the kind does not say it, and the input itself: a line or a row, if at hand.
        """
        self.bad[kind] += 1
        self._remember(kind, where)
        if self._free_bytes < 0:
            return
        if not isinstance(record, str | bytes):
            try:
                record = json.dumps(record, ensure_ascii=False, default=str)
            except (ValueError, RecursionError):  # so deep that it could barely be parsed
                record = ""
        if isinstance(record, str):
            record = record.encode("utf-8", "backslashreplace")
        is_shown = 0 < len(record) <= 1 << 14  # a longer one can be looked up in the file
        bad_input = {
            "kind": kind,
            "file": self.file,
            "place": where.removeprefix(self.file).removesuffix(reason).strip(",:/ "),
            "reason": reason or in_words(kind),
            "record": record.decode("utf-8", "backslashreplace") if is_shown else None,
        }
        line = json.dumps(bad_input, ensure_ascii=False) + "\n"
        line = _MISLEADING.sub(lambda found: json.dumps(found[0]).strip('"'), line)
        self._free_bytes -= len(line.encode("utf-8", "replace"))
        if self._free_bytes >= 0:  # the first ones are listed, without gaps
            self.listed.append(line)

    def _remember(self, name: str, where: str) -> None:
        examples = self.examples.setdefault(name, [])
        if len(examples) < MAX_EXAMPLES:
            examples.append(where)

    def add(self, record: CounterRecord) -> None:
        """Add the `to_record` of other counters."""
        self.counts.update(record["counts"])
        self.bad.update(record["bad"])
        for reason, locations in record["examples"].items():
            examples = self.examples.setdefault(reason, [])
            num_free = MAX_EXAMPLES - len(examples)
            examples.extend(locations[:num_free])

    def to_record(self) -> CounterRecord:
        """Return the counters as plain values with sorted keys, for reproducible records."""
        return {
            "counts": dict(sorted(self.counts.items())),
            "bad": dict(sorted(self.bad.items())),
            "examples": dict(sorted(self.examples.items())),
        }


def count_words(text: str | bytes) -> int:
    """Return the number of words that ASCII white space separates."""
    import numpy as np

    if isinstance(text, str):
        text = text.encode("utf-8", "replace")
    if len(text) < 300:  # in longer texts NumPy is faster
        return len(text.translate(_BLANKS).split())
    # A word begins where a blank is followed by something else:
    #   text       " " a b " " c      (with a blank put in front)
    #   is_space    1  0 0  1  0
    #   word starts    ^       ^
    is_space = np.frombuffer(b" " + text, np.uint8) <= ord(" ")
    begins_word = is_space[:-1] > is_space[1:]
    return int(np.count_nonzero(begins_word))


def sum_counters(records: Iterable[CounterRecord], max_bad: float) -> Counters:
    """Sum the counters of all units; raise `UserError` if too many inputs were bad.

    `max_bad` is the share of the inputs, documents that were read and bad ones, that may be bad.
    """
    total = Counters()
    for record in records:
        total.add(record)
    num_bad = sum(total.bad.values())
    num_all = num_bad + total.counts["documents_read"]
    if num_bad > max_bad * num_all:
        # Neutral counts have examples too.
        reason = next(reason for reason in total.examples if total.bad[reason])
        raise UserError(
            f"{num_bad} of {num_all} inputs are bad ({name_counts(total.bad)}), more than "
            f"`max_bad` {max_bad} allows; the first: {in_words(reason)} at "
            f"{total.examples[reason][0]}. Fix the input (bad/ in `output` lists what is bad), "
            "or raise `max_bad` to continue."
        )
    return total


def in_words(name: str) -> str:
    """Return the name of a counter, metric or option in words."""
    return name.replace("_", " ")


def count_of(count: int, noun: str) -> str:
    """Format a count with its noun, such as 1,200 shards."""
    plural = "" if count == 1 else "s"
    return f"{count:,} {noun}{plural}"


def name_counts(counts: Mapping[str, int]) -> str:
    """Format named counts, largest first: 1,200 x cut off page, 1 x empty file."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} x {in_words(name)}" for name, count in ordered)


def wilson_interval(successes: int, trials: int, z: float = Z_95) -> tuple[float, float]:
    """Return the ends of the score interval of a share, 95% by default; (0, 1) without trials.

    Wilson 1927, "Probable inference, the law of succession, and statistical inference".
    """
    if not trials:
        return 0.0, 1.0
    # Not share ± z * error, whose error is 0 where no trial succeeds, or all do.
    share = successes / trials
    spread = z * z / trials
    centre = (share + spread / 2) / (1 + spread)
    variance = share * (1 - share) / trials + spread / (4 * trials)
    half_width = z * math.sqrt(variance) / (1 + spread)
    return max(0.0, centre - half_width), min(1.0, centre + half_width)
