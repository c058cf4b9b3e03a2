"""Signs that text was not extracted or cleaned well: patterns in single sentences, and long
sentences that recur.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..schemas import SENTENCE_ENDS

MAX_EXAMPLES = 3
EXAMPLE_CHARACTERS = 120
LONG_CHARACTERS = 1000
REPEATED_CHARACTERS = 100
# Repeated sentences are found by 64-bit hashes; for a larger corpus only a share of the hashes is
# kept.
MAX_SENTENCE_HASHES = 20_000_000

LONG = f"sentences over {LONG_CHARACTERS:,} characters"
REPEATED = f"sentences of {REPEATED_CHARACTERS} characters or more that repeat another"
_ENDS = "".join(f"\\x{{{ord(character):x}}}" for character in SENTENCE_ENDS)
_CLOSING = r"\p{Pe}\p{Pf}\p{Pi}\"'\s"
PATTERNS = {
    "control characters": r"\p{Cc}",
    "invisible characters": r"[\x{200b}\x{2060}\x{feff}\x{ad}\x{202a}-\x{202e}]",
    "characters that could not be decoded": r"\x{fffd}",
    "text decoded as Latin-1": r"Ã[\x{80}-\x{bf}]|Â[\x{a0}-\x{bf}]|â€",
    "wiki markup": r"\[\[|\]\]|\{\{|\}\}|\{\||'''",
    "HTML tags": r"</?[A-Za-z][A-Za-z0-9]*(?:\s[^<>]*)?/?>",
    "HTML entities": r"&(?:[A-Za-z]{2,8}|#[0-9]{1,6}|#x[0-9A-Fa-f]{1,6});",
    "web addresses": r"https?://|\bwww\.[a-z0-9]",
    "sentences without a letter": r"^\P{L}*$",
    "sentences without final punctuation": rf"[^{_ENDS}{_CLOSING}][{_CLOSING}]*$",
}
"""Regular expressions in the syntax of RE2, by what they find."""


@dataclass
class Sign:
    """How many sentences (or documents) show a sign, out of how many, and the first ones:
    (document, text).
    """

    name: str
    count: int = 0
    total: int = 0
    examples: list[tuple[str, str]] = field(default_factory=list)

    def add(self, count: int, total: int) -> None:
        """Count some sentences out of `total`."""
        self.count += count
        self.total += total

    @property
    def num_wanted(self) -> int:
        """How many examples are still missing."""
        return MAX_EXAMPLES - len(self.examples)

    @property
    def share(self) -> float:
        """Between 0 and 1."""
        return self.count / max(self.total, 1)


def find_signs(sentences: pa.Array) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the name of each sign, and the indices of the `sentences` that show it."""
    for name, pattern in PATTERNS.items():
        matches = pc.call_function(
            "match_substring_regex", [sentences], pc.MatchSubstringOptions(pattern)
        )
        yield name, np.flatnonzero(matches.to_numpy(zero_copy_only=False))
    yield (
        LONG,
        np.flatnonzero(pc.call_function("utf8_length", [sentences]).to_numpy() > LONG_CHARACTERS),
    )


def excerpt(name: str, sentence: str) -> str:
    """Return the part of a sentence around the sign `name`; of a long one its beginning."""
    around = f"(?P<text>.{{0,40}}(?:{PATTERNS.get(name, '^')}).{{0,80}})"
    found = pc.call_function(
        "extract_regex", [pa.array([sentence])], pc.ExtractRegexOptions(around)
    )[0]
    text = found["text"].as_py()[:EXAMPLE_CHARACTERS]
    return (
        ("" if sentence.startswith(text) else "… ")
        + text
        + ("" if sentence.endswith(text) else " …")
    )


class Repeats:
    """Finds long sentences that occur more than once; `share` of their hashes are kept."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._limit = np.uint64(share * (2**64 - 2**12))
        self._hashes: list[np.ndarray] = []

    def add(self, sentences: pa.Array) -> None:
        """Add sentences, of which the long ones count."""
        _, hashes = hash_long(sentences)
        self._hashes.append(hashes[hashes <= self._limit])

    def sum(self) -> tuple[int, int, np.ndarray]:
        """Return how many sentences repeat another, of how many, and the hashes of the most
        frequent of these.

        The numbers are estimates for all sentences if only a share of the hashes is kept.
        """
        hashes, counts = np.unique(
            np.concatenate([np.zeros(0, np.uint64), *self._hashes]), return_counts=True
        )
        repeated = np.flatnonzero(counts > 1)
        top = repeated[np.argsort(-counts[repeated], kind="stable")[:MAX_EXAMPLES]]
        num_repeated, total = (
            round(int(count) / self._share)
            for count in ((counts[repeated] - 1).sum(), counts.sum())
        )
        return num_repeated, total, hashes[top]


def hash_long(sentences: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of the sentences of `REPEATED_CHARACTERS` or more, int64, and their
    hashes, uint64.
    """
    long = np.flatnonzero(
        pc.call_function("utf8_length", [sentences]).to_numpy() >= REPEATED_CHARACTERS
    )
    texts = sentences.take(pa.array(long)).to_pylist()
    content = b"".join(blake2b(text.encode(), digest_size=8).digest() for text in texts)
    return long, np.frombuffer(content, np.uint64)
