"""Use a fine-tuned model: predict with it, or measure it on labelled files."""

import csv
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO, TextIOWrapper
from itertools import chain, islice, repeat, starmap
from pathlib import Path
from typing import Any, TextIO

from ...pipeline import storage
from ...pipeline.counters import wilson_interval
from ...pipeline.errors import UserError
from ...pipeline.storage.directory import WORK, OutputDirectory, locked, write_file
from ...pipeline.storage.state import MANIFEST
from ..checkpoint import files_digest
from ..config import BASELINE
from ..copies import local_copy
from ..notices import print_notice
from ..tasks.batches import num_cut
from ..tasks.classify import Classification
from ..tasks.conll import has_columns
from ..tasks.example_tables import is_hub, lines_of, listed, read_rows, shown, text_lines
from ..tasks.ner import EntityRecognition, WordTagging
from ..tasks.splits import dev_sets, find_splits, read_labelled, single_file, split_of
from ..tasks.task import Answer, ExampleT, Task, prefixed, report_cut
from ..training.device import find_device
from .model import Finetuned, find_model, infer, load_finetuned
from .results import read_summary, without_formula

SUFFIXES = (".tsv", ".csv", ".jsonl")
EXAMPLES_AT_ONCE = 8192


def predict(
    directory: str | Path,
    data: str | Path,
    output: str | Path,
    device: str = "auto",
    *,
    official: bool = False,
    columns: str | None = None,
    text: str | None = None,
    task: Task | None = None,
) -> int:
    """Write one prediction per example in `data`, in order, and return their number.

    `data` is a file in the task's format, or plain text (``.txt`` without tags, or ``-`` for
    standard input): one example per line, a tab between the texts of a pair. A prediction is the
    text, its answer and probabilities, tab-separated with a header line, or as ``.csv`` or
    ``.jsonl``; ``-`` is standard output. A table's ``id`` is kept, in ``.jsonl`` all its columns;
    `columns`, such as ``id,label=Sentiment``, are the only ones to write, and their names. `text`
    names the table's columns of texts. With `official`, `output` is a folder for the task's server
    or script. `task` is needed if `finetune` was given an object. Raises `UserError` for bad input,
    and then writes nothing.
    """
    is_terminal = str(output) == "-"
    suffix = Path(output).suffix.lower()
    if not is_terminal and Path(output).resolve() == Path(data).resolve():
        raise UserError(f"`output` is DATA itself ({output}); give another file.")
    if official and is_terminal:
        raise UserError("`official` writes files; give a folder for them as `output`, not -.")
    if not official and not is_terminal and suffix not in SUFFIXES:
        raise UserError(
            f"`output` {output}: give a file that ends in {', '.join(SUFFIXES)}, "
            "or - for the terminal."
        )
    finetuned = load_finetuned(directory, find_device(device), task)
    data = "-" if str(data) == "-" else str(local_copy(data))
    if text:
        task = _with_text(finetuned.task, text.split(","), Path(data))
        finetuned = finetuned._replace(task=task)
    task = finetuned.task
    answered = _answered(finetuned, _examples(task, data), _name(data))
    if official:
        return _write_official(task, list(answered), data, str(output))
    # For each prediction its row, without which there are as many empty ones as are asked for.
    has_rows = _is_table(task, Path(data))
    rows: Iterator[dict[str, Any]] = repeat({})
    if has_rows:
        glue = getattr(task, "glue", None)
        headerless = glue.headerless if glue else ()
        rows = (row.values for row in read_rows(Path(data), headerless))
    predictions = _with_columns(
        zip(starmap(task.prediction, answered), rows, strict=has_rows),
        columns.split(",") if columns else [],
        ids=["id", getattr(task, "id_column", None)],
        has_all=suffix == ".jsonl",
    )
    with _open_output(str(output)) as file:
        return write_answers(file, predictions, suffix)


def _with_text(task: Task[Any], columns: Sequence[str], path: Path) -> Task[Any]:
    """Return the task with the names of the columns of its texts in a table."""
    if not isinstance(task, Classification) or not _is_table(task, path):
        raise UserError(f"`text` names columns of a table for classify or GLUE, not of {path}.")
    if len(columns) != 1 + bool(task.text_pair):
        number = "two columns, of a pair" if task.text_pair else "one column"
        raise UserError(f"`text` is {','.join(columns)}; the model reads {number}.")
    return replace(task, text=tuple(columns[:1]), text_pair=tuple(columns[1:]))


def _is_table(task: Task[Any], path: Path) -> bool:
    return bool(task.tables) and (is_hub(path) or path.suffix.lower() in task.tables)


def _with_columns(
    predictions: Iterable[tuple[Answer, dict[str, Any]]],
    columns: Sequence[str],
    ids: Sequence[str | None],
    has_all: bool,
) -> Iterator[Answer]:
    """Yield predictions with the columns of their rows that are kept; only `columns`, if any."""
    kept_ids: list[str] | None = None  # those of the first row, so that a table stays one
    for prediction, row in predictions:
        # pandas writes gaps as NaN, which is not JSON.
        values = {name: None if value != value else value for name, value in row.items()}
        if kept_ids is None:
            kept_ids = [name for name in values if name in ids]
        if columns:
            named = values | prediction.get("probabilities", {}) | prediction
            written: dict[str, Any] = {}
            for column in columns:
                source, _, name = column.partition("=")
                if column in named:  # a name may have an equals sign
                    source = name = column
                if source not in named:
                    raise UserError(f"There is no column {shown(source)}, only {listed(named)}.")
                if name in written:
                    raise UserError(f"`columns` names {shown(name)} twice.")
                written[name or source] = named[source]
            yield written
        elif has_all:
            yield values | prediction
        else:
            kept = {name: values.get(name) for name in kept_ids} | prediction
            # In a table, a question's other answers would hide the best one; they are for JSON.
            kept.pop("n_best", None)
            yield kept


def _write_official(
    task: Task[ExampleT], answered: Sequence[tuple[ExampleT, Answer]], data: str, output: str
) -> int:
    # GLUE's diagnostic set is a file of its own; on the Hub it is the test split of ax.
    name = Path(data).name.lower()
    if "diagnostic" in name or "ax" in re.split("[^a-z]+", name):
        split = "diagnostic"
    else:
        split = split_of(Path(data)) or "test"
    files = task.official(*_apart(answered), split)
    if not files:
        raise UserError(f"{task.name} has no official format for {data}; leave out `official`.")
    directory = OutputDirectory(output)
    with locked(output):
        for name, content in files.items():
            directory.write_bytes(name, content)
        directory.remove(WORK)
    return len(answered)


def _apart(answered: Sequence[tuple[ExampleT, Answer]]) -> tuple[list[Answer], list[ExampleT]]:
    return [answer for _, answer in answered], [example for example, _ in answered]


def predict_files(finetuned: Finetuned, files: Sequence[Path], split: str) -> dict[str, bytes]:
    """Return predictions for the files of a `split`: the official ones, or ``SPLIT.tsv``."""
    task = finetuned.task
    examples = chain.from_iterable(task.read(file, labelled=False) for file in files)
    answered = list(_answered(finetuned, examples, split))
    official_files = task.official(*_apart(answered), split)
    if official_files:
        return official_files
    table = StringIO(newline="")
    write_answers(table, starmap(task.prediction, answered), ".tsv")
    return {f"{split}.tsv": table.getvalue().encode()}


def _answered(
    finetuned: Finetuned, examples: Iterator[ExampleT], where: str
) -> Iterator[tuple[ExampleT, Answer]]:
    """Yield each example with the model's answer."""
    task: Task[ExampleT] = finetuned.task
    num_examples = 0
    num_examples_cut = 0
    # Not all at once: a file to predict may be larger than memory.
    while chunk := list(islice(examples, EXAMPLES_AT_ONCE)):
        features = task.encode(chunk, finetuned.tokenizer)
        num_examples += len(chunk)
        num_examples_cut += num_cut(features)
        outputs = infer(finetuned.model, features, finetuned.inference)
        yield from zip(chunk, task.answers(outputs, features, chunk), strict=True)
    report_cut(task, where, num_examples_cut, num_examples)


def _examples(task: Task[ExampleT], data: str) -> Iterator[ExampleT]:
    if data == "-":
        for where, line in text_lines(sys.stdin.buffer, _name(data)):
            yield task.parse_line(line, where)
        return
    path = Path(data)
    # Data sets of named entities are often called .txt, too.
    has_entities = issubclass(type(task), EntityRecognition)
    if path.suffix.lower() != ".txt" or (has_entities and has_columns(path)):
        yield from task.read(path, labelled=False)
        return
    for where, line in lines_of(path):
        yield task.parse_line(line, where)


def _name(data: str) -> str:
    return "standard input" if data == "-" else data


@contextmanager
def _open_output(output: str) -> Iterator[TextIO]:
    """Open a file to write text, or standard output for ``-``."""
    if output == "-":
        yield sys.stdout
        return
    # Written beside it and moved into place at the end: bad input leaves no half file.
    with write_file(output) as file:
        text = TextIOWrapper(file, encoding="utf-8", newline="")
        yield text
        text.detach()  # `write_file` closes the file


def write_answers(file: TextIO, answers: Iterable[Answer], suffix: str) -> int:
    """Write the answers, by default as a tab-separated table, and return their number."""
    writer = csv.writer(file, lineterminator="\n")

    def write_row(values: Iterable[object]) -> None:
        cells = [_cell(value, suffix) for value in values]
        if suffix == ".csv":
            writer.writerow(cells)
        else:
            # TSV is unquoted, as `finetune` reads it.
            file.write("\t".join(cells) + "\n")

    num_answers = 0
    for answer in answers:
        num_answers += 1
        if suffix == ".jsonl":
            file.write(json.dumps(answer, ensure_ascii=False, default=str) + "\n")
            continue
        values = dict(answer)
        # With `columns`, a table's own column may have this name.
        if isinstance(values.get("probabilities"), dict):
            for name, share in values.pop("probabilities").items():
                column = f"p({name})" if name in values else name  # a class may be called label
                values[column] = share
        if num_answers == 1:
            write_row(values)
        write_row(values.values())
    return num_answers


def _cell(value: object, suffix: str) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple | dict):
        value = json.dumps(value, ensure_ascii=False, default=str)
    if not isinstance(value, str):
        return "" if value is None else str(value)
    if suffix == ".csv":
        return without_formula(value)
    return re.sub(r"[\t\r\n]", " ", value)


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
