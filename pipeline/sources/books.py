"""Read plain text and books as documents: paragraphs out of hard-wrapped lines, without headings.

Files are streamed. A document of more than `LONGEST_DOCUMENT` characters would be many books (as in
``bookcorpus/bookcorpus``: nothing separates the books); it is cut between paragraphs into parts of
`BOOK_CHARACTERS` to twice that, so that memory is bounded.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate, chain, groupby, islice
from operator import itemgetter

from ..config import IngestConfig
from ..counters import Counters
from ..text import aozora, gutenberg
from ..text.books import (
    blank_line_blocks,
    block_paragraphs,
    has_sentence_blocks,
    hyphens_of,
    is_double_spaced,
    prose,
    single_spaced,
    split_blocks,
    wrap_width,
)
from ..text.markdown import markdown_paragraphs, open_fence
from ..text.sentence_ends import ends_sentence
from .streams import InputRange, RawDocument
from .texts import HEAD_BYTES

LONGEST_DOCUMENT = 4_000_000
BOOK_CHARACTERS = 400_000
"""The average book of BooksCorpus: 985 million words in 11,038 books."""
_PAGE_HEAD = re.compile(r"\f\s*(?:\d+\s{2,}\S.{0,80}|\S.{0,80}\s{2,}\d+|\d+)\s*$")


def read_book(
    texts: Iterator[str], input_range: InputRange, config: IngestConfig, counters: Counters
) -> Iterator[RawDocument]:
    """Yield the documents of one text file (always the whole file), given in pieces of whole lines.

    Ids are the name without ``.txt``; if each line or block is a document, followed by ``#0``,
    ``#1`` and so on; if a file is cut into books, by ``#1`` from the second.
    """
    # The form of the text is judged by the first piece; the rest is read while it is consumed.
    head = next(texts, "")
    following = list(islice(texts, 1))
    texts = chain(following, texts)
    stem = input_range.stem
    unit = config.documents
    is_gutenberg = input_range.format == "gutenberg" or (
        unit in ("auto", "file") and gutenberg.is_gutenberg(head[:HEAD_BYTES])
    )
    source = "text"
    if is_gutenberg:
        source = "gutenberg"
        unit = "file"
        documents = _gutenberg_documents(stem, head, texts, config, counters)
    else:
        continues = bool(following)
        is_of_blocks = unit == "auto" and has_sentence_blocks(head.split("\n"), continues=continues)
        if unit == "sentence" or is_of_blocks:
            unit = "blank-line"
        documents = _text_documents(stem, head, texts, unit, config, counters)
    number = -1
    for number, (header, paragraphs) in enumerate(documents):
        identity = f"{stem}#{number}"
        if number == 0 and unit in ("auto", "file", "markdown"):
            identity = stem
        yield RawDocument(
            id=identity,
            source=source,
            title=header.get("title", ""),
            language=header.get("language", ""),
            paragraphs=paragraphs,
        )
    if number < 0:
        counters.skip("no_text", input_range.name)


_Documents = Iterator[tuple[dict[str, str], list[str]]]
"""The fields of the header, if there is one, and the paragraphs of each document."""


def _text_documents(
    name: str, head: str, rest: Iterator[str], unit: str, config: IngestConfig, counters: Counters
) -> _Documents:
    lines = _lines(chain([head], rest))
    fields = {}
    is_book = unit in ("auto", "file")
    is_aozora = is_book and aozora.is_aozora(head)
    if is_aozora:
        fields = {"title": head.lstrip().partition("\n")[0].strip(), "language": "ja"}
        lines = aozora.book_lines(lines, counters)
    if "\f" in head:
        lines = _without_running_heads(lines, counters)
    head_lines = head.split("\n")
    width = 0 if is_aozora else wrap_width(head_lines)
    if is_book and is_double_spaced(head_lines, width):
        lines = single_spaced(lines, width)
    if unit == "line":
        documents = ([line] for line in lines if line.strip())
    elif unit == "markdown":
        documents = _cut(_markdown_paragraphs(chain([head], rest), config.language, counters))
    elif unit == "blank-line":
        documents = chain.from_iterable(
            _cut(block_paragraphs(block, width)) for block in blank_line_blocks(lines)
        )
    else:
        blocks = split_blocks(lines, width, keeps_lines=config.keep_lines)
        paragraphs = prose(
            blocks, name, counters, keeps_lines=config.keep_lines, hyphens=hyphens_of(head)
        )
        documents = _cut(paragraphs)
    for paragraphs in documents:
        yield fields, paragraphs


def _gutenberg_documents(
    name: str, head: str, rest: Iterator[str], config: IngestConfig, counters: Counters
) -> _Documents:
    """Yield the books of a Project Gutenberg file, nearly always one."""
    start = gutenberg.header_end(head)
    width = wrap_width(head[start:].split("\n"))
    pieces = gutenberg.split_books(head, start, rest, counters)
    for (_, header), pieces_of_book in groupby(pieces, itemgetter(0, 1)):
        fields = gutenberg.read_header(header)
        blocks = split_blocks(_lines(piece for _, _, piece in pieces_of_book), width)
        # Notes and contents go first: they could be taken for the prose that ends the title page.
        blocks = gutenberg.without_notes(blocks, counters)
        blocks = gutenberg.without_lists(blocks, width, counters)
        blocks = gutenberg.without_front(blocks, counters)
        blocks = gutenberg.without_advertisements(blocks, counters)
        for paragraphs in _cut(prose(blocks, name, counters, keeps_lines=config.keep_lines)):
            yield fields, paragraphs


def _markdown_paragraphs(texts: Iterable[str], language: str, counters: Counters) -> Iterator[str]:
    held = ""
    for text in texts:
        # A paragraph may go on in the next piece, but is no longer than one.
        whole, _, rest = f"{held}\n{text}".rpartition("\n\n")
        yield from markdown_paragraphs(whole or rest, language, counters)
        held = f"{open_fence(whole or rest)}\n{rest if whole else ''}"
    yield from markdown_paragraphs(held, language, counters)


def _lines(texts: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a text that comes in pieces of whole lines."""
    return chain.from_iterable(text.split("\n") for text in texts)


def _without_running_heads(lines: Iterable[str], counters: Counters) -> Iterator[str]:
    """Yield lines without those that begin a page and end with its number, and without the blank
    ones that follow them within a sentence.

        "... the chart again,"   "\\fTHE ISLAND    2"   ""   "though he knew ..."
    """
    before = ""
    skips_blank = False
    for line in lines:
        if line.startswith("\f") and _PAGE_HEAD.match(line):
            counters.leave_out("headings", [line])
            counters.count("headings_left_out")
            skips_blank = bool(before.strip()) and not ends_sentence(before)
            continue
        if skips_blank and not line.strip():
            continue
        skips_blank = False
        before = line
        yield line


def _cut(paragraphs: Iterable[str]) -> Iterator[list[str]]:
    """Collect paragraphs into one document, or, if that exceeds `LONGEST_DOCUMENT`, into several of
    a book's size, each when twice that is held.
    """
    document = []
    num_characters = 0
    most_characters = LONGEST_DOCUMENT
    for paragraph in paragraphs:
        document.append(paragraph)
        num_characters += len(paragraph)
        if num_characters > most_characters:
            most_characters = 2 * BOOK_CHARACTERS
            #   lengths   150k  200k  100k  300k  ...
            #   ends      150k  350k  450k  750k  ...     450k is the first end at 400k or beyond
            while num_characters > most_characters:
                ends = list(accumulate(map(len, document)))
                num_paragraphs = bisect_left(ends, BOOK_CHARACTERS) + 1
                yield document[:num_paragraphs]
                document = document[num_paragraphs:]
                num_characters -= ends[num_paragraphs - 1]
    if document:
        yield document
