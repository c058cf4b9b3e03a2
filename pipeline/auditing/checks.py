"""Check instances against their configuration, from their files alone."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

from .. import storage
from ..counters import count_of
from ..instances.balance import Z_JUDGED
from ..manifests import InstancesManifest, InstancesShard, MixtureGroup
from ..mixture import weights_of
from ..storage.shards import open_shard
from ..storage.stage import read_manifest
from ..vocabulary.files import vocabulary_of_instances
from ..vocabulary.vocabulary import Vocabulary
from .label_checks import label_checks, origin_checks
from .mask_checks import mask_checks, split_checks, top_tokens
from .measures import MIN_MASKED_SPANS, Measures, measured_rows, read_batch
from .origins import OriginMeasures, documents_of
from .verdict import Audit, Check, at_most, exact, info, none, verdict_of

# Of the weight that was asked for.
WEIGHT_TOLERANCE = 0.02
MAX_CUT_SHARE = 0.005
MAX_REPEATED_SHARE = 0.01
MOST_UNKNOWN = 0.05
"""Of the text; a vocabulary of another language has most words as [UNK]."""
MIN_SEEN_SHARE = 0.5
"""Of the vocabulary, if the text has `TEXT_PER_TOKEN` tokens for each of it."""
TEXT_PER_TOKEN = 50
MAX_PADDING_SHARE = 0.05
"""In packed rows: a long document ends its row with the last sentence that fits."""
NUM_TOP_TOKENS = 30
NUM_SOURCES = 10
# In a slice of rows; every measure needs a few arrays of 8 bytes a token.
TOKENS_AT_ONCE = 1 << 20


def audit(instances: str, documents: str | None = None) -> Audit:
    """Measure a directory of instances against the configuration it was built with.

    Sources and languages are looked up in the `documents` that it was built from, by default a
    directory of them beside the instances, if there is one. Raises `UserError` if a directory is
    unfinished or damaged, or if the instances were not built from `documents`. All checks hold if
    ``not audit(...).failed``.
    """
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
    """Measure the shards that `manifest` lists in `directory`, slice by slice.

    Sources and languages are judged only with the directory of `documents` that they were built
    from. Raises `UserError` for a broken shard.
    """
    num_rows = sum(shard.rows for shard in manifest.shards)
    measures = Measures(vocabulary, manifest.config, num_rows)
    origins = OriginMeasures(documents, weights_of(manifest.mixture))
    num_foreign = 0
    rows_at_once = max(1, TOKENS_AT_ONCE // manifest.config.max_length)
    for shard in manifest.shards:
        # What a model can learn about the label, it learns from the training rows.
        is_training = shard.split == "train"
        with open_shard(storage.join(directory, shard.name), "build") as file:
            for batch in file.iter_batches(rows_at_once, use_threads=False):
                stored = read_batch(batch, len(vocabulary))
                measured = measured_rows(stored, manifest.config.max_length)
                measures.add(shard.name, measured)
                if is_training:
                    origins.add(measured.rows)
            if is_training:
                origins.end_shard(shard.name)
            num_foreign += _is_foreign(file.schema_arrow.metadata or {}, measures)

    segments = (measures.lengths_a, measures.lengths_b)
    return Audit(
        config=asdict(manifest.config),
        checks=[
            none("shards of another vocabulary, length or seed", num_foreign),
            *_row_checks(measures, manifest),
            *label_checks(measures),
            *origin_checks(measures, origins, manifest),
            *mask_checks(measures),
            *split_checks(measures),
            *_special_checks(measures),
            *_token_checks(measures, manifest),
            *_mixture_checks(manifest),
            *_source_checks(manifest.shards),
        ],
        lengths=measures.row_lengths.tolist(),
        segment_lengths=[histogram.sum(axis=0).tolist() for histogram in segments],
        mask_positions=measures.mask_positions.tolist(),
        top_masked=top_tokens(measures, NUM_TOP_TOKENS),
        shares_read=_shares_read(manifest.mixture),
    )


def _is_foreign(footer: dict[bytes, bytes], measures: Measures) -> bool:
    """Tell whether a shard's footer names another vocabulary, length or seed than the manifest."""
    expected = {
        b"clozeworks.tokenizer": measures.vocabulary.fingerprint,
        b"clozeworks.max_length": measures.config.max_length,
        b"clozeworks.seed": measures.config.seed,
    }
    for name, value in expected.items():
        # Absent is not a fault: a tool that rewrites a Parquet file may drop such metadata.
        if name in footer and footer[name] != str(value).encode():
            return True
    return False


def _row_checks(measures: Measures, manifest: InstancesManifest) -> Iterator[Check]:
    counts = measures.counts
    max_length = measures.config.max_length
    stored_rows = counts["stored_rows"]
    yield exact("rows", stored_rows, sum(shard.rows for shard in manifest.shards))
    yield none("rows over the length limit", counts["rows_too_long"])
    yield none("positions out of range or out of order", counts["misplaced"])

    num_tokens = counts["tokens"]
    yield info("tokens", num_tokens, f"{num_tokens:,}")
    mean_length = num_tokens / max(stored_rows, 1)
    yield info("mean row length", mean_length, f"{mean_length:.1f} of {max_length}")
    padding = 1 - mean_length / max_length
    if measures.config.packs:
        yield from _packing_checks(measures, padding, manifest.mixture)
    else:
        yield info("padding at fixed length", padding, f"{padding:.1%}")

    copies = measures.row_hashes.copies()
    num_hashed = int(copies.sum())
    repeated_share = (num_hashed - len(copies)) / max(num_hashed, 1)
    name = f"repeated rows (with {MIN_MASKED_SPANS} or more masked spans)"
    yield at_most(name, repeated_share, MAX_REPEATED_SHARE, num_hashed)


def _packing_checks(
    measures: Measures, padding: float, mixture: Sequence[MixtureGroup]
) -> Iterator[Check]:
    """Judge how full packed rows are, and show how long the documents in them."""
    counts = measures.counts
    num_sequences = counts["rows"]
    stored_rows = counts["stored_rows"]
    # The last row of each pass over a shard holds what is left; with weights a pass is packed in
    # several readings.
    readings_per_pass = max([1, *(math.ceil(group.weight) for group in mixture)])
    num_partial = len(measures.passes) * readings_per_pass
    limit = MAX_PADDING_SHARE + num_partial / max(stored_rows, 1)
    check = at_most("padding at fixed length", padding, limit, stored_rows)
    if check.verdict == "bad":
        # No packing does much better: two documents of 0.6 rows, say, cannot share one.
        reason = "documents of these lengths leave rows of this one so empty"
        check = check.explained(reason, "choose another `max_length`")
    yield check
    per_row = num_sequences / max(stored_rows, 1)
    yield info("documents in a row", per_row, f"{per_row:.1f}")
    mean_length = counts["tokens"] / max(num_sequences, 1)
    yield info("mean length of a packed document", mean_length, f"{mean_length:.1f}")


def _special_checks(measures: Measures) -> Iterator[Check]:
    counts = measures.counts
    yield none("rows with misplaced [CLS] or [SEP]", counts["rows_without_specials"])
    yield none("special tokens in the text", counts["specials_in_text"])
    yield none("masks on [CLS] or [SEP]", counts["masked_specials"])
    yield none("special or [unused] tokens drawn as random", counts["random_not_ordinary"])
    unknown_share = counts["unknown_tokens"] / max(counts["text_tokens"], 1)
    unknown = at_most("unknown tokens", unknown_share, MOST_UNKNOWN, counts["rows"])
    if unknown.verdict == "bad":
        advice = "build with a vocabulary that is learned from these documents"
        unknown = replace(unknown, advice=advice)
    yield unknown
    times_seen = measures.tokens[measures.vocabulary.is_ordinary]
    seen_share = float((times_seen > 0).mean())
    name = "tokens of the vocabulary that occur"
    check = info(name, seen_share, f"{seen_share:.1%}")
    is_long = counts["text_tokens"] >= TEXT_PER_TOKEN * len(times_seen)
    if seen_share < MIN_SEEN_SHARE and is_long and unknown.verdict != "bad":
        check = replace(check, asked=f"at least {MIN_SEEN_SHARE:.0%}").explained(
            "most never occur", "give `vocab` a lower `size`"
        )
    yield check


def _token_checks(measures: Measures, manifest: InstancesManifest) -> Iterator[Check]:
    """Compare the number of tokens in the rows with the manifest's counts for the documents, over
    all passes.
    """
    name = "tokens in rows (documents minus tokens cut)"
    tokens_in = manifest.counts.get("tokens_in", 0)
    tokens_cut = manifest.counts.get("tokens_cut", 0)
    tokens_used = measures.counts["text_tokens"]
    cut_share = tokens_cut / max(tokens_in, 1)

    if measures.config.pairing == "bert":  # uses some text twice, and some not at all
        ratio = tokens_used / max(tokens_in, 1)
        yield info("tokens in rows per token in documents", ratio, f"{ratio:.3f}")
        yield info("tokens cut", cut_share, f"{cut_share:.3%}")
        return
    yield exact(name, tokens_used, tokens_in - tokens_cut)
    yield at_most("tokens cut", cut_share, MAX_CUT_SHARE, measures.counts["rows"])


def _mixture_checks(manifest: InstancesManifest) -> Iterator[Check]:
    """Judge how often the documents of each origin are read, if weights were asked for."""
    if not weights_of(manifest.mixture):
        return
    passes = manifest.config.duplicates
    for group in manifest.mixture:
        if not group.tokens:
            continue
        # By tokens: a long document weighs more in training than a short one.
        times_read = group.tokens_built / group.tokens / passes
        # A document is read a whole number of times over all passes; rounding it has a standard
        # error of up to 1/2.
        error = math.sqrt(group.squared_tokens) / 2 / group.tokens / passes
        tolerance = max(WEIGHT_TOLERANCE * group.weight, Z_JUDGED * error)
        verdict = verdict_of(abs(times_read - group.weight) <= tolerance)
        measured = f"{times_read:.3f}"
        num_alone = manifest.counts.get("documents_without_partner", 0)
        if verdict == "bad" and num_alone:
            skipped = count_of(num_alone, "document")
            measured += f"; {skipped} skipped, alone in a part of a pass"
        asked = f"{group.weight:.3f} ± {tolerance:.3f}"
        name = f"times read per pass: {group.source}, {group.language}"
        yield Check(name, measured, asked, verdict, times_read)


def _source_checks(shards: Sequence[InstancesShard]) -> Iterator[Check]:
    """Show each source's share of the documents' tokens, largest first."""
    tokens: Counter[str] = Counter()
    for shard in shards:
        tokens.update(shard.source_tokens)
    for source, num_tokens in tokens.most_common(NUM_SOURCES):
        share = num_tokens / max(tokens.total(), 1)
        yield info(f"tokens from {source}", share, f"{share:.1%}")


def _shares_read(mixture: Sequence[MixtureGroup]) -> list[dict[str, str | float]]:
    """Return each origin's share of the training tokens, largest first."""
    total = max(sum(group.tokens_built for group in mixture), 1)
    largest_first = sorted(
        mixture, key=lambda group: (-group.tokens_built, group.source, group.language)
    )
    shares = []
    for group in largest_first:
        share = group.tokens_built / total
        shares.append({"source": group.source, "language": group.language, "share": share})
    return shares
