"""The formats of sources: which files are in them, and what their readers get.

Formats that the content shows (`wiki_00`, ``.json``), or a pattern of names (dumps), are recognised
by code, in `sources.formats`. This module imports nothing heavy, to keep ``--help`` fast.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal


@dataclass(frozen=True, kw_only=True)
class Format:
    """How files of one format are found, named and read."""

    kind: Literal["text", "rows", "bytes"]
    """What the reader gets. Text, in pieces of whole lines, and rows, in numbered lines, are `str`:
    they may be in any encoding, and are decoded in `sources.texts`. A reader of bytes gets the open
    file, and decodes it.
    """
    read: str
    """The generator of documents, as ``module.function`` of `sources`: it is called with what
    `kind` says, an `InputRange`, the config and the counters.
    """
    plan: str = ""
    """The function that cuts an input into ranges, after the head if `kind` is rows; without one a
    file is one range.
    """
    suffixes: tuple[str, ...] = ()
    """Suffixes of the files that are in this format."""
    dropped_from_ids: tuple[str, ...] = ()
    """Suffixes that are not part of the documents' ids; of several that fit, the first goes."""


_TEXTS = (".txt.utf-8", ".txt")
_ROWS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv")

FORMATS = {
    "wikipedia": Format(kind="bytes", read="wikipedia.read_dump", plan="wikipedia.plan_dump"),
    "wikiextractor": Format(kind="bytes", read="wikiextractor.read_extracted"),
    "text": Format(
        kind="text",
        read="books.read_book",
        suffixes=(".txt", ".utf-8"),  # Project Gutenberg's "pg11.txt.utf-8"
        dropped_from_ids=_TEXTS,
    ),
    "gutenberg": Format(kind="text", read="books.read_book", dropped_from_ids=_TEXTS),
    "jsonl": Format(
        kind="rows",
        read="jsonl.read_json_lines",
        plan="jsonl.plan_json_lines",
        suffixes=(".jsonl", ".ndjson"),
        dropped_from_ids=_ROWS,
    ),
    "csv": Format(
        kind="rows",
        read="delimited.read_delimited",
        plan="delimited.plan_delimited",
        suffixes=(".csv",),
        dropped_from_ids=_ROWS,
    ),
    "tsv": Format(
        kind="rows",
        read="delimited.read_delimited",
        plan="delimited.plan_delimited",
        suffixes=(".tsv",),
        dropped_from_ids=_ROWS,
    ),
    "parquet": Format(
        kind="bytes",
        read="parquet.read_table",
        plan="parquet.plan_table",
        suffixes=(".parquet",),
        dropped_from_ids=(".parquet",),
    ),
    "hf": Format(kind="bytes", read="parquet.read_data_set", plan="parquet.plan_data_set"),
}

if TYPE_CHECKING:
    FormatName = str
else:  # the command line lists the words of a `Literal`
    FormatName = Literal["auto", *FORMATS]
