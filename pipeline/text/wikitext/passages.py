"""Turn wikitext into paragraphs of plain text: text passages only, no lists, tables or headers.

The markup is read in four passes, each linear in its length whatever the markup is:

1. tags: comments and whole elements (references, formulas, galleries, ...) are dropped, other tags
   stripped;
2. structures: ``{{...}}``, ``[[...]]`` and ``{|...|}`` are matched by one scan with a stack, then
   rendered from the outside in, so that the inside of what is dropped is never rendered;
3. lines: lists, headings and the rest of tables are dropped, emphasis and external links rendered;
4. repair: removals leave marks, at which holes such as "Berlin (; born" are closed.

Regular expressions here have no unbounded part that could be tried again from another start.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ...counters import Counters
from ...languages import language_tag
from ..fragments import (
    introduction_gap,
    is_navigation,
    resolve_entities,
    without_reference_marks,
)
from ..sentence_ends import SENTENCE_ENDS, ends_sentence
from ..sentence_rules import LOWER_CASE
from .names import NAMES
from .repair import (
    CONTROLS,
    GAP,
    LOST_TO_TEMPLATE,
    MISSING,
    PARAGRAPH_BREAK,
    PRONUNCIATION,
    REMOVED,
    REMOVED_BLOCK,
    Dropped,
    repair_paragraph,
)
from .tags import TAG_NAMES, resolve_tags
from .templates import (
    Renderer,
    added_templates,
    find_renderer,
    mark_of_silent,
    render_template,
    template_name,
)

# MediaWiki limits the expansion of templates to this depth; it also keeps the copying of nested
# text linear.
_MAX_DEPTH = 40

_SENTENCE_END = re.compile(f"[{''.join(sorted(SENTENCE_ENDS))}]")

_CONTROL = re.compile(f"[{''.join(CONTROLS)}]")


def wikitext_to_paragraphs(
    markup: str,
    language: str = "en",
    namespaces: Collection[str] = (),
    counters: Counters | None = None,
    title: str = "",
    templates: str = "",
) -> list[str]:
    """Return the prose of a page, one paragraph an item, in single-spaced plain text.

    It takes linear time and never raises, whatever the markup, whose XML entities are resolved
    already. `language` is the wiki's; `namespaces` are the lower-cased names of its own file and
    category namespaces; `title` is what ``{{PAGENAME}}`` shows; `templates` is the content of a
    TOML file of further templates. A `GAP` marks a template, formula or list that the sentence
    needs.

    >>> wikitext_to_paragraphs("'''Ada''' ({{IPA|x}}; born [[London]], {{convert|5|km}} away).")
    ['Ada (born London, 5 km away).']
    """
    language = language_tag(language)
    dropped: Dropped = defaultdict(list)
    # Single characters first, which are found faster, because most texts have none.
    if any(control in markup for control in CONTROLS):
        markup = _CONTROL.sub("", markup)
    # With a line break in front, every line begins after one.
    text = resolve_tags("\n" + markup, dropped)
    added = added_templates(templates, language)
    namespaces = NAMES.files_and_categories.union(namespaces)
    parts = _STRUCTURE.split(text)
    structures = _Structures(parts, language, namespaces, dropped, title, added)
    text = _drop_lines(structures.render(0, len(parts)), language, dropped)
    passages = []
    for block in _render_inline(text, language).split(PARAGRAPH_BREAK):
        if not block or block.isspace():
            continue  # at once, because most are: what was between the lines of a list
        paragraph = without_reference_marks(repair_paragraph(block))
        if not paragraph:
            continue
        # "Novels:", a cell of a table, a caption: few are longer than half a line.
        is_label = len(paragraph) < 40 and not _SENTENCE_END.search(paragraph)
        if is_label or not any(map(str.isalpha, paragraph)):
            dropped["labels"].append(paragraph)
        elif is_navigation(paragraph):
            dropped["navigation"].append(paragraph)
        else:
            passages.append(paragraph)
    if counters:
        for reason, texts in dropped.items():
            counters.leave_out(reason, texts)
        counters.count("lines_left_out", len(dropped["headings"]) + len(dropped["lists"]))
        counters.count("tables_left_out", len(dropped["tables"]))
        counters.count("labels_left_out", len(dropped["labels"]))
        for name, num_words in structures.words_lost.items():
            if num_words:
                counters.count(LOST_TO_TEMPLATE + name, num_words)
    return passages


# --- 2. templates, links, tables ---------------------------------------------------------------

# A table begins and ends on a line of its own, so that "{|" within a template is none.
_STRUCTURE = re.compile(r"(\{\{|\}\}|\[\[|\]\]|\n[ \t:]*+\{\||\n[ \t]*+\|\}(?!\}))")
_FRACTION = re.compile(r"\d+/\d")
_MERGING = frozenset(" *#:;|!=0123456789")
"""First characters of words that mean something else after a line break, or after a digit."""
# What may be the words around an unknown template, which cost the most.
_SENTENCE_START = re.compile(r"(?<=[.!?]) |(?<=[。！？])|\n")
# "The stage fell at {{coord|30|12|N|74|7|W}}", "a letter for {{IPA|/v/}}": words of the sentence.
_NEEDS_WORD = re.compile(
    r"(?:^| )(?:at|by|from|of|for|to|with|into|between|like|near"
    r"|sounds?|vowels?|consonants?|letters?|phonemes?) \Z"
)
# A picture whose namespace is in a language that neither `NAMES` nor the dump lists.
_FILE_NAMES = re.compile(
    r"\.(?:jpe?g|png|gif|svg|tiff?|webp|xcf|og[gvam]|webm|flac|wav|midi?|mp3|pdf|djvu?)\s*(?:\||$)",
    re.IGNORECASE,
)
# A link to a file is text; "[[:File:A.jpg|the picture]]".
_LINKED_FILE = re.compile(r"\s*(?::|media:)", re.IGNORECASE)
# In the languages of which neither `NAMES` nor the dump lists all words: "Categuria", "Катэгорыя".
_CATEGORY = re.compile(r"[ck]at\w?g\w{1,2}r\w{0,9}|кат\wгор\w{0,9}")
# Old articles link the same article of another Wikipedia at their end: "[[de:Berlin]]".
_INTERLANGUAGE = re.compile(
    r"(?:[a-z]{2,3}(?:-[a-z]+)*+|simple|be-x-old|zh-min-nan|nds-nl|map-bms)\s*:"
)


@dataclass
class _Structures:
    """The templates, links and tables of one page.

    `parts` alternates text (even indices) and tokens (odd ones); `closer` gives for each opening
    token that has one the index of its closing token:

        text     a {{b|[[c]]}} d
        parts    "a "  "{{"  "b|"  "[["  "c"  "]]"  ""  "}}"  " d"
        closer   {1: 7, 3: 5}
    """

    parts: list[str]
    language: str
    dropped_namespaces: frozenset[str]
    dropped: Dropped
    title: str
    added: Mapping[str, Renderer]

    def __post_init__(self) -> None:
        self.words_lost: Counter[str] = Counter()
        self.closer = _match_structures(self.parts)

    def render(self, first: int, stop: int, depth: int = 0) -> str:
        """Return parts[first:stop], whose ends are text, with structures rendered or dropped."""
        parts = self.parts
        closer = self.closer
        out = [parts[first]]
        index = first + 1
        while index < stop:
            close = closer.get(index)
            token = parts[index]
            if close is None:
                # It may open a table, box or picture.
                opens_box = token == "{{" and parts[index - 1].endswith("\n")
                opens_picture = token == "[[" and self._is_dropped(parts[index + 1])
                if token.endswith("{|") or opens_box or opens_picture:
                    index = self._skip_line(index, stop, out)
                    continue
                # The token goes, the text after it stays.
                out.append("\n" if token.startswith("\n") else "")
                out.append(parts[index + 1])
                index += 2
                continue
            # The structure is parts[index:close + 1]; the text after it is parts[close + 1].
            if token == "[[":
                words = self._link(index, close, depth)
            elif token == "{{":
                words = self._template(index, close, depth)
            else:
                words = self._drop("tables", index, close, REMOVED_BLOCK)
            # As with footnotes, no mark is left if there is nothing to repair.
            if words not in (REMOVED, PRONUNCIATION) or out[-1][-1:] in " \n(（[/、，":
                if words[:1] in _MERGING:
                    words = _set_apart(words, out[-1][-1:])
                out.append(words)
            following = parts[close + 1]
            # A line that begins with a blank is preformatted text: "{{quote|…}} It was" is not.
            out.append(following.lstrip(" ") if words.endswith("\n") else following)
            index = close + 2
        return "".join(out)

    def _inside(self, index: int, close: int, depth: int) -> str:
        """Return the text between two tokens, with the structures in it rendered."""
        if close == index + 2:
            return self.parts[index + 1]
        return self.render(index + 1, close, depth + 1)

    def _drop(self, reason: str, index: int, close: int, mark: str) -> str:
        """Record parts[index:close + 1] as left out and return `mark`."""
        self.dropped[reason].append("".join(self.parts[index : close + 1]))
        return mark

    def _template(self, index: int, close: int, depth: int) -> str:
        name = template_name(self.parts[index + 1].partition("|")[0])
        if name in NAMES.title_templates and self.title:
            return self.title
        is_added = name in self.added
        is_known = is_added or find_renderer(name, self.language)
        # What is dropped is dropped as it is: its inside is never rendered.
        if not is_added and (mark := mark_of_silent(name, self.language)):
            is_word = is_known and _NEEDS_WORD.search(self.parts[index - 1])
            if not is_word:
                return self._drop("templates", index, close, mark)
        if depth >= _MAX_DEPTH or not is_known:
            # If its line holds only templates, it is not a word of a sentence.
            before = self.parts[index - 1]
            begins_line = before.endswith("\n") or (before == "" and index > 1)
            is_alone = begins_line and self.parts[close + 1].startswith("\n")
            mark = REMOVED if is_alone else MISSING
            if mark == MISSING and len(name) <= 60:  # a longer one is no name
                self.words_lost[name] += self._words_around(index, close)
            return self._drop("templates", index, close, mark)
        inside = self._inside(index, close, depth)
        words = render_template(inside, self.language, self.added)
        if words in (REMOVED, MISSING):
            self.dropped["templates"].append(inside)
        return words

    def _words_around(self, index: int, close: int) -> int:
        """Return about how many words are lost with an unknown template: those of its sentence, or
        0 if the sentence does without it, which `repair` decides exactly.
        """
        # The nearest twenty texts alone: on a page of templates each would look at all others.
        start = max(index - 39, 0)
        stop = close + 41
        texts_before = " ".join(self.parts[start:index:2])
        texts_after = " ".join(self.parts[close + 1 : stop : 2])
        *_, before = _SENTENCE_START.split(texts_before)
        after, *_ = _SENTENCE_START.split(texts_after, 1)
        is_dropped = before.startswith(tuple("*#:;|!="))
        if is_dropped or not before.strip() or not before.endswith(" "):
            return 0
        num_before = len(before.split())
        return num_before + len(after.split())

    def _link(self, index: int, close: int, depth: int) -> str:
        parts = self.parts
        target, pipe, label = parts[index + 1].partition("|")
        # First of all, because the caption of a picture has links and templates in it.
        if ":" in target and self._is_dropped(target):
            return self._drop("files_and_categories", index, close, REMOVED)
        if depth >= _MAX_DEPTH:
            return MISSING
        if close != index + 2:
            target, pipe, label = self._inside(index, close, depth).partition("|")
        if "." in target and _FILE_NAMES.search(target) and not _LINKED_FILE.match(target):
            self.dropped["files_and_categories"].append(f"{target} {label}")
            return REMOVED
        if PARAGRAPH_BREAK in label:
            # A link ends with its paragraph: these brackets belong to two different links.
            return f"{target} {label}"
        if "//" in target and (address := _ADDRESS.match(target)):
            # "[[http://x.org the site]]": brackets are text.
            words = f"{target}{pipe}{label}"[address.end() :].strip()
            return f"&#91;{words}&#93;" if words else REMOVED
        shown = label
        if "''" in shown:
            shown = _without_emphasis(shown)
        if not shown and ":" in target and _INTERLANGUAGE.match(target):
            return self._drop("files_and_categories", index, close, REMOVED)
        shown = shown or target.lstrip(":#").replace("'", "&#39;")
        if ":" in shown and self._is_dropped(shown):
            # "See also [[:Category:Towns]]." is not a sentence of the article.
            return self._drop("files_and_categories", index, close, GAP)
        return shown

    def _is_dropped(self, target: str) -> bool:
        """Return whether a link leads to a file or a category."""
        namespace, colon, _ = target.partition(":")
        if not colon:
            return False
        name = namespace.replace("_", " ").strip().lower()
        return name in self.dropped_namespaces or _CATEGORY.fullmatch(name) is not None

    def _skip_line(self, index: int, stop: int, out: list[str]) -> int:
        """Leave out the rest of a line and the structures in it; return the next token's index."""
        parts = self.parts
        if parts[index].startswith("\n"):
            out.append("\n")
        while index < stop:
            _, line_break, next_lines = parts[index + 1].partition("\n")
            if line_break:
                out.append(line_break + next_lines)
                return index + 2
            index += 2
            if index < stop:
                token = parts[index]
                if token.startswith("\n"):
                    return index
                index = self.closer.get(index, index)
        return index


def _set_apart(words: str, before: str) -> str:
    # "5{{frac|1|2}}" is a mixed number, and "[[NSYNC|*NSYNC]]" at the start of a line not a list.
    if before == "\n" and not words[0].isdigit():
        return f"&#{ord(words[0])};{words[1:]}"
    if before.isdigit() and _FRACTION.match(words):
        return f" {words}"
    return words


def _match_structures(parts: list[str]) -> dict[int, int]:
    """Return the index of the closing token for each opening token that has one.

    A template or table that closes also ends what is open within it; a link does not, because a
    stray "]]" is more frequent. Counts of what is open keep the search from emptying the stack for
    a closing token without counterpart, so that the scan is linear.
    """
    closer = {}
    stack = []
    num_open = Counter()
    opening_of = {"}}": "{{", "|}": "{|"}
    for index in range(1, len(parts), 2):
        token = parts[index]
        if token == "[[":  # links first, which are most
            stack.append((token, index))
        elif token == "]]":
            if stack and stack[-1][0] == "[[":
                closer[stack.pop()[1]] = index
        elif opening := opening_of.get(token := token.lstrip("\n\t :")):
            while num_open[opening]:
                last, start = stack.pop()
                num_open[last] -= 1
                if last == opening:
                    closer[start] = index
                    break
        else:
            stack.append((token, index))
            num_open[token] += 1
    return closer


# --- 3. lines and inline markup ----------------------------------------------------------------

# Lists, definitions, indented or preformatted text, headings, rules, rows of broken tables and what
# is left of a box that lost a brace; but not "!Kung is" and "|x| is".
_DROPPED_LINE = re.compile(
    r"(\n(?:[\x20\t][^\n]*+"
    r"|(?!![^\W\d_][^\n|!]*[.?!。](?:\n|\Z)|\|[^\W_]{1,20}\|\s[^\n|]*[.?!。](?:\n|\Z))"
    r"[\x01-\x03]*+[*#:;|!=][^\n]*+"
    r"|-{4}[^\n]*+|[\x01-\x03]++(?=\n|\Z)|\}{1,2}[ \t]*+(?=\n|\Z)))"
)
# In 40 characters are seven words of English. Long quotations are in italics, too.
_INDENTED_TEXT = re.compile(
    rf"\n:++[ \t]*+(?![*#;|!=.\x01-\x03{LOWER_CASE}]|[\"“„«‘'(]+[.{LOWER_CASE}]|''(?!.{{200}}))"
    ".{40}"
)
# "[https://example.org the label]"; without a label it is a footnote. It ends at marks of italics.
_ADDRESS = re.compile(
    r"(?i:(?:(?:https?|ftps?|git|gopher|ircs?|mms|nntp|redis|sftp|ssh|svn|telnet|worldwind):)?//"
    r"|(?:bitcoin|geo|magnet|mailto|matrix|news|sips?|sms|tel|urn|xmpp):)"
    r"(?:[^\s\[\]<>\"']++|'(?!')){0,200}+"
)
_EXTERNAL_LINK = re.compile(
    rf"\[{_ADDRESS.pattern}"
    r"([^\[\]\n]{0,1000}+(?:\[[^\[\]\n]{0,200}+\][^\[\]\n]{0,1000}+){0,4}+)\]"
)
_APOSTROPHES = re.compile("('{2,})")
# "__NOTOC__", not "__init__" nor "__FILE__"; in other scripts they have translated names.
_BEHAVIOUR_SWITCH = re.compile(
    rf"__(?:{'|'.join(NAMES.behaviour_switches)}|(?![a-z]*__)[^\W\d_]{{3,40}}+)__", re.IGNORECASE
)
# What is left of links, templates and tables that lost a bracket, perhaps around a mark.
_BROKEN_STRUCTURE = re.compile(
    r"\[[\x01-\x03]*+\[|\][\x01-\x03]*+\]|\{[\x01-\x03]*+[{|]|[}|][\x01-\x03]*+\}"
)
_BROKEN_TAG = re.compile(
    rf"<(?i:/?(?:{'|'.join(sorted(TAG_NAMES))})\b[^<>]{{0,300}}+>|/?[\x01-\x03]*+ref\b)"
)
_LANGUAGE_VARIANT = re.compile(r"-\{(?:([^{}|\n]{0,50}+)\|)?([^{}\n]{0,500}+)\}-")
_VARIANT_TEXT = re.compile(
    r"(?:^|;)\s*+(?:zh(?:-\w++)*+|(?:gan|iu|kk|ku|sh|shi|sr|tg|uz|wuu)-\w++)\s*+:([^;]*+)"
)


def _drop_lines(text: str, language: str, dropped: Dropped) -> str:
    """Replace lines that are not prose by breaks of paragraphs; "These are:" above gets a `GAP`."""
    # `re.split` keeps the lines that match, because they are a group: prose, line, prose, line, ...
    parts = _DROPPED_LINE.split(text)
    # A line of nothing else was counted when it became a mark: a template, an indented formula.
    marks = f"\n {REMOVED}{MISSING}{PRONUNCIATION}{GAP}*#:;.,"
    prose = parts[:1]
    for line, following in zip(parts[1::2], parts[2::2], strict=True):
        if _is_indented_prose(line):
            prose.append(line.lstrip("\n:"))
        else:
            if line.startswith("\n="):
                dropped["headings"].append(line)
            elif line.strip(marks):
                dropped["lists"].append(line)
            if prose[-1]:  # most are empty: they stand between the lines of one list
                prose[-1] = introduction_gap(prose[-1], language)
        prose.append(following)
    prose[-1] = introduction_gap(prose[-1], language)
    return PARAGRAPH_BREAK.join(prose)


def _is_indented_prose(line: str) -> bool:
    """Return whether an indented line is whole sentences, as of a quotation or an explanation; not
    an item, a verse, a formula, or a note in italics ("See also ...").
    """
    if not line.startswith("\n:") or not _INDENTED_TEXT.match(line) or not ends_sentence(line):
        return False
    return sum(map(str.isalpha, line)) > 0.65 * len(line)


def _render_inline(text: str, language: str) -> str:
    """Render the markup inside lines. Characters that were written as entities are text."""
    if "[" in text:
        text = _EXTERNAL_LINK.sub(lambda match: match[1].strip() or REMOVED, text)
    if "''" in text:
        text = _without_emphasis(text)
    if "__" in text:
        text = _BEHAVIOUR_SWITCH.sub("", text)
    if "-{" in text and language in NAMES.languages_with_variants:
        text = _LANGUAGE_VARIANT.sub(_variant, text)
    if "[" in text or "]" in text or "{" in text or "}" in text:
        text = _BROKEN_STRUCTURE.sub(" ", text)
    if "<" in text:
        text = _BROKEN_TAG.sub(" ", text)
    return resolve_entities(text)


def _without_emphasis(text: str) -> str:
    lines = text.split("\n")
    for index, line in enumerate(lines):
        if line.count("'''") % 2 or "''''" in line:
            lines[index] = _with_apostrophes(line)
    return "\n".join(lines).replace("'''", "").replace("''", "")


def _with_apostrophes(line: str) -> str:
    """Return a line without the marks of bold and italics, but with apostrophes (`doQuotes`)."""
    # Text, mark, text, mark, ..., text. A mark has two, three or five: what it has more is text.
    parts = _APOSTROPHES.split(line)
    for index in range(1, len(parts), 2):
        length = len(parts[index])
        num_shown = 1 if length == 4 else max(length - 5, 0)
        parts[index - 1] += "&#39;" * num_shown
        parts[index] = "'" * (length - num_shown)
    texts = parts[::2]
    marks = parts[1::2]
    bold = [index for index, mark in enumerate(marks) if mark == "'''"]
    num_both = marks.count("'''''")
    # Where both are unbalanced, a mark of bold is an apostrophe and italics, as in l'''Odissea'':
    # the first after a word of one letter, else after a longer one, else after a blank.
    if bold and (len(bold) + num_both) % 2 and (marks.count("''") + num_both) % 2:
        ends = [texts[index][-2:] for index in bold]
        ranks = [2 if end.endswith(" ") else int(end[:-1] != " ") for end in ends]
        texts[bold[ranks.index(min(ranks))]] += "&#39;"
    return "".join(texts)


def _variant(match: re.Match[str]) -> str:
    """Return the text of the first variant of ``-{FLAGS|zh-hans:TEXT;zh-hant:TEXT}-``; flags say
    for which uses there is none.
    """
    flags = {flag.strip() for flag in (match[1] or "").split(";")}
    if "R" in flags:
        return match[2]
    if "-" in flags or flags == {"T"} or flags & {"H", "D"} == {"H"}:
        return REMOVED  # rules for the page, its title
    if flags & {"N", "D"}:
        return GAP  # the variants' names
    first = _VARIANT_TEXT.search(match[2])
    return first[1].strip() if first else match[2]
