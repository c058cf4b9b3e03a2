"""Check that the label of a pair can be learned only from its text.

A model that could tell IsNext from NotNext by the rows' lengths, by a full stop at the end, or by
where the documents come from would learn that instead. How well a measure alone predicts the label
is the area under its ROC curve (AUC), 0.5 for a measure that says nothing.
"""

import math
from collections.abc import Iterator

import numpy as np

from ..instances.balance import LENGTH_AUC_TOLERANCE, Z_JUDGED, auc_of
from ..manifests import InstancesManifest
from .measures import Measures
from .origins import OriginMeasures
from .verdict import (
    HALF_TOLERANCE,
    ROWS_FOR_EXACT,
    Z_SHOWN,
    Check,
    is_half,
    none,
    too_few,
    verdict_of,
    wilson_interval,
)

# Of one segment, or its end: wider, because only the lengths of whole rows are balanced.
PART_AUC_TOLERANCE = 0.05
ORIGIN_AUC_TOLERANCE = 0.02
ORIGINS = ("language", "source")
MANY_FORCED = 0.05
"""From this share of single sentences on, most of them whole documents, short documents have fewer
IsNext pairs than long ones.
"""


def label_checks(measures: Measures) -> Iterator[Check]:
    """Judge the labels, their balance, and what the rows' lengths and ends say about them."""
    counts = measures.counts
    pairing = measures.config.pairing
    yield none("labels other than 0 and 1", counts["other_labels"])
    if pairing == "none":
        yield none("rows with a segment B", counts["rows"] - counts["without_b"])
        return
    yield none("rows without a segment B", counts["without_b"])
    yield _is_next_check(measures)
    for name, histogram in measures.by_label.items():
        tolerance = PART_AUC_TOLERANCE
        is_promised = pairing == "balanced"
        if name == "row length":
            tolerance = LENGTH_AUC_TOLERANCE
            # Swapping two segments does not change their length. Beyond that, the model of
            # sentence order is meant to learn what distinguishes a text's first part from its
            # second.
            is_promised = pairing in ("balanced", "sop")
        why_unjudged = "" if is_promised else _not_promised(pairing)
        yield _auc_check(name, histogram, tolerance, why_unjudged)
    same_document = counts["not_next_same_document"]
    if pairing == "sop":
        across_swapped = counts["not_next"] - same_document
        yield none("pairs across documents", counts["is_next_other_document"] + across_swapped)
    else:
        yield none("NotNext pairs within one document", same_document)
        yield none("IsNext pairs across documents", counts["is_next_other_document"])


def origin_checks(
    measures: Measures, origins: OriginMeasures, manifest: InstancesManifest
) -> Iterator[Check]:
    """Judge what the origins of A and B say about the label."""
    pairing = measures.config.pairing
    if pairing not in ("balanced", "bert"):
        return
    why_unjudged = "" if pairing == "balanced" else _not_promised(pairing)
    forced_share = manifest.counts.get("forced_pairs", 0) / max(measures.counts["rows"], 1)
    for name, histogram in origins.document_lengths.items():
        check = _auc_check(name, histogram, ORIGIN_AUC_TOLERANCE, why_unjudged)
        if check.verdict == "bad" and forced_share > MANY_FORCED:
            reason = f"{forced_share:.0%} of the pairs are single sentences, which are NotNext"
            check = check.explained(reason, "ingest with `min_sentences` 3")
        yield check
    for name in ORIGINS:
        if origins.documents is None:
            advice = "give the documents that the instances were built from"
            yield Check(_auc_name(name), "unknown", advice, "unjudged", None)
            continue
        histogram = _by_share(origins.histogram(name))
        check = _auc_check(name, histogram, ORIGIN_AUC_TOLERANCE, why_unjudged)
        num_across = manifest.counts.get(f"pairs_across_{name}s", 0)
        if check.verdict == "bad" and num_across and measures.config.negatives == "same-source":
            num_shards = sum(shard.split == "train" for shard in manifest.shards)
            check = _with_reason(check, name, num_across, num_shards)
        yield check


def _with_reason(check: Check, origin: str, num_across: int, num_shards: int) -> Check:
    """Say why an origin gives away the label though negatives are drawn from the same one."""
    reason = f"{num_across:,} pairs join two {origin}s, one with too few documents in its shard"
    if num_shards > 1:
        advice = "ingest with fewer `shards`"
    else:
        advice = "add documents of it, or leave it out"
    return check.explained(reason, advice, verdict="bad")


def _by_share(histogram: np.ndarray) -> np.ndarray:
    """Order the columns of a histogram [2, values] by their share of label 1.

    Values such as languages have no order; this one is the best that a model could make of them.
    """
    # value      en   ko   de          en   de   ko
    # label 0     6    1    4    ->     6    4    1
    # label 1     2    4    4           2    4    4
    # share     1/4  4/5  1/2         1/4  1/2  4/5
    shares = histogram[1] / np.maximum(histogram.sum(axis=0), 1)
    return histogram[:, np.argsort(shares, kind="stable")]


def _is_next_check(measures: Measures) -> Check:
    """Judge the share of label 0 in all rows and in each pass over each shard; show first what is
    wrong.
    """
    pairing = measures.config.pairing
    name = "pairs in order" if pairing == "sop" else "IsNext"
    rows = measures.counts["rows"]
    is_next = rows - measures.counts["not_next"]
    share = is_next / max(rows, 1)
    interval = wilson_interval(is_next, rows)
    low, high = interval
    measured = f"{share:.2%} ({low:.2%} to {high:.2%})"
    if pairing == "bert":
        why_unjudged = _not_promised(pairing)
    else:
        # The standard error of a share near one half is 1/2 divided by the root of the rows.
        why_unjudged = too_few(Z_JUDGED / 2 / math.sqrt(max(rows, 1)), rows)
    if why_unjudged:
        return Check(name, measured, why_unjudged, "unjudged", share, interval)

    asked = f"50% ± {HALF_TOLERANCE:.1%}" if rows >= ROWS_FOR_EXACT else "50%, within chance"
    verdict = verdict_of(is_half(is_next, rows))
    uneven = _uneven_passes(measures)
    if not uneven:
        return Check(name, measured, asked, verdict, share, interval)

    (shard, duplicate), share_in_pass = next(iter(uneven.items()))
    shown = f"{share_in_pass:.1%} in pass {duplicate} of {shard}"
    if len(uneven) > 1:
        shown += f" and {len(uneven) - 1} more"
    if verdict == "ok":
        # The passes cancel out: they are the fault, not the whole.
        measured = f"{shown}; {measured} in all"
        asked = "50% in each pass over a shard"
    else:
        measured = f"{measured}; {shown}"
    verdict = "bad"
    advice = ""
    if all(_is_of_validation(shard) for shard, _ in uneven):
        advice = "ingest with a larger `validation_share`"
        if _is_half_in_training(measures):
            verdict = "warn"  # nothing that a model learns from
    return Check(name, measured, asked, verdict, share, interval, advice=advice)


def _uneven_passes(measures: Measures) -> dict[tuple[str, int], float]:
    """Return the share of label 0 by shard and pass, where it is not one half."""
    uneven = {}
    for part, (num_rows, num_not_next) in measures.passes.items():
        num_is_next = num_rows - num_not_next
        if not is_half(num_is_next, num_rows):
            uneven[part] = num_is_next / num_rows
    return uneven


def _is_of_validation(shard: str) -> bool:
    return shard.startswith("validation-")


def _is_half_in_training(measures: Measures) -> bool:
    num_rows = 0
    num_not_next = 0
    for (shard, _), (rows_of_pass, not_next_of_pass) in measures.passes.items():
        if not _is_of_validation(shard):
            num_rows += rows_of_pass
            num_not_next += not_next_of_pass
    return num_rows > 0 and is_half(num_not_next, num_rows)


def _not_promised(pairing: str) -> str:
    return f"not balanced by {pairing}"


def _auc_name(measure: str) -> str:
    return f"AUC of {measure} for the label"


def _auc_check(name: str, histogram: np.ndarray, tolerance: float, why_unjudged: str) -> Check:
    """Judge an area under the ROC curve, unless `why_unjudged` says why not."""
    name = _auc_name(name)
    auc, error = auc_of(histogram)
    measured = f"{auc:.3f}"
    half_width = min(Z_SHOWN * error, 0.5)
    low = max(auc - half_width, 0.0)
    high = min(auc + half_width, 1.0)
    interval = (low, high)
    why_unjudged = why_unjudged or too_few(Z_JUDGED * error, int(histogram.sum()))
    if why_unjudged:
        return Check(name, measured, why_unjudged, "unjudged", auc, interval)
    # In few rows, chance alone exceeds a fixed tolerance.
    tolerance = max(tolerance, Z_JUDGED * error)
    asked = f"0.500 ± {tolerance:.3f}"
    verdict = verdict_of(abs(auc - 0.5) <= tolerance)
    return Check(name, measured, asked, verdict, auc, interval, tolerance)
