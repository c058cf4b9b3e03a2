"""Read JSON Lines as documents: an object a line, in the columns that `rows` names.

The standard library's ``json`` decodes 180 MB (Korean in ``\\u`` escapes) to 800 MB (English) of
text a second on one core; pyarrow's reader has two thirds of that rate, and does not say which line
is bad.
"""

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

from .. import storage
from ..config import IngestConfig
from ..counters import Counters
from ..errors import UserError
from .columns import Columns, values_at, with_partition
from .compression import stem_of, text_stream
from .lines import decode, plan_lines, read_lines
from .records import Input, InputRange, RawDocument
from .rows import Table, row_documents

SUFFIXES = (".jsonl", ".ndjson", ".json")

_HEAD_BYTES = 1 << 16
_JSON_KINDS = {
    dict: "objects",
    list: "lists",
    int: "numbers",
    float: "numbers",
    bool: "true or false",
}


def plan_json_lines(file: Input, range_bytes: int, config: IngestConfig) -> list[InputRange]:
    """Cut a JSON Lines file into ranges, as `plan_lines` does.

    Raise `UserError` if its first lines hold no object, or none with a text in the text column. One
    line with a text is enough: other lines are bad input, which `read_json_lines` counts.
    """
    with storage.open_input(file.path) as stream:
        lines = _first_lines(stream, file)
    _check_lines(lines, file.path, Columns.of(config))
    return plan_lines(file, range_bytes, config)


def _check_lines(lines: list[bytes], path: str, columns: Columns) -> None:
    parsed = [parse_object(line, path, Counters()) for line in lines]
    objects = [row for row in parsed if row is not None]
    if lines and not objects:
        raise UserError(
            f"{path} is not JSON Lines: its first lines hold no object. "
            "Fix it, or give its `format`."
        )
    for name in columns.text:
        values = [value for row in objects for value in values_at(row, name) if value is not None]
        if values and not any(isinstance(value, str) for value in values):
            kind = _JSON_KINDS[type(values[0])]
            raise UserError(
                f"{path}: column {name!r} holds {kind}, not text: give another `text_column`."
            )
    if objects and not any(map(columns.has_text, objects)):
        wanted = ",".join(columns.text)
        shown = ", ".join(objects[0]) or "no column at all"
        raise UserError(f"{path} has no column {wanted!r}, only {shown}: give `text_column`.")


def _first_lines(stream: BinaryIO, file: Input) -> list[bytes]:
    """Return the first whole lines of a file that are not empty."""
    damage = Counters()
    head = InputRange(path=file.path, name=file.path, format="jsonl", stop=_HEAD_BYTES)
    text = text_stream(stream, file.path, file.encoding, damage)
    lines = [line for _, line in read_lines(text, head, damage)]
    if damage.bad:
        # The file ends in the middle of the last line.
        lines = lines[:-1]
    return [line for line in lines if line.strip()]


def read_json_lines(
    file: BinaryIO, input_range: InputRange, config: IngestConfig, counters: Counters
) -> Iterator[RawDocument]:
    """Yield the documents of a range of a JSON Lines file, a megabyte of text in memory at a time.

    `counters` gets the bad input that `read_objects` and `row_documents` name.
    """
    table = Table(
        name=input_range.name,
        stem=stem_of(input_range.name, *SUFFIXES),
        source="jsonl",
        columns=Columns.of(config),
        documents=config.documents,
        unit="byte",
    )
    stream = text_stream(file, input_range.name, input_range.encoding, counters)
    rows = with_partition(read_objects(stream, input_range, table, counters), input_range.path)
    return row_documents(rows, table, counters)


def read_objects(
    stream: BinaryIO, input_range: InputRange, table: Table, counters: Counters
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the JSON objects that begin in a range, each with the offset of its line in bytes.

    `counters` gets the bad input ``not_json``, ``no_json_object``, ``no_text_column``,
    ``invalid_utf8`` (the row is kept, with U+FFFD for the bad bytes), and what `read_lines` names.
    """
    for offset, line in read_lines(stream, input_range, counters):
        if not line.strip():
            continue
        location = table.location(offset)
        row = parse_object(line, location, counters)
        if row is None:
            continue
        if table.columns.has_text(row):
            yield offset, row
        else:
            counters.skip("no_text_column", location)


def parse_object(line: bytes, location: str, counters: Counters) -> dict[str, Any] | None:
    """Return the JSON object that a line holds; None, and a count, if it holds none."""
    try:
        value = json.loads(decode(line, location, counters))
    except (ValueError, RecursionError):
        counters.skip("not_json", location)
        return None
    if not isinstance(value, dict):
        counters.skip("no_json_object", location)
        return None
    return value
