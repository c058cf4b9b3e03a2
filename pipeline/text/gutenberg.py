"""Remove what Project Gutenberg puts around a book; its files differ from decade to decade.

The book lies between ``*** START OF THE PROJECT GUTENBERG EBOOK`` (or, before 2003, ``*END*THE
SMALL PRINT!``) and ``*** END OF`` or ``End of Project Gutenberg's``. Between these are also the
credits, notes of the transcriber, a table of contents, casts of characters, publishers' lists, and
marks such as ``_emphasis_``, ``[Illustration: a bear]`` and ``[12]``.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain, islice
from typing import NamedTuple

from ..counters import Counters
from .sentence_ends import ends_sentence

_MARK = re.compile(
    r"^[^\w\n]{0,9}(?:this is )?(?:the )?project gutenberg(?:'s|’s|\b.{0,12}?\be-?(?:book|text))\b"
    r"|^[^\w\n]*start of (?:the|this) project gutenberg"
    r"|^this e-?text file is presented by project gutenberg",
    re.IGNORECASE | re.MULTILINE,
)
_START = re.compile(
    r"^(?:[^\w\n]*+(?:start of (?:the|this) project gutenberg.*|end\W{1,3}the small print!.*)"
    r"|[^\w\n*]*+\*++ ++small print! for .*\*)$",
    re.IGNORECASE | re.MULTILINE,
)
_END = re.compile(
    r"\W*(?:end (?:of (?:the |this )?(?:copyrighted )?(?:project gutenberg|e-?text of)"
    r"|(?:the )?project gutenberg)"
    r"|(?:ende|fin) (?:dieses |des |von |de |du )?(?:l'e-?text )?proje(?:[ck]ts?|t) gutenberg)",
    re.IGNORECASE,
)
_FIELD = re.compile(r"^(Title|Language):[ \t]*(.*(?:\r?\n[ \t]+\S.*)*)", re.MULTILINE)

_CREDITS = re.compile(
    r"\W*(?:(?:this )?(?:e-?text|e-?book|file)(?: was)? )?"
    r"(?:produced|prepared|transcribed|scanned|digiti[sz]ed|proofed|proofread|typed|created"
    r"|html version)\b.{0,40}?\b(?:by|from)\b",
    re.IGNORECASE | re.DOTALL,
)
_ELSEWHERE = re.compile(
    r"project\s+gutenberg|gutenberg\.(?:org|net)|pgdp\.net|distributed\s+proofread|archive\.org"
    r"|^note: images? of the original",
    re.IGNORECASE,
)
_NOTE = re.compile(
    r"[\W_]*(?:transcriber|redactor)[’']?s?[’']? +notes?\b|[\W_]*transcriber[’']?s? *:",
    re.IGNORECASE,
)
# A paragraph that begins like this is neither a note nor a picture; several times as fast as to
# match these.
_NO_NOTE = re.compile(r"[\s\"'“‘]*[^\W_trTR]")
_CONTENTS = re.compile(
    r"\W*(?:the )?(?:(?:table of )?contents|(?:list of )?illustrations|index|dramatis person\w+"
    r"|persons represented|persons of the (?:play|drama)|(?:cast of |list of )?characters)"
    r"\W*(?:page\W*)?$",
    re.IGNORECASE,
)

IMPRINT = re.compile(
    r"[\W_]*(?:(?:london|edinburgh|new york|boston|philadelphia|cambridge)\W+)?"
    r"(?:copyright\W.{0,60}\b1[5-9]\d\d\b|all rights reserved"
    r"|entered,? according to act of congress"
    r"|printed (?:by|in|at|and bound)\b)",
    re.IGNORECASE,
)
_THE_END = re.compile(r"[\W_]*(?:the end|finis)[\W_]*$", re.IGNORECASE)
_PRICE = re.compile(
    r"\$ ?\d|\b\d+ cents\b|\bpost-?(?:age|paid)\b|\b(?:12mo|8vo|cloth)\b.{0,30}\d", re.IGNORECASE
)

# Publishers' lists begin with a book of a size and price.
_LISTED_BOOK = re.compile(
    r"\b(?:12mo|16mo|8vo|4to)\b.{0,40}\bpages\b"
    r"|\b(?:12mo|16mo|8vo|4to|cloth|boards|paper covers)\b[^.]{0,80}"
    r"(?:\$|£|\bprice\b|\bcents\b|\d[sd]\.)",
    re.IGNORECASE,
)

_MARKS_IN_TEXT = re.compile(
    r"\[(?:illustration|picture|frontispiece|sidenote|decoration|blank page|music|pg|page)\b"
    r"[^\]]{0,2000}\]"
    r"|\s?\[footnote\b[^\[\]]{0,2000}(?:\]|$)"
    r"|\s?\[(?:(?:EN#|FN ?|note )?[1-9]\d{0,2}[a-z]?|\*{1,3})\](?!\w)|\{\d{1,4}\}"
    # Behind a word, or before a note. Other letters are an editor's: "It was [a] great day, and [I]
    # went".
    r"|(?-i:(?<=\S)\[[A-Z]\](?!\w)|\A\[[A-Z]\](?= [A-Z]))",
    re.IGNORECASE,
)
_PICTURE_OPENED = re.compile(r"\s*\[(?:illustration|picture|frontispiece)\b[^\]]*$", re.IGNORECASE)
_FOOTNOTE = re.compile(r"^\[footnote ?\w*: ?(.*?)\]?$", re.IGNORECASE | re.DOTALL)
_GREEK = re.compile(r"\[greek: ([^\[\]]{0,500})\]", re.IGNORECASE)
# Emphasis within a word: "dis_trust_", "10_s._"
_EMPHASIS_WITHIN = re.compile(
    r"_([^\W_]{1,40})_(?![^\W_])|(?<![^\W_])_([^\W_]{1,40})_|(?<=\d)_(?=[a-z])"
)
# Not in "first- and second-class".
_BROKEN_COMPOUND = re.compile(
    r"(?<=[^\W\d_])- (?=[^\W\d_A-Z])(?!(?:and|or|to|as|und|oder|bis|et|ou|y|e|o|en|of|och|og|i)\b)"
)
_UNDERSCORE = re.compile(r"_(?:(?<![^\W_]_)|(?![^\W_]))")
# Not in "a=1 and b=2".
_BOLD = re.compile(r"(?<!\w)=(?=\S)([^=]+)(?<=\S)=(?!\w)")

# Entries of a table of contents are shorter: fewer lines, or lines less full (in characters, on
# average).
_FEWEST_PROSE_LINES = 3
_FULL_LINE = 55
LONGEST_IMPRINT = 300
"""Characters of a paragraph that names the book's printer or owner."""
_ENDS_PROSE = tuple(":;\"'”’»]-—")

_HEADER_CHARACTERS = 1 << 16


class Block(NamedTuple):
    """A paragraph as it is in a book's file."""

    lines: list[str]
    """Its lines, without ends of line."""
    gap: int
    """Number of blank lines before it; three or more separate chapters."""


def is_gutenberg(head: str) -> bool:
    """Return whether the first lines of a file, `head`, are those of a Project Gutenberg file."""
    # Whatever their first line says, etexts of the 1990s have the mark that ends the small print.
    return _MARK.search(head) is not None or _START.search(head) is not None


def read_header(head: str) -> dict[str, str]:
    """Return ``title`` and ``language`` (a code) if the header has them; the first of each counts.

    >>> read_header("Title: Cape Cod\\r\\n\\r\\nLanguage: English\\r\\n")
    {'title': 'Cape Cod', 'language': 'en'}
    """
    fields = {}
    for name, value in _FIELD.findall(head):
        # A long title continues in indented lines.
        fields.setdefault(name.lower(), " ".join(value.split()))
    if "language" in fields:
        # "English and French", "English (United States)": the first word decides.
        first_word, *_ = re.findall(r"\w+", fields["language"].lower()) or ("",)
        fields["language"] = _codes_by_name().get(first_word, "")
    return fields


@cache
def _codes_by_name() -> dict[str, str]:
    from .wikitext.names import NAMES  # late: other texts do without

    codes = {name.lower(): code for code, name in NAMES.languages.items()}
    more = {"frisian": "fy", "norwegian": "no", "russian": "ru", "slovenian": "sl", "tagalog": "tl"}
    return codes | more


def header_end(text: str, start: int = 0) -> int:
    """Return where the book begins whose start mark is soon after `start`, else `start`."""
    stop = start + _HEADER_CHARACTERS
    first_mark = _START.search(text, start, stop)
    # Small print may stand at the end, too.
    if (
        first_mark is None
        or _book_end(text[start : first_mark.start()]) < first_mark.start() - start
    ):
        return start
    # Old headers have two marks: the last counts. One after an end mark is the next book's.
    book_end = first_mark.end() + _book_end(text[first_mark.end() : stop])
    *_, last_mark = _START.finditer(text, start, book_end)
    line_end = text.find("\n", last_mark.end())
    if line_end < 0:
        return len(text)
    return line_end + 1


def split_books(
    head: str, start: int, rest: Iterable[str], counters: Counters
) -> Iterator[tuple[int, str, str]]:
    """Yield the number of each book, the header above it and its text, in pieces of whole lines.

    The first book begins at `start` in the `head` of the file; it ends at its end mark, and another
    one begins at the next start mark.
    """
    # Without a start mark, the header is somewhere in the beginning of the book.
    header = head[: start or _book_end(head)][:_HEADER_CHARACTERS]
    number = 0
    within_book = True
    counters.leave_out("boilerplate", [head[:start]])
    for text in chain([head[start:]], rest):
        while text:
            if within_book:
                end = _book_end(text)
                yield number, header, text[:end]
                within_book = end == len(text)
                if not within_book:
                    header = ""
            else:
                mark = _START.search(text)
                end = len(text)
                if mark:
                    end = header_end(text, mark.start())
                # The licence after a book may be long; its successor's header comes last.
                header = (header + text[:end])[-_HEADER_CHARACTERS:]
                counters.leave_out("boilerplate", [text[:end]])
                within_book = mark is not None
                number += 1
            text = text[end:]


def _book_end(text: str) -> int:
    """Return the offset of the first line that marks the end of a book, else the text's length."""
    book_end = len(text)
    # The line that ends a book contains one of these. Most texts have none, as `find` shows fast.
    for word in ("utenberg", "GUTENBERG", "text of"):
        offset = text.find(word)
        while 0 <= offset < book_end:
            line_start = text.rfind("\n", 0, offset) + 1
            if _END.match(text, line_start):
                book_end = line_start
            line_end = text.find("\n", offset)
            offset = text.find(word, line_end) if line_end >= 0 else -1
    return book_end


def without_notes(blocks: Iterable[Block], counters: Counters) -> Iterator[Block]:
    """Leave out the credits, and notes up to the next chapter (three blank lines)."""
    # How many more paragraphs an open note may have. It ends at the bracket that closes it, or else
    # after a number of paragraphs, so that a lost bracket does not cost the book.
    num_open = 0
    for index, block in enumerate(blocks):
        # Credits are the first paragraphs, the tenth at most in 78 books; later one may begin with
        # the same words.
        may_be_credits = index < 20
        if not num_open and not may_be_credits and _NO_NOTE.match(block.lines[0]):
            yield block
            continue
        text = " ".join(block.lines)
        is_note = True
        if _NOTE.match(text):
            num_open = 30
        elif _PICTURE_OPENED.match(text):
            num_open = 5  # a caption has two or three
        elif num_open and block.gap < 3:
            num_open -= 1
        else:
            num_open = 0
            # Who made the file, or where it can be found.
            names_makers = _CREDITS.match(text) or _ELSEWHERE.search(text)
            is_note = may_be_credits and names_makers is not None
        if "]" in text:
            num_open = 0
        if is_note:
            counters.leave_out("notes", block.lines)
        else:
            yield block


def without_front(blocks: Iterable[Block], counters: Counters) -> Iterator[Block]:
    """Leave out the title page: the paragraphs before the first one of prose, if that is near."""
    blocks = iter(blocks)
    front = []
    # In 78 books there are 31 at most.
    for block in islice(blocks, 60):
        text = " ".join(block.lines).rstrip()
        ends_prose = ends_sentence(text) or text.endswith(_ENDS_PROSE)
        # The lines of a title page are in capitals, or full of names and numbers.
        is_prose = (
            len(text) >= 100  # "It is a truth universally acknowledged, ..." has 117
            and ends_prose
            and sum(map(str.islower, text)) > 0.6 * len(text)
        )
        is_printers = len(text) < LONGEST_IMPRINT and IMPRINT.search(text) is not None
        is_no_page = len(text) > 20_000
        if (is_prose and not is_printers) or is_no_page:
            for front_block in front:
                counters.leave_out("title_pages", front_block.lines)
            front = [block]
            break
        front.append(block)
    yield from front
    yield from blocks


def without_lists(blocks: Iterable[Block], width: int, counters: Counters) -> Iterator[Block]:
    """Leave out tables of contents and the like, up to the next chapter, or to prose."""
    full_line = min(_FULL_LINE, 0.8 * width) if width else _FULL_LINE
    within_list = False
    for block in blocks:
        if _CONTENTS.match(block.lines[0]):
            within_list = True
        elif within_list:
            # Prose has more and fuller lines than an entry; where lines are not wrapped, one.
            num_lines = len(block.lines) if width else _FEWEST_PROSE_LINES
            num_characters = sum(map(len, block.lines))
            is_prose = num_lines >= _FEWEST_PROSE_LINES and num_characters > full_line * num_lines
            within_list = block.gap < 3 and not is_prose
        if within_list:
            counters.leave_out("contents", block.lines)
        else:
            yield block


def without_advertisements(blocks: Iterable[Block], counters: Counters) -> Iterator[Block]:
    """Leave out the publisher's lists at the end of a book."""
    # `held` grows from "The End" or the first listed book on, and is released as prose at the next
    # "The End", or once it is too long for a list. What is held when the book ends is a list, if it
    # states enough prices.
    held = []
    num_priced = 0
    priced_share = 0.05  # the lists of five books have prices in 0.15 to 0.53 of their paragraphs
    for block in blocks:
        text = " ".join(block.lines)
        is_end = len(block.lines) == 1 and _THE_END.match(text) is not None
        longest_list = 300
        if num_priced >= priced_share * len(held):
            # Not longer: "$ 500" in each tenth paragraph is a history of the Treasury.
            longest_list = 1200
        if is_end or len(held) > longest_list:
            yield from held
            held = []
            num_priced = 0
        if is_end or held or (len(text) < LONGEST_IMPRINT and _LISTED_BOOK.search(text)):
            held.append(block)
            if _PRICE.search(text):
                num_priced += 1
        else:
            yield block
    if num_priced < max(2, priced_share * len(held)):  # one price may be in a story
        yield from held
        return
    for block in held:
        counters.leave_out("advertisements", block.lines)


def plain(text: str) -> str:
    """Return `text` without illustrations, marks of footnotes and of emphasis within it.

    Words that were hyphenated at the end of a line are whole again.

    >>> plain("I _know_ it,[12] he half- whispered. [Illustration: The bear]")
    'I know it, he half-whispered. '
    """
    if "[" in text or "{" in text:
        text = _GREEK.sub(r"\1", text)
        text = _FOOTNOTE.sub(r"\1", text)
        text = _MARKS_IN_TEXT.sub("", text)
    if "_" in text:
        text = _EMPHASIS_WITHIN.sub(r"\1\2", text)
        text = _UNDERSCORE.sub("", text)
    if "- " in text:
        text = _BROKEN_COMPOUND.sub("-", text)
    if "=" in text:
        text = _BOLD.sub(r"\1", text)
    return text
