"""Find a task's training, development and test files by their names, and read their examples."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from ...pipeline.errors import UserError
from ...pipeline.seeding import stable_hash
from ..checkpoint import files_digest
from ..mirror import local_copy
from .catalogue import file_suffixes, find_entry
from .options import TaskOptions
from .tables import SUFFIXES, hub_split, is_hub
from .task import Task

T = TypeVar("T")

HELD_OUT_SHARE = 0.1
BACKUPS = ("~", ".bak", ".orig")
_WORDS = {
    **{"train": "train", "test": "test", "testb": "test"},
    **dict.fromkeys(("dev", "validation", "valid", "val", "testa"), "dev"),
}


def find_splits(data: str | Path, suffixes: tuple[str, ...] = SUFFIXES) -> dict[str, list[Path]]:
    """Return the files of ``train``, ``dev`` (and ``dev_mismatched``) and ``test`` in `data`;
    raises `UserError` without any, and for files of one split with different suffixes.

    In a folder, file names decide. A name that is just the word (``dev.tsv``) beats one that
    contains it as a word (``wnut17dev.tsv``), which beats one in which a word begins with it
    (``devset.tsv``). Several files of equal rank form one split, in the order of their names. A
    single file is for training, whatever its name. Only files with one of `suffixes` count, or with
    any if that is empty, and no hidden files or editors' backups. The splits of a data set of the
    Hub are found in the same way; one that `data` names is like a single file.
    """
    path = local_copy(data)
    if single := single_file(path, suffixes):
        return {"train": [single]}
    if is_hub(path):
        # Imported late: it needs the `datasets` library.
        from ...pipeline.storage.hub import splits

        names = splits(str(data))
        found = _by_split(map(Path, names))
        if not found:
            raise UserError(
                f"{data} has no split train, validation or test, only {', '.join(names)}."
            )
        return {
            split: [hub_split(str(data), name.name) for name in found[split]] for split in found
        }
    if not path.is_dir():
        raise UserError(f"{data} does not exist.")
    files = [
        file
        for file in sorted(path.iterdir())
        if not file.name.startswith(".") and not file.name.endswith(BACKUPS)
    ]
    found = _by_split(
        file for file in files if (not suffixes or file.suffix in suffixes) and file.is_file()
    )
    if not found:
        raise UserError(
            f"{data} contains no file with train, dev or test in its name ({', '.join(suffixes) or 'any'})."
        )
    for split, (first, *others) in found.items():
        if other := next((file for file in others if file.suffix != first.suffix), None):
            raise UserError(
                f"{first} and {other.name} are both for {split}; remove or rename one of them."
            )
    return found


def single_file(data: Path, suffixes: tuple[str, ...] = SUFFIXES) -> Path | None:
    """Return local `data` if it is one file, or one split of a data set of the Hub; None if there
    may be several.

    Raises `UserError` if there is no such split, or tasks with files of these `suffixes` do not
    read tables.
    """
    if not is_hub(data):
        return data if data.is_file() else None
    # Imported late: it needs the `datasets` library.
    from ...pipeline.storage.hub import named_split

    if suffixes != SUFFIXES:
        raise UserError(
            f"{data} is a table, but this task reads files of another format; give a folder of those."
        )
    split = named_split(str(data))
    return hub_split(str(data), split) if split else None


def _by_split(files: Iterable[Path]) -> dict[str, list[Path]]:
    """Return the files of each split, those of the best rank only."""
    ranked: dict[str, dict[int, list[Path]]] = {}
    for file in files:
        if match := _match(file):
            rank, split = match
            ranked.setdefault(split, {}).setdefault(rank, []).append(file)
    return {split: ranks[min(ranks)] for split, ranks in ranked.items()}


def dev_sets(splits: Mapping[str, list[Path]]) -> dict[str, list[Path]]:
    """Return the dev files of `find_splits` by the prefix of their metrics' names: empty, or
    ``mismatched_``.
    """
    prefixes = {"dev": "", "dev_mismatched": "mismatched_"}
    return {prefix: splits[split] for split, prefix in prefixes.items() if split in splits}


def split_of(file: Path) -> str | None:
    """Return the split that a file's name means, as `find_splits` names it; None if it means none."""
    match = _match(file)
    return match[1] if match else None


def _match(file: Path) -> tuple[int, str] | None:
    """Return the split that a file's name means, after 0 if it is the word, 1 if it contains the
    word, and 2 if one of its words begins with it.
    """
    stem = file.stem.lower()
    # In CoNLL-2003 the suffix names the split: eng.train, eng.testa, eng.testb.
    stem = stem if any(word in stem for word in _WORDS) else file.name.lower()
    whole = stem.removesuffix("_matched").removesuffix("_mismatched")
    words = re.split("[^a-z]+", stem)
    # "val" begins too many words, such as "values".
    begun = [
        word for word in _WORDS if word != "val" and any(each.startswith(word) for each in words)
    ]
    for rank, names in enumerate(([whole], words, begun)):
        found = {split for word, split in _WORDS.items() if word in names}
        if len(found) > 1:
            raise UserError(f"{file} names more than one of train, dev and test; rename it.")
        if found:
            return rank, found.pop() + ("_mismatched" if "mismatched" in stem else "")
    return None


def hold_out(examples: Sequence[T], key: Callable[[T], str], where: str) -> tuple[list[T], list[T]]:
    """Return (train, dev): a tenth of the examples is held out by the hash of their `key`.

    Examples with equal keys stay together. Raises `UserError`, naming their source `where`, if all
    keys are equal.
    """
    hashes = [stable_hash("dev", key(example)) for example in examples]
    distinct = sorted(set(hashes))
    held_out = set(distinct[: max(1, round(HELD_OUT_SHARE * len(distinct)))])
    train = [
        example for example, value in zip(examples, hashes, strict=True) if value not in held_out
    ]
    dev = [example for example, value in zip(examples, hashes, strict=True) if value in held_out]
    if not train:
        raise UserError(
            f"All examples in {where} share one text, so none can be held out; give a dev file."
        )
    return train, dev


@dataclass(frozen=True)
class TaskData:
    """A task with its training and dev examples."""

    task: Task
    train: list[Any]
    dev: dict[str, list[Any]]
    """By the prefix of the metrics' names: empty, or ``mismatched_`` for MNLI's second dev set."""
    splits: dict[str, list[Path]]
    """The files they come from, and the test files, as `find_splits` returns them."""
    held_out: bool
    """There is no dev file; a tenth of the training examples is held out instead."""

    def digest(self) -> str:
        """Return a digest of the contents of the files of each split, or of the examples of a data
        set of the Hub.
        """
        parts = {"train": self.splits["train"], **dev_sets(self.splits)}
        if any(map(is_hub, chain.from_iterable(parts.values()))):
            return f"{stable_hash(repr((self.train, self.dev))):016x}"
        return f"{stable_hash(*chain.from_iterable((name, files_digest(files)) for name, files in parts.items())):016x}"

    @property
    def tests(self) -> dict[str, list[Path]]:
        """The test files by split: ``test`` and, of MNLI, ``test_mismatched``."""
        return {split: files for split, files in self.splits.items() if split.startswith("test")}

    def test_digest(self) -> str:
        """Return a digest of the test files, or of what the Hub says of such splits."""
        files = list(chain.from_iterable(self.tests.values()))
        if not any(map(is_hub, files)):
            return files_digest(files)
        # Imported late: it needs the `datasets` library.
        from ...pipeline.storage.hub import open_set

        return f"{stable_hash(*(open_set(*str(file).split('#', 1)).digest for file in files)):016x}"


def make_task(name: str, data: str | Path, **options: Any) -> Task:
    """Return the task `name` as the training files in `data` define it (their classes and so on).

    `options` are fields of `TaskOptions`, such as ``max_length``. Raises `UserError` for an unknown
    name, another task's option, and `data` without a training file.
    """
    task_options = TaskOptions(**options)
    entry = find_entry(name, task_options)
    return entry.read(_training_splits(data, entry.suffixes)["train"], task_options)


def _training_splits(data: str | Path, suffixes: tuple[str, ...]) -> dict[str, list[Path]]:
    """Return the files of each split; raises `UserError` if there are none for training."""
    splits = find_splits(data, suffixes)
    if "train" not in splits:
        raise UserError(
            f"{data} contains no file with train in its name, only for {', '.join(splits)}."
        )
    return splits


def read_data(task: str | Task, data: str | Path, options: TaskOptions) -> TaskData:
    """Read the examples for training and development; without a dev file, hold out a tenth by hash.

    A `task` given by its name is made from the training files and `options`; a `Task` has none, as
    its fields say all. Raises `UserError` for bad rows, a missing training file, and a file without
    rows.
    """
    if isinstance(task, str):
        entry = find_entry(task, options)
        splits = _training_splits(data, entry.suffixes)
        task = entry.read(splits["train"], options)
    else:
        for name, value in vars(options).items():
            if value is not None:
                raise UserError(f"`{name}` is a field of the task itself; set it there.")
        splits = _training_splits(data, file_suffixes(task))
    train, dev_files = read_labelled(task, splits["train"]), dev_sets(splits)
    dev = {prefix: read_labelled(task, files) for prefix, files in dev_files.items()}
    held_out = "" not in dev
    if held_out:
        train, dev[""] = hold_out(train, task.group, str(data))
    found = TaskData(task, train, dict(sorted(dev.items())), splits, held_out)
    # Test files are needed only after training: report mistakes in them now.
    for file in chain.from_iterable(found.tests.values()):
        if not sum(1 for _ in task.read(file, labelled=False)):
            raise UserError(f"{file} contains no rows.")
    return found


def read_labelled(task: Task, files: Sequence[Path]) -> list[Any]:
    """Return the labelled examples in `files`; raises `UserError` if there are none."""
    examples = [example for file in files for example in task.read(file, labelled=True)]
    if not examples:
        raise UserError(f"{files[0]} contains no rows.")
    return examples
