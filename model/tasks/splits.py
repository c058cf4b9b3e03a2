"""Find a task's training, development and test files by their names, read their examples, and count
those that repeat or contradict others.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain, compress
from pathlib import Path
from typing import Any

from ...pipeline.errors import UserError
from ...pipeline.seeding import stable_hash
from ...pipeline.sources import hub
from ..checkpoint import files_digest
from ..copies import local_copy
from .catalogue import GLUE, KINDS
from .classify import Classification, classify_task
from .example_tables import SUFFIXES, is_hub, shown
from .ner import ner_task, pos_task
from .options import TaskOptions, check_task
from .squad import squad_task
from .task import Task, read_labelled

_DEFINED_BY_DATA: dict[str, Callable[[Sequence[Path], TaskOptions], Task]] = {
    "classify": classify_task,
    "squad": squad_task,
    "ner": ner_task,
    "pos": pos_task,
}
DEV_SETS = {"": "dev", "mismatched_": "dev_mismatched"}
"""By the prefix of their metrics; MNLI has two."""
_WORDS = {
    # As the beginning of a word, such as "devset" or "17dev"; "val" begins too many, like "values".
    "train": re.compile("(?<![a-z])train"),
    "dev": re.compile("(?<![a-z])(dev|valid|val(?![a-z])|testa(?![a-z]))"),
    "test": re.compile("(?<![a-z])test(?!a(?![a-z]))"),
}


def find_splits(data: str | Path, suffixes: tuple[str, ...] = SUFFIXES) -> dict[str, list[Path]]:
    """Return the files of ``train``, ``dev`` (and ``dev_mismatched``) and ``test`` in `data`, by
    their names: one that is just the word (``dev.tsv``) beats those that contain it
    (``wnut17dev.tsv``), of which several form one split. A single file, or split of the Hub, is for
    training. Only files with one of `suffixes` count, with any if there are none.
    """
    path = local_copy(data)
    single = single_file(path)
    if single:
        return {"train": [single]}
    if is_hub(path):
        names = hub.splits(str(data))
        found = _by_split(map(Path, names))
        if not found:
            raise UserError(
                f"{data} has no split train, validation or test, only {', '.join(names)}."
            )
        return {
            split: [Path(f"{data}#{path.name}") for path in paths] for split, paths in found.items()
        }
    if not path.is_dir():
        raise UserError(f"{data} does not exist.")
    files: list[Path] = []
    for file in sorted(path.iterdir()):
        is_ignored = file.name.startswith(".") or file.name.endswith(("~", ".bak", ".orig"))
        has_suffix = not suffixes or file.suffix.lower() in suffixes
        if has_suffix and not is_ignored and file.is_file():
            files.append(file)
    # Universal Dependencies have the plain text of each file in CoNLL-U beside it.
    conllu_files = [file for file in files if file.suffix.lower() == ".conllu"]
    if not suffixes and conllu_files:
        files = conllu_files
    splits = _by_split(files)
    if not splits:
        endings = ", ".join(suffixes) or "any"
        raise UserError(f"{data} contains no file with train, dev or test in its name ({endings}).")
    for split, (first, *others) in splits.items():
        for other in others:
            if other.suffix.lower() != first.suffix.lower():
                raise UserError(
                    f"{first} and {other.name} are both for {split}; remove or rename one of them."
                )
    return splits


def single_file(data: Path) -> Path | None:
    """Return `data` if it is one file, or one split of a data set of the Hub."""
    if not is_hub(data):
        return data if data.is_file() else None
    split = hub.named_split(str(data))
    return Path(f"{data}#{split}") if split else None


def _by_split(files: Iterable[Path]) -> dict[str, list[Path]]:
    names = {"train": "train", "dev": "dev|validation|valid|val|testa", "test": "test|testb"}
    named: dict[str, list[Path]] = {}
    containing: dict[str, list[Path]] = {}
    for file in files:
        split = split_of(file)
        if split is None:
            continue
        # MNLI has dev_matched and dev_mismatched.
        name = file.stem.lower().removesuffix("_matched").removesuffix("_mismatched")
        is_name = re.fullmatch(names[split.removesuffix("_mismatched")], name)
        (named if is_name else containing).setdefault(split, []).append(file)
    return containing | named


def dev_sets(splits: Mapping[str, list[Path]]) -> dict[str, list[Path]]:
    """Return the dev files by the prefix of their metrics."""
    return {prefix: splits[split] for prefix, split in DEV_SETS.items() if split in splits}


def split_of(file: Path) -> str | None:
    """Return the split that a file's name means, as `find_splits` names it, if any."""
    # The whole name: in CoNLL-2003 the suffix names the split, eng.train, eng.testa, eng.testb.
    name = file.name.lower()
    splits = [split for split, word in _WORDS.items() if word.search(name)]
    if len(splits) > 1:
        raise UserError(f"{file} names more than one of train, dev and test; rename it.")
    if not splits:
        return None
    return f"{splits[0]}_mismatched" if "mismatched" in name else splits[0]


def hold_out(keys: Sequence[str], strata: Sequence[object], where: str) -> list[bool]:
    """Return which examples are held out: a tenth of the keys of each stratum, by their hash."""
    # By hash instead of at random: when examples are added, nearly all others keep their side.
    hashes = [stable_hash("dev", key) for key in keys]
    # A key with examples of several strata counts in the rarest, so that dev gets some of it.
    counts = Counter(strata)
    stratum_of_hash: dict[int, object] = {}
    pairs = zip(hashes, strata, strict=True)
    for value, stratum in sorted(pairs, key=lambda pair: counts[pair[1]]):
        stratum_of_hash.setdefault(value, stratum)
    if len(stratum_of_hash) == 1:
        raise UserError(
            f"All examples in {where} share one text or group, so none can be held out; give a "
            "dev file."
        )
    hashes_of_stratum: dict[object, list[int]] = defaultdict(list)
    for value in sorted(stratum_of_hash):
        hashes_of_stratum[stratum_of_hash[value]].append(value)
    held_out: set[int] = set()
    for values in hashes_of_stratum.values():
        held_out.update(values[: round(0.1 * len(values))])
    # Few examples of many classes: something must be held out.
    if not held_out:
        held_out.add(min(stratum_of_hash))
    return [value in held_out for value in hashes]


def group_keys(task: Task, examples: Sequence[Any]) -> list[str]:
    """Return the key of each example for `hold_out`: its group's, or that of an earlier example
    with the same texts, whatever their case, spacing and order, unless groups are other than texts.

    A key is the first one met, as it is, so that without such texts all keys are the task's.
    """
    key_of_group: dict[str, str] = {}
    key_of_texts: dict[frozenset[str], str] = {}
    keys = []
    for example in examples:
        group = task.group(example)
        key = key_of_group.setdefault(_normalised(group), group)
        texts = frozenset(_texts(task, example))
        # An author stays whole; a text that many share would join all of them.
        if _normalised(group) in texts:
            key = key_of_texts.setdefault(texts, key)
        keys.append(key)
    return keys


def _texts(task: Task, example: Any) -> tuple[str, ...]:
    """Return the texts that the answer depends on, normalised; none if it depends on more."""
    if not task.depends_on_texts_alone:
        return ()
    return tuple(map(_normalised, task.texts(example).values()))


def _normalised(text: str) -> str:
    return " ".join(text.casefold().split())


@dataclass(frozen=True)
class TaskSplits:
    """A task with its training and dev examples."""

    task: Task
    train: list[Any]
    dev: dict[str, list[Any]]
    """By the prefix of the metrics' names (`dev_sets`)."""
    splits: dict[str, list[Path]]
    """The files they come from, and the test files, as `find_splits` returns them."""
    held_out: bool
    """There is no dev file; a tenth of the training examples is held out instead."""

    def digest(self) -> str:
        """Return a digest of the training and dev files."""
        hashed = ["train", _digest(self.splits["train"])]
        for prefix, files in dev_sets(self.splits).items():
            hashed += [prefix, _digest(files)]
        return f"{stable_hash(*hashed):016x}"

    def train_digests(self) -> list[str]:
        """Return a digest of each training file; none of a data set of the Hub."""
        return [files_digest([file]) for file in self.splits["train"] if not is_hub(file)]

    @property
    def tests(self) -> dict[str, list[Path]]:
        """The test files by split: ``test`` and, of MNLI, ``test_mismatched``."""
        return {split: files for split, files in self.splits.items() if split.startswith("test")}

    def test_digest(self) -> str:
        """Return a digest of the test files."""
        return _digest(list(chain.from_iterable(self.tests.values())))


def _digest(files: Sequence[Path]) -> str:
    """Return a digest of files, or of what the Hub says of splits."""
    if not any(map(is_hub, files)):
        return files_digest(files)
    digests = [hub.open_set(*str(file).split("#", 1)).digest for file in files]
    return f"{stable_hash(*digests):016x}"


def make_task(name: str, data: str | Path, **options: Any) -> Task:
    """Return the task `name` as training files in `data` and `TaskOptions` define it."""
    return read_data(name, data, TaskOptions(**options)).task


def read_data(task: str | Task, data: str | Path, options: TaskOptions) -> TaskSplits:
    """Read the examples for training and development; without a dev file, hold out a tenth by hash.

    A `task` given by its name is made from the training files and `options`; a `Task` has none, as
    its fields say all.
    """
    if isinstance(task, str):
        check_task(task, options)
        splits = find_splits(data, KINDS[task].suffixes)
    else:
        for name in options.given(*(field.name for field in fields(TaskOptions))):
            raise UserError(f"`{name}` is a field of the task itself; set it there.")
        splits = find_splits(data, task.suffixes)
    if "train" not in splits:
        raise UserError(
            f"{data} contains no file with train in its name, only for {', '.join(splits)}."
        )
    if isinstance(task, str):
        if task in GLUE:
            # Its columns and classes are published, so the training files have no say in them.
            task = replace(GLUE[task], **options.given("max_length"))
        else:
            task = _DEFINED_BY_DATA[task](splits["train"], options)
    train = read_labelled(task, splits["train"])
    dev = {prefix: read_labelled(task, files) for prefix, files in dev_sets(splits).items()}
    # MNLI's second dev set alone does not count: runs are chosen by the first.
    held_out = "" not in dev
    if held_out:
        strata = [task.stratum(example) for example in train]
        is_dev = hold_out(group_keys(task, train), strata, str(data))
        dev[""] = list(compress(train, is_dev))
        is_train = [not is_out for is_out in is_dev]
        train = list(compress(train, is_train))
    elif isinstance(task, Classification) and task.group_column:
        raise UserError(
            f"`group` divides data that have no dev file, but {data} has one; leave it out."
        )
    dev = dict(sorted(dev.items()))
    task_data = TaskSplits(task, train, dev, splits, held_out)
    # Test files are needed only after training: report mistakes in them now.
    for file in chain.from_iterable(task_data.tests.values()):
        if not sum(1 for _ in task.read(file, labelled=False)):
            raise UserError(f"{file} contains no rows.")
    return task_data


def repeats(data: TaskSplits) -> list[str]:
    """Return what to say of examples that share their texts with others, in pairs in any order."""
    labels: dict[tuple[str, ...], list[Hashable]] = defaultdict(list)
    for example in data.train:
        texts = _texts(data.task, example)
        if texts:
            truth = data.task.truth(example)
            labels[texts].append(tuple(truth) if isinstance(truth, list) else truth)
    num_repeated = 0
    contradictory: list[str] = []
    for texts, found in labels.items():
        num_labels = len(set(found))
        num_repeated += len(found) - num_labels
        if num_labels > 1:
            contradictory += [texts[0]] * len(found)
    trained = set(map(frozenset, labels))
    dev = list(chain.from_iterable(data.dev.values()))
    num_shared = sum(frozenset(_texts(data.task, example)) in trained for example in dev)
    train = f"{len(data.train):,} training examples"
    notices = []
    if num_repeated:
        notices.append(f"{num_repeated:,} of {train} repeat another exactly: they count twice.")
    if contradictory:
        notices.append(
            f"{len(contradictory):,} of {train} have the text of another, but not its label, for "
            f"example {shown(contradictory[0])}: no model can learn both."
        )
    if num_shared:
        notices.append(
            f"{num_shared:,} of {len(dev):,} dev examples are training examples too, which "
            "flatters the scores."
        )
    return notices
