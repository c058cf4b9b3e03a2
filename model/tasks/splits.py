"""Which of a task's files is for training, which for development and test."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from ...pipeline.errors import UserError
from ...pipeline.seeding import stable_hash
from .tables import SUFFIXES, hub_split, is_hub

T = TypeVar("T")

HELD_OUT_SHARE = 0.1
_WORDS = {"train": ("train",), "dev": ("dev", "validation", "valid", "val", "testa"), "test": ("test", "testb")}


def find_splits(data: str | Path, suffixes: tuple[str, ...] = SUFFIXES) -> dict[str, list[Path]]:
    """Return the files of ``train``, ``dev`` (and ``dev_mismatched``) and ``test`` that `data` holds.

    In a folder the names tell: the word itself (``dev.tsv``) goes before a name of several words that has it
    (``dev_ids.tsv``, ``validation-00000-of-00001.parquet``), and that before one that only holds it
    (``wnut17train.csv``). Several files of the same rank are one split, in the order of their names. A single file is
    for training, whatever its name. Files with other `suffixes` are left aside; any will do where there are none. The
    splits of a data set of the hub (``hf:nyu-mll/glue:sst2``) are told likewise.

    Raises `UserError` where there are no files.
    """
    if is_hub(Path(data)):
        return _hub_splits(str(data), suffixes)
    path = Path(data)
    if path.is_file():
        return {"train": [path]}
    if not path.is_dir():
        raise UserError(f"There is no file or folder {data}.")
    ranked: dict[str, dict[int, list[Path]]] = {}
    for file in sorted(file for file in path.iterdir() if _has_suffix(file, suffixes) and file.is_file()):
        if split := split_of(file):
            ranked.setdefault(split, {}).setdefault(_rank(file, split), []).append(file)
    if not ranked:
        raise UserError(f"{data} holds no file with train, dev or test in its name ({', '.join(suffixes) or 'any'}).")
    return {split: files[min(files)] for split, files in ranked.items()}


def _hub_splits(name: str, suffixes: tuple[str, ...]) -> dict[str, list[Path]]:
    # Imported here, for it needs `datasets`.
    from ...pipeline.sources.hub import splits

    if suffixes != SUFFIXES:
        raise UserError(f"{name} is a table, but this task has files of its own form; give a folder of those.")
    names = splits(name)
    found = {split: [hub_split(name, part)] for part in names if (split := split_of(Path(part)))}
    if not found:
        raise UserError(f"{name} has no split train, validation or test, only {', '.join(names)}.")
    return found


def _has_suffix(file: Path, suffixes: tuple[str, ...]) -> bool:
    return not suffixes or file.suffix in suffixes


def dev_sets(splits: Mapping[str, list[Path]]) -> dict[str, list[Path]]:
    """Return the dev files of `find_splits` by what stands before the names of their metrics.

    That is nothing, and ``mismatched_`` for the second dev set of MNLI.
    """
    prefixes = {"dev": "", "dev_mismatched": "mismatched_"}
    return {prefix: splits[split] for split, prefix in prefixes.items() if split in splits}


def split_of(file: Path) -> str | None:
    """Return the split that a file's name tells, as `find_splits` names it; None where it tells none."""
    stem = _stem(file)
    found = [split for split in _WORDS if _rank(file, split) < 3]
    if not found:
        return None
    split = min(found, key=lambda split: _rank(file, split))
    if sum(_rank(file, other) == _rank(file, split) for other in found) > 1:
        raise UserError(f"{file} names more than one of train, dev and test; rename it.")
    return f"{split}_mismatched" if "mismatched" in stem else split


def _stem(file: Path) -> str:
    # The files of CoNLL-2003 have the split for a suffix: eng.train, eng.testa, eng.testb.
    stem = file.stem.lower()
    return stem if any(word in stem for words in _WORDS.values() for word in words) else file.name.lower()


def _rank(file: Path, split: str) -> int:
    """Return 0 where the name is the word for `split`, 1 where a word of it is, 2 where it is in a word, else 3."""
    stem = _stem(file)
    words = _WORDS[split.removesuffix("_mismatched")]
    if stem.removesuffix("_matched").removesuffix("_mismatched") in words:
        return 0
    if any(word in re.split("[^a-z]+", stem) for word in words):
        return 1
    return 2 if any(word in stem for word in words) else 3


def hold_out(examples: Sequence[T], key: Callable[[T], str], where: str) -> tuple[list[T], list[T]]:
    """Return (train, dev): a tenth of the examples is held out by the hash of their `key` (the text).

    Examples of the same text stay together. Raises `UserError`, which names `where` they are from, if nothing would be
    left for one of the two.
    """
    hashes = [stable_hash("dev", key(example)) for example in examples]
    distinct = sorted(set(hashes))
    held_out = set(distinct[: max(1, round(HELD_OUT_SHARE * len(distinct)))])
    train = [example for example, value in zip(examples, hashes, strict=True) if value not in held_out]
    dev = [example for example, value in zip(examples, hashes, strict=True) if value in held_out]
    if not train:
        raise UserError(f"All examples in {where} are on one text, so none can be held out; give a dev file.")
    return train, dev
