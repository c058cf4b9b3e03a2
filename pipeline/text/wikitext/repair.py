"""Mark removals in a text, and repair the text at these marks.

Punctuation elsewhere stays as the authors wrote it. "Berlin (<removed>; born 1237)" becomes "Berlin
(born 1237)", and a `GAP` marks missing words that the sentence needs.
"""

import re
from collections import Counter
from collections.abc import Mapping

REMOVED = "\x01"
"""Mark of a removal that the sentence does without: a footnote, a box."""
PRONUNCIATION = "\x03"
"""Mark of a removal like `REMOVED`, whose introduction ("locally", "or") goes with it."""
MISSING = "\x02"
"""Mark of a removal that may have been words of the sentence: an unknown template."""
GAP = "\ufffc"
"""Marks missing words in clean text (OBJECT REPLACEMENT CHARACTER), whose sentence is to go."""

CONTROLS = (*(chr(code) for code in range(0x20) if code not in b"\t\n\r"), "\x7f", "\xad", GAP)
"""Characters that no text may contain, as itself or as an entity: our marks are among them."""

PARAGRAPH_BREAK = "\n\n"
# A line of nothing but marks is dropped like a list, and its introduction with it.
REMOVED_BLOCK = f"\n{REMOVED}{PARAGRAPH_BREAK}"

Dropped = dict[str, list[str]]
"""The texts that are left out of a page, by reason."""

LOST_TO_TEMPLATE = "words_lost_to_template_"
"""Prefix of the counters of words in sentences that lack an unknown template; its name follows."""
NUM_TEMPLATES = 20
"""Unknown templates that are reported."""

_HOLE = re.compile(r"[\x01-\x03\ufffc]")
_SILENT_MARK = re.compile(f"[{REMOVED}{PRONUNCIATION}]")
_ADJACENT_MARKS = re.compile(r"[\x01-\x03](?: ?[\x01-\x03])++")
# German "[{{IPA|...}}]" and "/{{IPA|...}}/".
_BRACKETED_MARK = re.compile(r"\[ ?([\x01\x03]) ?\]|/ ?([\x01\x03]) ?/")
_PARENTHESIS = re.compile(r"( ?[(（])([^()（）]{0,600}+)([)）])")
_SILENT_HOLE = re.compile(r" ?[\x01\x03]\Z|[\x01\x03]")
_SEPARATOR = re.compile(r"([;,；，、])")
_EMPTY_START = re.compile(r"([(（]) ?[\x01-\x03][ ;,:；，、：]*+(?:(?:or|and) )?")
_EMPTY_ITEM = re.compile(r"[;,；，、] ?[\x01-\x03](?= ?[;,)；，、）]| ?\.(?: |$))")
_BEFORE_PUNCTUATION = re.compile(r" ?[\x01\x03] ?(?=[,.;:!?)])")
# "the sound /p/ is": a pronunciation that no name precedes is what the sentence is about.
_SPOKEN_OF = re.compile(f"(?<=[a-z] ){PRONUNCIATION}(?= [a-z])(?<=.{{60}})")
_BEFORE_A_WORD = "|".join(
    f"(?<= {word} .)"
    for word in ("at", "by", "from", "of", "bei", "von", "nach", "par", "por", "pronounced", "as")
)
# "The first stage fell at {{coord|30|12|N|74|7|W}} and", "described by {{cite Q|Q1}} in": a word
# follows, not a footnote; not a name, which a flag precedes. The pattern begins with the mark,
# because marks are rarer than prepositions.
_PLACE = re.compile(
    rf"[{REMOVED}{PRONUNCIATION}](?:{_BEFORE_A_WORD})(?=[ .]|, \w|$)(?! [A-ZÀ-ÖØ-ÞА-Я])"
)
_SOUND_FOLLOWS = ("for", "to", "with", "is", "are", "like", "into", "between", "and", "or", "sound")
_BEFORE_A_SOUND = "|".join(f"(?<= {word} .)" for word in _SOUND_FOLLOWS)
_SPOKEN_WORD = re.compile(
    rf"{PRONUNCIATION}(?:(?<=[Tt]he .)|(?<=\b[ELel][ael] .)|{_BEFORE_A_SOUND})(?= \w)"
)
_LABEL = re.compile(
    r"(?:pronounced|named|pronunciation|ipa|or|and|also|in)?\W*|.{0,60}:", re.IGNORECASE
)
_DASHES = "–—-"
# What follows a noun without a blank in Japanese and Korean: "{{JPN}}は".
_PARTICLES = (*"はがをにのとでもへや은는이가을를의와과도",)


def _has_hole(text: str) -> bool:
    # Single characters, because they are found faster than any of a set.
    return REMOVED in text or MISSING in text or PRONUNCIATION in text or GAP in text


def repair_paragraph(block: str) -> str:
    """Return a block as a line of clean text, or none: its holes are closed, or a `GAP`."""
    text = " ".join(block.split())
    if not _has_hole(text):
        return text
    # One of adjacent marks stays: that which most probably stands for words of the sentence.
    text = _ADJACENT_MARKS.sub(
        lambda marks: next(mark for mark in (MISSING, PRONUNCIATION, REMOVED) if mark in marks[0]),
        text,
    )
    text = _BRACKETED_MARK.sub(lambda match: match[1] or match[2], text)
    if "(" in text or "（" in text:
        # From the inside out: prose has no parentheses nested more deeply than twice.
        for _ in range(2):
            text = _PARENTHESIS.sub(_repair_parenthesis, text)
        text = _EMPTY_START.sub(r"\1", text)
    text = _EMPTY_ITEM.sub("", text)
    text = text.replace(f".{REMOVED}.", ".")
    text = _PLACE.sub(GAP, text)
    text = _SPOKEN_WORD.sub(GAP, text)
    text = _BEFORE_PUNCTUATION.sub("", text)
    text = _SPOKEN_OF.sub(GAP, text)
    text = _SILENT_MARK.sub("", text)
    return " ".join(re.sub(MISSING, _gap, text).split())


def _repair_parenthesis(match: re.Match[str]) -> str:
    """Drop the items that a removal emptied: "(IPA: ; born 1950)" becomes "(born 1950)"."""
    before, inside, after = match.groups()
    if not _has_hole(inside):
        return match[0]
    repaired = ""
    for separator, item in items_of(inside):
        if _is_emptied(item):
            continue
        if repaired:
            repaired += separator
        repaired += _SILENT_HOLE.sub("", item)
    repaired = repaired.strip()
    # A sentence is whole without a parenthesis that lacks words; "f(<removed>)" is part of a word.
    lacks_words = GAP in re.sub(MISSING, _gap, repaired) and before.startswith(" ")
    return REMOVED if not repaired or lacks_words else f"{before}{repaired}{after}"


def items_of(enumeration: str) -> list[tuple[str, str]]:
    """Return the items between commas and semicolons, each with the separator before it.

    >>> items_of("a; b, c")
    [('', 'a'), (';', ' b'), (',', ' c')]
    """
    first_item, *others = _SEPARATOR.split(enumeration)
    return [("", first_item), *zip(others[::2], others[1::2], strict=True)]


def _is_emptied(item: str) -> bool:
    """Return whether an item of a parenthesis lost its content."""
    rest = _HOLE.sub("", item).strip()
    if len(rest) == len(item.strip()):
        return not rest  # nothing was removed
    has_few_words = len(rest.split()) <= 2
    if MISSING in item:
        is_open_range = rest[:1] in _DASHES or rest[-1:] in _DASHES
        if is_open_range or has_few_words:
            return True
    if PRONUNCIATION in item and rest.islower() and has_few_words:
        return True
    return _LABEL.fullmatch(rest) is not None


def _gap(match: re.Match[str]) -> str:
    """Return a `GAP` if the sentence needs the words: a footnote after a word or full stop, or a
    box at the beginning, it does not need.
    """
    text = match.string
    before = text[max(match.start() - 3, 0) : match.start()]
    after = text[match.end() : match.end() + 3]
    begins_sentence = not before.strip() or before.rstrip()[-1] in ".!?:"
    if begins_sentence:
        needs_words = after.strip()[:1].islower() or after[:1] in _PARTICLES
    elif before[-1].isspace() or before[-1] in '「『“„«‘"$€£¥=≈~±':
        needs_words = True
    elif before[-1].isdigit() or before[-1] in "–−-+×<>":
        # "3{{Bruch|1|2}} Zoll" is not "3 Zoll".
        needs_words = after.strip()[:1].isalnum()
    elif before[-1] in "、，":
        needs_words = after[:1].isalpha()
    else:
        # A part of the word, as in "H{{Tiefgestellt|2}}O" and "E{{flat}} minor". A footnote is
        # followed by a blank, and few footnotes follow a word of one or two letters.
        is_short = len(before.split()[-1]) <= 2
        needs_words = before[-1].isalpha() and (is_short or after[:1].isalpha())
    return GAP if needs_words else ""


def most_costly_templates(counts: Mapping[str, int]) -> list[str]:
    """Return the names of the counters of `LOST_TO_TEMPLATE`, largest first."""
    names = [name for name in counts if name.startswith(LOST_TO_TEMPLATE)]
    return sorted(names, key=lambda name: (-counts[name], name))


def drop_rare_templates(counts: Counter[str]) -> None:
    """Delete the counters of the unknown templates that cost least, so that records stay small."""
    # Ten times as many as are reported, because those of other records are added.
    for name in most_costly_templates(counts)[10 * NUM_TEMPLATES :]:
        del counts[name]
