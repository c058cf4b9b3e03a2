"""Balance labels over lengths and exchange second segments between documents: plain array
algorithms.
"""

import math

import numpy as np

# How well length may predict the label: area under the ROC curve minus one half. Deviations are
# judged at 4 standard errors, one false alarm in 16,000 checks.
LENGTH_AUC_TOLERANCE = 0.02
Z_JUDGED = 4.0

# Rounds of matching neighbours; what is left afterwards comes in long runs of one document.
NEIGHBOUR_ROUNDS = 24
# Rounds of random matching by fit; randomness spreads the sums over all lengths.
FIT_ROUNDS = 8


def balanced_labels(lengths: np.ndarray, free: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return which pairs are NotNext (bool [n]): half of them at every length, and all that are not
    `free` (bool [n]).

    Go through the pairs in order of length. One of every two, at random, asks for an IsNext; the
    next free pair gets it. That is a queue, whose departures up to ``i`` are ``min over j <= i of
    asked[j] + free[j + 1..i]``: one cumulative minimum instead of a loop. Requests that remain at
    the end go to the last free pairs.
    """
    num_pairs = len(lengths)
    order = rng.permutation(num_pairs)
    order = order[np.argsort(lengths[order], kind="stable")]
    coin = rng.integers(0, 2, (num_pairs + 1) // 2)
    asks = np.stack([coin, 1 - coin], axis=1).ravel()[:num_pairs]
    asked = np.concatenate([[0], np.cumsum(asks)])
    served = np.concatenate([[0], np.cumsum(free[order])])
    given = served + np.minimum.accumulate(asked - served)
    is_next = np.diff(given) > 0
    left_over = np.flatnonzero(free[order] & ~is_next)
    is_next[left_over[len(left_over) - min(len(left_over), asked[-1] - given[-1]) :]] = True
    not_next = np.empty(num_pairs, bool)
    not_next[order] = ~is_next
    return not_next


def match_neighbours(
    order: np.ndarray, document: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Match items of different documents that are close to each other in `order` (indices into
    `document`).

    Returns the left and the right item of each match, and the items left over, in order.
    """
    lefts, rights = [order[:0]], [order[:0]]
    # Alternate between matching 0-1, 2-3, … and 1-2, 3-4, …, so that an item meets both of its
    # neighbours.
    for shift in [0, 1] * (NEIGHBOUR_ROUNDS // 2):
        stop = shift + max(len(order) - shift, 0) // 2 * 2
        left, right = order[shift:stop:2], order[shift + 1 : stop : 2]
        differ = document[left] != document[right]
        lefts.append(left[differ])
        rights.append(right[differ])
        rest = np.ones(len(order), bool)
        rest[shift:stop] = np.repeat(~differ, 2)
        order = order[rest]
    return np.concatenate(lefts), np.concatenate(rights), order


def match_across_documents(
    items: np.ndarray, document: np.ndarray, lengths: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Match as many of `items` as possible with one of another document (indices into `document`
    and `lengths`).

    Return the left and the right item of each match, within a document in order of length, and the
    items left over: an odd one, or the surplus of a document that has more than half; in both cases
    the last of `items`.
    """
    if not len(items):
        return items, items, items
    counts = np.bincount(document[items])
    largest = int(counts.argmax())
    surplus = max(2 * int(counts[largest]) - len(items), 0)
    belongs = document[items] == largest if surplus else np.ones(len(items), bool)
    rest = np.flatnonzero(belongs)[belongs.sum() - max(surplus, len(items) % 2) :]
    kept = np.delete(items, rest)
    keys = rng.permutation(len(counts))
    kept = kept[np.lexsort((lengths[kept], keys[document[kept]]))]
    half = len(kept) // 2
    # Sorted by document, and no document has more than half: items half the list apart have
    # different documents.
    return kept[:half], kept[half:], items[rest]


def match_to_fit(
    long: np.ndarray,
    short: np.ndarray,
    document: np.ndarray,
    lengths: np.ndarray,
    limit: int,
    most: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Match up to `most` of `long` with one of `short` each (both indices into `document` and
    `lengths`, shuffled).

    The two are of different documents and together no longer than `limit`. Return the long and the
    short item of each match, and the short items left over.
    """
    matched_long, matched_short = [long[:0]], [short[:0]]
    for _ in range(FIT_ROUNDS):
        width = min(len(long), len(short))
        ours, theirs = long[:width], short[:width]
        fits = (lengths[ours] + lengths[theirs] <= limit) & (document[ours] != document[theirs])
        fits &= np.cumsum(fits) <= most
        most -= int(np.count_nonzero(fits))
        matched_long.append(ours[fits])
        matched_short.append(theirs[fits])
        # Items not yet tried come first; rotating by one lets each of the others meet a new
        # partner.
        long, short = (
            np.append(long[width:], ours[~fits]),
            np.roll(np.append(short[width:], theirs[~fits]), 1),
        )
    return np.concatenate(matched_long), np.concatenate(matched_short), short


def nearest_distinct(wanted: np.ndarray, offered: np.ndarray) -> np.ndarray:
    """Return distinct indices into `offered` near each of `wanted`; both ascend, and `wanted` is
    not longer.
    """
    # The running maximum pushes collisions to the right; the minimum keeps them from running off
    # the end.
    rank = np.arange(len(wanted))
    slots = np.maximum.accumulate(np.searchsorted(offered, wanted) - rank) + rank
    return np.minimum(slots, len(offered) - len(wanted) + rank)


def exchange(
    lengths: np.ndarray, document: np.ndarray, not_next: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, int]:
    """Let pairs exchange their Bs so that each NotNext pair has a B of another document and nearly
    equal length.

    `lengths` are those of the Bs, `document` and `not_next` (bool) belong to the pairs, all [n].
    Return the pair that each pair's B now comes from (int64 [n]), `not_next` as far as it could be
    realised, and the number of pairs without a partner. If one document has too many NotNext pairs,
    some swap labels with IsNext pairs of other documents.
    """
    source = np.arange(len(lengths))
    not_next = not_next.copy()
    order = rng.permutation(np.flatnonzero(not_next))
    order = order[np.argsort(lengths[order], kind="stable")]
    left, right, rest = match_neighbours(order, document)
    more_left, more_right, rest = match_across_documents(
        rng.permutation(rest), document, lengths, rng
    )
    left, right = np.concatenate([left, more_left]), np.concatenate([right, more_right])
    source[left], source[right] = right, left
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
    """Exchange the pairs in `rest`, of one document, with exchanged and IsNext pairs, in place;
    return the rest.
    """
    elsewhere = (document != document[rest[0]]) & (document[source] != document[rest[0]])
    rest = _exchange_nearest(rest, np.flatnonzero(not_next & elsewhere), lengths, source)
    # Half of the rest trades with IsNext pairs of other documents, which makes both NotNext; the
    # other half becomes IsNext in return, so the number of NotNext pairs stays the same.
    half = (len(rest) + 1) // 2
    trading, not_next[rest] = rest[:half], False
    unmatched = _exchange_nearest(trading, np.flatnonzero(~not_next & elsewhere), lengths, source)
    traded = trading[source[trading] != trading]
    not_next[traded] = not_next[source[traded]] = True
    return unmatched


def _exchange_nearest(
    rest: np.ndarray, partners: np.ndarray, lengths: np.ndarray, source: np.ndarray
) -> np.ndarray:
    num_matched = min(len(rest), len(partners))
    matched, unmatched = rest[:num_matched], rest[num_matched:]
    matched = matched[np.argsort(lengths[source[matched]], kind="stable")]
    partners = partners[np.argsort(lengths[source[partners]], kind="stable")]
    partners = partners[nearest_distinct(lengths[source[matched]], lengths[source[partners]])]
    source[matched], source[partners] = source[partners], source[matched]
    return unmatched


def auc_of(histogram: np.ndarray) -> tuple[float, float]:
    """Return the area under the ROC curve of label 1, and its standard error under the null
    hypothesis.

    `histogram` int64 [2, values] counts the rows of each label by a measure; ties count one half.
    The area is 0.5 if a label has no rows. The standard error is that of the Mann-Whitney
    statistic.
    """
    negative, positive = histogram.astype(float)
    num_negative, num_positive = negative.sum(), positive.sum()
    if not num_negative or not num_positive:
        return 0.5, math.inf
    below = np.cumsum(negative) - negative / 2
    auc = float(positive @ below / num_negative / num_positive)
    return auc, math.sqrt((num_negative + num_positive + 1) / (12 * num_negative * num_positive))
