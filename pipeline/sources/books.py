"""Plain text and books as documents: paragraphs out of hard-wrapped lines, without headings.

``--documents`` defines what a document is in a text file:

- ``file``: the whole file, read as a book: a blank line ends a paragraph, hard-wrapped lines are
  joined, headings, rulers, lists with page numbers and what Project Gutenberg puts around a book
  are left out;
- ``blank-line``: the lines between blank lines, one paragraph each (or one together if lines are
  hard-wrapped);
- ``line``: each line;
- ``auto``: ``blank-line`` if the file has the form of google-research's ``sample_text.txt`` (blocks
  of several lines, nearly all of which end a sentence, separated by blank lines), else ``file``.

Files are streamed. A document of more than `LONGEST_DOCUMENT` characters would be many books (as in
``bookcorpus/bookcorpus``: nothing separates the books); it is cut between paragraphs into parts of
the size of a book, `BOOK_CHARACTERS` to twice that. So memory is bounded, and a document is never a
single sentence.
"""

import codecs
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate, chain, groupby
from operator import itemgetter
from typing import BinaryIO

from ..config import IngestConfig
from ..execution.counters import Counters
from ..schemas import SENTENCE_ENDS
from . import gutenberg
from .compression import decompressed, peekable, stem_of
from .gutenberg import Block
from .records import InputRange, RawDocument
from .sentences import compose, ends_sentence
from .wikitext.repair import GAP

LONGEST_DOCUMENT = 4_000_000
BOOK_CHARACTERS = 400_000
"""The average book of BooksCorpus: 985 million words in 11,038 books."""
HEAD_BYTES = 1 << 16
CHUNK_BYTES = 1 << 20
LONGEST_LINE_BYTES = 1 << 20
LONGEST_BLOCK_LINES = 5000
LONGEST_WRAPPED_LINE = 10_000
LONGEST_PARAGRAPH = 1_000_000
WRAP_WIDTH = 100

_SENTENCE_WITHIN = re.compile(r"[a-z]{3}[.?!]['\"”’]? +['\"“‘]?[A-Z]|[。！？].|[a-z] \. [a-z`']")
_HEADING = re.compile(
    r"\W*(?:chapter|book|part|act|scene|volume|canto|section|letter|stave|phase|stanza|epilogue|prologue|preface)"
    r"(?:\s+(?:the\s+)?(?:[ivxlc]+|\d+|first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|last"
    r"|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|twenty\W?\w*|thirty\W?\w*|forty\W?\w*)\b"
    r".{0,60})?\W*$",
    re.IGNORECASE,
)
_SMALL_START = re.compile(r"[\W_]*[a-z]")
_NUMERAL = re.compile(r"\W*(?:[ivxlc]+|\d+)\W*$", re.IGNORECASE)
_PAGE_NUMBER = re.compile(r"(?:\s{2,}|\.{2,}|\. |_{2,}|,? p\. ?)[ivxlc\d]+\.?\s*$", re.IGNORECASE)
_NUMERAL_LETTERS = frozenset("ivxlcIVXLC")
_ENDS_PROSE = (*SENTENCE_ENDS, *":;,\"'”’»)]—-*」")
_CJK_LINE_BREAK = re.compile(r" (?<=[\u3001-\u9fff\uff01-\uff60] )(?=[\u3001-\u9fff\uff01-\uff60])")
_WORD = re.compile(r"[^\W_]")
LONGEST_HEADING = 120
_LONGEST_WORD_BYTES = 1000
# What follows the first byte of a character in UTF-8.
_CONTINUATIONS = bytes(range(0x80, 0xC0))


def read_book(
    file: BinaryIO, part: InputRange, config: IngestConfig, counters: Counters
) -> Iterator[RawDocument]:
    """Yield the documents of one text file (always the whole file).

    Text is UTF-8, or UTF-16 with a byte order mark; a line that is not valid UTF-8 is read as
    Windows-1252 and counted. A file that is not text, or has no prose, is skipped and counted. Ids
    are the name without ``.txt``; if each line or block is a document, followed by ``#0``, ``#1``
    and so on; if a file is cut into books, by ``#1`` from the second.
    """
    stream = _as_utf8(peekable(decompressed(file, part.name, counters)))
    chunks = _chunks(stream, counters)
    start = next(chunks, b"")
    if b"\0" in start:
        counters.skip("not_text", part.name)
        return
    head = _decoded(start, counters)
    rest = (_decoded(chunk, counters) for chunk in chunks)
    nothing = True
    for document in _documents(
        part, head, rest, len(start) >= HEAD_BYTES, counters, config.documents
    ):
        nothing = False
        yield document
    if nothing:
        counters.skip("no_text", part.name)


def _documents(
    part: InputRange,
    head: str,
    rest: Iterator[str],
    continues: bool,
    counters: Counters,
    documents: str,
) -> Iterator[RawDocument]:
    """Yield the documents of a text that comes in pieces of whole lines: its `head`, then the rest."""
    name = stem_of(part.name, ".txt")
    is_book = documents in ("auto", "file") and gutenberg.is_gutenberg(head[:HEAD_BYTES])
    if is_book or part.format == "gutenberg":
        return _gutenberg_documents(name, head, rest, counters)
    head_lines = head.split("\n")
    width = _width(head_lines)
    has_blocks = documents == "auto" and _has_sentence_blocks(head_lines, continues)
    lines = _lines(chain([head], rest))
    if documents == "line":
        parts = ([line] for line in lines if line.strip())
    elif documents == "blank-line" or has_blocks:
        parts = (
            part
            for block in _blank_line_blocks(lines)
            for part in _cut(_block_paragraphs(block, width))
        )
    else:
        return _numbered(_cut(_prose(_blocks(lines, width), counters)), name, name)
    return _numbered(parts, name, f"{name}#0")


def _lines(texts: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a text that comes in pieces of whole lines."""
    return chain.from_iterable(text.split("\n") for text in texts)


def _numbered(parts: Iterator[list[str]], name: str, first: str) -> Iterator[RawDocument]:
    """Make documents of the parts of one file; `first` is the id of the first, the others have a
    number.
    """
    for number, part in enumerate(parts):
        identity = f"{name}#{number}" if number else first
        yield RawDocument(id=identity, source="text", title="", language="", paragraphs=part)


def _gutenberg_documents(
    name: str, head: str, rest: Iterator[str], counters: Counters
) -> Iterator[RawDocument]:
    """Yield the books of a Project Gutenberg file, nearly always one; all but the first have a
    number.
    """
    start = gutenberg.header_end(head)
    width = _width(head[start:].split("\n"))
    identity, number = name, 0
    for (_, header), pieces in groupby(
        gutenberg.split_books(head, start, rest, counters), itemgetter(0, 1)
    ):
        fields = {"title": "", "language": "", **gutenberg.read_header(header)}
        blocks = _blocks(_lines(text for *_, text in pieces), width)
        for part in _cut(_prose(gutenberg.without_apparatus(blocks, width, counters), counters)):
            yield RawDocument(id=identity, source="gutenberg", **fields, paragraphs=part)
            number += 1
            identity = f"{name}#{number}"


def _as_utf8(stream: BinaryIO) -> BinaryIO:
    """Skip a byte order mark; UTF-16 is recoded to UTF-8 while it is read."""
    mark: bytes = stream.peek(3)[:3]  # pyright: ignore[reportAttributeAccessIssue]
    if mark == codecs.BOM_UTF8:
        stream.read(3)
    elif mark[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return codecs.EncodedFile(stream, "utf-8", "utf-16", "replace")  # pyright: ignore[reportReturnType]
    return stream


def _chunks(stream: BinaryIO, counters: Counters) -> Iterator[bytes]:
    """Yield a stream in pieces of whole lines, the first of about `HEAD_BYTES`; longer lines are
    cut after a word.
    """
    chunk = stream.read(HEAD_BYTES) + stream.readline(LONGEST_LINE_BYTES)
    while chunk:
        following = stream.read(CHUNK_BYTES) + stream.readline(LONGEST_LINE_BYTES)
        if following and not chunk.endswith(b"\n"):
            end = max(map(chunk.rfind, (b"\n", b"\r"))) + 1
            if not end:
                end = (
                    chunk.rfind(b" ", -_LONGEST_WORD_BYTES) + 1
                    or len(chunk.rstrip(_CONTINUATIONS)) - 1
                )
                counters.count("long_lines_cut")
            chunk, following = chunk[:end], chunk[end:] + following
        yield chunk
        chunk = following


def _decoded(chunk: bytes, counters: Counters) -> str:
    """Return the lines of a chunk as text, composed (NFC); if it mixes two encodings no line is
    lost.

    U+FFFC goes: it would be taken for the `GAP` of a removal.
    """
    if b"\r" in chunk:
        chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    chunk = chunk.removesuffix(b"\n")
    try:
        text = chunk.decode("utf-8")
    except UnicodeDecodeError:
        text = "\n".join(_decoded_line(line, counters) for line in chunk.split(b"\n"))
    return compose(text.replace(GAP, ""))


def _decoded_line(line: bytes, counters: Counters) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        counters.count("text_lines_read_as_windows_1252")
        return line.decode("cp1252", "replace")


def _width(head: list[str]) -> int:
    """Return the width in characters at which lines are wrapped; 0 if a line is a whole paragraph
    or sentence.
    """
    lines = [line.rstrip() for line in head if line.strip()]
    lengths = sorted(map(len, lines)) or [0]
    width = lengths[len(lengths) * 95 // 100]
    return 0 if width > WRAP_WIDTH or sum(map(ends_sentence, lines)) > 0.6 * len(lines) else width


def _has_sentence_blocks(head: list[str], continues: bool) -> bool:
    """Return whether the file consists of blocks of several lines, each one sentence, between blank
    lines.

    If the documents are books, the first blank line may come after the head, in a file that
    `continues`.
    """
    blocks = [list(block) for block in _blank_line_blocks(head)]
    lines = [line for block in blocks for line in block]
    return (
        (len(blocks) > 1 or continues)
        and len(lines) >= 3 * len(blocks)
        and sum(map(ends_sentence, lines)) >= 0.8 * len(lines)
        and sum(1 for line in lines if _SENTENCE_WITHIN.search(line)) <= 0.2 * len(lines)
    )


def _blank_line_blocks(lines: Iterable[str]) -> Iterator[Iterator[str]]:
    return (
        block
        for is_text, block in groupby(lines, lambda line: bool(line) and not line.isspace())
        if is_text
    )


def _block_paragraphs(block: Iterator[str], width: int) -> Iterator[str]:
    """Yield the paragraphs of the lines between blank lines: the lines, or one of all if they are
    wrapped.
    """
    if not width:
        yield from block
        return
    lines: list[str] = []
    size = 0
    for line in block:
        lines.append(line)
        size += len(line)
        if size > LONGEST_PARAGRAPH:
            yield _joined(lines)
            lines, size = [], 0
    if lines:
        yield _joined(lines)


def _blocks(lines: Iterable[str], width: int) -> Iterator[Block]:
    """Split lines into paragraphs: at blank lines, at headings, after short lines that end a
    sentence; at each if not wrapped.
    """
    block: list[str] = []
    gap = 0
    short = 0.75 * width
    for line in lines:
        if not line or line.isspace():
            if block:
                yield Block(block, gap)
                block, gap = [], 0
            gap += 1
            continue
        if short <= (size := len(line)):
            ends = not width or size > LONGEST_WRAPPED_LINE
        else:
            # "... wrote her a / letter.": within a paragraph only a capital begins a heading.
            heading = _HEADING.match(line) is not None and not (block and _SMALL_START.match(line))
            if heading and block:
                yield Block(block, gap)
                block, gap = [], 0
            ends = heading or ends_sentence(line)
        block.append(line)
        if ends or len(block) == LONGEST_BLOCK_LINES:
            yield Block(block, gap)
            block, gap = [], 0
    if block:
        yield Block(block, gap)


def _prose(blocks: Iterable[Block], counters: Counters) -> Iterator[str]:
    """Yield the blocks that are prose, each as one line; count what is left out."""
    for block in blocks:
        joined = _joined(block.lines)
        text = gutenberg.plain(joined)
        if len(text) < len(joined):
            counters.leave_out("marks", [joined], kept=text)
        if _is_prose(text, block.lines):
            yield text
            continue
        counters.leave_out("headings", [text])
        if _WORD.search(text):
            counters.count("headings_left_out")


def _is_prose(text: str, lines: list[str]) -> bool:
    """Return whether a paragraph is prose: not a heading, numeral, imprint or list, and not all in
    capitals.
    """
    text = text.strip()
    if not _WORD.search(text) or (_is_in_capitals(text) and text[-1] not in "!?\"'”’"):
        return False
    if gutenberg.is_imprint(text):
        return False
    if len(text) < LONGEST_HEADING and (_HEADING.match(text) or _NUMERAL.match(text)):
        return False
    if not text.endswith(_ENDS_PROSE) and _reads_like_a_title(text):
        return False
    return not _has_page_number(lines[-1]) or 2 * sum(map(_has_page_number, lines)) <= len(lines)


def _is_in_capitals(text: str) -> bool:
    """Return whether a text is in capitals; one acronym does not make it so in a script that has
    none.
    """
    return text.isupper() and 2 * sum(map(str.isupper, text)) > sum(map(str.isalpha, text))


def _has_page_number(line: str) -> bool:
    last = line[-12:].rstrip().rstrip(".")[-1:]
    # A cheap check first: few lines reach the regular expression.
    return (last.isdigit() or last in _NUMERAL_LETTERS) and _PAGE_NUMBER.search(
        line[-12:]
    ) is not None


def _reads_like_a_title(text: str) -> bool:
    """Return whether a text without a final full stop is a heading, not a sentence that a stray
    blank line cut.
    """
    words = text.split()
    capitals = sum(1 for word in words if word[0].isupper())
    # Some scripts have neither capitals nor full stops: only the length is left to judge by.
    return len(text) < LONGEST_HEADING and (len(words) <= 6 or 3 * capitals > len(words))


def _joined(lines: list[str]) -> str:
    """Join the lines of a paragraph with spaces, except between Chinese or Japanese characters."""
    text = " ".join(map(str.strip, lines))
    return text if text.isascii() else _CJK_LINE_BREAK.sub("", text)


def _cut(paragraphs: Iterable[str]) -> Iterator[list[str]]:
    """Collect paragraphs into one document, or into parts of the size of a book if they are many
    books.
    """
    part: list[str] = []
    size, longest = 0, LONGEST_DOCUMENT
    for paragraph in paragraphs:
        part.append(paragraph)
        size += len(paragraph)
        if size > longest:
            longest = 2 * BOOK_CHARACTERS
            while size > longest:
                ends = list(accumulate(map(len, part)))
                num_paragraphs = bisect_left(ends, BOOK_CHARACTERS) + 1
                yield part[:num_paragraphs]
                part, size = part[num_paragraphs:], size - ends[num_paragraphs - 1]
    if part:
        yield part
