"""Find signs of badly extracted or cleaned text in single sentences, and repeats by 64-bit hashes
of long ones.
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
MAX_HASHES = 20_000_000
"""Of more hashes only a share is kept, so that memory is bounded."""

LONG = f"sentences over {LONG_CHARACTERS:,} characters"
REPEATED = f"sentences of {REPEATED_CHARACTERS} characters or more that repeat another"
# As code points: in brackets, a character such as `]` or `-` would mean something else.
_ENDS = "".join(f"\\x{{{ord(character):x}}}" for character in SENTENCE_ENDS)
# Closing and either kind of quoting punctuation (« closes in German), quotes, and white space.
_CLOSING = r"\p{Pe}\p{Pf}\p{Pi}\"'\s"
PATTERNS = {
    "control characters": r"\p{Cc}",
    # Zero-width space, word joiner, byte order mark, soft hyphen, and marks of direction.
    "invisible characters": r"[\x{200b}\x{2060}\x{feff}\x{ad}\x{202a}-\x{202e}]",
    "characters that could not be decoded": r"\x{fffd}",
    # UTF-8 of two or three bytes, read as one character each: é as Ã©, and ’ as â€™.
    "text decoded as Latin-1": r"Ã[\x{80}-\x{bf}]|Â[\x{a0}-\x{bf}]|â€",
    "wiki markup": r"\[\[|\]\]|\{\{|\}\}|\{\||'''",
    "HTML tags": r"</?[A-Za-z][A-Za-z0-9]*(?:\s[^<>]*)?/?>",
    "HTML entities": r"&(?:[A-Za-z]{2,8}|#[0-9]{1,6}|#x[0-9A-Fa-f]{1,6});",
    "web addresses": r"https?://|\bwww\.[a-z0-9]",
    "sentences without a letter": r"^\P{L}*$",
    # The last character before closing quotes and brackets.
    "sentences without final punctuation": rf"[^{_ENDS}{_CLOSING}][{_CLOSING}]*$",
}
"""Regular expressions in the syntax of RE2, by the name of what they match."""


@dataclass
class Sign:
    """A sign of bad text, and the sentences that show it: `count` out of `total`."""

    name: str
    count: int = 0
    total: int = 0
    examples: list[tuple[str, str]] = field(default_factory=list)
    """The first ones: (id of the document, text)."""

    @property
    def share(self) -> float:
        """Between 0 and 1."""
        return self.count / max(self.total, 1)


def find_signs(sentences: pa.Array) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the name of each sign, and the indices of the `sentences` that show it."""
    for name, pattern in PATTERNS.items():
        options = pc.MatchSubstringOptions(pattern)
        matches = pc.call_function("match_substring_regex", [sentences], options)
        # Arrow packs booleans into bits: NumPy needs a copy.
        is_match = matches.to_numpy(zero_copy_only=False)
        yield name, np.flatnonzero(is_match)
    lengths = pc.call_function("utf8_length", [sentences]).to_numpy()
    yield LONG, np.flatnonzero(lengths > LONG_CHARACTERS)


def excerpt(name: str, sentence: str) -> str:
    """Return the part of a sentence around the sign `name`; of a long one its beginning."""
    pattern = PATTERNS.get(name, "^")  # signs of length or repetition have no pattern
    around = f"(?P<text>.{{0,40}}(?:{pattern}).{{0,80}})"
    # By Arrow, not `re`: the patterns are in the syntax of RE2.
    options = pc.ExtractRegexOptions(around)
    match = pc.call_function("extract_regex", [pa.array([sentence])], options)[0]
    text = match["text"].as_py()[:EXAMPLE_CHARACTERS]
    shown = text
    if not sentence.startswith(text):
        shown = f"… {shown}"
    if not sentence.endswith(text):
        shown = f"{shown} …"
    return shown


def hash_long(sentences: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of the sentences of `REPEATED_CHARACTERS` or more, int64, and their
    hashes, uint64.
    """
    lengths = pc.call_function("utf8_length", [sentences]).to_numpy()
    indices = np.flatnonzero(lengths >= REPEATED_CHARACTERS)
    long_sentences = sentences.take(pa.array(indices)).to_pylist()
    # Not Python's `hash`, which has another salt in each process: which hashes are kept, and with
    # them the estimates, would differ from run to run.
    digests = [blake2b(text.encode(), digest_size=8).digest() for text in long_sentences]
    return indices, np.frombuffer(b"".join(digests), np.uint64)


class HashSample:
    """A sample of hashes: of the `num_expected` that are added, about `max_hashes` are kept.

    All copies have one hash, so they are kept or left out together: the kept hashes are a sample of
    the distinct ones, each with all its repeats.
    """

    def __init__(self, num_expected: int, max_hashes: int = MAX_HASHES) -> None:
        self.share = min(1.0, max_hashes / max(num_expected, 1))
        """Of the distinct hashes, the share that is kept."""
        # Hashes up to this one are kept. As a float 2**64 - 1 would become 2**64, which uint64
        # cannot hold.
        self._highest_hash = np.uint64(self.share * (2**64 - 2**12))
        self._hashes: list[np.ndarray] = []

    def add(self, hashes: np.ndarray) -> None:
        """Add some hashes, uint64."""
        self._hashes.append(hashes[hashes <= self._highest_hash])

    def counts(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the distinct hashes that were kept, and how often each was added."""
        no_hashes = np.zeros(0, np.uint64)  # `concatenate` refuses an empty list
        return np.unique(np.concatenate([no_hashes, *self._hashes]), return_counts=True)
