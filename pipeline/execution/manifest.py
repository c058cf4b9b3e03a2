"""What a ``manifest.json`` must hold, and the check of one that is read; imports neither Beam nor torch."""

import json
from dataclasses import fields
from typing import Any

from ..config import BuildConfig
from ..errors import UserError

# A type, one of several words, a list of one shape, named fields of a shape each, or (under `str`) any names with
# values of one shape; a name with "?" may be missing. Here stands what commands read, not all that is written.
Shape = type | tuple[str, ...] | list[Any] | dict[Any, Any]

COUNTS: Shape = {str: int}
_HEAD = {"stage": str, "config": {}, "inputs": [{}], "versions": {str: str}, "fingerprint": str}
_TALLY = {"counts": COUNTS, "bad": COUNTS, "examples": {str: [str]}}
_SHARD = {"name": str, "split": ("train", "validation"), "rows": int, "bytes": int}
_BUILD_CONFIG = {
    field.name: [int] if field.name == "mask_split" else type(field.default) for field in fields(BuildConfig)
}
_LEARNED_FROM = ("num_words", "num_missing", "num_words_rare", "num_words_long", "num_words_alphabet")
_HELD_OUT = {"num_words": int, "num_tokens_absent": int, "tokens_per_word": float, "unknown_share": float}
_STAGES: dict[str, dict[str, Shape]] = {
    "ingest": {**_TALLY, "languages": COUNTS, "shards": [_SHARD]},
    "vocab": {
        "report": {
            "num_tokens": int,
            "learned_from": {"alphabet_left_out": str, **dict.fromkeys(_LEARNED_FROM, int)},
            "validation": {**_HELD_OUT, "longest_tokens": [str], "rarest_tokens": [list]},
        }
    },
    "build": {
        **_TALLY,
        "config": _BUILD_CONFIG,
        "languages?": COUNTS,
        "tokenizer": {"fingerprint": str},
        "shards": [{**_SHARD, "source_tokens": COUNTS, "warnings": [str]}],
    },
}
_KINDS = {str: "text", int: "a whole number", float: "a number", list: "a list", dict: "an object"}


def parse_plan(content: bytes, path: str) -> dict[str, Any]:
    """Return what the file at `path` holds, which begins as every manifest does.

    Raises `UserError` naming the file and the field that is missing or of another type.
    """
    return _parse(content, path, {})


def parse_manifest(content: bytes, path: str) -> dict[str, Any]:
    """Return the manifest of a finished stage, with all that commands read of it; raises as `parse_plan`."""
    return _parse(content, path, _STAGES)


def _parse(content: bytes, path: str, stages: dict[str, dict[str, Shape]]) -> dict[str, Any]:
    try:
        head = json.loads(content)
    except ValueError:
        fault = "it is no JSON"
    else:
        fault = _fault(head, _HEAD, "it") or _fault(head, stages.get(head["stage"], {}), "it")
        if not fault:
            return head
    raise UserError(f"{path} is damaged, or not of clozeworks ({fault}): give another directory, or remove this one.")


def _fault(value: Any, shape: Shape, field: str) -> str | None:
    """Say what keeps `value` from having the shape, naming the place in the file; None where nothing does."""
    if isinstance(shape, tuple):
        return None if value in shape else f"{field} is not {' or '.join(shape)}"
    kind = shape if isinstance(shape, type) else type(shape)
    # JSON knows one kind of number; and in Python True is one.
    if not isinstance(value, (int, float) if kind is float else kind) or isinstance(value, bool):
        return f"{field} is not {_KINDS[kind]}"
    if isinstance(shape, list):
        return _first_fault((f"{field}[{index}]", item, shape[0]) for index, item in enumerate(value))
    if not isinstance(shape, dict):
        return None
    if str in shape:
        return _first_fault((_within(field, name), item, shape[str]) for name, item in value.items())
    if missing := [name for name in shape if name not in value and not name.endswith("?")]:
        return f"{field} has no {missing[0]!r}"
    shapes = {name.removesuffix("?"): inner for name, inner in shape.items()}
    return _first_fault((_within(field, name), value[name], shapes[name]) for name in shapes if name in value)


def _first_fault(parts: Any) -> str | None:
    return next((fault for field, value, shape in parts if (fault := _fault(value, shape, field))), None)


def _within(field: str, name: str) -> str:
    return name if field == "it" else f"{field}.{name}"
