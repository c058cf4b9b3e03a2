"""Join what sentencex splits too eagerly.

Here and in `sentence_cuts` a text is a string of lines: a sentence a line, and an empty line
between paragraphs. To join two sentences is to remove a line break:

    Mr.⏎Low came at 5.⏎He left.  becomes  Mr. Low came at 5.⏎He left.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import groupby

from .sentence_rules import (
    LAST_CASED,
    LAST_WORDS,
    LOWER_CASE,
    UPPER_CASE,
    WORDS,
    Rule,
    before_numbers_of,
    compiled,
    is_listed,
    patterns_in,
    row_of,
    with_parts,
    words_of,
)

# What a rule sees before and after a break, so that long sentences do not cost more.
_SEEN_BEFORE = 20
_SEEN_AFTER = 80

_QUOTES = "\"'“‘«„"
_PARTS = re.compile("[-.–'’]")
# "12", "Table 3", "XIV", "L. 251-3", "A", "(a)", "[12]", "$5"; sentencex splits behind "L."
_NUMBER = (
    r"(?:(?:Tab|Fig)\w*\.? )?\d|[IVXLC]+\b|[A-Z]\. ?(?:\d|$)|[A-HJ-Z](?= [a-z])"
    r"|[(\[][0-9a-z]{1,4}[)\]]|[$€£¥]\d"
)
_NUMERAL = r"(?:\d|\b[IVXLC]+)\.? $"
# Abbreviations of years and centuries, and a unit without capitals.
_MAY_END = frozenset(("ст", "st", "კმ"))
_LONGEST_INITIAL = 12

# "kpt.", "მდ."; not calls, nor "tv" and the like.
_VOWELLESS = "(?!(?:h?m+|p?s+t|b?r+|p?sc?h+t?|tz+|tv|cd|dvd|pc|sms|pdf)$)[{consonants}]{2,4}"

# Letters after which, and before which, no rule joins.
_EASTERN_LETTERS = "ぁ-ゖァ-ヺ一-鿿가-힣"


class JoinRules:
    """The rules of one language, by sentencex's code; `join_rules_of` makes one object for each."""

    def __init__(self, code: str) -> None:
        # Titles, firms, "for example": words that no sentence ends with.
        self.before_names = words_of(WORDS.before_names, code)
        self.abbreviations = words_of(WORDS.abbreviations, code) | self.before_names
        self.before_numbers = before_numbers_of(code)
        # Letters that are written with the abbreviation before which they stand.
        self.proclitics = row_of(WORDS.proclitics, code)
        self.final_words = words_of(WORDS.final_words, code)
        self.no_ends = tuple(row_of(WORDS.no_ends, code))
        self.years_end = code in WORDS.years_end.split()
        # Whether to join initials and abbreviations; sentencex does it well for some languages.
        self.abbreviated = code not in WORDS.own_initials.split()
        # Whether what has no vowel is an abbreviation.
        self.vowelless = self.abbreviated and code not in WORDS.syllabic.split()
        # Every line break that a rule may remove or move; most sentences end otherwise. In a text
        # without capitals a small letter does not tell that a sentence continues.
        may_join = "|".join(self._may_join(code))
        self.candidates = _candidates(UPPER_CASE, may_join)
        self.uncased_candidates = _candidates(UPPER_CASE + LOWER_CASE, may_join)
        # The patterns of `WORDS.joins`, those that hold in texts with capitals only apart.
        of_capitals = [rule for rule in WORDS.joins if rule.after == "[{lower}]"]
        others = [rule for rule in WORDS.joins if rule.after != "[{lower}]"]
        self.cased_patterns = _one_pattern(of_capitals, code)
        self.patterns = _one_pattern(others, code)

    def _may_join(self, code: str) -> Iterator[str]:
        """Yield patterns of what precedes a line break at which a rule may join before a capital: a
        short line, or one that does not end with a word of several letters, or ends with one of
        the language's lists.
        """
        yield rf"(?<![^\n]{{5}}[{LOWER_CASE}{_EASTERN_LETTERS}]{{2}}[.?!] \n)"
        if self.vowelless:
            consonants = with_parts("[{consonants}]")
            for length in (2, 3, 4):
                yield rf"(?<=[^\w]{consonants}{{{length}}}\. \n)"
        words = self.abbreviations | self.before_numbers | words_of(WORDS.before_capitals, code)
        forms = {
            form for word in words for form in (word, word.capitalize(), word.title(), word.upper())
        }
        # A look-behind has a fixed length; that a word of it begins there is seen first.
        by_length = sorted(forms, key=lambda form: (len(form), form))
        for length, same_length in groupby(by_length, key=len):
            listed = "|".join(map(re.escape, same_length))
            yield rf"(?<!\w[^\n]{{{length}}}\. \n)(?<=(?:{listed})\. \n)"
            if self.proclitics:
                yield rf"(?<=[^\w][{self.proclitics}](?:{listed})\. \n)"


join_rules_of = cache(JoinRules)


def _candidates(beginnings: str, may_join: str) -> str:
    """Return a pattern of the line breaks before other characters, or at which a rule may join."""
    # It begins with a character, which makes the search fast.
    return rf"\n(?<!\n\n)(?!\n)(?:(?![{beginnings}{_EASTERN_LETTERS}])|{may_join})"


def _one_pattern(rules: Iterable[Rule], code: str) -> str:
    """Return a pattern of all rules; a line break stands for the end of the first piece."""
    listed = "|".join(patterns_in(rules, code, " ?\n")) or "(?!)"
    # A rule begins before the line break: to try each at all places after it would take longest.
    return rf"[^\n]*?(?:{listed})"


def join(lines: str, rules: JoinRules, *, is_cased: bool) -> str:
    """Remove the line breaks within sentences; `is_cased` is whether the text has capitals.

    An opening quotation mark at the end of a line moves to the line that it opens.
    """
    candidates = rules.candidates if is_cased else rules.uncased_candidates
    parts = []
    num_copied = 0
    sentence_start = 0
    last_joined = -1
    for candidate in compiled(candidates).finditer(lines):
        position = candidate.start()
        line_start = lines.rfind("\n", 0, position) + 1
        if line_start - 1 != last_joined:
            sentence_start = line_start
        # Long enough for every abbreviation and the number before it.
        before = lines[max(sentence_start, position - 60) : position]
        before = before.replace("\n", "")
        following = lines[position + 1 : position + 1 + _SEEN_AFTER].partition("\n")[0]
        if before[-2:-1] == " " and before[-1] in _QUOTES:
            # sentencex leaves the mark that opens a sentence at the end of the one before.
            parts += [lines[num_copied : position - 1], "\n", before[-1]]
            num_copied = position + 1
        elif _goes_on(before, following, rules, is_cased):
            parts.append(lines[num_copied:position])
            num_copied = position + 1
            last_joined = position
    parts.append(lines[num_copied:])
    return "".join(parts)


# Texts such as "1. 1. 1." repeat what is before and after a break, and have hundreds in a line.
@lru_cache(maxsize=1000)
def _goes_on(before: str, following: str, rules: JoinRules, is_cased: bool) -> bool:
    if rules.abbreviated and _ends_abbreviated(before, following, rules):
        return True
    start = "_" if len(before) > _SEEN_BEFORE else ""  # not the sentence's
    last_word = re.search(r"(?<![^\W_])([^\W\d_]+)\. ?$", before[-_LONGEST_INITIAL:])
    if last_word:
        if re.match(_NUMBER, following) and is_listed(last_word[1], rules.before_numbers):
            return True
        if is_listed(last_word[1], rules.before_names):
            return True
    seen = f"{start}{before[-_SEEN_BEFORE:]}\n{following}"
    if compiled(rules.patterns).match(seen):
        return True
    return is_cased and compiled(rules.cased_patterns).match(seen) is not None


def _ends_abbreviated(before: str, following: str, rules: JoinRules) -> bool:
    """Return whether a text ends with an initial or abbreviation, and its sentence continues.

    So it also does after a mark that does not end a sentence in this language.
    """
    # "in 1890 г. Later" has the mark ".", the word "г" and the number "1890 " before it.
    #   before    i n   1 8 9 0   г .
    #                             ^ ^ stop, where the mark is
    #                             start
    stop = len(before) - 1
    if before.endswith(" "):
        stop -= 1
    mark = before[stop : stop + 1]
    # An ellipsis may end a sentence in any language.
    if mark in rules.no_ends and before[stop - 1 : stop] != ".":
        return True
    if mark not in (".", "․", "۔"):
        return False
    start = max(before.rfind(" ", 0, stop), before.rfind("(", 0, stop)) + 1
    word = before[start:stop].lstrip(f"[{_QUOTES}")
    last_part = word
    if not word.isalpha():
        last_part = _PARTS.split(word)[-1]  # of "С.-Петерб" or "m.in"
    word_start = stop - len(word)
    abbreviations = rules.abbreviations
    is_known = is_listed(word, abbreviations) or is_listed(last_part, abbreviations)
    if word[:1] in rules.proclitics and is_listed(word[1:], abbreviations):
        is_known = True
    if rules.vowelless and _is(_VOWELLESS, word) and word not in LAST_WORDS:
        is_known = is_known or not re.search(_NUMERAL, before[:word_start])
    if not is_known and (mark == "۔" or not _is_initial(last_part)):
        return False
    if word in rules.final_words and not _is(
        r".*(?:^|[\s(]){syllable}\. ?", before[:word_start][-15:]
    ):
        return False
    # A name or another initial follows: "J. R. R. Tolkien".
    if last_part[0].isupper() or (following[1:2] in (".", "۔") and following[0].isupper()):
        return True
    if following[0] > LAST_CASED and compiled(with_parts("{syllable}[.۔]")).match(following):
        return True
    if not re.search(_NUMERAL, before[max(0, word_start - 10) : word_start]):
        return True
    # After a number an abbreviation of one letter may end a sentence.
    may_end = following[0].isupper() or rules.years_end
    if last_part in _MAY_END and following[0].isdigit():
        may_end = True
    if not may_end:
        return True
    return is_known and len(word) > 1 and last_part not in _MAY_END


def _is_initial(word: str) -> bool:
    if not 0 < len(word) <= _LONGEST_INITIAL:
        return False
    return _is("{syllable}" if word[0] > LAST_CASED else "{initial}", word)


def _is(pattern: str, text: str) -> bool:
    return compiled(with_parts(pattern)).fullmatch(text) is not None
