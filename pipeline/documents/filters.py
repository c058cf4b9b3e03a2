"""Filters for text from the web, off by default: a document's language, and the quality rules of
Gopher and C4.

- *Gopher*: Rae et al. 2021, "Scaling Language Models", appendix A.1.1 and table A1. Left out: the
  limit of 100,000 words, which novels exceed, and paragraphs apart from lines, which are the same
  here.
- *C4*: Raffel et al. 2020, section 2.2. Left out: the list of bad words, which removes medicine and
  minorities' texts, and the marks of citations, which the readers remove. Three-sentence spans are
  left to ``--near-duplicates``.

Rules that count words hold for scripts that separate them by spaces. A syllable of Hangul counts as
two letters.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..config import IngestConfig
from ..errors import UserError
from ..execution.counters import Counters
from ..sources.sentences import ends_sentence
from .minhash import NO_SPACES

OTHER_LANGUAGE = "documents_in_other_languages"

MIN_WORDS = 50
MEAN_WORD_LENGTH = 3, 10
MAX_SYMBOLS_PER_WORD = 0.1
MAX_BULLET_LINES = 0.9
MAX_ELLIPSIS_LINES = 0.3
MIN_WORDS_WITH_LETTERS = 0.8
STOP_WORDS = frozenset(["the", "be", "to", "of", "and", "that", "have", "with"])
MIN_STOP_WORDS = 2
MAX_REPEATED_LINES = 0.3
MAX_REPEATED_LINE_CHARACTERS = 0.2
MAX_TOP_NGRAM = {2: 0.2, 3: 0.18, 4: 0.16}
MAX_REPEATED_NGRAMS = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.1}

C4_MIN_LINE_WORDS = 5
C4_MIN_SENTENCES = 3

_BULLETS = tuple("•‣▪▫◦●○■□–-*·")
_ELLIPSES = ("...", "…")
_LETTER = re.compile(r"[^\W\d_]")
_HANGUL = re.compile("[가-힣]")
_NO_SPACES = re.compile(
    "[" + "".join(f"{chr(codes[0])}-{chr(codes[-1])}" for codes in NO_SPACES) + "]"
)
_C4_NOTICES = re.compile(
    r"javascript|terms of use|privacy policy|cookie policy|uses cookies|use of cookies|use cookies",
    re.IGNORECASE,
)
_NUM_SAMPLED, _SAMPLE_CHARACTERS = 20, 2000


class Fault(NamedTuple):
    """Why a document is left out."""

    reason: str
    """The name of its counter."""
    found: str
    """What was found, for the example in the manifest."""


def find_fault(
    paragraphs: Sequence[str], sentences: Sequence[str], tag: str, config: IngestConfig
) -> Fault | None:
    """Return the first filter of `config` that a document does not pass; `tag` is the language that
    its source names.

    `paragraphs` are its lines, and `sentences` the same text cut otherwise.
    """
    if config.keep_language and (found := identify_language(sentences)) not in config.keep_language:
        return Fault(OTHER_LANGUAGE, f"looks like {found}")
    quality = config.quality or ()
    if "gopher" in quality and (fault := gopher_fault(paragraphs, tag)):
        return fault
    return c4_fault(paragraphs, sentences) if "c4" in quality else None


def identify_language(sentences: Sequence[str]) -> str:
    """Return the code of the language that a sample of the sentences is most likely in, by
    py3langid.

    >>> identify_language(["Il pleut sur la ville.", "Les rues sont vides."])
    'fr'
    """
    sample = " ".join(sentences[:: max(1, len(sentences) // _NUM_SAMPLED)])
    return _identifier().classify(sample[:_SAMPLE_CHARACTERS])[0]


def check_languages(codes: Sequence[str]) -> None:
    """Raise `UserError` unless `identify_language` knows all of these codes."""
    if unknown := sorted(set(codes) - (known := set(_identifier().labels))):
        raise UserError(
            f"--keep-language {unknown[0]}: it is not among the known codes ({', '.join(sorted(known))})."
        )


@cache
def _identifier() -> Any:
    # Imported late: the model takes 1.7 s to load and 120 MB.
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE)


def gopher_fault(lines: Sequence[str], tag: str = "") -> Fault | None:
    """Return the first rule of Gopher that a document breaks; the stop words are those of English
    (`tag` ``en``).
    """
    for name, value, lowest, highest in _gopher_measures(lines, tag):
        if not lowest <= value <= highest:
            return Fault(f"documents_gopher_{name}", f"{value:.3g}")
    return None


def _gopher_measures(lines: Sequence[str], tag: str) -> Iterator[tuple[str, float, float, float]]:
    """Yield the name of each rule, what it measures, and between which values that must be; the
    cheap ones first.
    """
    infinity = float("inf")
    num_lines = max(len(lines), 1)
    yield (
        "bullet_lines",
        sum(line.startswith(_BULLETS) for line in lines) / num_lines,
        0,
        MAX_BULLET_LINES,
    )
    yield (
        "ellipsis_lines",
        sum(line.endswith(_ELLIPSES) for line in lines) / num_lines,
        0,
        MAX_ELLIPSIS_LINES,
    )
    repeated = [line for line, count in Counter(lines).items() for _ in range(count - 1)]
    yield "repeated_lines", len(repeated) / num_lines, 0, MAX_REPEATED_LINES
    share = sum(map(len, repeated)) / max(sum(map(len, lines)), 1)
    yield "repeated_line_characters", share, 0, MAX_REPEATED_LINE_CHARACTERS
    text = " ".join(lines)
    if not has_spaces(text):
        return
    words = text.split()
    yield "words", len(words), MIN_WORDS, infinity
    num_letters = sum(map(len, words)) + len(_HANGUL.findall(text))
    yield "mean_word_length", num_letters / len(words), *MEAN_WORD_LENGTH
    num_symbols = text.count("#") + text.count("...") + text.count("…")
    yield "symbols", num_symbols / len(words), 0, MAX_SYMBOLS_PER_WORD
    yield (
        "words_with_letters",
        sum(map(bool, map(_LETTER.search, words))) / len(words),
        MIN_WORDS_WITH_LETTERS,
        1,
    )
    if tag == "en":
        yield (
            "stop_words",
            len(STOP_WORDS.intersection(text.lower().split())),
            MIN_STOP_WORDS,
            infinity,
        )
    for size, share in ngram_shares(words):
        is_top = size in MAX_TOP_NGRAM
        highest = MAX_TOP_NGRAM[size] if is_top else MAX_REPEATED_NGRAMS[size]
        yield f"{'top' if is_top else 'repeated'}_{size}_grams", share, 0, highest


def has_spaces(text: str) -> bool:
    """Return whether a text's script separates words by spaces, judged by the first 2,000
    characters.
    """
    head = text[:_SAMPLE_CHARACTERS]
    return 2 * len(_NO_SPACES.findall(head)) < len(head)


def ngram_shares(words: Sequence[str]) -> Iterator[tuple[int, float]]:
    """Yield for each size of n-gram the share of the characters that is repeated, as Gopher
    measures it.

    That is, for 2 to 4 words, all copies of the most frequent n-gram; for 5 to 10 words, the words
    in any n-gram that occurred before. It ends early if no n-gram repeats.

    >>> [(size, round(share, 2)) for size, share in ngram_shares("a b c a b d".split())]
    [(2, 0.67), (3, 0.5), (4, 0.67)]
    """
    index: dict[str, int] = {}
    ids = np.array([index.setdefault(word, len(index)) for word in words], np.int64)
    lengths = np.array([len(word) + 1 for word in words], np.int64)  # with the space behind it
    ends = np.concatenate([[0], np.cumsum(lengths)])
    keys = ids
    for size in (*MAX_TOP_NGRAM, *MAX_REPEATED_NGRAMS):
        if len(words) < size:
            return
        # An n-gram's number follows, without collisions, from that of its first n - 1 words and its
        # last word.
        _, first, keys, counts = np.unique(
            keys[:-1] * len(index) + ids[size - 1 :],
            return_index=True,
            return_inverse=True,
            return_counts=True,
        )
        if size in MAX_TOP_NGRAM:
            top = first[counts == counts.max()]
            yield size, float(counts.max() * (ends[top + size] - ends[top]).max() / ends[-1])
            continue
        again = np.ones(len(keys), bool)
        again[first] = False
        if not again.any():
            return
        steps = np.zeros(len(words) + 1, np.int64)
        np.add.at(steps, starts := np.flatnonzero(again), 1)
        np.add.at(steps, starts + size, -1)
        yield size, float(lengths[np.cumsum(steps[:-1]) > 0].sum() / ends[-1])


def c4_lines(lines: Sequence[str], doc_id: str, counters: Counters) -> list[str]:
    """Return the lines that C4 keeps: with at least five words, an end of a sentence, and no notice
    of a website.

    The others, and their words, are counted as ``c4_short_lines``, ``c4_lines_without_end`` and
    ``c4_notices``.
    """
    kept = []
    for line in lines:
        if not ends_sentence(line):
            counters.leave_out_line("c4_lines_without_end", line, doc_id)
        elif len(line.split()) < C4_MIN_LINE_WORDS and has_spaces(line):
            counters.leave_out_line("c4_short_lines", line, doc_id)
        elif _C4_NOTICES.search(line):
            counters.leave_out_line("c4_notices", line, doc_id)
        else:
            kept.append(line)
    return kept


def c4_fault(lines: Sequence[str], sentences: Sequence[str]) -> Fault | None:
    """Return the first rule of C4 on whole documents that this one breaks."""
    if len(sentences) < C4_MIN_SENTENCES:
        return Fault("documents_c4_sentences", f"{len(sentences)} sentences")
    if any("{" in line for line in lines):
        return Fault("documents_c4_curly_bracket", "{")
    if any("lorem ipsum" in line.lower() for line in lines):
        return Fault("documents_c4_lorem_ipsum", "lorem ipsum")
    return None
