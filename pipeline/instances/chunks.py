"""The flat token arrays of a document shard, and documents cut into chunks of whole sentences.

Sentences become *segments* (long ones are cut), and consecutive segments of one document become
*chunks* that fit in a row. Everything is an offset into the flat array of tokens; no token is
copied.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .origins import Origins


@dataclass(frozen=True)
class Corpus:
    """The tokens of one document shard.

    `token_ids` uint16 or uint32 [num_tokens]; sentence ``i`` is
    ``token_ids[sentence_offsets[i]:sentence_offsets[i + 1]]`` (int64 [num_sentences + 1]), document
    ``d`` the sentences ``document_offsets[d]`` up to ``document_offsets[d + 1]`` (int64
    [num_documents + 1]). Sentences and documents may be empty. Without `origins` all documents come
    from one source.
    """

    token_ids: np.ndarray
    sentence_offsets: np.ndarray
    document_offsets: np.ndarray
    origins: Origins | None = None

    def select(self, documents: np.ndarray) -> "Corpus":
        """Return the corpus with only some documents (bool [num_documents]) left, the others empty."""
        if documents.all():
            return self
        of_sentence = np.repeat(documents, np.diff(self.document_offsets))
        lengths = np.diff(self.sentence_offsets)
        return Corpus(
            self.token_ids[np.repeat(of_sentence, lengths)],
            np.append(0, np.cumsum(lengths[of_sentence])),
            np.append(0, np.cumsum(np.diff(self.document_offsets) * documents)),
            self.origins,
        )

    def document_lengths(self) -> np.ndarray:
        """Return the tokens of each document, int64 [num_documents]."""
        return np.diff(self.sentence_offsets[self.document_offsets])


@dataclass(frozen=True)
class Segments:
    """Consecutive pieces of text: segment ``i`` is the tokens ``offsets[i]:offsets[i + 1]``, of
    `document[i]`.
    """

    offsets: np.ndarray
    document: np.ndarray


class Chunks(NamedTuple):
    """Consecutive groups of segments of one document.

    Chunk ``i`` is the tokens ``start[i]:stop[i]`` of `document[i]`: `num_segments[i]` segments from
    `first[i]` on.
    """

    first: np.ndarray
    num_segments: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    document: np.ndarray

    def take(self, rows: np.ndarray) -> "Chunks":
        """Return the chunks at the given indices or mask."""
        return Chunks(*(column[rows] for column in self))


def cut_segments(corpus: Corpus, continues: np.ndarray, limit: int) -> Segments:
    """Return the sentences as segments of 1 to `limit` tokens, longer ones cut between words into
    near-equal pieces.

    `continues` (bool [vocabulary]) marks the word pieces that continue a word.
    """
    starts = corpus.sentence_offsets[:-1]
    lengths = np.diff(corpus.sentence_offsets)
    # Aim at 7/8 of the limit: each cut then has room to move back to the start of a word.
    num_pieces = np.where(lengths > limit, -(-lengths // (limit - limit // 8)), lengths > 0)
    sentence = np.repeat(np.arange(len(lengths)), num_pieces)
    piece = np.arange(len(sentence)) - np.repeat(np.cumsum(num_pieces) - num_pieces, num_pieces)
    offsets = starts[sentence] + piece * lengths[sentence] // num_pieces[sentence]
    inner = np.flatnonzero(piece)
    piece_lengths = -(-lengths // np.maximum(num_pieces, 1))
    # A piece may start this much earlier and still fit the limit.
    slack = limit - piece_lengths[sentence[inner]]
    offsets[inner] = back_to_word_start(
        corpus.token_ids, continues, offsets[inner], offsets[inner] - slack
    )
    document = np.repeat(
        np.arange(len(corpus.document_offsets) - 1, dtype=np.int32),
        np.diff(corpus.document_offsets),
    )
    return Segments(np.append(offsets, corpus.sentence_offsets[-1]), document[sentence])


def back_to_word_start(
    token_ids: np.ndarray, continues: np.ndarray, cuts: np.ndarray, lowest: np.ndarray
) -> np.ndarray:
    """Move each offset in `cuts` back to the start of a word; keep it if no word starts at or after
    its `lowest`.
    """
    moved = cuts.copy()
    inside = np.flatnonzero(continues[token_ids[moved]])
    while len(inside):
        moved[inside] -= 1
        below = moved[inside] < lowest[inside]
        moved[inside[below]] = cuts[inside[below]]
        inside = inside[~below]
        inside = inside[continues[token_ids[moved[inside]]]]
    return moved


def cut_inside(
    token_ids: np.ndarray,
    continues: np.ndarray,
    starts: np.ndarray,
    stops: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return a random cut in the middle half of each range of 2 or more tokens, at the start of a
    word if possible.

    A cut near an end would leave a segment of a word or two, with nothing to learn from.
    """
    margin = np.maximum((stops - starts) // 4, 1)
    cuts = rng.integers(starts + margin, stops - margin, endpoint=True)
    return back_to_word_start(token_ids, continues, cuts, starts + 1)


def make_chunks(
    segments: Segments, limit: int, short_share: float, rng: np.random.Generator
) -> Chunks:
    """Cut every document into chunks of whole segments, none longer than `limit` tokens.

    A chunk is filled up to its target: the limit or, for `short_share` of the chunks, uniform in
    ``[2, limit]``. A chunk of one segment takes over its predecessor's last one if the predecessor
    keeps two and the result fits.
    """
    num_segments = len(segments.document)
    # Draw a target for every segment, although only those that start a chunk use theirs: which ones
    # do is known only in the end, and this way all targets are drawn at once.
    targets = np.full(num_segments, limit)
    short = np.flatnonzero(rng.random(num_segments, dtype=np.float32) < short_share)
    targets[short] = rng.integers(2, limit + 1, len(short))
    document_stop = np.searchsorted(segments.document, segments.document, side="right")
    filled = np.searchsorted(segments.offsets, segments.offsets[:-1] + targets, side="right") - 1
    # At least one segment, and never past the document's end.
    following = np.clip(filled, np.arange(1, num_segments + 1), document_stop)
    first = np.fromiter(_follow(following.tolist()), np.int64)
    num_segments = np.diff(first, append=num_segments)
    _lend_segments(segments, first, num_segments, limit)
    stop = segments.offsets[first + num_segments]
    return Chunks(first, num_segments, segments.offsets[first], stop, segments.document[first])


def _follow(following: list[int]) -> Iterator[int]:
    """Yield the chain 0, following[0], following[following[0]], … to the end."""
    segment = 0
    while segment < len(following):
        yield segment
        segment = following[segment]


def _lend_segments(
    segments: Segments, first: np.ndarray, num_segments: np.ndarray, limit: int
) -> None:
    """Let a chunk of one segment, which cannot be split between sentences, take one from a
    predecessor with three.
    """
    lender = np.flatnonzero(
        (segments.document[first[:-1]] == segments.document[first[1:]])
        & (num_segments[:-1] >= 3)
        & (num_segments[1:] == 1)
        & (segments.offsets[first[1:] + 1] - segments.offsets[first[1:] - 1] <= limit)
    )
    first[lender + 1] -= 1
    num_segments[lender + 1] += 1
    num_segments[lender] -= 1
