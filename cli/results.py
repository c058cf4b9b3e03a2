"""``clozeworks results``."""

import csv
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ..model.results import Figure, Line

# Of SQuAD 2.0, what the paper does not have; --json and --csv show it.
DETAIL = re.compile(r"(HasAns|NoAns|best)_|.*_at_tau_0")


@click.command()
@click.argument("directory", metavar="DIR")
@click.option("--json", "as_json", is_flag=True, help="Print a list of JSON objects.")
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")
def results(directory: str, as_json: bool, as_csv: bool) -> None:
    """Print the results of all fine-tuning below DIR, in percent, beside the figures of BERT's paper.

    Each output directory of `clozeworks finetune` has a line for each metric: the median, the best and the spread (best
    minus worst) of its runs, and how many of them are degenerate (no better than always the same answer).
    """
    from ..model.results import as_record, read_results

    if as_json and as_csv:
        raise click.UsageError("--json and --csv are two forms; choose one.")
    lines = read_results(directory)
    records = [as_record(line) for line in lines]
    if as_json:
        click.echo(json.dumps(records, indent=2))
    elif as_csv:
        writer = csv.DictWriter(sys.stdout, list(records[0]) if records else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
    else:
        _print_table(lines)


def _print_table(lines: "list[Line]") -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    caption = "In percent; BERT's figures are those of its paper, on dev or (*) on test."
    table = Table(box=None, pad_edge=False, header_style="bold", caption=caption, caption_justify="left")
    for name in ("task", "metric"):
        table.add_column(name, no_wrap=True)
    for name in ("runs", "median", "best", "spread", "degen.", "base", "large"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("directory", "checkpoint"):
        table.add_column(name, overflow="fold")
    degenerate = {line.directory: str(line.degenerate_runs) for line in lines if line.degenerate_runs is not None}
    before = ""
    for line in lines:
        if DETAIL.match(line.metric):
            continue
        task, checkpoint = f"{line.task} {line.variant}".strip(), Path(line.checkpoint).name
        names = (task, line.directory, checkpoint) if line.directory != before else ("", "", "")
        task, *where = map(escape, names)
        runs = f"{line.runs}{'' if line.finished else ' so far'}"
        values = (f"{value:.1f}" for value in (line.median, line.best, line.spread))
        metric = escape(line.metric.replace("_", " "))
        table.add_row(
            task, metric, runs, *values, degenerate.pop(line.directory, ""), *map(_figure, line.paper), *where
        )
        before = line.directory
    # What is kept in a file has no edge to be folded at.
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def _figure(figure: "Figure | None") -> str:
    return "" if figure is None else f"{figure.value:.1f}{'*' if figure.split == 'test' else ' '}"
