"""The paragraphs of a plain text or book: hard-wrapped lines are joined, and what a break or the
mark of a page cut in two; headings, rulers, tables and lists with page numbers are left out.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, pairwise

from ..counters import Counters
from ..memory import cut_by_size
from . import gutenberg
from .gutenberg import Block
from .sentence_ends import ends_sentence

LONGEST_PARAGRAPH = 1_000_000
WRAP_WIDTH = 100

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
# The first letter of what may continue a sentence: not of an item, "a) …", "- …".
_CONTINUATION = re.compile(r"[\s\"'“”‘’«»„_*…]*([^\W\d_])(?!(?<![^\W_].)[.)]\s)")
# What stands between the halves of a sentence where a page ends: its number, perhaps with a running
# head in capitals; a picture or note; a ruler.
_PAGE_MARK = re.compile(
    r"\s*(?:\[(?:illustration|picture|sidenote|footnote|decoration|blank page|pg|page)\b[^\]]*\]?"
    r"|[\W_]*(?:page |pg\.? |p\. ?)?(?:\d{1,4}|(?-i:[ivxlc]{1,7}|[IVXLC]{2,7}))[\W_]*|[\W_]+"
    r"|(?-i:\d{1,4}\W+[^a-z\n]{3,60}|[^a-z\n]{3,60}\W\d{1,4}\W*))$",
    re.IGNORECASE,
)
_NUMERAL = re.compile(r"\W*(?:[ivxlc]+|\d+)\W*$", re.IGNORECASE)
# As at the end of a line of contents: "The Storm ..... 45", "The Storm, p. xii".
_PAGE_NUMBER = re.compile(r"(?:\s{2,}|\.{2,}|\. |_{2,}|,? p\. ?)[ivxlc\d]+\.?\s*$", re.IGNORECASE)
_ENDS_PROSE = tuple(":;,\"'”’»)]—–-*」")
# A blank between two Chinese or Japanese characters is where lines were joined.
_CJK_LINE_BREAK = re.compile(r" (?<=[\u3001-\u9fff\uff01-\uff60] )(?=[\u3001-\u9fff\uff01-\uff60])")
_WORD = re.compile(r"[^\W_]")
_DIGIT = re.compile(r"\d")
# Three columns, set apart by more than the two spaces of old typists.
_TABLE_ROW = re.compile(r"\S {3,}\S.*\S {3,}\S")
_DEEP_INDENT = " " * 20
LONGEST_HEADING = 120
FULL_SHARE = 0.75
"""A line of wrapped text that has this share of the width may go on in the next."""
_MIN_WRAP_WIDTH = 40


def is_wrapped(lines: Sequence[str]) -> bool:
    """Return whether the lines of a text are cut at some width."""
    if len(lines) < 20:  # so few may be of one length by chance
        return False
    median, width = _typical_lengths(lines)
    return _MIN_WRAP_WIDTH <= width <= WRAP_WIDTH and median >= 0.75 * width


def _typical_lengths(lines: Sequence[str]) -> tuple[int, int]:
    """Return the median length, and one that few lines exceed, such as tables and addresses."""
    lengths = sorted(map(len, lines))
    return lengths[len(lengths) // 2], lengths[len(lengths) * 95 // 100]


def wrap_width(lines: Sequence[str]) -> int:
    """Return the width at which lines are wrapped; 0 if a line is a whole paragraph."""
    lines = [line.rstrip() for line in lines if line.strip()]
    if not lines:
        return 0
    median, width = _typical_lengths(lines)
    # Wrapping cuts sentences anywhere: few of its full lines end with one, and nearly all do if
    # each is a paragraph. Short lines end a paragraph either way, or name who speaks in a play.
    if width <= WRAP_WIDTH:
        full_length = FULL_SHARE * width
        lines = [line for line in lines if len(line) >= full_length]
    share_of_ends = sum(map(ends_sentence, lines)) / len(lines)
    if width <= WRAP_WIDTH:
        return width if share_of_ends <= 0.6 else 0
    # Some lines of an uneven wrapping, as of two lines joined where a page ends, are very long: its
    # width says less, so that the ends must say more.
    is_uneven = _MIN_WRAP_WIDTH <= median <= WRAP_WIDTH and share_of_ends <= 0.45
    return median if is_uneven else 0


def has_sentence_blocks(head: Sequence[str], *, continues: bool) -> bool:
    """Return whether the file consists of blocks of lines, each a sentence, between blank lines.

    If the documents are books, the first blank line may come after the head, in a file that
    `continues`.
    """
    blocks = [list(block) for block in blank_line_blocks(head)]
    lines = [line for block in blocks for line in block]
    if len(blocks) <= 1 and not continues:
        return False
    if len(lines) < 3 * len(blocks):
        return False
    if sum(map(ends_sentence, lines)) < 0.8 * len(lines):
        return False
    num_with_several = sum(1 for line in lines if _SENTENCE_WITHIN.search(line))
    return num_with_several <= 0.2 * len(lines)


def blank_line_blocks(lines: Iterable[str]) -> Iterator[Iterator[str]]:
    """Yield the lines between blank lines."""
    for is_blank, block in groupby(lines, lambda line: not line or line.isspace()):
        if not is_blank:
            yield block


def is_double_spaced(lines: Sequence[str], width: int) -> bool:
    """Return whether each line is followed by a blank one, within sentences, too."""
    pairs = [
        (line, following) for line, following in pairwise(lines) if line and not line.isspace()
    ]
    num_spaced = sum(1 for _, following in pairs if not following.strip())
    if not width or num_spaced <= 0.95 * len(pairs):
        return False
    # Items of a list stand apart, too, but few begin in small letters, as half of all lines do.
    return sum(1 for line, _ in pairs if _continues(line)) > 0.25 * len(pairs)


def single_spaced(lines: Iterable[str], width: int) -> Iterator[str]:
    """Yield the lines of a double-spaced text, without the blank ones within paragraphs."""
    before = ""
    for line, following in pairwise(chain(lines, [""])):
        goes_on = len(before) >= FULL_SHARE * width and not ends_sentence(before)
        if line.strip():
            yield line
            before = line
        elif not following.strip() or not (goes_on or _continues(following)):
            yield line
            before = ""


def hyphens_of(head: str) -> str:
    """Return the characters that end a line within a word in a text that begins with `head`.

    ¬ and a soft hyphen always do, ‐ and = where most lines that end so go on in small letters.
    """
    hyphens = "¬\xad"
    for mark in "‐=":
        if f"{mark}\n" in head:  # hardly ever
            following = re.findall(rf"[^\W\d_]{mark}\n\s*(.)", head)
            if sum(map(str.islower, following)) > len(following) / 2:
                hyphens += mark
    return hyphens


def block_paragraphs(block: Iterator[str], width: int) -> Iterator[str]:
    """Yield the paragraphs of the lines between blank lines: each line, or all if wrapped."""
    if not width:
        yield from block
        return
    yield from map(_joined, cut_by_size(block, len, LONGEST_PARAGRAPH))


def split_blocks(lines: Iterable[str], width: int, *, keeps_lines: bool = False) -> Iterator[Block]:
    """Split lines into paragraphs.

    Wrapped lines are split at blank lines, at headings, and after short lines that end a sentence;
    with `keeps_lines` after all short lines, and before the items of a list. If lines are not
    wrapped (`width` is 0), each is a paragraph.
    """
    # A paragraph takes bounded memory, whatever the file.
    longest_line = 10_000
    most_lines = 5000
    full_length = FULL_SHARE * width
    block = []
    gap = 0
    for line in lines:
        is_blank = not line or line.isspace()
        # A full line of wrapped text continues in the next, even if a sentence ends with it.
        is_full = len(line) >= full_length
        is_heading = not (is_full or is_blank) and _HEADING.match(line) is not None
        begins_item = keeps_lines and _ITEM.match(line) is not None
        if block and (is_blank or is_heading or begins_item):
            yield Block(block, gap)
            block = []
            gap = 0
        if is_blank:
            gap += 1
            continue
        block.append(line)
        if is_full:
            # A part of a book may have a paragraph a line, or two pages may have been joined.
            is_whole = len(line) > 2 * WRAP_WIDTH and ends_sentence(line)
            ends_paragraph = not width or is_whole or len(line) > longest_line
        else:
            ends_paragraph = is_heading or keeps_lines or ends_sentence(line)
        if ends_paragraph or len(block) == most_lines:
            yield Block(block, gap)
            block = []
            gap = 0
    if block:
        yield Block(block, gap)


def rejoined(blocks: Iterable[Block]) -> Iterator[Block]:
    """Join the pieces of a paragraph that a break or the mark of a page cut within a sentence.

    A piece has no end mark, and the next one begins in small letters. The last ends a sentence, or
    the others are as long as lines: else they are items of a list. Marks of pages that stand
    between them come behind.

        "... knocked at the"   "[Pg 45]"   "door of the house. Nobody was there."
    """
    held = []
    pieces = []
    for block in blocks:
        first_line = block.lines[0]
        continues = _continues(first_line)
        # Most blocks are neither, which costs less to see than whether a sentence is open: a mark
        # begins with neither a letter nor a quote, is as short as "Page 12", or ends with a number.
        is_short = len(first_line) < WRAP_WIDTH and len(block.lines) < 10
        may_be_mark = is_short and (
            not (first_line[0].isalpha() or first_line[0] in "\"'“‘«„")
            or len(first_line) < 12
            or first_line[-1].isdigit()
        )
        # As many as a sentence may have, and none of a giant one, so that memory is bounded.
        if (continues or may_be_mark) and 0 < len(held) < 100 and _is_open(pieces[-1]):
            is_mark = may_be_mark and _PAGE_MARK.match(" ".join(block.lines))
            if is_mark or continues:
                held.append(block)
                if not is_mark:
                    pieces.append(block)
                continue
        if len(held) > 1:
            yield from _pieced(held, pieces)
        elif held:
            yield held[0]  # nearly always
        held = [block]
        pieces = [block]
    yield from _pieced(held, pieces)


def _pieced(held: list[Block], pieces: list[Block]) -> Iterator[Block]:
    if len(pieces) > 1:
        *others, last = pieces
        lengths = [sum(map(len, piece.lines)) for piece in others]
        are_lines = min(lengths) >= _MIN_WRAP_WIDTH or max(lengths) > WRAP_WIDTH
        if are_lines or ends_sentence(last.lines[-1]):
            lines = chain.from_iterable(piece.lines for piece in pieces)
            yield Block(list(lines), pieces[0].gap)
            held = [block for block in held if block not in pieces]
    yield from held


def _is_open(block: Block) -> bool:
    """Return whether a paragraph is no heading, and lacks the end of its sentence."""
    text = block.lines[-1].rstrip()
    if sum(map(len, block.lines)) > 10_000:  # cut for its length, if at all
        return False
    if ends_sentence(text) or text.rstrip("-–—").endswith((":", "：")):
        return False
    if len(block.lines) > 1:
        return True
    words = text.split()
    num_capitals = sum(1 for word in words if word[0].isupper())
    return any(map(str.isalpha, text)) and num_capitals <= len(words) / 2


def _continues(line: str) -> bool:
    """Return whether a line begins in small letters, and is no item of a list."""
    if line[:1].isupper():
        return False  # most, at once
    first_letter = _CONTINUATION.match(line)
    return first_letter is not None and first_letter[1].islower()


def prose(
    blocks: Iterable[Block],
    name: str,
    counters: Counters,
    *,
    keeps_lines: bool = False,
    hyphens: str = "¬\xad",
) -> Iterator[str]:
    """Yield the blocks of a text that are prose, each as one line; count what is left out.

    With `keeps_lines` nothing is left out as a heading or table. `hyphens` are those of
    `hyphens_of`.
    """
    if not keeps_lines:
        blocks = rejoined(blocks)
    within_table = False
    num_kept = 0
    num_in_headings = 0
    num_paragraphs = 0
    num_torn = 0
    before: Block | None = None
    for block in blocks:
        # A block after a table may continue one of its cells.
        is_cell = within_table and not block.gap and block.lines[0].startswith(_DEEP_INDENT)
        within_table = is_cell or _is_table(block.lines)
        if within_table and not keeps_lines:
            counters.leave_out("tables", block.lines)
            continue
        joined = _joined(block.lines, hyphens)
        # Many texts outside Gutenberg have its marks, too: _emphasis_, [1], [Illustration].
        plain = gutenberg.plain(joined)
        if len(plain) < len(joined):
            counters.leave_out("marks", [joined], kept=plain)
        if keeps_lines or _is_prose(plain, block.lines):
            num_kept += len(plain)
            num_paragraphs += 1
            if before and _continues(plain) and _is_open(before):
                num_torn += 1
            before = block
            yield plain
            continue
        before = None
        num_in_headings += len(plain)
        counters.leave_out("headings", [plain])
        if _WORD.search(plain):
            counters.count("headings_left_out")
    # Most books have under 1% in headings; a short text may be half title.
    if num_in_headings > max(2000, 0.03 * (num_kept + num_in_headings)):
        counters.note("books_with_many_headings", name)
    if num_torn > max(10, 0.02 * num_paragraphs):  # verse has some
        counters.note("books_with_torn_sentences", name)


def _is_prose(text: str, lines: list[str]) -> bool:
    """Return whether a paragraph is no heading, numeral, imprint or list, nor in capitals."""
    text = text.strip()
    if not _WORD.search(text):
        return False
    # A text without a small letter is in capitals; but one acronym in a script without capitals,
    # such as Korean, does not make it so.
    if text.isupper() and text[-1] not in "!?\"'”’“‘»«":
        num_letters = sum(map(str.isalpha, text))
        if sum(map(str.isupper, text)) > num_letters / 2:
            return False
    if len(text) < gutenberg.LONGEST_IMPRINT and gutenberg.IMPRINT.match(text):
        return False
    if len(text) < LONGEST_HEADING and (_HEADING.match(text) or _NUMERAL.match(text)):
        return False
    ends_prose = ends_sentence(text) or text.endswith(_ENDS_PROSE)
    # It may also be a sentence that a stray blank line cut. Some scripts have neither capitals nor
    # full stops: only the length is left to judge by.
    if not ends_prose and len(text) < LONGEST_HEADING:
        words = text.split()
        num_capitals = sum(1 for word in words if word[0].isupper())
        if len(words) <= 6 or num_capitals > len(words) / 3:
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
    rows = []
    num_cells = 0
    for line in lines:
        if len(line) <= WRAP_WIDTH and _TABLE_ROW.search(line) and _WORD.search(line):
            rows.append(line)
        elif line.startswith(_DEEP_INDENT):
            num_cells += 1
    if len(rows) == 1 and not _DIGIT.search(rows[0]):
        return False
    return len(rows) > 0 and len(rows) + num_cells >= len(lines) / 2


def _has_page_number(line: str) -> bool:
    line_end = line[-12:]
    last = line_end.rstrip().rstrip(".")[-1:]
    # A cheap check first: few lines reach the regular expression.
    if not last.isdigit() and last not in "ivxlcIVXLC":
        return False
    return _PAGE_NUMBER.search(line_end) is not None


def _joined(lines: list[str], hyphens: str = "¬\xad") -> str:
    """Join lines by spaces, but not between CJK characters, nor in words broken by `hyphens`."""
    text = " ".join(map(str.strip, lines))
    if text.isascii() and "=" not in hyphens:
        return text
    if any(f"{hyphen} " in text for hyphen in hyphens):
        text = re.sub(rf"(?<=[^\W\d_])[{hyphens}] (?=[^\W\d_])", "", text)
    return _CJK_LINE_BREAK.sub("", text)
