"""Scores and answers on the dev examples."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..tasks.batches import Feature
from ..tasks.class_report import ClassReport
from ..tasks.head import Answer, Scores, TaskModel, prefixed
from ..tasks.splits import TaskSplits
from ..tasks.task import Task
from .finetuned import infer


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
        self._model = model
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
            self.outputs[prefix] = infer(self._model, features)
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


def scores_without_model(
    splits: TaskSplits,
    measure: Callable[[Sequence[Any], Sequence[Any]], Scores],
    selected: str | None,
) -> dict[str, float]:
    """Return what `measure` says of each dev set, given the training examples."""
    scores: dict[str, float] = {}
    for prefix, dev_examples in splits.dev.items():
        scores |= prefixed(prefix, measure(splits.train, dev_examples))
    if scores:
        return selected_first(scores, selected)
    return scores


def dev_split(prefix: str) -> str:
    """Return the name of a dev set: ``dev``, or ``dev_mismatched``."""
    return f"dev_{prefix}".removesuffix("_")
