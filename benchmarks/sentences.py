"""Ends of sentences that are missed or false, for each language and what is difficult in it,
against sentencex alone.

    python -m benchmarks.sentences [LANGUAGE...]
    python -m benchmarks.sentences --documents DIRECTORY...
    python -m benchmarks.sentences --gold FILE [--errors]

The sentences are in ``tests/fixtures/sentence_patterns.toml``: of the kind that Wikipedia has, each
in paragraphs between plain ones, with numbers in the language's digits. Prints mis-splits per 1,000
sentences, and the first of ours. With ``--documents`` it counts, in what `clozeworks ingest` wrote,
ends that are wrong by their looks, such as a sentence that begins with a small letter. With
``--gold`` it compares with treebanks, beside the peers that are installed (see
`benchmarks.treebanks`); ``--errors`` prints the ends that are false or missed.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import sentencex
from clozeworks.pipeline.text.sentence_rules import language_code
from clozeworks.pipeline.text.sentences import split_sentences

from .treebanks import print_table

sys.path.append(str(Path(__file__).parents[1] / "tests" / "fixtures"))
from tests.fixtures.sentence_patterns import PATTERNS, count_mis_splits


def alone(text: str, language: str) -> list[str]:
    return sentencex.segment(language_code(language), text)  # pyright: ignore[reportAttributeAccessIssue]


def ours(text: str, language: str) -> list[str]:
    return split_sentences([text], language)


_CAPITAL = "[A-ZÀ-ÖØ-ÞΆ-ΏΑ-ΫА-ЯЁЄІЇҐ]"
_SMALL = "[a-zß-öø-ÿά-ώа-яёєіїґ]"
_ASIDE = re.compile(r"\([^()]*\)|\"[^\"]*\"|“[^”]*”|«[^»]*»|„[^“”]*[“”]|(?<!\w)['‘].*")
# Inside a sentence, without its quotations and brackets.
MISSED = {
    "missed after a word": re.compile(rf"{_SMALL}{{5}}\. (?={_CAPITAL})"),
    "missed after me, art, May": re.compile(rf" (?:me|art|May)\. (?={_CAPITAL}{_SMALL})"),
    "missed after a unit": re.compile(
        rf"\d ?(?:k?m|[cm]m|kg|ha|km/h|m/s|к?м|[см]м|кг|га|χλμ)\. (?={_CAPITAL}{_SMALL})"
    ),
}
# Between sentences, a line each.
FALSE = {
    "goes on with a small letter": re.compile(rf"(?<=[.!?])\n(?={_SMALL})"),
    "within an acronym": re.compile(rf"{_CAPITAL}\.\n(?={_CAPITAL}{{1,4}}\.)"),
    "after Ste., Ft., Vol. II, var.": re.compile(
        r" (?:(?:Ste|Sta|Ft)\.\n(?=[A-Z])|[Vv]ols?\.\n(?=[IVX]+\b)|(?:subsp|var|ser)\.\n(?=[\"“]))"
    ),
    "after a genitive (၏)": re.compile("၏\n"),
    # What no treebank shows, as "t.ex. Stockholm" is in none.
    "after a short word, before a name": re.compile(
        rf"(?<= ){_CAPITAL}?{_SMALL}{{1,4}}\.\n(?={_CAPITAL}{_SMALL}+ )"
    ),
}
_NUMBER_BEHIND = re.compile(r"\D (\d{1,3})[.।)]$")


def documents(directory: Path) -> Iterator[list[str]]:
    for shard in sorted(directory.glob("*.parquet")):
        for batch in pq.ParquetFile(shard).iter_batches(100, columns=["sentences"]):
            yield from batch.column("sentences").to_pylist()


def wrong_ends(sentences: list[str]) -> Counter[str]:
    """Count ends that look wrong in one document, by kind."""
    counts = Counter({"sentences": len(sentences)})
    for sentence in sentences:
        if ". " in sentence:
            outside = _ASIDE.sub("", sentence)
            counts.update({name: len(kind.findall(outside)) for name, kind in MISSED.items()})
    text = "\n".join(sentences)
    counts.update({name: len(kind.findall(text)) for name, kind in FALSE.items()})
    behind = [_NUMBER_BEHIND.search(sentence[-7:]) for sentence in sentences]
    numbers = [int(number[1]) if number else None for number in behind]
    counts["numbers after the items before"] += sum(
        third is not None and second == third - 1 and first == third - 2
        for first, second, third in zip(numbers, numbers[1:], numbers[2:], strict=False)
    )
    return counts


def count_documents(*directories: str) -> None:
    kinds = [*MISSED, *FALSE, "numbers after the items before"]
    print("| documents | sentences | " + " | ".join(kinds) + " |")
    print("|---" * (len(kinds) + 2) + "|")
    for directory in directories:
        total = Counter[str]()
        for sentences in documents(Path(directory)):
            total.update(wrong_ends(sentences))
        num_sentences = total["sentences"]
        rates = [f"{1000 * total[kind] / max(num_sentences, 1):.2f}" for kind in kinds]
        print(f"| {directory} | {num_sentences:,} | {' | '.join(rates)} |")


def main(*languages: str) -> None:
    if languages[:1] == ("--documents",):
        count_documents(*languages[1:])
        return
    if languages[:1] == ("--gold",):
        print_table(Path(languages[1]), shows_errors="--errors" in languages)
        return
    print("| language | pattern | sentences | sentencex | ours |\n|---|---|---|---|---|")
    totals = {alone: 0, ours: 0}
    num_sentences = 0
    for language in languages or PATTERNS:
        for pattern in PATTERNS[language]:
            if pattern == "plain":
                continue
            (number, lost, _), (_, wrong, example) = (
                count_mis_splits(split, language, pattern) for split in totals
            )
            totals[alone] += lost
            totals[ours] += wrong
            num_sentences += number
            lost_rate = f"{1000 * lost / number:.0f}"
            wrong_rate = f"{1000 * wrong / number:.0f}"
            row = f"| {language} | {pattern} | {number} | {lost_rate} | {wrong_rate} |"
            print(f"{row} {example}".rstrip())
    rates = [f"{1000 * wrong / num_sentences:.1f}" for wrong in totals.values()]
    print(f"| all | | {num_sentences} | {rates[0]} | {rates[1]} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
