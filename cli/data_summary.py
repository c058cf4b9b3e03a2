"""Summarise what a data stage wrote, in a table at its end, and warn of what to look at."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..pipeline import storage
from ..pipeline.counters import WORDS_LEFT_OUT, count_of, in_words, name_counts
from ..pipeline.languages import UNKNOWN
from ..pipeline.manifests import (
    DocumentsManifest,
    FertilityReport,
    InstancesManifest,
    Manifest,
    VocabularyManifest,
)
from ..pipeline.text.wikitext.repair import LOST_TO_TEMPLATE, NUM_TEMPLATES, most_costly_templates
from .output import ALREADY_FINISHED, CommandSummary, byte_size, warn

if TYPE_CHECKING:
    from ..pipeline.config import RunOptions
    from ..pipeline.execution.job import Stage

COUNTED = {
    "files_of_unknown_format": (
        "file",
        "skipped {} of unknown format, for example {examples}; give --format to read all",
    ),
    "rows_with_empty_columns": (
        "row",
        "{} without a value in a column that is asked for, for example {first}",
    ),
    "texts_without_sentences": (
        "text",
        "the sentences of {} have over 60 words on average, as in {first}: if each line is an item "
        "of its own, give --documents line (a document each) or --keep-lines",
    ),
    "rows_that_look_like_markdown": (
        "row",
        "{} of text that looks like Markdown, for example {first}, and was not said to be: "
        "--documents markdown reads it without its marks, lists and tables",
    ),
    "books_with_torn_sentences": (
        "book",
        "{} with paragraphs that begin within a sentence, for example {first}; look at its "
        "document: its lines may be wrapped in an unknown way",
    ),
    "tables_of_sentences": (
        "table",
        "the rows of {first} hold hardly more than a sentence each; --documents sentence joins "
        "them, up to an empty row or another id",
    ),
    "links_out_of_folder": (
        "link out of a folder",
        "skipped {}, for example {examples}; to read the files, name them as sources",
    ),
    "linked_folders": (
        "linked folder",
        "skipped {}, for example {examples}; to read them, name them as sources",
    ),
    "single_stream_files": (
        "single-stream .bz2 file",
        "{} can be read by only one worker each; use multistream dumps",
    ),
    "text_lines_with_invalid_utf8": (
        "line",
        "{} of text with bytes that are not UTF-8: in ASCII their sentences are left out, "
        "elsewhere they became U+FFFD; --encoding says what they are",
    ),
    "duplicate_texts": ("exact duplicate", "removed {}; for example {first}"),
    "near_duplicates": ("near-duplicate", "removed {}; for example {first}"),
}
"""What is counted, and the warning of it, by counter."""

Rows = list[tuple[str, str]]


def summarize_dry_run(stage: "Stage", options: "RunOptions") -> CommandSummary:
    """Summarise what a stage would do, after ``--dry-run``."""
    from ..pipeline.execution.runner import dry_run

    state, plan = dry_run(stage, options)
    states = {"begun": "unfinished, would resume", "finished": ALREADY_FINISHED}
    rows = [
        ("state", states.get(state, "new")),
        ("units of work", f"{len(plan.units):,}"),
        ("to read", byte_size(sum(unit.cost for unit in plan.units))),
    ]
    free_bytes = storage.free_bytes(stage.output)
    if free_bytes is not None:  # an object store has no end
        rows.append(("free disk", byte_size(free_bytes)))
    return CommandSummary(f"{stage.name} --dry-run", stage.output, rows)


def summarize_documents(where: str, manifest: DocumentsManifest) -> CommandSummary:
    """Summarise a directory of documents; warn of what was not read as a user may expect."""
    counts = {}
    words_left_out = Counter()
    for name, count in manifest.counts.items():
        # Gathered in one row below: there may be a dozen reasons.
        if name.startswith(WORDS_LEFT_OUT):
            words_left_out[name.removeprefix(WORDS_LEFT_OUT)] = count
        elif not name.startswith(LOST_TO_TEMPLATE):
            counts[name] = count
    total = max(manifest.words_kept + words_left_out.total(), 1)
    _warn_about_documents(where, manifest, words_left_out, total)
    rows = _split_rows(manifest, counts)
    if costly := most_costly_templates(manifest.counts)[:NUM_TEMPLATES]:
        num_words = sum(manifest.counts[name] for name in costly)
        shown = []
        for name in costly:
            template = in_words(name.removeprefix(LOST_TO_TEMPLATE))
            shown.append(f"{template} {manifest.counts[name]:,}")
        rows.append(("words lost to unknown templates", f"{num_words:,}: {', '.join(shown)}"))
    for reason, count in manifest.bad.items():
        rows.append((f"bad: {in_words(reason)}", f"{count:,}"))
    share = manifest.words_kept / total
    rows.append(("words kept", f"{manifest.words_kept:,} of {total:,} ({share:.1%})"))
    reasons = [
        f"{in_words(reason)} {count:,} ({count / total:.1%})"
        for reason, count in words_left_out.most_common()
        if count
    ]
    if reasons:
        rows.append(("words left out", ", ".join(reasons)))
    return CommandSummary("ingest", where, rows)


def summarize_vocabulary(where: str, manifest: VocabularyManifest) -> CommandSummary:
    """Summarise a vocabulary; warn if it damages the text."""
    rows = _state_rows(manifest)
    if manifest.accents:
        rows.append(("accents", manifest.accents.reason))
        if manifest.accents.damage:
            warn(
                f"--strip-accents could damage {manifest.accents.damage}; "
                "give --keep-accents to keep accents"
            )
    report = manifest.report
    learned = report.learned_from
    tokens = f"{report.num_tokens:,}"
    if learned.num_missing:
        tokens += f" ({learned.num_missing:,} fewer than requested: the corpus is small)"
    rows += [("tokens", tokens), ("learned from", f"{learned.num_words:,} distinct words")]
    left_out = {
        "words left out, rare": learned.num_words_rare,
        "words left out, over 100 characters": learned.num_words_long,
        "words left out, rare characters": learned.num_words_alphabet,
    }
    rows += _count_rows(left_out)
    if characters := learned.alphabet_left_out:
        shown = " ".join(characters[:20])  # fit in a line
        rows.append(("characters left out", f"{len(characters):,}: {shown}"))
    rows.append(("on held-out documents", f"{report.validation.num_words:,} words"))
    rows += held_out_rows(report.validation)
    _warn_of_size(where, manifest)
    return CommandSummary("vocab", where, rows)


def _warn_of_size(where: str, manifest: VocabularyManifest) -> None:
    """Warn of a vocabulary that is far larger than its text can fill."""
    import pyarrow.parquet as pq

    with storage.open_input(storage.join(where, manifest.word_counts.name)) as file:
        counts = pq.read_table(file, columns=["count"])["count"]
    num_words = int(counts.to_numpy().sum())
    # Of held-out text, which a short text has hardly any of; a word is a token at least.
    num_tokens = num_words * max(manifest.report.validation.tokens_per_word, 1.0)
    size = manifest.report.num_tokens
    # Where 95% of the classes have a hundred examples, a vocabulary translates best (Gowda and May,
    # 2020); an average of 20 is far from that.
    # Special tokens and single characters are in every vocabulary.
    least = size - manifest.report.learned_from.num_merges
    suits = max(round(num_tokens / 50, -2), 200, round(least + 49, -2))
    if num_tokens < 20 * size and suits < manifest.config.size:
        warn(
            f"each of the {size:,} tokens occurs {num_tokens / size:.0f} times in this text on "
            f"average, too seldom to be learned; --size {suits:.0f} suits it"
        )


def summarize_instances(where: str, manifest: InstancesManifest) -> CommandSummary:
    """Summarise a directory of instances; warn of shards whose labels could not be balanced."""
    if warned := [shard for shard in manifest.shards if shard.warnings]:
        more = ""
        if len(warned) > 1:
            more = f"; {len(warned):,} shards have such warnings, see the manifest"
        warn(f"{warned[0].name}: {warned[0].warnings[0]}{more}")
    return CommandSummary("build", where, _split_rows(manifest, manifest.counts))


def _state_rows(manifest: Manifest) -> Rows:
    """Return a row that says so if the stage was finished before, and nothing was done."""
    if not manifest.already_finished:
        return []
    return [("state", ALREADY_FINISHED)]


def _split_rows(manifest: DocumentsManifest | InstancesManifest, counts: Mapping[str, int]) -> Rows:
    """Return what stands in both splits, and what was counted on the way."""
    rows = _state_rows(manifest)
    for split in ("train", "validation"):
        shards = [shard for shard in manifest.shards if shard.split == split]
        num_rows = sum(shard.rows for shard in shards)
        num_bytes = sum(shard.bytes for shard in shards)
        counted = f"{count_of(num_rows, 'row')}, {count_of(len(shards), 'shard')}"
        rows.append((split, f"{counted}, {byte_size(num_bytes)}"))
    return rows + _count_rows(counts)


def _count_rows(counts: Mapping[str, int]) -> Rows:
    return [(in_words(name), f"{count:,}") for name, count in counts.items() if count]


def _warn_about_documents(
    where: str, manifest: DocumentsManifest, words_left_out: Mapping[str, int], num_words: int
) -> None:
    """Warn of input that was skipped, removed or perhaps misread."""
    counts = manifest.counts
    examples = manifest.examples
    if bad := manifest.bad:
        # The most frequent reason; of equally frequent ones the first by name.
        reason = min(bad, key=lambda reason: (-bad[reason], reason))
        first = f"{in_words(reason)} at {examples[reason][0]}"
        warn(f"bad input: {name_counts(bad)}; for example {first}; {where}/bad lists it")
    for counter, (noun, warning) in COUNTED.items():
        if count := counts.get(counter, 0):
            shown = examples.get(counter, [""])
            counted = count_of(count, noun)
            warn(warning.format(counted, first=shown[0], examples=", ".join(shown)))
    if num_unknown := manifest.languages.get(UNKNOWN, 0):
        documents = count_of(num_unknown, "document")
        split = "sentences are split as in English; give --language for them"
        warn(f"the language of {documents} is unknown: {split}")
    if num_repeated := counts.get("repeated_ids", 0):
        of_documents = num_repeated / max(counts.get("documents_read", 0), num_repeated)
        of_words = words_left_out.get("repeated_ids", 0) / num_words
        advice = ""
        if manifest.config.id_column and manifest.config.documents != "sentence":
            advice = "; --documents sentence joins neighbouring rows of an id, in one split"
        warn(
            f"removed {count_of(num_repeated, 'repeated id')}, {of_documents:.1%} of the documents "
            f"and {of_words:.1%} of the words; for example {examples['repeated_ids'][0]}{advice}"
        )
    share = words_left_out.get("headings", 0) / num_words
    if num_books := counts.get("books_with_many_headings", 0):
        books = count_of(num_books, "book")
        first = examples["books_with_many_headings"][0]
        advice = "look at its document: its lines may be wrapped in an unknown way"
        warn(f"{books} lost over 3% of the words as headings, for example {first}; {advice}")
    elif share > 0.03 and counts.get("headings_left_out"):
        advice = "notes and forms are kept whole with --keep-lines"
        warn(f"{share:.0%} of the words left out as headings, lines without a full stop; {advice}")


def held_out_rows(report: FertilityReport) -> Rows:
    """Return the rows below a heading that names a vocabulary."""
    return [
        ("… tokens per word", f"{report.tokens_per_word:.3f}"),
        ("… characters per token", f"{report.characters_per_token:.3f}"),
        ("… unknown tokens", f"{report.unknown_share:.3%}"),
        ("… longest tokens", "  ".join(report.longest_tokens)),
        ("… rarest tokens", "  ".join(token for token, _ in report.rarest_tokens)),
        ("… tokens that never occur", f"{report.num_tokens_absent:,}"),
    ]
