"""Predict with a fine-tuned model, and measure it on labelled files."""

import csv
import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO, TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TextIO, cast

import numpy as np
import torch

from ...pipeline import storage
from ...pipeline.encodings import AUTO, UTF_8, check_encoding
from ...pipeline.errors import UserError
from ...pipeline.storage.directory import WORK, OutputDirectory, locked, write_file
from ...pipeline.storage.stage import MANIFEST
from ...pipeline.text_streams import recoded
from ..checkpoint import TASK, files_digest, load_weights, read_config
from ..mirror import local_copy
from ..tasks.catalogue import file_suffixes, read_task, task_settings
from ..tasks.conll import has_columns
from ..tasks.ner import EntityRecognition
from ..tasks.splits import dev_sets, find_splits, read_labelled, single_file, split_of
from ..tasks.squad import Squad
from ..tasks.squad_metrics import Metric
from ..tasks.tables import check_file, is_hub, open_text, shown, text_lines
from ..tasks.task import (
    Answer,
    Feature,
    Outputs,
    Task,
    TaskModel,
    make_batch,
    num_cut,
    report_cut,
)
from ..tokenizer import TextTokenizer, check_fit
from ..training.device import (
    autocast,
    fetch,
    find_device,
    one_behind,
    pinned_attention,
    product_dtype,
    trim_memory,
    uncompiled,
)
from ..training.ranks import print_notice
from .results import SearchSummary, read_summary

PREDICTION_SUFFIXES = (".tsv", ".csv", ".jsonl", ".json")
TOKENS_PER_BATCH = 8192
ROWS_PER_BATCH = 256
EXAMPLES_AT_ONCE = 8192
BASELINE = "baseline_"
"""Begins the names of the metrics of a constant answer."""


class Finetuned(NamedTuple):
    """A fine-tuned model with its task and tokenizer."""

    task: Task
    tokenizer: TextTokenizer
    model: TaskModel
    members: "tuple[Finetuned, ...]" = ()
    """All models of an ensemble, the first included; empty for a model on its own."""

    def outputs(self, features: Sequence[Feature]) -> Outputs:
        """Return the outputs for each feature, averaged over the models of an ensemble."""
        return self.averaged(self.outputs_of_models(features))

    def outputs_of_models(self, features: Sequence[Feature]) -> list[Outputs]:
        """Return the outputs of each model."""
        return [infer(member.model, features) for member in self.members or (self,)]

    def averaged(self, outputs: Sequence[Outputs]) -> Outputs:
        """Return the outputs for each feature from those of each model."""
        if not self.members:
            return outputs[0]
        return [self.task.averaged(of_feature) for of_feature in zip(*outputs, strict=True)]


def load_finetuned(
    directory: str | Path, device: torch.device, task: Task | None = None
) -> Finetuned:
    """Load the model that `finetune` wrote; `task` is the one of the user's own that it was given.

    Raises `UserError` if `directory` holds no model, or that of another task.
    """
    path = local_copy(directory) / TASK
    if not path.is_file():
        raise UserError(
            f"{directory} contains no fine-tuned model: {TASK} is missing. "
            "Run clozeworks finetune first."
        )
    task = read_task(path, task)
    config = read_config(directory)
    tokenizer = TextTokenizer(directory)
    check_fit(tokenizer, config, task.max_length, directory)
    model = task.model(config)
    unused: tuple[str, ...] = ()
    if not model.uses_pooler:
        unused = model.encoder.optional_weights
    load_weights(model, directory, new=unused)
    return Finetuned(task, tokenizer, model.to(device).eval())


def load_ensemble(
    directories: Sequence[str | Path], device: torch.device, task: Task | None = None
) -> Finetuned:
    """Load several models of one task as one, whose thresholds are the means of theirs; one alone
    is no ensemble.

    Raises `UserError` if their labels or other settings differ, or their vocabularies.
    """
    members = tuple(load_finetuned(directory, device, task) for directory in directories)
    first = members[0]
    if len(members) == 1:
        return first
    expected = _untuned_settings(first.task)
    for member, directory in zip(members, directories, strict=True):
        settings = _untuned_settings(member.task)
        for name in ("task", *sorted(expected.keys() | settings.keys())):
            if expected.get(name) != settings.get(name):
                raise UserError(
                    f"{directory} was fine-tuned with {name} {shown(settings.get(name))}, "
                    f"{directories[0]} with {shown(expected.get(name))}: they make no ensemble."
                )
        if member.tokenizer != first.tokenizer:
            raise UserError(
                f"{directory} has another vocabulary than {directories[0]}: they make no ensemble."
            )
    tuned = {
        name: float(np.mean([getattr(member.task, name) for member in members]))
        for name in first.task.tuned_settings
    }
    return first._replace(task=replace(cast(Any, first.task), **tuned), members=members)


def _untuned_settings(task: Task) -> dict[str, Any]:
    settings = task_settings(task)
    return {name: settings[name] for name in settings.keys() - set(task.tuned_settings)}


@torch.inference_mode()
def infer(model: TaskModel, features: Sequence[Feature]) -> list[np.ndarray]:
    """Return the head's outputs for each feature, float32, in order, without dropout.

    The precision is the device's default, so that thresholds tuned on dev hold for `predict` and
    `evaluate`.
    """
    device = next(model.parameters()).device
    dtype = product_dtype("auto", device)

    def launch(indices: list[int]) -> Callable[[], tuple[list[int], np.ndarray]]:
        batch = make_batch([features[index] for index in indices]).to(device)
        with autocast(device, dtype), uncompiled(), pinned_attention():
            values = model(batch)
        computed = fetch(values.float())
        return lambda: (indices, computed().numpy())

    was_training = model.training
    model.eval()
    outputs: list[np.ndarray] = [np.empty(0)] * len(features)
    launched = map(launch, _batches(features))
    for number, (indices, values) in enumerate(one_behind(launched)):
        for index, value in zip(indices, values, strict=True):
            if model.per_token:
                value = value[: features[index].length]
            # Copied to free the memory of the padded batch.
            outputs[index] = value.copy()
        trim_memory(device, number)
    model.train(was_training)
    return outputs


def _batches(features: Sequence[Feature]) -> Iterator[list[int]]:
    """Yield batches of indices of features of similar length."""
    order = sorted(range(len(features)), key=lambda index: features[index].length)
    start = 0
    while start < len(order):
        # Features are sorted by length, so the first is only a lower bound of the batch's longest:
        # the size is a guess.
        shortest = features[order[start]]
        tokens_per_feature = shortest.length * len(shortest.rows)
        size = min(ROWS_PER_BATCH, TOKENS_PER_BATCH // tokens_per_feature + 1)
        yield order[start : start + size]
        start += size


def predict(
    directory: str | Path,
    data: str | Path,
    output: str | Path,
    device: str = "auto",
    *,
    official: bool = False,
    task: Task | None = None,
    encoding: str = AUTO,
    members: Sequence[str | Path] = (),
) -> int:
    """Write one prediction per example in `data`, in order, and return their number.

    `data` is a file in the task's format, or plain text (``.txt`` without tags, or ``-`` for
    standard input): one example per line, a tab between the texts of a pair. A prediction is the
    text, its answer and the probability of each class, or the score: tab-separated with a header
    line, or as ``.csv``, ``.jsonl`` or ``.json`` (one list); ``-`` is standard output. With
    `official`, `output` is a folder for the task's server or script. `task` is needed if `finetune`
    was given an object. Text that is not UTF-8 is read in `encoding`; it is detected by default.
    `members` are the directories of further models of the same task: the predictions are those of
    the ensemble, whose probabilities, scores of spans and regressions are the means of its
    models'. Raises `UserError` for bad input, and then writes nothing.
    """
    is_terminal = str(output) == "-"
    suffix = Path(output).suffix
    if not is_terminal and Path(output).resolve() == Path(data).resolve():
        raise UserError(f"`output` is DATA itself ({output}); give another file.")
    if official and is_terminal:
        raise UserError("`official` writes files; give a folder for them as `output`, not -.")
    if not official and not is_terminal and suffix not in PREDICTION_SUFFIXES:
        raise UserError(
            f"`output` {output}: give a file that ends in {', '.join(PREDICTION_SUFFIXES)}, "
            "or - for the terminal."
        )
    loaded = load_ensemble((directory, *members), find_device(device), task)
    finetuned = _in_encoding(loaded, encoding)
    data = "-" if str(data) == "-" else str(local_copy(data))
    if official:
        return _predict_official(finetuned, data, str(output), encoding)
    answers = _answers(finetuned, _examples(finetuned.task, data, encoding), _name(data))
    with _open_output(str(output)) as file:
        return _write(file, answers, suffix)


def _in_encoding(finetuned: Finetuned, encoding: str) -> Finetuned:
    """Return the model with a task that reads files that are not UTF-8 in `encoding`."""
    if encoding == AUTO:
        return finetuned
    if not hasattr(finetuned.task, "encoding"):
        raise UserError(
            f"`encoding` is for text and tables; files of {finetuned.task.name} are UTF-8."
        )
    task = replace(cast(Any, finetuned.task), encoding=check_encoding(encoding))
    return finetuned._replace(task=task)


def _predict_official(finetuned: Finetuned, data: str, output: str, encoding: str) -> int:
    examples = list(_examples(finetuned.task, data, encoding))
    answers = list(_answers(finetuned, iter(examples), _name(data)))
    # GLUE's diagnostic set is a file of its own; on the Hub it is the test split of ax.
    name = Path(data).name.lower()
    if "diagnostic" in name or "ax" in re.split("[^a-z]+", name):
        split = "diagnostic"
    else:
        split = split_of(Path(data)) or "test"
    files = finetuned.task.official(answers, examples, split)
    if not files:
        raise UserError(
            f"{finetuned.task.name} has no official format for {data}; leave out `official`."
        )
    directory = OutputDirectory(output)
    with locked(output):
        for name, content in files.items():
            directory.write_bytes(name, content)
        directory.remove(WORK)
    return len(answers)


def predict_files(finetuned: Finetuned, files: Sequence[Path], split: str) -> dict[str, bytes]:
    """Return predictions for the files of a `split` as files by name: the official ones, or
    ``SPLIT.tsv``.
    """
    examples: list[Any] = []
    for file in files:
        examples.extend(finetuned.task.read(file, labelled=False))
    answers = list(_answers(finetuned, iter(examples), split))
    official_files = finetuned.task.official(answers, examples, split)
    if official_files:
        return official_files
    table = StringIO(newline="")
    _write(table, answers, ".tsv")
    return {f"{split}.tsv": table.getvalue().encode()}


def _answers(finetuned: Finetuned, examples: Iterator[Any], where: str) -> Iterator[Answer]:
    task = finetuned.task
    num_examples = 0
    num_examples_cut = 0
    # Not all at once: a file to predict may be larger than memory.
    while chunk := list(islice(examples, EXAMPLES_AT_ONCE)):
        features = task.encode(chunk, finetuned.tokenizer)
        num_examples += len(chunk)
        num_examples_cut += num_cut(features)
        outputs = finetuned.outputs(features)
        answers = task.answers(outputs, features, chunk)
        for example, answer in zip(chunk, answers, strict=True):
            yield {**task.texts(example), **answer}
    report_cut(task, where, num_examples_cut, num_examples)


def evaluate_task(
    directory: str | Path,
    data: str | Path,
    device: str = "auto",
    metric: Metric | None = None,
    task: Task | None = None,
    encoding: str = AUTO,
    members: Sequence[str | Path] = (),
) -> dict[str, Any]:
    """Return the number of examples and the official metrics on a labelled file, or on the dev
    files in a folder.

    Metrics of MNLI's second dev set start with ``mismatched_``; those of the best constant answer
    start with ``baseline_``. Files on which the model was trained are named in a notice. `metric`
    replaces the one that a model for SQuAD was tuned with. `task` is needed if `finetune` was given
    an object. With the directories of further models as `members` (see `predict`), the metrics are
    those of the ensemble, and ``members`` has those of each model by its directory. Raises
    `UserError` for bad input.
    """
    directories = (directory, *members)
    loaded = load_ensemble(directories, find_device(device), task)
    finetuned = _in_encoding(loaded, encoding)
    if metric:
        if not isinstance(finetuned.task, Squad):
            raise UserError(
                f"`metric` is for squad, but {directory} is a model for {finetuned.task.name}."
            )
        finetuned = finetuned._replace(task=replace(finetuned.task, metric=metric))
    if storage.exists(storage.join(str(data), MANIFEST)):
        raise UserError(
            f"{data} holds pre-training data, but {directory} is fine-tuned for "
            f"{finetuned.task.name}: give labelled examples."
        )
    data = local_copy(data)
    suffixes = file_suffixes(finetuned.task)
    single = single_file(data)
    if single:
        files = {"": [single]}
    else:
        files = dev_sets(find_splits(data, suffixes))
    if not files:
        raise UserError(
            f"{data} contains no file with dev or validation in its name; give the file itself."
        )
    summaries = [read_summary(local_copy(each)) for each in directories]
    scores: dict[str, Any] = {}
    scores_of_members: dict[str, dict[str, float]] = defaultdict(dict)
    for prefix, paths in files.items():
        examples = read_labelled(finetuned.task, paths)
        for summary in filter(None, summaries):
            _report_training_files(summary, paths)
        features = finetuned.task.encode(examples, finetuned.tokenizer)
        report_cut(finetuned.task, ", ".join(map(str, paths)), num_cut(features), len(examples))
        outputs_of_models = finetuned.outputs_of_models(features)
        outputs = finetuned.averaged(outputs_of_models)
        measured = finetuned.task.scores(outputs, features, examples)
        scores[f"{prefix}examples"] = len(examples)
        scores |= {f"{prefix}{name}": value for name, value in measured.items()}
        # The answer that is the most frequent among these examples: no constant one does better.
        constant = finetuned.task.baseline(examples, examples)
        for name in measured.keys() & constant.keys():
            scores[f"{BASELINE}{prefix}{name}"] = constant[name]
        # Without an ensemble there are no members.
        for member, name, outputs in zip(
            finetuned.members, directories, outputs_of_models, strict=False
        ):
            measured = _with_tuned(finetuned.task, member.task).scores(outputs, features, examples)
            for metric_name, value in measured.items():
                scores_of_members[str(name)][f"{prefix}{metric_name}"] = value
    if scores_of_members:
        scores["members"] = dict(scores_of_members)
    return scores


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


def _examples(task: Task, data: str, encoding: str) -> Iterator[Any]:
    if data == "-":
        # A stream cannot be sampled, so its encoding is not detected.
        given = UTF_8 if encoding == AUTO else encoding
        yield from _parse_lines(task, recoded(sys.stdin.buffer, given, _name(data)), data)
    elif not data.endswith(".txt"):
        yield from task.read(Path(data), labelled=False)
    elif isinstance(task, EntityRecognition) and has_columns(Path(data), encoding):
        # Data sets of named entities are often called .txt, too.
        yield from task.read(Path(data), labelled=False)
    else:
        check_file(Path(data))
        with open_text(Path(data), encoding) as file:
            yield from _parse_lines(task, file, data)


def _parse_lines(task: Task, file: BinaryIO, data: str) -> Iterator[Any]:
    for where, line in text_lines(file, _name(data)):
        yield task.parse_line(line, where)


def _name(data: str) -> str:
    return "standard input" if data == "-" else data


@contextmanager
def _open_output(output: str) -> Iterator[TextIO]:
    if output == "-":
        yield sys.stdout
        return
    # Written beside it and moved into place at the end: bad input leaves no half file.
    with write_file(output) as file:
        text = TextIOWrapper(file, encoding="utf-8", newline="")
        yield text
        text.detach()  # `write_file` closes the file


def _write(file: TextIO, answers: Iterable[Answer], suffix: str) -> int:
    """Write the answers in the form that `suffix` names, by default a tab-separated table, and
    return their number.
    """
    if suffix == ".json":
        return _write_json(file, answers)
    if suffix == ".jsonl":
        return _write_json_lines(file, answers)
    if suffix == ".csv":
        return _write_table(csv.writer(file, lineterminator="\n"), answers, _cell)
    # TSV is unquoted, as `finetune` reads it.
    writer = csv.writer(
        file, delimiter="\t", quoting=csv.QUOTE_NONE, quotechar=None, lineterminator="\n"
    )
    return _write_table(writer, answers, _tsv_cell)


def _write_json(file: TextIO, answers: Iterable[Answer]) -> int:
    listed = list(answers)
    json.dump(listed, file, ensure_ascii=False, indent=1)
    file.write("\n")
    return len(listed)


def _write_json_lines(file: TextIO, answers: Iterable[Answer]) -> int:
    num_answers = 0
    for answer in answers:
        num_answers += 1
        file.write(json.dumps(answer, ensure_ascii=False) + "\n")
    return num_answers


def _write_table(writer: Any, answers: Iterable[Answer], cell: Callable[[Any], Any]) -> int:
    """Write a header line and a line for each answer; each class's probability has a column."""
    num_answers = 0
    for answer in answers:
        num_answers += 1
        # In a table, a question's other answers would hide the best one; they are for JSON.
        values = {}
        for name, value in answer.items():
            if name not in ("n_best", "probabilities"):
                values[name] = value
        for name, share in answer.get("probabilities", {}).items():
            column = f"p({name})" if name in values else name  # a class may be called label
            values[column] = share
        if num_answers == 1:
            writer.writerow([cell(name) for name in values])
        writer.writerow([cell(value) for value in values.values()])
    return num_answers


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, ensure_ascii=False)
    return value


def _tsv_cell(value: Any) -> Any:
    value = _cell(value)
    if isinstance(value, str):
        return re.sub(r"[\t\r\n]", " ", value)
    return value
