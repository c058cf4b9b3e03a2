"""Pair segments A and B, over a whole document shard at once.

The default, `balanced`, uses every token of the shard in exactly one row, makes as many IsNext as NotNext rows at every
length, and takes the B of every NotNext row from another document:

1. cut every document into chunks of whole sentences (chunks.py);
2. split each chunk of several segments between two of them into A and B: a *free* pair, whose label is still open.
   Pair one-segment chunks across documents if two fit in a row: *forced* NotNext pairs. Split the rest inside;
3. sort the pairs by length and deal out the labels, counting the forced pairs as NotNext (balance.py);
4. let the free NotNext pairs exchange their Bs with pairs of other documents and (nearly) equal length of B.

Of the others, `bert` is google-research's ``create_instances_from_document``, `sop` ALBERT's sentence-order prediction,
and `none` RoBERTa's DOC-SENTENCES. All work on ranges of the flat token array; no token is copied.
"""

from collections.abc import Iterator
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

IS_NEXT, NOT_NEXT = 0, 1
# [CLS] A [SEP] B [SEP], and [CLS] A [SEP].
PAIR_SPECIALS, SINGLE_SPECIALS = 3, 2

_ROW_ARRAYS = ("a_start", "a_stop", "b_start", "b_stop", "label", "document_a", "document_b")


@dataclass(frozen=True)
class Pairs:
    """Rows as ranges of `Corpus.token_ids`: A is ``a_start:a_stop``, B is ``b_start:b_stop`` (empty if there is no B).

    The arrays are int64 [num_rows], `label` uint8, `document_a` and `document_b` int32. `tokens_cut` counts
    tokens cut away, `forced` rows whose label was not free, and `unexchanged` rows meant to be NotNext that found no B
    in another document; `largest_document` is the largest document's share of the tokens.
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
        auc, error = auc_of(np.stack([np.bincount(lengths[self.label == label], minlength=most) for label in (0, 1)]))
        return abs(auc - 0.5) > max(LENGTH_AUC_TOLERANCE, Z_JUDGED * error)


def make_pairs(corpus: Corpus, continues: np.ndarray, config: BuildConfig, rng: np.random.Generator) -> Pairs:
    """Return the rows of one pass over `corpus`, in no particular order.

    `continues` (bool [vocabulary]) marks the pieces that continue a word: long sentences are cut between words. Raise
    `UserError` if the pairing needs another document and there is none.
    """
    if config.pairing == "bert":
        return bert_pairs(corpus, config, rng)
    if config.pairing == "none":
        return single_segments(corpus, continues, config, rng)
    make = balanced_pairs if config.pairing == "balanced" else sop_pairs
    return make(corpus, continues, config, rng)


def balanced_pairs(corpus: Corpus, continues: np.ndarray, config: BuildConfig, rng: np.random.Generator) -> Pairs:
    """Return exactly balanced IsNext and NotNext pairs, as the module's docstring explains."""
    document_lengths = _check_two_documents(corpus)
    limit = config.max_length - PAIR_SPECIALS
    segments = cut_segments(corpus, continues, limit)
    chunks = make_chunks(segments, limit, config.short_share, rng)
    left, right = _pair_singles(segments, chunks, limit, rng)
    paired = np.zeros(len(chunks), bool)
    paired[left] = paired[right] = True
    free = _split_chunks(corpus, continues, segments, chunks, np.flatnonzero(~paired), rng)
    # Free pairs come first: the exchange below indexes them, and the forced ones keep the Bs they have.
    pairs = _append(free, _join_chunks(segments, chunks, left, right))
    not_next = balanced_labels(pairs.a_length + pairs.b_length, np.arange(len(pairs)) < len(free), rng)
    source, not_next[: len(free)], unexchanged = exchange(free.b_length, free.document_a, not_next[: len(free)], rng)
    source = np.append(source, np.arange(len(free), len(pairs)))
    pairs = replace(
        pairs,
        b_start=pairs.b_start[source],
        b_stop=pairs.b_stop[source],
        document_b=pairs.document_b[source],
        label=not_next.astype(np.uint8),
        forced=len(left),
        unexchanged=unexchanged,
        largest_document=float(document_lengths.max() / document_lengths.sum()),
    )
    return _trim(pairs, limit)


def _check_two_documents(corpus: Corpus) -> np.ndarray:
    """Return the document lengths; raise `UserError` if fewer than two documents have tokens."""
    lengths = corpus.document_lengths()
    if (num_documents := int(np.count_nonzero(lengths))) < 2:
        raise UserError(
            f"The shard has {count_of(num_documents, 'document')} with text, but NotNext pairs need two: ingest more "
            "documents, with fewer --shards or a larger --validation-share, or build with --pairing sop or none."
        )
    return lengths


def _pair_singles(
    segments: Segments, chunks: Chunks, limit: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Match one-segment chunks across documents, `limit` tokens together at most; return the lefts and the rights.

    Long ones are matched with short ones first, which saves cutting them, then the short ones with each other.
    """
    lengths, document = segments.offsets[chunks.stop] - segments.offsets[chunks.first], segments.document[chunks.first]
    is_single = chunks.stop - chunks.first == 1
    short = rng.permutation(np.flatnonzero(is_single & (lengths <= limit // 2)))
    long = rng.permutation(np.flatnonzero(is_single & (lengths > limit // 2)))
    # Each of these pairs is a NotNext that could have been a free pair: leave enough free ones to balance it.
    most = (len(chunks) - len(short) - len(long)) // 2
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
    which: np.ndarray,
    rng: np.random.Generator,
) -> Pairs:
    """Split chunks between two segments at random, or inside the only one; drop and count single tokens."""
    starts, stops = segments.offsets[chunks.first[which]], segments.offsets[chunks.stop[which]]
    splittable = stops - starts >= 2
    which, tokens_cut = which[splittable], int(np.count_nonzero(~splittable))
    starts, stops = starts[splittable], stops[splittable]
    first, num_segments = chunks.first[which], (chunks.stop - chunks.first)[which]
    cuts = segments.offsets[first + rng.integers(1, np.maximum(num_segments, 2))]
    single = num_segments == 1
    cuts[single] = cut_inside(corpus.token_ids, continues, starts[single], stops[single], rng)
    document = segments.document[first]
    label = np.full(len(which), IS_NEXT, np.uint8)
    return Pairs(starts, cuts, cuts, stops, label, document, document, tokens_cut)


def _join_chunks(segments: Segments, chunks: Chunks, left: np.ndarray, right: np.ndarray) -> Pairs:
    """Pair whole chunks of different documents."""
    return Pairs(
        a_start=segments.offsets[chunks.first[left]],
        a_stop=segments.offsets[chunks.stop[left]],
        b_start=segments.offsets[chunks.first[right]],
        b_stop=segments.offsets[chunks.stop[right]],
        label=np.full(len(left), NOT_NEXT, np.uint8),
        document_a=segments.document[chunks.first[left]],
        document_b=segments.document[chunks.first[right]],
    )


def _append(pairs: Pairs, more: Pairs) -> Pairs:
    """Return the rows of both, with the counters of the first."""
    arrays = {name: np.concatenate([getattr(pairs, name), getattr(more, name)]) for name in _ROW_ARRAYS}
    return replace(pairs, **arrays)


def _trim(pairs: Pairs, limit: int) -> Pairs:
    """Cut rows that the exchange made longer than `limit`: off A's front, then off B's end so that A keeps a token."""
    excess = np.maximum(pairs.a_length + pairs.b_length - limit, 0)
    from_a = np.minimum(excess, pairs.a_length - 1)
    return replace(
        pairs,
        a_start=pairs.a_start + from_a,
        b_stop=pairs.b_stop - (excess - from_a),
        tokens_cut=pairs.tokens_cut + int(excess.sum()),
    )


def sop_pairs(corpus: Corpus, continues: np.ndarray, config: BuildConfig, rng: np.random.Generator) -> Pairs:
    """Return two consecutive segments per row, half of them swapped (label 1) at every length.

    Source: ALBERT (arXiv 1909.11942), section 3.1. A chunk of one sentence is split inside.
    """
    limit = config.max_length - PAIR_SPECIALS
    segments = cut_segments(corpus, continues, limit)
    chunks = make_chunks(segments, limit, config.short_share, rng)
    pairs = _split_chunks(corpus, continues, segments, chunks, np.arange(len(chunks)), rng)
    swapped = balanced_labels(pairs.a_length + pairs.b_length, np.ones(len(pairs), bool), rng)
    return replace(
        pairs,
        a_start=np.where(swapped, pairs.b_start, pairs.a_start),
        a_stop=np.where(swapped, pairs.b_stop, pairs.a_stop),
        b_start=np.where(swapped, pairs.a_start, pairs.b_start),
        b_stop=np.where(swapped, pairs.a_stop, pairs.b_stop),
        label=swapped.astype(np.uint8),
    )


def single_segments(corpus: Corpus, continues: np.ndarray, config: BuildConfig, rng: np.random.Generator) -> Pairs:
    """Return whole sentences of one document per row, without B.

    Source: RoBERTa (arXiv 1907.11692), section 4.2, DOC-SENTENCES; `short_share` applies as in the other pairings.
    """
    limit = config.max_length - SINGLE_SPECIALS
    segments = cut_segments(corpus, continues, limit)
    chunks = make_chunks(segments, limit, config.short_share, rng)
    starts, stops = segments.offsets[chunks.first], segments.offsets[chunks.stop]
    document = segments.document[chunks.first]
    return Pairs(starts, stops, stops, stops, np.zeros(len(chunks), np.uint8), document, document)


def bert_pairs(corpus: Corpus, config: BuildConfig, rng: np.random.Generator) -> Pairs:
    """Return pairs as google-research/bert makes them, one document at a time: slow, for comparison.

    Source: ``create_instances_from_document`` of create_pretraining_data.py. Tokens cut are counted; tokens used
    more than once are not.
    """
    document_lengths = _check_two_documents(corpus)
    limit = config.max_length - PAIR_SPECIALS
    # Offsets at which each document's sentences start and its last one stops.
    bounds = [
        np.unique(corpus.sentence_offsets[first : stop + 1]).tolist()
        for first, stop in zip(corpus.document_offsets[:-1], corpus.document_offsets[1:], strict=True)
    ]
    documents = np.flatnonzero(document_lengths).tolist()
    rows: list[BertRow] = []
    for document in documents:
        short = rng.random() < config.short_share
        target = int(rng.integers(2, limit + 1)) if short else limit
        rows.extend(_bert_rows(bounds, documents, document, target, rng))
    return _truncate(np.array(rows, np.int64), limit, rng)


BertRow = tuple[int, int, int, int, int, int, int]


def _bert_rows(
    bounds: list[list[int]], documents: list[int], document: int, target: int, rng: np.random.Generator
) -> Iterator[BertRow]:
    """Yield (A's start and stop, B's start and stop, label, A's and B's document), not yet truncated."""
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
    """Return the sentence to stop before, to have at least `target` tokens and one sentence from `first` on."""
    stop = first + 1
    while stop < len(bounds) - 1 and bounds[stop] - bounds[first] < target:
        stop += 1
    return stop


def _truncate(rows: np.ndarray, limit: int, rng: np.random.Generator) -> Pairs:
    """Cut rows to `limit` tokens as ``truncate_seq_pair`` does: off the longer side, at random from the front or back.

    Its token-by-token loop has a closed form: B keeps half the limit (rounded down) or, if that is more, what A leaves.
    """
    a_start, a_stop, b_start, b_stop, label, document_a, document_b = rows.T
    a_length, b_length = a_stop - a_start, b_stop - b_start
    over = a_length + b_length > limit
    b_cut = np.where(over, b_length - np.minimum(b_length, np.maximum(limit // 2, limit - a_length)), 0)
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
