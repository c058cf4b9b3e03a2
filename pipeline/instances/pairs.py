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

Steps 2 to 4 are done for each source and language on its own (origins.py), so that neither gives
away the label. With chunks x and y of one document and z and w of others:

    chunks          x x|x x x     y|y y     z z|z z     w
    free pairs      A=xx B=xxx    A=y B=yy  A=zz B=zz             w goes to a forced pair, if any
    labels          IsNext        NotNext   NotNext
    exchanged       A=xx B=xxx    A=y B=zz  A=zz B=yy

All pairings work on ranges of the flat token array; no token is copied.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..config import BuildConfig
from ..counters import count_of
from ..errors import UserError
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

IS_NEXT = 0
NOT_NEXT = 1
PAIR_SPECIALS = 3  # [CLS] A [SEP] B [SEP]
SINGLE_SPECIALS = 2  # [CLS] A [SEP]

_ROW_ARRAYS = ("a_start", "a_stop", "b_start", "b_stop", "label", "document_a", "document_b")


@dataclass(frozen=True)
class Pairs:
    """Rows as ranges of `Corpus.token_ids`: A is ``a_start:a_stop``, B is ``b_start:b_stop``, empty
    if there is none.

    The arrays are int64 [num_rows], `label` uint8, `document_a` and `document_b` int32.
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
    """Rows whose label was not free."""
    unexchanged: int = 0
    """Rows meant to be NotNext that found no B in another document."""
    largest_document: float = 0.0
    """The largest document's share of the tokens."""

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
        taken = {name: getattr(self, name)[rows] for name in _ROW_ARRAYS}
        return replace(self, **taken)

    def warning(self) -> str | None:
        """Return why the labels could not be balanced, or None if they are."""
        if self.unexchanged:
            return (
                f"one document holds {self.largest_document:.0%} of the tokens, so "
                f"{self.unexchanged} of {len(self)} pairs found no segment in another document and "
                "became IsNext"
            )
        if not self.forced:
            return None
        lengths = self.a_length + self.b_length
        histogram = np.zeros((2, int(lengths.max()) + 1), np.int64)
        np.add.at(histogram, (self.label, lengths), 1)
        auc, error = auc_of(histogram)
        length_gives_label_away = abs(auc - 0.5) > max(LENGTH_AUC_TOLERANCE, Z_JUDGED * error)
        # All forced pairs are NotNext: if they are most pairs, the others cannot make up for them.
        if length_gives_label_away or 2 * self.forced > len(self):
            return (
                f"{self.forced} of {len(self)} pairs are single sentences, which can only be "
                "NotNext, so their number or length gives away the label; build single-sentence "
                "documents with `pairing` none"
            )
        return None


def make_pairs(
    corpus: Corpus,
    continues: np.ndarray,
    config: BuildConfig,
    rng: np.random.Generator,
    short_share: float = 0.1,
) -> Pairs:
    """Return the rows of one pass over `corpus`, in no particular order.

    `continues` (bool [vocabulary]) marks the pieces that continue a word: long sentences are cut
    between words. `short_share` of the rows have a shorter, random target length, as BERT saw rows
    of all lengths. Raises `UserError` if the pairing needs another document and there is none.
    """
    num_documents = corpus.num_with_text()
    if config.pairing in ("balanced", "bert") and num_documents < 2:
        raise UserError(
            f"The shard has {count_of(num_documents, 'document')} with text, but NotNext pairs "
            "need two: ingest more documents, with fewer `shards` or a larger `validation_share`, "
            "or build with `pairing` sop or none."
        )
    if config.pairing == "bert":
        return _bert_pairs(corpus, config, short_share, rng)

    num_specials = SINGLE_SPECIALS if config.pairing == "none" else PAIR_SPECIALS
    limit = config.max_length - num_specials
    segments = cut_segments(corpus, continues, limit)
    if config.packs:
        short_share = 0.0  # whole documents are of all lengths anyway
    chunks = make_chunks(segments, limit, short_share, rng)
    if config.pairing == "none":
        # RoBERTa (arXiv 1907.11692), section 4.2, DOC-SENTENCES.
        return Pairs(
            a_start=chunks.start,
            a_stop=chunks.stop,
            b_start=chunks.stop,
            b_stop=chunks.stop,
            label=np.zeros(len(chunks.first), np.uint8),
            document_a=chunks.document,
            document_b=chunks.document,
        )
    if config.pairing == "sop":
        return _half_swapped(_split_chunks(corpus, continues, segments, chunks, rng), rng)
    # Sort the chunks by the group whose documents exchange segments, and split where it changes.
    lengths = corpus.document_lengths()
    group_of_document = partner_groups(corpus.origins, lengths, config.negatives, limit)
    group = group_of_document[chunks.document]
    by_group = np.argsort(group, kind="stable")
    boundaries = np.flatnonzero(np.diff(group[by_group])) + 1
    pairs_by_group = [
        _balanced_pairs(corpus, continues, segments, chunks.take(rows), limit, rng)
        for rows in np.split(by_group, boundaries)
    ]
    return _concatenated(pairs_by_group)


def _half_swapped(pairs: Pairs, rng: np.random.Generator) -> Pairs:
    """Swap A and B in half of the rows at every length: ALBERT (arXiv 1909.11942), section 3.1."""
    all_free = np.ones(len(pairs), bool)
    is_swapped = balanced_labels(pairs.a_length + pairs.b_length, all_free, rng)
    return replace(
        pairs,
        a_start=np.where(is_swapped, pairs.b_start, pairs.a_start),
        a_stop=np.where(is_swapped, pairs.b_stop, pairs.a_stop),
        b_start=np.where(is_swapped, pairs.a_start, pairs.b_start),
        b_stop=np.where(is_swapped, pairs.a_stop, pairs.b_stop),
        label=is_swapped.astype(np.uint8),
    )


def _concatenated(groups: Sequence[Pairs]) -> Pairs:
    """Return the rows of all groups, and the sums of their counters."""
    rows = {}
    for name in _ROW_ARRAYS:
        arrays = [getattr(pairs, name) for pairs in groups]
        rows[name] = np.concatenate(arrays)
    return Pairs(
        **rows,
        tokens_cut=sum(pairs.tokens_cut for pairs in groups),
        forced=sum(pairs.forced for pairs in groups),
        unexchanged=sum(pairs.unexchanged for pairs in groups),
        largest_document=max(pairs.largest_document for pairs in groups),
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
    is_free_chunk = np.ones(len(chunks.first), bool)
    is_free_chunk[left] = False
    is_free_chunk[right] = False
    free_chunks = chunks.take(is_free_chunk)
    free = _split_chunks(corpus, continues, segments, free_chunks, rng)
    forced = Pairs(
        a_start=chunks.start[left],
        a_stop=chunks.stop[left],
        b_start=chunks.start[right],
        b_stop=chunks.stop[right],
        label=np.full(len(left), NOT_NEXT, np.uint8),
        document_a=chunks.document[left],
        document_b=chunks.document[right],
    )
    num_free = len(free)
    # Free pairs come first, forced ones after them, in all arrays of rows:
    #
    #   row     0 1 2 3 4 5 6 | 7 8 9
    #           free          | forced
    pairs = _concatenated([free, forced])

    lengths = pairs.a_length + pairs.b_length
    is_free = np.arange(len(lengths)) < num_free
    not_next = balanced_labels(lengths, is_free, rng)
    source_of_free, free_not_next, unexchanged = exchange(
        free.b_length, free.document_a, not_next[:num_free], rng
    )
    not_next[:num_free] = free_not_next
    # The row that each B comes from. The forced pairs keep the Bs they have.
    source = np.arange(len(lengths))
    source[:num_free] = source_of_free
    document_lengths = corpus.document_lengths()
    exchanged = replace(
        pairs,
        b_start=pairs.b_start[source],
        b_stop=pairs.b_stop[source],
        label=not_next.astype(np.uint8),
        document_b=pairs.document_b[source],
        forced=len(forced),
        unexchanged=unexchanged,
        largest_document=float(document_lengths.max() / document_lengths.sum()),
    )
    return _cut_to(exchanged, limit)


def _cut_to(pairs: Pairs, limit: int) -> Pairs:
    """Cut off A's front, then B's end, of longer rows: the ends that do not meet at [SEP]."""
    excess = np.maximum(pairs.a_length + pairs.b_length - limit, 0)
    from_a = np.minimum(excess, pairs.a_length - 1)
    return replace(
        pairs,
        a_start=pairs.a_start + from_a,
        b_stop=pairs.b_stop - (excess - from_a),
        tokens_cut=pairs.tokens_cut + int(excess.sum()),
    )


def _pair_singles(
    chunks: Chunks, limit: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Match one-segment chunks across documents, `limit` tokens at most; return A and B."""
    # A long chunk needs a short partner, so the long ones choose first; then the short ones, of
    # which any two fit in a row, are matched with each other:
    #
    #   limit 10     long  9 8 7 6      short  1 2 3 3 4 5
    #   first        9+1  8+2  7+3                              6 finds no partner
    #   then                            3+5                     nor does 4, if of 3's document
    lengths = chunks.stop - chunks.start
    document = chunks.document
    is_single = chunks.num_segments == 1
    is_short = lengths <= limit // 2
    short = rng.permutation(np.flatnonzero(is_single & is_short))
    long = rng.permutation(np.flatnonzero(is_single & ~is_short))
    # Each of these pairs is a NotNext that could have been a free pair: leave enough free ones to
    # balance it.
    num_several = len(lengths) - len(short) - len(long)
    long, long_partners, short = match_to_fit(
        long, short, document, lengths, limit, max_matches=num_several // 2
    )

    # The longest come last, because the last are left over and get split in two.
    short = short[np.argsort(lengths[short], kind="stable")]
    short_left, short_right, _ = match_across_documents(short, document, lengths, rng)

    left = np.append(short_left, long)
    right = np.append(short_right, long_partners)
    # Otherwise the long segment would always be A.
    swap = rng.random(len(left)) < 0.5
    return np.where(swap, right, left), np.where(swap, left, right)


def _split_chunks(
    corpus: Corpus,
    continues: np.ndarray,
    segments: Segments,
    chunks: Chunks,
    rng: np.random.Generator,
) -> Pairs:
    """Split chunks between two segments at random, or inside the only one."""
    is_splittable = chunks.stop - chunks.start >= 2
    tokens_cut = int(np.count_nonzero(~is_splittable))
    chunks = chunks.take(is_splittable)

    #   segments of a chunk    | 0   | 1 | 2       | 3 |
    #   cut before one of            1   2         3
    #
    # In a chunk of one segment this is the segment's end, which `cut_inside` replaces.
    num_before = rng.integers(1, np.maximum(chunks.num_segments, 2))
    cuts = segments.offsets[chunks.first + num_before]
    is_single = chunks.num_segments == 1
    single = chunks.take(is_single)
    cuts_of_single = cut_inside(corpus.token_ids, continues, single.start, single.stop, rng)
    cuts[is_single] = cuts_of_single
    return Pairs(
        a_start=chunks.start,
        a_stop=cuts,
        b_start=cuts,
        b_stop=chunks.stop,
        label=np.full(len(cuts), IS_NEXT, np.uint8),
        document_a=chunks.document,
        document_b=chunks.document,
        tokens_cut=tokens_cut,
    )


def _bert_pairs(
    corpus: Corpus, config: BuildConfig, short_share: float, rng: np.random.Generator
) -> Pairs:
    """Return pairs as google-research's ``create_instances_from_document`` makes them."""
    limit = config.max_length - PAIR_SPECIALS
    # Where the sentences of each document start, and where the last stops. Empty sentences, whose
    # offset repeats, are left out.
    sentence_bounds = []
    for first, stop in itertools.pairwise(corpus.document_offsets):
        offsets = corpus.sentence_offsets[first : stop + 1]
        sentence_bounds.append(np.unique(offsets).tolist())
    documents = np.flatnonzero(corpus.document_lengths()).tolist()
    rows = []
    for document in documents:
        target = limit
        if rng.random() < short_share:
            target = int(rng.integers(2, limit + 1))
        rows.extend(_bert_rows(sentence_bounds, documents, document, target, rng))
    return _truncate(np.array(rows, np.int64), limit, rng)


BertRow = tuple[int, int, int, int, int, int, int]
"""A row before it is cut to the limit: the numbers of `_ROW_ARRAYS`."""


def _bert_rows(
    sentence_bounds: list[list[int]],
    documents: list[int],
    document: int,
    target: int,
    rng: np.random.Generator,
) -> Iterator[BertRow]:
    """Yield the rows of one document, not yet cut to the limit.

    Sentences are collected until they have `target` tokens, then split into A and B; for a NotNext,
    B is replaced by sentences of another document, and what stood there is collected again.
    """
    #   sentences    | first … split | split … stop |
    #                | A             | B            |       IsNext: go on at stop
    #                | A             |                      NotNext: go on at split
    bounds = sentence_bounds[document]
    num_sentences = len(bounds) - 1
    first = 0
    while first < num_sentences:
        stop = _collect(bounds, first, target)
        split = first + int(rng.integers(1, max(stop - first, 2)))
        a_start = bounds[first]
        a_stop = bounds[split]
        # A single sentence has nothing to follow it, so it is always NotNext.
        if stop - first > 1 and rng.random() < 0.5:
            yield a_start, a_stop, a_stop, bounds[stop], IS_NEXT, document, document
            first = stop
            continue
        # There are two documents at least: `make_pairs` checks it.
        other = document
        while other == document:
            other = documents[int(rng.integers(len(documents)))]
        other_bounds = sentence_bounds[other]
        b_first = int(rng.integers(len(other_bounds) - 1))
        b_end = _collect(other_bounds, b_first, target - (a_stop - a_start))
        b_start = other_bounds[b_first]
        b_stop = other_bounds[b_end]
        yield a_start, a_stop, b_start, b_stop, NOT_NEXT, document, other
        # The sentences after A go back into the pool.
        first = split


def _collect(bounds: list[int], first: int, target: int) -> int:
    """Return where to stop, to have `target` tokens and a sentence from `first` on."""
    stop = first + 1
    while stop < len(bounds) - 1 and bounds[stop] - bounds[first] < target:
        stop += 1
    return stop


def _truncate(rows: np.ndarray, limit: int, rng: np.random.Generator) -> Pairs:
    """Cut rows, int64 [num_rows, 7], to `limit` tokens as ``truncate_seq_pair`` does: token after
    token off the longer segment (off B if they are equal), at random from front or back.
    """
    a_start, a_stop, b_start, b_stop, label, document_a, document_b = rows.T
    a_length = a_stop - a_start
    b_length = b_stop - b_start
    is_over = a_length + b_length > limit
    # In closed form, with a limit of 10:
    #
    #   A, B         cut to
    #   3, 9         3, 7      B may fill what A leaves
    #   9, 3         7, 3      and the other way round
    #   9, 8         5, 5      both are longer than half: they end equal
    room_for_b = np.maximum(limit // 2, limit - a_length)
    b_kept = np.minimum(b_length, room_for_b)
    b_cut = np.where(is_over, b_length - b_kept, 0)
    a_cut = np.where(is_over, a_length - (limit - b_kept), 0)
    # Each of the tokens came off the front with probability one half.
    a_front = rng.binomial(a_cut, 0.5)
    b_front = rng.binomial(b_cut, 0.5)
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
