"""Define what finding and reading sources pass on: ranges of inputs, raw documents."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Self

from ..encodings import UTF_8


@dataclass(frozen=True, kw_only=True, slots=True)
class InputRange:
    """A file or data set to read, or a part of one that can be read on its own."""

    path: str
    """Where to open the file."""
    name: str
    """The file's name in ids and messages; the folder above the source is not part of it."""
    format: str
    """Key of `formats.FORMATS`: ``wikipedia``, ``text``, ..."""
    num_bytes: int = 0
    """Of a part about; 0 if unknown."""
    start: int = 0
    """First byte of the range; first row group, row or shard of a table."""
    stop: int | None = None
    """The byte (row group, ...) after the range; None: to the end of the file."""
    encoding: str = UTF_8
    """Of a text, by Python's name."""
    version: str = ""
    """Of the file that was planned, by `storage.version_of`; empty: any may be read."""
    digest: str = ""
    """Identifies the content of a data set, which is not a file that could be hashed."""

    def cut(self, starts: Sequence[int]) -> list[Self]:
        """Return the ranges that begin at `starts`; each ends at the next, the last at the end.

        A table without rows has no starts, and so no ranges.
        """
        ranges: list[Self] = []
        for start, stop in zip(starts, [*starts[1:], None], strict=False):
            num_bytes = self.num_bytes // len(starts)
            ranges.append(replace(self, num_bytes=num_bytes, start=start, stop=stop))
        return ranges

    def cut_evenly(self, range_bytes: int) -> list[Self]:
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
