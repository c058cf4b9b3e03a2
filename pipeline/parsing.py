"""Parse files into typed values; a file that does not fit is an error that names file and field.

The types are dataclasses, `TypedDict` or `msgspec.Struct` classes. Their annotations are the
checks: types, ranges (``Annotated[int, Meta(ge=0)]``), words (`Literal`). Unknown fields are
ignored, so that newer files can be read.
"""

import csv
import io
import json
import re
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, TypeVar

import msgspec

from .errors import UserError

T = TypeVar("T")
_QUOTED = re.compile(r'"[^"]*"')
# Not hidden, which `..` is too: a manifest must not name files outside of its directory.
FileName = Annotated[str, msgspec.Meta(pattern=r"\A(?!\.)[^/\\\x00]+\Z")]
"""The name of a file in the directory at hand: without a folder, and not hidden."""
Count = Annotated[int, msgspec.Meta(ge=0)]
# Bounds that every finite number keeps, but neither infinity nor NaN.
Finite = Annotated[float, msgspec.Meta(ge=-1e308, le=1e308)]
Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]

_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_looking_at_types = Lock()


def decode_json(content: bytes | str, kind: type[T]) -> T:
    """Return JSON as `msgspec` does, but safe in any thread: see `_decoder`."""
    return _decoder(kind).decode(content)


def convert_values(value: Any, kind: type[T], *, strict: bool = True) -> T:
    """Convert plain values as `msgspec` does, but safe in any thread."""
    _decoder(kind)
    return msgspec.convert(value, kind, strict=strict)


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    # msgspec 0.22.0 stores what it knows of a Struct in the class before its fields are filled in:
    # a second thread that decodes the same class for the first time meanwhile reads a null pointer,
    # and the process dies. So only one thread looks at a new type.
    with _looking_at_types:
        if kind not in _decoders:
            _decoders[kind] = msgspec.json.Decoder(kind)
        return _decoders[kind]


def canonical_json(value: Any) -> bytes:
    """Return `value` as JSON whose bytes depend on nothing but the value."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"


def digest_of(value: Any) -> str:
    """Return the blake2b digest (32 hexadecimal digits) of a JSON value or of bytes."""
    if not isinstance(value, bytes):
        value = canonical_json(value)
    return blake2b(value, digest_size=16).hexdigest()


def digest_of_fields(values: Mapping[str, Any], *but: str) -> str:
    """Return the digest of what JSON holds, except ``digest``, where it is stored, and `but`."""
    return digest_of({name: values[name] for name in values.keys() - {"digest", *but}})


def parse_json(
    content: bytes,
    kind: type[T],
    path: object,
    advice: str = "Delete it, or use another directory.",
) -> T:
    """Return JSON as a value of type `kind`.

    Raise `UserError` naming the file at `path`, the field that does not fit, and the `advice`.

    >>> parse_json(b'{"rows": 3}', dict[str, int], "counts.json")
    {'rows': 3}
    """
    try:
        return decode_json(content, kind)
    # A config in a manifest refuses its values by a `UserError`; brackets nested too deeply are a
    # `RecursionError`.
    except (ValueError, RecursionError, UserError) as error:
        raise _damaged(path, error, advice) from None


def read_toml(path: str, kind: type[T]) -> T:
    """Return a user's TOML file as a value of type `kind`; raise `UserError` if it is none."""
    try:
        return convert_values(msgspec.toml.decode(Path(path).read_bytes()), kind)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not valid ({describe_fault(error)}).") from None


def parse_toml_option(text: str, kind: type[T], option: str, what: str) -> T:
    """Return the content of a user's TOML file of `what`, which is the value of an `option`."""
    try:
        return msgspec.toml.decode(text, type=kind)
    except msgspec.DecodeError as error:
        raise UserError(f"`{option}` is not a TOML file of {what}: {error}") from None


def read_csv(content: bytes, path: object, advice: str) -> list[dict[str, str]]:
    """Return the rows of a comma-separated table by column; raise as `parse_json`."""
    try:
        # `newline=""` leaves line breaks within quotes to the reader.
        text = io.StringIO(content.decode(), newline="")
        rows = list(csv.DictReader(text, strict=True))
        # The first row is the header. Columns too many come under the key None, missing ones as
        # None.
        for number, row in enumerate(rows, 2):
            if None in row or None in row.values():
                raise ValueError(f"row {number} does not have the header's number of columns")
    except (ValueError, csv.Error) as error:
        raise _damaged(path, error, advice) from None
    return rows


def csv_delimiter(first_line: str) -> str:
    """Return the comma, semicolon or tab that the line has most of, outside of quotes."""
    # Spreadsheets write semicolons where the comma is the decimal point.
    unquoted = _QUOTED.sub("", first_line)
    return max(",;\t", key=unquoted.count)


def convert(value: Any, kind: type[T], path: object, advice: str, *, strict: bool = True) -> T:
    """Convert plain values; raise as `parse_json`. Unless `strict`, text may hold numbers."""
    try:
        return convert_values(value, kind, strict=strict)
    except UserError as error:
        # A field's own check raised it; the file may be another program's.
        raise UserError(f"{path}: {error} {advice}") from None
    except (ValueError, RecursionError) as error:
        raise _damaged(path, error, advice) from None


def _damaged(path: object, error: Exception, advice: str) -> UserError:
    fault = describe_fault(error)
    return UserError(f"{path} is damaged or was not written by clozeworks ({fault}). {advice}")


def describe_fault(error: Exception) -> str:
    """Return ``FIELD: what is wrong`` in the words of `msgspec`, without its notation.

    ``Expected `int`, got `str` - at `$.shards[0].rows` `` becomes ``shards[0].rows: expected int,
    got str``.
    """
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    # The only pattern in use is that of file names; spelled out, nobody would understand it.
    message = str(error).rstrip(".")
    message = re.sub(r"`str` matching regex '.*'", "a plain file name", message)
    what, _, field = message.replace("`", "").partition(" - at ")
    # Not an abbreviation at the beginning, such as JSON.
    what = re.sub(r"^[A-Z](?=[a-z ])", lambda first: first[0].lower(), what)
    if not field:
        return what
    return f"{field.removeprefix('$').removeprefix('.')}: {what}"
