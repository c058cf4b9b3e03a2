"""The formats of sources: which files are in them, and what their readers get.

Formats that the content shows (`wiki_00`, ``.json``), or a pattern of names (dumps), are recognised
by code, in `sources.formats`. This module imports nothing heavy, to keep ``--help`` fast.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal


@dataclass(frozen=True)
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
    """Cuts an input into ranges, after the head if `kind` is rows; else a file is one range."""
    suffixes: tuple[str, ...] = ()
    """Suffixes of the files that are in this format."""

    @property
    def dropped_from_ids(self) -> tuple[str, ...]:
        """Suffixes that are not part of the documents' ids; of several that fit, the first goes."""
        if self.kind == "rows":
            return (".jsonl", ".ndjson", ".json", ".csv", ".tsv")
        if self.kind == "text":
            return (".txt.utf-8", ".txt")  # Project Gutenberg's "pg11.txt.utf-8"
        return self.suffixes


FORMATS = {
    "wikipedia": Format("bytes", "wikipedia.read_dump", "wikipedia.plan_dump"),
    "wikiextractor": Format("bytes", "wikiextractor.read_extracted"),
    "text": Format("text", "books.read_book", suffixes=(".txt", ".utf-8")),
    "gutenberg": Format("text", "books.read_book"),
    "jsonl": Format(
        "rows", "jsonl.read_json_lines", "jsonl.plan_json_lines", (".jsonl", ".ndjson")
    ),
    "csv": Format("rows", "delimited.read_delimited", "delimited.plan_delimited", (".csv",)),
    "tsv": Format("rows", "delimited.read_delimited", "delimited.plan_delimited", (".tsv",)),
    "parquet": Format("bytes", "parquet.read_table", "parquet.plan_table", (".parquet",)),
    "hf": Format("bytes", "parquet.read_data_set", "parquet.plan_data_set"),
}

if TYPE_CHECKING:
    FormatName = str
else:  # the command line lists the words of a `Literal`
    FormatName = Literal["auto", *FORMATS]
