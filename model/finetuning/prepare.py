"""Encode the examples of a task for a checkpoint, and list the runs of a search."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch

from ...pipeline.config import identity_fields
from ...pipeline.errors import UserError
from ..checkpoint import Checkpoint
from ..notices import print_notice
from ..tasks.batches import Feature, num_cut
from ..tasks.catalogue import task_settings
from ..tasks.splits import TaskSplits, dev_split, find_repeats
from ..tasks.tables import shown
from ..tasks.task import Recipe, Task, report_cut
from ..tokenizer import TextTokenizer
from .config import FinetuneConfig
from .records import Trial
from .task_model import architecture


@dataclass(frozen=True)
class Features:
    """The encoded examples, and what encoded them."""

    tokenizer: TextTokenizer
    train: list[Feature]
    """Those that have a target."""
    dev: dict[str, list[Feature]]
    """By the prefix of the metrics' names, as the dev examples."""


def prepare(splits: TaskSplits, checkpoint: Checkpoint, config: FinetuneConfig) -> Features:
    """Encode the examples; raise `UserError` if the checkpoint cannot be trained on them."""
    task = splits.task
    _check_options(splits, config)
    if config.keep_head:
        _check_head(task, checkpoint)
    tokenizer = checkpoint.text_tokenizer(task.max_length)
    dev = {prefix: task.encode(examples, tokenizer) for prefix, examples in splits.dev.items()}
    encoded = task.encode(splits.train, tokenizer)
    # Of SQuAD for instance, a question whose answer is not where the file says has no target.
    train = [feature for feature in encoded if feature.target is not None]
    if not train:
        raise UserError(
            f"None of the {len(splits.train):,} training examples has a usable label or answer; "
            "check the training file."
        )
    if not config.random_weights:
        _report_untrained(checkpoint, [train, *dev.values()])
    return Features(tokenizer, train, dev)


def _check_options(splits: TaskSplits, config: FinetuneConfig) -> None:
    """Raise `UserError` if the task cannot be trained or judged with these options."""
    task = splits.task
    if config.select:
        metrics = list(task.baseline(splits.train, splits.dev[""]))
        if config.selected_metric not in metrics:
            raise UserError(f"`select` is {config.select}; choose one of {', '.join(metrics)}.")


def _check_head(task: Task, checkpoint: Checkpoint) -> None:
    """Raise `UserError` unless the checkpoint has a head of this kind, for the same labels."""
    with torch.device("meta"):  # no weights
        model = task.model(checkpoint.shape)
    expected = {"architectures": [architecture(model)], **task.hf_settings()}
    for name in ("architectures", "id2label"):
        saved = checkpoint.hf_config.get(name)
        if saved != expected.get(name):
            raise UserError(
                f"`keep_head`: {name} of {checkpoint.name} is {shown(saved)}, not "
                f"{shown(expected.get(name))} as here."
            )


def _report_untrained(checkpoint: Checkpoint, splits: Sequence[Sequence[Feature]]) -> None:
    """Print how many rows are longer than those of pre-training, if any are."""
    trained = checkpoint.trained_length()
    lengths = [feature.length for split in splits for feature in split]
    num_longer = sum(length > trained for length in lengths)
    if num_longer:
        print_notice(
            f"{num_longer:,} of {len(lengths):,} rows are longer than in the pre-training of "
            f"{checkpoint.name}, whose positions past {trained} are untrained; "
            f"give `max_length` {trained}."
        )


def report_oddities(splits: TaskSplits, features: Features) -> None:
    """Print how many examples are cut, repeat or contradict others, or are in train and dev."""
    report_cut(splits.task, "train", num_cut(features.train), len(splits.train))
    for prefix, dev_features in features.dev.items():
        report_cut(splits.task, dev_split(prefix), num_cut(dev_features), len(splits.dev[prefix]))
    repeats = find_repeats(splits.task, splits.train, splits.dev, features.tokenizer)
    num_train = f"{len(splits.train):,} training examples"
    if repeats.repeated:
        print_notice(
            f"{repeats.repeated:,} of {num_train} repeat another exactly: they count twice."
        )
    if repeats.contradictory:
        print_notice(
            f"{repeats.contradictory:,} of {num_train} have the text of another, but not its "
            f"label, for example {shown(repeats.example)}: no model can learn both."
        )
    if repeats.shared:
        num_dev = sum(len(examples) for examples in splits.dev.values())
        print_notice(
            f"{repeats.shared:,} of {num_dev:,} dev examples are training examples too, which "
            "flatters the scores."
        )


def chosen_recipe(task: Task[Any], config: FinetuneConfig, trial: Trial | None = None) -> Recipe:
    """Return the task's hyperparameters, with what the user chose for all runs, and what a `trial`
    has of its own.
    """
    given = config.given(*Recipe._fields)
    chosen = {name: value for name, value in given.items() if name not in config.varied}
    if trial:
        chosen |= trial.varied
    return task.recipe._replace(**chosen)


def make_grid(task: Task[Any], config: FinetuneConfig) -> list[Trial]:
    """Return the runs of a search."""
    choices = {
        "learning_rate": chosen_recipe(task, config).learning_rates,
        **config.varied,
        "seed": range(config.seed, config.seed + config.seeds),
    }
    return [
        Trial(**dict(zip(choices, values, strict=True))) for values in product(*choices.values())
    ]


def identity_of(
    splits: TaskSplits, checkpoint: Checkpoint, config: FinetuneConfig
) -> dict[str, Any]:
    """Return all that decides the runs' results, but not how and where they are computed."""
    task = splits.task
    options = identity_fields(config)
    # The task's defaults take the place of None: an option that is given as its default is no
    # other run.
    chosen = {**chosen_recipe(task, config)._asdict(), "max_length": task.max_length}
    for name, value in chosen.items():
        if name in options and name not in config.varied:
            options[name] = value
    identity = {
        "task": task.name,
        "data": splits.digest(),
        "checkpoint": checkpoint.digest(),
        **options,
    }
    settings = task_settings(task)
    if "class" in settings:
        # A task of the user's own may differ in anything. What other tasks are made from is among
        # the options and in the data's digest.
        identity["task_settings"] = settings
    return identity
