"""The first phase of ingest: a unit reads its input ranges, and writes their documents by hash.

They are written whenever `PART_TEXT_BYTES` of text are held, so that memory is bounded by that and
by the longest document, however large a unit is. Beside the documents lie their keys (see
`duplicates`) and, on request, the bands of their signatures and their sketches (see
`near_duplicates`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from ..config import IngestConfig
from ..counters import CounterRecord, Counters, sum_counters
from ..errors import UserError
from ..execution.job import Job, Phase, Record, Unit
from ..languages import known_language, language_tag
from ..memory import cut_by_size
from ..seeding import stable_hash
from ..sources.formats import read_range
from ..sources.streams import InputRange, RawDocument
from ..storage.state import BAD_INPUTS
from ..text.sentences import split_sentences
from ..text.wikitext.repair import GAP, drop_rare_templates
from .minhash import NUM_HASHES, choose_bands, hash_bands, hash_shingles, shorten, sign
from .phase_tables import BANDS, KEYS, SCATTERED, SKETCHES

OTHER_LANGUAGES = "documents_in_other_languages"
MOST_MEAN_WORDS = 60
"""Words a sentence of a text; above, lines are likely items that were joined."""
SAMPLE_CHARACTERS = 2000
PART_TEXT_BYTES = 32 << 20
"""Text of a unit that is held at a time."""
Row = dict[str, Any]
"""A document in memory: the columns of `SCATTERED` and `KEYS`, and its ``sketch``."""


@dataclass(frozen=True, kw_only=True)
class Scattered(Record):
    """The record of a unit: counts; and by bucket, bytes of text (int64) and documents (uint32)."""

    counters: CounterRecord
    bucket_bytes: bytes
    bucket_documents: bytes
    documents: int
    rows_of_tables: dict[str, tuple[int, int]]
    """With `IngestConfig.id_column`: rows of each table, and those of them with the id, but not the
    text, of a row before in `PART_TEXT_BYTES`.
    """


@dataclass(frozen=True)
class Scatter(Phase):
    """Read, clean and split documents, and write them by hash."""

    config: IngestConfig
    max_bad: float

    name = "scatter"
    payload_type = list[InputRange]
    record_type = Scattered

    def do(self, job: Job, unit: Unit) -> Scattered:
        layout = job.setup.layout
        counters = Counters()
        bucket_bytes = np.zeros(layout.num_buckets + 1, np.int64)
        bucket_documents = np.zeros(layout.num_buckets + 1, np.int64)
        rows_of_tables = {}
        with ExitStack() as open_files:
            share = self.config.near_duplicates
            tables = [SCATTERED, KEYS]
            if share is not None:
                tables += [BANDS, SKETCHES]
            writers = [open_files.enter_context(table.write(job, unit.name)) for table in tables]
            rows_of_documents = _read_rows(unit.payload, self.config, counters)
            for rows in cut_by_size(rows_of_documents, itemgetter("num_bytes"), PART_TEXT_BYTES):
                keys = pa.Table.from_pylist(rows, KEYS.schema)
                parts = [pa.Table.from_pylist(rows, SCATTERED.schema), keys]
                if share is not None:
                    parts += sketch_tables(rows, share)
                for writer, part in zip(writers, parts, strict=True):
                    writer.write(part)
                del parts  # as `rows` below
                buckets = layout.bucket_of(keys)
                # Not `bucket_bytes[buckets] += ...`, which counts a bucket that repeats only once.
                np.add.at(bucket_bytes, buckets, keys["num_bytes"].to_numpy())
                np.add.at(bucket_documents, buckets, 1)
                if self.config.id_column is not None:
                    _count_repeats(rows, rows_of_tables)
                del rows  # or these and the next ones would be in memory at once
        drop_rare_templates(counters.counts)
        bad_inputs = counters.listed
        num_bad = counters.bad.total()
        if unit.name == job.units(self.name)[0].name:  # with what was found before there were units
            bad_inputs = [*job.setup.bad_inputs, *bad_inputs]
            num_bad += sum(job.setup.left_out["bad"].values())
        if num_bad:
            content = "".join(bad_inputs).encode("utf-8", "replace")
            job.write_bytes(f"{BAD_INPUTS}/{unit.name}.jsonl", content)
        if num_bad > len(bad_inputs):
            counters.count("bad_inputs_not_listed", num_bad - len(bad_inputs))
        return Scattered(
            counters=counters.to_record(),
            bucket_bytes=bucket_bytes.tobytes(),
            bucket_documents=bucket_documents.astype(np.uint32).tobytes(),
            documents=int(bucket_documents.sum()),
            rows_of_tables=rows_of_tables,
        )

    def num_documents(self, job: Job) -> int:
        """Return how many documents there are; raise `UserError` if too much input was bad."""
        scattered = job.records(Scatter)
        counters = (record.counters for record in scattered)
        sum_counters((job.setup.left_out, *counters), self.max_bad)
        _check_ids(scattered, self.config, self.max_bad)
        return sum(record.documents for record in scattered)


def _read_rows(
    ranges: Iterable[InputRange], config: IngestConfig, counters: Counters
) -> Iterator[Row]:
    """Yield the documents that are selected, with their hashes, and sketches if asked for."""
    documents = (
        (input_range, raw)
        for input_range in ranges
        for raw in read_range(input_range, config, counters)
    )
    for input_range, raw in documents:
        sentences = select_sentences(raw, config, counters)
        if not sentences:
            continue
        doc_id = f"{raw.source}:{raw.id}"
        text_hash, text_hash_low, num_bytes = hash_text(sentences)
        sketch = None
        if config.near_duplicates is not None:
            shingles = hash_shingles("\n".join(sentences))
            if len(shingles):  # a text without words has none
                sketch = sign(shingles)
        yield {
            "doc_id": doc_id,
            "source": raw.source,
            "language": language_tag(_language_of(raw, config)),
            "title": raw.title,
            "sentences": sentences,
            # Hashes of the id, not of the text or position: a document keeps its place and its
            # split when others are added or sources are cut otherwise.
            "hash": stable_hash(config.seed, "document", doc_id),
            "validation_hash": stable_hash(config.seed, "validation", doc_id),
            "text_hash": text_hash,
            "text_hash_low": text_hash_low,
            "num_bytes": num_bytes,
            "sketch": sketch,
            "table": input_range.name,
        }


def _count_repeats(rows: Sequence[Row], rows_of_tables: dict[str, tuple[int, int]]) -> None:
    """Add to the rows of each table, and to those with the id of another row and another text."""
    text_of_id = {}
    for row in rows:
        num_rows, num_repeats = rows_of_tables.get(row["table"], (0, 0))
        first_text = text_of_id.setdefault((row["table"], row["hash"]), row["text_hash"])
        num_repeats += first_text != row["text_hash"]
        rows_of_tables[row["table"]] = (num_rows + 1, num_repeats)


def _check_ids(scattered: Iterable[Scattered], config: IngestConfig, max_bad: float) -> None:
    """Raise `UserError` if `config.id_column` holds the ids of more than a row each."""
    num_rows = Counter()
    num_repeats = Counter()
    for record in scattered:
        for table, (rows, repeats) in record.rows_of_tables.items():
            num_rows[table] += rows
            num_repeats[table] += repeats
    for table, repeats in num_repeats.items():
        if repeats > max_bad * num_rows[table]:
            advice = "sort the rows by it, so that they can be joined"
            if config.documents != "sentence":
                advice = "`documents` sentence joins neighbouring rows of an id, in one split"
            raise UserError(
                f"{table}: {repeats:,} of {num_rows[table]:,} rows have the id of another row in "
                f"`id_column` {config.id_column!r}, and another text, more than `max_bad` "
                f"{max_bad} allows; of each id one row would stay: {advice}; or name a column "
                "with an id for each row; and give `overwrite`."
            )


def hash_text(sentences: Sequence[str]) -> tuple[int, int, int]:
    """Return the two halves of the hash that identifies a text, and its length in bytes of UTF-8.

    Texts with the same hash are duplicates: their characters match, with one space for each line
    break and between sentences. So it makes no difference where lines were wrapped or sentences
    split. Chinese and Japanese have no such spaces: there only splits after 。！？」』） make no
    difference, in texts with a 。 Letter case, punctuation and accents count.

    >>> hash_text(["It is so.", "Is it?"]) == hash_text(["It is so. Is", "it?"])
    True
    """
    text = " ".join(sentences)
    if "。" in text:
        for mark in "。！？」』）":
            text = text.replace(f"{mark} ", mark)
    encoded = text.encode()
    digest = sha256(encoded).digest()
    # Two halves, as Arrow has no integers of 128 bits.
    high = int.from_bytes(digest[:8], "big")
    low = int.from_bytes(digest[8:16], "big")
    return high, low, len(encoded)


def sketch_tables(rows: Sequence[Row], share: float) -> tuple[pa.Table, pa.Table]:
    """Return the rows of `BANDS` and of `SKETCHES` for documents."""
    rows = [row for row in rows if row["sketch"] is not None]
    if not rows:
        return BANDS.schema.empty_table(), SKETCHES.schema.empty_table()
    signatures = np.stack([row["sketch"] for row in rows])
    text_hashes = pa.array([row["text_hash"] for row in rows], pa.uint64())

    # A row for each band of each text:
    #   band hashes [texts, bands]   a0 a1     flat   a0 a1 b0 b1
    #                                b0 b1     text   a  a  b  b
    num_bands, band_length = choose_bands(share)
    band_hashes = hash_bands(signatures, num_bands, band_length)
    text_of_band = text_hashes.to_numpy().repeat(num_bands)
    bands = pa.table([band_hashes.ravel(), text_of_band], schema=BANDS.schema)

    # The bands need whole hashes, but to compare two texts a byte of each is enough.
    short_signatures = shorten(signatures)
    lists = pa.FixedSizeListArray.from_arrays(short_signatures.ravel(), NUM_HASHES)
    *columns, signature = SKETCHES.schema
    sketches = pa.Table.from_pylist(rows, pa.schema(columns))
    return bands, sketches.append_column(signature, lists)


def _language_of(raw: RawDocument, config: IngestConfig) -> str:
    """Return the language that the source states, else the option's; empty if neither does."""
    if raw.language or config.language == "auto":
        return raw.language
    return known_language(config.language)


def select_sentences(raw: RawDocument, config: IngestConfig, counters: Counters) -> list[str]:
    """Return a document's complete sentences; none, counting the reason, if it is not selected."""
    doc_id = f"{raw.source}:{raw.id}"
    counters.count("documents_read")
    counters.count("sentences_with_gaps", 0)  # reported even if there are none
    split = raw.paragraphs
    if not raw.is_cut:
        split = split_sentences(raw.paragraphs, _language_of(raw, config), config.abbreviations)
    sentences = []
    for sentence in split:
        if GAP in sentence:
            counters.leave_out_line("sentences_with_gaps", sentence, doc_id)
        else:
            sentences.append(sentence)
    num_characters = sum(map(len, sentences))
    if num_characters < config.min_characters or len(sentences) < config.min_sentences:
        counters.note("documents_too_short", doc_id)
        counters.leave_out("documents_too_short", sentences)
        return []
    # A novel has up to 54 words a sentence; lists without marks of ends have no sentences.
    # Sentences of so many words have at least two characters a word; short texts say too little.
    if raw.source == "text" and num_characters > max(2 * MOST_MEAN_WORDS * len(sentences), 2000):
        num_words = sum(sentence.count(" ") + 1 for sentence in sentences)
        if num_words > MOST_MEAN_WORDS * len(sentences):
            counters.note("texts_without_sentences", doc_id)
    # Last, because it takes longest; and a text too short to keep is too short to identify.
    if config.keep_language:
        language = identify_language(sentences)
        if language not in config.keep_language:
            counters.note(OTHER_LANGUAGES, f"{doc_id} (looks like {language})")
            counters.leave_out(OTHER_LANGUAGES, sentences)
            return []
    return sentences


def identify_language(sentences: Sequence[str]) -> str:
    """Return the code of the language that a sample of the sentences is most likely in."""
    # From all over the document, because its first sentences may quote another language.
    step = max(1, len(sentences) // 20)
    sample = sentences[::step]
    text = " ".join(sample)
    if len(text) > SAMPLE_CHARACTERS:
        # All of them are cut, because cutting `text` would leave out the last ones.
        longest = SAMPLE_CHARACTERS // len(sample)
        text = " ".join(sentence[:longest] for sentence in sample)
    return _identifier().classify(text)[0]


def check_languages(codes: Sequence[str]) -> None:
    """Raise `UserError` unless `identify_language` knows all of these codes."""
    known_codes = set(_identifier().labels)
    unknown_codes = sorted(set(codes) - known_codes)
    if unknown_codes:
        raise UserError(
            f"`keep_language` {unknown_codes[0]}: it is not among the known codes "
            f"({', '.join(sorted(known_codes))})."
        )


@cache
def _identifier() -> Any:
    # Imported late: the model takes 1.7 s to load and 120 MB.
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE)
