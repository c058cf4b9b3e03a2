"""The columns of tables: which of them hold text, id, title, language and source.

A column may lie inside another (``payload.body``), also inside each item of a list
(``sections.text``); what a folder's name says (``region=eu``, as in partitioned tables) is a column
of all rows below it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self
from urllib.parse import unquote

import pyarrow as pa

from ..config import IngestConfig
from ..errors import UserError
from ..text.sentences import normalise

URL = "url"
_PARTITION = re.compile(r"([A-Za-z_]\w*)=([^/]*)")
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_LANGUAGE = re.compile(r"[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8})*")
_NO_NAME = re.compile(r"[^\w.-]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """The names of the columns that are read."""

    text: tuple[str, ...] = ("text",)
    id: str = "id"
    title: str = "title"
    language: str = ""
    source: str = ""
    has_own_ids: bool = False
    """Whether the user named the column of ids: they then tell the documents of all files apart."""
    named: tuple[str, ...] = ()
    """Those that the user named."""

    @classmethod
    def of(cls, config: IngestConfig) -> Self:
        """Return those that a configuration names."""
        text = tuple(config.text_column.split(","))
        others = (
            config.id_column,
            config.title_column,
            config.language_column,
            config.source_column,
        )
        several_texts = text if len(text) > 1 else ()
        return cls(
            text=text,
            id=config.id_column or "id",
            title=config.title_column or "title",
            language=config.language_column or "",
            source=config.source_column or "",
            has_own_ids=config.id_column is not None,
            named=(*several_texts, *filter(None, others)),
        )

    def others(self) -> Iterator[str]:
        """Yield the columns beside the text, which a table may lack."""
        for name in (self.id, URL, self.title, self.language, self.source):
            if name and name not in self.text:
                yield name

    def empty_in(self, row: Mapping[str, object]) -> list[str]:
        """Return which of the columns that the user named hold nothing in a row."""
        empty: list[str] = []
        for name in self.named:
            values = values_at(row, name)
            if not any(str(value).strip() for value in values if value is not None):
                empty.append(name)
        return empty

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
        """Return a row's text, columns and items of lists as lines; "" if it has none, None if it
        is not text.
        """
        parts: list[str] = []
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
        values = [str(value) for value in values_at(row, name) if value is not None]
        return normalise(" ".join(values))

    def read_language(self, row: Mapping[str, object]) -> str:
        """Return the code of a row's language; "" if the column holds none."""
        code = self.read(row, self.language)
        return code if _LANGUAGE.fullmatch(code) else ""

    def read_source(self, row: Mapping[str, object]) -> str:
        """Return a row's source, of the characters that names have; "" if there is none."""
        return _NO_NAME.sub("-", self.read(row, self.source)).strip("-")


def outermost(name: str) -> str:
    """Return the column of a table in which another lies: ``payload`` of ``payload.body``."""
    return name.partition(".")[0]


def values_at(row: Mapping[str, object], name: str) -> list[object]:
    """Return the values of a column, several if it lies in a list; a name with a dot may be a
    column's own.

    >>> values_at({"sections": [{"text": "A."}, {"text": "B."}]}, "sections.text")
    ['A.', 'B.']
    """
    if name in row:
        value = row[name]
        return value if isinstance(value, list) else [value]
    outer, _, inner = name.partition(".")
    value = row.get(outer)
    items = value if isinstance(value, list) else [value]
    return [
        found
        for item in items
        if inner and isinstance(item, Mapping)
        for found in values_at(item, inner)
    ]


def type_at(schema: pa.Schema | pa.StructType, name: str) -> pa.DataType | None:
    """Return the type of a column, of its items if it lies in a list; None if there is none."""
    index = schema.get_field_index(name)
    if index >= 0:
        return _item_type(schema.field(index).type)
    outer, _, inner = name.partition(".")
    index = schema.get_field_index(outer)
    kind = _item_type(schema.field(index).type) if inner and index >= 0 else None
    if kind is None or not pa.types.is_struct(kind):
        return None
    return type_at(kind, inner)


def _item_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_dictionary(kind):
        return kind.value_type
    return kind


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds text."""
    is_string = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return is_string or pa.types.is_string_view(kind)


def partition_of(path: str) -> dict[str, str]:
    """Return what the names of a file's folders say, as Hive and Spark write them.

    >>> partition_of("lake/dt=2026-11-01/region=eu%20west/part-0.parquet")
    {'dt': '2026-11-01', 'region': 'eu west'}
    """
    return {
        found[1]: unquote(found[2])
        for folder in path.split("/")[:-1]
        if (found := _PARTITION.fullmatch(folder)) and found[2] != _NO_VALUE
    }


def with_partition(
    rows: Iterable[tuple[int, Mapping[str, object]]], path: str
) -> Iterable[tuple[int, Mapping[str, object]]]:
    """Yield the rows of a file, with what its folders say beneath their own columns."""
    keys = partition_of(path)
    if not keys:
        return rows
    return ((number, {**keys, **row} if row else row) for number, row in rows)
