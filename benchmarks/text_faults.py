"""Count what a reader would find wrong in documents: one row a kind of fault, one column a corpus.

    python -m benchmarks.text_faults [--examples N] DOCUMENTS...

DOCUMENTS are directories that `clozeworks ingest` wrote, with one source or with many. Prints the
faults per 1,000 sentences by source and kind, and, if asked, N examples of each, drawn evenly from
the whole corpus. Give two directories made before and after a change to compare them.

A kind is a pattern over the text of a document, a sentence a line. Patterns see no meaning: each
was chosen so that most of what it finds, on real text, is a fault.
"""

import argparse
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq


@dataclass(frozen=True)
class Kind:
    """One kind of fault."""

    name: str
    pattern: str
    """A regular expression (``re.MULTILINE``); ``^`` and ``$`` are the ends of a sentence."""
    example: str
    """Real text; ``|`` marks where sentences are cut."""
    languages: str = "*"
    """Codes of the languages in which it is counted, or ``*`` for all."""


_SPEAKING = (
    "said|asked|cried|demanded|exclaimed|replied|answered|inquired|enquired|shouted|repeated"
    "|muttered|murmured|whispered|screamed|returned|observed|gasped|continued|echoed|began"
)

KINDS = (
    # --- structure ---
    Kind("stage direction", r"^[\[(](?:Exit|Exeunt|Enter|Re-enter|Aside|Music)\b", "[Exit."),
    Kind(
        "navigation",
        r"^(?:\S+ ){0,6}[•·●](?:(?: \S+){0,6} [•·●])+.{0,40}$|^[•·●]",
        "• | Січень | •",
    ),
    Kind("leads nowhere", r"[:：]$", "The members were:"),
    Kind(
        "speech tag cut off",
        rf"[?!]['\"”’]\n(?:I|he|she|they|[A-Z]\w+|the \w+) (?:{_SPEAKING})[.,]",
        '"What\'s she gone there for?" | I asked.',
        "en",
    ),
    Kind("row of a table", r"^(?:\W*\d[\d.,/]*\W){4,}.*$|^[^\n|]*\|[^\n|]*\|.*$", "1. 23 45 6"),
    Kind("doubled quotes", r"(?<![^\s(])\"\"(?!\")|\"\"(?=[\s,.;:)]|$)", 'the film ""X"" was'),
    Kind("raw link", r"https?://\S+", "in The Art Book [http://…] (February"),
    Kind("leftover markup", r"\[\[|\]\]|\{\{|\}\}|\{\||\|thumb|<ref", "[[File:A.jpg|thumb|…"),
    Kind("reference mark", r"(?<=\S)\[[\d০-৯०-९]{1,3}\]", "as was known.[174]"),
    Kind(
        "hole",
        r"(?<! the)(?<!\")\b(?:an|than|its)[.,](?=\s|$)|(?<= )and\.(?=\s|$)"
        r"|\b(?:weighs|measures)[.,](?=\s|$)"
        r"|(?<=\w) ,(?=\s)|\((?:[,;]| [,;]|\)\s)",
        "Marson stands and weighs.",
        "en simple",
    ),
    Kind(
        "long quotation uncut",
        r"[“\"«„][^”\"»\n]{20,}(?:[।|։?!。]|\.(?= ))[^”\"»\n]{200,}[”\"»]",
        "a quotation of several sentences",
    ),
)
SPEAKERS = "speaker's name"
"""A sentence of up to four words that stands at least ten times in its document: "PEN." """

_FEWEST_REPEATS = 10
_SHORT = re.compile(r"(?:[^\W\d_][^\W\d]*\W{0,2}\s?){1,4}[.:]\W?")


@dataclass
class Counts:
    """What was found in one source."""

    num_sentences: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    examples: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, kind: str, example: str) -> None:
        self.faults[kind] += 1
        self.examples[kind].append(example)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("documents", nargs="+", type=Path)
    parser.add_argument("--examples", type=int, default=0)
    parser.add_argument("--kind", default="", help="only the kinds that match this expression")
    arguments = parser.parse_args()
    kinds = [kind for kind in KINDS if re.search(arguments.kind, kind.name)]
    corpora = [count_faults(directory, kinds) for directory in arguments.documents]
    names = [directory.name for directory in arguments.documents]
    print(f"| source | kind | {' | '.join(names)} |\n|---|---|{'---|' * len(names)}")
    for source in sorted({source for corpus in corpora for source in corpus}):
        columns = [corpus.get(source, Counts()) for corpus in corpora]
        sizes = " | ".join(f"{counts.num_sentences:,}" for counts in columns)
        print(f"| {source} | *sentences* | {sizes} |")
        for name in (*(kind.name for kind in kinds), SPEAKERS):
            if not any(counts.faults[name] for counts in columns):
                continue
            rates = " | ".join(_rate(counts, name) for counts in columns)
            print(f"| {source} | {name} | {rates} |")
            for example in evenly(columns[-1].examples[name], arguments.examples):
                print(f"    {example}")


def _rate(counts: Counts, kind: str) -> str:
    return f"{1000 * counts.faults[kind] / max(counts.num_sentences, 1):.2f}"


def evenly(texts: list[str], number: int) -> list[str]:
    """Return `number` of the texts, from all over the list."""
    if not number:
        return []
    step = max(len(texts) // number, 1)
    return texts[::step][:number]


def count_faults(directory: Path, kinds: list[Kind]) -> dict[str, Counts]:
    """Count the faults of all documents, by source."""
    patterns = [(kind, re.compile(kind.pattern, re.MULTILINE)) for kind in kinds]
    counts_of: defaultdict[str, Counts] = defaultdict(Counts)
    for source, language, sentences in read_documents(directory):
        counts = counts_of[source]
        counts.num_sentences += len(sentences)
        text = "\n".join(sentences)
        for kind, pattern in patterns:
            if kind.languages != "*" and language not in kind.languages.split():
                continue
            for match in pattern.finditer(text):
                counts.add(kind.name, _line_around(text, match))
        for name, repeats in Counter(sentences).items():
            if repeats >= _FEWEST_REPEATS and _SHORT.fullmatch(name):
                counts.faults[SPEAKERS] += repeats
                counts.examples[SPEAKERS].append(f"{repeats} x {name}")
    return counts_of


def _line_around(text: str, match: re.Match[str]) -> str:
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    start = max(start, match.start() - 80)
    end = min(len(text) if end < 0 else end, match.end() + 80)
    return text[start:end].replace("\n", " | ")[:300]


def read_documents(directory: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Yield source, language and sentences of each document, in the order of the shards."""
    for shard in sorted(directory.glob("*.parquet")):
        for batch in pq.ParquetFile(shard).iter_batches(100):
            for row in batch.select(["source", "language", "sentences"]).to_pylist():
                yield row["source"], row["language"], row["sentences"]


if __name__ == "__main__":
    main()
