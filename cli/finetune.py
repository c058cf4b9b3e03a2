"""Define the command ``clozeworks finetune``."""

from typing import Any

import click

from ..model.finetuning.config import FinetuneConfig
from ..model.tasks.options import TaskOptions, check_task
from ..pipeline.counters import in_words
from .options import (
    GroupedCommand,
    checked_by,
    config_options,
    make_config,
    overwrite_option,
    path_option,
)
from .output import CommandSummary, figure, is_detail
from .process import StopOnSignal
from .progress import training_progress


def _known(ctx: click.Context, param: click.Parameter, task: str) -> str:
    # As it is parsed: without a task, click would say that DATA is missing.
    check_task(task, TaskOptions())
    return task


def _check(task: str, **values: object) -> None:
    config = make_config(FinetuneConfig, values)
    check_task(task, config)


@click.command(cls=GroupedCommand)
@click.argument("task", callback=_known)
@click.argument("data", type=click.Path())
@path_option("--checkpoint", "DIR", "Directory with the pre-trained encoder.")
@path_option("--output", "DIR", "Directory for the best model and the results.")
@overwrite_option
@checked_by(_check)
@config_options(FinetuneConfig)
def finetune(
    task: str, data: str, checkpoint: str, output: str, overwrite: bool, **values: object
) -> CommandSummary:
    """Fine-tune an encoder on a TASK and keep the best run; exit with 1 if all runs are within one
    standard error of a constant answer, unless --random-weights is given.

    TASK is a GLUE task (cola, sst2, mrpc, qqp, stsb, mnli, qnli, rte, wnli), squad, ner (entities),
    pos (any other tags of words), or classify for your own labelled data. DATA is a folder or file
    in the official format, with train, dev or test in the file names, or a data set from the Hub
    (hf:nyu-mll/glue:sst2). Predictions for the test files go to test/ in the output directory.
    """
    from ..model.finetuning.finetune import finetune as run_finetune

    config = make_config(FinetuneConfig, values)
    stop = StopOnSignal()
    with training_progress() as report:
        summary = run_finetune(
            task, data, checkpoint, output, config, report, overwrite=overwrite, stop=stop
        )
    if summary["status"] == "interrupted":
        raise click.Abort from stop.interrupt()  # `main` says how to resume
    is_useless = summary["degenerate_runs"] == summary["runs"] and not config.random_weights
    return CommandSummary("finetune", output, _rows(summary), exit_code=int(is_useless))


def _rows(summary: Any) -> list[tuple[str, str]]:
    from ..model.finetuning.results import Hyperparameters

    best = summary["best"]
    run = Hyperparameters(**{name: best[name] for name in Hyperparameters.__struct_fields__})
    examples = f"{summary['train_examples']:,} train, {summary['dev_examples']:,} dev"
    if summary["held_out"]:
        examples += ", held out from the training data"
    degenerate = f"{summary['degenerate_runs']:,} degenerate: as good as a constant answer"
    median = figure(summary["median"])
    lowest = figure(summary["lowest"])
    highest = figure(summary["highest"])
    rows = [
        ("task", summary["task"]),
        ("examples", examples),
        ("runs", f"{summary['runs']:,} ({degenerate})"),
        (f"dev {in_words(summary['metric'])}", f"median {median}, {lowest} to {highest}"),
        ("best run", f"{run.in_words}, after {best['step']:,} steps"),
    ]
    # What simpler answers reach stands in parentheses.
    baselines = {"a constant answer": summary["baseline"], "TF-IDF": summary["word_baseline"]}
    for name, score in best["scores"].items():
        if is_detail(name):
            continue
        simpler = [
            f"{figure(scores[name])} for {answer}"
            for answer, scores in baselines.items()
            if name in scores
        ]
        shown = f" ({', '.join(simpler)})" if simpler else ""
        rows.append((in_words(name), figure(score) + shown))
    rows.extend(_class_rows(summary["dev_classes"]))
    for name, value in best["tuned"].items():
        rows.append((f"{name}, tuned on dev", figure(value)))
    return rows


def _class_rows(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return a row for each class, or for the 20 with the most mistakes."""
    classes = report["classes"]
    missed = {name: its["count"] * (1 - its["recall"]) for name, its in classes.items()}
    shown_classes = list(classes)
    if len(classes) > 20:
        shown_classes = sorted(classes, key=lambda name: -missed[name])[:20]
    rows = []
    for name in shown_classes:
        figures = classes[name]
        metrics = ("precision", "recall", "f1")
        shown = ", ".join(f"{metric} {figure(figures[metric])}" for metric in metrics)
        text = f"{shown}, of {figures['count']:,}"
        if report["confusion"]:
            row = report["confusion"][list(classes).index(name)]
            counts = dict(zip(classes, row, strict=True))
            del counts[name]
            other = max(counts, key=lambda other: counts[other])
            if counts[other]:
                text += f"; {counts[other]:,} taken for {other}"
        rows.append((f"class {name}", text))
    if num_others := len(classes) - len(rows):
        rows.append((f"{num_others:,} other classes", "fewer mistakes; see summary.json"))
    return rows
