"""Measure a fine-tuned model, or an ensemble and each of its models, on labelled files."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from ...pipeline import storage
from ...pipeline.encodings import AUTO
from ...pipeline.errors import UserError
from ...pipeline.storage.directory import OutputDirectory, locked, refuse_foreign
from ...pipeline.storage.stage import MANIFEST
from ..checkpoint import files_digest
from ..mirror import local_copy
from ..tasks.catalogue import file_suffixes
from ..tasks.splits import dev_sets, find_splits, read_labelled, single_file
from ..tasks.squad import Squad
from ..tasks.squad_metrics import Metric
from ..tasks.tables import is_hub
from ..tasks.task import Scores, Task, num_cut, prefixed, report_cut
from ..training.device import find_device
from ..training.ranks import print_notice
from .finetuned import Finetuned, load_ensemble
from .results import ENSEMBLE, EnsembleRecord, SearchSummary, read_summary

BASELINE = "baseline_"
"""Begins the names of the metrics of a constant answer."""


def evaluate_task(
    directory: str | Path,
    data: str | Path,
    device: str = "auto",
    metric: Metric | None = None,
    task: Task | None = None,
    encoding: str = AUTO,
    members: Sequence[str | Path] = (),
    output: str | Path | None = None,
) -> dict[str, Any]:
    """Return the number of examples and the official metrics on a labelled file, or on the dev
    files in a folder.

    Metrics of MNLI's second dev set start with ``mismatched_``; those of the best constant answer
    start with ``baseline_``. Files on which the model was trained are named in a notice. `metric`
    replaces the one that a model for SQuAD was tuned with. `task` is needed if `finetune` was given
    an object. With the directories of further models as `members` (see `predict`), the metrics are
    those of the ensemble, and ``members`` has those of each model by its directory; they are also
    written to the directory `output`, if given, where `read_results` finds them. Raises `UserError`
    for bad input.
    """
    directories = (directory, *members)
    if output is not None:
        _check_output(output, directories)
    loaded = load_ensemble(directories, find_device(device), task)
    finetuned = loaded.reading(encoding)
    if metric:
        finetuned = _with_metric(finetuned, metric, directory)
    if storage.exists(storage.join(str(data), MANIFEST)):
        raise UserError(
            f"{data} holds pre-training data, but {directory} is fine-tuned for "
            f"{finetuned.task.name}: give labelled examples."
        )
    files = _labelled_files(finetuned.task, data)
    for summary in filter(None, [read_summary(local_copy(each)) for each in directories]):
        for paths in files.values():
            _report_training_files(summary, paths)

    figures: dict[str, Any] = {}
    scores: dict[str, float] = {}
    scores_of_members: dict[str, dict[str, float]] = {str(name): {} for name in directories}
    for prefix, paths in files.items():
        on_set = _measure(finetuned, paths)
        scores_here = prefixed(prefix, on_set.scores)
        scores |= scores_here
        figures[f"{prefix}examples"] = on_set.num_examples
        figures |= scores_here
        figures |= prefixed(f"{BASELINE}{prefix}", on_set.baseline)
        for name, of_model in zip(directories, on_set.of_members, strict=False):
            scores_of_members[str(name)] |= prefixed(prefix, of_model)
    if members:
        figures["members"] = scores_of_members
    if output is not None:
        record = EnsembleRecord(
            task=finetuned.task.name,
            variant=finetuned.task.variant,
            data=_digest(files),
            scores=scores,
            members=scores_of_members,
        )
        with locked(str(output)):
            OutputDirectory(str(output)).write_json(ENSEMBLE, record)
    return figures


@dataclass(frozen=True)
class _OnSet:
    """What was measured on one dev set."""

    num_examples: int
    scores: Scores
    baseline: Scores
    """Of the answer that is the most frequent among these examples: no constant one does better."""
    of_members: list[Scores]
    """Of each model of an ensemble by itself; none if there is only one."""


def _measure(finetuned: Finetuned, paths: Sequence[Path]) -> _OnSet:
    task = finetuned.task
    examples = read_labelled(task, paths)
    features = task.encode(examples, finetuned.tokenizer)
    report_cut(task, ", ".join(map(str, paths)), num_cut(features), len(examples))
    outputs_of_models = finetuned.outputs_of_models(features)
    scores = task.scores(finetuned.averaged(outputs_of_models), features, examples)
    constant = task.baseline(examples, examples)
    baseline = {name: constant[name] for name in scores if name in constant}
    of_members = []
    for member, outputs in zip(finetuned.members, outputs_of_models, strict=False):
        with_own_thresholds = _with_tuned(task, member.task)
        of_members.append(with_own_thresholds.scores(outputs, features, examples))
    return _OnSet(len(examples), scores, baseline, of_members)


def _check_output(output: str | Path, directories: Sequence[str | Path]) -> None:
    if len(directories) == 1:
        raise UserError(
            "`output` is for the results of an ensemble, which has several models; those of one "
            "are in its own directory."
        )
    refuse_foreign(str(output), but=re.compile(re.escape(ENSEMBLE)))


def _digest(files: Mapping[str, Sequence[Path]]) -> str:
    """Return a digest of the labelled files, "" if one is a data set of the Hub."""
    paths = [path for of_one_set in files.values() for path in of_one_set]
    if any(map(is_hub, paths)):
        return ""
    return files_digest(paths)


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
    files = dev_sets(find_splits(data, file_suffixes(task)))
    if not files:
        raise UserError(
            f"{data} contains no file with dev or validation in its name; give the file itself."
        )
    return files


def _with_tuned(task: Task, other: Task) -> Task:
    """Return `task` with the thresholds of `other`."""
    tuned = {name: getattr(other, name) for name in task.tuned_settings}
    return replace(cast(Any, task), **tuned)


def _report_training_files(summary: SearchSummary, files: Sequence[Path]) -> None:
    """Print which of the files the model was trained on, if any."""
    for file in files:
        if is_hub(file) or files_digest([file]) not in summary.get("train_digests", ()):
            continue
        print_notice(
            f"{file} is a file that this model was trained on: the figures say how well it "
            "remembers, not how good it is."
        )
