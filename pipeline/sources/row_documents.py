"""Turn rows of any table into documents, with the columns of ``wikimedia/wikipedia`` or others.

Only the text is required. A column may lie inside another (``payload.body``), also inside each item
of a list (``sections.text``).

If ``url`` is a Wikimedia address, source and language name the wiki (``enwiki``, ``en``), the id is
the page's, and the text is read as in `extracted`. Otherwise every line is a paragraph, except in
Markdown and in hard-wrapped text (``pg19``), which is read like the file of a book.
"""

import io
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, Self

import pyarrow as pa

from ..config import IngestConfig
from ..counters import Counters
from ..errors import UserError
from ..languages import UNKNOWN, known_language
from ..memory import cut_by_size
from ..schemas import DOCUMENTS
from ..text import gutenberg
from ..text.books import is_wrapped
from ..text.markdown import looks_like_markdown, markdown_paragraphs
from ..text.sentences import compose, normalise, split_sentences
from ..text.wikitext.repair import GAP
from .books import read_book
from .streams import InputRange, RawDocument
from .texts import text_pieces

URL = "url"
WIKINAME = "wikiname"
"""The column by which FineWiki is known: its ids are ``enwiki/12``, and its text is Markdown."""
_NO_NAME = re.compile(r"[^\w.-]+")
LONGEST_JOINED = 100_000
"""Characters of a document of joined rows, unless something else ends it earlier."""
_HEAD_CHARACTERS = 1 << 14

_WIKIMEDIA_ADDRESS = re.compile(
    r"https?://([a-z-]+)\.(?:m\.)?"
    r"(wikipedia|wiktionary|wikibooks|wikinews|wikiquote|wikisource|wikiversity|wikivoyage)"
    r"\.org(?![\w.-])"
)


_Row = tuple[RawDocument, bool]
"""The document of a row, and whether it is an article extracted from a wiki."""


class Columns:
    """The names of the columns that are read, as a configuration gives them."""

    def __init__(self, config: IngestConfig) -> None:
        self.text = tuple(config.text_column.split(","))
        self.id = config.id_column or "id"
        self.title = config.title_column or "title"
        self.language = config.language_column or ""
        self.source = config.source_column or ""
        self.named = config.named_columns

    def others(self) -> Iterator[str]:
        """Yield those beside the text, which a table may lack."""
        for name in (self.id, URL, WIKINAME, self.title, self.language, self.source):
            if name and name not in self.text:
                yield name

    def check_unique(self, names: Sequence[str], path: str) -> None:
        """Raise `UserError` if the table at `path` has several columns of a name that is read."""
        for name in (*self.text, *self.others()):
            if names.count(name) > 1:
                raise UserError(
                    f"{path} has several columns {name!r}: rename or remove all but one."
                )

    def has_text(self, row: Mapping[str, object]) -> bool:
        """Return whether a row has a column with text, even if that is empty."""
        return any(name in row or outermost(name) in row for name in self.text)

    def read_text(self, row: Mapping[str, object]) -> str | None:
        """Return a row's text, lists as lines; "" if it has none, None if it is not text."""
        parts = []
        for name in self.text:
            for part in values_at(row, name):
                if part is not None and not isinstance(part, str):
                    return None
                if part:
                    parts.append(part)
        return "\n".join(parts)

    def read(self, row: Mapping[str, object], name: str) -> str:
        """Return the value of a column beside the text, as one line; "" if there is none."""
        if not name or self.text == (name,):
            return ""
        return normalise(" ".join(_strings_at(row, name)))

    def read_language(self, row: Mapping[str, object]) -> str:
        """Return the tag of a row's language; "" if the column holds the code of none."""
        tag = known_language(self.read(row, self.language))
        return "" if tag == UNKNOWN else tag


INGESTED = Columns(
    IngestConfig(
        text_column="sentences",
        id_column="doc_id",
        language_column="language",
        source_column="source",
    )
)
"""Those of documents that `ingest` wrote."""


def outermost(name: str) -> str:
    """Return ``payload`` of ``payload.body``."""
    return name.partition(".")[0]


def values_at(row: Mapping[str, object], name: str) -> list[object]:
    """Return a column's values, several if it lies in a list; its own name may have a dot."""
    if name in row:
        value = row[name]
        return value if isinstance(value, list) else [value]
    outer, _, inner = name.partition(".")
    value = row.get(outer)
    found = []
    for item in value if isinstance(value, list) else [value]:
        if inner and isinstance(item, Mapping):
            found.extend(values_at(item, inner))
            # Wikimedia's structured articles: a section in a section is of the same form.
            if item.get("type") == "section" and outer in item:
                found.extend(values_at(item, name))
    return found


def _strings_at(row: Mapping[str, object], name: str) -> list[str]:
    return [str(value) for value in values_at(row, name) if value is not None]


def type_at(schema: pa.Schema | pa.StructType, name: str) -> pa.DataType | None:
    """Return the type of a column, of its items if it lies in a list; None if there is none."""
    inner = ""
    index = schema.get_field_index(name)
    if index < 0:
        outer, _, inner = name.partition(".")
        index = schema.get_field_index(outer) if inner else -1
    if index < 0:
        return None
    kind = schema.field(index).type
    if is_list_type(kind):
        kind = kind.value_type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not inner:
        return kind
    return type_at(kind, inner) if pa.types.is_struct(kind) else None


def is_list_type(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds lists."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds text, or, as pandas writes, nothing at all."""
    is_string = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return is_string or pa.types.is_string_view(kind) or pa.types.is_null(kind)


def no_column(path: str, name: str, names: Iterable[str]) -> UserError:
    """Return the error of a table whose columns, of these `names`, lack one for the text."""
    names = list(names)
    if "input_ids" in names:
        return UserError(f"{path} holds token ids, not texts: give the documents that they are of.")
    shown = ", ".join(names)[:200] or "nothing"
    return UserError(f"{path} has no column {name!r}, only {shown}: give `text_column`.")


def lacking(names: Collection[str], config: IngestConfig) -> tuple[str, ...]:
    """Return the columns that the user named, but that a table with these `names` lacks."""
    named = config.named_columns
    return tuple(name for name in named if name not in names and outermost(name) not in names)


def columns_of(schema: pa.Schema | None, config: IngestConfig) -> Columns:
    """Return the columns to read: of documents that `ingest` wrote their own, whatever the forms of
    strings and lists in which Polars, pandas or `datasets` keep them.
    """
    if schema is None:
        return Columns(config)
    for name in DOCUMENTS.names:
        kind = type_at(schema, name)
        is_list = name in schema.names and is_list_type(schema.field(name).type)
        if kind is None or not is_text(kind) or is_list != (name == "sentences"):
            return Columns(config)
    return INGESTED


def columns_to_read(schema: pa.Schema, path: str, columns: Columns) -> list[str]:
    """Return the names of the columns to read, those with text first.

    Raise `UserError` if a column for the text is missing or holds something else.
    """
    columns.check_unique(schema.names, path)
    names = {}  # in order, each once
    for name in (*columns.text, *columns.others()):
        kind = type_at(schema, name)
        if kind is not None:
            names[name if name in schema.names else outermost(name)] = None
        if name in columns.text and kind is None:
            raise no_column(path, name, schema.names)
        if name in columns.text and not is_text(kind):
            raise UserError(
                f"{path}: column {name!r} holds {kind}, not text: give another `text_column`."
            )
    return list(names)


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """The properties that all rows of one table share."""

    name: str
    """The table's name in messages."""
    stem: str
    """Prefix of the ids of its rows, unless they belong to a wiki."""
    source: str
    """The source of its rows, unless they belong to a wiki."""
    columns: Columns
    config: IngestConfig
    unit: str = "row"
    """What a row's number counts: ``row``, or ``byte`` if it is the offset of a line."""
    extracted: bool = False
    """Whether all texts are articles extracted from a wiki, whatever their address."""
    continues: bool = False
    """Whether other rows of the table are read before these, as another part."""

    @classmethod
    def of(
        cls, input_range: InputRange, columns: Columns, config: IngestConfig, **properties: Any
    ) -> Self:
        """Return the table of a file, or of a range of its lines."""
        return cls(
            name=input_range.name,
            stem=input_range.stem,
            source=input_range.format,
            columns=columns,
            config=config,
            continues=input_range.start > 0,
            **properties,
        )

    def location(self, number: int) -> str:
        """Return where row `number` is, for messages."""
        return f"{self.name}, {self.unit} {number}"


def row_documents(
    rows: Iterable[tuple[int, Mapping[str, Any]]], table: Table, counters: Counters
) -> Iterator[RawDocument]:
    """Yield a document for each numbered row, or for rows of a sentence each."""
    if table.columns is INGESTED:
        yield from _ingested_documents(rows, table, counters)
        return
    if table.config.documents == "sentence":
        yield from _joined_documents(rows, table, counters)
        return
    read = (_read_row(row, number, table, counters) for number, row in rows)
    batches = cut_by_size(filter(None, read), lambda row: sum(map(len, row[0].paragraphs)), 1 << 20)
    is_judged = table.config.documents != "auto" or table.extracted
    for batch in batches:
        if not is_judged and len(batch) >= 100 and _hold_sentences(batch[:100]):
            counters.note("tables_of_sentences", table.name)
        is_judged = True
        yield from _documents(batch, counters)


def _ingested_documents(
    rows: Iterable[tuple[int, Mapping[str, Any]]], table: Table, counters: Counters
) -> Iterator[RawDocument]:
    """Yield the documents that `ingest` wrote, in their sentences."""
    columns = table.columns
    for number, row in rows:
        sentences = list(filter(None, row["sentences"] or ()))
        joined = f" {' '.join(sentences)} "
        if "  " in joined or not joined.isprintable():
            sentences = list(filter(None, map(normalise, sentences)))
        if not sentences:
            counters.note("rows_without_text", table.location(number))
            continue
        empty = ", ".join(name for name, value in row.items() if value is None)
        if empty:
            counters.note("rows_with_empty_columns", f"{table.location(number)}: {empty}")
        source = _printable(row["source"]) or table.source
        doc_id = _printable(row["doc_id"]) or f"{table.stem}#{number}"
        yield RawDocument(
            id=doc_id.removeprefix(f"{source}:"),
            source=source,
            title=_printable(row["title"]),
            language=columns.read_language(row),
            paragraphs=sentences,
            is_cut=True,
        )


def _printable(value: str | None) -> str:
    """Return a text as it is, normalised only if it has controls; "" for None."""
    value = value or ""
    return value if value.isprintable() else normalise(value)


def _read_row(row: Mapping[str, Any], number: int, table: Table, counters: Counters) -> _Row | None:
    """Return the text of one row; None, and a count, if it has none."""
    location = table.location(number)
    columns = table.columns
    text = columns.read_text(row)
    if text is None:
        counters.skip("text_is_not_a_string", location, record=row)
        return None
    if not text:
        # Not damage: tables have such rows by the million.
        counters.note("rows_without_text", location)
        return None
    empty = [name for name in columns.named if not "".join(_strings_at(row, name)).strip()]
    if empty:
        counters.note("rows_with_empty_columns", f"{location}: {', '.join(empty)}")
    wiki = wiki_of(columns.read(row, URL))
    database, wiki_language = wiki or (table.source, "")
    language = columns.read_language(row) or wiki_language
    title = columns.read(row, columns.title)
    # Composed first, because the rules below judge lengths and letters. U+FFFC goes, because it
    # would be taken for a `GAP` that these rules put.
    if "\r" in text:  # a single character is found faster
        text = text.replace("\r\n", "\n")
    text = compose(text.replace(GAP, ""))
    is_of_finewiki = columns.read(row, WIKINAME) != "" and columns.text == ("text",)
    is_markdown = table.config.documents == "markdown" or is_of_finewiki
    is_extracted = (wiki is not None or table.extracted) and not is_markdown
    paragraphs = [line for line in text.split("\n") if line and not line.isspace()]
    if is_markdown:
        paragraphs = markdown_paragraphs(text, language, counters)
    elif looks_like_markdown(text):
        counters.note("rows_that_look_like_markdown", location)
    if not (is_markdown or is_extracted):
        header = _gutenberg_header(text)
        if header is not None:
            language = language or header.get("language", "")
            title = title or header.get("title", "")
        if header is not None or is_wrapped(paragraphs):
            paragraphs = _book_paragraphs(text, location, table.config, counters)
    # Names have no other characters.
    source = _NO_NAME.sub("-", columns.read(row, columns.source)).strip("-")
    document = RawDocument(
        id=_identity(row, number, table, is_of_wiki=wiki is not None),
        source=source or database,
        title=title,
        language=language,
        paragraphs=paragraphs,
    )
    return document, is_extracted


def _identity(row: Mapping[str, Any], number: int, table: Table, *, is_of_wiki: bool) -> str:
    """Return a row's id, unique within its source."""
    columns = table.columns
    wikiname = columns.read(row, WIKINAME)
    row_id = columns.read(row, columns.id).removeprefix(f"{wikiname}/")
    if not row_id:
        return f"{table.stem}#{number}"
    # Only a wiki's ids, and those that the user vouches for, are unique in all its parts.
    if is_of_wiki or columns.id in columns.named:
        return row_id
    return f"{table.stem}/{row_id}"


def _gutenberg_header(text: str) -> dict[str, str] | None:
    """Return the fields of an etext's header; None if the text is not one of Project Gutenberg."""
    if not gutenberg.is_gutenberg(text[:_HEAD_CHARACTERS]):
        return None
    header_end = gutenberg.header_end(text) or _HEAD_CHARACTERS
    return gutenberg.read_header(text[:header_end])


def _book_paragraphs(
    text: str, location: str, config: IngestConfig, counters: Counters
) -> list[str]:
    """Read a text whose lines are not paragraphs like a book's file, as one however long."""
    file = io.BytesIO(text.encode("utf-8", "replace"))
    book = InputRange(path=location, name=location, format="text")
    config = IngestConfig(documents="file", keep_lines=config.keep_lines)
    pieces = text_pieces(file, location, counters)
    books = read_book(pieces, book, config, counters) if pieces else ()
    return list(chain.from_iterable(part.paragraphs for part in books))


def _documents(batch: list[_Row], counters: Counters) -> Iterator[RawDocument]:
    """Yield the documents of some rows; what was extracted is searched together for markup."""
    extracted = [document.paragraphs for document, is_extracted in batch if is_extracted]
    remains: Iterator[bool] = iter(())
    if extracted:
        from ..text.extracted import find_remains  # late: most tables do without

        remains = iter(find_remains(list(chain.from_iterable(extracted))))
    for document, is_extracted in batch:
        if is_extracted:
            from ..text.extracted import article_paragraphs

            here = list(islice(remains, len(document.paragraphs)))
            paragraphs = article_paragraphs(
                document.paragraphs, document.title, counters, document.language, here
            )
            document = replace(document, paragraphs=paragraphs)
        if document.paragraphs:
            yield document
        else:
            counters.count("rows_without_prose")


def _hold_sentences(batch: Sequence[_Row]) -> bool:
    """Return whether hardly a row has two sentences."""
    num_longer = 0
    for document, _ in batch:
        paragraphs = document.paragraphs
        # Hardly a sentence has 1,000 characters.
        is_long = len(paragraphs) > 1 or sum(map(len, paragraphs)) > 1000
        if is_long or len(split_sentences(paragraphs, document.language)) > 1:
            num_longer += 1
    return num_longer <= len(batch) / 20


def _joined_documents(
    rows: Iterable[tuple[int, Mapping[str, Any]]], table: Table, counters: Counters
) -> Iterator[RawDocument]:
    """Yield a document for all rows, of a sentence each, up to an empty one or to another id.

    A table may not say where a book ends, so `LONGEST_JOINED` characters end a document too. Its
    id, title and so on are those of its first row, whose number is added to an id that repeats, or
    may repeat one of the part before. An id that comes back after others is a mistake: only a
    sorted table tells which rows are a document.
    """
    ids = set()
    first: RawDocument | None = None
    id_before = None if table.continues else ""  # None: unknown
    lines = []
    num_characters = 0
    #   rows        "A."  "B."  ""  "C."  and the empty one after the last
    #   documents   [ A.   B. ]     [ C.]
    for number, row in chain(rows, [(0, {})]):
        text = table.columns.read_text(row)
        if text is None:
            counters.skip("text_is_not_a_string", table.location(number), record=row)
            continue
        text = text.replace(GAP, "")
        row_id = table.columns.read(row, table.columns.id)
        ends = not text.strip() or row_id != id_before or num_characters >= LONGEST_JOINED
        if first and ends:
            yield replace(first, paragraphs=lines)
            first = None
        if not text.strip():
            continue
        if first is None:
            if row_id and row_id in ids and row_id != id_before:
                raise UserError(
                    f"{table.location(number)}: the id {row_id!r} comes back after others: sort "
                    "the rows by it, so that `documents` sentence joins them, or name another "
                    "`id_column`."
                )
            ids.add(row_id)
            read = _read_row(row, number, table, counters)
            first = read and read[0]
            lines = []
            num_characters = 0
            if first and row_id and id_before in (None, row_id):
                first = replace(first, id=f"{first.id}#{number}")
            id_before = row_id
        lines.append(text)
        num_characters += len(text)


def wiki_of(url: str) -> tuple[str, str] | None:
    """Return database name and language of the wiki of an address: ``zh_yuewiki`` and ``zh-yue`` of
    ``https://zh-yue.wikipedia.org/wiki/Foo``.
    """
    match = _WIKIMEDIA_ADDRESS.match(url)
    if match is None:
        return None
    language, project = match.groups()
    code = language.replace("-", "_")
    if language == "be-tarask":  # the one Wikipedia whose database kept the name of an older code
        code = "be_x_old"
    suffix = "wiki" if project == "wikipedia" else project
    return code + suffix, language
