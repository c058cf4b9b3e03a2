"""Stage 2: documents to a vocabulary, WordPiece or byte-level BPE.

- **count** counts the words of one shard, and writes them by the bucket of the word's hash;
- **merge** sums up some of the buckets over all training shards;
- **learn**, a single unit, learns from all sums, and measures the vocabulary on the validation
  documents.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import pyarrow as pa

from ..config import RunOptions, VocabConfig
from ..errors import UserError
from ..execution.job import Job, Phase, Plan, Record, Stage, Unit
from ..execution.runner import ShowProgress, run_stage
from ..manifests import (
    DocumentsManifest,
    FertilityReport,
    File,
    StoredHead,
    VocabularyManifest,
    VocabularyReport,
    VocabularyTokenizer,
    manifest_fields,
)
from ..mixture import plan_mixture
from ..schemas import WORD_COUNTS
from ..storage import absolute, join
from ..storage.directory import kept
from ..storage.shards import shard_paths, write_parquet
from ..storage.state import WORD_COUNTS_FILE, manifest_head, read_manifest, refuse_input
from .accents import decide_accents, shares_of_languages
from .counts import MERGED, Count, Merge, VocabularySetup, read_counts, sentences_of
from .fertility import fertility_report
from .files import byte_level_vocabulary, read_vocabulary, vocabulary_files
from .normalization import rules_for
from .tokenize import count_words, merge_counts
from .vocabulary import Vocabulary
from .wordpiece import learn_pieces


@dataclass(frozen=True, kw_only=True)
class VocabularyStage(Stage):
    """Learn a vocabulary from documents."""

    documents: str
    output: str
    config: VocabConfig

    name = "vocab"
    setup_type = VocabularySetup

    @cached_property
    def phases(self) -> Sequence[Phase]:
        """See `Stage`."""
        # The counts of validation shards are not merged: they only measure the vocabulary.
        return [Count(self.config), Merge(), Learn(self.config)]

    def plan(self) -> Plan:
        """Read the documents' manifest."""
        config = self.config
        corpus = read_manifest(self.documents, DocumentsManifest)
        refuse_input(self.output, self.documents)
        inputs = [{"stage": "ingest", "digest": corpus.digest}]
        num_train_shards = len(shard_paths(self.documents, corpus, "train"))
        # Each unit needs a bucket, and every bucket is a record batch in every unit's file.
        max_buckets = 256
        num_units = min(num_train_shards, max_buckets)
        # A bucket of words must fit in memory, even if all words of a shard differ.
        num_buckets = min(16 * num_units, max_buckets)
        folder = absolute(self.documents)
        return Plan(
            head=manifest_head("vocab", config, inputs, "tokenizers"),
            setup=VocabularySetup(
                num_units=num_units,
                num_buckets=num_buckets,
                mixture=plan_mixture(corpus, config.weight, config.language_exponent),
                accents=decide_accents(config, self.documents, corpus),
                apostrophes=rules_for(shares_of_languages(corpus)),
            ),
            units=[
                Unit(shard.name, shard.bytes, join(folder, shard.name)) for shard in corpus.shards
            ],
        )

    def manifest(self, job: Job, head: StoredHead) -> VocabularyManifest:
        """Return the manifest, with what was learned."""
        [learned] = job.records(Learn)
        return VocabularyManifest(
            **manifest_fields(head, self.config),
            accents=job.setup.accents,
            mixture=job.setup.mixture,
            tokenizer=learned.tokenizer,
            report=learned.report,
            word_counts=learned.word_counts,
        )

    def absolute(self) -> Self:
        """Return the stage with absolute paths."""
        return replace(self, documents=absolute(self.documents), output=absolute(self.output))


@dataclass(frozen=True, kw_only=True)
class Learned(Record):
    """The record of the one unit that learns: parts of the manifest."""

    tokenizer: VocabularyTokenizer
    report: VocabularyReport
    word_counts: File


@dataclass(frozen=True)
class Learn(Phase):
    """Learn the vocabulary from the sums, and write its files."""

    config: VocabConfig

    name = "learn"
    record_type = Learned

    def do(self, job: Job, unit: Unit) -> Learned:
        """Learn, and measure on the validation documents."""
        setup = job.setup
        counts = pa.Table.from_batches(MERGED.read(job), WORD_COUNTS)
        words = counts.sort_by([("count", "descending"), ("word", "ascending")])
        with write_parquet(job, WORD_COUNTS_FILE, WORD_COUNTS) as (writer, written):
            writer.write_table(words)
        config = self.config
        is_bpe = config.algorithm == "bpe"
        try:
            tokens, merges, learned_from = learn_pieces(
                words["word"],
                words["count"].to_numpy(),
                size=config.size,
                min_frequency=config.min_frequency,
                limit_alphabet=config.limit_alphabet,
                num_unused=config.num_unused,
                of_bytes=is_bpe,
            )
        except UserError:
            # These options can never succeed, and the corrected command would be refused if it
            # found units that are done.
            job.remove(job.temporary(Count.name), job.temporary(Merge.name))
            raise
        vocabulary = Vocabulary(tuple(tokens), setup.normalization(config))
        if is_bpe:
            vocabulary = byte_level_vocabulary(tokens, merges, vocabulary.normalization)
        files = vocabulary_files(vocabulary)
        for name, content in files.items():
            job.write_bytes(name, content)
        validation_words = read_counts(job, "validation", range(setup.num_buckets))
        validation = fertility_report(validation_words, vocabulary)
        return Learned(
            files=(WORD_COUNTS_FILE, *files),
            tokenizer=VocabularyTokenizer(
                **vocabulary.normalization._asdict(), fingerprint=vocabulary.fingerprint
            ),
            report=VocabularyReport(
                num_tokens=len(vocabulary),
                learned_from=learned_from,
                validation=validation,
            ),
            word_counts=File(name=WORD_COUNTS_FILE, bytes=written.num_bytes, sha256=written.sha256),
        )


def learn_vocabulary(
    documents: str,
    output: str,
    config: VocabConfig,
    options: RunOptions,
    progress: ShowProgress | None = None,
) -> VocabularyManifest:
    """Learn a vocabulary from a directory of documents, write it to `output` and return its
    manifest; a finished directory of the same configuration is left as it is.

    `progress` is called now and then, from any thread. Raises `UserError` if an input or option is
    wrong.
    """
    stage = VocabularyStage(documents=documents, output=output, config=config)
    with kept(documents):
        return run_stage(stage, options, progress)


def measure_vocabulary(documents: str, vocab: str) -> FertilityReport:
    """Return `fertility_report` of any vocabulary on the validation documents."""
    corpus = read_manifest(documents, DocumentsManifest)
    vocabulary = read_vocabulary(vocab)
    paths = shard_paths(documents, corpus, "validation")
    splitter = vocabulary.splitter()
    counts = [count_words(sentences_of(path), splitter) for path in paths]
    return fertility_report(merge_counts(counts), vocabulary)
