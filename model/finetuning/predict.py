"""Predict with a fine-tuned model."""

import re
import sys
from collections.abc import Iterator, Sequence
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from ...pipeline.encodings import AUTO, UTF_8
from ...pipeline.errors import UserError
from ...pipeline.storage.directory import WORK, OutputDirectory, locked
from ...pipeline.text_streams import recoded
from ..mirror import local_copy
from ..tasks.batches import num_cut
from ..tasks.conll import has_columns
from ..tasks.head import Answer
from ..tasks.ner import EntityRecognition
from ..tasks.splits import split_of
from ..tasks.tables import check_file, open_text, text_lines
from ..tasks.task import Task, report_cut
from ..training.device import find_device
from .answer_files import SUFFIXES, open_output, write_answers
from .finetuned import Finetuned, load_finetuned

EXAMPLES_AT_ONCE = 8192


def predict(
    directory: str | Path,
    data: str | Path,
    output: str | Path,
    device: str = "auto",
    *,
    official: bool = False,
    task: Task | None = None,
    encoding: str = AUTO,
) -> int:
    """Write one prediction per example in `data`, in order, and return their number.

    `data` is a file in the task's format, or plain text (``.txt`` without tags, or ``-`` for
    standard input): one example per line, a tab between the texts of a pair. A prediction is the
    text, its answer and the probability of each class, or the score: tab-separated with a header
    line, or as ``.csv``, ``.jsonl`` or ``.json`` (one list); ``-`` is standard output. With
    `official`, `output` is a folder for the task's server or script. `task` is needed if `finetune`
    was given an object. Text that is not UTF-8 is read in `encoding`; it is detected by default.
    Raises `UserError` for bad input, and then writes nothing.
    """
    is_terminal = str(output) == "-"
    suffix = Path(output).suffix
    if not is_terminal and Path(output).resolve() == Path(data).resolve():
        raise UserError(f"`output` is DATA itself ({output}); give another file.")
    if official and is_terminal:
        raise UserError("`official` writes files; give a folder for them as `output`, not -.")
    if not official and not is_terminal and suffix not in SUFFIXES:
        raise UserError(
            f"`output` {output}: give a file that ends in {', '.join(SUFFIXES)}, "
            "or - for the terminal."
        )
    finetuned = load_finetuned(directory, find_device(device), task).reading(encoding)
    data = "-" if str(data) == "-" else str(local_copy(data))
    if official:
        return _predict_official(finetuned, data, str(output), encoding)
    answers = _answers(finetuned, _examples(finetuned.task, data, encoding), _name(data))
    with open_output(str(output)) as file:
        return write_answers(file, answers, suffix)


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
    write_answers(table, answers, ".tsv")
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
            yield task.prediction(example, answer)
    report_cut(task, where, num_examples_cut, num_examples)


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
