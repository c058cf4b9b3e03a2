"""Define the command ``clozeworks results``."""

import csv
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..pipeline.wording import in_words, without_formula
from .output import is_detail, make_console

if TYPE_CHECKING:
    from ..model.finetuning.results import ResultLine

NUMBER_COLUMNS = ("runs", "rate", "seeds", "median", "last", "best", "spread", "degen.")
COLUMNS = ("task", "metric", *NUMBER_COLUMNS, "directory", "checkpoint")


@click.command()
@click.argument("directory", type=click.Path(), metavar="DIR")
@click.option("--json", "as_json", is_flag=True, help="Print a list of JSON objects.")
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")
def results(directory: str, as_json: bool, as_csv: bool) -> None:
    """Print all fine-tuning results below DIR, in percent.

    Each output directory of `clozeworks finetune` has one line per metric: the learning rate of
    its best run, the median, best and spread (best minus worst) of the seeds at that rate, each at
    its best measurement, the median of their last ones, and how many of all runs are degenerate
    (within one standard error of a constant answer).
    """
    if as_json and as_csv:
        raise click.UsageError("Give either --json or --csv, not both.")
    from ..model.finetuning.results import read_results

    lines = read_results(directory)
    if as_json:
        click.echo(json.dumps([asdict(line) for line in lines], indent=2))
    elif as_csv:
        _print_csv(lines)
    else:
        _print_table(lines)


def _print_csv(lines: "list[ResultLine]") -> None:
    records = [asdict(line) for line in lines]
    columns: list[str] = []
    if records:
        columns = list(records[0])
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
    writer.writeheader()
    for record in records:
        for name, value in record.items():
            if isinstance(value, str):
                record[name] = without_formula(value)
        writer.writerow(record)


def _print_table(lines: "list[ResultLine]") -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, collapse_padding=True, header_style="bold")
    for name in COLUMNS:
        if name in NUMBER_COLUMNS:
            table.add_column(name, justify="right", no_wrap=True)
        else:
            table.add_column(name, overflow="fold")
    # Only the first metric has the number, and it may not be shown.
    degenerate = {}
    for line in lines:
        if line.degenerate_runs is not None:
            degenerate[line.directory] = str(line.degenerate_runs)
    shown_directory = ""  # of the row above
    for line in lines:
        if is_detail(line.metric):
            continue
        # The first row of a directory shows what its metrics share.
        is_first = line.directory != shown_directory
        cells = {
            "task": f"{line.task} {line.variant}".strip() if is_first else "",
            "metric": in_words(line.metric),
            "runs": f"{line.runs}" if line.finished else f"{line.runs} so far",
            "rate": f"{line.learning_rate:g}" if is_first else "",
            "seeds": f"{line.seeds}",
            "median": f"{line.median:.1f}",
            "last": "" if line.last is None else f"{line.last:.1f}",
            "best": f"{line.best:.1f}",
            "spread": f"{line.spread:.1f}",
            "degen.": degenerate.pop(line.directory, ""),
            "directory": line.directory if is_first else "",
            "checkpoint": Path(line.checkpoint).name if is_first else "",
        }
        table.add_row(*(cells[name] for name in COLUMNS))
        shown_directory = line.directory
    # In a file or a pipe a row is a line, however long.
    width = None
    if not sys.stdout.isatty():
        width = 10_000
    make_console(width=width).print(table)
