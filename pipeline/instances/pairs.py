"""Pair segments A and B, over a whole document shard at once.

The default, `balanced`, uses every token of the shard in exactly one row, makes as many IsNext as
NotNext rows at every length, and takes the B of every NotNext row from another document:

1. cut every document into chunks of whole sentences (chunks.py);
2. split each chunk of several segments between two of them into A and B: a *free* pair, whose label
   is still open. Pair one-segment chunks across documents if two fit in a row: *forced* NotNext
   pairs. Split the rest inside;
3. sort the pairs by length and deal out the labels, counting the forced pairs as NotNext
   (balance.py);
4. let the free NotNext pairs exchange their Bs with pairs of other documents and (nearly) equal
   length of B.

Steps 2 to 4 are done for each source and language on its own (origins.py), so that neither tells
the label.

Of the others, `bert` is google-research's ``create_instances_from_document``, `sop` ALBERT's
sentence-order prediction, and `none` RoBERTa's DOC-SENTENCES. All work on ranges of the flat token
array; no token is copied.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from ..config import BuildConfig
from ..errors import UserError
from ..execution.counters import count_of
from .balance import (
    LENGTH_AUC_TOLERANCE,
    Z_JUDGED,
    auc_of,
    balanced_labels,
    exchange,
    match_across_documents,
    match_to_fit,
)
from .chunks import Chunks, Corpus, Segments, cut_inside, cut_segments, make_chunks
from .origins import partner_groups

IS_NEXT, NOT_NEXT = 0, 1
# [CLS] A [SEP] B [SEP], and [CLS] A [SEP].
PAIR_SPECIALS, SINGLE_SPECIALS = 3, 2

_ROW_ARRAYS = ("a_start", "a_stop", "b_start", "b_stop", "label", "document_a", "document_b")


@dataclass(frozen=True)
class Pairs:
    """Rows as ranges of `Corpus.token_ids`: A is ``a_start:a_stop``, B is ``b_start:b_stop`` (empty
    if there is no B).

    The arrays are int64 [num_rows], `label` uint8, `document_a` and `document_b` int32.
    `tokens_cut` counts tokens cut away, `forced` rows whose label was not free, and `unexchanged`
    rows meant to be NotNext that found no B in another document; `largest_document` is the largest
    document's share of the tokens.
    """

    a_start: np.ndarray
    a_stop: np.ndarray
    b_start: np.ndarray
    b_stop: np.ndarray
    label: np.ndarray
    document_a: np.ndarray
    document_b: np.ndarray
    tokens_cut: int = 0
    forced: int = 0
    unexchanged: int = 0
    largest_document: float = 0.0

    def __len__(self) -> int:
        return len(self.label)

    @property
    def a_length(self) -> np.ndarray:
        """The length of each A in tokens."""
        return self.a_stop - self.a_start

    @property
    def b_length(self) -> np.ndarray:
        """The length of each B in tokens, 0 if there is none."""
        return self.b_stop - self.b_start

    def take(self, rows: np.ndarray) -> "Pairs":
        """Return the rows at the given indices, in that order, with the same counters."""
        return replace(self, **{name: getattr(self, name)[rows] for name in _ROW_ARRAYS})

    def warning(self) -> str | None:
        """Return why the labels could not be balanced, or None if they are."""
        if self.unexchanged:
            return (
                f"one document holds {self.largest_document:.0%} of the tokens, so {self.unexchanged} of {len(self)} "
                "pairs found no segment in another document and became IsNext"
            )
        if 2 * self.forced > len(self) or (self.forced and self._length_gives_label_away()):
            return (
                f"{self.forced} of {len(self)} pairs are single sentences, which can only be NotNext, so their number "
                "or length gives away the label; lower --short-share, or build single-sentence documents with "
                "--pairing none"
            )
        return None

    def _length_gives_label_away(self) -> bool:
        lengths = self.a_length + self.b_length
        most = int(lengths.max(initial=0)) + 1
        auc, error = auc_of(
            np.stack(
                [np.bincount(lengths[self.label == label], minlength=most) for label in (0, 1)]
            )
        )
        return abs(auc - 0.5) > max(LENGTH_AUC_TOLERANCE, Z_JUDGED * error)


def make_pairs(
    corpus: Corpus, continues: np.ndarray, config: BuildConfig, rng: np.random.Generator
) -> Pairs:
    """Return the rows of one pass over `corpus`, in no particular order.

    `continues` (bool [vocabulary]) marks the pieces that continue a word: long sentences are cut
    between words. Raise `UserError` if the pairing needs another document and there is none.
    """
    num_documents = int(np.count_nonzero(corpus.document_lengths()))
    if config.pairing in ("balanced", "bert") and num_documents < 2:
        raise UserError(
            f"The shard has {count_of(num_documents, 'document')} with text, but NotNext pairs need two: ingest more "
            "documents, with fewer --shards or a larger --validation-share, or build with --pairing sop or none."
        )
    if config.pairing == "bert":
        return _bert_pairs(corpus, config, rng)
    limit = config.max_length - (SINGLE_SPECIALS if config.pairing == "none" else PAIR_SPECIALS)
    segments = cut_segments(corpus, continues, limit)
    chunks = make_chunks(segments, limit, config.short_share, rng)
    if config.pairing == "none":
        # RoBERTa (arXiv 1907.11692), section 4.2, DOC-SENTENCES.
        label = np.zeros(len(chunks.first), np.uint8)
        return Pairs(
            chunks.start,
            chunks.stop,
            chunks.stop,
            chunks.stop,
            label,
            chunks.document,
            chunks.document,
        )
    if config.pairing == "sop":
        return _swap_half(_split_chunks(corpus, continues, segments, chunks, rng), rng)
    return _concatenated(
        _balanced_pairs(corpus, continues, segments, group, limit, rng)
        for group in _partners(corpus, chunks, config.negatives, limit)
    )


def _partners(corpus: Corpus, chunks: Chunks, negatives: str, limit: int) -> Iterator[Chunks]:
    """Yield the chunks whose documents may exchange segments."""
    if corpus.origins is None:
        yield chunks
        return
    group = partner_groups(corpus.origins, corpus.document_lengths(), negatives, limit)[
        chunks.document
    ]
    order = np.argsort(group, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        yield chunks.take(rows)


def _concatenated(parts: Iterable[Pairs]) -> Pairs:
    """Return the rows of all parts, and the sums of their counters."""
    parts = list(parts)
    return Pairs(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in _ROW_ARRAYS),
        tokens_cut=sum(part.tokens_cut for part in parts),
        forced=sum(part.forced for part in parts),
        unexchanged=sum(part.unexchanged for part in parts),
        largest_document=max(part.largest_document for part in parts),
    )


def _balanced_pairs(
    corpus: Corpus,
    continues: np.ndarray,
    segments: Segments,
    chunks: Chunks,
    limit: int,
    rng: np.random.Generator,
) -> Pairs:
    """Return exactly balanced IsNext and NotNext pairs, as the module's docstring explains."""
    left, right = _pair_singles(chunks, limit, rng)
    is_free = np.ones(len(chunks.first), bool)
    is_free[left] = is_free[right] = False
    free = _split_chunks(corpus, continues, segments, chunks.take(is_free), rng)
    # Free pairs come first: the exchange below indexes them, and the forced ones keep the Bs they
    # have.
    a_start, a_stop = (
        np.append(free.a_start, chunks.start[left]),
        np.append(free.a_stop, chunks.stop[left]),
    )
    b_start, b_stop = (
        np.append(free.b_start, chunks.start[right]),
        np.append(free.b_stop, chunks.stop[right]),
    )
    source = np.arange(len(a_start))
    not_next = balanced_labels(a_stop - a_start + b_stop - b_start, source < len(free), rng)
    exchanged = exchange(free.b_length, free.document_a, not_next[: len(free)], rng)
    source[: len(free)], not_next[: len(free)], unexchanged = exchanged
    b_start, b_stop = b_start[source], b_stop[source]
    # If the exchange made a row too long, cut off A's front, then B's end so that A keeps a token.
    excess = np.maximum(a_stop - a_start + b_stop - b_start - limit, 0)
    from_a = np.minimum(excess, a_stop - a_start - 1)
    document_lengths = corpus.document_lengths()
    return Pairs(
        a_start=a_start + from_a,
        a_stop=a_stop,
        b_start=b_start,
        b_stop=b_stop - (excess - from_a),
        label=not_next.astype(np.uint8),
        document_a=np.append(free.document_a, chunks.document[left]),
        document_b=np.append(free.document_b, chunks.document[right])[source],
        tokens_cut=free.tokens_cut + int(excess.sum()),
        forced=len(left),
        unexchanged=unexchanged,
        largest_document=float(document_lengths.max() / document_lengths.sum()),
    )


def _pair_singles(
    chunks: Chunks, limit: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Match one-segment chunks across documents, `limit` tokens together at most; long ones with
    short ones first.
    """
    lengths, document, is_single = (
        chunks.stop - chunks.start,
        chunks.document,
        chunks.num_segments == 1,
    )
    short = rng.permutation(np.flatnonzero(is_single & (lengths <= limit // 2)))
    long = rng.permutation(np.flatnonzero(is_single & (lengths > limit // 2)))
    # Each of these pairs is a NotNext that could have been a free pair: leave enough free ones to
    # balance it.
    most = (len(lengths) - len(short) - len(long)) // 2
    long, partners, short = match_to_fit(long, short, document, lengths, limit, most)
    # The longest come last, because the last are left over and get split in two.
    short = short[np.argsort(lengths[short], kind="stable")]
    left, right, _ = match_across_documents(short, document, lengths, rng)
    left, right = np.append(left, long), np.append(right, partners)
    swap = rng.random(len(left)) < 0.5
    return np.where(swap, right, left), np.where(swap, left, right)


def _split_chunks(
    corpus: Corpus,
    continues: np.ndarray,
    segments: Segments,
    chunks: Chunks,
    rng: np.random.Generator,
) -> Pairs:
    """Split chunks between two segments at random, or inside the only one; drop and count single
    tokens.
    """
    splittable = chunks.stop - chunks.start >= 2
    chunks, tokens_cut = chunks.take(splittable), int(np.count_nonzero(~splittable))
    cuts = segments.offsets[chunks.first + rng.integers(1, np.maximum(chunks.num_segments, 2))]
    single = chunks.num_segments == 1
    cuts[single] = cut_inside(
        corpus.token_ids, continues, chunks.start[single], chunks.stop[single], rng
    )
    label = np.full(len(cuts), IS_NEXT, np.uint8)
    return Pairs(
        chunks.start, cuts, cuts, chunks.stop, label, chunks.document, chunks.document, tokens_cut
    )


def _swap_half(pairs: Pairs, rng: np.random.Generator) -> Pairs:
    """Swap A and B in half of the rows (label 1) at every length: ALBERT (arXiv 1909.11942),
    section 3.1.
    """
    swapped = balanced_labels(pairs.a_length + pairs.b_length, np.ones(len(pairs), bool), rng)
    return replace(
        pairs,
        a_start=np.where(swapped, pairs.b_start, pairs.a_start),
        a_stop=np.where(swapped, pairs.b_stop, pairs.a_stop),
        b_start=np.where(swapped, pairs.a_start, pairs.b_start),
        b_stop=np.where(swapped, pairs.a_stop, pairs.b_stop),
        label=swapped.astype(np.uint8),
    )


def _bert_pairs(corpus: Corpus, config: BuildConfig, rng: np.random.Generator) -> Pairs:
    """Return pairs as google-research/bert makes them (``create_instances_from_document``), one
    document at a time.
    """
    limit = config.max_length - PAIR_SPECIALS
    # Offsets at which each document's sentences start and its last one stops.
    bounds = [
        np.unique(corpus.sentence_offsets[first : stop + 1]).tolist()
        for first, stop in zip(
            corpus.document_offsets[:-1], corpus.document_offsets[1:], strict=True
        )
    ]
    documents = np.flatnonzero(corpus.document_lengths()).tolist()
    rows: list[tuple[int, ...]] = []
    for document in documents:
        short = rng.random() < config.short_share
        target = int(rng.integers(2, limit + 1)) if short else limit
        rows.extend(_bert_rows(bounds, documents, document, target, rng))
    return _truncate(np.array(rows, np.int64), limit, rng)


def _bert_rows(
    bounds: list[list[int]],
    documents: list[int],
    document: int,
    target: int,
    rng: np.random.Generator,
) -> Iterator[tuple[int, ...]]:
    """Yield (A's start and stop, B's start and stop, label, A's and B's document), not yet
    truncated.
    """
    own = bounds[document]
    first, last = 0, len(own) - 1
    while first < last:
        stop = _collect(own, first, target)
        split = first + int(rng.integers(1, max(stop - first, 2)))
        if stop - first > 1 and rng.random() < 0.5:
            yield own[first], own[split], own[split], own[stop], IS_NEXT, document, document
            first = stop
            continue
        other = document
        while other == document:
            other = documents[int(rng.integers(len(documents)))]
        theirs = bounds[other]
        start = int(rng.integers(len(theirs) - 1))
        end = _collect(theirs, start, target - (own[split] - own[first]))
        yield own[first], own[split], theirs[start], theirs[end], NOT_NEXT, document, other
        # The sentences after A go back into the pool.
        first = split


def _collect(bounds: list[int], first: int, target: int) -> int:
    """Return the sentence to stop before, to have at least `target` tokens and one sentence from
    `first` on.
    """
    stop = first + 1
    while stop < len(bounds) - 1 and bounds[stop] - bounds[first] < target:
        stop += 1
    return stop


def _truncate(rows: np.ndarray, limit: int, rng: np.random.Generator) -> Pairs:
    """Cut rows to `limit` tokens as ``truncate_seq_pair`` does: off the longer side, at random from
    front or back.
    """
    a_start, a_stop, b_start, b_stop, label, document_a, document_b = rows.T
    a_length, b_length = a_stop - a_start, b_stop - b_start
    # The token-by-token loop in closed form: B keeps half the limit or, if that is more, what A
    # leaves.
    over = a_length + b_length > limit
    b_cut = np.where(
        over, b_length - np.minimum(b_length, np.maximum(limit // 2, limit - a_length)), 0
    )
    a_cut = np.where(over, a_length + b_length - b_cut - limit, 0)
    a_front, b_front = rng.binomial(a_cut, 0.5), rng.binomial(b_cut, 0.5)
    return Pairs(
        a_start=a_start + a_front,
        a_stop=a_stop - (a_cut - a_front),
        b_start=b_start + b_front,
        b_stop=b_stop - (b_cut - b_front),
        label=label.astype(np.uint8),
        document_a=document_a.astype(np.int32),
        document_b=document_b.astype(np.int32),
        tokens_cut=int((a_cut + b_cut).sum()),
    )
