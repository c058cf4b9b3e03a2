"""Check instances against their configuration, from their files alone."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

import numpy as np

from .. import storage
from ..errors import UserError
from ..execution.counters import count_of
from ..instances.balance import LENGTH_AUC_TOLERANCE, Z_JUDGED, auc_of
from ..manifests import DocumentsManifest, InstancesManifest, InstancesShard, MixtureGroup
from ..mixture import weights_of
from ..storage.shards import open_shard
from ..storage.stage import read_manifest
from ..vocabulary.vocabulary import Vocabulary, read_vocabulary
from .documents import audit_documents, documents_beside, documents_digest
from .measures import MAX_ROW_HASHES, MIN_MASKED_SPANS, Measures, checked_instances, read_rows
from .origins import OriginMeasures
from .verdict import Audit, Check, Verdict

# From this many rows on, the share of IsNext must be exact; below, allow for chance.
ROWS_FOR_EXACT = 10_000
IS_NEXT_TOLERANCE = 0.005
PART_AUC_TOLERANCE = 0.05
ORIGIN_AUC_TOLERANCE = 0.02
ORIGINS = ("language", "source")
WEIGHT_TOLERANCE = 0.02
MAX_CUT_SHARE = 0.005
MAX_REPEATED_SHARE = 0.01
ROWS_FOR_SHARE = 200  # with fewer, what a few rows do by chance exceeds these shares
MIN_RANDOM_TOKENS = 100  # with fewer, chi-squared is too far from its limiting distribution
# Whole words cannot always fill the mask budget; using less than this share is a fault, unless
# words are long.
MIN_WHOLE_WORD_BUDGET = 0.9
# If chance alone may account for a deviation this large, there are too few rows to judge.
MAX_CHANCE = 0.25
TOO_FEW = "too few rows to judge"
# The intervals shown are 95 % intervals.
Z_SHOWN = 1.96
NUM_TOP_TOKENS, NUM_TOP_SHOWN, NUM_SOURCES = 30, 8, 10
TOKENS_AT_ONCE = 1 << 20


def audit(instances: str, documents: str | None = None) -> Audit:
    """Measure a directory of instances against the configuration it was built with.

    The `documents` that it was built from are measured too, if given; otherwise sources and
    languages are looked up in a directory of these documents beside the instances, if any. Raises `UserError` if a
    directory is unfinished or damaged, or `documents` is not what the instances were built from.
    All checks hold if ``not audit(...).failed``.
    """
    manifest, vocabulary = read_manifest(instances, InstancesManifest), read_vocabulary(instances)
    if documents is not None and read_manifest(
        documents, DocumentsManifest
    ).digest != documents_digest(manifest):
        raise UserError(f"{instances} was not built from {documents}, but from other documents.")
    measured = audit_instances(
        instances, manifest, vocabulary, documents or documents_beside(instances)
    )
    return (
        replace(measured, documents=audit_documents(documents, vocabulary))
        if documents is not None
        else measured
    )


def audit_instances(
    directory: str,
    manifest: InstancesManifest,
    vocabulary: Vocabulary,
    documents: str | None = None,
) -> Audit:
    """Measure the shards that `manifest` lists in `directory`, slice by slice.

    Sources and languages are judged if `documents`, the directory that they were built from, is
    given. Raises `UserError` for a broken shard.
    """
    num_rows = sum(shard.rows for shard in manifest.shards)
    measures = Measures(vocabulary, manifest.config, min(1.0, MAX_ROW_HASHES / max(num_rows, 1)))
    origins = OriginMeasures(documents, weights_of(manifest.mixture))
    num_foreign = 0
    for shard in manifest.shards:
        training_origins = origins if shard.split == "train" else None
        num_foreign += _measure_shard(directory, shard.name, measures, training_origins)
    return Audit(
        config=asdict(manifest.config),
        checks=[
            _none("shards of another vocabulary, length or seed", num_foreign),
            *_row_checks(measures, num_rows),
            *_label_checks(measures),
            *_origin_checks(measures, origins, manifest),
            *_mask_checks(measures),
            *_split_checks(measures),
            *_special_checks(measures),
            *_token_checks(measures, manifest),
            *_mixture_checks(manifest),
            *_source_checks(manifest.shards),
        ],
        lengths=measures.by_label["row length"].tolist(),
        segment_lengths=[
            measures.by_label[f"length of {segment}"].sum(axis=0).tolist() for segment in "AB"
        ],
        mask_positions=measures.mask_positions.tolist(),
        top_masked=_top_tokens(measures, NUM_TOP_TOKENS),
        shares_read=_shares_read(manifest.mixture),
    )


def _measure_shard(
    directory: str, name: str, measures: Measures, origins: OriginMeasures | None
) -> bool:
    """Add the rows of a shard; return whether its footer names another vocabulary, length or seed."""
    path, config = storage.join(directory, name), measures.config
    with open_shard(path, "build") as file:
        for batch in file.iter_batches(
            max(1, TOKENS_AT_ONCE // config.max_length), use_threads=False
        ):
            rows = read_rows(checked_instances(batch, len(measures.vocabulary)))
            measures.add(name, rows)
            if origins is not None:
                origins.add(rows)
        if origins is not None:
            origins.end_shard(name)
        found = file.schema_arrow.metadata or {}
    expected = {
        "tokenizer": measures.vocabulary.fingerprint,
        "max_length": config.max_length,
        "seed": config.seed,
    }
    named = {f"clozeworks.{name}".encode(): str(value).encode() for name, value in expected.items()}
    return any(found.get(name, value) != value for name, value in named.items())


def wilson_interval(successes: int, trials: int, z: float = Z_SHOWN) -> tuple[float, float]:
    """Return Wilson's score interval of a share; (0, 1) without trials."""
    if not trials:
        return 0.0, 1.0
    share, spread = successes / trials, z * z / trials
    centre = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / trials + spread / (4 * trials)) / (1 + spread)
    return centre - half, centre + half


def _row_checks(measures: Measures, num_rows: int) -> Iterator[Check]:
    counts, config = measures.counts, measures.config
    yield _exact("rows", counts["rows"], num_rows)
    yield _none("rows over the length limit", counts["rows_too_long"])
    yield _none("positions out of range or out of order", counts["misplaced"])
    yield _info("tokens", counts["tokens"], f"{counts['tokens']:,}")
    mean = counts["tokens"] / max(counts["rows"], 1)
    yield _info("mean row length", mean, f"{mean:.1f} of {config.max_length}")
    padding = 1 - mean / config.max_length
    yield _info("padding at fixed length", padding, f"{padding:.1%}")
    hashes = np.concatenate([np.zeros(0, np.uint64), *measures.row_hashes])
    repeated = (len(hashes) - len(np.unique(hashes))) / max(len(hashes), 1)
    name = f"repeated rows (with {MIN_MASKED_SPANS} or more masked spans)"
    yield _at_most(name, repeated, MAX_REPEATED_SHARE, len(hashes))


def _label_checks(measures: Measures) -> Iterator[Check]:
    counts, pairing = measures.counts, measures.config.pairing
    yield _none("labels other than 0 and 1", counts["other_labels"])
    if pairing == "none":
        yield _none("rows with a segment B", counts["rows"] - counts["without_b"])
        return
    yield _none("rows without a segment B", counts["without_b"])
    yield _is_next_check(measures)
    for name, histogram in measures.by_label.items():
        tolerance = LENGTH_AUC_TOLERANCE if name == "row length" else PART_AUC_TOLERANCE
        # In sentence-order prediction, the model is meant to learn what distinguishes a text's
        # first part from its second.
        promised = pairing == "balanced" or (pairing == "sop" and name == "row length")
        yield _auc_check(name, histogram, tolerance, "" if promised else _not_promised(pairing))
    if pairing == "sop":
        across = (
            counts["is_next_other_document"] + counts["not_next"] - counts["not_next_same_document"]
        )
        yield _none("pairs across documents", across)
    else:
        yield _none("NotNext pairs within one document", counts["not_next_same_document"])
        yield _none("IsNext pairs across documents", counts["is_next_other_document"])


def _origin_checks(
    measures: Measures, origins: OriginMeasures, manifest: InstancesManifest
) -> Iterator[Check]:
    """Judge what the origins of A and B say about the label."""
    pairing = measures.config.pairing
    if pairing not in ("balanced", "bert"):
        return
    unjudged = "" if pairing == "balanced" else _not_promised(pairing)
    yield _auc_check("script", _by_share(measures.scripts), ORIGIN_AUC_TOLERANCE, unjudged)
    for name, histogram in origins.document_lengths.items():
        yield _auc_check(name, histogram, ORIGIN_AUC_TOLERANCE, unjudged)
    for name in ORIGINS:
        if origins.documents is None:
            yield Check(
                f"AUC of {name} for the label",
                "unknown",
                "give the documents that the instances were built from",
                "unjudged",
                None,
            )
            continue
        histogram = _by_share(origins.histogram(name))
        check = _auc_check(name, histogram, ORIGIN_AUC_TOLERANCE, unjudged)
        across = manifest.counts.get(f"pairs_across_{name}s", 0)
        if check.verdict == "bad" and across and measures.config.negatives == "same-source":
            few = f"{across:,} pairs join two {name}s, one with too few documents in its shard"
            num_training = sum(shard.split == "train" for shard in manifest.shards)
            advice = "lower ingest --shards"
            if num_training == 1:
                advice = "add documents of it, or leave it out"
            check = replace(check, measured=f"{check.measured}; {few}", advice=advice)
        yield check


def _by_share(histogram: np.ndarray) -> np.ndarray:
    """Order values that have no order by their share of label 1: the best that a model could make
    of them.
    """
    return histogram[
        :, np.argsort(histogram[1] / np.maximum(histogram.sum(axis=0), 1), kind="stable")
    ]


def _is_next_check(measures: Measures) -> Check:
    """Judge the share of label 0 in all rows and in each pass over each shard; show first what is
    wrong.
    """
    rows, is_next = measures.counts["rows"], measures.counts["rows"] - measures.counts["not_next"]
    deviating = [
        (shard, f"{(num_rows - not_next) / num_rows:.1%} in pass {duplicate} of {shard}")
        for (shard, duplicate), (num_rows, not_next) in measures.passes.items()
        if not _is_half(num_rows - not_next, num_rows)
    ]
    low, high = wilson_interval(is_next, rows)
    share = is_next / max(rows, 1)
    measured = f"{share:.2%} ({low:.2%} to {high:.2%})"
    pairing = measures.config.pairing
    name = "pairs in order" if pairing == "sop" else "IsNext"
    if (
        reason := _not_promised(pairing)
        if pairing == "bert"
        else _too_few(Z_JUDGED / 2 / math.sqrt(max(rows, 1)))
    ):
        return Check(name, measured, reason, "unjudged", share, (low, high))
    advice = ""
    asked = f"50% ± {IS_NEXT_TOLERANCE:.1%}" if rows >= ROWS_FOR_EXACT else "50%, within chance"
    if deviating:
        passes = deviating[0][1] + (f" and {len(deviating) - 1} more" if len(deviating) > 1 else "")
        if _is_half(is_next, rows):
            measured, asked = f"{passes}; {measured} in all", "50% in each pass over a shard"
        else:
            measured += f"; {passes}"
        if all(shard.startswith("validation-") for shard, _ in deviating):
            advice = "ingest with a larger --validation-share"
    verdict = _verdict(not deviating and _is_half(is_next, rows))
    return Check(name, measured, asked, verdict, share, (low, high), advice=advice)


def _not_promised(pairing: str) -> str:
    return f"not balanced by {pairing}"


def _too_few(chance: float) -> str:
    return TOO_FEW if chance > MAX_CHANCE else ""


def _is_half(successes: int, trials: int) -> bool:
    """Tell whether a share is one half: within the tolerance or, with few trials, within chance."""
    if trials >= ROWS_FOR_EXACT:
        return abs(successes / trials - 0.5) <= IS_NEXT_TOLERANCE
    low, high = wilson_interval(successes, trials, Z_JUDGED)
    return low <= 0.5 <= high


def _auc_check(name: str, histogram: np.ndarray, tolerance: float, unjudged: str) -> Check:
    """Judge an area under the ROC curve, unless there is a reason to leave it `unjudged`."""
    name = f"AUC of {name} for the label"
    auc, error = auc_of(histogram)
    half = min(Z_SHOWN * error, 0.5)
    interval = (max(auc - half, 0.0), min(auc + half, 1.0))
    if reason := unjudged or _too_few(Z_JUDGED * error):
        return Check(name, f"{auc:.3f}", reason, "unjudged", auc, interval)
    tolerance = max(tolerance, Z_JUDGED * error)
    verdict = _verdict(abs(auc - 0.5) <= tolerance)
    return Check(name, f"{auc:.3f}", f"0.500 ± {tolerance:.3f}", verdict, auc, interval, tolerance)


def _mask_checks(measures: Measures) -> Iterator[Check]:
    counts, config = measures.counts, measures.config
    share, asked = (counts[name] / max(counts["tokens"], 1) for name in ("masked", "masks_asked"))
    # What is left of a row's budget may be too little for another word: in long words, more than
    # the limit allows.
    spare = counts["rows"] * (counts["text_tokens"] / max(counts["words"], 1) - 1)
    unused = counts["masks_asked"] - counts["masked"]
    most = max((1 - MIN_WHOLE_WORD_BUDGET) * counts["masks_asked"], spare)
    measured, limit = f"{share:.2%}", f"{asked:.2%}"
    if config.masking == "token":
        enough = measured == limit  # fewer lost or added masks are left to the next check
    else:
        enough, limit = unused <= most, f"at most {limit}, in whole words"
    yield Check("masked share", measured, limit, _verdict(enough), share)
    yield _none("rows with the wrong number of masks", counts["rows_breaking_count"])
    if config.masking != "token":
        yield _none("partly masked words", counts["split_words"])
    top, masked = _top_tokens(measures, NUM_TOP_SHOWN), max(counts["masked"], 1)
    shown = "  ".join(f"{token} {count / masked:.1%}" for token, count in top if count)
    yield _info("most frequently masked", top[0][1] / masked, shown)


def _top_tokens(measures: Measures, most: int) -> list[tuple[str, int]]:
    top = np.argsort(-measures.masked_tokens, kind="stable")[:most].tolist()
    return [
        (measures.vocabulary.tokens[token], int(measures.masked_tokens[token])) for token in top
    ]


def _split_checks(measures: Measures) -> Iterator[Check]:
    """Judge the shares of [MASK], random and kept tokens by cluster-robust intervals: a span is
    masked as one.

    They are corrected for random tokens that equal the original, and so look kept.
    """
    counts, num_ordinary = measures.counts, int(measures.vocabulary.is_ordinary.sum())
    masked = max(counts["masked"], 1)
    observed = {name: counts[f"masked_{name}"] / masked for name in ("mask", "random", "keep")}
    random = observed["random"] * num_ordinary / max(num_ordinary - 1, 1)
    shares = {
        "mask": observed["mask"],
        "random": random,
        "keep": observed["keep"] - (random - observed["random"]),
    }
    titles = {
        "mask": "masked tokens that are [MASK]",
        "random": "… a random token",
        "keep": "… kept",
    }
    for (name, share), percent in zip(shares.items(), measures.config.mask_split, strict=True):
        own_squares, products, all_squares = measures.squares[name]
        expected = percent / 100
        # The interval shown is about the observed share. In few tokens, that share and its variance
        # may be near 0 by chance; so the verdict takes the variance about the expected share.
        shown, judged = (
            math.sqrt(
                max(own_squares - 2 * p * products + p**2 * all_squares, masked * p * (1 - p), 1.0)
            )
            / masked
            for p in (observed[name], expected)
        )
        interval = (max(share - Z_SHOWN * shown, 0.0), min(share + Z_SHOWN * shown, 1.0))
        reason = _too_few(Z_JUDGED * judged)
        verdict = "unjudged" if reason else _verdict(abs(share - expected) <= Z_JUDGED * judged)
        measured = f"{max(share, 0.0):.2%} ({interval[0]:.2%} to {interval[1]:.2%})"
        yield Check(titles[name], measured, reason or f"{percent}%", verdict, share, interval)
    if counts["masked_random"]:
        yield _uniform_check(measures)


def _uniform_check(measures: Measures) -> Check:
    """Judge by chi-squared whether random tokens are uniform over the ordinary ones other than the
    original.
    """
    name = "spread of random tokens (chi-squared per token)"
    if (num_random := measures.counts["masked_random"]) < MIN_RANDOM_TOKENS:
        return Check(name, f"{num_random} tokens", TOO_FEW, "unjudged", None)
    ordinary = measures.vocabulary.is_ordinary
    times = measures.random_tokens[ordinary]
    expected = 1 - measures.masked_tokens[ordinary] / measures.counts["masked"]
    expected *= times.sum() / expected.sum()
    freedom = max(len(times) - 1, 1)
    ratio = float(((times - expected) ** 2 / expected).sum()) / freedom
    tolerance = Z_JUDGED * math.sqrt(2 / freedom) + 0.05
    return Check(
        name,
        f"{ratio:.3f}",
        f"at most {1 + tolerance:.2f}",
        _verdict(ratio <= 1 + tolerance),
        ratio,
    )


def _special_checks(measures: Measures) -> Iterator[Check]:
    counts = measures.counts
    yield _none("rows with misplaced [CLS] or [SEP]", counts["rows_without_specials"])
    yield _none("special tokens in the text", counts["specials_in_text"])
    yield _none("masks on [CLS] or [SEP]", counts["masked_specials"])
    yield _none("special or [unused] tokens drawn as random", counts["random_not_ordinary"])
    unknown = counts["unknown_tokens"] / max(counts["text_tokens"], 1)
    yield _info("unknown tokens", unknown, f"{unknown:.3%}")


def _token_checks(measures: Measures, manifest: InstancesManifest) -> Iterator[Check]:
    """Compare the number of tokens in the rows with the manifest's counts for the documents, over
    all passes.
    """
    name = "tokens in rows (documents minus tokens cut)"
    if not manifest.counts:
        yield _unknown(name)
        return
    tokens_in, tokens_cut = (
        manifest.counts.get("tokens_in", 0),
        manifest.counts.get("tokens_cut", 0),
    )
    used, cut_share = measures.counts["text_tokens"], tokens_cut / max(tokens_in, 1)
    if measures.config.pairing == "bert":
        ratio = used / max(tokens_in, 1)
        yield _info("tokens in rows per token in documents", ratio, f"{ratio:.3f}")
        yield _info("tokens cut", cut_share, f"{cut_share:.3%}")
        return
    yield _exact(name, used, tokens_in - tokens_cut)
    yield _at_most("tokens cut", cut_share, MAX_CUT_SHARE, measures.counts["rows"])


def _mixture_checks(manifest: InstancesManifest) -> Iterator[Check]:
    """Judge how often the documents of each origin are read, if weights were asked for."""
    if not weights_of(manifest.mixture):
        return
    passes = manifest.config.duplicates
    for group in (group for group in manifest.mixture if group.tokens):
        read = group.tokens_built / group.tokens / passes
        # A document is read a whole number of times over all passes; rounding it has a standard
        # error of up to 1/2.
        error = math.sqrt(group.squared_tokens) / 2 / group.tokens / passes
        tolerance = max(WEIGHT_TOLERANCE * group.weight, Z_JUDGED * error)
        verdict = _verdict(abs(read - group.weight) <= tolerance)
        measured, asked = f"{read:.3f}", f"{group.weight:.3f} ± {tolerance:.3f}"
        if verdict == "bad" and (alone := manifest.counts.get("documents_without_partner", 0)):
            measured += f"; {count_of(alone, 'document')} skipped, alone in a part of a pass"
        yield Check(
            f"times read per pass: {group.source}, {group.language}", measured, asked, verdict, read
        )


def _source_checks(shards: Sequence[InstancesShard]) -> Iterator[Check]:
    """Show each source's share of the documents' tokens, largest first."""
    tokens: Counter[str] = Counter()
    for shard in shards:
        tokens.update(shard.source_tokens)
    for source, num_tokens in tokens.most_common(NUM_SOURCES):
        share = num_tokens / max(tokens.total(), 1)
        yield _info(f"tokens from {source}", share, f"{share:.1%}")


def _shares_read(mixture: Sequence[MixtureGroup]) -> dict[tuple[str, str], float]:
    total = max(sum(group.tokens_built for group in mixture), 1)
    ordered = sorted(mixture, key=lambda group: (-group.tokens_built, group.source, group.language))
    return {(group.source, group.language): group.tokens_built / total for group in ordered}


def _verdict(holds: bool) -> Verdict:
    return "ok" if holds else "bad"


def _exact(name: str, value: int, asked: int) -> Check:
    return Check(name, f"{value:,}", f"{asked:,}", _verdict(value == asked), value)


def _none(name: str, value: int) -> Check:
    return _exact(name, value, 0)


def _at_most(name: str, share: float, limit: float, num_rows: int) -> Check:
    if num_rows < ROWS_FOR_SHARE:
        return Check(name, f"{share:.3%}", TOO_FEW, "unjudged", share)
    return Check(name, f"{share:.3%}", f"at most {limit:.1%}", _verdict(share <= limit), share)


def _info(name: str, value: float, measured: str) -> Check:
    return Check(name, measured, "", "info", value)


def _unknown(name: str) -> Check:
    return Check(name, "unknown", "the manifest does not count it: build again", "unjudged", None)
