"""The flat token arrays of a document shard, and documents cut into chunks of whole sentences.

Sentences become *segments* (long ones are cut), and consecutive segments of one document become
*chunks* that fit in a row. Everything is an offset into the flat array of tokens; no token is
copied:

    tokens     t t t t t t t t t t t t t t t t t t
    sentences  |0    |1  |2                |3      |     sentence 2 is too long for a row
    segments   |0    |1  |2      |3        |4      |
    chunks     |0        |1      |2        |3      |
    documents  |0                          |1      |

An array of n + 1 offsets bounds n items: item ``i`` is ``offsets[i]:offsets[i + 1]``.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..ragged import divide_up, offsets_of, owners, places
from .origins import Origins


@dataclass(frozen=True)
class Corpus:
    """The tokens of one document shard; sentences and documents may be empty."""

    token_ids: np.ndarray
    """uint16 or uint32 [num_tokens]."""
    sentence_offsets: np.ndarray
    """Where each begins among the tokens, int64 [num_sentences + 1]."""
    document_offsets: np.ndarray
    """Where each begins among the sentences, int64 [num_documents + 1]."""
    origins: Origins

    def select(self, documents: np.ndarray) -> "Corpus":
        """Return the corpus with some `documents` (bool [num_documents]); the others are empty."""
        if documents.all():
            return self
        # Spread the mask from documents to their sentences, and on to their tokens.
        sentences_per_document = np.diff(self.document_offsets)
        is_selected_sentence = np.repeat(documents, sentences_per_document)
        sentence_lengths = np.diff(self.sentence_offsets)
        is_selected_token = np.repeat(is_selected_sentence, sentence_lengths)
        selected_lengths = sentence_lengths[is_selected_sentence]
        return Corpus(
            token_ids=self.token_ids[is_selected_token],
            sentence_offsets=offsets_of(selected_lengths),
            document_offsets=offsets_of(sentences_per_document * documents),
            origins=self.origins,
        )

    def document_lengths(self) -> np.ndarray:
        """Return the tokens of each document, int64 [num_documents]."""
        return np.diff(self.sentence_offsets[self.document_offsets])

    def num_with_text(self) -> int:
        """Return the number of documents that are not empty."""
        return int(np.count_nonzero(self.document_lengths()))


@dataclass(frozen=True)
class Segments:
    """Consecutive pieces of text."""

    offsets: np.ndarray
    """Where each begins among the tokens, int64 [num_segments + 1]."""
    document: np.ndarray
    """Where each comes from, int32 [num_segments]."""


class Chunks(NamedTuple):
    """Consecutive groups of segments of one document.

    Chunk ``i`` is the tokens ``start[i]:stop[i]`` of `document[i]`: `num_segments[i]` segments from
    `first[i]` on. All arrays are [num_chunks].
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
    """Return the sentences as segments of 1 to `limit` tokens.

    Longer sentences are cut between words into near-equal pieces. `continues` (bool [vocabulary])
    marks the word pieces that continue a word.
    """
    starts = corpus.sentence_offsets[:-1]
    lengths = np.diff(corpus.sentence_offsets)
    # Aim at 7/8 of the limit: each cut then has room to move back to the start of a word.
    target = limit - limit // 8
    rounded_up = divide_up(lengths, target)
    num_pieces = np.where(lengths > limit, rounded_up, lengths > 0)

    # With a limit of 8, sentences of 3, 0 and 20 tokens have 1, 0 and 3 pieces:
    #
    #   num_pieces       1  0   3
    #   sentence_P       0      2    2    2
    #   piece_P          0      0    1    2      number of the piece in its sentence
    #   offsets_P        0      3    9   16      before cuts move back to the start of a word
    sentence_P = owners(num_pieces)
    piece_P = places(num_pieces)
    tokens_before_P = piece_P * lengths[sentence_P] // num_pieces[sentence_P]
    offsets_P = starts[sentence_P] + tokens_before_P

    # Only cuts inside sentences move.
    inner = np.flatnonzero(piece_P)
    longest_piece = divide_up(lengths, np.maximum(num_pieces, 1))
    # A piece may start this much earlier and still fit the limit.
    slack = limit - longest_piece[sentence_P[inner]]
    lowest = offsets_P[inner] - slack
    offsets_P[inner] = back_to_word_start(corpus.token_ids, continues, offsets_P[inner], lowest)

    num_documents = len(corpus.document_offsets) - 1
    sentences_per_document = np.diff(corpus.document_offsets)
    documents = np.arange(num_documents, dtype=np.int32)
    document_of_sentence = np.repeat(documents, sentences_per_document)
    end = corpus.sentence_offsets[-1]
    return Segments(
        offsets=np.append(offsets_P, end),
        document=document_of_sentence[sentence_P],
    )


def back_to_word_start(
    token_ids: np.ndarray, continues: np.ndarray, cuts: np.ndarray, lowest: np.ndarray
) -> np.ndarray:
    """Move each of `cuts` back to the start of a word, unless that is before its `lowest`."""
    moved = cuts.copy()
    # Indices into `moved` of the cuts that are still inside a word; each round moves them by one.
    inside = np.flatnonzero(continues[token_ids[moved]])
    while len(inside):
        moved[inside] -= 1
        is_below = moved[inside] < lowest[inside]
        given_up = inside[is_below]
        moved[given_up] = cuts[given_up]
        inside = inside[~is_below]
        inside = inside[continues[token_ids[moved[inside]]]]
    return moved


def cut_inside(
    token_ids: np.ndarray,
    continues: np.ndarray,
    starts: np.ndarray,
    stops: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return a random cut in each range of 2 or more tokens, at the start of a word if possible."""
    # In the middle half: a segment of a word or two has nothing to learn from.
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
    targets_S = np.full(num_segments, limit)
    is_short = rng.random(num_segments, dtype=np.float32) < short_share
    short = np.flatnonzero(is_short)
    targets_S[short] = rng.integers(2, limit + 1, len(short))

    # Treat every segment as if it started a chunk: `next_S` is where the following chunk would
    # start. The real chunks are the chain of these from segment 0 on. With a target of 8:
    #
    #   segment    0  1  2  3  4  5
    #   length     3  4  5  2  6  1
    #   next_S     2  2  4  5  6  6       0 -> 2 -> 4 -> end: chunks 0-1, 2-3 and 4-5
    #
    # It is the last offset at or before start + target: the first segment that no longer fits.
    starts_S = segments.offsets[:-1]
    next_S = np.searchsorted(segments.offsets, starts_S + targets_S, side="right") - 1
    # At least one segment, and never past the document's end.
    at_least = np.arange(1, num_segments + 1)
    document_stop = np.searchsorted(segments.document, segments.document, side="right")
    next_S = np.clip(next_S, at_least, document_stop)

    chain = []
    following = next_S.tolist()
    segment = 0
    while segment < num_segments:
        chain.append(segment)
        segment = following[segment]
    first_C = np.array(chain, np.int64)
    num_segments_C = np.diff(first_C, append=num_segments)
    _lend_segments(segments, first_C, num_segments_C, limit)
    return Chunks(
        first=first_C,
        num_segments=num_segments_C,
        start=segments.offsets[first_C],
        stop=segments.offsets[first_C + num_segments_C],
        document=segments.document[first_C],
    )


def _lend_segments(
    segments: Segments, first: np.ndarray, num_segments: np.ndarray, limit: int
) -> None:
    """Give chunks of one segment that cannot be split another from their predecessor, in place."""
    # Each chunk but the last is a possible lender to the one after it:
    #
    #   lender  borrower           lender  borrower
    #   | a b c | d |     becomes  | a b | c d |
    lender_segment = first[:-1]
    borrower_segment = first[1:]
    is_same_document = segments.document[lender_segment] == segments.document[borrower_segment]
    is_enough = num_segments[:-1] >= 3
    is_needed = num_segments[1:] == 1
    enlarged_start = segments.offsets[borrower_segment - 1]
    enlarged_stop = segments.offsets[borrower_segment + 1]
    fits = enlarged_stop - enlarged_start <= limit
    # A lender has three segments and a borrower one, so no chunk is both.
    lender = np.flatnonzero(is_same_document & is_enough & is_needed & fits)
    first[lender + 1] -= 1
    num_segments[lender + 1] += 1
    num_segments[lender] -= 1
