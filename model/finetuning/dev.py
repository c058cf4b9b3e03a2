"""Scores and answers on the dev examples."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..tasks.head import Answer, Scores, TaskModel, prefixed
from .finetuned import infer
from .job import Job


class DevMeasurement:
    """Measures a model on the dev sets, and keeps the last outputs, task and scores."""

    def __init__(self, job: Job, model: TaskModel):
        self._job = job
        self._model = model
        self.outputs: dict[str, list[np.ndarray]] = {}
        """Of each dev set."""
        self.task = job.data.task
        """With the thresholds that suit these outputs."""
        self.scores: dict[str, float] = {}

    def measure(self) -> dict[str, float]:
        """Return the scores of the model as it is now, by name."""
        job = self._job
        self.outputs = {}
        for prefix, features in job.dev.items():
            self.outputs[prefix] = infer(self._model, features)
        # Thresholds, such as SQuAD 2.0's for no answer, are chosen on the first dev set, and hold
        # for all that is scored or predicted with this model.
        self.task = job.data.task.tuned(self.outputs[""], job.dev[""], job.data.dev[""])
        scores: dict[str, float] = {}
        for prefix, examples in job.data.dev.items():
            measured = self.task.scores(self.outputs[prefix], job.dev[prefix], examples)
            scores |= prefixed(prefix, measured)
        self.scores = selected_first(scores, job.config.selected_metric)
        return self.scores

    def answers(self, prefix: str) -> list[Answer]:
        """Return the answers to the examples of a dev set."""
        job = self._job
        return self.task.answers(self.outputs[prefix], job.dev[prefix], job.data.dev[prefix])


def selected_first(scores: dict[str, float], selected: str | None) -> dict[str, float]:
    """Return the scores with the one that chooses before the others."""
    if selected is None:
        return scores
    return {selected: scores[selected], **scores}


def measure_on_dev(
    job: Job, measure: Callable[[Sequence[Any], Sequence[Any]], Scores]
) -> dict[str, float]:
    """Return what `measure` says of each dev set, given the training examples."""
    scores: dict[str, float] = {}
    for prefix, dev_examples in job.data.dev.items():
        scores |= prefixed(prefix, measure(job.data.train, dev_examples))
    if scores:
        return selected_first(scores, job.config.selected_metric)
    return scores


def dev_split(prefix: str) -> str:
    """Return the name of a dev set: ``dev``, or ``dev_mismatched``."""
    return f"dev_{prefix}".removesuffix("_")


def write_dev_answers(folder: Path, job: Job, on_dev: DevMeasurement) -> None:
    """Write the answers to the dev examples, with their texts and the truth, and in the form of the
    task's official script, if any.
    """
    task = on_dev.task
    folder.mkdir()
    for prefix, examples in job.data.dev.items():
        split = dev_split(prefix)
        answers = on_dev.answers(prefix)
        lines = []
        for answer, example in zip(answers, examples, strict=True):
            line = {**task.texts(example), **answer, "truth": task.truth(example)}
            line.pop("n_best", None)  # of SQuAD, in a file of its own
            lines.append(json.dumps(line, ensure_ascii=False) + "\n")
        (folder / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")
        for name, content in task.official(answers, examples, split).items():
            (folder / name).write_bytes(content)
