"""Define the contents of ``manifest.json``, by stage.

The files are JSON with sorted keys; fields at their defaults are left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar

from msgspec import Meta, Struct, structs

from .config import BuildConfig, IngestConfig, VocabConfig
from .counters import count_of
from .errors import UserError
from .parsing import Count, FileName, Fraction, digest_of_fields, parse_json

Config = TypeVar("Config")
Split = Literal["train", "validation"]
Counts = dict[str, Count]

SCHEMA_VERSION = 1
"""The version of manifests and of Parquet footers.

It grows when older versions of clozeworks would misread what is written. Files without one are from
before it was recorded, and are read as version 1.
"""
VERSION_KEY = b"clozeworks.schema_version"
"""The key of the version in Parquet footers."""


class Head(Struct, Generic[Config], frozen=True, kw_only=True, omit_defaults=True):
    """The request to a stage: the first part of its manifest."""

    stage: str
    config: Config
    inputs: list[dict[str, Any]]
    versions: dict[str, str]
    fingerprint: str
    """The digest of the fields above."""
    schema_version: Count = 1
    already_finished: bool = False
    """Whether the stage found its output complete and did nothing; not stored."""
    digest: str = ""
    """The digest of all other fields, by which the next stage records what it has read; manifests
    from before it was stored get it when they are read.
    """


StoredHead = Head[dict[str, Any]]
"""A head as it is compared: of any stage, with the config's plain values."""


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
    """The documents of one source and language, and how often a pass reads them."""

    source: str
    language: str
    weight: Annotated[float, Meta(ge=0)]
    documents: Count = 0
    tokens: Count = 0
    """Tokens of the training documents, each counted once."""
    squared_tokens: Count = 0
    """Sum of the squares of the documents' tokens: the larger, the more single documents weigh."""
    tokens_built: Count = 0
    """Tokens of the training documents over all passes."""


class DocumentsShard(Shard, frozen=True, kw_only=True):
    """One shard of documents."""

    groups: list[DocumentsGroup] = []
    """Sorted by source and language; none in shards from before documents had a language."""


class InstancesShard(Shard, frozen=True, kw_only=True):
    """One shard of instances."""

    source_tokens: Counts
    """Tokens of the documents from each source, over all passes."""
    warnings: list[str]


class DocumentsManifest(Head[IngestConfig], frozen=True, kw_only=True):
    """The manifest of a directory of documents."""

    stage: Literal["ingest"]
    counts: Counts
    bad: Counts
    examples: dict[str, list[str]]
    languages: Counts
    """Documents in each language."""
    shards: list[DocumentsShard]

    def training_groups(self) -> Iterator[DocumentsGroup]:
        """Yield the groups of all training shards."""
        for shard in self.shards:
            if shard.split == "train":
                yield from shard.groups

    @property
    def words_kept(self) -> int:
        """Words of the documents; 0 in manifests from before they were counted."""
        return sum(shard.counts.get("words", 0) for shard in self.shards)


@dataclass(frozen=True, kw_only=True)
class WordPieceReport:
    """The words a vocabulary was learned from, and those that were left out."""

    num_words: Count
    """Distinct words given."""
    num_words_long: Count
    """Words that nothing is learned from: BERT's tokenizer turns words of this length into [UNK];
    byte-level BPE tokenises them.
    """
    num_words_rare: Count
    """Words left out because they are too rare to keep in memory."""
    num_words_alphabet: Count
    """Words left out because a character is not in the alphabet."""
    alphabet_left_out: str
    """The characters that are not in the alphabet, most frequent first."""
    num_alphabet: Count
    """Pieces of a single character in the vocabulary, "##" or not; or the 256 bytes."""
    num_merges: Count
    """Pieces learned."""
    num_missing: Count
    """Tokens missing from the requested size: too few pairs are as frequent as `min_frequency`."""


class FertilityReport(Struct, frozen=True, kw_only=True):
    """Measures of how a vocabulary splits words."""

    num_words: Count
    num_distinct_words: Count
    num_tokens: Count
    tokens_per_word: Annotated[float, Meta(ge=0)]
    characters_per_token: Annotated[float, Meta(ge=0)] = 0.0
    """Without spaces; vocabularies that split words differently compare. 0: not measured."""
    unknown_share: Fraction
    """The share of [UNK] among the tokens."""
    num_tokens_absent: Count
    """Ordinary tokens that never occur."""
    longest_tokens: list[str]
    rarest_tokens: list[tuple[str, Count]]


class VocabularyReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A learned vocabulary, and how it splits held-out documents."""

    num_tokens: Count
    learned_from: WordPieceReport
    validation: FertilityReport


class Accents(Struct, frozen=True, kw_only=True):
    """The decision whether to strip accents from text."""

    strip: bool
    reason: str
    damage: str = ""
    """What stripping could spoil, if it was requested against the rule."""


class VocabularyTokenizer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The vocabulary's normalisation and fingerprint."""

    lowercase: bool
    strip_accents: bool
    fingerprint: str
    apostrophes: tuple[str, ...] = ()
    """The rules by which apostrophes are kept inside words."""
    composes: bool = False
    """Whether text is composed first (NFC)."""


class VocabularyManifest(Head[VocabConfig], frozen=True, kw_only=True):
    """The manifest of a vocabulary."""

    stage: Literal["vocab"]
    tokenizer: VocabularyTokenizer
    accents: Accents | None = None
    mixture: list[MixtureGroup] = []
    report: VocabularyReport
    word_counts: File


class InstancesTokenizer(Struct, frozen=True, kw_only=True):
    """The vocabulary that made the token ids."""

    fingerprint: str
    size: Count


class InstancesManifest(Head[BuildConfig], frozen=True, kw_only=True):
    """The manifest of a directory of instances."""

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


def manifest_fields(head: StoredHead, config: Any) -> dict[str, Any]:
    """Return the fields that a manifest has from its head, with the stage's own `config`."""
    return {**structs.asdict(head), "config": config}


# The parts of any manifest that say how to read the rest of it.
class _Version(Struct):
    schema_version: Count = 1


class _Stage(Struct):
    stage: Literal["ingest", "vocab", "build"]


def too_little_to_judge(num_rows: int) -> str:
    """Say that rows are too few to judge a model by; "" if they are enough."""
    # In fewer held-out rows, an accuracy is uncertain by more than 0.07 (95%).
    if num_rows >= 200:
        return ""
    return f"too little to judge: {count_of(num_rows, 'row')}"


def check_schema_version(version: int, path: str) -> None:
    """Raise `UserError` if the file at `path` was written by a newer, incompatible clozeworks."""
    if version > SCHEMA_VERSION:
        raise UserError(
            f"{path} has schema version {version}, but this clozeworks reads versions up to "
            f"{SCHEMA_VERSION}: upgrade clozeworks."
        )


def parse_manifest(content: bytes, path: str) -> Manifest:
    """Return the manifest of a finished stage; raise `UserError` naming the field that is wrong."""
    # The version first: fields of a newer one may not fit, which must not read as damage.
    version = parse_json(content, _Version, path).schema_version
    check_schema_version(version, path)
    stage = parse_json(content, _Stage, path).stage
    manifest = parse_json(content, KINDS[stage], path)
    digest = digest_of_fields(parse_json(content, dict[str, Any], path))
    if manifest.digest not in ("", digest):
        raise UserError(
            f"{path} is damaged or was edited (its digest differs): recreate its directory with "
            f"`clozeworks {stage} … --overwrite`, or delete `digest` from it to use it as it is."
        )
    return structs.replace(manifest, digest=digest)
