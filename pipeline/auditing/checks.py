"""Check instances against their configuration, from their files alone."""

import math
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace

from .. import storage
from ..counters import Z_95, count_of
from ..instances.balance import Z_JUDGED
from ..manifests import InstancesManifest
from ..mixture import weights_of
from ..storage.shards import open_shard
from ..storage.state import read_manifest
from ..vocabulary.files import vocabulary_of_instances
from ..vocabulary.vocabulary import Vocabulary
from .label_checks import label_checks, origin_checks
from .measures import Measures, read_batch
from .origins import OriginMeasures, documents_of
from .verdict import Audit, Check, at_most, exact, info, judge, too_few


def audit(instances: str, documents: str | None = None) -> Audit:
    """Measure a directory of instances against the configuration it was built with.

    Sources and languages are looked up in the `documents` that it was built from, by default a
    directory of them beside the instances, if there is one. Raises `UserError` if a directory is
    unfinished or damaged, or if the instances were not built from `documents`. All checks hold if
    ``not audit(...).failed``.
    """
    instances = os.fspath(instances)
    manifest = read_manifest(instances, InstancesManifest)
    vocabulary = vocabulary_of_instances(instances, manifest.tokenizer.fingerprint)
    documents = documents_of(instances, manifest, documents)
    return audit_instances(instances, manifest, vocabulary, documents)


def audit_instances(
    directory: str,
    manifest: InstancesManifest,
    vocabulary: Vocabulary,
    documents: str | None = None,
) -> Audit:
    """Measure the shards that `manifest` lists in `directory`, slice by slice."""
    measures = Measures(vocabulary, manifest.config)
    origins = OriginMeasures(documents, weights_of(manifest.mixture))
    num_foreign = 0
    footer = {
        b"clozeworks.tokenizer": str(vocabulary.fingerprint).encode(),
        b"clozeworks.max_length": str(manifest.config.max_length).encode(),
        b"clozeworks.seed": str(manifest.config.seed).encode(),
    }
    # A million tokens at once, as every measure needs a few arrays of 8 bytes a token.
    rows_at_once = max(1, (1 << 20) // manifest.config.max_length)
    for shard in manifest.shards:
        # What a model can learn about the label, it learns from the training rows.
        is_training = shard.split == "train"
        with open_shard(storage.join(directory, shard.name), "build") as file:
            for batch in file.iter_batches(rows_at_once, use_threads=False):
                rows = measures.add(shard.name, read_batch(batch, len(vocabulary)))
                if is_training:
                    origins.add(rows)
            if is_training:
                origins.end_shard(shard.name)
            # Absent is not a fault: a tool that rewrites a Parquet file may drop such metadata.
            found = file.schema_arrow.metadata or {}
            num_foreign += any(found.get(name, value) != value for name, value in footer.items())

    segments = (measures.lengths_a, measures.lengths_b)
    return Audit(
        config=asdict(manifest.config),
        checks=[
            exact("shards of another vocabulary, length or seed", num_foreign),
            *_row_checks(measures, manifest),
            *label_checks(measures),
            *origin_checks(measures, origins, manifest),
            *mask_checks(measures),
            *split_checks(measures),
            *_text_checks(measures, manifest),
            *_source_checks(manifest),
        ],
        lengths=measures.row_lengths.tolist(),
        segment_lengths=[histogram.sum(axis=0).tolist() for histogram in segments],
        mask_positions=measures.mask_positions.tolist(),
    )


def _row_checks(measures: Measures, manifest: InstancesManifest) -> Iterator[Check]:
    counts = measures.counts
    max_length = measures.config.max_length
    stored_rows = counts["stored_rows"]
    yield exact("rows", stored_rows, sum(shard.rows for shard in manifest.shards))
    yield exact("rows over the length limit", counts["rows_too_long"])
    yield exact("positions out of range or out of order", counts["misplaced"])

    num_tokens = counts["tokens"]
    yield info("tokens", num_tokens, f"{num_tokens:,}")
    mean_length = num_tokens / max(stored_rows, 1)
    yield info("mean row length", mean_length, f"{mean_length:.1f} of {max_length}")
    padding = 1 - mean_length / max_length
    if measures.config.packs:
        # The last row of each pass over a shard holds what is left; with weights a pass is packed
        # in several readings.
        readings_per_pass = max([1, *(math.ceil(group.weight) for group in manifest.mixture)])
        num_partial = len(measures.passes) * readings_per_pass
        # 5%, because a long document ends its row with the last sentence that fits.
        limit = 0.05 + num_partial / max(stored_rows, 1)
        check = at_most("padding at fixed length", padding, limit, stored_rows)
        if check.verdict == "bad":
            # No packing does much better: two documents of 0.6 rows, say, cannot share one.
            reason = "documents of these lengths leave rows of this one so empty"
            check = check.explained(reason, "choose another `max_length`")
        yield check
        per_row = counts["rows"] / max(stored_rows, 1)
        yield info("documents in a row", per_row, f"{per_row:.1f}")
        mean_length = num_tokens / max(counts["rows"], 1)
        yield info("mean length of a packed document", mean_length, f"{mean_length:.1f}")
    else:
        yield info("padding at fixed length", padding, f"{padding:.1%}")


def _text_checks(measures: Measures, manifest: InstancesManifest) -> Iterator[Check]:
    """Judge special and unknown tokens, and the number of tokens, over all passes."""
    counts = measures.counts
    yield exact("rows with misplaced [CLS] or [SEP]", counts["rows_without_specials"])
    yield exact("special tokens in the text", counts["specials_in_text"])
    yield exact("masks on [CLS] or [SEP]", counts["masked_specials"])
    yield exact("special or [unused] tokens drawn as random", counts["random_not_ordinary"])
    unknown_share = counts["unknown_tokens"] / max(counts["text_tokens"], 1)
    # A vocabulary of another language has most words as [UNK].
    unknown = at_most("unknown tokens", unknown_share, 0.05, counts["rows"])
    if unknown.verdict == "bad":
        advice = "build with a vocabulary that is learned from these documents"
        unknown = replace(unknown, advice=advice)
    yield unknown
    times_seen = measures.tokens[measures.vocabulary.is_ordinary]
    seen_share = float((times_seen > 0).mean())
    name = "tokens of the vocabulary that occur"
    check = info(name, seen_share, f"{seen_share:.1%}")
    # In a short text many tokens of a good vocabulary do not occur.
    is_long = counts["text_tokens"] >= 50 * len(times_seen)
    if seen_share < 0.5 and is_long and unknown.verdict != "bad":
        check = replace(check, asked="at least 50%").explained(
            "most never occur", "give `vocab` a lower `size`"
        )
    yield check

    tokens_in = manifest.counts.get("tokens_in", 0)
    tokens_cut = manifest.counts.get("tokens_cut", 0)
    tokens_used = counts["text_tokens"]
    cut_share = tokens_cut / max(tokens_in, 1)
    if measures.config.pairing == "bert":  # uses some text twice, and some not at all
        ratio = tokens_used / max(tokens_in, 1)
        yield info("tokens in rows per token in documents", ratio, f"{ratio:.3f}")
        yield info("tokens cut", cut_share, f"{cut_share:.3%}")
    else:
        name = "tokens in rows (documents minus tokens cut)"
        yield exact(name, tokens_used, tokens_in - tokens_cut)
        # Rows of 128 lose 0.05% (docs/data.md); more says that rows are too short for the text.
        yield at_most("tokens cut", cut_share, 0.005, counts["rows"])


def _source_checks(manifest: InstancesManifest) -> Iterator[Check]:
    """Judge how often documents of weighted origins are read; show each source's share."""
    passes = manifest.config.duplicates
    for group in manifest.mixture:
        if not group.tokens or not weights_of(manifest.mixture):
            continue
        # By tokens: a long document weighs more in training than a short one.
        times_read = group.tokens_built / group.tokens / passes
        # A document is read a whole number of times over all passes; rounding it has a standard
        # error of up to 1/2.
        error = math.sqrt(group.squared_tokens) / 2 / group.tokens / passes
        # At least 2%, because a weight is a guess of two digits.
        tolerance = max(0.02 * group.weight, Z_JUDGED * error)
        holds = abs(times_read - group.weight) <= tolerance
        measured = f"{times_read:.3f}"
        num_alone = manifest.counts.get("documents_without_partner", 0)
        if num_alone and not holds:
            skipped = count_of(num_alone, "document")
            measured += f"; {skipped} skipped, alone in a part of a pass"
        asked = f"{group.weight:.3f} ± {tolerance:.3f}"
        name = f"times read per pass: {group.source}, {group.language}"
        yield judge(name, measured, asked, holds, times_read)

    tokens = Counter()
    for shard in manifest.shards:
        tokens.update(shard.source_tokens)
    for source, num_tokens in tokens.most_common(10):  # a corpus of books may have hundreds
        share = num_tokens / max(tokens.total(), 1)
        yield info(f"tokens from {source}", share, f"{share:.1%}")


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
        # The rest of a row's budget may be too little for another word: a tenth of the budget in
        # all, or if words are long, on average a word's tokens but one in each row.
        unused = counts["masks_asked"] - counts["masked"]
        mean_word = counts["text_tokens"] / max(counts["words"], 1)
        spare = counts["rows"] * (mean_word - 1)
        enough = unused <= max(0.1 * counts["masks_asked"], spare)
        asked = f"at most {asked}, in whole words"
    else:
        enough = measured == asked  # fewer lost or added masks are left to the next check
    yield judge("masked share", measured, asked, enough, share)
    yield exact("rows with the wrong number of masks", counts["rows_breaking_count"])
    if masks_words:
        yield exact("partly masked words", counts["split_words"])


def split_checks(measures: Measures) -> Iterator[Check]:
    """Judge the shares of [MASK], random and kept tokens among the masked ones.

    They are corrected for random tokens that equal the original, and so look kept.
    """
    counts = measures.counts
    masked = max(counts["masked"], 1)
    percents = measures.config.mask_split
    to_mask, to_random, to_keep = (percent / 100 for percent in percents)
    # A random token that equals the original looks kept.
    by_chance = to_random / max(int(measures.vocabulary.is_ordinary.sum()), 1)
    for kind, title, percent, expected in (
        ("mask", "masked tokens that are [MASK]", percents[0], to_mask),
        ("random", "… a random token", percents[1], to_random - by_chance),
        ("keep", "… kept", percents[2], to_keep + by_chance),
    ):
        share = counts[f"masked_{kind}"] / masked
        half_width = Z_95 * _standard_error(share, masked)
        interval = (max(share - half_width, 0.0), min(share + half_width, 1.0))
        # In few tokens, the observed share and its variance may be near 0 by chance; so the verdict
        # takes the variance about the share that should be observed.
        tolerance = Z_JUDGED * _standard_error(expected, masked)
        holds = abs(share - expected) <= tolerance
        measured = f"{share:.2%} ({interval[0]:.2%} to {interval[1]:.2%})"
        unjudged = too_few(tolerance, counts["rows"])
        yield judge(title, measured, f"{percent}%", holds, share, interval, unjudged)


def _standard_error(share: float, masked: int) -> float:
    """Return the standard error of a share of `masked` tokens, which are drawn independently."""
    # At least one token: where none is of the kind, the variance is 0, but the share is not exact.
    variance = max(masked * share * (1 - share), 1.0)
    return math.sqrt(variance) / masked
