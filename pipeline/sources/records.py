"""What passes between the readers of the sources and the ingest stage: ranges of files in, raw documents out."""

from dataclasses import dataclass
from typing import Literal

Documents = Literal["auto", "file", "blank-line", "line"]
"""What a document is in a text file or a table: see ``--documents``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InputRange:
    """One unit of ingest: a part of one file that can be read on its own, planned from names and sizes alone."""

    path: str
    """Where to open the file."""
    name: str
    """The file's name in ids and messages, independent of where its folder lies."""
    format: str
    """How it is read: ``wikipedia``, ``text``, ..."""
    start: int = 0
    """First byte of the part."""
    stop: int | None = None
    """The byte after the part; None: to the end of the file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RawDocument:
    """One text as its source has it, free of markup, not yet cut into sentences."""

    id: str
    """Unique within its source: a page's id, a file's name, a line's number."""
    source: str
    """The dump's database name (``enwiki``), the data set's or the format's name."""
    title: str
    """May be empty."""
    language: str
    """Language code (``en``), which decides how sentences are split."""
    paragraphs: list[str]
    """Clean text, one paragraph an item, without line breaks."""
