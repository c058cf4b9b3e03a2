"""Quality and speed of the wikitext cleaner on real dumps, against mwparserfromhell in the same
run.

    python benchmarks/wikitext_quality.py enwiki-….xml.bz2 ltgwiki-….xml.bz2

Prints, for each dump:

- residue: sentences with leftover markup, per 2,000 sentences. The test is strict: a pipe, a brace
  or the word "thumb" in the text proper counts too. Sentences with a gap are dropped from documents
  and counted separately;
- coverage: the share of the words that mwparserfromhell keeps in paragraphs outside tables, lists,
  headings and templates that the cleaner keeps too, page by page;
- speed: MB of dump XML cleaned per second on one core, and the ratio to ``Wikicode.strip_code``.
"""

import argparse
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import mwparserfromhell
from clozeworks.pipeline.counters import Counters
from clozeworks.pipeline.sources.dump_pages import read_head, read_pages
from clozeworks.pipeline.sources.streams import InputRange
from clozeworks.pipeline.sources.wikipedia import Site, parse_siteinfo
from clozeworks.pipeline.text.sentences import split_sentences
from clozeworks.pipeline.text.wikitext.passages import GAP, wikitext_to_paragraphs
from mwparserfromhell.nodes import ExternalLink, HTMLEntity, Tag, Text, Wikilink
from mwparserfromhell.wikicode import Wikicode

RESIDUE = re.compile(
    r"\[\[|\]\]|\{\{|\}\}|\{\||\|\}|\||''|\bthumb\b|\b\d+px\b|</?[a-z]+[^<>]*>|</?ref|__[A-Z]+__",
    re.IGNORECASE,
)
WORD = re.compile(r"\w+")
LIST_ITEM = "\x00"
NOT_PROSE_TAGS = {
    "ref",
    "table",
    "gallery",
    "math",
    "chem",
    "code",
    "pre",
    "source",
    "syntaxhighlight",
    "timeline",
}
NOT_PROSE_TAGS |= {
    "ul",
    "ol",
    "dl",
    "references",
    "imagemap",
    "score",
    "hiero",
    "templatestyles",
    "br",
}
NOT_PROSE_LINE = re.compile(r"^[ |!]|\x00|\{\||\|\}|\|\||</?[a-z]", re.IGNORECASE)
MEDIA = re.compile(
    r":?\s*(?:file|image|fails|attēls|category|kategoreja|ファイル|画像|category)\s*:",
    re.IGNORECASE,
)
NUM_WORST = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("dumps", nargs="+", type=Path)
    for dump in parser.parse_args().dumps:
        measure(dump)


def measure(dump: Path) -> None:
    site, articles, num_bytes = read_articles(dump)
    start = time.process_time()
    cleaned = [
        wikitext_to_paragraphs(text, site.language, site.dropped_links) for _, text in articles
    ]
    seconds = time.process_time() - start
    start = time.process_time()
    for _, text in articles:
        mwparserfromhell.parse(text).strip_code()
    peer_seconds = time.process_time() - start
    print(f"\n{dump.name}: {len(articles)} articles, {num_bytes / 1e6:.1f} MB of XML")
    print(
        f"  speed     {num_bytes / 1e6 / seconds:.1f} MB/s; "
        f"strip_code {num_bytes / 1e6 / peer_seconds:.1f} MB/s; ratio {peer_seconds / seconds:.1f}"
    )
    print_residue(articles, cleaned, site.language)
    print_coverage(articles, cleaned)


def read_articles(dump: Path) -> tuple[Site, list[tuple[str, str]], int]:
    """Return the wiki, (title, wikitext) of each article that is no redirect, and the bytes of
    their pages' XML.
    """
    part = InputRange(path=str(dump), name=dump.name, format="wikipedia")
    articles: list[tuple[str, str]] = []
    num_bytes = 0
    with dump.open("rb") as file:
        head, encoding = read_head(file, part)
        for xml, _ in read_pages(file, part, encoding, Counters()):
            page = ElementTree.fromstring(xml)
            text = page.findtext("revision/text") or ""
            if (
                page.findtext("ns") in (None, "0")
                and page.find("redirect") is None
                and not text.startswith("#")
            ):
                articles.append((page.findtext("title") or "", text))
                num_bytes += len(xml)
    return parse_siteinfo(head), articles, num_bytes


def print_residue(articles: list[tuple[str, str]], cleaned: list[list[str]], language: str) -> None:
    num_sentences = num_gaps = 0
    worst: list[str] = []
    for (title, _), paragraphs in zip(articles, cleaned, strict=True):
        for sentence in split_sentences(paragraphs, language):
            num_sentences += 1
            num_gaps += GAP in sentence
            if GAP not in sentence and (found := RESIDUE.search(sentence)):
                worst.append(
                    f"{title}: … {sentence[max(0, found.start() - 60) : found.end() + 40]}"
                )
    print(
        f"  residue   {len(worst) / num_sentences * 2000:.2f} in 2,000 sentences "
        f"({len(worst)} of {num_sentences}); {num_gaps} more have a gap"
    )
    for line in worst[:NUM_WORST]:
        print(f"      {line}")


def print_coverage(articles: list[tuple[str, str]], cleaned: list[list[str]]) -> None:
    num_words = num_kept = 0
    worst: list[tuple[int, str, list[str]]] = []
    for (title, text), paragraphs in zip(articles, cleaned, strict=True):
        expected = Counter(WORD.findall(reference_prose(text)))
        lacking = expected - Counter(WORD.findall(" ".join(paragraphs)))
        num_words += expected.total()
        num_kept += expected.total() - lacking.total()
        worst.append((lacking.total(), title, [word for word, _ in lacking.most_common(12)]))
    print(f"  coverage  {num_kept / num_words:.2%} of {num_words} words")
    for missing, title, words in sorted(worst, reverse=True)[:NUM_WORST]:
        print(f"      {title}: {missing} lacking, as {' '.join(words)}")


def reference_prose(text: str) -> str:
    """Return the text that mwparserfromhell finds in paragraphs: not in lists, headings, tables or
    templates.

    Lines of tables and tags that it took for text, because they are not well formed, are left out.
    """
    lines = "".join(_prose_of(mwparserfromhell.parse(text))).split("\n")
    return "\n".join(line for line in lines if not NOT_PROSE_LINE.search(line))


def _prose_of(code: Wikicode | None) -> Iterator[str]:
    for node in code.nodes if code else []:
        if isinstance(node, Text):
            yield str(node.value)
        elif isinstance(node, HTMLEntity):
            yield node.normalize()
        elif isinstance(node, Wikilink):
            if not MEDIA.match(str(node.title)):
                yield from _prose_of(node.text if node.text is not None else node.title)
        elif isinstance(node, ExternalLink):
            yield from _prose_of(node.title)
        elif isinstance(node, Tag):
            yield from _prose_of_tag(node)


def _prose_of_tag(tag: Tag) -> Iterable[str]:
    name = str(tag.tag).strip().lower()
    if tag.wiki_markup and name in ("li", "dd", "dt"):
        return [LIST_ITEM]
    if name in NOT_PROSE_TAGS:
        return ["\n"] if name == "br" else []
    return _prose_of(tag.contents)


if __name__ == "__main__":
    main()
