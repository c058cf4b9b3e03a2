"""The configuration of each data stage: one frozen dataclass, one documented field an option.

The command line is made from these fields (an option is the field's name with dashes, with the same default and
help). The fields make the fingerprint of a stage's output; how the work is run (workers, runner) is no part of it.
This module imports nothing heavy, so that ``--help`` is quick.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from .errors import UserError


def option(default: Any, help: str, flags: str = "") -> Any:
    """Declare a dataclass field that is an option of the command line, with its `help` sentence.

    `flags` is how it is spelt where that is not the field's name, for instance ``--cased/--uncased``.
    """
    return field(default=default, metadata={"help": help, "flags": flags})


def check(holds: bool, name: str, value: object, must: str) -> None:
    """Raise `UserError` naming the option `name` and its `value` unless `holds`."""
    if not holds:
        raise UserError(f"--{name.replace('_', '-')} is {value}, but {must}.")


@dataclass(frozen=True, kw_only=True)
class IngestConfig:
    """How raw sources become documents."""

    format: Literal["auto", "wikipedia", "wikiextractor", "text", "gutenberg", "jsonl", "parquet", "hf"] = option(
        "auto",
        "What the sources are: a Wikipedia XML dump, WikiExtractor's output, plain text, Project Gutenberg's books, "
        "JSON Lines, Parquet, or a data set of the Hugging Face hub or saved to disk. auto goes by each file's name, "
        "or by its first bytes where the name says nothing, and leaves out those in no known format.",
    )
    language: str = option("auto", "Language code for sentence splitting; auto takes it from the source, else en.")
    documents: Literal["auto", "file", "blank-line", "line"] = option(
        "auto",
        "What a document is in plain text: a whole file, what stands between blank lines, or a line. In Parquet, "
        "JSON Lines and data sets it is a row, or with blank-line the rows up to an empty one: so auto reads data sets "
        "and Parquet of one column where each row is a single sentence.",
    )
    text_column: str = option("text", "Column that holds the text, in Parquet, JSON Lines and data sets.")
    shards: int | None = option(None, "Number of training shards; by default one for each 64 MB of text.")
    validation_share: float = option(0.005, "Share of the documents held out for validation (at least 2).")
    min_characters: int = option(200, "Leave out documents with fewer characters.")
    min_sentences: int = option(1, "Leave out documents with fewer sentences.")
    near_duplicates: float | None = option(
        None,
        "Leave out documents whose text is nearly that of another: at least this share (for instance 0.8) of the word "
        "5-grams of both is common to them. Takes about 700 MB of memory for a million documents that resemble "
        "another. Equal texts are always left out.",
    )
    seed: int = option(0, "Seed of the shuffle and of the validation split.")

    def __post_init__(self) -> None:
        check(self.shards is None or self.shards >= 1, "shards", self.shards, "must be at least 1")
        check(0 < self.validation_share < 1, "validation_share", self.validation_share, "must lie between 0 and 1")
        check(self.min_characters >= 0, "min_characters", self.min_characters, "must not be negative")
        check(self.min_sentences >= 1, "min_sentences", self.min_sentences, "must be at least 1")
        share_ok = self.near_duplicates is None or 0.3 <= self.near_duplicates <= 1
        check(share_ok, "near_duplicates", self.near_duplicates, "must lie between 0.3 and 1")


@dataclass(frozen=True, kw_only=True)
class VocabConfig:
    """How a WordPiece vocabulary is learned from documents."""

    size: int = option(30522, "Number of tokens in the vocabulary, special tokens included.")
    cased: bool = option(False, "Keep upper and lower case apart.", "--cased/--uncased")
    strip_accents: bool | None = option(
        None,
        "Remove accents; by default where text is lower-cased, but never in languages that need them.",
        "--strip-accents/--keep-accents",
    )
    min_frequency: int = option(2, "Merge no pair of pieces that occurs fewer times.")
    limit_alphabet: int | None = option(
        None,
        "Keep at most this many single characters, rarer ones become [UNK]; by default 1000, or more where these are "
        "less than 99.95 % of the text.",
    )
    num_unused: int = option(0, "Number of [unused] tokens to reserve for later use.")

    def __post_init__(self) -> None:
        check(self.size >= 100, "size", self.size, "must be at least 100")
        check(self.min_frequency >= 1, "min_frequency", self.min_frequency, "must be at least 1")
        limit_ok = self.limit_alphabet is None or self.limit_alphabet >= 10
        check(limit_ok, "limit_alphabet", self.limit_alphabet, "must be at least 10")
        check(0 <= self.num_unused < self.size, "num_unused", self.num_unused, "must be less than --size")


@dataclass(frozen=True, kw_only=True)
class BuildConfig:
    """How documents become masked sentence pairs."""

    max_length: int = option(128, "Longest row in tokens, with [CLS] and [SEP].")
    duplicates: int = option(5, "Number of passes over the training documents, each with its own pairs and masks.")
    mask_rate: float = option(0.15, "Share of each row's tokens to predict.")
    masking: Literal["token", "whole-word", "span"] = option(
        "token", "What is masked together: single tokens, whole words, or spans of words (SpanBERT)."
    )
    mask_split: tuple[int, int, int] = option(
        (80, 10, 10), "Percentages of predicted tokens that become [MASK], become a random token, or are kept."
    )
    pairing: Literal["balanced", "bert", "sop", "none"] = option(
        "balanced",
        "How segments are paired: exactly balanced next-sentence pairs, google-research's algorithm, "
        "sentence-order prediction (ALBERT), or single segments (RoBERTa).",
    )
    short_share: float = option(0.1, "Share of the rows aimed at a shorter, random length.")
    seed: int = option(0, "Seed of the pairs and the masks.")

    def __post_init__(self) -> None:
        check(8 <= self.max_length <= 65535, "max_length", self.max_length, "must lie between 8 and 65535")
        check(1 <= self.duplicates <= 255, "duplicates", self.duplicates, "must lie between 1 and 255")
        check(0 < self.mask_rate <= 0.4, "mask_rate", self.mask_rate, "must lie above 0 and up to 0.4")
        check(0 <= self.short_share <= 1, "short_share", self.short_share, "must lie between 0 and 1")
        parts_ok = len(self.mask_split) == 3 and all(part >= 0 for part in self.mask_split)
        check(parts_ok and sum(self.mask_split) == 100, "mask_split", self.mask_split, "must be three parts of 100")


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a data stage is run; none of it changes what is written."""

    workers: int = option(0, "Number of worker processes on this machine; 0 means one for each core.")
    max_bad: float = option(0.05, "Share of bad inputs beyond which the stage fails.")
    overwrite: bool = option(False, "Throw away what the output directory holds, and begin anew.")
    dry_run: bool = option(False, "Only say what would be done: the units of work, disk, memory and time.")
    verbose: bool = option(False, "Show what the workers, libraries and Apache Beam log.")
    beam_options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check(self.workers >= 0, "workers", self.workers, "must not be negative")
        check(0 <= self.max_bad <= 1, "max_bad", self.max_bad, "must lie between 0 and 1")
