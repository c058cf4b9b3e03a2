"""What each rule for text does in each language: words kept, and sentences changed.

    python -m benchmarks.text_rules [--rule PATTERN] [--examples N] SOURCE...

A SOURCE is what `clozeworks ingest` reads, or ``CODE=DIRECTORY`` with texts in the language CODE, a
paragraph a line. Each rule in turn is switched off, everything is read and split again, and the
result compared with that of all rules. Prints a line for each rule and source in which it does
anything: words and sentences without the rule, how many more or less there are with it, and the
sentences with it that are not there without it.
"""

import argparse
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import patch

from clozeworks.pipeline.config import IngestConfig
from clozeworks.pipeline.execution.counters import Counters
from clozeworks.pipeline.sources import (
    books,
    extracted,
    gutenberg,
    sentence_cuts,
    sentence_joins,
    sentence_quotes,
    sentence_rules,
    sentences,
)
from clozeworks.pipeline.sources.formats import read_documents
from clozeworks.pipeline.sources.records import RawDocument
from clozeworks.pipeline.sources.wikitext import passages, repair
from clozeworks.pipeline.sources.wikitext.repair import GAP

_LINES_PER_DOCUMENT = 30
_NEVER = re.compile("(?!)()")  # with a group, which replacements name
_NO_WORDS: frozenset[str] = frozenset()
_NO_ENDINGS = sentence_rules.Endings(_NEVER, _NEVER, _NO_WORDS, _NO_WORDS, _NO_WORDS)


@dataclass(frozen=True)
class Rule:
    """A rule, and what switches it off."""

    name: str
    replacements: dict[tuple[Any, str], Any]
    """A replacement for an attribute of a module."""
    rereads: bool
    """Whether the rule is one of reading, and not only of splitting."""

    @contextmanager
    def switched_off(self) -> Iterator[None]:
        patches = [patch.object(*place, value) for place, value in self.replacements.items()]
        _forget_compiled_rules()
        for each in patches:
            each.start()
        try:
            yield
        finally:
            for each in patches:
                each.stop()
            _forget_compiled_rules()


def _forget_compiled_rules() -> None:
    sentence_joins.join_rules_of.cache_clear()


def _reading(name: str, replacements: dict[tuple[Any, str], Any]) -> Rule:
    return Rule(name, replacements, rereads=True)


def _splitting(name: str, replacements: dict[tuple[Any, str], Any]) -> Rule:
    return Rule(name, replacements, rereads=False)


def _join(name: str, *examples: str) -> Rule:
    """Return the rule of the entries of `JOINS` whose examples contain these words."""
    rest = tuple(
        join
        for join in sentence_rules.JOINS
        if not any(example in join.example for example in examples)
    )
    assert len(rest) == len(sentence_rules.JOINS) - len(examples)
    return _splitting(name, {(sentence_joins, "JOINS"): rest})


def _same(text: str, *_: object) -> str:
    return text


def _no(_: object) -> bool:
    return False


RULES = (
    _reading("speakers and directions of plays", {(books, "without_drama"): _same}),
    _reading("tables in books", {(books, "_is_table"): _no}),
    _reading("signatures of notes", {(gutenberg, "_SIGNATURE"): _NEVER}),
    _reading(
        "rows of links", {(passages, "is_navigation"): _no, (extracted, "is_navigation"): _no}
    ),
    _reading(
        "introductions of lists",
        {(passages, "introduction_gap"): _same, (extracted, "introduction_gap"): _same},
    ),
    _reading(
        "pasted reference marks",
        {
            (passages, "without_reference_marks"): _same,
            (extracted, "without_reference_marks"): _same,
        },
    ),
    _reading("formulas as text", {(passages, "formula_text"): lambda tex: None}),
    _reading("places without coordinates", {(repair, "_PLACE"): _NEVER}),
    _reading("pronunciations spoken of", {(repair, "_SPOKEN_OF"): _NEVER}),
    _reading(
        "links, pictures, templates in extracted text",
        {
            (extracted, "_without_brackets"): extracted.without_reference_marks,
            (extracted, "_BARE_LINK"): _NEVER,
            (extracted, "_TEMPLATE"): _NEVER,
        },
    ),
    _reading(
        "doubled quotes",
        {(extracted, "_DOUBLED_QUOTES"): _NEVER, (extracted, "_EMPTY_QUOTES"): _NEVER},
    ),
    _reading(
        "words that an extractor lost",
        {
            (extracted, "_LOST_BEFORE"): _NEVER,
            (extracted, "_LOST_AFTER"): _NEVER,
            (extracted, "_LOST_IN_KOREAN"): _NEVER,
        },
    ),
    _splitting(
        "units, eras, and others end", {(sentence_cuts, "endings_of"): lambda code: _NO_ENDINGS}
    ),
    _splitting("words of the document end", {(sentence_cuts, "_may_be_common"): _no}),
    _splitting("numbers before what they number", {(sentences, "number_lines"): _same}),
    _splitting("long quotations", {(sentence_quotes, "_QUOTATION"): _NEVER}),
    _join("who asks", "Peter asked"),
    _join("acronyms", "ΠΑ.|ΣΟ.|Κ"),
    _join("numbers in other digits", "২৭.| ৩"),
    _join('"9. -10."', "9.| -10"),
    _join("Greek questions", "Τι θα πει;|"),
    _join("English: Ste., ed., Vol. II, var.", "Ste.|", "Vol.|", "var.|"),
    _splitting("abbreviations of the language", {(sentence_joins, "ABBREVIATIONS"): {}}),
    _splitting("words like initials that end", {(sentence_joins, "FINAL_WORDS"): {}}),
    _splitting("marks that end nothing", {(sentence_joins, "NO_ENDS"): {}}),
    _splitting("gershayim", {(sentence_quotes, "GERSHAYIM"): frozenset()}),
    _splitting("quotes from right to left", {(sentence_quotes, "MIRRORED_QUOTES"): frozenset()}),
    _splitting("ends that sentencex lacks", {(sentences, "CUTS"): {}}),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--rule", default="", help="only the rules that match this expression")
    parser.add_argument("--examples", type=int, default=0)
    arguments = parser.parse_args()
    rules = [rule for rule in RULES if re.search(arguments.rule, rule.name)]
    print("| rule | source | words without | with | sentences without | with | changed |")
    print("|---|---|---:|---:|---:|---:|---:|", flush=True)
    for source in arguments.sources:
        compare(source, rules, arguments.examples)


def compare(source: str, rules: list[Rule], num_examples: int) -> None:
    """Print what each rule changes in one source."""
    name = source.partition("=")[0].rpartition("/")[2]
    documents = list(_documents(source))
    with_all = [_split(document) for document in documents]
    for rule in rules:
        with rule.switched_off():
            if rule.rereads:
                without = [_split(document) for document in _documents(source)]
            else:
                without = [_split(document) for document in documents]
        if without == with_all:
            continue
        counts = Counter(chain.from_iterable(with_all))
        counts.subtract(chain.from_iterable(without))
        new = [sentence for sentence, count in counts.items() for _ in range(count)]
        columns = [
            f"{_num_words(without):,} | {_num_words(with_all) - _num_words(without):+,}",
            f"{sum(map(len, without)):,} | {sum(map(len, with_all)) - sum(map(len, without)):+,}",
        ]
        print(f"| {rule.name} | {name} | {' | '.join(columns)} | {len(new):,} |", flush=True)
        for sentence in new[:: max(1, len(new) // max(num_examples, 1))][:num_examples]:
            print(f"    {sentence[-240:]}")


def _documents(source: str) -> Iterator[RawDocument]:
    language, equals, directory = source.partition("=")
    if not equals:
        yield from read_documents(source, IngestConfig(), Counters())
        return
    for path in sorted(Path(directory).glob("*.txt")):
        lines = path.read_text(encoding="utf-8").splitlines()
        for start in range(0, len(lines), _LINES_PER_DOCUMENT):
            yield RawDocument(
                id=f"{path.stem}:{start}",
                source=path.stem,
                title="",
                language=language,
                paragraphs=lines[start : start + _LINES_PER_DOCUMENT],
            )


def _split(document: RawDocument) -> list[str]:
    split = sentences.split_sentences(document.paragraphs, document.language)
    return [sentence for sentence in split if GAP not in sentence]


def _num_words(documents: list[list[str]]) -> int:
    return sum(len(sentence.split()) for document in documents for sentence in document)


if __name__ == "__main__":
    main()
