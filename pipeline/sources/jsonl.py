"""JSON Lines as documents: an object a line, in the columns that `rows` names.

The standard library's ``json`` decodes 180 MB (Korean in ``\\u`` escapes) to 800 MB (English) of text a second on one
core, and pyarrow's reader two thirds of that, without saying which line is bad.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

from ..errors import UserError
from ..execution.counters import Counters
from .compression import open_decompressed, without_compression
from .lines import BOM, LONGEST_LINE_BYTES, read_lines
from .records import Documents, InputRange, RawDocument
from .rows import Table, joined_documents, row_document

SUFFIXES = (".jsonl", ".ndjson", ".json")

_HEAD_BYTES = 1 << 16
_JSON_KINDS = {dict: "objects", list: "lists", int: "numbers", float: "numbers", bool: "true or false"}


def json_table(name: str, text_column: str = "text") -> Table:
    """Return what the rows of the JSON Lines file `name` have in common."""
    return Table(name=name, stem=_stem(name), source="jsonl", text_column=text_column, unit="byte")


def check_first_objects(path: str, open_file: Callable[[str], BinaryIO], text_column: str) -> None:
    """Raise `UserError` where the first lines of a JSON Lines file hold no object, or none with a text in the column.

    One line with a text is enough: the others are bad input, which is for `read_json_lines` to count.
    """
    lines = _first_lines(path, open_file)
    objects = [row for line in lines if (row := parse_object(line, path, Counters())) is not None]
    if lines and not objects:
        raise UserError(f"{path} is no JSON Lines: its first lines hold no object. Mend it, or say its --format.")
    values = [row[text_column] for row in objects if row.get(text_column) is not None]
    if values and not any(isinstance(value, str) for value in values):
        kind = _JSON_KINDS[type(values[0])]
        raise UserError(f"{path}: column {text_column!r} holds {kind}, not text: give another --text-column.")
    if objects and not any(text_column in row for row in objects):
        columns = ", ".join(objects[0]) or "no column at all"
        raise UserError(f"{path} has no column {text_column!r} but {columns}: give --text-column.")


def _first_lines(path: str, open_file: Callable[[str], BinaryIO]) -> list[bytes]:
    """Return the first lines of a file, whole ones only, without those that are empty."""
    counters = Counters()
    with open_decompressed(path, path, open_file, counters) as stream:
        head = stream.read(_HEAD_BYTES)
        head += stream.readline(LONGEST_LINE_BYTES)
        is_whole = not stream.read(1) and not counters.bad
    *lines, last = head.removeprefix(BOM).split(b"\n")
    return [line for line in ([*lines, last] if is_whole else lines) if line.strip()]


def read_json_lines(
    part: InputRange,
    open_file: Callable[[str], BinaryIO],
    counters: Counters,
    table: Table,
    documents: Documents = "auto",
) -> Iterator[RawDocument]:
    """Yield the documents of a range of a JSON Lines file, one line in memory at a time.

    A row is a document; with `documents` ``blank-line`` the rows up to one whose text is empty are, as
    `joined_documents` has it. A row's number is the place of its line in bytes. `counters` gets the bad input
    ``not_json``, ``no_json_object``, ``no_text_column``, ``text_is_no_string``, ``invalid_utf8`` (the row is kept,
    with U+FFFD for the bad bytes), and what `row_document` and `read_lines` name.
    """
    rows = _rows(part, open_file, counters, table)
    if documents == "blank-line":
        yield from joined_documents(_texts(rows, table, counters), table)
        return
    for place, row in rows:
        if document := row_document(row, place, table, counters):
            yield document


def _rows(
    part: InputRange, open_file: Callable[[str], BinaryIO], counters: Counters, table: Table
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a range that have the column of the text, each with its place."""
    for place, line in read_lines(part, open_file, counters):
        row = parse_object(line, table.place(place), counters) if line.strip() else None
        if row is not None and table.text_column not in row:
            counters.skip("no_text_column", table.place(place))
        elif row is not None:
            yield place, row


def _texts(
    rows: Iterable[tuple[int, dict[str, Any]]], table: Table, counters: Counters
) -> Iterator[tuple[int, str | None]]:
    for place, row in rows:
        text = row[table.text_column]
        if text is None or isinstance(text, str):
            yield place, text
        else:
            counters.skip("text_is_no_string", table.place(place))


def parse_object(line: bytes, place: str, counters: Counters) -> dict[str, Any] | None:
    """Return the JSON object that a line holds; None, and a count, where it holds none."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        counters.skip("invalid_utf8", place)
        text = line.decode("utf-8", "replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        counters.skip("not_json", place)
        return None
    if not isinstance(value, dict):
        counters.skip("no_json_object", place)
        return None
    return value


def _stem(name: str) -> str:
    name = without_compression(name)
    suffix = next((suffix for suffix in SUFFIXES if name.lower().endswith(suffix)), "")
    return name[: len(name) - len(suffix)]
