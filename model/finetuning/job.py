"""A search of `finetune`: its runs, and all that they have in common."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from ...pipeline.config import identity_fields
from ...pipeline.errors import UserError
from ...pipeline.parsing import parse_json
from ...pipeline.storage.directory import OutputDirectory
from ..checkpoint import CONFIG, model_digest, read_config
from ..encoders.config import EncoderConfig
from ..mirror import local_copy
from ..tasks.batches import Feature
from ..tasks.catalogue import task_settings
from ..tasks.head import Recipe
from ..tasks.splits import TaskSplits
from ..tasks.tables import shown
from ..tasks.task import Task
from ..tokenizer import TextTokenizer, check_fit, trained_length
from ..training.ranks import print_notice
from .config import FinetuneConfig
from .results import RunRecord, Trial, run_name, run_order
from .task_model import architecture

RUNS = "runs"
RECORD = "run.json"


@dataclass(frozen=True)
class Job:
    """All that the runs have in common."""

    source: str
    """Where the data come from, as the user named it."""
    data: TaskSplits
    train: list[Feature]
    dev: dict[str, list[Feature]]
    checkpoint: str
    config: FinetuneConfig
    recipe: Recipe
    """The task's own, with what the user chose."""
    output: Path

    def grid(self) -> list[Trial]:
        """Return what tells each run from the others."""
        choices = {
            "learning_rate": self.recipe.learning_rates,
            **self.config.varied,
            "seed": range(self.config.seed, self.config.seed + self.config.seeds),
        }
        return [
            Trial(**dict(zip(choices, values, strict=True)))  # type: ignore[typeddict-item]
            for values in product(*choices.values())
        ]

    def trial_of(self, record: RunRecord) -> Trial:
        """Return what tells a recorded run from the others."""
        names = ("learning_rate", "seed", *self.config.varied)
        return Trial(**{name: record[name] for name in names})  # type: ignore[typeddict-item]

    def recipe_of(self, trial: Trial) -> Recipe:
        """Return the recipe of a run."""
        return self.recipe._replace(**{name: trial[name] for name in self.config.varied})

    @property
    def batch_sizes(self) -> list[int]:
        """The batch size of each run."""
        return [self.recipe_of(trial).batch_size for trial in self.grid()]

    @property
    def files(self) -> OutputDirectory:
        """The output directory."""
        return OutputDirectory(str(self.output))

    def records(self) -> list[RunRecord]:
        """Return the records of the finished runs, also of earlier calls, the highest learning rate
        first.
        """
        advice = "Delete it and rerun; this run is repeated."
        paths = (self.output / RUNS).glob(f"*/{RECORD}")
        records = [parse_json(path.read_bytes(), RunRecord, path, advice) for path in paths]
        return sorted(records, key=run_order)

    def directory(self, trial: Trial) -> Path:
        """Return where the record and the logs of a run are."""
        return self.output / RUNS / run_name(trial)

    def is_done(self, trial: Trial) -> bool:
        """Return whether the run is recorded: its scores, and its model if that is the best."""
        return (self.directory(trial) / RECORD).exists()


def prepare_job(
    source: str, data: TaskSplits, checkpoint: str, output: Path, config: FinetuneConfig
) -> Job:
    """Encode the examples; raise `UserError` if the model cannot be trained on them."""
    if data.task.whole_batches and config.micro_batch_size:
        raise UserError(
            f"{data.task.name} compares the examples of a batch, so `micro_batch_size` cannot "
            "divide it; lower `batch_size`."
        )
    for examples in data.dev.values():
        data.task.check_dev(examples)
    metrics = list(data.task.baseline(data.train, data.dev[""]))
    if config.select and config.selected_metric not in metrics:
        raise UserError(f"`select` is {config.select}; choose one of {', '.join(metrics)}.")
    shape = read_config(checkpoint)
    if config.keep_head:
        _check_head(data.task, shape, checkpoint)
    tokenizer = TextTokenizer(checkpoint)
    check_fit(tokenizer, shape, data.task.max_length, checkpoint)
    dev = {prefix: data.task.encode(examples, tokenizer) for prefix, examples in data.dev.items()}
    encoded = data.task.encode(data.train, tokenizer)
    # Of SQuAD for instance, a question whose answer is not where the file says has no target.
    train = [feature for feature in encoded if feature.target is not None]
    if not train:
        raise UserError(
            f"None of the {len(data.train):,} training examples has a usable label or answer; "
            "check the training file."
        )
    if not config.random_weights:
        _report_untrained(checkpoint, shape, [train, *dev.values()])
    given = config.given(*Recipe._fields)
    chosen = {name: value for name, value in given.items() if name not in config.varied}
    recipe = data.task.recipe._replace(**chosen)
    return Job(source, data, train, dev, checkpoint, config, recipe, output)


def _check_head(task: Task, shape: EncoderConfig, checkpoint: str) -> None:
    """Raise `UserError` unless the checkpoint has a head of this kind, for the same labels."""
    if not task.has_new_weights:
        raise UserError(f"`keep_head` is for tasks with a head of their own, not {task.name}.")
    path = local_copy(checkpoint) / CONFIG
    saved = parse_json(path.read_bytes(), dict[str, Any], path)
    expected = {"architectures": [architecture(task.model(shape))], **task.hf_settings()}
    for name in ("architectures", "id2label"):
        if saved.get(name) != expected.get(name):
            raise UserError(
                f"`keep_head`: {name} of {checkpoint} is {shown(saved.get(name))}, not "
                f"{shown(expected.get(name))} as here."
            )


def _report_untrained(
    checkpoint: str, shape: EncoderConfig, splits: Sequence[Sequence[Feature]]
) -> None:
    """Print how many rows are longer than those of pre-training, if any are."""
    trained = trained_length(checkpoint, shape.max_position_embeddings)
    features = [feature for split in splits for feature in split]
    # A long passage of SQuAD is a feature for each window; a question of SWAG has four rows.
    lengths = [len(row.input_ids) for feature in features for row in feature.rows]
    num_longer = sum(length > trained for length in lengths)
    if num_longer:
        print_notice(
            f"{num_longer:,} of {len(lengths):,} rows are longer than in the pre-training of "
            f"{checkpoint}, whose positions past {trained} are untrained; "
            f"give `max_length` {trained}."
        )


def identity_of(job: Job) -> dict[str, Any]:
    """Return all that decides the runs' results, but not how and where they are computed."""
    task = job.data.task
    options = identity_fields(job.config)
    # The task's defaults take the place of None: an option that is given as its default is no
    # other run.
    chosen = {**job.recipe._asdict(), "max_length": task.max_length}
    for name, value in chosen.items():
        if name in options and name not in job.config.varied:
            options[name] = value
    identity = {
        "task": task.name,
        "data": job.data.digest(),
        "checkpoint": model_digest(job.checkpoint),
        **options,
    }
    settings = task_settings(task)
    if "class" in settings:
        # A task of the user's own may differ in anything. What other tasks are made from is among
        # the options and in the data's digest.
        identity["task_settings"] = settings
    return json.loads(json.dumps(identity))  # as it is read back: tuples are lists
