"""Remove what Aozora Bunko puts around and into a book; www.aozora.gr.jp/annotation describes it.

A notice of the marks stands between rulers behind the title; the colophon begins with ``底本：``.
The marks are ``《readings》``, ``｜`` where their word begins, and ``［＃notes］``;
``※［＃「…」、第3水準1-87-64］`` stands for a character by its place in JIS X 0213.
"""

import re
from collections.abc import Iterable, Iterator

from ..counters import Counters
from .fragments import resolve_entities
from .wikitext.repair import GAP

_NOTICE = "【テキスト中に現れる記号について】"
_CHARACTER = re.compile(r"※［＃([^［］\n]*)］")
_CODE = re.compile(r"U\+([0-9A-Fa-f]{4,5})|水準([12])-(\d{1,2})-(\d{1,2})")
_MARK = re.compile(r"《[^《》\n]*》|［＃[^［］\n]*］|｜")


def is_aozora(head: str) -> bool:
    """Return whether the first lines of a file, `head`, are those of a book of Aozora Bunko."""
    return "［＃" in head or _NOTICE in head or ("\n底本：" in head and "青空文庫" in head)


def book_lines(lines: Iterable[str], counters: Counters) -> Iterator[str]:
    """Yield the lines of a book without notice, colophon and marks; a lost character is a `GAP`."""
    stop = ""
    for line in lines:
        if line.startswith(_NOTICE):
            stop = "-----"
        elif line.startswith("底本："):
            stop = _NOTICE  # as the next book of the file has, if there is one
        if stop:
            counters.leave_out("boilerplate", [line])
            if stop != _NOTICE and line.startswith(stop):
                stop = ""
            continue
        # "／＼" is the sign of repetition 〳〵, which earlier character sets lack.
        book_line = _MARK.sub("", _CHARACTER.sub(_character, line.replace("／＼", "〳〵")))
        if book_line != line:
            counters.leave_out("marks", [line], kept=book_line)
        yield book_line


def _character(note: re.Match[str]) -> str:
    code = _CODE.search(note[1])
    if code is None:
        return GAP
    scalar, plane, *place = code.groups()
    if scalar:
        return resolve_entities(f"&#x{scalar};")
    in_euc = bytes(0xA0 + min(int(number), 95) for number in place)  # there are 94
    if plane == "2":
        in_euc = b"\x8f" + in_euc
    return in_euc.decode("euc_jis_2004", "ignore") or GAP
