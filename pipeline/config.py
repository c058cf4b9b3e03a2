"""The configuration of each data stage: a frozen dataclass with one documented field per option.

The command line is generated from these fields: an option is the field's name with dashes, with the
same default and help. The fields form the fingerprint of a stage's output; how the work is run
(workers, runner) does not count. This module imports nothing heavy, to keep ``--help`` fast.
"""

import os
import typing
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Annotated, Any, Literal

from msgspec import Meta, ValidationError

from .encodings import AUTO, check_encoding
from .errors import UserError
from .languages import check_language
from .parsing import convert_values, describe_fault
from .source_formats import FormatName


def option(
    default: Any,
    help: str,
    flags: str = "",
    *,
    group: str = "",
    identity: bool = True,
    is_content: bool = False,
) -> Any:
    """Declare a dataclass field that is also a command-line option, with its `help` sentence.

    `flags` overrides the spelling derived from the field's name: ``--compile/--no-compile``.
    `group` is the heading that the option stands under in ``--help``; the common ones have none.
    `identity` is False for a field that may change when work is resumed. `is_content` is for the
    content of a file that the command line names: workers on other machines need no file.
    """
    # On the field, where `cli.options` and `identity_fields` find it: a list of options beside the
    # fields could disagree with them.
    metadata = {"help": help, "flags": flags, "group": group, "identity": identity}
    metadata["is_content"] = is_content
    return field(default=default, metadata=metadata)


def identity_fields(config: Any) -> dict[str, Any]:
    """Return the values of the fields that tell a run from any other."""
    return {
        field.name: getattr(config, field.name)
        for field in fields(config)
        if field.metadata.get("identity", True)
    }


WEIGHT_HELP = (
    "How many times each pass reads the training documents of a source or language, 1 by default: "
    "NAME=WEIGHT, for example books=2.5; may be repeated."
)
EXPONENT_HELP = (
    "Read small languages more often: a language's share is proportional to its amount of text to "
    "this power (0.7 in multilingual BERT, 0.3 in XLM-R)."
)


Count = Annotated[int, Meta(ge=1)]
NotNegative = Annotated[float, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0, lt=10**9)]
Share = Annotated[float, Meta(ge=0, le=1)]
LearningRate = Annotated[float, Meta(gt=0, le=1)]
DropoutRate = Annotated[float, Meta(ge=0, lt=1)]  # a rate of 1 would divide by 0
MaskRate = Annotated[float, Meta(gt=0, le=0.4)]


@cache
def _annotations(config: type) -> dict[str, Any]:
    annotations = typing.get_type_hints(config, include_extras=True)
    return {field.name: annotations[field.name] for field in fields(config)}


def check_ranges(config: Any) -> None:
    """Raise `UserError` for the first field whose value does not fit its annotation's `Meta`."""
    for name, annotation in _annotations(type(config)).items():
        value = getattr(config, name)
        try:
            convert_values(value, annotation)
        except ValidationError as error:
            fault = describe_fault(error).rpartition("]: ")[2]  # without an item's index
            if isinstance(value, tuple):
                value = ",".join(map(str, value))
            raise UserError(f"`{name}` is {value}: {fault}.") from None


def check(holds: bool, name: str, value: object, must: str) -> None:
    """Raise `UserError` that names the field and its `value` unless `holds`."""
    if not holds:
        raise UserError(f"`{name}` is {value}, but {must}.")


def check_mask_split(mask_split: tuple[int, ...]) -> None:
    """Raise `UserError` unless these are three percentages."""
    split_ok = len(mask_split) == 3 and min(mask_split) >= 0 and sum(mask_split) == 100
    check(split_ok, "mask_split", mask_split, "must be three percentages that sum to 100")


@dataclass(frozen=True, kw_only=True)
class IngestConfig:
    """How raw sources become documents."""

    format: FormatName = option(
        "auto",
        "Format of the sources: Wikipedia XML dump, WikiExtractor output, plain text, Project "
        "Gutenberg books, JSON Lines, CSV, TSV, Parquet, or a data set from the Hugging Face Hub "
        "or saved to disk. auto goes by each file's name, or by its first bytes if the name says "
        "nothing, and skips files of unknown format.",
    )
    language: str = option(
        "auto",
        "Language code of documents whose source names none, such as plain text. auto leaves them "
        "unknown (und) and splits their sentences as in English.",
    )
    documents: Literal["auto", "file", "blank-line", "line", "sentence", "markdown"] = option(
        "auto",
        "Where a document ends in plain text: at the end of the file, at a blank line, or at the "
        "end of each line. In Parquet, JSON Lines, CSV, TSV and data sets each row is a document; "
        "sentence joins rows of a sentence each, up to an empty row or another id. markdown: each "
        "file or row is a document in Markdown.",
        group="Reading",
    )
    text_column: str = option(
        "text",
        "Column with the text, in Parquet, JSON Lines, CSV, TSV and data sets; of several, such as "
        "title,abstract, each begins a paragraph. A dot leads into a column: payload.body.",
        group="Reading",
    )
    id_column: str | None = option(
        None,
        "Column with ids that tell the documents of all files apart, and are theirs; by default "
        "id, beside the file's name.",
        group="Reading",
    )
    title_column: str | None = option(
        None, "Column with the title; by default title.", group="Reading"
    )
    language_column: str | None = option(
        None, "Column with the code of the language.", group="Reading"
    )
    source_column: str | None = option(
        None,
        "Column with the source, by which audit reports and build weights.",
        group="Reading",
    )
    encoding: str = option(
        "auto",
        "Encoding of plain text, JSON Lines, CSV and TSV that are not UTF-8, for example cp1251. "
        "auto refuses such a file, and names the encoding that it looks like.",
        group="Reading",
    )
    keep_lines: bool = option(
        False,
        "Leave nothing out of plain text as a heading or table, and join a line with the next only "
        "if it is full and no item of a list begins there: for notes, forms and logs.",
        group="Reading",
    )
    templates: str = option(
        "",
        "TOML file with what further templates of a wiki show; see docs/sources.md.",
        group="Reading",
        is_content=True,
    )
    abbreviations: str = option(
        "",
        "TOML file with words whose full stop ends no sentence, by language; see docs/sources.md.",
        group="Reading",
        is_content=True,
    )
    min_characters: Annotated[int, Meta(ge=0)] = option(
        200, "Skip documents with fewer characters.", group="Filters"
    )
    min_sentences: Count = option(1, "Skip documents with fewer sentences.", group="Filters")
    keep_language: tuple[str, ...] | None = option(
        None,
        "Keep only documents in these languages (codes such as ko, comma-separated), identified "
        "from the text by py3langid.",
        group="Filters",
    )
    near_duplicates: Annotated[float, Meta(ge=0.3, le=1)] | None = option(
        None,
        "Remove near-duplicates: documents that share at least this much (for example 0.8) of "
        "their word 5-grams with another. Needs about 700 MB of memory per million documents that "
        "resemble another. Exact duplicates are always removed.",
        group="Filters",
    )
    shards: Count | None = option(
        None, "Number of training shards; by default one per 64 MB of text.", group="Shards"
    )
    validation_share: Annotated[float, Meta(gt=0, lt=1)] = option(
        0.005,
        "Least share of documents held out for validation. A small corpus holds out more, up to a "
        "tenth, until there are 20 documents and 500 kB of text to judge a model by.",
        group="Shards",
    )
    seed: int = option(0, "Seed for the shuffle and the validation split.", group="Shards")

    def __post_init__(self) -> None:
        check_ranges(self)
        columns = self.text_column
        check(all(columns.split(",")), "text_column", columns, "must name columns")
        if self.encoding != AUTO:
            check_encoding(self.encoding)
        if self.language != AUTO:
            check_language(self.language)

    @property
    def named_columns(self) -> dict[str, str]:
        """The columns that the user named, each with the option that did."""
        texts = self.text_column.split(",")
        named = dict.fromkeys(texts, "text_column") if len(texts) > 1 else {}
        for option in ("id_column", "title_column", "language_column", "source_column"):
            if column := getattr(self, option):
                named[column] = option
        return named


@dataclass(frozen=True, kw_only=True)
class VocabConfig:
    """How a vocabulary is learned from documents."""

    algorithm: Literal["wordpiece", "bpe"] = option(
        "wordpiece",
        "WordPiece, as in BERT, or byte-level byte-pair encoding (bpe), as in ModernBERT, to which "
        "no character is unknown.",
    )
    size: Annotated[int, Meta(ge=100)] = option(
        30522, "Number of tokens in the vocabulary, including special tokens."
    )
    cased: bool = option(False, "Distinguish upper and lower case.")
    strip_accents: bool | None = option(
        None,
        "Strip accents; by default if text is lower-cased and all its languages do without them, "
        "as English does.",
        "--strip-accents/--keep-accents",
        group="Tokens",
    )
    min_frequency: Count = 2
    """Merge only pairs of pieces that occur at least this often."""
    limit_alphabet: Annotated[int, Meta(ge=10)] | None = None
    """Keep at most this many single characters; rarer ones become [UNK]. By default 1000, or more
    if these cover less than 99.95% of the text.
    """
    num_unused: Annotated[int, Meta(ge=0)] = option(
        0, "Number of [unused] tokens to reserve.", group="Tokens"
    )
    weight: tuple[str, ...] = option((), WEIGHT_HELP, group="Languages and sources")
    language_exponent: Share = option(1.0, EXPONENT_HELP, group="Languages and sources")

    def __post_init__(self) -> None:
        check_ranges(self)
        has_alphabet = self.algorithm == "wordpiece" or self.limit_alphabet is None
        must = "`algorithm` bpe has the 256 bytes as its alphabet; leave it out"
        check(has_alphabet, "limit_alphabet", self.limit_alphabet, must)
        unused_ok = self.num_unused < self.size
        check(unused_ok, "num_unused", self.num_unused, "must be less than `size`")


@dataclass(frozen=True, kw_only=True)
class BuildConfig:
    """How documents become masked sentence pairs."""

    # Shards store positions in 16 bits and the number of the pass in 8.
    max_length: Annotated[int, Meta(ge=8, le=65535)] = option(
        128, "Maximum row length in tokens, including [CLS] and [SEP]."
    )
    duplicates: Annotated[int, Meta(ge=1, le=255)] = option(
        5, "Number of passes over the training documents, each with its own pairs and masks."
    )
    mask_rate: MaskRate = option(0.15, "Share of each row's tokens to predict.", group="Masking")
    masking: Literal["token", "whole-word"] = option(
        "token", "Unit of masking: single tokens or whole words.", group="Masking"
    )
    mask_split: tuple[int, int, int] = option(
        (80, 10, 10),
        "Percentages of the predicted tokens that are replaced by [MASK], replaced by a random "
        "token, or kept.",
        group="Masking",
    )
    pairing: Literal["balanced", "bert", "sop", "none"] = option(
        "balanced",
        "How segments are paired: exactly balanced next-sentence pairs, google-research's "
        "algorithm (bert), sentence-order prediction (sop, ALBERT), or single segments (none, "
        "RoBERTa; above a --max-length of 512 whole documents, packed into rows).",
        group="Pairs",
    )
    negatives: Literal["same-source", "same-language", "any"] = option(
        "same-source",
        "Source of segment B of a NotNext pair in balanced pairing: a document of the same source "
        "and language, of the same language, or any. Groups too small to exchange segments within "
        "are widened, and counted.",
        group="Pairs",
    )
    weight: tuple[str, ...] = option((), WEIGHT_HELP, group="Languages and sources")
    language_exponent: Share = option(1.0, EXPONENT_HELP, group="Languages and sources")
    seed: int = option(0, "Seed for the pairs and the masks.")

    def __post_init__(self) -> None:
        check_ranges(self)
        check_mask_split(self.mask_split)

    @property
    def packs(self) -> bool:
        """Whether rows are packed: whole documents side by side, which do not see each other."""
        # Few documents fill a row of more than BERT's 512 positions alone.
        return self.pairing == "none" and self.max_length > 512


MAX_BAD = 0.05


def num_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # those of a job's allocation, not of the machine
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a data stage is run; nothing here changes the output."""

    workers: Annotated[int, Meta(ge=0)] = option(
        0,
        "Number of worker processes on this machine; 0 means one per core, or one for little "
        "input.",
    )
    overwrite: bool = option(False, "Delete the output directory's contents and start over.")
    dry_run: bool = option(False, "Only say what there is to do, and how much of the disk is free.")
    verbose: bool = option(
        False,
        "Show the logs of workers, libraries and Apache Beam.",
        group="Running",
    )
    max_bad: Share = option(
        MAX_BAD,
        "Maximum share of bad inputs; beyond it the command fails.",
        group="Running",
    )
    beam_options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_ranges(self)
        most_workers = 4 * num_cores()  # each has 100 MB and more; thousands would take the machine
        must = f"must be at most {most_workers}, four times the cores; 0 means one per core"
        check(self.workers <= most_workers, "workers", self.workers, must)
