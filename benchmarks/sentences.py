"""Ends of sentences that are missed or false, for each language and what is difficult in it,
against sentencex alone.

    python -m benchmarks.sentences [LANGUAGE...]

The sentences are in ``tests/fixtures/sentence_patterns.toml``: of the kind that Wikipedia has, each
in paragraphs between plain ones, with numbers in the language's digits. Prints mis-splits per 1,000
sentences, and the first of ours.
"""

import sys
from pathlib import Path

import sentencex
from clozeworks.pipeline.sources.sentences import language_code, split_sentences

sys.path.append(str(Path(__file__).parents[1] / "tests" / "fixtures"))
from sentence_patterns import PATTERNS, count_mis_splits


def alone(text: str, language: str) -> list[str]:
    return sentencex.segment(language_code(language), text)  # pyright: ignore[reportAttributeAccessIssue]


def ours(text: str, language: str) -> list[str]:
    return split_sentences([text], language)


def main(*languages: str) -> None:
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
