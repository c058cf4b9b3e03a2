"""Wikipedia XML dumps to raw documents: the articles of the main namespace, one document each.

Redirects, disambiguation pages, other namespaces and pages without prose are left out, and counted.
A broken page costs only itself.
"""

import html
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO

from ..config import IngestConfig
from ..execution.counters import Counters, count_words
from .compression import is_compressed
from .dump_pages import read_head, read_pages, sniff_encoding
from .lines import decode
from .records import Input, InputRange, OpenFile, RawDocument
from .wikitext.names import NAMES
from .wikitext.passages import wikitext_to_paragraphs

_MAIN, _FILE, _CATEGORY = 0, 6, 14


def plan_dump(
    entry: Input, open_file: OpenFile, range_bytes: int, config: IngestConfig
) -> list[InputRange]:
    """Cut a dump into ranges of about `range_bytes`, from its name and size alone.

    Plain and bz2 files are cut into equal parts; one compressed otherwise (``.xml.gz``,
    ``.xml.xz``) is one range.
    """
    if is_compressed(entry.name) and not entry.name.lower().endswith(".bz2"):
        return entry.cut([0])
    return entry.cut_evenly(range_bytes)


def read_dump(
    file: BinaryIO, part: InputRange, config: IngestConfig, counters: Counters
) -> Iterator[RawDocument]:
    """Yield the articles that begin in a range of a dump; together, the ranges of any split give
    each page once.

    `counters` gets the neutral counters ``pages``, ``redirects``, ``other_namespaces``,
    ``disambiguation_pages``, ``other_models``, ``empty_pages`` and ``single_stream_files``, and the
    bad input ``malformed_page``, ``invalid_utf8`` (the page is kept, with U+FFFD for the bad
    bytes), ``no_dump`` (a file that does not begin like a dump and has no page in its first range)
    and what `read_pages` names.
    """
    head = read_head(file, part)
    encoding = sniff_encoding(head)
    beginning = head.decode(encoding, "replace")
    site = parse_siteinfo(beginning)
    pages_before = counters.counts["pages"]
    for xml, where in read_pages(file, part, encoding, counters):
        counters.count("pages")
        page = _parse_page(xml, encoding, where, counters)
        if page is not None and (document := _document(page, count_words(xml), site, counters)):
            yield document
    if (
        part.start == 0
        and counters.counts["pages"] == pages_before
        and "<mediawiki" not in beginning
    ):
        counters.skip("no_dump", part.name)


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """What the head of a dump says about its wiki."""

    database: str
    """``enwiki``; old dumps do not say it: the language and "wiki"."""
    language: str
    """Language code, ``en``."""
    namespaces: dict[str, int]
    """Number of each namespace by its name, lower-cased."""

    @property
    def dropped_links(self) -> list[str]:
        """The names of the namespaces whose links are not text: files and categories."""
        return [name for name, key in self.namespaces.items() if key in (_FILE, _CATEGORY)]


_LANGUAGE = re.compile(r"""<mediawiki\b[^>]{0,2000}?\bxml:lang=["']([^"']{1,40})["']""")
_DATABASE = re.compile(r"<dbname>\s*([^<]{1,100}?)\s*</dbname>")
_NAMESPACE = re.compile(
    r"""<namespace\s[^>]{0,200}?\bkey=["'](-?\d{1,9})["'][^>]{0,200}>([^<]{1,200})</namespace>"""
)


def parse_siteinfo(head: str) -> Site:
    """Parse the head of a dump; schemas before 0.9 have no database name, a damaged head has
    nothing.
    """
    language = _LANGUAGE.search(head)
    database = _DATABASE.search(head)
    code = (
        language[1].lower()
        if language
        else (database[1].removesuffix("wiki") if database else "en")
    )
    return Site(
        database=database[1]
        if database
        else f"{code.replace('-', '_')}wiki"
        if language
        else "wikipedia",
        language=code,
        namespaces={
            html.unescape(name).strip().lower(): int(key) for key, name in _NAMESPACE.findall(head)
        },
    )


def _parse_page(
    xml: bytes, encoding: str, where: str, counters: Counters
) -> ElementTree.Element | None:
    """Return the ``<page>`` element, or None if it is not XML."""
    # UTF-16 comes from `read_pages` as UTF-8 already.
    encoding = "utf-8" if encoding.startswith("utf-16") else encoding
    if encoding == "utf-8":
        with suppress(
            ElementTree.ParseError
        ):  # nearly always there is nothing to repair, and no need to decode
            return ElementTree.fromstring(xml)
    try:
        return ElementTree.fromstring(decode(xml, where, counters, encoding))
    except (ElementTree.ParseError, ValueError) as error:
        counters.skip("malformed_page", f"{where}: {error}")
        return None


def _document(
    page: ElementTree.Element, num_words: int, site: Site, counters: Counters
) -> RawDocument | None:
    """Return the article of a page, which has so many words of XML, or None and a count of what the
    page is instead.
    """
    title = (page.findtext("title") or "").strip()
    revisions = page.findall("revision")
    text = (revisions[-1].findtext("text") if revisions else None) or ""
    identity = (page.findtext("id") or title).strip()
    if counters.trace and not counters.trace.meet(f"{site.database}:{identity}", title):
        return None
    num_left_out = counters.num_words_left_out
    if kind := _left_out_as(page, title, text, site):
        counters.leave_out(kind, [text])
    paragraphs = (
        [] if kind else wikitext_to_paragraphs(text, site.language, site.dropped_links, counters)
    )
    num_kept = sum(paragraph.count(" ") + 1 for paragraph in paragraphs)
    # What remains: the page's fields, targets of links, tags, and so on.
    counters.count_left_out(
        "markup", num_words - num_kept - (counters.num_words_left_out - num_left_out)
    )
    if not paragraphs:
        counters.count(kind or "empty_pages")
        return None
    return RawDocument(
        id=identity,
        source=site.database,
        title=title,
        language=site.language,
        paragraphs=paragraphs,
    )


def _left_out_as(page: ElementTree.Element, title: str, text: str, site: Site) -> str | None:
    """Return the counter of a page that is not an article, or None."""
    if _namespace(page, title, site) != _MAIN:
        return "other_namespaces"
    if page.find("redirect") is not None or _REDIRECT.match(text):
        return "redirects"
    if not text.strip():
        return "empty_pages"
    if is_disambiguation(title, text):
        return "disambiguation_pages"
    return (
        None
        if page.findtext("revision[last()]/model") in (None, "", "wikitext")
        else "other_models"
    )


def _namespace(page: ElementTree.Element, title: str, site: Site) -> int:
    number = page.findtext("ns")
    if number is not None and number.strip().lstrip("-").isdecimal():
        return int(number)
    # Schemas before 0.6 have no <ns>.
    prefix, colon, _ = title.partition(":")
    return site.namespaces.get(prefix.strip().lower(), _MAIN) if colon else _MAIN


# The magic word in any language: #REDIRECT, #WEITERLEITUNG, #перенаправление, #転送.
_REDIRECT = re.compile(r"\s{0,100}#\s?\w{2,40}\s{0,10}:?\s{0,10}\[\[")

_DISAMBIGUATION_SUFFIXES = ("disambiguation", "disambig", " dab")
_NOT_DISAMBIGUATION_PREFIXES = ("redirect", "about", "other uses")
_TEMPLATE_NAME = re.compile(r"\{\{\s{0,20}([^{}|\n]{2,60}?)\s{0,20}(?=[|}\n])")


def is_disambiguation(title: str, text: str) -> bool:
    """Return whether a page lists the meanings of its title, by its template, magic word or title
    in many languages.
    """
    qualifier = title.rpartition("(")[2].removesuffix(")").lower() if title.endswith(")") else ""
    if "__DISAMBIG__" in text or qualifier in NAMES.disambiguation_titles:
        return True
    names = {name.replace("_", " ").lower() for name in set(_TEMPLATE_NAME.findall(text))}
    return not names.isdisjoint(NAMES.disambiguation_templates) or any(
        name.endswith(_DISAMBIGUATION_SUFFIXES)
        and not name.startswith(_NOT_DISAMBIGUATION_PREFIXES)
        for name in names
    )
