"""JSON Lines as documents: an object a line, in the columns that `rows` names.

The standard library's ``json`` decodes 180 MB (Korean in ``\\u`` escapes) to 800 MB (English) of text a second on one
core, and pyarrow's reader two thirds of that, without saying which line is bad.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from ..errors import UserError
from ..tally import Tally
from .lines import read_lines, without_compression
from .records import InputRange, RawDocument
from .rows import Table, row_document

SUFFIXES = (".jsonl", ".ndjson", ".json")


def json_table(name: str, text_column: str = "text") -> Table:
    """Return what the rows of the JSON Lines file `name` have in common."""
    return Table(name=name, stem=_stem(name), source="jsonl", text_column=text_column, unit="byte")


def read_json_lines(
    part: InputRange, open_file: Callable[[str], BinaryIO], tally: Tally, table: Table
) -> Iterator[RawDocument]:
    """Yield the documents of a range of a JSON Lines file, one line in memory at a time.

    A row's number is the place of its line in bytes. `tally` gets the bad input ``not_json``, ``no_json_object``,
    ``no_text_column``, ``invalid_utf8`` (the row is kept, with U+FFFD for the bad bytes), and what `row_document` and
    `read_lines` name. Raise `UserError` where the first object of the file has no column of the text.
    """
    first = part.start == 0
    for place, line in read_lines(part, open_file, tally):
        row = parse_object(line, table.place(place), tally) if line.strip() else None
        if row is None:
            continue
        if table.text_column in row:
            if document := row_document(row, place, table, tally):
                yield document
        elif first:
            columns = ", ".join(map(str, row)) or "no column at all"
            raise UserError(f"{part.path} has no column {table.text_column!r} but {columns}: give --text-column.")
        else:
            tally.skip("no_text_column", table.place(place))
        first = False


def parse_object(line: bytes, place: str, tally: Tally) -> dict[str, Any] | None:
    """Return the JSON object that a line holds; None, and a count, where it holds none."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        tally.skip("invalid_utf8", place)
        text = line.decode("utf-8", "replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        tally.skip("not_json", place)
        return None
    if not isinstance(value, dict):
        tally.skip("no_json_object", place)
        return None
    return value


def _stem(name: str) -> str:
    name = without_compression(name)
    suffix = next((suffix for suffix in SUFFIXES if name.lower().endswith(suffix)), "")
    return name[: len(name) - len(suffix)]
