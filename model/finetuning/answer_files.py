"""Write answers as a table, JSON Lines or JSON."""

import csv
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Any, TextIO

from ...pipeline.storage.directory import write_file
from ..tasks.head import Answer

SUFFIXES = (".tsv", ".csv", ".jsonl", ".json")


@contextmanager
def open_output(output: str) -> Iterator[TextIO]:
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
