"""Decide how many documents are held out, so that there are enough to judge a model by.

`IngestConfig.validation_share` is enough in a large corpus. In a small one it is two or three
documents, and one of them may have most of the text: a figure measured on them says nothing. More
are held out until they are enough (`ENOUGH_DOCUMENTS`, `ENOUGH_BYTES`, `MAX_SHARE_OF_ONE`), but at
most `MAX_SHARE` of the documents. With articles of 3 kB::

    documents      100   200   500   2,000   10,000   40,000
    held out        10    20    50     167      167      200
    share          10%   10%   10%      8%     1.7%     0.5%

Documents are held out in the order of their validation hashes, which are random: a corpus that
grows keeps its order, and what is held out does not depend on texts or sources.
"""

from collections.abc import Sequence
from typing import NamedTuple

ENOUGH_DOCUMENTS = 20
ENOUGH_BYTES = 500_000
"""Bytes of text: about 1,000 rows of 128 tokens in English."""
MAX_SHARE_OF_ONE = 0.25
"""Of the text held out, a single document has at most this share."""
MAX_SHARE = 0.1
MIN_DOCUMENTS = 2
"""Next-sentence pairs need two."""

MAX_CANDIDATES = 4096
"""Documents that may be held out beyond `validation_share`: more than make `ENOUGH_BYTES` of
documents of the default `min_characters`.
"""


class Candidate(NamedTuple):
    """A document that may be held out. Versions under one id count as one, as only one is kept."""

    validation_hash: int
    hash: int
    num_bytes: int


def num_held_out(candidates: Sequence[Candidate], num_documents: int, num_asked: int) -> int:
    """Return how many of the `candidates`, ordered by their validation hash, are held out.

    At least `num_asked`, or `MIN_DOCUMENTS`. There are `num_documents` in all; candidates beyond
    those listed are not looked at.

    >>> short = [Candidate(i, i, num_bytes=2_000) for i in range(100)]
    >>> num_held_out(short, num_documents=100, num_asked=1)
    10
    """
    most = max(int(MAX_SHARE * num_documents), MIN_DOCUMENTS)
    num_bytes = 0
    longest = 0
    for number, candidate in enumerate(candidates):
        is_enough = (
            number >= ENOUGH_DOCUMENTS
            and num_bytes >= ENOUGH_BYTES
            and longest <= MAX_SHARE_OF_ONE * num_bytes
        )
        if number >= max(num_asked, MIN_DOCUMENTS) and (is_enough or number >= most):
            return number
        num_bytes += candidate.num_bytes
        longest = max(longest, candidate.num_bytes)
    return max(len(candidates), num_asked)
