"""Find drama in a book by its form, and leave out the speakers' names and the stage directions.

In print a speech begins a line with the speaker's name, in capitals or italics, and a full stop, so
that the name would be a sentence of its own:

    PEN. Could I bear on my shoulders       Could I bear on my shoulders
    _Fisc._ The devil!     [_Aside._        The devil!

A name is what begins many lines in this form, and hardly ever stands elsewhere; no word of any
language is needed to see that. (A name before a colon stays: "NORA: No." is one sentence.)
"""

import re
from collections import Counter

from ..counters import Counters
from ..text.sentence_rules import UPPER_CASE

# The fewest speeches of a speaker, and of all speakers of a text together.
_FEWEST_SPEECHES = 5
_FEWEST_SPEECHES_OF_ALL = 30
_PLAY_SHARE = 0.05
"""A text is a play if this share of its lines begins a speech: then its directions go, and also the
names of those who speak once. Other texts have scenes, as some novels.
"""

_CAPITALS = rf"[{UPPER_CASE}][{UPPER_CASE}'’-]*"
_NAME_IN_CAPITALS = rf"{_CAPITALS}(?:\.? (?:[Oo][Ff] )?{_CAPITALS}){{0,3}}"
# "CHAPTER I. There was"; in italics, as in "_V._", it is a name.
_NUMBER = rf"(?:{_CAPITALS}\.? ){{0,2}}[IVXLC]+\."
_NAME_IN_ITALICS = rf"[{UPPER_CASE}][^\W\d_]*(?:['’. -]{{1,2}}[^\W\d_]+){{0,3}}"
_REMARK = r"(?: ?[\[(][^\[\]()]{0,200}[\])])?"
# On the same line or the next. What follows may also be the number of a chapter ("SECT. IV. Of
# Ideas") or more of the name ("MR. CAXTON").
_SPEECH = (
    r"(?=-{0,2}\s[^\S\n]*\n?[^\w\n]{0,8}_?"
    rf"(?![IVXLC]+[.\n]|[{UPPER_CASE}]{{2}})[^\W\d_])"
)
# Both begin with a line break, which `re` finds fast.
_FORMS = (
    re.compile(
        rf"\n[ \t]*(?!{_NUMBER})({_NAME_IN_CAPITALS})(?:{_REMARK}\.|{_REMARK}(?<=[\])])){_SPEECH}"
    ),
    re.compile(rf"\n[ \t]*_({_NAME_IN_ITALICS})(?:\._|_\.){_REMARK}{_SPEECH}"),
)
_WITHIN_PARAGRAPH = r"(?:[^\[\]\n]|\n(?![ \t]*\n)){0,600}"
# Not a footnote, "[A]", nor an editor's addition: "to the [Greeks,]".
_BRACKETED = rf"\[(?=_|[{UPPER_CASE}][^\[\]]{{3}}){_WITHIN_PARAGRAPH}(?<![,?!])\]"
# Brackets at the right margin are not closed; the next lines may continue them.
_OPENED = rf"\[(?=_|[{UPPER_CASE}])[^\[\]\n]*(?=\n)(?:\n[ ]{{10,}}[^\[\]\n]+)*"
_AT_MARGIN = rf"(?<=[^\s\w])[ ]{{5,}}[{UPPER_CASE}][^\n]*"
# English editions have Shakespeare's words without brackets.
_ENTRANCE = (
    r"(?<=\n)[ \t]*(?:[A-Z]\w+(?: \w+)?\. ){0,2}_?"
    r"(?:Exit|Exeunt|(?:Re-)?[Ee]nter(?=_? [A-Z]| (?:the|an?|two|some|certain)\b))\b"
    r"[^\n]*(?:\n(?![ \t]*\n)[^\n]*)*"
)
_DIRECTION = re.compile(rf"{_BRACKETED}|{_OPENED}|{_AT_MARGIN}|{_ENTRANCE}")


def without_drama(text: str, counters: Counters) -> str:
    """Return a piece of a book without speakers' names and stage directions, in linear time.

    A speech begins a paragraph. `text` is raw: lines of any width, with ``_`` around italics. Text
    without drama is returned as it is. `counters` gets ``words_left_out_as_speakers`` and
    ``…_directions``.

    >>> scene = "BRUTUS. Peace! Count the clock.\\n\\nCASSIUS. It hath stricken three.\\n\\n" * 20
    >>> " ".join(without_drama(scene, Counters()).split()[:8])
    'Peace! Count the clock. It hath stricken three.'
    """
    text = "\n" + text
    num_lines = text.count("\n")
    for form in _FORMS:
        names = Counter(form.findall(text))
        speakers = _speakers(names, text)
        if len(speakers) < 2:
            continue
        num_speeches = sum(names[speaker] for speaker in speakers)
        if num_speeches < _FEWEST_SPEECHES_OF_ALL:
            continue
        is_play = num_speeches >= _PLAY_SHARE * num_lines
        if is_play:
            speakers.update(names)
        # First, because a direction may stand between a name and its speech.
        text = _without_speakers(text, form, speakers, counters)
        if is_play:
            text = _without_directions(text, counters)
    return text[1:]


def _speakers(names: Counter[str], text: str) -> set[str]:
    """Return the names that begin many lines, and stand elsewhere less often than there."""
    speakers: set[str] = set()
    for name, num_speeches in names.items():
        if num_speeches >= _FEWEST_SPEECHES and 2 * num_speeches > text.count(f" {name}."):
            speakers.add(name)
    return speakers


def _without_speakers(
    text: str, form: re.Pattern[str], speakers: set[str], counters: Counters
) -> str:
    left_out: list[str] = []

    def new_paragraph(speech: re.Match[str]) -> str:
        if speech[1] not in speakers:
            return speech[0]
        left_out.append(speech[0])
        return "\n\n"

    text = form.sub(new_paragraph, text)
    counters.leave_out("speakers", left_out)
    return text


def _without_directions(text: str, counters: Counters) -> str:
    left_out: list[str] = []

    def nothing(direction: re.Match[str]) -> str:
        left_out.append(direction[0])
        return ""

    text = _DIRECTION.sub(nothing, text)
    counters.leave_out("directions", left_out)
    return text
