"""The runs of a search, one after another; the model of the best one is kept."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec import structs

from ..checkpoint import Checkpoint
from ..notices import StopRequest
from ..tasks.batches import Feature
from ..tasks.options import ClassReport
from ..tasks.splits import TaskSplits, dev_split
from ..tasks.task import Answer, Task, TaskModel, prefixed
from ..training.logs import ProgressCallback
from ..training.ranks import Ranks
from .config import FinetuneConfig
from .finetuned import infer
from .folder import SearchFolder
from .prepare import Features, chosen_recipe
from .records import RunRecord, Trial, best_of, describe_run, read_records
from .task_model import make_model, write_model
from .train import FinetuneState, Training, train_model

LEFT_TO_RIGHT = "left-to-right"


class DevMeasurement:
    """Measures a model on the dev sets, and keeps the last outputs, task and scores."""

    def __init__(
        self,
        splits: TaskSplits,
        features: Mapping[str, Sequence[Feature]],
        model: TaskModel,
        selected: str | None,
    ):
        self._splits = splits
        self._features = features
        self.model = model
        self._selected = selected
        self.outputs: dict[str, list[np.ndarray]] = {}
        """Of each dev set."""
        self.task: Task = splits.task
        """With the thresholds that suit these outputs."""
        self.scores: dict[str, float] = {}

    def measure(self) -> dict[str, float]:
        """Return the scores of the model as it is now, by name."""
        dev = self._splits.dev
        self.outputs = {}
        for prefix, features in self._features.items():
            self.outputs[prefix] = infer(self.model, features)
        # Thresholds, such as SQuAD 2.0's for no answer, are chosen on the first dev set, and hold
        # for all that is scored or predicted with this model.
        self.task = self._splits.task.tuned(self.outputs[""], self._features[""], dev[""])
        scores: dict[str, float] = {}
        for prefix, examples in dev.items():
            measured = self.task.scores(self.outputs[prefix], self._features[prefix], examples)
            scores |= prefixed(prefix, measured)
        self.scores = selected_first(scores, self._selected)
        return self.scores

    def answers(self, prefix: str) -> list[Answer]:
        """Return the answers to the examples of a dev set."""
        examples = self._splits.dev[prefix]
        return self.task.answers(self.outputs[prefix], self._features[prefix], examples)

    def class_report(self) -> ClassReport:
        """Return the figures of each class on the first dev set."""
        return self.task.class_report(self.answers(""), self._splits.dev[""])

    def write_answers(self, folder: Path) -> None:
        """Write the answers to the dev examples into a new folder, with their texts and the truth,
        and in the form of the task's official script, if any.
        """
        folder.mkdir()
        for prefix, examples in self._splits.dev.items():
            split = dev_split(prefix)
            answers = self.answers(prefix)
            lines = []
            for answer, example in zip(answers, examples, strict=True):
                line = {**self.task.texts(example), **answer, "truth": self.task.truth(example)}
                line.pop("n_best", None)  # of SQuAD, in a file of its own
                lines.append(json.dumps(line, ensure_ascii=False) + "\n")
            (folder / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")
            for name, content in self.task.official(answers, examples, split).items():
                (folder / name).write_bytes(content)


def selected_first(scores: dict[str, float], selected: str | None) -> dict[str, float]:
    """Return the scores with the one that chooses before the others."""
    if selected is None:
        return scores
    return {selected: scores[selected], **scores}


@dataclass(frozen=True)
class Trainer:
    """Trains and measures one model after another, all on the same examples."""

    splits: TaskSplits
    features: Features
    checkpoint: Checkpoint
    config: FinetuneConfig
    ranks: Ranks
    folder: SearchFolder

    def run(self, trial: Trial, report: ProgressCallback, stop: StopRequest) -> bool:
        """Train and measure once, and record it; return False if it was asked to stop."""
        task = self.splits.task
        model = make_model(task, self.checkpoint, self.config, trial.seed).to(self.ranks.device)
        selected = self.config.selected_metric
        on_dev = DevMeasurement(self.splits, self.features.dev, model, selected)
        training = Training(
            model=model,
            features=self.features.train,
            config=self.config,
            recipe=chosen_recipe(task, self.config, trial),
            peak_rate=trial.learning_rate,
            seed=trial.seed,
            ranks=self.ranks,
            directory=self.folder.of_run(trial),
            score_dev=on_dev.measure,
            show=report,
            stop=stop,
        )
        trained = train_model(training)
        if trained is None:
            return False
        # One rank evaluates; the others wait for it at the next run's first sum.
        if self.ranks.rank == 0:
            _take_best_weights(trained, on_dev)
            self._keep(on_dev, self._record(trial, trained, on_dev))
        return True

    def _record(self, trial: Trial, trained: FinetuneState, on_dev: DevMeasurement) -> RunRecord:
        task = on_dev.task
        given = self.splits.task.settings()
        tuned = {name: value for name, value in task.settings().items() if value != given[name]}
        direction = LEFT_TO_RIGHT if on_dev.model.encoder.config.is_decoder else ""
        return RunRecord(
            **structs.asdict(trial),
            tuned=tuned,
            scores=on_dev.scores,
            step=trained.best.step,
            task=task.name,
            variant=f"{task.variant} {direction}".strip(),
            checkpoint="random weights" if self.config.random_weights else self.checkpoint.name,
            dev_classes=on_dev.class_report(),
            seconds=round(trained.seconds, 3),
        )

    def _keep(self, on_dev: DevMeasurement, record: RunRecord) -> None:
        """Write the model if it is the best so far: another never will be. Then write its record,
        with which the run is done.
        """
        folder = self.folder
        if best_of([*read_records(folder.path), record]) is record:
            with folder.files.write_folder(folder.model_of(record)) as model_folder:
                write_model(model_folder, on_dev.model, on_dev.task, self.checkpoint)
                on_dev.write_answers(model_folder / "dev")
        folder.record(record)


def _take_best_weights(trained: FinetuneState, on_dev: DevMeasurement) -> None:
    best = trained.best
    if best.weights is not None and best.step < trained.step:
        on_dev.model.load_state_dict(best.weights)
        on_dev.measure()


def search(
    grid: Sequence[Trial],
    trainer: Trainer,
    progress: ProgressCallback | None,
    stop: StopRequest,
) -> bool:
    """Do all runs that are not done, and keep the best; return False if one was asked to stop."""
    ranks = trainer.ranks
    folder = trainer.folder
    for number, trial in enumerate(grid, 1):
        title = f"run {number} of {len(grid)} ({describe_run(trial)})"
        # Only the first rank looks for the record, for it may be writing it when the others look.
        is_done = ranks.from_first(ranks.rank == 0 and folder.is_done(trial))
        if not is_done and not trainer.run(trial, _titled(progress, title), stop):
            return False
        if ranks.rank == 0:
            folder.settle()
    return True


def _titled(progress: ProgressCallback | None, title: str) -> ProgressCallback:
    if progress is None:
        return lambda live: None
    return lambda live: progress({"stage": title, **live})
