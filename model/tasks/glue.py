"""The tasks of GLUE (arXiv 1804.07461): columns and labels of the official TSV files, and the official metrics.

The second name of a column is the one in the data set ``nyu-mll/glue`` (Parquet, or exported as CSV or JSON Lines);
classes have its names and numbers. The server expects a table of ``index`` and ``prediction``, the class's index for
some tasks and its name for others.
"""

from typing import Any

from .classification import Classification

# Task, columns of the text, of the second text and of the label, classes, and metrics.
_TABLE = """
cola|sentence           |                    |label            |unacceptable,acceptable         |matthews
sst2|sentence           |                    |label            |negative,positive               |accuracy
mrpc|#1 String,sentence1|#2 String,sentence2 |Quality,label    |not_equivalent,equivalent       |f1,accuracy
qqp |question1          |question2           |is_duplicate,label|not_duplicate,duplicate        |f1,accuracy
stsb|sentence1          |sentence2           |score,label      |                                |spearman,pearson
mnli|sentence1,premise  |sentence2,hypothesis|gold_label,label |entailment,neutral,contradiction|accuracy
qnli|question           |sentence            |label            |entailment,not_entailment       |accuracy
rte |sentence1          |sentence2           |label            |entailment,not_entailment       |accuracy
wnli|sentence1          |sentence2           |label            |not_entailment,entailment       |accuracy
"""
_SERVER_FILES = {
    "cola": {"test": "CoLA.tsv"},
    "sst2": {"test": "SST-2.tsv"},
    "mrpc": {"test": "MRPC.tsv"},
    "qqp": {"test": "QQP.tsv"},
    "stsb": {"test": "STS-B.tsv"},
    "mnli": {"test": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv"},
    "qnli": {"test": "QNLI.tsv"},
    "rte": {"test": "RTE.tsv"},
    "wnli": {"test": "WNLI.tsv"},
}
_MORE: dict[str, dict[str, Any]] = {
    "cola": {"headerless": ("source", "label", "star", "sentence")},
    "qqp": {"max_short_share": 0.001},
    **{name: {"server_words": True} for name in ("mnli", "qnli", "rte")},
}


def _task(line: str) -> Classification:
    (name,), *cells = (tuple(filter(None, cell.strip().split(","))) for cell in line.split("|"))
    columns = dict(zip(("text", "text_pair", "label", "labels", "metrics"), cells, strict=True))
    return Classification(name=name, server_files=_SERVER_FILES[name], **columns, **_MORE.get(name, {}))


GLUE = {task.name: task for task in map(_task, _TABLE.strip().splitlines())}
