"""Stage 2: documents to a WordPiece vocabulary.

- **count** counts the words of one shard, and writes them by the bucket of the word's hash;
- **merge** sums up some of the buckets over all training shards;
- **learn**, a single unit, learns from all sums, and measures the vocabulary on the validation
  documents.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa

from .. import storage
from ..config import RunOptions, VocabConfig
from ..execution.counters import count_of
from ..execution.estimates import (
    PHASE_START_S,
    STORED_SHARE,
    Estimate,
    OutputState,
    num_workers,
    worker_memory,
)
from ..execution.partitions import partitioned_file
from ..execution.phases import Phase, Record, Unit, read_records, unit_names
from ..execution.runner import prepare, run_phases
from ..manifests import DocumentsManifest, FertilityReport, VocabularyManifest
from ..mixture import plan_mixture, weights_of
from ..schemas import WORD_COUNTS
from ..storage.shards import shard_paths, write_parquet
from ..storage.stage import (
    WORD_COUNTS_FILE,
    StageDirectory,
    check_output,
    manifest_head,
    open_stage,
    read_manifest,
)
from .accents import decide_accents
from .counts import WEIGHT_UNITS, count_shard, merge_buckets, read_counts, sentences_of
from .fertility import fertility_report
from .tokenize import Normalization, count_words, merge_counts
from .vocabulary import Vocabulary, read_vocabulary, vocabulary_files
from .wordpiece import learn_wordpiece

MAX_BUCKETS, BUCKETS_PER_SHARD = (
    256,
    16,
)  # a bucket of words must fit in memory, also if all words of a shard differ

# For estimates.
COUNT_BYTES_PER_S = 40e6  # of text
LEARN_BYTES_PER_S = 10e6  # of text, as long as most words are new
LONGEST_LEARN_S = 10.0  # 30,522 tokens from a million distinct words
COUNTS_SHARE = 0.08  # bytes of word counts in a unit's file per byte of text
WORD_COUNTS_BYTES = 4_000_000  # at most, including the vocabulary's files


@dataclass(frozen=True, kw_only=True)
class Learned(Record):
    """What the unit of learning leaves: parts of the manifest."""

    tokenizer: dict[str, Any]
    report: dict[str, Any]
    word_counts: dict[str, Any]


def learn_vocabulary(
    documents: str, output: str, config: VocabConfig, options: RunOptions
) -> VocabularyManifest:
    """Learn a vocabulary from a directory of documents, write it to `output` and return its
    manifest.

    A finished directory of the same configuration is left as it is. Raises `UserError` if an input
    or option is wrong.
    """
    prepare(options, output)
    corpus = read_manifest(documents, DocumentsManifest)
    head = _head(corpus, config)
    mixture = plan_mixture(corpus, config.weight, config.language_exponent)
    weights = weights_of(mixture)
    directory, manifest = open_stage(output, head, VocabularyManifest, options.overwrite)
    if manifest is not None:
        return manifest
    with directory.unlocked_at_end():
        num_units = min(len(shard_paths(documents, corpus, "train")), MAX_BUCKETS)
        num_buckets = min(BUCKETS_PER_SHARD * num_units, MAX_BUCKETS)
        accents = decide_accents(config, documents, corpus)
        normalization = Normalization(lowercase=not config.cased, strip_accents=accents.strip)
        count_work = partial(
            count_shard, normalization=normalization, num_buckets=num_buckets, weights=weights
        )
        merge_work = partial(
            merge_buckets,
            num_units=num_units,
            num_buckets=num_buckets,
            units=WEIGHT_UNITS if weights else 1,
        )
        learn_work = partial(
            _learn, config=config, normalization=normalization, num_buckets=num_buckets
        )
        count = Phase("count", None, count_work, str, Record)
        merge = Phase("merge", partial(_plan_merge, num_units=num_units), merge_work, int, Record)
        learn = Phase("learn", _plan_learn, learn_work, None, Learned)
        folder = storage.absolute(documents)
        units = [
            Unit(shard.name, shard.bytes, storage.join(folder, shard.name))
            for shard in corpus.shards
        ]
        run_phases(directory, units, (count, merge, learn), options)
        [learned] = read_records(directory, "learn", Learned)
        found = {
            "accents": msgspec.to_builtins(accents),
            "mixture": [msgspec.to_builtins(group) for group in mixture],
            "tokenizer": learned.tokenizer,
            "report": learned.report,
            "word_counts": learned.word_counts,
        }
        return directory.finish({**head, **found}, VocabularyManifest)


def _plan_merge(directory: StageDirectory, num_units: int) -> list[Unit[int]]:
    return [Unit(f"{unit:05d}", 1, unit) for unit in range(num_units)]


def _plan_learn(directory: StageDirectory) -> list[Unit[None]]:
    return [Unit("learn", 1, None)]


def _learn(
    directory: StageDirectory,
    payload: None,
    config: VocabConfig,
    normalization: Normalization,
    num_buckets: int,
) -> Learned:
    """Learn the vocabulary from the sums, and write its files."""
    words = _all_words(directory)
    with write_parquet(directory, WORD_COUNTS_FILE, WORD_COUNTS) as (writer, written):
        writer.write_table(words)
    tokens, learned = learn_wordpiece(
        words["word"],
        words["count"].to_numpy(),
        size=config.size,
        min_frequency=config.min_frequency,
        limit_alphabet=config.limit_alphabet,
        num_unused=config.num_unused,
    )
    vocabulary = Vocabulary(tuple(tokens), normalization)
    files = vocabulary_files(vocabulary)
    for name, content in files.items():
        directory.write_bytes(name, content)
    validation = read_counts(directory, "validation", range(num_buckets), num_buckets)
    return Learned(
        files=(WORD_COUNTS_FILE, *files),
        tokenizer={**normalization._asdict(), "fingerprint": vocabulary.fingerprint},
        report={
            "num_tokens": len(tokens),
            "learned_from": asdict(learned),
            "validation": fertility_report(validation, vocabulary),
        },
        word_counts={
            "name": WORD_COUNTS_FILE,
            "bytes": written.num_bytes,
            "sha256": written.sha256,
        },
    )


def _all_words(directory: StageDirectory) -> pa.Table:
    """Return the merged counts, the most frequent word first."""
    tables: list[pa.Table] = []
    for unit in unit_names(directory, "merge"):
        with storage.open_input(directory.file(partitioned_file("merged", unit))) as file:
            tables.append(pa.ipc.open_file(file).read_all())
    return pa.concat_tables(tables).sort_by([("count", "descending"), ("word", "ascending")])


def estimate(documents: str, output: str, config: VocabConfig, options: RunOptions) -> Estimate:
    """Return what `learn_vocabulary` would do and take, without doing it; raises `UserError` as it
    would.
    """
    prepare(options, output)
    corpus = read_manifest(documents, DocumentsManifest)
    plan_mixture(corpus, config.weight, config.language_exponent)
    state = check_output(output, _head(corpus, config), options.overwrite)
    return estimate_vocabulary([shard.bytes for shard in corpus.shards], options, state)


def estimate_vocabulary(
    shard_bytes: Sequence[int], options: RunOptions, state: OutputState
) -> Estimate:
    """Return what `learn_vocabulary` takes for shards of documents of these sizes on disk."""
    text = sum(shard_bytes) / STORED_SHARE
    workers = num_workers(options, len(shard_bytes))
    return Estimate(
        state=state,
        units=f"{count_of(len(shard_bytes), 'shard')} to count, as many buckets of words to merge, "
        "one vocabulary to learn",
        workers=workers,
        input_bytes=sum(shard_bytes),
        output_bytes=int(min(text * COUNTS_SHARE, WORD_COUNTS_BYTES)),
        temporary_bytes=int(text * COUNTS_SHARE),
        worker_bytes=worker_memory(max(shard_bytes) / STORED_SHARE),
        seconds=2 * PHASE_START_S
        + text / COUNT_BYTES_PER_S / workers
        + min(text / LEARN_BYTES_PER_S, LONGEST_LEARN_S),
    )


def _head(corpus: DocumentsManifest, config: VocabConfig) -> dict[str, Any]:
    return manifest_head(
        "vocab", config, [{"stage": "ingest", "digest": corpus.digest}], "tokenizers"
    )


def measure_vocabulary(documents: str, vocab: str) -> FertilityReport:
    """Return `fertility_report` of any vocabulary on the validation documents, for comparison.

    `vocab` is what `build` takes. Raises `UserError` if an input or option is wrong.
    """
    corpus = read_manifest(documents, DocumentsManifest)
    vocabulary = read_vocabulary(vocab)
    paths = shard_paths(documents, corpus, "validation")
    counts = [count_words(sentences_of(path), vocabulary.normalization) for path in paths]
    return msgspec.convert(fertility_report(merge_counts(counts), vocabulary), FertilityReport)
