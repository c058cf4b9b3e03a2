"""What a ``manifest.json`` holds, by stage.

The files are JSON with sorted keys; fields at their defaults are left out.
"""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated, Any, Generic, Literal, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from .config import BuildConfig, IngestConfig, VocabConfig
from .errors import UserError
from .parsing import Count, FileName, Fraction, parse_json

Config = TypeVar("Config")
Split = Literal["train", "validation"]
Counts = dict[str, Count]

SCHEMA_VERSION = 1
"""Of manifests, and of the footers of Parquet files. It grows when older versions would misread
what is written; files without one are from before it was recorded, and are read as version 1.
"""
VERSION_KEY = b"clozeworks.schema_version"
"""Its name in the footers of Parquet files."""


class Head(Struct, Generic[Config], frozen=True, kw_only=True, omit_defaults=True):
    """What a stage was asked to do: the first part of its manifest, and all of its plan."""

    stage: str
    config: Config
    inputs: list[dict[str, Any]]
    versions: dict[str, str]
    fingerprint: str
    """Digest of the fields above."""
    schema_version: Count = 1
    already_finished: bool = False
    """Whether a stage found it complete and did nothing; not stored."""
    digest: str = ""
    """Of the whole file, after reading; not stored."""


Plan = Head[dict[str, Any]]


class File(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file that a stage wrote."""

    name: FileName
    bytes: Count
    sha256: str


class Shard(File, frozen=True, kw_only=True):
    """One Parquet file of a split."""

    split: Split
    rows: Count
    counts: Counts


class DocumentsGroup(Struct, frozen=True, kw_only=True):
    """The documents of one source in one language, in one shard."""

    source: str
    language: str
    documents: Count
    characters: Count


class MixtureGroup(Struct, frozen=True, kw_only=True):
    """How often the documents of one source and language are read in a pass."""

    source: str
    language: str
    weight: Annotated[float, Meta(ge=0)]
    documents: Count = 0
    tokens: Count = 0
    """Of the training documents, read once."""
    squared_tokens: Count = 0
    """Sum of the squares of the documents' tokens: the larger, the more single documents weigh."""
    tokens_built: Count = 0
    """Over all passes."""


class DocumentsShard(Shard, frozen=True, kw_only=True):
    """One shard of documents."""

    groups: list[DocumentsGroup] = []
    """Sorted by source and language; empty if version 0.1 before the column ``language`` wrote the
    shard.
    """


class InstancesShard(Shard, frozen=True, kw_only=True):
    """One shard of instances."""

    source_tokens: Counts
    """Tokens of the documents from each source, over all passes."""
    warnings: list[str]


class DocumentsManifest(Head[IngestConfig], frozen=True, kw_only=True):
    """Of a directory of documents."""

    stage: Literal["ingest"]
    counts: Counts
    bad: Counts
    examples: dict[str, list[str]]
    languages: Counts
    """Documents in each language."""
    shards: list[DocumentsShard]


@dataclass(frozen=True, kw_only=True)
class WordPieceReport:
    """What a vocabulary was learned from, and what was left out."""

    num_words: Count
    """Distinct words given."""
    num_words_long: Count
    """Of these, left out for being longer than BERT accepts, which makes them [UNK]."""
    num_words_rare: Count
    """Of these, left out for being too rare to keep in memory."""
    num_words_alphabet: Count
    """Of these, left out for a character that is not in the alphabet."""
    alphabet_left_out: str
    """The characters that are not in the alphabet, most frequent first."""
    num_alphabet: Count
    """Pieces of a single character in the vocabulary, "##" or not."""
    num_merges: Count
    """Pieces learned."""
    num_missing: Count
    """Tokens missing from the size asked for, for want of pairs of `min_frequency`."""


class FertilityReport(Struct, frozen=True, kw_only=True):
    """How a vocabulary splits words."""

    num_words: Count
    num_distinct_words: Count
    num_tokens: Count
    tokens_per_word: Annotated[float, Meta(ge=0)]
    unknown_share: Fraction
    """Share of [UNK] among the tokens."""
    num_tokens_absent: Count
    """Ordinary tokens that do not occur."""
    longest_tokens: list[str]
    rarest_tokens: list[tuple[str, Count]]


class VocabularyReport(Struct, frozen=True, kw_only=True):
    """What was learned, and how it does on held-out documents."""

    num_tokens: Count
    learned_from: WordPieceReport
    validation: FertilityReport


class Accents(Struct, frozen=True, kw_only=True):
    """Whether accents are stripped from text, and why; what that damages if it was requested all
    the same.
    """

    strip: bool
    reason: str
    damage: str = ""


class VocabularyTokenizer(Struct, frozen=True, kw_only=True):
    """The vocabulary's normalisation and fingerprint."""

    lowercase: bool
    strip_accents: bool
    fingerprint: str


class VocabularyManifest(Head[VocabConfig], frozen=True, kw_only=True):
    """Of a vocabulary."""

    stage: Literal["vocab"]
    tokenizer: VocabularyTokenizer
    accents: Accents | None = None
    mixture: list[MixtureGroup] = []
    report: VocabularyReport
    word_counts: File
    """The table of counted words."""


class InstancesTokenizer(Struct, frozen=True, kw_only=True):
    """Which vocabulary made the token ids."""

    fingerprint: str
    size: Count


class InstancesManifest(Head[BuildConfig], frozen=True, kw_only=True):
    """Of a directory of instances."""

    stage: Literal["build"]
    counts: Counts
    bad: Counts
    examples: dict[str, list[str]]
    languages: Counts = {}
    """Documents in each language."""
    mixture: list[MixtureGroup] = []
    tokenizer: InstancesTokenizer
    shards: list[InstancesShard]


Manifest = DocumentsManifest | VocabularyManifest | InstancesManifest
AnyManifest = TypeVar("AnyManifest", DocumentsManifest, VocabularyManifest, InstancesManifest)
KINDS = {"ingest": DocumentsManifest, "vocab": VocabularyManifest, "build": InstancesManifest}


class _Version(Struct):
    schema_version: Count = 1


class _Stage(Struct):
    stage: Literal["ingest", "vocab", "build"]


def check_schema_version(version: int, path: str) -> None:
    """Raise `UserError` if the file at `path` was written by a version of this package that is too
    new to read.
    """
    if version > SCHEMA_VERSION:
        raise UserError(
            f"{path} has schema version {version}, but this clozeworks reads versions up to {SCHEMA_VERSION}: "
            "upgrade clozeworks."
        )


def parse_manifest(content: bytes, path: str) -> Manifest:
    """Return the manifest of a finished stage; raise `UserError` naming the file and the field that
    does not fit.
    """
    check_schema_version(parse_json(content, _Version, path).schema_version, path)
    kind = KINDS[parse_json(content, _Stage, path).stage]
    digest = blake2b(content, digest_size=16).hexdigest()
    return replace(parse_json(content, kind, path), digest=digest)
