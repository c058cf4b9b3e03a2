"""Tables of results beside the paper's: Markdown, CSV and a picture.

A cell is the median of all runs (seeds of fine-tuning and of pre-training) at the learning rate
with the best median, with the lowest and the highest run.
"""

import csv
import io
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from figures import PERPLEXITY, Column, PaperTable
from matplotlib.figure import Figure


@dataclass(frozen=True)
class Cell:
    """One figure of a table, in percent (perplexities excepted)."""

    row: str
    column: str
    metric: str
    learning_rate: float | None
    """Of fine-tuning: the one with the best median, the lowest of several."""
    runs: int
    median: float
    lowest: float
    highest: float
    paper: float | None


def finetuned_cell(table: PaperTable, row: str, column: str, outputs: Sequence[Path]) -> Cell:
    """Return the cell of the runs in the `outputs` of `finetune`, one for each encoder."""
    runs: list[dict[str, str]] = []
    for output in outputs:
        with (output / "results.csv").open(newline="", encoding="utf-8") as file:
            runs.extend(csv.DictReader(file))
    if column in table.columns:
        metric = table.columns[column].metric
    else:
        # Task, variant, checkpoint, seed, rate, batch size and epochs come before the first metric.
        metric = list(runs[0])[7]

    by_rate: dict[float, list[float]] = {}
    for run in runs:
        # SQuAD's official script reports percent, all others report fractions.
        factor = 1 if run["task"] == "squad" else 100
        rate = float(run["learning_rate"])
        by_rate.setdefault(rate, []).append(factor * float(run[metric]))
    # One rate for all runs, as chosen by hand: the best of several per run would favour luck.
    best_rate = max(sorted(by_rate), key=lambda rate: statistics.median(by_rate[rate]))
    return _cell(table, row, column, metric, best_rate, by_rate[best_rate])


def perplexity_cell(table: PaperTable, row: str, perplexities: Sequence[float]) -> Cell:
    """Return the cell of the held-out perplexities of a row's encoders."""
    return _cell(table, row, PERPLEXITY, PERPLEXITY, None, perplexities)


def _cell(
    table: PaperTable,
    row: str,
    column: str,
    metric: str,
    rate: float | None,
    values: Sequence[float],
) -> Cell:
    # Rounded so that 0.28 does not become 28.000000000000004.
    return Cell(
        row=row,
        column=column,
        metric=metric,
        learning_rate=rate,
        runs=len(values),
        median=round(statistics.median(values), 6),
        lowest=round(min(values), 6),
        highest=round(max(values), 6),
        paper=table.figure(row, column),
    )


# Markdown and CSV
# --------------------------------------------------------------------------------------------------


def markdown(table: PaperTable, cells: Sequence[Cell]) -> str:
    """Return the table in Markdown: for each column the median [lowest, highest], and the paper's
    figure if it has one.
    """
    rows = _row_labels(table, cells)
    columns = _columns(table, cells)
    measured = {(cell.row, cell.column): cell for cell in cells}

    head = [""]
    alignment = ["---"]
    # A column of the paper's is two here: ours and, right of it, the paper's.
    for name, column in columns.items():
        head.append(column.label)
        alignment.append("---:")
        if name in table.columns:
            head.append("paper")
            alignment.append("---:")
    lines = [head, alignment]
    for row, label in rows.items():
        line = [label]
        for name in columns:
            cell = measured.get((row, name))
            line.append(_median_and_range(cell) if cell else "")
            if name in table.columns:
                figure = table.figure(row, name)
                line.append("" if figure is None else f"{figure:g}")
        lines.append(line)
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"# {table.title}\n\n{body}\n\n{_note(table, cells)}\n"


def _median_and_range(cell: Cell) -> str:
    if cell.runs == 1:
        return f"{cell.median:.1f}"
    return f"{cell.median:.1f} [{cell.lowest:.1f}, {cell.highest:.1f}]"


def _note(table: PaperTable, cells: Sequence[Cell]) -> str:
    numbers_of_runs = sorted({cell.runs for cell in cells})
    count = f"{numbers_of_runs[0]}"
    if len(numbers_of_runs) > 1:
        count += f" to {numbers_of_runs[-1]}"
    runs = "run" if count == "1" else "runs"
    unit = "in percent"
    if PERPLEXITY in table.columns:
        unit += ", perplexity aside"
    return (
        f"Median [lowest, highest] of {count} {runs}, {unit}. The paper's figures: {table.note}. "
        "Ranges that overlap show no order."
    )


def _row_labels(table: PaperTable, cells: Sequence[Cell]) -> dict[str, str]:
    """Return the labels of the rows: the paper's, then others."""
    labels = {name: row.label for name, row in table.rows.items()}
    for cell in cells:
        labels.setdefault(cell.row, cell.row)
    return labels


def _columns(table: PaperTable, cells: Sequence[Cell]) -> dict[str, Column]:
    """Return the columns: the paper's, then others in the order of their cells."""
    columns = dict(table.columns)
    for cell in cells:
        columns.setdefault(cell.column, Column(cell.column, cell.metric))
    return columns


def csv_text(cells: Sequence[Cell]) -> str:
    """Return a line per cell."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [each.name for each in fields(Cell)], lineterminator="\n")
    writer.writeheader()
    for cell in cells:
        writer.writerow(asdict(cell))
    return text.getvalue()


# Pictures
# --------------------------------------------------------------------------------------------------


def draw_table(table: PaperTable, cells: Sequence[Cell]) -> Figure:
    """Return a picture with a panel for each column that has a cell, and a line for each row."""
    rows = _row_labels(table, cells)
    measured = {cell.column for cell in cells}
    columns = {}
    for name, column in _columns(table, cells).items():
        if name in measured:
            columns[name] = column
    # The first row at the top.
    heights = {row: -index for index, row in enumerate(rows)}
    size = (2.5 + 2.4 * len(columns), 1.6 + 0.32 * len(rows))
    figure = Figure(figsize=size, dpi=120, layout="constrained")
    panels = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    for axes, (name, column) in zip(panels, columns.items(), strict=True):
        in_column = [cell for cell in cells if cell.column == name]
        axes.errorbar(
            [cell.median for cell in in_column],
            [heights[cell.row] for cell in in_column],
            xerr=_ranges(in_column),
            fmt="o",
            label="here",
            capsize=3,
        )
        papers_rows = [row for row in rows if table.figure(row, name) is not None]
        if papers_rows:
            axes.plot(
                [table.figure(row, name) for row in papers_rows],
                [heights[row] for row in papers_rows],
                "D",
                fillstyle="none",
                label="paper",
            )
        axes.set(
            title=column.label,
            yticks=list(heights.values()),
            yticklabels=list(rows.values()),
        )
        axes.grid(axis="x", alpha=0.3)
    panels[0].legend()
    figure.suptitle(table.title)
    return figure


def draw_curves(table: PaperTable, cells: Sequence[Cell]) -> Figure:
    """Return a picture with a curve for each row; columns are numbers of steps."""
    figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
    axes: Any = figure.subplots()
    for row, label in _row_labels(table, cells).items():
        in_row = [cell for cell in cells if cell.row == row]
        axes.errorbar(
            [int(cell.column) for cell in in_row],
            [cell.median for cell in in_row],
            yerr=_ranges(in_row),
            label=label,
            capsize=3,
        )
    axes.set(xlabel="steps of pre-training", ylabel=f"{cells[0].metric}, in percent")
    axes.legend()
    figure.suptitle(table.title)
    return figure


def _ranges(cells: Sequence[Cell]) -> list[list[float]]:
    """Return how far the lowest and the highest run are from the medians."""
    below = [cell.median - cell.lowest for cell in cells]
    above = [cell.highest - cell.median for cell in cells]
    return [below, above]


def write_table(table: PaperTable, cells: Sequence[Cell], figure: Figure, path: Path) -> None:
    """Write the table as ``.md``, ``.csv`` and ``.png`` files named after `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".md").write_text(markdown(table, cells), encoding="utf-8")
    path.with_suffix(".csv").write_text(csv_text(cells), encoding="utf-8")
    figure.savefig(path.with_suffix(".png"))
