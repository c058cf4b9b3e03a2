"""Check the masks: how many there are, what stands in their places, and which random tokens."""

import math
from collections.abc import Iterator

import numpy as np

from ..instances.balance import Z_JUDGED
from .measures import Measures
from .verdict import TOO_LITTLE, Z_SHOWN, Check, Verdict, info, none, too_few, verdict_of

MIN_WHOLE_WORD_BUDGET = 0.9
"""Whole words cannot always fill the mask budget; using less than this share is a fault, unless
words are long.
"""

MIN_RANDOM_TOKENS = 100
"""With fewer, chi-squared is too far from its limiting distribution."""

MAX_UNEVENNESS = 0.05
"""Chi-squared per token may exceed 1 by this beyond chance: in a large corpus, any small deviation
would be significant.
"""

NUM_TOP_SHOWN = 8


def mask_checks(measures: Measures) -> Iterator[Check]:
    """Judge the number of masks, in all and in each row."""
    counts = measures.counts
    masks_words = measures.config.masking != "token"
    num_tokens = max(counts["tokens"], 1)
    share = counts["masked"] / num_tokens
    asked_share = counts["masks_asked"] / num_tokens
    measured = f"{share:.2%}"
    asked = f"{asked_share:.2%}"
    if masks_words:
        enough = _fills_budget(measures)
        asked = f"at most {asked}, in whole words"
    else:
        enough = measured == asked  # fewer lost or added masks are left to the next check
    yield Check("masked share", measured, asked, verdict_of(enough), share)
    yield none("rows with the wrong number of masks", counts["rows_breaking_count"])
    if masks_words:
        yield none("partly masked words", counts["split_words"])

    masked = max(counts["masked"], 1)
    top = top_tokens(measures, NUM_TOP_SHOWN)
    shares = [f"{token} {count / masked:.1%}" for token, count in top if count]
    _, highest_count = top[0]
    yield info("most frequently masked", highest_count / masked, "  ".join(shares))


def _fills_budget(measures: Measures) -> bool:
    """Tell whether whole words use enough of the masks that were asked for.

    The rest of a row's budget may be too little for another word: on average a word's tokens but
    one, which in long words is more than `MIN_WHOLE_WORD_BUDGET` allows.
    """
    counts = measures.counts
    unused = counts["masks_asked"] - counts["masked"]
    tokens_per_word = counts["text_tokens"] / max(counts["words"], 1)
    spare = counts["rows"] * (tokens_per_word - 1)
    return unused <= max((1 - MIN_WHOLE_WORD_BUDGET) * counts["masks_asked"], spare)


def top_tokens(measures: Measures, most: int) -> list[tuple[str, int]]:
    """Return the most frequently masked tokens with their counts."""
    # Stable, so that equally frequent tokens come in the order of the vocabulary.
    most_frequent = np.argsort(-measures.masked_tokens, kind="stable")[:most].tolist()
    top = []
    for token_id in most_frequent:
        count = int(measures.masked_tokens[token_id])
        top.append((measures.vocabulary.readable[token_id], count))
    return top


def split_checks(measures: Measures) -> Iterator[Check]:
    """Judge the shares of [MASK], random and kept tokens among the masked ones.

    They are corrected for random tokens that equal the original, and so look kept.
    """
    counts = measures.counts
    masked = max(counts["masked"], 1)
    titles = {
        "mask": "masked tokens that are [MASK]",
        "random": "… a random token",
        "keep": "… kept",
    }
    observed = {kind: counts[f"masked_{kind}"] / masked for kind in titles}
    # One in `num_ordinary` random tokens is the original by chance: those seen are the others.
    num_ordinary = int(measures.vocabulary.is_ordinary.sum())
    corrected = {**observed}
    corrected["random"] = observed["random"] * num_ordinary / max(num_ordinary - 1, 1)
    corrected["keep"] -= corrected["random"] - observed["random"]
    for kind, percent in zip(titles, measures.config.mask_split, strict=True):
        share = corrected[kind]
        expected = percent / 100
        # The interval shown is about the observed share. In few tokens, that share and its variance
        # may be near 0 by chance; so the verdict takes the variance about the share that should be
        # observed, the expected one before its correction.
        shown_error = _standard_error(observed[kind], masked)
        correction = share - observed[kind]
        judged_error = _standard_error(expected - correction, masked)
        low = max(share - Z_SHOWN * shown_error, 0.0)
        high = min(share + Z_SHOWN * shown_error, 1.0)
        unjudged = too_few(Z_JUDGED * judged_error, counts["rows"])
        verdict: Verdict = "unjudged"
        if not unjudged:
            verdict = verdict_of(abs(share - expected) <= Z_JUDGED * judged_error)
        measured = f"{max(share, 0.0):.2%} ({low:.2%} to {high:.2%})"
        asked = unjudged or f"{percent}%"
        yield Check(titles[kind], measured, asked, verdict, share, (low, high))
    if counts["masked_random"]:
        yield _uniform_check(measures)


def _standard_error(share: float, masked: int) -> float:
    """Return the standard error of a share of `masked` tokens, which are drawn independently."""
    # At least one token: where none is of the kind, the variance is 0, but the share is not exact.
    variance = max(masked * share * (1 - share), 1.0)
    return math.sqrt(variance) / masked


def _uniform_check(measures: Measures) -> Check:
    """Judge by chi-squared whether random tokens are uniform over the ordinary ones other than the
    original.
    """
    name = "spread of random tokens (chi-squared per token)"
    num_random = measures.counts["masked_random"]
    if num_random < MIN_RANDOM_TOKENS:
        return Check(name, f"{num_random} tokens", TOO_LITTLE, "unjudged", None)
    is_ordinary = measures.vocabulary.is_ordinary
    times_drawn = measures.random_tokens[is_ordinary]
    # A token is seen as random only where it is not the original.
    original_shares = measures.masked_tokens[is_ordinary] / measures.counts["masked"]
    expected = 1 - original_shares
    expected *= times_drawn.sum() / expected.sum()
    freedom = max(len(times_drawn) - 1, 1)
    squared_errors = (times_drawn - expected) ** 2
    chi_squared = float((squared_errors / expected).sum())
    ratio = chi_squared / freedom
    # Chi-squared per degree of freedom has mean 1 and variance 2 / freedom.
    limit = 1 + Z_JUDGED * math.sqrt(2 / freedom) + MAX_UNEVENNESS
    asked = f"at most {limit:.2f}"
    return Check(name, f"{ratio:.3f}", asked, verdict_of(ratio <= limit), ratio)
