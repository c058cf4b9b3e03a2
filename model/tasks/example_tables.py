"""Read tables of examples: TSV as in GLUE, CSV, JSON Lines, Parquet, and data sets of the Hub."""

import csv
import re
import shlex
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ...pipeline.encodings import read_sample, recoded, text_encoding
from ...pipeline.errors import UserError
from ...pipeline.parsing import csv_delimiter, describe_fault
from ...pipeline.sources import hub
from ..notices import print_notice

SUFFIXES = (".tsv", ".csv", ".jsonl", ".json", ".parquet")
_WHOLE_FLOAT = re.compile(r"^([+-]?\d+)\.0+$")
_UTF8_BOM = b"\xef\xbb\xbf"
T = TypeVar("T")


class UnusableRowError(UserError):
    """A row lacks something that others have; `usable` leaves it out and counts it."""

    def __init__(self, where: str, fault: str, reason: str):
        super().__init__(f"{where}: {fault}.")
        self.reason = reason
        """Follows the number of such rows, for instance "without a label"."""


class MissingColumnError(UnusableRowError):
    """A row has none of a column's names."""


class TableRow(NamedTuple):
    """One row of a table."""

    where: str
    """File and line (in Parquet, row), counted from 1: for messages."""
    values: dict[str, Any]
    """Values by column: text in TSV and CSV."""

    def value(self, *names: str) -> Any:
        """Return the value in the first of alternative columns that the row has."""
        for name in names:
            if name in self.values:
                value = self.values[name]
                # pandas writes a gap as NaN.
                if value is None or value != value:
                    raise UnusableRowError(self.where, f"{name} is empty", f"without {name}")
                return value
        fault = f"there is no column {names[0]}, only {listed(self.values)}"
        raise MissingColumnError(self.where, fault, f"without {names[0]}")

    def text(self, *names: str) -> str:
        """Return the text in a column."""
        value = self.value(*names)
        if not isinstance(value, str):
            raise UserError(f"{self.where}: the text is {shown(value)}.")
        return value

    def label(self, *names: str) -> str:
        """Return the label in a column as `class_name` writes it."""
        value = self.value(*names)
        if not isinstance(value, str | int | float):
            raise UserError(
                f"{self.where}: the label is {shown(value)}, neither text nor a number."
            )
        name = class_name(value)
        if name.lower() in ("", "nan"):
            raise UnusableRowError(self.where, "the label is empty", f"without {names[0]}")
        return name

    def labels(self, *names: str) -> list[str]:
        """Return the list of labels in a column as `class_name` writes them."""
        value = self.value(*names)
        if not isinstance(value, list):
            raise UserError(f"{self.where}: the labels are {shown(value)}, not a list.")
        labels = [class_name(label) for label in value if label is not None]
        return [label for label in labels if label]


def class_name(label: str | float) -> str:
    """Return a label as text, composed (NFC) and without white space around it; whole floats lose
    their decimal point.

    >>> [class_name(label) for label in (" yes", 3, "3.0", 2.5)]
    ['yes', '3', '3', '2.5']
    """
    # JSON Lines and Parquet have numbers, and pandas makes a column with gaps one of floats, which
    # it writes into a CSV too: the class 3 must be the same everywhere.
    if isinstance(label, float) and label.is_integer():
        return str(int(label))
    return _WHOLE_FLOAT.sub(r"\1", unicodedata.normalize("NFC", str(label).strip()))


def read_rows(path: Path, headerless: Sequence[str] = ()) -> Iterator[TableRow]:
    """Yield the rows of a table, in the format that its suffix names: TSV without quotes, as in
    GLUE; CSV; JSON Lines; Parquet; a data set of the Hub. A TSV whose first line names none of the
    columns `headerless` has no header line; a row may lack its last columns.
    """
    if is_hub(path):
        yield from _hub_rows(path)
        return
    check_file(path)
    match path.suffix.lower():
        case ".tsv" | ".csv":
            yield from _delimited_rows(path, headerless)
        case ".json" | ".jsonl":
            yield from _json_rows(path)
        case ".parquet":
            yield from _parquet_rows(path)
        case suffix:
            raise UserError(
                f"{path} has the suffix {suffix!r}, but a table is one of {', '.join(SUFFIXES)}."
            )


def usable(
    rows: Iterable[TableRow], example: Callable[[TableRow], T], labelled: bool
) -> Iterator[T]:
    """Yield the `example` of each row of a file. Of `labelled` rows, those for which it raises
    `UnusableRowError` are left out and counted in a notice; if none is left, the first error is
    raised.
    """
    if not labelled:
        yield from map(example, rows)
        return
    counts: Counter[str] = Counter()
    first_faults: dict[str, UnusableRowError] = {}
    num_rows = 0
    for row in rows:
        num_rows += 1
        try:
            made = example(row)
        except UnusableRowError as fault:
            counts[fault.reason] += 1
            first_faults.setdefault(fault.reason, fault)
            continue
        yield made
    for reason, count in counts.items():
        first = first_faults[reason]
        if counts.total() == num_rows:
            raise first
        notice_once(f"Left out {count:,} of {num_rows:,} rows ({reason}); the first: {first}")


def check_file(path: Path) -> None:
    """Raise `UserError` unless `path` is a file."""
    if path.is_dir():
        raise UserError(f"{path} is a folder; give one of the files in it.")
    if not path.is_file():
        raise UserError(f"{path} does not exist.")


def shown(value: object) -> str:
    """Format a value for a message: text in quotes, shortened if long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def listed(names: Iterable[str]) -> str:
    """Format names for a message: shortened, and quoted where white space would not be seen."""
    seen = (name if name and name == name.strip() else repr(name) for name in names)
    text = ", ".join(seen)
    return text if len(text) <= 200 else f"{text[:199]}…"


def is_hub(path: Path) -> bool:
    """Return whether `path` names a data set of the Hub, or a split: ``hf:set#train``."""
    return str(path).startswith("hf:")


def lines_of(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (where, line) of a text file: of UTF-8, unless it has the mark of UTF-16 or UTF-32."""
    check_file(path)
    with path.open("rb") as file:
        sample = read_sample(file)
        remedy = f"convert it: iconv -f {{guess}} -t UTF-8 {shlex.quote(path.name)}"
        encoding = text_encoding(sample, str(path), remedy=remedy)
        file.seek(0)
        yield from text_lines(recoded(file, encoding, str(path)), str(path))


@cache  # a file is read several times: to find its form, and for each run
def notice_once(line: str) -> None:
    """Print a notice, the first time only."""
    print_notice(line)


def text_lines(file: BinaryIO, name: str) -> Iterator[tuple[str, str]]:
    """Yield (where, line) of a UTF-8 file; only LF and CRLF end a line, others may be text."""
    for number, line in enumerate(file, 1):
        where = f"{name}, line {number}"
        if number == 1:
            line = line.removeprefix(_UTF8_BOM)
            if b"\r" in line.rstrip() and not line.endswith(b"\n"):  # as on old Macs
                command = f"tr '\\r' '\\n' < {shlex.quote(name)}"
                raise UserError(
                    f"The lines of {name} end in CR, not LF or CRLF. Convert it: {command}"
                )
        try:
            yield where, line.removesuffix(b"\n").removesuffix(b"\r").decode()
        except UnicodeDecodeError:
            raise UserError(f"{where} is not UTF-8: convert it.") from None


def _hub_rows(path: Path) -> Iterator[TableRow]:
    name, _, split = str(path).partition("#")
    place = f"{name}, split {split}" if split else name
    rows = hub.open_set(name, split or None).rows
    # Lists of classes' numbers become names; single classes stay numbers, as tasks know them by
    # those too.
    names_by_column: dict[str, list[str]] = {}
    for column, feature in (rows.features or {}).items():
        names = getattr(getattr(feature, "feature", None), "names", None)
        if names:
            names_by_column[column] = names
    for number, values in enumerate(rows, 1):
        for column, names in names_by_column.items():
            if values[column] is not None:
                values[column] = [names[index] for index in values[column] if index is not None]
        yield TableRow(f"{place}, row {number}", values)


def _delimited_rows(path: Path, headerless: Sequence[str]) -> Iterator[TableRow]:
    columns: Sequence[str] = ()
    for where, fields in _fields(path):
        if not columns:
            # CoLA: its train and dev files have no header line, its test file has one.
            is_header = not headerless or not set(fields).isdisjoint(headerless)
            columns = fields if is_header else headerless
            # Columns without a name may repeat: nobody can ask for them.
            named = [name for name in columns if name]
            if len(set(named)) < len(named):
                raise UserError(f"{where} names a column twice ({listed(named)}); rename one.")
            if is_header:
                continue
        # A blank line is a row only if the table has one column, whose text may be empty.
        if not fields or (fields == [""] and len(columns) > 1):
            continue
        if len(fields) > len(columns):
            raise UserError(
                f"{where}: the number of columns is {len(fields)}, not {len(columns)} "
                f"({listed(columns)}): does a text contain the separator?"
            )
        yield TableRow(where, dict(zip(columns, fields, strict=False)))


def _fields(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield (where, fields) of each line of a TSV, and of each row of a CSV."""
    lines = lines_of(path)
    if path.suffix.lower() == ".tsv":
        for where, line in lines:
            yield where, line.split("\t")
        return
    # The csv module refuses fields over 128 KiB by default; a document may be longer.
    csv.field_size_limit(2**31 - 1)
    _, header = next(lines, ("", ""))
    rows = (f"{line}\n" for _, line in chain([("", header)], lines))
    reader = csv.reader(rows, delimiter=csv_delimiter(header), strict=True)
    try:
        for fields in reader:
            yield f"{path}, line {reader.line_num}", fields
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num} is not valid CSV: {error}.") from None


def _json_rows(path: Path) -> Iterator[TableRow]:
    for where, line in lines_of(path):
        if not line.strip():
            continue
        try:
            values = msgspec.json.decode(line, type=dict[str, Any])
        except (ValueError, RecursionError) as error:
            raise UserError(
                f"{where} is not a JSON object ({describe_fault(error)}); write one per line."
            ) from None
        yield TableRow(where, values)


def _parquet_rows(path: Path) -> Iterator[TableRow]:
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            number = 0
            for batch in file.iter_batches():
                for values in batch.to_pylist():
                    number += 1
                    yield TableRow(f"{path}, row {number}", values)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path} is not a Parquet file, or damaged: {error}") from None
