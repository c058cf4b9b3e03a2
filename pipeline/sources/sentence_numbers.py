"""Give the numbers of an enumeration to what they number.

sentencex splits after them: "1. Athens, 2. | Volos, 3. | Patras".
"""

import re

_NUMBER_BEFORE = re.compile(r"\W*(?P<number>\d{1,3})[.।)]")
_NUMBER_BEHIND = re.compile(r"(?:^|(?P<comma>[,;])?\s)(?P<number>\d{1,3}[.।)]) ?$")
_LONGEST_NUMBER = 8
# "It reached number 1. The next reached number 2." enumerates nothing.
_SHORTEST_ENUMERATION = 3
# A number of up to three digits at the end of a line. It begins with a character, which is fast.
_NUMBER_AT_END = re.compile(r"\n(?!\n)(?:(?<=\d..\n)(?<!\d{4}..\n)|(?<=\s\d.\n))")


def number_lines(lines: str) -> str:
    """Move the numbers of enumerations from the end of a line to the next, which they number."""
    if not _NUMBER_AT_END.search(lines):
        return lines
    paragraphs = lines.split("\n\n")
    for index, paragraph in enumerate(paragraphs):
        if _NUMBER_AT_END.search(paragraph):
            paragraphs[index] = "\n".join(number_what_follows(paragraph.split("\n")))
    return "\n\n".join(paragraphs)


def number_what_follows(pieces: list[str]) -> list[str]:
    """Move the numbers of an enumeration from the end of a piece to the next, which they number.

    1. Athens, 2. | Volos, 3. | Patras  becomes  1. Athens, | 2. Volos, | 3. Patras
    """
    enumerated = _enumerated(pieces)
    if not enumerated:
        return pieces
    moved = []
    number = ""
    for index, piece in enumerate(pieces):
        text = number + piece
        number = ""
        if index in enumerated:
            mark = _number_behind(piece)
            assert mark is not None
            number = piece[len(piece) - len(mark[0]) :].lstrip(" ,;")
            text = text[: len(text) - len(number)]
        moved.append(text)
    return moved


def _enumerated(pieces: list[str]) -> set[int]:
    """Return the indices of the pieces that end with the number of what follows them."""
    marks = [_number_behind(piece) for piece in pieces[:-1]]
    if not any(marks):
        return set()
    enumerated: set[int] = set()
    run: list[int] = []
    before = 0
    length = 0
    for index, mark in enumerate([*marks, None]):
        number = int(mark["number"][:-1]) if mark else None
        if run and number == before + 1:
            run.append(index)
            length += 1
        else:
            if length >= _SHORTEST_ENUMERATION:
                enumerated.update(run)
            run = []
            if number is not None and mark is not None:
                run = [index]
                first = _NUMBER_BEFORE.match(pieces[index])
                is_second = first is not None and int(first["number"]) == number - 1
                length = 1 + is_second + bool(mark["comma"])
        before = number or 0
    return enumerated


def _number_behind(piece: str) -> re.Match[str] | None:
    """Return the number at the end of `piece`, if there is one besides other text."""
    if not piece[-3:-1].strip(".।) ").isdigit():
        return None
    mark = _NUMBER_BEHIND.search(piece[-_LONGEST_NUMBER:])
    if mark is None or len(mark[0].strip()) == len(piece.strip()):
        return None
    return mark
