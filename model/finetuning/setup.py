"""What all runs of a fine-tuning share: the examples, read and encoded once, and the encoder."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ...pipeline.config import identity_fields
from ...pipeline.errors import UserError
from ..checkpoint import Checkpoint
from ..notices import print_notice
from ..tasks.batches import Feature, Scale, num_cut, scale_of
from ..tasks.catalogue import task_settings
from ..tasks.classify import Classification
from ..tasks.splits import DEV_SETS, TaskSplits, read_data, repeats
from ..tasks.task import Task, report_cut
from ..training.update import Updater
from .config import FinetuneConfig


@dataclass(frozen=True, kw_only=True)
class FinetuneSetup:
    """Everything that is the same in all runs."""

    splits: TaskSplits
    checkpoint: Checkpoint
    """The encoder that each run starts from."""
    config: FinetuneConfig
    train: list[Feature]
    """Those that have a target."""
    dev: dict[str, list[Feature]]
    """By the prefix of the metrics' names, as the dev examples."""
    scale: Scale | None = None
    """Of the training scores of a regression."""
    updaters: list[Updater] = field(default_factory=list[Updater])
    """The one of the run before, if its updates were captured as CUDA graphs."""

    @property
    def task(self) -> Task:
        """What the runs train for."""
        return self.splits.task

    @cached_property
    def identity(self) -> dict[str, Any]:
        """All that decides the results of all runs, but not how and where they are computed."""
        identity = {
            "task": self.task.name,
            "data": self.splits.digest(),
            "checkpoint": self.checkpoint.digest(),
            **identity_fields(self.config),
            # The task's default takes the place of None: the option given as its default is no
            # other work.
            "max_length": self.task.max_length,
        }
        if isinstance(self.task, Classification):
            chosen = {
                "metric": self.task.metric,
                "class_weights": self.task.class_weights,
                "group": self.task.group_column,
            }
            identity |= {name: value for name, value in chosen.items() if value is not None}
        settings = task_settings(self.task)
        if "class" in settings:
            # A task of the user's own may differ in anything. What other tasks are made from is
            # among the options and in the data's digest.
            identity["task_settings"] = settings
        return identity


def set_up(
    task: str | Task, data: str | Path, checkpoint: Checkpoint, config: FinetuneConfig
) -> FinetuneSetup:
    """Read and encode the examples."""
    splits = read_data(task, data, config)
    task = splits.task
    tokenizer = checkpoint.text_tokenizer(task.max_length)
    dev = {prefix: task.encode(examples, tokenizer) for prefix, examples in splits.dev.items()}
    encoded = task.encode(splits.train, tokenizer)
    if notice := tokenizer.unknown_notice():
        print_notice(notice)
    # A question of SQuAD, for instance, has no target if its answer is not where the file says.
    train = [feature for feature in encoded if feature.target is not None]
    if not train:
        raise UserError(
            f"None of the {len(splits.train):,} training examples has a usable label or answer; "
            "check the training file."
        )
    scale = None
    if isinstance(task, Classification) and not task.labels:
        scale = scale_of(train)
    if not config.random_weights:
        trained = checkpoint.trained_length()
        lengths = []
        for features in (train, *dev.values()):
            # A long passage of SQuAD is a feature for each window.
            lengths.extend(feature.length for feature in features)
        num_longer = sum(length > trained for length in lengths)
        if num_longer:
            print_notice(
                f"{num_longer:,} of {len(lengths):,} rows are longer than in the pre-training of "
                f"{checkpoint.name}, whose positions past {trained} are untrained; "
                f"give `max_length` {trained}."
            )
    return FinetuneSetup(
        splits=splits,
        checkpoint=checkpoint,
        config=config,
        train=train,
        dev=dev,
        scale=scale,
    )


def report_oddities(setup: FinetuneSetup) -> None:
    """Print how many examples are cut, repeat or contradict others, or are in train and dev."""
    splits = setup.splits
    report_cut(splits.task, "train", num_cut(setup.train), len(splits.train))
    for prefix, dev_features in setup.dev.items():
        report_cut(splits.task, DEV_SETS[prefix], num_cut(dev_features), len(splits.dev[prefix]))
    for notice in repeats(splits):
        print_notice(notice)
