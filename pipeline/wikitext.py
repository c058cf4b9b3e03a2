"""Wikitext to paragraphs of plain text: text passages only, no lists, tables or headers.

The markup is read in four passes, each linear in its length whatever it holds:

1. tags: comments and whole elements (references, formulas, galleries, ...) are dropped, other tags stripped;
2. structures: ``{{...}}``, ``[[...]]`` and ``{|...|}`` are matched by one scan with a stack, then rendered from the
   outside in, so that what is dropped is never looked into;
3. lines: lists, headings and what is left of tables go, emphasis and external links are rendered;
4. repair: what a removal leaves behind ("Berlin (; born") is mended at the marks that the removals left.

Regular expressions here have no unbounded part that could be tried again from another start.
"""

import html
import re
from collections.abc import Collection

from .wikitext_templates import (
    MISSING,
    PARAGRAPH_BREAK,
    REMOVED,
    PRONUNCIATION,
    can_render,
    mark_of_silent,
    render_template,
    template_name,
)

GAP = "\ufffc"
"""Stands in a paragraph where words are missing (OBJECT REPLACEMENT CHARACTER): its sentence should be left out."""

# MediaWiki's own limit on the expansion of templates; it also keeps the copying of nested text linear.
_MAX_DEPTH = 40

_SILENT_MARKS = (REMOVED, PRONUNCIATION)

# Neither may a text bring marks of its own, nor an entity smuggle them in.
_CONTROLS = dict.fromkeys([*range(9), 11, 12, *range(14, 32), 127, 0xAD, 0xFFFC])


def wikitext_to_paragraphs(markup: str, language: str = "en", namespaces: Collection[str] = ()) -> list[str]:
    """Return the prose of a page, one paragraph an item, in single-spaced plain text.

    Never raises, and takes time linear in the length of `markup`.

    Args:
        markup: wikitext, after XML entities are resolved.
        language: code of the wiki's language, for numbers and dates in templates.
        namespaces: lower-cased names of the wiki's own file and category namespaces; those of many languages are known.

    Returns:
        Paragraphs; a `GAP` stands where a template or formula was that the sentence needs.

    >>> wikitext_to_paragraphs("'''Ada''' ({{IPA|x}}; born [[London]], {{convert|5|km}} away).")
    ['Ada (born London, 5 km away).']
    """
    text = "\n" + markup.translate(_CONTROLS)
    text = _resolve_tags(text)
    text = _Structures(text, language, frozenset(namespaces)).render()
    text = _render_lines(text)
    return [paragraph for block in text.split(PARAGRAPH_BREAK) if (paragraph := _repair(block))]


# --- 1. tags ---------------------------------------------------------------------------------------------------------

_TAG = re.compile(r"<(?:!--|(/?)([a-zA-Z][a-zA-Z0-9]*+)([^<>]{0,2000}+)>)")
_DROPPED_ELEMENTS = {
    **dict.fromkeys(("ref", "templatestyles", "indicator", "noinclude", "rt", "rp", "section"), REMOVED),
    **dict.fromkeys(("math", "chem", "ce", "code", "hiero", "score", "graph", "source"), GAP),
    **dict.fromkeys(("references", "gallery", "pre", "syntaxhighlight", "timeline", "imagemap"), PARAGRAPH_BREAK),
    **dict.fromkeys(("mapframe", "maplink", "templatedata", "inputbox", "categorytree"), PARAGRAPH_BREAK),
    **dict.fromkeys(("table", "ul", "ol", "dl", "includeonly"), PARAGRAPH_BREAK),
}
_BREAKING_TAGS = frozenset("p div center blockquote poem h1 h2 h3 h4 h5 h6 hr li dd dt tr td th".split())
_CLOSING_TAGS = {name: re.compile(rf"</(?i:{name})\s{{0,50}}+>") for name in (*_DROPPED_ELEMENTS, "nowiki", "sup")}
_SUPERSCRIPTS = str.maketrans("0123456789-−+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁻⁺")
_EXPONENT = re.compile(r"[-−+]?[0-9]+")
_MAX_EXPONENT = 4
_MARKUP_CHARACTERS = re.compile(r"[\[\]{}<>|*#=]|''")


class _ClosingTags:
    """Finds the next closing tag of each name; each part of the text is searched once for a name."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._next: dict[str, re.Match[str] | None] = {}

    def after(self, name: str, position: int) -> tuple[int, int] | None:
        """Return start and end of the first closing tag of `name` at or after `position`."""
        known = self._next.get(name)
        if name not in self._next or (known is not None and known.start() < position):
            known = self._next[name] = _CLOSING_TAGS[name].search(self._text, position)
        return known.span() if known else None


def _resolve_tags(text: str) -> str:
    """Drop comments and whole elements, strip the other tags."""
    if "<" not in text:
        return text
    out: list[str] = []
    closing_tags = _ClosingTags(text)
    position = 0
    while match := _TAG.search(text, position):
        start = match.start()
        out.append(text[position:start])
        name = match[2]
        if name is None:
            position = _comment_end(text, start)
            continue
        name = name.lower()
        replacement, position = _tag(text, match, name, closing_tags)
        # A footnote that directly follows its word leaves nothing to repair.
        if replacement is not REMOVED or text[start - 1] in " \n(（":
            out.append(replacement)
    out.append(text[position:])
    return "".join(out)


def _comment_end(text: str, start: int) -> int:
    end = text.find("-->", start)
    if end < 0:
        return len(text)
    # A comment that has lines for itself goes with them, as in MediaWiki.
    alone = text[start - 1] == "\n" and text[end + 3 : end + 4] == "\n"
    return end + 4 if alone else end + 3


def _tag(text: str, match: re.Match[str], name: str, closing_tags: _ClosingTags) -> tuple[str, int]:
    """Return what stands for the tag, and where to read on."""
    end = match.end()
    if name == "br":
        return "\n", end
    if name in _BREAKING_TAGS:
        return PARAGRAPH_BREAK, end
    opens = not match[1] and not match[3].endswith("/")
    if not opens or name not in _CLOSING_TAGS:
        return (REMOVED if name == "ref" else ""), end
    closing = closing_tags.after(name, end)
    if closing is None or (name == "ref" and text.find("<ref", end, closing[0]) >= 0):
        return "", end
    if name in _DROPPED_ELEMENTS:
        return _DROPPED_ELEMENTS[name], closing[1]
    if name == "nowiki":
        content = text[end : closing[0]]
        return (GAP if _MARKUP_CHARACTERS.search(content) else content), closing[1]
    exponent = text[end : min(closing[0], end + _MAX_EXPONENT)]
    if closing[0] - end > _MAX_EXPONENT or not _EXPONENT.fullmatch(exponent):
        return "", end
    return exponent.translate(_SUPERSCRIPTS), closing[1]


# --- 2. templates, links, tables -------------------------------------------------------------------------------------

_STRUCTURE = re.compile(r"(\{\{|\}\}|\[\[|\]\]|\n[ \t:]*+\{\||\n[ \t]*+\|\}(?!\}))")
_FILE_NAMES = re.compile(
    r"\.(?:jpe?g|png|gif|svg|tiff?|webp|xcf|og[gvam]|webm|flac|wav|midi?|mp3|pdf|djvu?)\s*(?:\||$)", re.IGNORECASE
)
_MEDIA_AND_CATEGORIES = frozenset(
    "file image media category fichier image catégorie datei bild kategorie archivo imagen categoría ficheiro imagem "
    "categoria immagine bestand afbeelding categorie plik grafika kategoria файл изображение категория файл зображення "
    "категорія ファイル 画像 カテゴリ 文件 檔案 图像 圖像 分类 分類 파일 그림 분류 fil kategori tiedosto kuva luokka fájl kép "
    "kategória soubor kategorie dosya resim kategori ملف صورة تصنيف پرونده رده קובץ תמונה קטגוריה चित्र श्रेणी "
    "αρχείο εικόνα κατηγορία fișier imagine categorie tập_tin hình thể_loại berkas gambar kategori fitxer imatge "
    "attēls kategorija vaizdas fails kategoreja датотека слика категорија slika kategorija pilt kategooria картинка".split()
)
_INTERLANGUAGE = re.compile(r"(?:[a-z]{2,3}(?:-[a-z]+)*+|simple|be-x-old|zh-min-nan|nds-nl|map-bms)\s*:")


class _Structures:
    """The templates, links and tables of one page.

    `parts` alternates text (even indices) and tokens (odd ones); `closer` gives for each opening token that has one
    the index of its closing token.
    """

    def __init__(self, text: str, language: str, namespaces: frozenset[str]) -> None:
        self.language = language
        self.dropped_namespaces = _MEDIA_AND_CATEGORIES | namespaces
        self.parts = _STRUCTURE.split(text)
        self.closer = _match_structures(self.parts)

    def render(self) -> str:
        """Return the page with every structure rendered or dropped."""
        return self._render(0, len(self.parts), 0)

    def _render(self, first: int, stop: int, depth: int) -> str:
        """Render parts[first:stop]; both ends are text."""
        parts, closer = self.parts, self.closer
        out = [parts[first]]
        index = first + 1
        while index < stop:
            close = closer.get(index)
            if close is None:
                out.append(_drop_unmatched(parts, index))
                index += 2
                continue
            token = parts[index]
            if token == "[[":
                words = self._link(index, close, depth)
            elif token == "{{":
                words = self._template(index, close, depth)
            else:
                words = PARAGRAPH_BREAK
            # As with footnotes: no mark where there is nothing to repair.
            if words not in _SILENT_MARKS or out[-1][-1:] in ("", " ", "\n", "(", "（"):
                out.append(words)
            out.append(parts[close + 1])
            index = close + 2
        return "".join(out)

    def _inside(self, index: int, close: int, depth: int) -> str:
        if close == index + 2:
            return self.parts[index + 1]
        return self._render(index + 1, close, depth + 1)

    def _template(self, index: int, close: int, depth: int) -> str:
        name = template_name(self.parts[index + 1].partition("|")[0])
        if mark := mark_of_silent(name):
            return mark
        if depth >= _MAX_DEPTH or not can_render(name):
            return REMOVED if self._stands_alone(index, close) else MISSING
        return render_template(self._inside(index, close, depth), self.language)

    def _stands_alone(self, index: int, close: int) -> bool:
        before, after = self.parts[index - 1], self.parts[close + 1]
        return (before.endswith("\n") or (before == "" and index > 1)) and after.startswith("\n")

    def _link(self, index: int, close: int, depth: int) -> str:
        parts = self.parts
        target, pipe, label = parts[index + 1].partition("|")
        namespace, colon, _ = target.partition(":")
        if colon and namespace.strip().lower() in self.dropped_namespaces:
            return REMOVED
        if depth >= _MAX_DEPTH:
            return MISSING
        if close != index + 2:
            target, pipe, label = self._inside(index, close, depth).partition("|")
        if "." in target and _FILE_NAMES.search(target):
            return REMOVED
        if PARAGRAPH_BREAK in label:
            # A link ends with its paragraph: these brackets belong to two different links.
            return f"{target} {label}"
        if pipe and (label := label.rpartition("|")[2]):
            return label
        if colon and not target.startswith(":") and _INTERLANGUAGE.match(target):
            return REMOVED
        return target.strip(":#") if target[:1] in ":#" else target


def _match_structures(parts: list[str]) -> dict[int, int]:
    """Return the index of the closing token for each opening token that has one."""
    closer: dict[int, int] = {}
    stack: list[int] = []
    open_templates = open_tables = 0
    for index in range(1, len(parts), 2):
        token = parts[index]
        if token == "[[":
            stack.append(index)
        elif token == "{{":
            stack.append(index)
            open_templates += 1
        elif token == "]]":
            if stack and parts[stack[-1]] == "[[":
                closer[stack.pop()] = index
        elif token == "}}":
            while open_templates:
                opening = stack.pop()
                if parts[opening] == "{{":
                    open_templates -= 1
                    closer[opening] = index
                    break
                open_tables -= parts[opening] != "[["
        elif token.endswith("{|"):
            stack.append(index)
            open_tables += 1
        else:
            while open_tables:
                opening = stack.pop()
                if parts[opening] not in ("[[", "{{"):
                    open_tables -= 1
                    closer[opening] = index
                    break
                open_templates -= parts[opening] == "{{"
    return closer


def _drop_unmatched(parts: list[str], index: int) -> str:
    """Return what stands for a token without its counterpart; what it opened loses the rest of its line."""
    token = parts[index]
    following = parts[index + 1]
    if token.endswith("{|") or (token == "{{" and parts[index - 1].endswith("\n")):
        parts[index + 1] = following[following.find("\n") :] if "\n" in following else ""
    return "\n" if token.startswith("\n") else ""


# --- 3. lines and inline markup --------------------------------------------------------------------------------------

# Lists, definitions, indented text (formulas, talk), preformatted text, headings, rules, rows of broken tables.
_DROPPED_LINE = re.compile(r"\n(?:[\x20\t][^\n]*+|[\x01-\x03]*+[*#:;|!=][^\n]*+|-{4}[^\n]*+|[\x01-\x03]++(?=\n|\Z))")
_EXTERNAL_LINK = re.compile(
    r"\[(?:(?:https?|ftps?|irc|news|gopher)://|//|mailto:)[^\s\[\]<>]{0,2000}+([^\[\]\n]{0,1000}+)\]"
)
# An apostrophe and the start of italics; only the odd number in its line tells it from bold: l'''Odissea''.
_ELISION = re.compile(r"'''(?<=\w''')(?!')")
_BEHAVIOUR_SWITCH = re.compile(r"__[^\W\d_]{3,30}__")
_LANGUAGE_VARIANT = re.compile(r"-\{([^{}\n]{0,500}+)\}-")
_VARIANT_TEXT = re.compile(r"(?:^|[;|])[^;:|]*+:([^;|]*+)")
_MARKS_APART = re.compile(r"[^\x01-\x03\ufffc]++")
_LEFTOVER = re.compile(r"\[\[|\]\]|\{\{|\}\}|\{\||\|\}|</?[a-zA-Z][^<>]{0,300}+>|</?ref\b", re.IGNORECASE)


def _render_lines(text: str) -> str:
    """Drop the lines that are no prose, and render what is marked up inside lines."""
    text = _DROPPED_LINE.sub(PARAGRAPH_BREAK, text)
    if "[" in text:
        text = _EXTERNAL_LINK.sub(lambda match: match[1].strip() or REMOVED, text)
    if "''" in text:
        text = _without_emphasis(text)
    if "__" in text:
        text = _BEHAVIOUR_SWITCH.sub("", text)
    if "-{" in text:
        text = _LANGUAGE_VARIANT.sub(_variant, text)
    if "&" in text:
        text = _MARKS_APART.sub(_unescape, text)
    return text


def _unescape(match: re.Match[str]) -> str:
    return html.unescape(match[0]).translate(_CONTROLS) if "&" in match[0] else match[0]


def _without_emphasis(text: str) -> str:
    lines = text.split("\n")
    for index, line in enumerate(lines):
        if line.count("'''") % 2:
            lines[index] = _ELISION.sub("'", line, count=1)
    return "\n".join(lines).replace("'''''", "").replace("'''", "").replace("''", "")


def _variant(match: re.Match[str]) -> str:
    first = _VARIANT_TEXT.search(match[1])
    return first[1].strip() if first else match[1]


# --- 4. repair -------------------------------------------------------------------------------------------------------

_HOLE = re.compile(r"[\x01-\x03\ufffc]")
_MARKS_BY_NEED = (MISSING, PRONUNCIATION, REMOVED)
_ADJACENT_MARKS = re.compile(r"[\x01-\x03](?:\s*+[\x01-\x03])++")
_PARENTHESIS = re.compile(r"[\x20\xa0]?[(（]([^()（）]{0,600}+)[)）]")
_SILENT_HOLE = re.compile(r"\s*+[\x01\x03]\Z|[\x01\x03]")
_SEPARATOR = re.compile(r"([;,；，、])")
_EMPTY_START = re.compile(r"([(（])\s*+[\x01-\x03][\s;,:；，、：]*+(?:(?:or|and)\s)?")
_EMPTY_ITEM = re.compile(r"[;,；，、]\s*+[\x01-\x03](?=\s*+[;,)；，、）]|\s*+\.(?:\s|$))")
_BEFORE_PUNCTUATION = re.compile(r"\s*+[\x01\x03]\s*+(?=[,.;:!?)])")
_LABEL = re.compile(r"(?:pronounced|named|pronunciation|ipa|or|and|also|in)?\W*|.{0,60}:", re.IGNORECASE)
_DASHES = "–—-"
_OPENING_QUOTES = "「『“„«‘\""


def _repair(block: str) -> str:
    """Return the block as one line of clean text, empty where it holds no words."""
    if _HOLE.search(block):
        block = _mend(block)
    paragraph = " ".join(block.split())
    if _LEFTOVER.search(paragraph):
        paragraph = " ".join(_LEFTOVER.sub(" ", paragraph).split())
    return paragraph if any(map(str.isalpha, paragraph)) else ""


def _mend(block: str) -> str:
    """Close the holes at the marks of removals, or put a `GAP` where words are missing."""
    # The greatest need of adjacent marks counts: MISSING, then PRONUNCIATION, then REMOVED.
    block = _ADJACENT_MARKS.sub(lambda match: next(mark for mark in _MARKS_BY_NEED if mark in match[0]), block)
    for _ in range(2):
        block = _PARENTHESIS.sub(_mend_parenthesis, block)
    block = _EMPTY_START.sub(r"\1", block)
    block = _EMPTY_ITEM.sub("", block)
    block = _BEFORE_PUNCTUATION.sub("", block).replace(REMOVED, "").replace(PRONUNCIATION, "")
    return _MISSING_MARK.sub(_gap, block) if MISSING in block else block


def _mend_parenthesis(match: re.Match[str]) -> str:
    """Leave out what a removal emptied in a parenthesis: "(IPA: ; born 1950)" becomes "(born 1950)"."""
    inside = match[1]
    if not _HOLE.search(inside):
        return match[0]
    separators_and_items = ["", *_SEPARATOR.split(inside)]
    kept = ""
    for separator, item in zip(separators_and_items[::2], separators_and_items[1::2], strict=True):
        if not _is_emptied(item):
            kept += (separator if kept else "") + _SILENT_HOLE.sub("", item)
    kept = kept.strip()
    opening, closing = match[0].index(inside), len(inside)
    return f"{match[0][:opening]}{kept}{match[0][opening + closing :]}" if kept else ""


def _is_emptied(item: str) -> bool:
    """Return whether an item of a parenthesis lost what it was there for."""
    rest = _HOLE.sub("", item).strip()
    if len(rest) == len(item.strip()):
        return not rest
    if MISSING in item and (rest[:1] in _DASHES or rest[-1:] in _DASHES or len(rest.split()) <= 2):
        return True
    if PRONUNCIATION in item and rest.islower() and len(rest.split()) <= 2:
        return True
    return _LABEL.fullmatch(rest) is not None


_MISSING_MARK = re.compile(MISSING)


def _gap(match: re.Match[str]) -> str:
    """Return a `GAP` where the sentence cannot do without the words, else nothing.

    A template that directly follows a word or a full stop is a footnote; one that begins the text is a box.
    """
    text, start, end = match.string, match.start(), match.end()
    before, after = text[max(start - 3, 0) : start], text[end : end + 3]
    begins = not before.strip() or before.rstrip()[-1] in ".!?:"
    if begins:
        return GAP if after.strip()[:1].islower() else ""
    if before[-1].isspace() or before[-1] in _OPENING_QUOTES or _is_unspaced(before[-1]) and _is_unspaced(after[:1]):
        return GAP
    return ""


def _is_unspaced(character: str) -> bool:
    """Return whether it is a letter of a script without spaces: Chinese, Japanese, Thai and their neighbours."""
    return character.isalpha() and ("\u0e00" <= character <= "\u0fff" or "\u2e80" <= character <= "\u9fff")
