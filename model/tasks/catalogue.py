"""Look tasks up by their names on the command line, and restore them from ``task.json``.

The table has those of GLUE (arXiv 1804.07461): columns and labels of the official TSV files, and
the official metrics.

The second name of a column is the one in the data set ``nyu-mll/glue`` (Parquet, or exported as CSV
or JSON Lines); classes have its names and numbers. The server expects a table of ``index`` and
``prediction``, the class's index for some tasks and its name for others.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec

from ...pipeline.errors import UserError
from ...pipeline.parsing import convert_values, parse_json
from .classify import Classification, GlueForm
from .ner import EntityRecognition, WordClasses
from .options import Size
from .squad import Squad
from .task import Task

_TASKS = (
    Classification(
        name="cola",
        text=("sentence",),
        labels=("unacceptable", "acceptable"),
        glue=GlueForm(
            metrics=("matthews",),
            headerless=("source", "label", "star", "sentence"),
            server_files={"test": "CoLA.tsv"},
        ),
    ),
    Classification(
        name="sst2",
        text=("sentence",),
        labels=("negative", "positive"),
        glue=GlueForm(server_files={"test": "SST-2.tsv"}),
    ),
    Classification(
        name="mrpc",
        text=("#1 String", "sentence1"),
        text_pair=("#2 String", "sentence2"),
        label=("Quality", "label"),
        labels=("not_equivalent", "equivalent"),
        glue=GlueForm(metrics=("f1", "accuracy"), server_files={"test": "MRPC.tsv"}),
    ),
    Classification(
        name="qqp",
        text=("question1",),
        text_pair=("question2",),
        label=("is_duplicate", "label"),
        labels=("not_duplicate", "duplicate"),
        glue=GlueForm(metrics=("f1", "accuracy"), server_files={"test": "QQP.tsv"}),
    ),
    Classification(
        name="stsb",
        text=("sentence1",),
        text_pair=("sentence2",),
        label=("score", "label"),
        glue=GlueForm(
            metrics=("spearman", "pearson", "rmse", "r2"), server_files={"test": "STS-B.tsv"}
        ),
    ),
    Classification(
        name="mnli",
        text=("sentence1", "premise"),
        text_pair=("sentence2", "hypothesis"),
        label=("gold_label", "label"),
        labels=("entailment", "neutral", "contradiction"),
        glue=GlueForm(
            # The diagnostic set (AX) is answered by a model of MNLI.
            server_files={
                "test": "MNLI-m.tsv",
                "test_mismatched": "MNLI-mm.tsv",
                "diagnostic": "AX.tsv",
            },
            server_words=True,
        ),
    ),
    Classification(
        name="qnli",
        text=("question",),
        text_pair=("sentence",),
        labels=("entailment", "not_entailment"),
        glue=GlueForm(server_files={"test": "QNLI.tsv"}, server_words=True),
    ),
    Classification(
        name="rte",
        text=("sentence1",),
        text_pair=("sentence2",),
        labels=("entailment", "not_entailment"),
        glue=GlueForm(server_files={"test": "RTE.tsv"}, server_words=True),
    ),
    Classification(
        name="wnli",
        text=("sentence1",),
        text_pair=("sentence2",),
        labels=("not_entailment", "entailment"),
        glue=GlueForm(server_files={"test": "WNLI.tsv"}),
    ),
)
GLUE = {task.name: task for task in _TASKS}

KINDS: dict[str, type[Task]] = {
    **dict.fromkeys(GLUE, Classification),
    "classify": Classification,
    "squad": Squad,
    "ner": EntityRecognition,
    "pos": WordClasses,
}


def restore_task(settings: dict[str, Any]) -> Task:
    """Recreate a task from its `Task.settings`."""
    name = settings["task"]
    if name in GLUE:
        # task.json has only the settings of a user's own table, not metrics and file names.
        return replace(GLUE[name], max_length=msgspec.convert(settings["max_length"], Size))
    return convert_values({**settings, "name": name}, KINDS[name])


def task_settings(task: Task) -> dict[str, Any]:
    """Return the content of ``task.json``: the settings, and the class of a user's own task."""
    if type(task) is KINDS.get(task.name):
        return task.settings()
    return {**task.settings(), "class": type(task).__name__}


def read_task(path: Path, given: Task | None = None) -> Task:
    """Return the task in a ``task.json``.

    A task of the user's own must be `given`; what was tuned on dev is then taken from the file.
    Raises `UserError` if the file is damaged, and if `given` is not the task that was fine-tuned.
    """
    settings = parse_json(path.read_bytes(), dict[str, Any], path, "Fine-tune again.")
    if given is None:
        if "class" in settings:
            raise UserError(
                f"{path.parent} was fine-tuned as {settings['class']}, a task of your own; "
                "give that object as `task` in Python."
            )
        try:
            return restore_task(settings)
        except (ValueError, KeyError, TypeError):
            raise UserError(
                f"{path} is damaged or belongs to another task. Fine-tune again."
            ) from None
    # As JSON gives them back: tuples are lists.
    expected = json.loads(json.dumps(task_settings(given)))
    for name in sorted({*expected, *settings}.difference(given.tuned_settings)):
        if expected.get(name) != settings.get(name):
            raise UserError(
                f"{path.parent} was fine-tuned with {name} {settings.get(name)!r}, "
                f"but `task` has {expected.get(name)!r}."
            )
    tuned = {name: settings[name] for name in given.tuned_settings if name in settings}
    return replace(cast(Any, given), **tuned)
