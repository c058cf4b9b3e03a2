"""``clozeworks results``."""

import csv
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .summary import CommandSummary

if TYPE_CHECKING:
    from ..model.finetuning.results import Figure, ResultLine

# SQuAD 2.0 has many figures that the paper does not report; --json and --csv show them.
DETAIL = re.compile(r"(HasAns|NoAns|best)_|.*_at_tau_0")
TEXT_COLUMNS = ("task", "metric", "directory", "checkpoint")
NUMBER_COLUMNS = ("runs", "median", "best", "spread", "degen.", "base ", "large ")


@click.command()
@click.argument("directory", type=click.Path(), metavar="DIR")
@click.option("--json", "as_json", is_flag=True, help="Print a list of JSON objects.")
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")
@click.option(
    "--table",
    type=click.Choice(["1", "5", "6", "7", "8", "figure5", "starts"]),
    help="Print this table of the paper, or its Figure 5, from the runs of a recipe in examples/paper; starts is the "
    "table of examples/compare.",
)
@click.option(
    "--output",
    type=click.Path(),
    metavar="NAME",
    help="With --table, write NAME.md, NAME.csv and NAME.png too.",
)
@click.option(
    "--server-zip",
    type=click.Path(),
    metavar="FILE",
    help="Write the predictions below DIR for GLUE's server into this zip.",
)
def results(
    directory: str,
    as_json: bool,
    as_csv: bool,
    table: str | None,
    output: str | None,
    server_zip: str | None,
) -> CommandSummary | None:
    """Print all fine-tuning results below DIR, in percent, beside the BERT paper's figures.

    Each output directory of `clozeworks finetune` has one line per metric: the median, best and
    spread (best minus worst) of its runs, and how many of them are degenerate (no better than a
    constant answer).
    """
    if as_json and as_csv:
        raise click.UsageError("Give either --json or --csv, not both.")
    if server_zip and (as_json or as_csv or table or output):
        raise click.UsageError("--server-zip cannot be combined with other options.")
    if server_zip:
        return _write_server_zip(directory, server_zip)
    if table:
        return _print_paper_table(directory, table, output, as_json=as_json, as_csv=as_csv)
    if output:
        raise click.UsageError("--output needs --table.")
    from ..model.finetuning.results import as_record, read_results

    lines = read_results(directory)
    records = [as_record(line) for line in lines]
    if as_json:
        click.echo(json.dumps(records, indent=2))
    elif as_csv:
        writer = csv.DictWriter(
            sys.stdout, list(records[0]) if records else [], lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(records)
    else:
        _print_table(lines)
    return None


def _write_server_zip(directory: str, server_zip: str) -> CommandSummary:
    from ..model.finetuning.server_zip import NAMES, write_server_zip

    missing = write_server_zip(directory, server_zip)
    rows = [("files", f"{len(NAMES) - len(missing)} of {len(NAMES)}")]
    return CommandSummary(
        "results", server_zip, rows + ([("missing", ", ".join(missing))] if missing else [])
    )


def _print_paper_table(
    directory: str, table: str, output: str | None, *, as_json: bool, as_csv: bool
) -> CommandSummary | None:
    from ..model.finetuning.paper_tables import as_csv as csv_of
    from ..model.finetuning.paper_tables import markdown, read_cells, write_table

    cells = read_cells(directory, table)
    if as_json:
        click.echo(json.dumps([cell._asdict() for cell in cells], indent=2))
    else:
        click.echo(csv_of(cells) if as_csv else markdown(cells, table), nl=False)
    if not output:
        return None
    written = write_table(cells, table, output)
    if as_json or as_csv:
        return None
    return CommandSummary("results", output, [("written", ", ".join(written))])


def _print_table(lines: "list[ResultLine]") -> None:
    from rich.console import Console
    from rich.table import Table

    task, metric, *where = TEXT_COLUMNS
    table = Table(box=None, pad_edge=False, collapse_padding=True, header_style="bold")
    for name in (task, metric, *NUMBER_COLUMNS, *where):
        is_number = name in NUMBER_COLUMNS
        table.add_column(
            name, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold"
        )
    # Only the first metric has the number, and it may not be shown.
    degenerate = {
        line.directory: str(line.degenerate_runs)
        for line in lines
        if line.degenerate_runs is not None
    }
    before = ""
    for line in lines:
        if not DETAIL.match(line.metric):
            table.add_row(
                *_cells(line, degenerate.pop(line.directory, ""), is_first=line.directory != before)
            )
            before = line.directory
    # In a file or a pipe a row is a line, however long.
    Console(markup=False, emoji=False, width=None if sys.stdout.isatty() else 10_000).print(table)
    click.echo(
        "In percent; BERT's figures are the paper's, on dev or (*) on test of its own data (for ner CoNLL-2003)."
    )


def _cells(line: "ResultLine", degenerate: str, is_first: bool) -> tuple[str, ...]:
    """Return a row of the table; what all metrics of a directory share is shown in its first row
    only.
    """
    names = (f"{line.task} {line.variant}".strip(), line.directory, Path(line.checkpoint).name)
    task, *where = names if is_first else ("", "", "")
    runs = f"{line.runs}{'' if line.finished else ' so far'}"
    values = (f"{value:.1f}" for value in (line.median, line.best, line.spread))
    return (
        task,
        line.metric.replace("_", " "),
        runs,
        *values,
        degenerate,
        *map(_figure, line.paper),
        *where,
    )


def _figure(figure: "Figure | None") -> str:
    return "" if figure is None else f"{figure.value:.1f}{'*' if figure.split == 'test' else ' '}"
