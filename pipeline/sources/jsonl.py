"""Read JSON Lines as documents: an object a line.

The standard library's ``json`` decodes 180 MB (Korean in ``\\u`` escapes) to 800 MB (English) of
text a second on one core; pyarrow's reader has two thirds of that rate, and does not say which line
is bad.
"""

import json
import string
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..config import IngestConfig
from ..counters import Counters
from ..errors import UserError
from .row_documents import Columns, Table, lacking, no_column, row_documents
from .streams import InputRange, RawDocument, plan_lines
from .texts import Lines

# pandas writes NaN, which is not JSON, for what is missing.
_JSON = json.JSONDecoder(parse_constant=lambda constant: None)


def plan_json_lines(
    lines: Lines, file: InputRange, range_bytes: int, config: IngestConfig
) -> list[InputRange]:
    """Cut a JSON Lines file into ranges; raise `UserError` if no object of its head has the text
    column. One is enough: other lines are bad input, which `read_json_lines` counts.
    """
    columns = Columns(config)
    # A column that only some rows have may begin later than the text's.
    head = lines.head(num_bytes=1 << (20 if columns.named else 16))
    parsed = [_parse_object(line, file.path, head.counters) for _, line in head]
    objects = [row for row in parsed if row is not None]
    if objects and not any(map(columns.has_text, objects)):
        raise no_column(file.path, ",".join(columns.text), objects[0])
    if objects and all(columns.read_text(row) is None for row in objects):
        name = ",".join(columns.text)
        raise UserError(f"{file.path}: {name!r} does not hold text: give another `text_column`.")
    if objects:
        file = replace(file, lacks=lacking(set().union(*objects), config))
    return plan_lines(file, range_bytes, config)


def read_json_lines(
    lines: Lines, input_range: InputRange, config: IngestConfig, counters: Counters
) -> Iterator[RawDocument]:
    """Yield the documents of a range of a JSON Lines file."""
    table = Table.of(input_range, Columns(config), config, unit="byte")
    return row_documents(read_objects(lines, table, counters), table, counters)


def read_objects(
    lines: Lines, table: Table, counters: Counters
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the JSON objects of some lines, each with the offset of its line in bytes."""
    for offset, line in lines:
        if not line.strip(string.whitespace):
            continue
        location = table.location(offset)
        row = _parse_object(line, location, counters)
        if row is None:
            continue
        if table.columns.has_text(row):
            yield offset, row
        else:
            counters.skip("no_text_column", location, record=line)


def _parse_object(line: str, location: str, counters: Counters) -> dict[str, Any] | None:
    """Return the JSON object that a line holds; None, and a count, if it holds none."""
    try:
        value = _JSON.decode(line)
    except (ValueError, RecursionError) as error:
        counters.skip("not_json", location, str(error), line)
        return None
    if not isinstance(value, dict):
        counters.skip("no_json_object", location, record=line)
        return None
    return value
