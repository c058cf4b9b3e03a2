"""Check that the label of a pair can be learned only from its text.

A model that could tell IsNext from NotNext by the rows' lengths, by a full stop at the end, or by
where the documents come from would learn that instead. How well a measure alone predicts the label
is the area under its ROC curve (AUC), 0.5 for a measure that says nothing.
"""

import math
from collections.abc import Iterator, Mapping

import numpy as np

from ..counters import Z_95, wilson_interval
from ..instances.balance import LENGTH_AUC_TOLERANCE, Z_JUDGED, auc_of
from ..manifests import InstancesManifest
from .measures import Measures
from .origins import OriginMeasures
from .verdict import (
    HALF_TOLERANCE,
    ROWS_FOR_EXACT,
    Check,
    Verdict,
    exact,
    is_half,
    judge,
    too_few,
)

# For one segment, or its end: wider, because only the lengths of whole rows are balanced.
PART_AUC_TOLERANCE = 0.05
ORIGIN_AUC_TOLERANCE = 0.02


def label_checks(measures: Measures) -> Iterator[Check]:
    """Judge the labels, their balance, and what the rows' lengths and ends say about them."""
    counts = measures.counts
    pairing = measures.config.pairing
    yield exact("labels other than 0 and 1", counts["other_labels"])
    if pairing == "none":
        yield exact("rows with a segment B", counts["rows"] - counts["without_b"])
        return
    yield exact("rows without a segment B", counts["without_b"])
    yield _is_next_check(measures)
    # Swapping two segments does not change a row's length. Beyond that, the model of sentence order
    # is meant to learn what distinguishes a text's first part from its second.
    whole = "" if pairing in ("balanced", "sop") else f"not balanced by {pairing}"
    part = "" if pairing == "balanced" else f"not balanced by {pairing}"
    yield _auc_check("row length", measures.row_lengths, LENGTH_AUC_TOLERANCE, whole)
    yield _auc_check("length of A", measures.lengths_a, PART_AUC_TOLERANCE, part)
    yield _auc_check("length of B", measures.lengths_b, PART_AUC_TOLERANCE, part)
    yield _auc_check("B ending a sentence", measures.ends_of_b, PART_AUC_TOLERANCE, part)
    yield _lengths_and_ends_check(measures, part)
    same_document = counts["not_next_same_document"]
    if pairing == "sop":
        across_swapped = counts["not_next"] - same_document
        yield exact("pairs across documents", counts["is_next_other_document"] + across_swapped)
    else:
        yield exact("NotNext pairs within one document", same_document)
        yield exact("IsNext pairs across documents", counts["is_next_other_document"])


def _lengths_and_ends_check(measures: Measures, why_unjudged: str) -> Check:
    """Judge what the lengths of A and B say together with whether they end a sentence: every other
    row shows how often each combination is NotNext, which predicts the others.
    """
    seen, others = measures.lengths_and_ends
    share_of_not_next = (seen[1] + 1) / (seen.sum(axis=0) + 2)
    histogram = others[:, np.argsort(share_of_not_next, kind="stable")]
    name = "lengths and ends of A and B"
    check = _auc_check(name, histogram, PART_AUC_TOLERANCE, why_unjudged)
    if check.verdict == "bad":
        # A warning, as only the lengths of whole rows are balanced for each label.
        reason = "many sentences are cut, as they are longer than half a row"
        return check.explained(reason, "build with a larger `max_length`, 128 at least")
    return check


def origin_checks(
    measures: Measures, origins: OriginMeasures, manifest: InstancesManifest
) -> Iterator[Check]:
    """Judge what the origins of A and B say about the label."""
    pairing = measures.config.pairing
    if pairing not in ("balanced", "bert"):
        return
    why_unjudged = "" if pairing == "balanced" else f"not balanced by {pairing}"
    forced_share = manifest.counts.get("forced_pairs", 0) / max(measures.counts["rows"], 1)
    for segment, histogram in zip("AB", origins.document_lengths, strict=True):
        name = f"document length of {segment}"
        check = _auc_check(name, histogram, ORIGIN_AUC_TOLERANCE, why_unjudged)
        # So many single sentences are mostly whole documents: short documents have fewer IsNext
        # pairs than long ones.
        if check.verdict == "bad" and forced_share > 0.05:
            reason = f"{forced_share:.0%} of the pairs are single sentences, which are NotNext"
            check = check.explained(reason, "ingest with `min_sentences` 3")
        yield check
    for name, pairs in (("language", origins.languages), ("source", origins.sources)):
        if origins.documents is None:
            advice = "give the documents that the instances were built from"
            yield Check(f"AUC of {name} for the label", "unknown", advice, "unjudged", None)
            continue
        histogram = _by_share(pairs)
        check = _auc_check(name, histogram, ORIGIN_AUC_TOLERANCE, why_unjudged)
        num_across = manifest.counts.get(f"pairs_across_{name}s", 0)
        if check.verdict == "bad" and num_across and measures.config.negatives == "same-source":
            # It gives away the label though negatives are drawn from the same one.
            reason = (
                f"{num_across:,} pairs join two {name}s, one with too few documents in its shard"
            )
            advice = "add documents of it, or leave it out"
            if sum(shard.split == "train" for shard in manifest.shards) > 1:
                advice = "ingest with fewer `shards`"
            check = check.explained(reason, advice, verdict="bad")
        yield check


def _by_share(pairs: Mapping[tuple[str, str], np.ndarray]) -> np.ndarray:
    """Return a histogram int64 [2, pairs of origins], ordered by their share of label 1."""
    # value      en   ko   de          en   de   ko
    # label 0     6    1    4    ->     6    4    1
    # label 1     2    4    4           2    4    4
    # share     1/4  4/5  1/2         1/4  1/2  4/5
    rows_of_pairs = [rows for _, rows in sorted(pairs.items())]
    histogram = np.array(rows_of_pairs, np.int64).reshape(-1, 2).T
    shares = histogram[1] / np.maximum(histogram.sum(axis=0), 1)
    return histogram[:, np.argsort(shares, kind="stable")]


def _is_next_check(measures: Measures) -> Check:
    """Judge the share of label 0 in all rows and in each pass over each shard."""
    pairing = measures.config.pairing
    name = "pairs in order" if pairing == "sop" else "IsNext"
    rows = measures.counts["rows"]
    is_next = rows - measures.counts["not_next"]
    share = is_next / max(rows, 1)
    interval = wilson_interval(is_next, rows)
    low, high = interval
    measured = f"{share:.2%} ({low:.2%} to {high:.2%})"
    # The standard error of a share near one half is 1/2 divided by the root of the rows.
    why_unjudged = too_few(Z_JUDGED / 2 / math.sqrt(max(rows, 1)), rows)
    if pairing == "bert":
        why_unjudged = "not balanced by bert"
    asked = f"50% ± {HALF_TOLERANCE:.1%}" if rows >= ROWS_FOR_EXACT else "50%, within chance"
    check = judge(name, measured, asked, is_half(is_next, rows), share, interval, why_unjudged)
    uneven = []  # passes in which it is not one half
    for (shard, duplicate), (rows_of_pass, not_next_of_pass) in measures.passes.items():
        if not is_half(not_next_of_pass, rows_of_pass):
            share_in_pass = 1 - not_next_of_pass / rows_of_pass
            uneven.append((shard, f"{share_in_pass:.1%} in pass {duplicate} of {shard}"))
    if why_unjudged or not uneven:
        return check
    shown = uneven[0][1]
    if len(uneven) > 1:
        shown += f" and {len(uneven) - 1} more"
    if check.verdict == "ok":
        # The passes cancel out: they are the fault, not the whole.
        measured = f"{shown}; {measured} in all"
        asked = "50% in each pass over a shard"
    else:
        measured = f"{measured}; {shown}"
    verdict: Verdict = "bad"
    advice = ""
    if all(shard.startswith("validation-") for shard, _ in uneven):
        advice = "ingest with a larger `validation_share`"
        if not all(shard.startswith("validation-") for shard, _ in measures.passes):
            verdict = "warn"  # nothing that a model learns from
    return Check(name, measured, asked, verdict, share, interval, advice=advice)


def _auc_check(name: str, histogram: np.ndarray, tolerance: float, why_unjudged: str) -> Check:
    """Judge an area under the ROC curve, unless `why_unjudged` says why not."""
    name = f"AUC of {name} for the label"
    auc, error = auc_of(histogram)
    measured = f"{auc:.3f}"
    half_width = min(Z_95 * error, 0.5)
    interval = (max(auc - half_width, 0.0), min(auc + half_width, 1.0))
    why_unjudged = why_unjudged or too_few(Z_JUDGED * error, int(histogram.sum()))
    # In few rows, chance alone exceeds a fixed tolerance.
    tolerance = max(tolerance, Z_JUDGED * error)
    asked = f"0.500 ± {tolerance:.3f}"
    holds = abs(auc - 0.5) <= tolerance
    return judge(name, measured, asked, holds, auc, interval, why_unjudged)
