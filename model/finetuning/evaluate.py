"""Measure a fine-tuned model on labelled files."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...pipeline import storage
from ...pipeline.errors import UserError
from ...pipeline.storage.stage import MANIFEST
from ..checkpoint import files_digest
from ..copies import local_copy
from ..notices import print_notice
from ..tasks.batches import num_cut
from ..tasks.splits import dev_sets, find_splits, read_labelled, single_file
from ..tasks.squad import Squad
from ..tasks.squad_metrics import Metric
from ..tasks.tables import is_hub
from ..tasks.task import Task, prefixed, report_cut
from ..training.device import find_device
from .model import Finetuned, infer, load_finetuned
from .results import FinetuneSummary, read_summary

BASELINE = "baseline_"
"""Begins the names of the metrics of a constant answer."""


def evaluate_task(
    directory: str | Path,
    data: str | Path,
    device: str = "auto",
    metric: Metric | None = None,
    task: Task | None = None,
) -> dict[str, Any]:
    """Return the number of examples and the official metrics on a labelled file, or on the dev
    files in a folder.

    Metrics of MNLI's second dev set start with ``mismatched_``; those of the best constant answer
    start with ``baseline_``. Files on which the model was trained are named in a notice. `metric`
    replaces the one that a model for SQuAD was tuned with. `task` is needed if `finetune` was given
    an object. Raises `UserError` for bad input.
    """
    finetuned = load_finetuned(directory, find_device(device), task)
    if metric:
        finetuned = _with_metric(finetuned, metric, directory)
    if storage.exists(storage.join(str(data), MANIFEST)):
        raise UserError(
            f"{data} holds pre-training data, but {directory} is fine-tuned for "
            f"{finetuned.task.name}: give labelled examples."
        )
    files = _labelled_files(finetuned.task, data)
    summary = read_summary(local_copy(directory))
    if summary:
        for paths in files.values():
            _report_training_files(summary, paths)
    figures: dict[str, float] = {}
    for prefix, paths in files.items():
        figures |= _figures(finetuned, prefix, paths)
    return figures


def _figures(finetuned: Finetuned, prefix: str, paths: Sequence[Path]) -> dict[str, float]:
    """Return the figures on one dev set."""
    task = finetuned.task
    examples = read_labelled(task, paths)
    features = task.encode(examples, finetuned.tokenizer)
    report_cut(task, ", ".join(map(str, paths)), num_cut(features), len(examples))
    scores = task.scores(infer(finetuned.model, features), features, examples)
    # Of the most frequent answer among these very examples: no other constant is right more often.
    constant = task.baseline(examples, examples)
    baseline = {name: constant[name] for name in scores if name in constant}
    return {
        f"{prefix}examples": len(examples),
        **prefixed(prefix, scores),
        **prefixed(f"{BASELINE}{prefix}", baseline),
    }


def _with_metric(finetuned: Finetuned, metric: Metric, directory: str | Path) -> Finetuned:
    if not isinstance(finetuned.task, Squad):
        raise UserError(
            f"`metric` is for squad, but {directory} is a model for {finetuned.task.name}."
        )
    return finetuned._replace(task=replace(finetuned.task, metric=metric))


def _labelled_files(task: Task, data: str | Path) -> dict[str, list[Path]]:
    """Return the files of each dev set in `data`, by its prefix; a single file is one."""
    data = local_copy(data)
    single = single_file(data)
    if single:
        return {"": [single]}
    files = dev_sets(find_splits(data, task.suffixes))
    if not files:
        raise UserError(
            f"{data} contains no file with dev or validation in its name; give the file itself."
        )
    return files


def _report_training_files(summary: FinetuneSummary, files: Sequence[Path]) -> None:
    """Print which of the files the model was trained on, if any."""
    for file in files:
        if is_hub(file) or files_digest([file]) not in summary["train_digests"]:
            continue
        print_notice(
            f"{file} is a file that this model was trained on: the figures say how well it "
            "remembers, not how good it is."
        )
