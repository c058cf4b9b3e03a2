"""Warn about the documents and instances that a command has written."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..pipeline.execution.counters import WORDS_LEFT_OUT, count_of, name_counts
from ..pipeline.languages import UNKNOWN
from ..pipeline.wording import in_words
from .failures import as_typed
from .summary import warn

if TYPE_CHECKING:
    from ..pipeline.manifests import DocumentsManifest, InstancesShard

REMOVED = {
    "duplicate_texts": "exact duplicate",
    "near_duplicates": "near-duplicate",
    "repeated_ids": "repeated id",
}
"""The names of removed documents in warnings, by counter."""

NUM_WARNINGS = 3
"""Shards, or files, that are named."""

MOST_IN_HEADINGS = 0.03
"""The share of all words that headings may be, before they are warned about."""

READ_AS = "texts_read_as_"
"""Prefix of the counters of members of archives in a detected encoding, whose name follows."""


def warn_about_documents(manifest: "DocumentsManifest") -> None:
    """Warn of input that was skipped or that only one worker can read, and of removed documents."""
    counts = manifest.counts
    examples = manifest.examples
    if bad := manifest.bad:
        # The most frequent reason; of equally frequent ones the first by name.
        reason = min(bad, key=lambda reason: (-bad[reason], reason))
        first = f"{in_words(reason)} at {examples[reason][0]}"
        warn(f"bad input: {name_counts(bad)}; for example {first}")
    if num_files := counts.get("files_of_unknown_format", 0):
        files = count_of(num_files, "file")
        names = ", ".join(examples["files_of_unknown_format"])
        warn(f"skipped {files} of unknown format, for example {names}; give --format to read all")
    if num_folders := counts.get("linked_folders", 0):
        folders = count_of(num_folders, "linked folder")
        names = ", ".join(examples["linked_folders"])
        warn(f"skipped {folders}, for example {names}; to read them, name them as sources")
    if num_files := counts.get("single_stream_files", 0):
        files = count_of(num_files, "single-stream .bz2 file")
        warn(f"{files} can be read by only one worker each; use multistream dumps")
    warn_about_encodings(manifest)
    if num_unknown := manifest.languages.get(UNKNOWN, 0):
        documents = count_of(num_unknown, "document")
        split = "sentences are split as in English; give --language for them"
        warn(f"the language of {documents} is unknown: {split}")
    if num_books := counts.get("books_with_many_headings", 0):
        books = count_of(num_books, "book")
        first = examples["books_with_many_headings"][0]
        advice = "look at it with --explain: its lines may be wrapped in an unknown way"
        warn(f"over 3% of {books} left out as headings, for example of {first}; {advice}")
    elif (share := _share_in_headings(manifest)) > MOST_IN_HEADINGS:
        advice = "notes and forms are kept whole with --keep-lines, and --explain shows one"
        warn(f"{share:.0%} of the words left out as headings, lines without a full stop; {advice}")
    for reason, what in REMOVED.items():
        if num_removed := counts.get(reason, 0):
            warn(f"removed {count_of(num_removed, what)}; for example {examples[reason][0]}")


def _share_in_headings(manifest: "DocumentsManifest") -> float:
    left_out = manifest.counts.get(f"{WORDS_LEFT_OUT}headings", 0)
    return left_out / max(left_out + manifest.words_kept, 1)


def warn_about_encodings(manifest: "DocumentsManifest") -> None:
    """Name texts that were read in a detected encoding, and count lines with bad bytes."""
    detected = [file for file in manifest.inputs if "detected" in file]
    for file in detected[:NUM_WARNINGS]:
        warn(f"{file['name']} is not UTF-8: read as {file['detected']}; give --encoding if wrong")
    num_more = len(detected) - NUM_WARNINGS
    if num_more > 0:
        warn(f"{count_of(num_more, 'more file')} read in other encodings; see the manifest")
    for counter, num_texts in manifest.counts.items():
        if counter.startswith(READ_AS):
            encoding = counter.removeprefix(READ_AS)
            texts = count_of(num_texts, "text")
            first = manifest.examples[counter][0]
            warn(f"{texts} in archives read as {encoding}, for example {first}")
    if num_lines := manifest.counts.get("text_lines_with_invalid_utf8", 0):
        lines = count_of(num_lines, "line")
        warn(f"{lines} of text with bytes that are not UTF-8: they became U+FFFD")


def warn_about_instances(shards: "Sequence[InstancesShard]") -> None:
    """Warn of shards whose labels could not be balanced."""
    shards_with_warnings = [shard for shard in shards if shard.warnings]
    for shard in shards_with_warnings[:NUM_WARNINGS]:
        warn(f"{shard.name}: {as_typed(shard.warnings[0])}")
    num_more = len(shards_with_warnings) - NUM_WARNINGS
    if num_more > 0:
        warn(f"{count_of(num_more, 'more shard')} with such warnings; see the manifest")
