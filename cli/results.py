"""``clozeworks results``."""

import csv
import json
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ..model.finetuning.results import Figure, ResultLine

# Of SQuAD 2.0, what the paper does not have; --json and --csv show it.
DETAIL = re.compile(r"(HasAns|NoAns|best)_|.*_at_tau_0")
COLUMNS = (
    *("task", "metric", "runs", "median", "best", "spread", "degen.", "base ", "large "),
    *("directory", "checkpoint"),
)


@click.command()
@click.argument("directory", metavar="DIR")
@click.option("--json", "as_json", is_flag=True, help="Print a list of JSON objects.")
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")
def results(directory: str, as_json: bool, as_csv: bool) -> None:
    """Print the results of all fine-tuning below DIR, in percent, beside the figures of BERT's paper.

    Each output directory of `clozeworks finetune` has a line for each metric: the median, the best and the spread (best
    minus worst) of its runs, and how many of them are degenerate (no better than always the same answer).
    """
    from ..model.finetuning.results import as_record, read_results

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


def _print_table(lines: "list[ResultLine]") -> None:
    # It is known of the first metric, which may not be shown.
    degenerate = {line.directory: str(line.degenerate_runs) for line in lines if line.degenerate_runs is not None}
    rows: list[Sequence[str]] = [COLUMNS]
    before = ""
    for line in lines:
        if not DETAIL.match(line.metric):
            rows.append(_cells(line, degenerate.pop(line.directory, ""), is_first=line.directory != before))
            before = line.directory
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    header, *table = aligned(rows, width)
    click.secho(header, bold=True)
    click.echo("\n".join([*table, "In percent; BERT's figures are those of its paper, on dev or (*) on test."]))


def _cells(line: "ResultLine", degenerate: str, is_first: bool) -> tuple[str, ...]:
    """Return what stands in a row; what is the same for all metrics of a directory, in its first row alone."""
    names = (f"{line.task} {line.variant}".strip(), line.directory, Path(line.checkpoint).name)
    task, *where = names if is_first else ("", "", "")
    runs = f"{line.runs}{'' if line.finished else ' so far'}"
    values = (f"{value:.1f}" for value in (line.median, line.best, line.spread))
    return task, line.metric.replace("_", " "), runs, *values, degenerate, *map(_figure, line.paper), *where


def aligned(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Return the lines of a table with `COLUMNS`, of which the first is the header; None is any width.

    Where they would be wider than `width`, task, directory and checkpoint stand in a line of their own instead.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if width is None or sum(widths) + 2 * len(widths) - 2 <= width:
        return [_joined(row, widths, {0, 1, 9, 10}) for row in rows]
    lines, inner = [], [widths[1] + 2, *widths[2:9]]
    for row in rows:
        task, metric, *values, directory, checkpoint = row
        if task and lines:
            lines.append(f"{task}: {directory}, from {checkpoint}")
        lines.append(_joined([f"  {metric}", *values], inner, {0}))
    return lines


def _joined(cells: Sequence[str], widths: Sequence[int], left: set[int]) -> str:
    """Return the cells side by side, those at `left` beginning together, the others ending together."""
    padded = (
        cell.ljust(width) if place in left else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join(padded).rstrip()


def _figure(figure: "Figure | None") -> str:
    return "" if figure is None else f"{figure.value:.1f}{'*' if figure.split == 'test' else ' '}"
