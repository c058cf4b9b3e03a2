"""Measure a fine-tuned model on labelled files."""

from itertools import chain
from pathlib import Path
from typing import Any

from ...pipeline import storage
from ...pipeline.counters import wilson_interval
from ...pipeline.errors import UserError
from ...pipeline.storage.state import MANIFEST
from ..checkpoint import files_digest
from ..config import BASELINE
from ..copies import local_copy
from ..notices import print_notice
from ..tasks.batches import num_cut
from ..tasks.example_tables import is_hub
from ..tasks.ner import WordTagging
from ..tasks.splits import dev_sets, find_splits, read_labelled, single_file
from ..tasks.task import Task, prefixed, report_cut
from ..training.device import find_device
from .model import find_model, infer, load_finetuned
from .results import read_summary


def evaluate_task(
    directory: str | Path, data: str | Path, device: str = "auto", task: Task | None = None
) -> dict[str, Any]:
    """Return the number of examples and the official metrics on a labelled file, or on a folder's
    dev files.

    Metrics of MNLI's second dev set start with ``mismatched_``, those of the best constant answer
    with ``baseline_``; ``accuracy_low`` and ``accuracy_high`` are the ends of a 95% interval
    (Wilson's). `task` is needed if `finetune` was given an object. Raises `UserError` for bad
    input.
    """
    directory = find_model(directory)
    finetuned = load_finetuned(directory, find_device(device), task)
    task = finetuned.task
    if storage.exists(storage.join(str(data), MANIFEST)):
        raise UserError(
            f"{data} holds pre-training data, but {directory} is fine-tuned for {task.name}: give "
            "labelled examples."
        )
    data = local_copy(data)
    single = single_file(data)
    files = {"": [single]} if single else dev_sets(find_splits(data, task.suffixes))
    if not files:
        raise UserError(
            f"{data} contains no file with dev or validation in its name; give the file itself."
        )
    summary = read_summary(directory)
    trained_on = summary["train_digests"] if summary else []
    for file in chain.from_iterable(files.values()):
        if not is_hub(file) and files_digest([file]) in trained_on:
            print_notice(
                f"{file} is a file that this model was trained on: the figures say how well it "
                "remembers, not how good it is."
            )
    # Metrics with an interval, and their figure if all examples are right.
    best_figures = {"accuracy": 1, "exact_match": 100, "exact": 100}
    figures: dict[str, float] = {}
    for prefix, paths in files.items():
        examples = read_labelled(task, paths)
        features = task.encode(examples, finetuned.tokenizer)
        report_cut(task, ", ".join(map(str, paths)), num_cut(features), len(examples))
        outputs = infer(finetuned.model, features, finetuned.inference)
        scores = task.scores(outputs, features, examples)
        # Their own best constant answer: the training examples are not at hand.
        constant = task.baseline(examples, examples)
        baseline = {name: constant[name] for name in scores if name in constant}
        figures[f"{prefix}examples"] = len(examples)
        figures |= prefixed(prefix, scores) | prefixed(f"{BASELINE}{prefix}", baseline)
        for name, whole in best_figures.items():
            # Words of a sentence are no independent examples.
            if name in scores and not isinstance(task, WordTagging):
                num_right = round(scores[name] / whole * len(examples))
                low, high = wilson_interval(num_right, len(examples))
                interval = {f"{name}_low": whole * low, f"{name}_high": whole * high}
                figures |= prefixed(prefix, interval)
    return figures
