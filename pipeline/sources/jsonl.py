"""Read JSON Lines as documents: an object a line.

The standard library's ``json`` decodes 180 MB (Korean in ``\\u`` escapes) to 800 MB (English) of
text a second on one core; pyarrow's reader has two thirds of that rate, and does not say which line
is bad.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, BinaryIO

from .. import storage
from ..config import IngestConfig
from ..counters import Counters
from ..errors import UserError
from .row_documents import Columns, Table, no_column, row_documents
from .streams import InputRange, RawDocument, decode, plan_lines, read_lines, text_stream

# pandas writes NaN, which is not JSON, for what is missing.
_JSON = json.JSONDecoder(parse_constant=lambda constant: None)
_HEAD_BYTES = 1 << 16


def plan_json_lines(file: InputRange, range_bytes: int, config: IngestConfig) -> list[InputRange]:
    """Cut a JSON Lines file into ranges; raise `UserError` if no object of its head has the text
    column. One is enough: other lines are bad input, which `read_json_lines` counts.
    """
    damage = Counters()
    head = replace(file, stop=_HEAD_BYTES)
    with storage.open_input(file.path) as stream:
        text = text_stream(stream, file.path, file.encoding, damage)
        lines = [line for _, line in read_lines(text, head, damage)]
    if damage.bad:
        # The file ends in the middle of the last line.
        lines = lines[:-1]
    parsed = [_parse_object(line, file.path, damage) for line in lines]
    objects = [row for row in parsed if row is not None]
    columns = Columns.of(config)
    if objects and not any(map(columns.has_text, objects)):
        raise no_column(file.path, ",".join(columns.text), objects[0])
    if objects and all(columns.read_text(row) is None for row in objects):
        name = ",".join(columns.text)
        raise UserError(f"{file.path}: {name!r} does not hold text: give another `text_column`.")
    return plan_lines(file, range_bytes, config)


def read_json_lines(
    file: BinaryIO, input_range: InputRange, config: IngestConfig, counters: Counters
) -> Iterator[RawDocument]:
    """Yield the documents of a range of a JSON Lines file, a megabyte of text in memory at a time.

    `counters` gets the bad input ``not_json``, ``no_json_object``, ``no_text_column``,
    ``invalid_utf8``, and what `read_lines` and `row_documents` name.
    """
    table = Table.of(input_range, Columns.of(config), config, unit="byte")
    stream = text_stream(file, input_range.name, input_range.encoding, counters)
    return row_documents(read_objects(stream, input_range, table, counters), table, counters)


def read_objects(
    stream: BinaryIO, input_range: InputRange, table: Table, counters: Counters
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the JSON objects that begin in a range, each with the offset of its line in bytes."""
    for offset, line in read_lines(stream, input_range, counters):
        if not line.strip():
            continue
        location = table.location(offset)
        row = _parse_object(line, location, counters)
        if row is None:
            continue
        if table.columns.has_text(row):
            yield offset, row
        elif row.keys() == {"index"}:  # in the dumps of Cirrus, before each article
            counters.count("index_lines")
        else:
            counters.skip("no_text_column", location, record=line)


def _parse_object(line: bytes, location: str, counters: Counters) -> dict[str, Any] | None:
    """Return the JSON object that a line holds; None, and a count, if it holds none."""
    try:
        value = _JSON.decode(decode(line, location, counters))
    except (ValueError, RecursionError) as error:
        counters.skip("not_json", location, str(error), line)
        return None
    if not isinstance(value, dict):
        counters.skip("no_json_object", location, record=line)
        return None
    return value
