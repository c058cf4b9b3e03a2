"""Read plain text and books as documents: paragraphs out of hard-wrapped lines, without headings.

`config.documents` defines what a document is in a text file:

- ``file``: the whole file, read as a book: a blank line ends a paragraph, hard-wrapped lines are
  joined, headings, rulers, lists with page numbers and what Project Gutenberg puts around a book
  are left out;
- ``blank-line``: the lines between blank lines, one paragraph each (or one together if lines are
  hard-wrapped);
- ``line``: each line;
- ``sentence``: as ``blank-line``;
- ``auto``: ``blank-line`` if the file has the form of google-research's ``sample_text.txt`` (blocks
  of several lines between blank lines; nearly every line ends a sentence), else ``file``.

Files are streamed. A document of more than `LONGEST_DOCUMENT` characters would be many books (as in
``bookcorpus/bookcorpus``: nothing separates the books); it is cut between paragraphs into parts of
the size of a book, `BOOK_CHARACTERS` to twice that. So memory is bounded, and a document is never a
single sentence.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, chain, groupby
from operator import itemgetter
from typing import BinaryIO

from ..config import IngestConfig
from ..counters import Counters
from ..encodings import CHARACTERS_PER_DAMAGE_IN_PLACES, is_damage
from ..text import gutenberg
from ..text.gutenberg import Block
from ..text.sentences import compose, ends_sentence
from ..text.wikitext.repair import GAP
from .records import InputRange, RawDocument
from .streams import BOM, stem_of, text_stream

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
LINES_OF_PART = 200
LONGEST_PART = 100_000
"""A book's lines are judged in parts, because some may be wrapped and others not."""
MOST_HEADINGS = 0.03
"""The share of a book that headings may be, before they are warned about."""
FEW_HEADINGS = 2000
"""Characters; a short text may be half title."""

# Share of the lines that end a sentence: nearly all if each is a sentence, few if they are wrapped.
_MOST_ENDS_IN_WRAPPED = 0.6
_MOST_ENDS_IN_UNEVEN = 0.3
_SHORTEST_WRAPPING = 50

_SENTENCE_WITHIN = re.compile(r"[a-z]{3}[.?!]['\"”’]? +['\"“‘]?[A-Z]|[。！？].|[a-z] \. [a-z`']")
# "CHAPTER IV. The Storm", "Book the Second", "* EPILOGUE *"
_HEADING = re.compile(
    r"\W*(?:chapter|book|part|act|scene|volume|canto|section|letter|stave|phase|stanza"
    r"|epilogue|prologue|preface)"
    r"(?:\s+(?:the\s+)?(?:[ivxlc]+|\d+"
    r"|first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|last"
    r"|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen"
    r"|twenty\W?\w*|thirty\W?\w*|forty\W?\w*)\b"
    r".{0,60})?\W*$",
    re.IGNORECASE,
)
_ITEM = re.compile(r"\s*(?:[-–*•]|\d{1,2}[.)])\s")
_SMALL_START = re.compile(r"[\W_]*[a-z]")
_NUMERAL = re.compile(r"\W*(?:[ivxlc]+|\d+)\W*$", re.IGNORECASE)
# As at the end of a line of contents: "The Storm ..... 45", "The Storm, p. xii".
_PAGE_NUMBER = re.compile(r"(?:\s{2,}|\.{2,}|\. |_{2,}|,? p\. ?)[ivxlc\d]+\.?\s*$", re.IGNORECASE)
_NUMERAL_LETTERS = frozenset("ivxlcIVXLC")
_ENDS_PROSE = tuple(":;,\"'”’»)]—–-*」")
# A blank between two Chinese or Japanese characters is where lines were joined.
_CJK_LINE_BREAK = re.compile(r" (?<=[\u3001-\u9fff\uff01-\uff60] )(?=[\u3001-\u9fff\uff01-\uff60])")
_WORD = re.compile(r"[^\W_]")
_DIGIT = re.compile(r"\d")
# Three columns, set apart by more than the two spaces of old typists.
_TABLE_ROW = re.compile(r"\S {3,}\S.*\S {3,}\S")
_DEEP_INDENT = " " * 20
LONGEST_HEADING = 120
_PLACE_CHARACTERS = 1 << 14
_LONGEST_WORD_BYTES = 1000
# The bytes that follow the first one of a character in UTF-8.
_CONTINUATIONS = bytes(range(0x80, 0xC0))


def read_book(
    file: BinaryIO, input_range: InputRange, config: IngestConfig, counters: Counters
) -> Iterator[RawDocument]:
    """Yield the documents of one text file (always the whole file).

    Text is in the range's encoding. In UTF-8 a few bad bytes become U+FFFD, and their lines are
    counted; where there are many, the text is in another encoding, and its rest is left out
    (``unknown_encoding``). A file that is not text, or has no prose, is skipped and counted. Ids
    are the name without ``.txt``; if each line or block is a document, followed by ``#0``, ``#1``
    and so on; if a file is cut into books, by ``#1`` from the second.
    """
    name = input_range.name
    stream = text_stream(file, name, input_range.encoding, counters)
    # The form of the text is judged by the first piece; the rest is read while it is consumed.
    chunks = _chunks(stream, counters)
    first_chunk = next(chunks, b"")
    if b"\0" in first_chunk:  # no text has it, but nearly all other files
        counters.skip("not_text", name)
        return
    texts = _decoded_chunks(chain([first_chunk], chunks), name, counters)
    text = _Text(
        name=stem_of(name, ".txt"),
        format=input_range.format,
        head=next(texts, ""),
        rest=texts,
        continues=len(first_chunk) >= HEAD_BYTES,
        keeps_lines=config.keep_lines,
    )
    has_document = False
    for document in _documents(text, config.documents, counters):
        has_document = True
        yield document
    if not has_document:
        counters.skip("no_text", name)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Text:
    """A decoded text, in pieces of whole lines."""

    name: str
    """The file's name without suffixes."""
    format: str
    head: str
    """The first piece, by which the form of the text is judged."""
    rest: Iterator[str]
    continues: bool
    """Whether there is more than the head."""
    keeps_lines: bool
    """Whether nothing is left out as a heading or table."""

    def lines(self) -> Iterator[str]:
        return _lines(chain([self.head], self.rest))


def _documents(text: _Text, unit: str, counters: Counters) -> Iterator[RawDocument]:
    """Yield the documents of a text; `unit` is what `config.documents` says is a document."""
    is_gutenberg = unit in ("auto", "file") and gutenberg.is_gutenberg(text.head[:HEAD_BYTES])
    if is_gutenberg or text.format == "gutenberg":
        return _gutenberg_documents(text, counters)
    if unit == "line":
        return _numbered(_line_documents(text), text.name, f"{text.name}#0")
    if unit == "sentence":
        unit = "blank-line"
    head_lines = text.head.split("\n")
    width = _width(head_lines)
    if unit == "auto" and _has_sentence_blocks(head_lines, text.continues):
        unit = "blank-line"
    if unit == "blank-line":
        return _numbered(_block_documents(text, width), text.name, f"{text.name}#0")
    blocks = _blocks(text.lines(), width, keeps_lines=text.keeps_lines)
    paragraphs = _prose(blocks, text, counters)
    return _numbered(_cut(paragraphs), text.name, text.name)


def _line_documents(text: _Text) -> Iterator[list[str]]:
    for line in text.lines():
        if line.strip():
            yield [line]


def _block_documents(text: _Text, width: int) -> Iterator[list[str]]:
    for block in _blank_line_blocks(text.lines()):
        yield from _cut(_block_paragraphs(block, width))


def _lines(texts: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a text that comes in pieces of whole lines."""
    return chain.from_iterable(text.split("\n") for text in texts)


def _numbered(documents: Iterator[list[str]], name: str, first_id: str) -> Iterator[RawDocument]:
    """Make documents of the paragraphs in one file; all but the first have a number in their id."""
    for number, paragraphs in enumerate(documents):
        identity = f"{name}#{number}" if number else first_id
        yield RawDocument(id=identity, source="text", title="", language="", paragraphs=paragraphs)


def _gutenberg_documents(text: _Text, counters: Counters) -> Iterator[RawDocument]:
    """Yield the books of a Project Gutenberg file, nearly always one.

    All but the first have a number in their id.
    """
    start = gutenberg.header_end(text.head)
    width = _width(text.head[start:].split("\n"))
    identity = text.name
    number = 0
    pieces = gutenberg.split_books(text.head, start, text.rest, counters)
    for (_, header), pieces_of_book in groupby(pieces, itemgetter(0, 1)):
        fields = gutenberg.read_header(header)
        blocks = _blocks(_lines(piece for _, _, piece in pieces_of_book), width)
        blocks = gutenberg.without_apparatus(blocks, width, counters)
        for paragraphs in _cut(_prose(blocks, text, counters)):
            yield RawDocument(
                id=identity,
                source="gutenberg",
                title=fields.get("title", ""),
                language=fields.get("language", ""),
                paragraphs=paragraphs,
            )
            number += 1
            identity = f"{text.name}#{number}"


def _chunks(stream: BinaryIO, counters: Counters) -> Iterator[bytes]:
    """Yield a stream in pieces of whole lines, the first of about `HEAD_BYTES`, without byte order
    mark.

    A line of more than a piece is cut after a word.
    """
    # One piece ahead, because only then it is known whether this one ends in the middle of a line.
    start = stream.read(len(BOM)).removeprefix(BOM)
    chunk = start + stream.read(HEAD_BYTES - len(start)) + stream.readline(LONGEST_LINE_BYTES)
    while chunk:
        following = stream.read(CHUNK_BYTES) + stream.readline(LONGEST_LINE_BYTES)
        if following and not chunk.endswith(b"\n"):
            # Files of old Macs have "\r" at the end of each line.
            end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
            if end == 0:
                end = _last_word_end(chunk)
                counters.count("long_lines_cut")
            following = chunk[end:] + following
            chunk = chunk[:end]
        yield chunk
        chunk = following


def _last_word_end(chunk: bytes) -> int:
    """Return where to cut a piece of a line: after its last space, or before its last character."""
    after_space = chunk.rfind(b" ", -_LONGEST_WORD_BYTES) + 1
    if after_space:
        return after_space
    return len(chunk.rstrip(_CONTINUATIONS)) - 1


def _decoded_chunks(chunks: Iterable[bytes], name: str, counters: Counters) -> Iterator[str]:
    """Yield the text of chunks, up to one that is not UTF-8."""
    num_bytes = 0
    for chunk in chunks:
        text = _decoded(chunk, counters)
        # The search is fast, and most texts have none.
        if "\ufffd" in text:
            num_readable = _num_readable(text)
            if num_readable < len(text):
                num_bytes += len(text[:num_readable].encode())
                counters.skip("unknown_encoding", f"{name}, from about byte {num_bytes} on")
                yield text[:num_readable]
                return
        yield text
        num_bytes += len(chunk)


def _num_readable(text: str) -> int:
    """Return the number of characters before the first place that is not UTF-8 with a few damaged
    characters; all if there is none. It ends with a line.
    """
    for start in range(0, len(text), _PLACE_CHARACTERS):
        place = text[start : start + _PLACE_CHARACTERS]
        if not is_damage(place, CHARACTERS_PER_DAMAGE_IN_PLACES):
            return text.rfind("\n", 0, start + place.index("\ufffd")) + 1
    return len(text)


def _decoded(chunk: bytes, counters: Counters) -> str:
    """Return the lines of a chunk as text, composed (NFC).

    U+FFFC goes, because it would be taken for the `GAP` of a removal.
    """
    if b"\r" in chunk:  # rare, and the search is cheaper than the replacements
        # "\r\r\n" is what Windows makes of "\r\n".
        chunk = re.sub(rb"\r{0,2}\n|\r", b"\n", chunk)
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
        counters.count("text_lines_with_invalid_utf8")
        return line.decode("utf-8", "replace")


def _width(lines: list[str]) -> int:
    """Return the width in characters at which lines are wrapped; 0 if a line is a whole paragraph
    or sentence.
    """
    lines = [line.rstrip() for line in lines if line.strip()]
    if not lines:
        return 0
    lengths = sorted(map(len, lines))
    median = lengths[len(lengths) // 2]
    # Not the longest: a table or an address may be wider.
    width = lengths[len(lengths) * 95 // 100]
    # Wrapping cuts sentences anywhere: few of its lines end with one.
    share_of_ends = sum(map(ends_sentence, lines)) / len(lines)
    if width <= WRAP_WIDTH:
        return width if share_of_ends <= _MOST_ENDS_IN_WRAPPED else 0
    # Some lines of an uneven wrapping, as of two lines joined where a page ends, are very long.
    is_uneven = median <= WRAP_WIDTH and share_of_ends <= _MOST_ENDS_IN_UNEVEN
    return median if is_uneven else 0


def _with_widths(lines: Iterable[str], width: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the parts of a book whose lines are wrapped at `width`, each with its own width.

    A part is judged on its own if its lines are much longer than in the beginning, or shorter.
    """
    for part in _parts(lines):
        mean_length = sum(map(len, part)) / len(part)
        is_as_before = mean_length <= WRAP_WIDTH if width else mean_length > WRAP_WIDTH
        yield width if is_as_before else _width_of_part(part, width), part


def _parts(lines: Iterable[str]) -> Iterator[list[str]]:
    part: list[str] = []
    num_characters = 0
    for line in lines:
        part.append(line)
        num_characters += len(line)
        if len(part) == LINES_OF_PART or num_characters > LONGEST_PART:
            yield part
            part = []
            num_characters = 0
    if part:
        yield part


def _width_of_part(lines: list[str], width: int) -> int:
    """Return the width of a part; that of the book if there is no clear sign of another.

    Verse and contents have short lines, too, so the lines of a wrapped part must be full.
    """
    own_width = _width(lines)
    if width:
        return own_width and width
    is_full = sum(map(len, lines)) > own_width * len(lines) / 2
    return own_width if own_width > _SHORTEST_WRAPPING and is_full else 0


def _has_sentence_blocks(head: list[str], continues: bool) -> bool:
    """Return whether the file consists of blocks of lines, each a sentence, between blank lines.

    If the documents are books, the first blank line may come after the head, in a file that
    `continues`.
    """
    blocks = [list(block) for block in _blank_line_blocks(head)]
    lines = [line for block in blocks for line in block]
    if len(blocks) <= 1 and not continues:
        return False
    if len(lines) < 3 * len(blocks):
        return False
    if sum(map(ends_sentence, lines)) < 0.8 * len(lines):
        return False
    num_with_several = sum(1 for line in lines if _SENTENCE_WITHIN.search(line))
    return num_with_several <= 0.2 * len(lines)


def _blank_line_blocks(lines: Iterable[str]) -> Iterator[Iterator[str]]:
    for has_text, block in groupby(lines, _has_text):
        if has_text:
            yield block


def _has_text(line: str) -> bool:
    return bool(line) and not line.isspace()


def _block_paragraphs(block: Iterator[str], width: int) -> Iterator[str]:
    """Yield the paragraphs of the lines between blank lines.

    Each line is one, or all together if they are wrapped.
    """
    if not width:
        yield from block
        return
    lines: list[str] = []
    num_characters = 0
    for line in block:
        lines.append(line)
        num_characters += len(line)
        if num_characters > LONGEST_PARAGRAPH:
            yield _joined(lines)
            lines = []
            num_characters = 0
    if lines:
        yield _joined(lines)


def _blocks(lines: Iterable[str], width: int, *, keeps_lines: bool = False) -> Iterator[Block]:
    """Split lines into paragraphs.

    Wrapped lines are split at blank lines, at headings, and after short lines that end a sentence;
    with `keeps_lines` after all short lines, and before the items of a list. If lines are not
    wrapped (`width` is 0), each is a paragraph.
    """
    block: list[str] = []
    gap = 0
    for part_width, part in _with_widths(lines, width):
        for line in part:
            if not line or line.isspace():
                if block:
                    yield Block(block, gap)
                    block = []
                    gap = 0
                gap += 1
                continue
            # A full line of wrapped text continues in the next, even if a sentence ends with it.
            is_full = len(line) >= 0.75 * part_width
            is_heading = not is_full and _HEADING.match(line) is not None
            if is_heading and block and _SMALL_START.match(line):
                # "... wrote her a / letter.": within a paragraph only a capital begins a heading.
                is_heading = False
            begins_item = keeps_lines and _ITEM.match(line) is not None
            if (is_heading or begins_item) and block:
                yield Block(block, gap)
                block = []
                gap = 0
            block.append(line)
            if is_full:
                ends_paragraph = not part_width or len(line) > LONGEST_WRAPPED_LINE
            else:
                ends_paragraph = is_heading or keeps_lines or ends_sentence(line)
            if ends_paragraph or len(block) == LONGEST_BLOCK_LINES:
                yield Block(block, gap)
                block = []
                gap = 0
    if block:
        yield Block(block, gap)


def _prose(blocks: Iterable[Block], text: _Text, counters: Counters) -> Iterator[str]:
    """Yield the blocks of a text that are prose, each as one line; count what is left out."""
    within_table = False
    num_kept = 0
    num_in_headings = 0
    for block in blocks:
        within_table = _is_table(block.lines) or (within_table and _is_cell(block))
        if within_table and not text.keeps_lines:
            counters.leave_out("tables", block.lines)
            continue
        joined = _joined(block.lines)
        # Many texts outside Gutenberg have its marks, too: _emphasis_, [1], [Illustration].
        plain = gutenberg.plain(joined)
        if len(plain) < len(joined):
            counters.leave_out("marks", [joined], kept=plain)
        if text.keeps_lines or _is_prose(plain, block.lines):
            num_kept += len(plain)
            yield plain
            continue
        num_in_headings += len(plain)
        counters.leave_out("headings", [plain])
        if _WORD.search(plain):
            counters.count("headings_left_out")
    num_characters = num_kept + num_in_headings
    if num_in_headings > max(FEW_HEADINGS, MOST_HEADINGS * num_characters):
        counters.note("books_with_many_headings", text.name)


def _is_prose(text: str, lines: list[str]) -> bool:
    """Return whether a paragraph is prose.

    A heading, numeral, imprint or list is not, nor a text in capitals that nobody shouts.
    """
    text = text.strip()
    if not _WORD.search(text):
        return False
    if _is_in_capitals(text) and text[-1] not in "!?\"'”’“‘»«":
        return False
    if gutenberg.is_imprint(text):
        return False
    if len(text) < LONGEST_HEADING and (_HEADING.match(text) or _NUMERAL.match(text)):
        return False
    ends_prose = ends_sentence(text) or text.endswith(_ENDS_PROSE)
    if not ends_prose and _reads_like_a_title(text):
        return False
    # A table of contents has a page number at the end of most lines.
    if not _has_page_number(lines[-1]):
        return True
    return sum(map(_has_page_number, lines)) <= len(lines) / 2


def _is_table(lines: list[str]) -> bool:
    """Return whether half the lines are rows of a table with three columns or more.

        Dec. 25. 7a.m.    29.10 739    50    50    Morning cool and clear.
                 Noon.    29.20 -      72    68    Very clear, still, and
                                                   hot. Slight breeze.

    Further lines of a cell are as deep as the last column. A single row has a number: in some texts
    three spaces stand for a dash.
    """
    if not any("   " in line.strip() for line in lines):
        return False
    rows: list[str] = []
    num_cells = 0
    for line in lines:
        if len(line) <= WRAP_WIDTH and _TABLE_ROW.search(line) and _WORD.search(line):
            rows.append(line)
        elif line.startswith(_DEEP_INDENT):
            num_cells += 1
    if len(rows) == 1 and not _DIGIT.search(rows[0]):
        return False
    return len(rows) > 0 and len(rows) + num_cells >= len(lines) / 2


def _is_cell(block: Block) -> bool:
    """Return whether a block after a table continues one of its cells."""
    return not block.gap and block.lines[0].startswith(_DEEP_INDENT)


def _is_in_capitals(text: str) -> bool:
    """Return whether a text is in capitals.

    In a script without capitals, such as Korean, one acronym does not make it so.
    """
    if not text.isupper():  # it has a small letter, as most texts, and needs no count
        return False
    num_capitals = sum(map(str.isupper, text))
    num_letters = sum(map(str.isalpha, text))
    return num_capitals > num_letters / 2


def _has_page_number(line: str) -> bool:
    line_end = line[-12:]
    last = line_end.rstrip().rstrip(".")[-1:]
    # A cheap check first: few lines reach the regular expression.
    if not last.isdigit() and last not in _NUMERAL_LETTERS:
        return False
    return _PAGE_NUMBER.search(line_end) is not None


def _reads_like_a_title(text: str) -> bool:
    """Return whether a text without a final full stop is a heading.

    It may also be a sentence that a stray blank line cut.
    """
    if len(text) >= LONGEST_HEADING:
        return False
    # Some scripts have neither capitals nor full stops: only the length is left to judge by.
    words = text.split()
    num_capitals = sum(1 for word in words if word[0].isupper())
    return len(words) <= 6 or num_capitals > len(words) / 3


def _joined(lines: list[str]) -> str:
    """Join the lines of a paragraph with spaces, except between Chinese or Japanese characters."""
    text = " ".join(map(str.strip, lines))
    if text.isascii():
        return text
    return _CJK_LINE_BREAK.sub("", text)


def _cut(paragraphs: Iterable[str]) -> Iterator[list[str]]:
    """Collect paragraphs into one document, or into several of a book's size.

    Nothing is cut before `LONGEST_DOCUMENT` is exceeded, which shows that they are many books; from
    then on a document ends when twice the size of a book is held.
    """
    document: list[str] = []
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
