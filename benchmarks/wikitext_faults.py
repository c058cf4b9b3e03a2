"""Faults in the text of Wikipedia pages, counted by pattern: ours beside its peers.

    clozeworks ingest DUMP --output DOCUMENTS
    wikiextractor --json --html-safe "" -o EXTRACTED DUMP
    python -m benchmarks.wikitext_faults DUMP DOCUMENTS EXTRACTED SAMPLE

The third text is made by the recipe of `wikimedia/wikipedia`, with the mwparserfromhell that is
installed. The same rules cut every text into sentences. Intervals are bootstrapped over pages.
SAMPLE gets 100 source paragraphs and 100 sentences of each text, to be read by eye.
"""

import contextlib
import html
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import mwparserfromhell
import numpy as np
import pyarrow.parquet as pq
from clozeworks.pipeline.text.sentences import split_sentences

from .wikitext_quality import RESIDUE, WORD, read_articles, reference_prose

_SMALL = "an?|the|of|in|at|on|by|to|from|with|for|between|about|approximately|nearly|over|is|was"
HOLE = re.compile(
    rf"\(\s*[;,:.)]|\(\s*(?:or|and)\b|[(,;:]\s*\)|[,;]\s*[,;]|\s[,;.](?!\w|\.)|,\.(?!\w)"
    rf"|(?<=[\s(])[\"“]\s*[\"”](?=[\s,.;)])|\b(?:{_SMALL})\s*[,;:.)](?!\w)"
    r"|\b(?:an?|the|between|approximately|about|nearly) (?:of|is|was|and|in|or|from)\b"
)
PATTERNS = {
    "placeholder": re.compile(r"\b(?:formula|codice)_\d+"),
    "markup": re.compile(rf"{RESIDUE.pattern}|&[a-z]+;|&#\d+;|\b(?:style|class|align)\s*=", re.I),
    "torn": re.compile(r"^[a-z),;.]|\b(?:the|of|and|a|in|to|with|by)$"),
}
KINDS = ["hole", *PATTERNS, "heading", "no final mark"]
NOT_SHOWN = r"(?s)<ref[^<>]*/>|<ref.*?</ref>|<!--.*?-->|'{2,5}|\[\[[^\[\]|]*\||\[\[|\]\]"
FINAL = re.compile(r"[.!?…:;。][\"'”’»)\]]*$")

Text = dict[str, list[str]]


def main() -> None:
    dump, documents, extracted, sampled = map(Path, sys.argv[1:])
    tables = [pq.read_table(path) for path in sorted(documents.glob("*.parquet"))]
    ours = {row["title"]: row["sentences"] for table in tables for row in table.to_pylist()}
    pages = {title: text for title, text in read_articles(dump)[1] if title in ours}
    lines = (line for path in sorted(extracted.rglob("wiki_*")) for line in path.open())
    rows = map(json.loads, lines)
    texts: dict[str, Text] = {
        "clozeworks": ours,
        "WikiExtractor": {row["title"]: cut(row["text"]) for row in rows if row["title"] in ours},
        "strip_code": {title: cut(hugging_face(text)) for title, text in pages.items()},
    }
    for name in texts:
        report(name, texts, pages)
    sampled.write_text("".join(sample(texts, pages)))


def cut(text: str) -> list[str]:
    return list(split_sentences([line for line in text.split("\n") if line.strip()], "en"))


def hugging_face(wikitext: str) -> str:
    """Return the text of an English page as Hugging Face's `wikipedia` script makes it."""
    code = mwparserfromhell.parse(wikitext)
    texts: list[str] = []
    for section in code.get_sections(flat=True, include_lead=True, include_headings=True):
        media = section.ifilter_wikilinks(matches=r"^\[\[(File|Image|Media):")
        tags = section.ifilter_tags(matches=lambda tag: str(tag.tag) in ("ref", "table"))
        for node in [*media, *tags]:
            with contextlib.suppress(ValueError):  # it was inside another that is gone
                section.remove(node)
        for link in section.ifilter_wikilinks(matches=r"^\[\[Category:"):
            link.text = re.sub("(?i)^Category:", "", str(link.__strip__()))
        texts.append(re.sub("__[A-Z]*__", "", str(section.strip_code()).strip()))
    return "\n\n".join(texts)


def report(name: str, texts: dict[str, Text], pages: dict[str, str]) -> None:
    """Print each kind's share of the sentences. Lost are words that both other texts have."""
    counts: list[list[int]] = []
    examples: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for title, wikitext in pages.items():
        shown = html.unescape(re.sub(NOT_SHOWN, "", wikitext))
        headings = {found.strip() for found in re.findall(r"(?m)^=+([^=\n]+)=+\s*$", shown)}
        found = Counter[str]()
        for sentence in texts[name].get(title, []):
            for kind, example in faults_of(sentence, shown, headings):
                found[kind] += 1
                examples[kind].append(f"{title}: {example}")
        own, first, second = (
            words_of(texts[key].get(title, []), headings)
            for key in sorted(texts, key=lambda key: key != name)
        )
        expected = first & second
        totals = [own.total(), expected.total(), (expected - own).total()]
        counts.append([len(texts[name].get(title, [])), *totals, *(found[kind] for kind in KINDS)])
    table = np.array(counts, float)
    draws = np.random.default_rng(71).integers(len(table), size=(2000, len(table)))
    sums = np.concatenate([table.sum(0)[None], table[draws].sum(1)])
    print(f"\n{name}: {len(table)} pages, {sums[0, 0]:,.0f} sentences, {sums[0, 1]:,.0f} words")
    shares = {"words lost": sums[:, 3] / sums[:, 2]}
    shares |= {kind: sums[:, 4 + i] / sums[:, 0] for i, kind in enumerate(KINDS)}
    for kind, (share, *drawn) in shares.items():
        low, high = np.percentile(drawn, (2.5, 97.5))
        print(f"  {kind:14} {share:.2%} ({low:.2%} to {high:.2%})")
        for example in examples.get(kind, [])[:: 1 + len(examples.get(kind, [])) // 5]:
            print(f"      {example}")


def words_of(sentences: list[str], headings: set[str]) -> Counter[str]:
    shown = (sentence for sentence in sentences if sentence.removesuffix(".") not in headings)
    return Counter(WORD.findall(" ".join(shown)))


def faults_of(sentence: str, shown: str, headings: set[str]) -> Iterator[tuple[str, str]]:
    """Yield (kind, where) once for each kind of fault in the sentence."""
    if sentence.removesuffix(".") in headings:
        yield "heading", sentence
    elif not FINAL.search(sentence):
        yield "no final mark", sentence[-80:]
    for match in HOLE.finditer(sentence):
        # What the author wrote like this is not a hole.
        if sentence[max(0, match.start() - 6) : match.end() + 4] not in shown:
            yield "hole", sentence[max(0, match.start() - 60) : match.end() + 30]
            break
    for kind, pattern in PATTERNS.items():
        if match := pattern.search(sentence):
            yield kind, sentence[max(0, match.start() - 50) : match.end() + 30]


def sample(texts: dict[str, Text], pages: dict[str, str]) -> Iterator[str]:
    chance = random.Random(71)
    blocks = [
        (title, block)
        for title, text in pages.items()
        for block in re.split(r"\n+", text)
        if not re.match(r"[\s|*#:;=!{}<\[]", block)
        and len(WORD.findall(reference_prose(block))) > 24
    ]
    for number, (title, block) in enumerate(chance.sample(blocks, 100)):
        yield f"\n=== {number} {title}\nSOURCE {block}\n"
        known = trigrams(reference_prose(block))
        for name, text in texts.items():
            near = [s for s in text[title] if len((t := trigrams(s)) & known) > 0.4 * len(t)]
            yield f"{name.upper()} {' ¦ '.join(near)}\n"
    for name, text in texts.items():
        every = [(title, sentence) for title in pages for sentence in text[title]]
        yield f"\n=== sentences of {name}\n"
        yield from (f"[{title}] {sentence}\n" for title, sentence in chance.sample(every, 100))


def trigrams(text: str) -> set[tuple[str, ...]]:
    words = WORD.findall(text)
    return set(zip(words, words[1:], words[2:], strict=False))


if __name__ == "__main__":
    main()
