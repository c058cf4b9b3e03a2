"""Find out in which encoding a text is; `text_streams` reads it as UTF-8.

A text is UTF-8, or UTF-16 or UTF-32 with a byte order mark; all others are detected by ``chardet``,
from a sample. The sample's lines are cut into parts, and each part is detected on its own: only
if all of them agree is the answer trusted. So a file that changes its encoding is refused, and so
is one that is too short or too strange to tell. Nothing is ever read in an encoding that was only
guessed.

docs/sources.md has a table of how often it was right.
"""

import codecs
import re
import shlex
import unicodedata
from collections import Counter, deque
from dataclasses import dataclass, replace
from typing import BinaryIO

from .errors import UserError
from .languages import scripts_of_language

AUTO = "auto"
UTF_8 = "utf-8"
SAMPLE_BYTES = 1 << 20
"""Bytes by which the encoding of a text is judged."""

CHARACTERS_PER_DAMAGE = 1000
"""Of a whole text at most one in so many characters may be damaged."""
CHARACTERS_PER_DAMAGE_IN_PLACES = 100
"""The same of a piece of a text, since damage may be all in one place."""

_NUM_WINDOWS = 16
_NUM_PARTS = 8
# Non-ASCII bytes of a part: with fewer, chardet's answer for a part means little.
_MIN_PART_BYTES = 64
# Of the parts that must agree. One of eight is too many: an eighth of the text would be misread.
_MIN_AGREEMENT = 0.9
# chardet's own confidence is 0.1 to 0.3 for short Western texts that it detects rightly, so it
# says little; below this value lie nearly all wrong answers.
_MIN_CONFIDENCE = 0.1
# A text with few non-ASCII bytes is one part, which agrees with itself: chardet must be surer. In
# short texts it takes Windows-1251 for the Mac's encoding, which differs in few letters.
_FEW_BYTES = 8
_FEW_BYTES_OF_MAC = 64
_MIN_CONFIDENCE_OF_FEW = 0.4
# A text is UTF-8 with damage if so few characters are damaged, or at most one in
# `CHARACTERS_PER_DAMAGE`.
_FEW_DAMAGES = 5
# In a text that mixes encodings, more of the non-ASCII bytes than this are in lines of valid UTF-8.
_MAX_UTF_8_SHARE = 0.1
_MAX_OTHER_SCRIPT_SHARE = 0.2
_NON_ASCII_LETTER = re.compile(r"(?![\x00-\x7f])[^\W\d_]")
_CHARACTERS_CHECKED = 1 << 16
_GREEK_OR_CYRILLIC_WORD = re.compile("[\u0370-\u052f]+")
_LATIN_BESIDE_OTHER = re.compile("[A-Za-z](?=[\u0370-\u052f])|[\u0370-\u052f](?=[A-Za-z])")
# In Ukrainian, Russian, Bulgarian and Greek texts, fewer than 0.1% of the words are mixed; where a
# Western text is read in one of their encodings, nearly all are.
_FEW_MIXED = 2
_MAX_MIXED_SHARE = 0.02
_MAX_MIXED_SHARE_IN_PLACES = 0.5
_NUM_PLACES = 16
BLOCK_BYTES = 1 << 16
"""Bytes of a text that are read and judged at once."""
# Behind the sample: a part of 2 kB in 16 kB, which takes chardet a tenth of the time of reading.
_BYTES_PER_PART = 1 << 14
_REST_PART_BYTES = 1 << 11
_PARTS_AT_ONCE = 8

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

        >>> Detection(encoding="koi8-r", confidence=0.86, parts=8, agreeing=8).describe()
        'koi8-r (confidence 0.86, 8 of 8 parts agree)'
        """
        agreement = f"{self.agreeing} of {self.parts} parts agree"
        return f"{self.encoding} (confidence {self.confidence:.2f}, {agreement})"


def check_encoding(name: str) -> str:
    """Return Python's name of an encoding; raise `UserError` if there is none of this name."""
    try:
        "".encode(name)  # bytes-to-bytes codecs such as "hex" are no encodings
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


def detect(sample: bytes, language: str = AUTO, encoding: str = AUTO) -> Detection:
    """Return the encoding of a text by a sample of whole lines, and whether it can be trusted.

    A text with a byte order mark, or that is valid UTF-8, is that, whatever `encoding` the user
    gives: only the others have it. If `language` is a code, the letters of a text in a detected
    encoding must be of its script.
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
    detection = _detect_legacy(sample, language)
    if detection.doubt and has_few_damages:
        return Detection(encoding=UTF_8)
    return detection


def check_rest(stream: BinaryIO, detection: Detection) -> Detection:
    """Return a detection with the rest of its stream as more parts, which must agree too.

    For texts that cannot be sampled from all over, because they are compressed.
    """
    rest = RestOfText(detection.encoding)
    while block := stream.read(BLOCK_BYTES):
        if not rest.agrees(block):
            break
    doubt = detection.doubt
    if not rest.is_agreed():
        doubt = "its parts do not agree"
    return replace(
        detection,
        parts=detection.parts + rest.num_parts,
        agreeing=detection.agreeing + rest.num_agreeing,
        doubt=doubt,
    )


class RestOfText:
    """Whether a text goes on in the encoding of its beginning: a few lines of each block are
    detected on their own.

    So few may be taken for another encoding, but not most of `_PARTS_AT_ONCE`, one after the other.
    """

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._latest: deque[bool] = deque(maxlen=_PARTS_AT_ONCE)
        self.num_parts = 0
        self.num_agreeing = 0

    def agrees(self, block: bytes) -> bool:
        """Look at a block; return False if the last ones are in another encoding."""
        for start in range(0, len(block), _BYTES_PER_PART):
            _, _, part = block[start : start + _REST_PART_BYTES].partition(b"\n")
            part = _whole_lines(part)
            text = part.decode(self._encoding, "replace")
            if _share_of_mixed(text) > _MAX_MIXED_SHARE_IN_PLACES:
                agrees = False
            elif _num_non_ascii(part) < _MIN_PART_BYTES:
                # Too few bytes to tell by.
                continue
            else:
                agrees = _agrees(part, self._encoding)
            self._latest.append(agrees)
            self.num_parts += 1
            self.num_agreeing += agrees
        return len(self._latest) < _PARTS_AT_ONCE or self.is_agreed()

    def is_agreed(self) -> bool:
        """Return whether at least half of the last parts agree."""
        return 2 * sum(self._latest) >= len(self._latest)


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


def _detect_legacy(sample: bytes, language: str) -> Detection:
    """Return the encoding that chardet finds, with a doubt unless it is sure."""
    best = _ask_chardet(sample)
    try:
        text = sample.decode(best.encoding)
    except (LookupError, UnicodeDecodeError):
        return Detection(encoding=UTF_8, confidence=0.0, parts=1, doubt="it fits no encoding")
    parts = _cut_into_parts(sample)
    num_agreeing = sum(_agrees(part, best.encoding) for part in parts)
    doubt = ""
    if num_agreeing < _MIN_AGREEMENT * len(parts):
        doubt = "its parts do not agree"
    elif best.confidence < _min_confidence(best.encoding, _num_non_ascii(sample)):
        doubt = "the confidence is low"
    elif _utf_8_share(sample) > _MAX_UTF_8_SHARE:
        doubt = "a part of it is UTF-8"
    elif _mixes_scripts(text):
        doubt = "its words would mix Latin with other letters"
    elif other_script := _other_script(text, language):
        doubt = f"its letters would be {other_script}, which is not how {language} is written"
    return Detection(
        encoding=best.encoding,
        confidence=best.confidence,
        parts=len(parts),
        agreeing=num_agreeing,
        doubt=doubt,
    )


def _min_confidence(encoding: str, num_non_ascii: int) -> float:
    few = _FEW_BYTES_OF_MAC if encoding.startswith("mac") else _FEW_BYTES
    return _MIN_CONFIDENCE_OF_FEW if num_non_ascii < few else _MIN_CONFIDENCE


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
    """Cut the lines that are not ASCII into at most `_NUM_PARTS`, equal in non-ASCII bytes."""
    lines = [line for line in sample.splitlines(keepends=True) if not line.isascii()]
    num_bytes = [_num_non_ascii(line) for line in lines]
    total = sum(num_bytes)
    num_parts = max(1, min(_NUM_PARTS, total // _MIN_PART_BYTES))
    parts: list[bytes] = []
    held: list[bytes] = []
    num_seen = 0
    for line, num_of_line in zip(lines, num_bytes, strict=True):
        held.append(line)
        num_seen += num_of_line
        if num_seen * num_parts >= total * (len(parts) + 1):
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


def _mixes_scripts(text: str) -> bool:
    """Return whether words of a Greek or Cyrillic text contain Latin letters, as those of a Western
    text do that is read in an encoding of these scripts: more than a few of them, or most in one
    place, such as the end of a Russian text that is French.

    >>> _mixes_scripts("la dйfinition exйcutйe, le systиme"), _mixes_scripts("SQL-запит")
    (True, False)
    """
    num_letters = len(_NON_ASCII_LETTER.findall(text))
    num_of_these = sum(map(len, _GREEK_OR_CYRILLIC_WORD.findall(text)))
    if 2 * num_of_these < num_letters:
        # A Korean or Japanese text: its formulas have Greek letters beside Latin ones.
        return False
    if _share_of_mixed(text) > _MAX_MIXED_SHARE:
        return True
    num_characters = len(text) // _NUM_PLACES + 1
    places = (text[i : i + num_characters] for i in range(0, len(text), num_characters))
    return any(_share_of_mixed(place) > _MAX_MIXED_SHARE_IN_PLACES for place in places)


def _share_of_mixed(text: str) -> float:
    """Return the share of mixed words among those with Greek or Cyrillic letters; 0 if they are
    few.
    """
    num_mixed = len(_LATIN_BESIDE_OTHER.findall(text))
    if num_mixed <= _FEW_MIXED:
        return 0.0
    return num_mixed / len(_GREEK_OR_CYRILLIC_WORD.findall(text))


def _other_script(text: str, language: str) -> str:
    """Return the script of most non-ASCII letters if `language` is not written in it, else "".

    >>> _other_script("Òåðì³í", "uk"), _other_script("Термін", "uk"), _other_script("Òåðì", "auto")
    ('Latin', '', '')
    """
    expected = scripts_of_language(language)
    if language == AUTO or not expected:
        return ""
    counts: Counter[str] = Counter()
    for letter in _NON_ASCII_LETTER.findall(text[:_CHARACTERS_CHECKED]):
        # As in "CYRILLIC SMALL LETTER A".
        first_word, _, _ = unicodedata.name(letter, "unknown").partition(" ")
        counts[first_word.capitalize()] += 1
    num_letters = counts.total()
    for script in expected:
        del counts[script]
    if counts.total() <= _MAX_OTHER_SCRIPT_SHARE * num_letters:
        return ""
    ((other_script, _),) = counts.most_common(1)
    return other_script


def refusal(path: str, detection: Detection) -> UserError:
    """Return the error about a text whose encoding is in doubt, with a command that converts it."""
    if detection.encoding == UTF_8:
        finding = f"{path} is not UTF-8, and fits no other encoding: is it a text?"
    else:
        finding = (
            f"{path} is not UTF-8, and its encoding cannot be told: it looks like "
            f"{detection.describe()}, but {detection.doubt}."
        )
    # Not the guess: it is in doubt, and iconv does not know all of Python's names.
    command = f"iconv -f ENCODING -t UTF-8 {shlex.quote(path)}"
    return UserError(f"{finding} Give its `encoding`, or convert it: {command}")
