"""Parquet files as documents: one row a document, in the columns of the ``wikimedia/wikipedia`` data set or others.

The columns are ``id``, ``url``, ``title`` and ``text``; only the text must be there. In such text a paragraph is a
line, and so is a heading or what is left of a list or a table; `is_prose_line` tells them apart. On 180 MB of English
Wikipedia it leaves out 33 % of the lines, which hold 1.9 % of the words.
"""

import re
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from .errors import UserError
from .records import InputRange, RawDocument
from .sentences import ends_sentence
from .tally import Tally

RANGE_BYTES = 1 << 24
BATCH_ROWS = 128
BUFFER_BYTES = 1 << 20

# In bytes of UTF-8: a Chinese character or a Korean syllable counts for three letters, about what it says.
SHORTEST_LINE_BYTES = 40
SHORTEST_UNENDED_LINE_BYTES = 120

_MARKUP_STARTS = tuple("|!{}<#*=")
_WIKIMEDIA_ADDRESS = re.compile(
    r"https?://([a-z-]+)\.(?:m\.)?"
    r"(wikipedia|wiktionary|wikibooks|wikinews|wikiquote|wikisource|wikiversity|wikivoyage)\.org(?![\w.-])"
)
# The one Wikipedia whose database kept the name of an older code.
_DATABASE_CODES = {"be-tarask": "be-x-old"}


def plan_table_ranges(path: str, name: str, open_file: Callable[[str], BinaryIO]) -> list[InputRange]:
    """Return ranges of row groups, each of about `RANGE_BYTES` of uncompressed data, that cover a Parquet file.

    Raise `UserError` where the file is no Parquet.
    """
    with open_file(path) as stream:
        try:
            metadata = pq.read_metadata(stream)
        except pa.ArrowInvalid as error:
            raise UserError(f"{path} is no Parquet file; name its --format or leave it out.") from error
    ranges: list[InputRange] = []
    start = size = 0
    for group in range(metadata.num_row_groups):
        size += metadata.row_group(group).total_byte_size
        if size >= RANGE_BYTES or group == metadata.num_row_groups - 1:
            ranges.append(InputRange(path=path, name=name, format="parquet", start=start, stop=group + 1))
            start, size = group + 1, 0
    return ranges


def read_table(
    source: InputRange, open_file: Callable[[str], BinaryIO], tally: Tally, text_column: str = "text"
) -> Iterator[RawDocument]:
    """Yield the documents of a range of row groups, a batch of rows in memory at a time.

    With a Wikimedia address in ``url``, source and language are those of the wiki (``enwiki``, ``en``), else the
    source is ``parquet``. Without ``id`` the id is the file's name, ``#`` and the row's number. Rows without text and
    row groups that cannot be read are skipped and counted. Raise `UserError` where `text_column` is no text column.
    """
    with open_file(source.path) as stream:
        # With a small buffer and no pre-buffering a row group is not in memory as a whole.
        table = pq.ParquetFile(stream, pre_buffer=False, buffer_size=BUFFER_BYTES)
        columns = _columns(table.schema_arrow, source.path, text_column)
        sizes = [table.metadata.row_group(group).num_rows for group in range(table.num_row_groups)]
        for group in range(source.start, len(sizes) if source.stop is None else source.stop):
            row_number = sum(sizes[:group])
            try:
                for batch in table.iter_batches(BATCH_ROWS, row_groups=[group], columns=columns):
                    yield from _documents(batch, row_number, source, tally, text_column)
                    row_number += batch.num_rows
            except (pa.ArrowException, OSError) as error:
                # An error number means that the disk or the network failed, not that the data is bad.
                if isinstance(error, OSError) and error.errno is not None:
                    raise
                tally.skip("unreadable_row_group", f"{source.name}, row group {group}")


def is_prose_line(line: str) -> bool:
    """Whether a line of extracted Wikipedia text is a paragraph: no heading, list entry, or remains of markup.

    Headings are short and WikiExtractor puts a full stop behind them, so a line below 40 bytes is none; one that does
    not end a sentence must be three times as long.

    >>> is_prose_line("History."), is_prose_line("Almonds are a rich source of oil, as studies show.")
    (False, True)
    """
    line = line.strip()
    if len(line) < SHORTEST_UNENDED_LINE_BYTES:
        size = len(line.encode("utf-8", "surrogatepass"))
        if size < (SHORTEST_LINE_BYTES if ends_sentence(line) else SHORTEST_UNENDED_LINE_BYTES):
            return False
    return not line.startswith(_MARKUP_STARTS)


class _Wiki(NamedTuple):
    database: str
    language: str


def wiki_of(url: str) -> _Wiki | None:
    """Return database name and language of the wiki that an address belongs to; None where it is no wiki's.

    >>> wiki_of("https://zh-yue.wikipedia.org/wiki/Foo")
    _Wiki(database='zh_yuewiki', language='zh-yue')
    """
    match = _WIKIMEDIA_ADDRESS.match(url)
    if match is None:
        return None
    language, project = match.groups()
    code = _DATABASE_CODES.get(language, language).replace("-", "_")
    return _Wiki(code + ("wiki" if project == "wikipedia" else project), language)


def _columns(schema: pa.Schema, path: str, text_column: str) -> list[str]:
    """Return the names of the columns to read; raise `UserError` where there is no text in `text_column`."""
    if text_column not in schema.names:
        raise UserError(f"{path} has no column {text_column!r} but {', '.join(schema.names)}: give --text-column.")
    kind = schema.field(text_column).type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise UserError(f"{path}: column {text_column!r} holds {kind}, not text: give another --text-column.")
    return [text_column, *(name for name in ("id", "url", "title") if name in schema.names and name != text_column)]


def _documents(
    batch: pa.RecordBatch, first_row: int, source: InputRange, tally: Tally, text_column: str
) -> Iterator[RawDocument]:
    stem = source.name.removesuffix(".parquet")
    nothing = [None] * batch.num_rows
    texts = _strings(batch.column(text_column))
    ids, urls, titles = (
        batch.column(name).to_pylist() if name in batch.schema.names and name != text_column else nothing
        for name in ("id", "url", "title")
    )
    for number, (text, row_id, url, title) in enumerate(zip(texts, ids, urls, titles, strict=True), first_row):
        if not text:
            tally.skip("no_text", f"{source.name}, row {number}")
            continue
        paragraphs = _paragraphs(text, tally)
        if not paragraphs:
            tally.count("rows_without_prose")
            continue
        wiki = wiki_of(str(url)) or _Wiki("parquet", "")
        yield RawDocument(
            id=f"{stem}#{number}" if row_id is None else str(row_id),
            source=wiki.database,
            title="" if title is None else str(title),
            language=wiki.language,
            paragraphs=paragraphs,
        )


def _strings(column: pa.Array) -> list[str | None]:
    """Return a text column as Python strings; bytes that are no UTF-8 become U+FFFD."""
    try:
        return column.to_pylist()
    except UnicodeDecodeError:
        raw = column.cast(pa.large_binary()).to_pylist()
        return [None if text is None else text.decode("utf-8", "replace") for text in raw]


def _paragraphs(text: str, tally: Tally) -> list[str]:
    lines = [line for line in text.split("\n") if line and not line.isspace()]
    paragraphs = [line for line in lines if is_prose_line(line)]
    tally.count("lines_left_out", len(lines) - len(paragraphs))
    return paragraphs
