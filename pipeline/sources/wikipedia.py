"""Turn Wikipedia XML dumps into raw documents, one for each article of the main namespace.

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
from ..counters import Counters, count_words
from ..text.wikitext.names import NAMES
from ..text.wikitext.passages import wikitext_to_paragraphs
from .dump_pages import read_head, read_pages
from .streams import InputRange, RawDocument, decode, is_compressed

_MAIN, _FILE, _CATEGORY = 0, 6, 14


def plan_dump(file: InputRange, range_bytes: int, config: IngestConfig) -> list[InputRange]:
    """Cut a dump into ranges of about `range_bytes`, unless it is compressed, but not by bz2."""
    if is_compressed(file.name) and not file.name.lower().endswith(".bz2"):
        return [file]
    return file.cut_evenly(range_bytes)


def read_dump(
    file: BinaryIO, input_range: InputRange, config: IngestConfig, counters: Counters
) -> Iterator[RawDocument]:
    """Yield the articles that begin in a range of a dump."""
    # The head names the wiki, so that every range of a dump reads it.
    head, encoding = read_head(file, input_range)
    site = parse_siteinfo(head)
    pages_before = counters.counts["pages"]
    for xml, location in read_pages(file, input_range, encoding, counters):
        counters.count("pages")
        page = _parse_page(xml, location, counters)
        if page is None:
            continue
        document = _document(page, count_words(xml), site, config.templates, counters)
        if document:
            yield document
    has_pages = counters.counts["pages"] > pages_before
    if input_range.start == 0 and not has_pages and "<mediawiki" not in head:
        counters.skip("no_dump", input_range.name)


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """A wiki, as the head of its dump describes it."""

    database: str
    """``enwiki``; in old dumps, which do not state it, the language and "wiki"."""
    language: str
    """Language code, ``en``."""
    namespaces: dict[str, int]
    """Number of each namespace by its name, lower-cased."""

    @property
    def dropped_links(self) -> list[str]:
        """The names of the namespaces whose links are not text: files and categories."""
        return [name for name, key in self.namespaces.items() if key in (_FILE, _CATEGORY)]


_LANGUAGE = re.compile(
    r"""<mediawiki\b[^>]{0,2000}?\bxml:lang=["']((?i:[a-z]{2,8}(?:-[a-z0-9]{1,12}){0,4}))["']"""
)
_DATABASE = re.compile(r"<dbname>\s*([a-zA-Z0-9_-]{1,64})\s*</dbname>")
_NAMESPACE = re.compile(
    r"""<namespace\s[^>]{0,200}?\bkey=["'](-?\d{1,9})["'][^>]{0,200}>([^<]{1,200})</namespace>"""
)


def parse_siteinfo(head: str) -> Site:
    """Parse the head of a dump, which may be old (no database name before 0.9), damaged or hostile:
    what is not a language code or a name of a database is as if it was missing.
    """
    language, *_ = (*map(str.lower, _LANGUAGE.findall(head)), "")
    database, *_ = (*_DATABASE.findall(head), "")
    if language and not database:
        database = f"{language.replace('-', '_')}wiki"
    if database and not language:
        language = database.removesuffix("wiki")
    if not database:
        language, database = "en", "wikipedia"
    namespaces = {
        html.unescape(name).strip().lower(): int(key) for key, name in _NAMESPACE.findall(head)
    }
    return Site(database=database, language=language, namespaces=namespaces)


def _parse_page(xml: bytes, location: str, counters: Counters) -> ElementTree.Element | None:
    """Return the ``<page>`` element, or None if it is not XML."""
    # Nearly always there is nothing to repair, and no need to decode.
    with suppress(ElementTree.ParseError):
        return ElementTree.fromstring(xml)
    try:
        return ElementTree.fromstring(decode(xml, location, counters))
    except (ElementTree.ParseError, ValueError) as error:
        counters.skip("malformed_page", f"{location}: {error}", str(error), xml)
        return None


def _document(
    page: ElementTree.Element, num_words: int, site: Site, templates: str, counters: Counters
) -> RawDocument | None:
    """Return the page's article, of so many words in XML; None, and a count, if it is not one."""
    title = (page.findtext("title") or "").strip()
    # A dump with history has several revisions: the last is the newest.
    text = page.findtext("revision[last()]/text") or ""
    identity = (page.findtext("id") or title).strip()
    if len(text) > 1 << 21:  # MediaWiki saves no longer text by default
        num_structures = sum(text.count(opening) for opening in ("{{", "[[", "{|"))
        if num_structures > 1 << 19:  # each takes 200 bytes of memory
            counters.skip("oversized_page", f"{site.database}:{identity}")
            return None
    words_left_out_before = counters.num_words_left_out
    other_kind = _other_kind(page, title, text, site)
    if other_kind:
        counters.leave_out(other_kind, [text])
        paragraphs = []
    else:
        paragraphs = wikitext_to_paragraphs(
            text, site.language, site.dropped_links, counters, title, templates
        )
    num_kept = sum(paragraph.count(" ") + 1 for paragraph in paragraphs)
    num_left_out = counters.num_words_left_out - words_left_out_before
    # The rest of the XML's words: the page's fields, targets of links, tags, and so on.
    counters.count_left_out("markup", num_words - num_kept - num_left_out)
    if not paragraphs:
        counters.count(other_kind or "empty_pages")
        return None
    return RawDocument(
        id=identity,
        source=site.database,
        title=title,
        language=site.language,
        paragraphs=paragraphs,
    )


def _other_kind(page: ElementTree.Element, title: str, text: str, site: Site) -> str | None:
    """Return the counter of a page that is not an article; None if it is one."""
    number = (page.findtext("ns") or "").strip()
    if re.fullmatch(r"-?\d{1,9}", number):
        namespace = int(number)
    else:
        # Schemas before 0.6 have no <ns>, damaged pages may have any.
        prefix, colon, _ = title.partition(":")
        namespace = site.namespaces.get(prefix.strip().lower(), _MAIN) if colon else _MAIN
    if namespace != _MAIN:
        return "other_namespaces"
    if page.find("redirect") is not None or _REDIRECT.match(text):
        return "redirects"
    if not text.strip():
        return "empty_pages"
    if is_disambiguation(title, text):
        return "disambiguation_pages"
    if page.findtext("revision[last()]/model") not in (None, "", "wikitext"):
        return "other_models"
    return None


# The magic word in any language: #REDIRECT, #WEITERLEITUNG, #перенаправление, #転送.
_REDIRECT = re.compile(r"\s{0,100}#\s?\w{2,40}\s{0,10}:?\s{0,10}\[\[")

_TEMPLATE_NAME = re.compile(r"\{\{\s{0,20}([^{}|\n]{2,60}?)\s{0,20}(?=[|}\n])")


def is_disambiguation(title: str, text: str) -> bool:
    """Return whether a page lists the meanings of its title."""
    if "__DISAMBIG__" in text:
        return True
    if title.endswith(")"):
        qualifier = title.rpartition("(")[2].removesuffix(")").lower()
        if qualifier in NAMES.disambiguation_titles:
            return True
    # A set first: a long article uses a few templates thousands of times.
    used_templates = set(_TEMPLATE_NAME.findall(text))
    names = {name.replace("_", " ").lower() for name in used_templates}
    if not names.isdisjoint(NAMES.disambiguation_templates):
        return True
    return any(
        name.endswith(("disambiguation", "disambig", " dab"))
        and not name.startswith(("redirect", "about", "other uses"))
        for name in names
    )
