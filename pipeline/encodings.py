"""Find out in which encoding a text is; `text_streams` reads it as UTF-8.

A text is UTF-8, or UTF-16 or UTF-32 with a byte order mark; all others are detected by ``chardet``,
from a sample. The sample's lines are cut into parts, and each part is detected on its own: only
if nearly all of them agree is the answer trusted. So a file that changes its encoding is refused,
and so is one that is too short or too strange to tell. Nothing is ever read in an encoding that was
only guessed.

docs/sources.md has a table of how often it was right.
"""

import codecs
import shlex
from dataclasses import dataclass
from typing import BinaryIO

from .errors import UserError

AUTO = "auto"
UTF_8 = "utf-8"
SAMPLE_BYTES = 1 << 20
"""Bytes by which the encoding of a text is judged."""

CHARACTERS_PER_DAMAGE = 1000
"""A whole text may have one damaged character in this many."""
CHARACTERS_PER_DAMAGE_IN_PLACES = 100
"""The same of a piece of a text, since damage may be all in one place."""

_NUM_WINDOWS = 16
_NUM_PARTS = 16
# Non-ASCII bytes of a part: with fewer, chardet's answer for a part means little.
_MIN_PART_BYTES = 64
# Of the parts that must agree: chardet may take one of sixteen for another encoding, but of eight
# or fewer all must agree.
_MIN_AGREEMENT = 0.9
# chardet's own confidence is 0.1 to 0.3 for short Western texts that it detects rightly, so it
# says little; below this value lie nearly all wrong answers.
_MIN_CONFIDENCE = 0.1
# A text with few non-ASCII bytes is one part, which agrees with itself; and in short texts chardet
# takes Windows-1251 for the Mac's encoding, which differs in few letters. There it must be surer.
_FEW_BYTES = 8
_MIN_CONFIDENCE_IF_UNLIKELY = 0.4
# A text is UTF-8 with damage if so few characters are damaged, or at most one in
# `CHARACTERS_PER_DAMAGE`.
_FEW_DAMAGES = 5
# In a text that mixes encodings, or is damaged, more of the non-ASCII bytes than this are in lines
# of valid UTF-8.
_MAX_UTF_8_SHARE = 0.1

_MARKS = {  # UTF-32's mark begins with that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# What writes these encodings today writes the larger sets, which differ from them in no letter.
_SUPERSETS = {
    "euc_jis_2004": "euc_jp",
    "euc_kr": "cp949",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "shift_jis": "cp932",
    "shift_jis_2004": "cp932",
    "tis-620": "cp874",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Detection:
    """The encoding of a text, and how sure it is."""

    encoding: str
    """Python's name of it."""
    confidence: float = 1.0
    """chardet's; 1 if the text is UTF-8, has a byte order mark, or the encoding was given."""
    parts: int = 0
    """Parts of the sample that were detected on their own; 0 if nothing had to be detected."""
    agreeing: int = 0
    """Parts that were detected as the whole was."""
    doubt: str = ""
    """Why the encoding cannot be trusted; empty if it can."""

    @property
    def is_detected(self) -> bool:
        """Whether the encoding is neither UTF-8, nor marked, nor given by the user."""
        return self.parts > 0

    def describe(self) -> str:
        """Say what was detected, and how sure it is.

        >>> Detection(encoding="koi8-r", confidence=0.86, parts=16, agreeing=16).describe()
        'koi8-r (confidence 0.86, 16 of 16 parts agree)'
        """
        agreement = f"{self.agreeing} of {self.parts} parts agree"
        return f"{self.encoding} (confidence {self.confidence:.2f}, {agreement})"


def check_encoding(name: str) -> str:
    """Return Python's name of an encoding; raise `UserError` if there is none of this name."""
    try:
        "".encode(name)  # bytes-to-bytes codecs such as "hex" are not encodings
        return codecs.lookup(name).name
    except (LookupError, ValueError):
        raise UserError(
            f"`encoding` is {name}, which is not the name of an encoding: give one such as cp1251, "
            "koi8-r, shift_jis, gb18030, or auto."
        ) from None


def read_sample(stream: BinaryIO, num_bytes: int | None = None) -> bytes:
    """Return up to `SAMPLE_BYTES` of a text, in whole lines.

    If the size of the text is given, the stream can seek: the sample of a larger text is windows
    from all over it, so that a change of the encoding is seen. Otherwise it is the beginning.
    """
    if num_bytes is None or num_bytes <= SAMPLE_BYTES:
        return sample_of(stream.read(SAMPLE_BYTES))
    window_bytes = SAMPLE_BYTES // _NUM_WINDOWS
    windows: list[bytes] = []
    for index in range(_NUM_WINDOWS):
        # The first window begins with the text, the last ends with it. All begin at a multiple of
        # four, where a character of UTF-16 or UTF-32 begins.
        offset = (num_bytes - window_bytes) * index // (_NUM_WINDOWS - 1) // 4 * 4
        stream.seek(offset)
        window = stream.read(window_bytes)
        if index:
            _, _, window = window.partition(b"\n")
        windows.append(_whole_lines(window))
    return b"".join(windows)


def sample_of(head: bytes) -> bytes:
    """Return the whole lines of the first `SAMPLE_BYTES` of a text."""
    return head if len(head) < SAMPLE_BYTES else _whole_lines(head)


def _whole_lines(window: bytes) -> bytes:
    """Leave out the last line, which may be cut within a character."""
    end = window.rfind(b"\n") + 1
    if end:
        return window[:end]
    # Files of old Macs, or one long line: the last characters go, which may be four bytes long.
    return window[: window.rfind(b"\r") + 1] or window[:-4]


def detect(sample: bytes, encoding: str = AUTO) -> Detection:
    """Return the encoding of a text by a sample of whole lines, and whether it can be trusted.

    A text with a byte order mark, or that is valid UTF-8, is that, whatever `encoding` the user
    gives: only the others have it.
    """
    for mark, marked in _MARKS.items():
        if sample.startswith(mark):
            return Detection(encoding=marked)
    if encoding != AUTO and (sample.isascii() or not _is_utf_8(sample)):
        # ASCII may still be UTF-16 without a mark, or ISO-2022, if the user says so.
        return Detection(encoding=check_encoding(encoding))
    if _is_utf_8(sample):
        return Detection(encoding=UTF_8)
    if b"\0" in sample:  # not a text, which readers count, or one that is damaged
        return Detection(encoding=UTF_8)
    has_few_damages = is_damage(sample.decode(UTF_8, "replace"))
    if has_few_damages and _is_mostly_utf_8(sample):
        return Detection(encoding=UTF_8)
    detection = _detect_legacy(sample)
    if detection.doubt and has_few_damages:
        return Detection(encoding=UTF_8)
    return detection


def is_damage(text: str, characters_per_damage: int = CHARACTERS_PER_DAMAGE) -> bool:
    """Return whether few enough characters of a decoded text are U+FFFD to be damage.

    If not, the text is in another encoding than the one that it was decoded from.
    """
    num_damaged = text.count("\ufffd")
    return num_damaged <= max(_FEW_DAMAGES, len(text) // characters_per_damage)


def _is_utf_8(text: bytes) -> bool:
    try:
        text.decode(UTF_8)
    except UnicodeDecodeError:
        return False
    return True


def _is_mostly_utf_8(text: bytes) -> bool:
    """Return whether more of the non-ASCII characters are valid UTF-8 than not."""
    decoded = text.decode(UTF_8, "replace")
    num_ascii = len(text.translate(None, bytes(range(0x80, 0x100))))
    num_damaged = decoded.count("\ufffd")
    return len(decoded) - num_ascii > 2 * num_damaged


def _detect_legacy(sample: bytes) -> Detection:
    """Return the encoding that chardet finds, with a doubt unless it is sure."""
    best = _ask_chardet(sample)
    try:
        sample.decode(best.encoding)
    except (LookupError, UnicodeDecodeError):
        return Detection(encoding=UTF_8, confidence=0.0, parts=1, doubt="it fits no encoding")
    parts = _cut_into_parts(sample)
    num_agreeing = sum(_agrees(part, best.encoding) for part in parts)
    min_confidence = _MIN_CONFIDENCE
    if _num_non_ascii(sample) < _FEW_BYTES or best.encoding.startswith("mac"):
        min_confidence = _MIN_CONFIDENCE_IF_UNLIKELY
    doubt = ""
    if num_agreeing < _MIN_AGREEMENT * len(parts):
        doubt = "its parts do not agree"
    elif best.confidence < min_confidence:
        doubt = "the confidence is low"
    elif _utf_8_share(sample) > _MAX_UTF_8_SHARE:
        doubt = "a part of it is UTF-8"
    return Detection(
        encoding=best.encoding,
        confidence=best.confidence,
        parts=len(parts),
        agreeing=num_agreeing,
        doubt=doubt,
    )


def _ask_chardet(sample: bytes) -> Detection:
    import chardet

    # It looks at the first 200,000 bytes by default. Lines of pure ASCII say nothing.
    lines = b"".join(line for line in sample.splitlines(keepends=True) if not line.isascii())
    answer = chardet.detect(lines, compat_names=False, prefer_superset=False)
    name = answer["encoding"] or UTF_8
    try:
        name = codecs.lookup(name).name
    except LookupError:
        return Detection(encoding=UTF_8, confidence=0.0)
    superset = _SUPERSETS.get(name, name)
    try:
        lines.decode(superset)
    except UnicodeDecodeError:
        superset = name
    return Detection(encoding=superset, confidence=answer["confidence"])


def _agrees(part: bytes, encoding: str) -> bool:
    """Return whether a part, detected on its own, is the same text as in the whole's encoding."""
    detected = _ask_chardet(part).encoding
    if detected == encoding:
        return True
    try:
        return part.decode(detected) == part.decode(encoding)
    except (LookupError, UnicodeDecodeError):
        return False


def _cut_into_parts(sample: bytes) -> list[bytes]:
    """Cut the lines that are not ASCII into at most `_NUM_PARTS` of equal size."""
    lines = [line for line in sample.splitlines(keepends=True) if not line.isascii()]
    num_parts = max(1, min(_NUM_PARTS, _num_non_ascii(sample) // _MIN_PART_BYTES))
    num_bytes = sum(map(len, lines))
    parts: list[bytes] = []
    held: list[bytes] = []
    num_seen = 0
    for line in lines:
        held.append(line)
        num_seen += len(line)
        if num_seen * num_parts >= num_bytes * (len(parts) + 1):
            parts.append(b"".join(held))
            held = []
    return parts


def _num_non_ascii(text: bytes) -> int:
    return len(text.translate(None, bytes(range(0x80))))


def _utf_8_share(sample: bytes) -> float:
    """Return the share of the non-ASCII bytes that are in lines of valid UTF-8."""
    num_in_utf_8 = 0
    for line in sample.splitlines():
        if not line.isascii() and _is_utf_8(line):
            num_in_utf_8 += _num_non_ascii(line)
    return num_in_utf_8 / _num_non_ascii(sample)


def check_line_ends(sample: bytes, path: str) -> None:
    """Raise `UserError` if lines end in CR alone, as on old Macs: all would be read as one."""
    if b"\r" in sample.rstrip() and b"\n" not in sample:
        command = f"tr '\\r' '\\n' < {shlex.quote(path)}"
        raise UserError(f"The lines of {path} end in CR, not LF or CRLF. Convert it: {command}")


def refusal(path: str, detection: Detection, remedy: str = "Convert it") -> UserError:
    """Return the error about a text whose encoding is in doubt: its remedy is followed by a command
    that converts the text.
    """
    if detection.encoding == UTF_8:
        finding = f"{path} is not UTF-8, and fits no other encoding: is it a text?"
    else:
        finding = (
            f"{path} is not UTF-8, and its encoding cannot be told: it looks like "
            f"{detection.describe()}, but {detection.doubt}."
        )
    # Not the guess: it is in doubt, and iconv does not know all of Python's names.
    command = f"iconv -f ENCODING -t UTF-8 {shlex.quote(path)}"
    return UserError(f"{finding} {remedy}: {command}")
