"""Find ordinary words that sentencex takes for abbreviations, for ``sentence_words.toml``:

    python -m benchmarks.ordinary_words FILE.jsonl.xz

FILE is what `benchmarks.treebanks` reads, or has paragraphs of any text in that form. A word is
ordinary if it occurs at least `LEAST` times, and less than `MOST_WITH_STOP` of them with a full
stop; an abbreviation nearly always has one. Languages whose sentences do not end with a full stop
are left out. Read the list before you take it over: units ("km"), too, are often written without.
"""

import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

from clozeworks.pipeline.text.sentence_cuts import is_abbreviation
from clozeworks.pipeline.text.sentence_rules import WORDS, row_of

from .treebanks import read_treebanks

LEAST = 5
MOST_WITH_STOP = 0.25
_WORD = re.compile(r"(?<![^\s(\"„“«'’-])([^\W\d_]{2,})(\.?)(?=[\s,;:!?)\"“”»]|$)")


def ordinary_words(texts: list[str], language: str) -> list[str]:
    occurrences: Counter[str] = Counter()
    with_stop: Counter[str] = Counter()
    for text in texts:
        for word, stop in _WORD.findall(text):
            if word[0].islower():
                occurrences[word] += 1
                with_stop[word] += bool(stop)
    return [
        word
        for word, count in occurrences.most_common()
        if count >= LEAST
        and with_stop[word] < MOST_WITH_STOP * count
        and is_abbreviation(word, language)
    ]


def main(path: str) -> None:
    texts: dict[str, list[str]] = defaultdict(list)
    for treebank in read_treebanks(Path(path)):
        texts[treebank.language] += [paragraph.text for paragraph in treebank.paragraphs]
    for language in sorted(texts):
        if row_of(WORDS.ends, language):
            continue
        if words := ordinary_words(texts[language], language):
            print(f'\n[[ordinary_words]]\nlanguages = "{language}"\nwords = "{" ".join(words)}"')


if __name__ == "__main__":
    main(*sys.argv[1:])
