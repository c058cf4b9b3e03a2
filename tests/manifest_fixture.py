"""Manifests written by hand, with what commands read of them and no more."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from clozeworks.pipeline.config import BuildConfig

_NUMBERS = ("num_words", "num_missing", "num_words_rare", "num_words_long", "num_words_alphabet")
_TALLY: dict[str, Any] = {"counts": {}, "bad": {}, "examples": {}}
_FIELDS: dict[str, dict[str, Any]] = {
    "ingest": {**_TALLY, "languages": {"en": 1}},
    "vocab": {
        "report": {
            "num_tokens": 9,
            "learned_from": {"alphabet_left_out": "", **dict.fromkeys(_NUMBERS, 0)},
            "validation": {
                **{"num_words": 0, "num_tokens_absent": 0, "tokens_per_word": 1.5, "unknown_share": 0},
                **{"longest_tokens": ["a"], "rarest_tokens": [["a", 1]]},
            },
        }
    },
    "build": {**_TALLY, "tokenizer": {"fingerprint": "t"}},
}


def make_manifest(stage: str, shards: Sequence[dict[str, Any]] = (), /, **fields: Any) -> dict[str, Any]:
    """Return a manifest of `stage`; `fields` go before what stands in it else, those of ``config`` one by one."""
    config = {**(asdict(BuildConfig()) if stage == "build" else {}), **fields.pop("config", {})}
    head = {"stage": stage, "config": config, "inputs": [], "versions": {}, "fingerprint": "f"}
    more = {"source_tokens": {}, "warnings": []} if stage == "build" else {}
    listed = {} if stage == "vocab" else {"shards": [{**more, **shard} for shard in shards]}
    return json.loads(json.dumps({**head, **_FIELDS[stage], **listed, **fields}))


def write_manifest(path: Path, stage: str, rows: dict[str, int] | None = None, **fields: Any) -> None:
    """Write a manifest into the directory `path`, where the shards lie already; `rows` are those of each."""
    shards = [
        {"name": name, "split": name.split("-")[0], "rows": num_rows, "bytes": (path / name).stat().st_size}
        for name, num_rows in (rows or {}).items()
    ]
    (path / "manifest.json").write_text(json.dumps(make_manifest(stage, shards, **fields)))
