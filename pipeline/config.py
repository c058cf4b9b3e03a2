"""The configuration of each data stage: a frozen dataclass with one documented field per option.

The command line is generated from these fields: an option is the field's name with dashes, with the
same default and help. The fields form the fingerprint of a stage's output; how the work is run
(workers, runner) does not count. This module imports nothing heavy, to keep ``--help`` fast.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from .errors import UserError


def option(default: Any, help: str, flags: str = "") -> Any:
    """Declare a dataclass field that is also a command-line option, with its `help` sentence.

    `flags` overrides the spelling derived from the field's name, for example ``--cased/--uncased``.
    """
    return field(default=default, metadata={"help": help, "flags": flags})


WEIGHT_HELP = (
    "How many times a pass reads the training documents of a source or language, 1 by default: NAME=WEIGHT, for "
    "example books=2.5; may be repeated."
)
EXPONENT_HELP = (
    "Read small languages more often: a language's share is proportional to its amount of text to this power (0.7 in "
    "multilingual BERT, 0.3 in XLM-R)."
)


def check(holds: bool, name: str, value: object, must: str) -> None:
    """Raise `UserError` that names the field and its `value` unless `holds`."""
    if not holds:
        raise UserError(f"`{name}` is {value}, but {must}.")


def check_masks(mask_rate: float, mask_split: tuple[int, int, int]) -> None:
    """Raise `UserError` unless these options of masking are possible."""
    check(0 < mask_rate <= 0.4, "mask_rate", mask_rate, "must be above 0 and at most 0.4")
    parts_ok = len(mask_split) == 3 and min(mask_split) >= 0 and sum(mask_split) == 100
    check(parts_ok, "mask_split", mask_split, "must be three percentages that sum to 100")


@dataclass(frozen=True, kw_only=True)
class IngestConfig:
    """How raw sources become documents."""

    format: Literal[
        "auto",
        "wikipedia",
        "wikiextractor",
        "text",
        "gutenberg",
        "jsonl",
        "csv",
        "tsv",
        "parquet",
        "hf",
    ] = option(
        "auto",
        "Format of the sources: Wikipedia XML dump, WikiExtractor output, plain text, Project Gutenberg books, "
        "JSON Lines, CSV, TSV, Parquet, or a data set from the Hugging Face Hub or saved to disk. auto goes by each "
        "file's name, or by its first bytes if the name says nothing, and skips files of unknown format.",
    )
    language: str = option(
        "auto",
        "Language code of the documents whose source does not name one, such as plain text. auto leaves them unknown "
        "(und) and splits their sentences as in English.",
    )
    documents: Literal["auto", "file", "blank-line", "line"] = option(
        "auto",
        "Where a document ends in plain text: at the end of the file, at a blank line, or at the end of each line. In "
        "Parquet, JSON Lines, CSV, TSV and data sets each row is a document or, with blank-line, all rows up to an "
        "empty one; auto does the latter for Parquet and data sets of one column with a single sentence per row.",
    )
    text_column: str = option(
        "text", "Column with the text, in Parquet, JSON Lines, CSV, TSV and data sets."
    )
    shards: int | None = option(
        None, "Number of training shards; by default one per 64 MB of text."
    )
    validation_share: float = option(
        0.005, "Share of documents held out for validation (at least 2 documents)."
    )
    min_characters: int = option(200, "Skip documents with fewer characters.")
    min_sentences: int = option(1, "Skip documents with fewer sentences.")
    keep_language: tuple[str, ...] | None = option(
        None,
        "Keep only documents in these languages (codes such as ko, comma-separated), identified from the text by "
        "py3langid.",
    )
    near_duplicates: float | None = option(
        None,
        "Remove near-duplicates: documents that share at least this much (for example 0.8) of their word 5-grams with "
        "another. Needs about 700 MB of memory per million documents that resemble another. Exact duplicates are "
        "always removed.",
    )
    seed: int = option(0, "Seed for the shuffle and the validation split.")

    def __post_init__(self) -> None:
        check(self.shards is None or self.shards >= 1, "shards", self.shards, "must be at least 1")
        check(
            0 < self.validation_share < 1,
            "validation_share",
            self.validation_share,
            "must be between 0 and 1",
        )
        check(
            self.min_characters >= 0, "min_characters", self.min_characters, "must not be negative"
        )
        check(self.min_sentences >= 1, "min_sentences", self.min_sentences, "must be at least 1")
        share_ok = self.near_duplicates is None or 0.3 <= self.near_duplicates <= 1
        check(share_ok, "near_duplicates", self.near_duplicates, "must be between 0.3 and 1")


@dataclass(frozen=True, kw_only=True)
class VocabConfig:
    """How a WordPiece vocabulary is learned from documents."""

    size: int = option(30522, "Number of tokens in the vocabulary, including special tokens.")
    cased: bool = option(False, "Distinguish upper and lower case.", "--cased/--uncased")
    strip_accents: bool | None = option(
        None,
        "Strip accents; by default if text is lower-cased and all its languages do without them, as English does.",
        "--strip-accents/--keep-accents",
    )
    min_frequency: int = option(2, "Merge only pairs of pieces that occur at least this often.")
    limit_alphabet: int | None = option(
        None,
        "Keep at most this many single characters; rarer ones become [UNK]. By default 1000, or more if these cover "
        "less than 99.95 % of the text.",
    )
    weight: tuple[str, ...] = option((), WEIGHT_HELP)
    language_exponent: float = option(1.0, EXPONENT_HELP)
    num_unused: int = option(0, "Number of [unused] tokens to reserve.")

    def __post_init__(self) -> None:
        check(self.size >= 100, "size", self.size, "must be at least 100")
        check(self.min_frequency >= 1, "min_frequency", self.min_frequency, "must be at least 1")
        limit_ok = self.limit_alphabet is None or self.limit_alphabet >= 10
        check(limit_ok, "limit_alphabet", self.limit_alphabet, "must be at least 10")
        check(
            0 <= self.language_exponent <= 1,
            "language_exponent",
            self.language_exponent,
            "must be between 0 and 1",
        )
        check(
            0 <= self.num_unused < self.size,
            "num_unused",
            self.num_unused,
            "must be less than --size",
        )


@dataclass(frozen=True, kw_only=True)
class BuildConfig:
    """How documents become masked sentence pairs."""

    max_length: int = option(128, "Maximum row length in tokens, including [CLS] and [SEP].")
    duplicates: int = option(
        5, "Number of passes over the training documents, each with its own pairs and masks."
    )
    mask_rate: float = option(0.15, "Share of each row's tokens to predict.")
    masking: Literal["token", "whole-word", "span"] = option(
        "token", "Unit of masking: single tokens, whole words, or spans of words (SpanBERT)."
    )
    mask_split: tuple[int, int, int] = option(
        (80, 10, 10),
        "Percentages of the predicted tokens that are replaced by [MASK], replaced by a random token, or kept.",
    )
    pairing: Literal["balanced", "bert", "sop", "none"] = option(
        "balanced",
        "How segments are paired: exactly balanced next-sentence pairs, google-research's algorithm (bert), "
        "sentence-order prediction (sop, ALBERT), or single segments (none, RoBERTa).",
    )
    negatives: Literal["same-source", "same-language", "any"] = option(
        "same-source",
        "Where the B of a NotNext pair comes from in balanced pairing: a document of the same source and language, of "
        "the same language, or any. Groups too small to exchange segments within are widened, and counted.",
    )
    weight: tuple[str, ...] = option((), WEIGHT_HELP)
    language_exponent: float = option(1.0, EXPONENT_HELP)
    short_share: float = option(0.1, "Share of rows with a shorter, random target length.")
    seed: int = option(0, "Seed for the pairs and the masks.")

    def __post_init__(self) -> None:
        check(
            8 <= self.max_length <= 65535,
            "max_length",
            self.max_length,
            "must be between 8 and 65535",
        )
        check(
            1 <= self.duplicates <= 255, "duplicates", self.duplicates, "must be between 1 and 255"
        )
        check_masks(self.mask_rate, self.mask_split)
        check(
            0 <= self.language_exponent <= 1,
            "language_exponent",
            self.language_exponent,
            "must be between 0 and 1",
        )
        check(
            0 <= self.short_share <= 1, "short_share", self.short_share, "must be between 0 and 1"
        )


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a data stage is run; nothing here changes the output."""

    workers: int = option(0, "Number of worker processes on this machine; 0 means one per core.")
    max_bad: float = option(0.05, "Maximum share of bad inputs; the stage fails beyond it.")
    overwrite: bool = option(False, "Delete the output directory's contents and start over.")
    dry_run: bool = option(False, "Only estimate the units of work, disk, memory and time.")
    verbose: bool = option(False, "Show the logs of workers, libraries and Apache Beam.")
    beam_options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check(self.workers >= 0, "workers", self.workers, "must not be negative")
        check(0 <= self.max_bad <= 1, "max_bad", self.max_bad, "must be between 0 and 1")
