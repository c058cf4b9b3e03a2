"""Define what finding and reading sources pass on: inputs, ranges of them, raw documents."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import NamedTuple

from ..encodings import UTF_8


@dataclass(frozen=True, kw_only=True, slots=True)
class InputRange:
    """A part of one file or data set that can be read on its own."""

    path: str
    """Where to open the file."""
    name: str
    """The file's name in ids and messages; the folder above the source is not part of it."""
    format: str
    """Key of `formats.FORMATS`: ``wikipedia``, ``text``, ..."""
    start: int = 0
    """First byte of the range; first row group, row or shard of a table."""
    stop: int | None = None
    """The byte (row group, ...) after the range; None: to the end of the file."""
    encoding: str = UTF_8
    """Of a text, by Python's name."""
    version: str = ""
    """Of the file that was planned, by `storage.version_of`; empty: any may be read."""


class Input(NamedTuple):
    """One whole file, or data set, to read."""

    path: str
    name: str
    format: str
    num_bytes: int
    digest: str = ""
    """Identifies the content of a data set, which is not a file that could be hashed."""
    encoding: str = UTF_8
    """Of a text, by Python's name."""
    version: str = ""
    """By `storage.version_of`; empty for a data set."""

    def cut(self, starts: Sequence[int]) -> list[InputRange]:
        """Return the ranges that begin at `starts`; each ends at the next, the last at the end.

        A table without rows has no starts, and so no ranges.
        """
        whole = InputRange(
            path=self.path,
            name=self.name,
            format=self.format,
            encoding=self.encoding,
            version=self.version,
        )
        ranges: list[InputRange] = []
        if not starts:
            return ranges
        stops = [*starts[1:], None]
        for start, stop in zip(starts, stops, strict=True):
            ranges.append(replace(whole, start=start, stop=stop))
        return ranges

    def as_one_range(self) -> list[InputRange]:
        """Return the whole as the only range."""
        return self.cut([0])

    def cut_evenly(self, range_bytes: int) -> list[InputRange]:
        """Return equal ranges of at most `range_bytes` each."""
        num_ranges = max(1, ceil(self.num_bytes / range_bytes))
        return self.cut([self.num_bytes * index // num_ranges for index in range(num_ranges)])


@dataclass(frozen=True, kw_only=True, slots=True)
class RawDocument:
    """One text without markup."""

    id: str
    """Unique within its source: a page's id, a file's name, a line's number."""
    source: str
    """The dump's database name (``enwiki``), or the name of the data set or format."""
    title: str
    """May be empty."""
    language: str
    """Language code (``en``) for splitting sentences; empty if unknown."""
    paragraphs: list[str]
    """Clean text, one paragraph an item, without line breaks."""
    is_cut: bool = False
    """Whether the paragraphs are sentences, of documents that `ingest` wrote."""
