"""Damaged and hostile forms of a file."""

import json
import random
from collections.abc import Iterator
from typing import Any

NUMBERS = (-1, 0, 1 << 70, 1e308, float("nan"))
TEXTS = ("", "../x", "\0", "9", "x" * 10_000)
HOSTILE = (None, True, *NUMBERS, *TEXTS, [], {}, [[]], {"a": {}})
WHOLE = (
    b"", b"\xff\xfe", b"\x00" * 64, b"[" * 100_000, b'{"a":' * 100_000, b"NaN", b"[NaN]",
    b"9" * 5000, b"\n" * 9,
)  # fmt: skip
INSERTED = [bytes([byte]) for byte in b'\x00\r\n\xff"<[]{}\\-,'] + [b"nan", b"1e999", b"../"]


def mutate(content: bytes, rng: random.Random) -> bytes:
    """Return `content` damaged in one way: changed, cut, repeated, inserted, or its JSON."""
    if rng.random() < 0.05 or not content:
        return rng.choice(WHOLE)
    if rng.random() < 0.5 and (value := _parsed(content)) is not None:
        forms = list(changed(value, rng))
        if forms:
            return json.dumps(rng.choice(forms)).encode()
    damaged = bytearray(content)
    start = rng.randrange(len(damaged))
    end = min(len(damaged), start + rng.choice((1, 8, 100, 4096)))
    match rng.randrange(6):
        case 0:
            del damaged[start:]
        case 1:
            del damaged[start:end]
        case 2:
            damaged[start:start] = damaged[start:end]
        case 3:
            damaged[start:start] = rng.choice(INSERTED)
        case 4:
            damaged[start:end] = rng.randbytes(end - start)
        case _:
            for _ in range(rng.choice((1, 1, 4, 32))):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    return bytes(damaged)


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return None


def changed(value: Any, rng: random.Random) -> Iterator[Any]:
    """Yield JSON with each of its fields missing, and with each of them of a few other kinds."""
    values = value if isinstance(value, list) else []
    items = list(value.items() if isinstance(value, dict) else enumerate(values))
    for key, item in items[:200]:
        if isinstance(value, dict):
            yield {name: kept for name, kept in value.items() if name != key}
        for other in (*rng.sample(HOSTILE, 4), *changed(item, rng)):
            copy = value.copy()
            copy[key] = other
            yield copy
