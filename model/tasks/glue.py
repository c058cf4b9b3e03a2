"""The tasks of GLUE (arXiv 1804.07461): columns and labels of the official TSV files, and the
official metrics.

The second name of a column is the one in the data set ``nyu-mll/glue`` (Parquet, or exported as CSV
or JSON Lines); classes have its names and numbers. The server expects a table of ``index`` and
``prediction``, the class's index for some tasks and its name for others.
"""

from typing import Any

from .classification import Classification

# Task, columns of the text, of the second text and of the label, metrics, files for the server, and
# classes.
_TABLE = """
cola|sentence           |                    |label       |matthews   |CoLA          |unacceptable,acceptable
sst2|sentence           |                    |label       |accuracy   |SST-2         |negative,positive
mrpc|#1 String,sentence1|#2 String,sentence2 |Quality     |f1,accuracy|MRPC          |not_equivalent,equivalent
qqp |question1          |question2           |is_duplicate|f1,accuracy|QQP           |not_duplicate,duplicate
stsb|sentence1          |sentence2           |score       |           |STS-B         |
mnli|sentence1,premise|sentence2,hypothesis|gold_label|accuracy   |MNLI-m,MNLI-mm,AX|entailment,neutral,contradiction
qnli|question           |sentence            |label       |accuracy   |QNLI          |entailment,not_entailment
rte |sentence1          |sentence2           |label       |accuracy   |RTE           |entailment,not_entailment
wnli|sentence1          |sentence2           |label       |accuracy   |WNLI          |not_entailment,entailment
"""
_MORE: dict[str, dict[str, Any]] = {
    "cola": {"headerless": ("source", "label", "star", "sentence")},
    "qqp": {"max_short_share": 0.001},
    "stsb": {"metrics": ("spearman", "pearson")},
    **{name: {"server_words": True} for name in ("mnli", "qnli", "rte")},
}

SERVER_SPLITS = ("test", "test_mismatched", "diagnostic")
"""The last is AX, which a model of MNLI answers."""


def _task(line: str) -> Classification:
    cells = (tuple(filter(None, cell.strip().split(","))) for cell in line.split("|"))
    (name,), text, text_pair, label, metrics, files, labels = cells
    settings: dict[str, Any] = {
        "text": text,
        "text_pair": text_pair,
        "metrics": metrics,
        "labels": labels,
    }
    settings |= _MORE.get(name, {})
    server_files = {split: f"{file}.tsv" for split, file in zip(SERVER_SPLITS, files, strict=False)}
    label = tuple(dict.fromkeys([*label, "label"]))
    return Classification(name=name, label=label, server_files=server_files, **settings)


GLUE = {task.name: task for task in map(_task, _TABLE.strip().splitlines())}
