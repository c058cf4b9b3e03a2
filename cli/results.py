"""Define the command ``clozeworks results``."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..pipeline.counters import in_words
from .output import is_detail, print_table

if TYPE_CHECKING:
    from ..model.finetuning.results import ResultLine


@click.command()
@click.argument("directory", type=click.Path(), metavar="DIR")
@click.option("--json", "as_json", is_flag=True, help="Print a list of JSON objects.")
def results(directory: str, as_json: bool) -> None:
    """Print all fine-tuning results below DIR, in percent; an rmse in the unit of the scores.

    Each output directory of `clozeworks finetune` has one line per metric: the learning rate of
    its best run, the median, best and spread (best minus worst) of the seeds at that rate, each at
    its best measurement, the median of their last ones, and how many of all runs are degenerate
    (within one standard error of a constant answer).
    """
    from ..model.finetuning.results import read_results

    lines = read_results(directory)
    if as_json:
        click.echo(json.dumps([asdict(line) for line in lines], indent=2))
    else:
        _print_table(lines)


def _print_table(lines: "list[ResultLine]") -> None:
    # Only the first metric has the number, and it may not be shown.
    degenerate = {
        line.directory: str(line.degenerate_runs)
        for line in lines
        if line.degenerate_runs is not None
    }
    rows = []
    shown_directory = ""  # of the row above
    for line in lines:
        if is_detail(line.metric):
            continue
        # The first row of a directory shows what its metrics share.
        is_first = line.directory != shown_directory
        shown_directory = line.directory
        row = (
            f"{line.task} {line.variant}".strip() if is_first else "",
            in_words(line.metric),
            f"{line.runs}" if line.finished else f"{line.runs} so far",
            f"{line.learning_rate:g}" if is_first else "",
            f"{line.seeds}",
            f"{line.median:.1f}",
            "" if line.last is None else f"{line.last:.1f}",
            f"{line.best:.1f}",
            f"{line.spread:.1f}",
            degenerate.pop(line.directory, ""),
            line.directory if is_first else "",
            Path(line.checkpoint).name if is_first else "",
        )
        rows.append(row)
    numbers = ("runs", "rate", "seeds", "median", "last", "best", "spread", "degen.")
    headings = ("task", "metric", *numbers, "directory", "checkpoint")
    # In a file or a pipe a row is a line, however long.
    width = None if sys.stdout.isatty() else 10_000
    print_table(headings, rows, numbers, width)
