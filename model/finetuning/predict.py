"""Predict with a fine-tuned model, and measure it on labelled files."""

import csv
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from io import StringIO, TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import torch

from ...pipeline import storage
from ...pipeline.errors import UserError
from ...pipeline.storage.directory import WORK, OutputDirectory, locked, write_file
from ...pipeline.storage.stage import MANIFEST
from ..checkpoint import load_weights, read_config
from ..mirror import local_copy
from ..tasks.catalogue import TASKS, read_task
from ..tasks.conll import has_columns
from ..tasks.ner import EntityRecognition
from ..tasks.splits import dev_sets, find_splits, read_labelled, single_file, split_of
from ..tasks.squad import Squad
from ..tasks.squad_metrics import Metric
from ..tasks.tables import check_file, text_lines
from ..tasks.task import Answer, Feature, Task, TaskModel, make_batch, num_cut, report_cut
from ..tokenizer import TextTokenizer, check_fit
from ..training.device import autocast, find_device, product_dtype, trim_memory

TASK = "task.json"
PREDICTION_SUFFIXES = (".tsv", ".csv", ".jsonl", ".json")
TOKENS_PER_BATCH = 8192
ROWS_PER_BATCH = 256
EXAMPLES_AT_ONCE = 8192


class Finetuned(NamedTuple):
    """A fine-tuned model with its task and tokenizer."""

    task: Task
    tokenizer: TextTokenizer
    model: TaskModel


def load_finetuned(directory: str | Path, device: torch.device) -> Finetuned:
    """Load the model that `finetune` wrote; raises `UserError` if `directory` holds none."""
    path = local_copy(directory) / TASK
    if not path.is_file():
        raise UserError(
            f"{directory} contains no fine-tuned model: {TASK} is missing. Run clozeworks finetune first."
        )
    task, config = read_task(path), read_config(directory)
    tokenizer, model = TextTokenizer(directory), task.model(config)
    check_fit(tokenizer, config, task.max_length, directory)
    load_weights(model, directory)
    return Finetuned(task, tokenizer, model.to(device).eval())


@torch.inference_mode()
def infer(model: TaskModel, features: Sequence[Feature]) -> list[np.ndarray]:
    """Return the head's outputs for each feature, float32, in order, without dropout.

    The precision is the device's default, so that thresholds tuned on dev hold for `predict` and
    `evaluate`.
    """
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    order = sorted(range(len(features)), key=lambda index: features[index].length)
    outputs: list[np.ndarray] = [np.empty(0)] * len(features)
    start = number = 0
    while start < len(order):
        # Features are sorted by length, so the first is only a lower bound of the batch's longest:
        # the size is a guess.
        first = features[order[start]]
        size = min(ROWS_PER_BATCH, TOKENS_PER_BATCH // (first.length * len(first.rows)) + 1)
        chosen = order[start : start + size]
        batch = make_batch([features[index] for index in chosen]).to(device)
        with autocast(device, product_dtype("auto", device)):
            # Calling `forward` bypasses torch.compile, which would compile again for these shapes.
            values = model.forward(batch)
        for index, value in zip(chosen, values.float().cpu().numpy(), strict=True):
            # Copied to free the memory of the padded batch.
            outputs[index] = value[: features[index].length].copy() if model.per_token else value
        trim_memory(device, number)
        start, number = start + size, number + 1
    model.train(was_training)
    return outputs


def predict(
    directory: str | Path,
    data: str | Path,
    output: str | Path,
    device: str = "auto",
    *,
    official: bool = False,
) -> int:
    """Write one prediction per example in `data`, in order, and return their number.

    `data` is a file in the task's format, or plain text (``.txt`` without tags, or ``-`` for
    standard input): one example per line, a tab between the texts of a pair. A prediction is the
    answer and the probability of each class, or the score: tab-separated with a header line, or as
    ``.csv``, ``.jsonl`` or ``.json`` (one list); ``-`` is standard output. With `official`,
    `output` is a folder for the task's server or script. Raises `UserError` for bad input, and then
    writes nothing.
    """
    if str(output) != "-" and Path(output).resolve() == Path(data).resolve():
        raise UserError(f"--output is DATA itself ({output}); give another file.")
    if official and str(output) == "-":
        raise UserError("--official writes files; give a folder for them as --output, not -.")
    suffix = Path(output).suffix
    if not official and str(output) != "-" and suffix not in PREDICTION_SUFFIXES:
        raise UserError(
            f"--output {output}: give a file that ends in {', '.join(PREDICTION_SUFFIXES)}, or - for the terminal."
        )
    finetuned = load_finetuned(directory, find_device(device))
    data = "-" if str(data) == "-" else str(local_copy(data))
    if official:
        return _predict_official(finetuned, data, str(output))
    answers = _answers(finetuned, _examples(finetuned.task, data), _name(data))
    with _open_output(str(output)) as file:
        return _write(file, answers, suffix)


def _predict_official(finetuned: Finetuned, data: str, output: str) -> int:
    examples = list(_examples(finetuned.task, data))
    answers = list(_answers(finetuned, iter(examples), _name(data)))
    # GLUE's diagnostic set is a file of its own; on the Hub it is the test split of ax.
    name = Path(data).name.lower()
    is_diagnostic = "diagnostic" in name or "ax" in re.split("[^a-z]+", name)
    split = "diagnostic" if is_diagnostic else split_of(Path(data)) or "test"
    files = finetuned.task.official(answers, examples, split)
    if not files:
        raise UserError(
            f"{finetuned.task.name} has no official format for {data}; leave out --official."
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
    examples = [example for file in files for example in finetuned.task.read(file, labelled=False)]
    answers = list(_answers(finetuned, iter(examples), split))
    table = StringIO(newline="")
    _write(table, answers, ".tsv")
    return finetuned.task.official(answers, examples, split) or {
        f"{split}.tsv": table.getvalue().encode()
    }


def _answers(finetuned: Finetuned, examples: Iterator[Any], where: str) -> Iterator[Answer]:
    cut = total = 0
    while chunk := list(islice(examples, EXAMPLES_AT_ONCE)):
        features = finetuned.task.encode(chunk, finetuned.tokenizer)
        cut, total = cut + num_cut(features), total + len(chunk)
        yield from finetuned.task.answers(infer(finetuned.model, features), features, chunk)
    report_cut(finetuned.task, where, cut, total)


def evaluate_task(
    directory: str | Path, data: str | Path, device: str = "auto", metric: Metric | None = None
) -> dict[str, Any]:
    """Return the number of examples and the official metrics on a labelled file, or on the dev
    files in a folder.

    Metrics of MNLI's second dev set start with ``mismatched_``. `metric` replaces the one that a
    model for SQuAD was tuned with. Raises `UserError` for bad input.
    """
    finetuned = load_finetuned(directory, find_device(device))
    if metric:
        if not isinstance(finetuned.task, Squad):
            raise UserError(
                f"--metric is for squad, but {directory} is a model for {finetuned.task.name}."
            )
        finetuned = finetuned._replace(task=replace(finetuned.task, metric=metric))
    if storage.exists(storage.join(str(data), MANIFEST)):
        raise UserError(
            f"{data} holds pre-training data, but {directory} is fine-tuned for {finetuned.task.name}: "
            "give labelled examples."
        )
    data, suffixes = local_copy(data), TASKS[finetuned.task.name].suffixes
    if single := single_file(data, suffixes):
        files = {"": [single]}
    elif not (files := dev_sets(find_splits(data, suffixes))):
        raise UserError(
            f"{data} contains no file with dev or validation in its name; give the file itself."
        )
    scores: dict[str, Any] = {}
    for prefix, paths in files.items():
        examples = read_labelled(finetuned.task, paths)
        features = finetuned.task.encode(examples, finetuned.tokenizer)
        report_cut(finetuned.task, ", ".join(map(str, paths)), num_cut(features), len(examples))
        measured = finetuned.task.scores(infer(finetuned.model, features), features, examples)
        scores[f"{prefix}examples"] = len(examples)
        scores |= {f"{prefix}{name}": value for name, value in measured.items()}
    return scores


def _examples(task: Task, data: str) -> Iterator[Any]:
    is_text = data == "-" or data.endswith(".txt")
    if not is_text or (
        data != "-" and isinstance(task, EntityRecognition) and has_columns(Path(data))
    ):
        yield from task.read(Path(data), labelled=False)
        return
    if data != "-":
        check_file(Path(data))
    with nullcontext(sys.stdin.buffer) if data == "-" else open(data, "rb") as file:
        for where, line in text_lines(file, _name(data)):
            yield task.parse_line(line, where)


def _name(data: str) -> str:
    return "standard input" if data == "-" else data


@contextmanager
def _open_output(output: str) -> Iterator[TextIO]:
    if output == "-":
        yield sys.stdout
        return
    with write_file(output) as file:
        text = TextIOWrapper(file, encoding="utf-8", newline="")
        yield text
        text.detach()  # `write_file` closes the file


def _write(file: TextIO, answers: Iterable[Answer], suffix: str) -> int:
    """Write the answers in the form that `suffix` names, by default a tab-separated table, and
    return their number.
    """
    if suffix == ".json":
        listed = list(answers)
        json.dump(listed, file, ensure_ascii=False, indent=1)
        file.write("\n")
        return len(listed)
    # TSV is unquoted, as `finetune` reads it.
    unquoted: dict[str, Any] = {"delimiter": "\t", "quoting": csv.QUOTE_NONE, "quotechar": None}
    writer = csv.writer(file, lineterminator="\n", **({} if suffix == ".csv" else unquoted))
    cell = _cell if suffix == ".csv" else _tsv_cell
    num_answers = 0
    for num_answers, answer in enumerate(answers, 1):
        if suffix == ".jsonl":
            file.write(json.dumps(answer, ensure_ascii=False) + "\n")
            continue
        # In a table, a question's other answers would hide the best one; they are for JSON.
        values = {
            name: value for name, value in answer.items() if name not in ("n_best", "probabilities")
        }
        classes = answer.get("probabilities", {})
        values |= {
            f"p({name})" if name in values else name: share for name, share in classes.items()
        }
        if num_answers == 1:
            writer.writerow(map(cell, values))
        writer.writerow(map(cell, values.values()))
    return num_answers


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.6g}"
    return (
        json.dumps(value, ensure_ascii=False) if isinstance(value, list | tuple | dict) else value
    )


def _tsv_cell(value: Any) -> Any:
    value = _cell(value)
    return re.sub(r"[\t\r\n]", " ", value) if isinstance(value, str) else value
