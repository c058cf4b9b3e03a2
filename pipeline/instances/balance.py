"""Balance labels over lengths and exchange second segments between documents.

These are plain array algorithms: they know lengths, documents and labels, but no text.
"""

import math

import numpy as np

from ..ragged import offsets_of

# How well length may predict the label: area under the ROC curve minus one half. Deviations are
# judged at 4 standard errors, one false alarm in 16,000 checks.
LENGTH_AUC_TOLERANCE = 0.02
Z_JUDGED = 4.0


def balanced_labels(lengths: np.ndarray, free: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return which pairs are NotNext (bool [n]): half of them at every length.

    Pairs that are not `free` (bool [n]) are all NotNext. Go through the pairs in order of length.
    One of every two, at random, asks for an IsNext; the next free pair gets it. Requests that
    remain at the end go to the last free pairs.
    """
    num_pairs = len(lengths)
    # Shuffle first: the sort is stable, so pairs of equal length stay in random order.
    order = rng.permutation(num_pairs)
    order = order[np.argsort(lengths[order], kind="stable")]
    is_free = free[order]

    # Exactly one of two neighbours asks: independent coins would let one label lead by chance.
    coin = rng.integers(0, 2, (num_pairs + 1) // 2)
    asks = np.stack([coin, 1 - coin], axis=1).ravel()
    asks = asks[:num_pairs]

    # That is a queue, whose departures up to i are min over j <= i of asked[j] + free[j + 1..i]
    # (Lindley's recursion): one cumulative minimum instead of a loop.
    #
    #   asks       1  0  0  1  1  0
    #   is_free    0  1  1  0  1  1
    #   is_next    0  1  0  0  1  1      a request waits until a free pair comes
    asked = offsets_of(asks)
    num_free = offsets_of(is_free)
    granted = num_free + np.minimum.accumulate(asked - num_free)
    is_next = np.diff(granted) > 0

    num_waiting = asked[-1] - granted[-1]
    still_free = np.flatnonzero(is_free & ~is_next)
    num_late = min(len(still_free), num_waiting)
    is_next[still_free[len(still_free) - num_late :]] = True

    not_next = np.empty(num_pairs, bool)
    not_next[order] = ~is_next
    return not_next


def match_neighbours(
    order: np.ndarray, document: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Match items of different documents that are close to each other in `order` (indices into
    `document`); return the left and the right item of each match, and those left over, in order.
    """
    #   documents in order   7 7 3 3 7 5      matched 0-1? no, 2-3? no, 4-5: yes
    #   documents left       7 7 3 3          matched 1-2: yes
    #   documents left       7 3              matched 0-1: yes
    all_left = [order[:0]]
    all_right = [order[:0]]
    # Alternate between matching 0-1, 2-3, … and 1-2, 3-4, …, so that an item meets both of its
    # neighbours. What 24 rounds leave comes in long runs of one document.
    for shift in [0, 1] * 12:
        num_couples = max(len(order) - shift, 0) // 2
        stop = shift + 2 * num_couples
        left = order[shift:stop:2]
        right = order[shift + 1 : stop : 2]
        differ = document[left] != document[right]
        all_left.append(left[differ])
        all_right.append(right[differ])
        is_left_over = np.ones(len(order), bool)
        is_left_over[shift:stop] = np.repeat(~differ, 2)
        order = order[is_left_over]
    return np.concatenate(all_left), np.concatenate(all_right), order


def match_across_documents(
    items: np.ndarray, document: np.ndarray, lengths: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Match as many of `items` as possible with one of another document.

    `items` are indices into `document` and `lengths`. Return the left and the right item of each
    match, within a document in order of length, and the items left over: an odd one, or the surplus
    of a document that has more than half; in both cases the last of `items`.

    Sorted by document, and with no document above half, items half the list apart are of different
    documents:

        documents   3 3 3 | 5 5 7
        matches     0-3, 1-4, 2-5
    """
    if not len(items):
        return items, items, items
    items_per_document = np.bincount(document[items])
    largest = int(items_per_document.argmax())
    surplus = max(2 * int(items_per_document[largest]) - len(items), 0)
    if surplus:
        may_be_left_over = document[items] == largest
        num_left_over = surplus
    else:
        may_be_left_over = np.ones(len(items), bool)
        num_left_over = len(items) % 2
    candidates = np.flatnonzero(may_be_left_over)
    left_over = candidates[len(candidates) - num_left_over :]

    matched = np.delete(items, left_over)
    # A random order of the documents, so that not always the same ones exchange.
    document_keys = rng.permutation(len(items_per_document))
    by_document_and_length = np.lexsort((lengths[matched], document_keys[document[matched]]))
    matched = matched[by_document_and_length]
    half = len(matched) // 2
    return matched[:half], matched[half:], items[left_over]


def match_to_fit(
    long: np.ndarray,
    short: np.ndarray,
    document: np.ndarray,
    lengths: np.ndarray,
    limit: int,
    max_matches: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Match up to `max_matches` of `long` with one of `short` each, of another document and no
    longer than `limit` together; return both, and the short items left over.
    """
    all_long = [long[:0]]
    all_short = [short[:0]]
    for _ in range(8):  # random rounds, which spread the sums over all lengths
        num_tried = min(len(long), len(short))
        tried_long = long[:num_tried]
        tried_short = short[:num_tried]
        fits = lengths[tried_long] + lengths[tried_short] <= limit
        fits &= document[tried_long] != document[tried_short]
        fits &= np.cumsum(fits) <= max_matches
        max_matches -= int(np.count_nonzero(fits))
        all_long.append(tried_long[fits])
        all_short.append(tried_short[fits])
        # Items not yet tried come first; rotating by one lets each of the others meet a new
        # partner.
        long = np.append(long[num_tried:], tried_long[~fits])
        short = np.append(short[num_tried:], tried_short[~fits])
        short = np.roll(short, 1)
    return np.concatenate(all_long), np.concatenate(all_short), short


def nearest_distinct(wanted: np.ndarray, offered: np.ndarray) -> np.ndarray:
    """Return distinct indices into `offered` near each of `wanted`.

    Both ascend, and `wanted` is not longer.

        wanted     3  3  3  9
        offered    1  3  4  6  8
        nearest    1  1  1  5       several want the same one, or lie beyond the end
        result     1  2  3  4       pushed to the right, but not off the end
    """
    rank = np.arange(len(wanted))
    nearest = np.searchsorted(offered, wanted)
    # Strictly ascending means that index minus rank never falls: the running maximum sees to it.
    distinct = np.maximum.accumulate(nearest - rank) + rank
    # Leave room at the end for those that follow.
    highest = len(offered) - len(wanted) + rank
    return np.minimum(distinct, highest)


def exchange(
    lengths: np.ndarray, document: np.ndarray, not_next: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, int]:
    """Let pairs exchange their Bs so that the B of each NotNext pair is from another document.

    The new B has nearly the length of the old one. `lengths` are those of the Bs, `document` and
    `not_next` (bool) belong to the pairs, all [n]. Return the pair that each pair's B now comes
    from (int64 [n]), `not_next` as far as it could be realised, and the number of pairs without a
    partner. If one document has too many NotNext pairs, some swap labels with IsNext pairs of other
    documents.

        pair          0     1     2     3
        not_next      no    yes   yes   no
        source        0     2     1     3      1 and 2 have exchanged their Bs
    """
    source = np.arange(len(lengths))
    not_next = not_next.copy()
    order = rng.permutation(np.flatnonzero(not_next))
    order = order[np.argsort(lengths[order], kind="stable")]
    # Neighbours in this order have Bs of nearly equal length. What they leave over is mostly of one
    # document, and is matched at any length.
    near_left, near_right, rest = match_neighbours(order, document)
    rest = rng.permutation(rest)
    far_left, far_right, rest = match_across_documents(rest, document, lengths, rng)
    left = np.concatenate([near_left, far_left])
    right = np.concatenate([near_right, far_right])
    source[left] = right
    source[right] = left
    if len(rest):
        rest = _exchange_rest(rest, lengths, document, source, not_next)
    return source, not_next, len(rest)


def _exchange_rest(
    rest: np.ndarray,
    lengths: np.ndarray,
    document: np.ndarray,
    source: np.ndarray,
    not_next: np.ndarray,
) -> np.ndarray:
    """Exchange the pairs in `rest`, of one document, in place; return those without a partner."""
    # A and B of a pair must not end up in one document, on either side of the exchange: so take
    # pairs with nothing of this document, neither their own A nor the B that they have now.
    rest_document = document[rest[0]]
    is_elsewhere = (document != rest_document) & (document[source] != rest_document)
    exchanged_pairs = np.flatnonzero(not_next & is_elsewhere)
    rest = _exchange_nearest(rest, exchanged_pairs, lengths, source)
    # Half of the rest trades with IsNext pairs of other documents, which makes both NotNext; the
    # other half becomes IsNext in return, so the number of NotNext pairs stays the same.
    trading = rest[: (len(rest) + 1) // 2]
    not_next[rest] = False
    is_next_pairs = np.flatnonzero(~not_next & is_elsewhere)
    unmatched = _exchange_nearest(trading, is_next_pairs, lengths, source)
    traded = trading[source[trading] != trading]
    not_next[traded] = True
    not_next[source[traded]] = True
    return unmatched


def _exchange_nearest(
    rest: np.ndarray, partners: np.ndarray, lengths: np.ndarray, source: np.ndarray
) -> np.ndarray:
    """Exchange the Bs of `rest` with the partners nearest in length; return the surplus."""
    num_matched = min(len(rest), len(partners))
    unmatched = rest[num_matched:]
    matched = rest[:num_matched]
    # Partners may have exchanged before: what counts is the B that a pair has now.
    lengths_now = lengths[source]
    matched = matched[np.argsort(lengths_now[matched], kind="stable")]
    partners = partners[np.argsort(lengths_now[partners], kind="stable")]
    nearest = nearest_distinct(lengths_now[matched], lengths_now[partners])
    partners = partners[nearest]
    # Fancy indexing copies, so both sides of the swap are read before either is written.
    source[matched], source[partners] = source[partners], source[matched]
    return unmatched


def auc_of(histogram: np.ndarray) -> tuple[float, float]:
    """Return the area under the ROC curve of label 1, 0.5 if a label has no rows, and its standard
    error (Mann-Whitney). `histogram` is int64 [2, values]; ties count one half.
    """
    negative, positive = histogram.astype(float)
    num_negative = negative.sum()
    num_positive = positive.sum()
    if not num_negative or not num_positive:
        return 0.5, math.inf
    # For each value, the rows of label 0 that a row of label 1 beats.
    num_below = np.cumsum(negative) - negative / 2
    auc = float(positive @ num_below / num_negative / num_positive)
    variance = (num_negative + num_positive + 1) / (12 * num_negative * num_positive)
    return auc, math.sqrt(variance)
