"""The results of the recipes in ``examples/paper`` as the paper's tables: Markdown, CSV and a
picture.

A cell is the median of all runs in ``ROW/.../COLUMN/results.csv`` (seeds of fine-tuning and of
pre-training), at the learning rate with the best median, with the lowest and the highest run.
"""

import csv
import io
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from ...pipeline.errors import UserError
from ...pipeline.storage.directory import write_file
from .paper import PERPLEXITY, TABLES, Column, PaperTable
from .results import IN_PERCENT, RESULTS, SUMMARY, read_runs, results_folder


class Cell(NamedTuple):
    """One figure of a table, in percent (perplexities excepted)."""

    row: str
    column: str
    metric: str
    learning_rate: float | None
    """Of fine-tuning: that with the best median, the lowest of several."""
    runs: int
    median: float
    lowest: float
    highest: float
    paper: float | None


class _Pretrained(msgspec.Struct):
    """The part of the ``summary.json`` of `pretrain` that is read."""

    final: dict[str, float]


def read_cells(folder: str | Path, name: str) -> list[Cell]:
    """Return the cells of the table `name` that have results below `folder`; raises `UserError` if
    there are none.
    """
    root, table = results_folder(folder, RESULTS, SUMMARY), TABLES[name]
    found: dict[tuple[str, str, str], dict[float, list[float]]] = {}
    for file in sorted(root.rglob(RESULTS)):
        parts = file.relative_to(root).parts
        if len(parts) < 3:
            continue
        for run, scores in read_runs(file):
            metric = (
                table.columns[parts[-2]].metric
                if parts[-2] in table.columns
                else next(iter(scores))
            )
            if metric not in scores:
                raise UserError(
                    f"{file} has no {metric}, which table {name} shows; it has {', '.join(scores)}."
                )
            value = scores[metric] * (1 if run.task in IN_PERCENT else 100)
            found.setdefault((parts[0], parts[-2], metric), {}).setdefault(
                run.learning_rate, []
            ).append(value)
    if name == "figure5":
        found = {key: rates for key, rates in found.items() if key[1].isdecimal()}
    if not found:
        command = f"clozeworks run {_recipe(name)} --output {folder}"
        raise UserError(f"{folder} contains no ROW/COLUMN/{RESULTS}; `{command}` writes them.")
    cells = []
    for key, rates in found.items():
        best = max(sorted(rates), key=lambda rate: statistics.median(rates[rate]))
        cells.append(_cell(*key, best, rates[best], table))
    if PERPLEXITY in table.columns:
        rows = dict.fromkeys(row for row, _, _ in found)
        cells += [
            _cell(row, PERPLEXITY, PERPLEXITY, None, values, table)
            for row in rows
            if (values := _perplexities(root / row))
        ]
    return cells


def _recipe(name: str) -> str:
    names = {"1": "paper/glue", "figure5": "paper/figure5", "starts": "compare/recipe"}
    return f"examples/{names.get(name, f'paper/table{name}')}.toml"


def _perplexities(row: Path) -> list[float]:
    """Return the held-out perplexities of the encoders below the folder of a row."""
    perplexities = []
    for file in sorted(row.rglob(SUMMARY)):
        try:
            final = msgspec.json.decode(file.read_bytes(), type=_Pretrained).final
        except msgspec.DecodeError:  # of `finetune`
            continue
        perplexities.append(final[PERPLEXITY])
    return perplexities


def _cell(
    row: str,
    column: str,
    metric: str,
    rate: float | None,
    values: Sequence[float],
    table: PaperTable,
) -> Cell:
    # Rounded so that 0.28 does not become 28.000000000000004.
    median, lowest, highest = (
        round(value, 6) for value in (statistics.median(values), min(values), max(values))
    )
    return Cell(
        row, column, metric, rate, len(values), median, lowest, highest, table.value(row, column)
    )


def markdown(cells: Sequence[Cell], name: str) -> str:
    """Return the table in Markdown: for each column the median [lowest, highest], and the paper's
    figure.
    """
    table, rows, columns = TABLES[name], _rows(cells, name), _columns(cells, name)
    by_name = {(cell.row, cell.column): cell for cell in cells}
    has_paper = any(row.values for row in table.rows.values())
    if not has_paper:
        columns = {
            name: column
            for name, column in columns.items()
            if any(cell.column == name for cell in cells)
        }
    head = [
        text
        for column in columns.values()
        for text in (column.label, *(["paper"] if has_paper else []))
    ]
    lines = [["", *head], ["---", *("---:" for _ in head)]]
    for row, row_label in rows.items():
        line = [row_label]
        for column in columns:
            line.append(_shown(by_name.get((row, column))))
            if has_paper:
                line.append(_number(table.value(row, column)))
        lines.append(line)
    runs = sorted({cell.runs for cell in cells})
    counted = f"{runs[0]}" if len(runs) == 1 else f"{runs[0]} to {runs[-1]}"
    count = f"{counted} run{'s' if counted != '1' else ''}"
    aside = ", perplexity aside" if PERPLEXITY in columns else ""
    note = f"Median [lowest, highest] of {count}, in percent{aside}."
    if table.note:
        note += f" The paper's figures: {table.note}."
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"# {table.title}\n\n{body}\n\n{note}\n"


def _shown(cell: Cell | None) -> str:
    if cell is None:
        return ""
    if cell.runs == 1:
        return f"{cell.median:.1f}"
    return f"{cell.median:.1f} [{cell.lowest:.1f}, {cell.highest:.1f}]"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _rows(cells: Sequence[Cell], name: str) -> dict[str, str]:
    """Return the labels of the rows: the paper's, then others."""
    return {row: paper.label for row, paper in TABLES[name].rows.items()} | {
        cell.row: cell.row for cell in cells if cell.row not in TABLES[name].rows
    }


def _columns(cells: Sequence[Cell], name: str) -> dict[str, Column]:
    """Return the columns: the paper's, then others; steps by their number."""
    known = TABLES[name].columns
    others = {
        cell.column: Column(cell.column, cell.metric) for cell in cells if cell.column not in known
    }
    order = sorted(others, key=lambda column: (int(column) if column.isdecimal() else 0, column))
    return known | {column: others[column] for column in order}


def as_csv(cells: Sequence[Cell]) -> str:
    """Return a line per cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Cell._fields)
    writer.writerows(cells)
    return text.getvalue()


def draw(cells: Sequence[Cell], name: str) -> bytes | None:
    """Return a PNG: a panel for each column, or the curves of figure 5; None without matplotlib."""
    # Imported here because it takes a second.
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    rows, columns = _rows(cells, name), _columns(cells, name)
    measured = {
        column: label.label
        for column, label in columns.items()
        if any(c.column == column for c in cells)
    }
    is_curve = name == "figure5"
    width = 7 if is_curve else 2.5 + 2.4 * len(measured)
    figure = Figure(
        figsize=(width, 1.6 + (2.4 if is_curve else 0.32 * len(rows))),
        dpi=120,
        layout="constrained",
    )
    if is_curve:
        axes = figure.subplots()
        for row, label in rows.items():
            own = sorted((int(cell.column), cell) for cell in cells if cell.row == row)
            axes.errorbar(
                [step for step, _ in own],
                *_medians([cell for _, cell in own]),
                label=label,
                capsize=3,
            )
        axes.set(xlabel="steps of pre-training", ylabel=f"{cells[0].metric}, in percent")
        axes.legend()
    else:
        heights = {row: -index for index, row in enumerate(rows)}
        for axes, column in zip(
            figure.subplots(1, len(measured), sharey=True, squeeze=False)[0], measured, strict=True
        ):
            own = [cell for cell in cells if cell.column == column]
            medians, ranges = _medians(own)
            axes.errorbar(
                medians,
                [heights[cell.row] for cell in own],
                xerr=ranges,
                fmt="o",
                label="here",
                capsize=3,
            )
            paper = {
                row: value for row in rows if (value := TABLES[name].value(row, column)) is not None
            }
            if paper:
                axes.plot(
                    list(paper.values()),
                    [heights[row] for row in paper],
                    "D",
                    fillstyle="none",
                    label="paper",
                )
            axes.set(
                title=measured[column],
                yticks=list(heights.values()),
                yticklabels=list(rows.values()),
            )
            axes.grid(axis="x", alpha=0.3)
        figure.axes[0].legend()
    figure.suptitle(TABLES[name].title)
    image = io.BytesIO()
    figure.savefig(image, format="png")
    return image.getvalue()


def _medians(cells: Sequence[Cell]) -> tuple[list[float], list[list[float]]]:
    """Return the medians, and how far the lowest and the highest run are from them."""
    below, above = (
        [cell.median - cell.lowest for cell in cells],
        [cell.highest - cell.median for cell in cells],
    )
    return [cell.median for cell in cells], [below, above]


def write_table(cells: Sequence[Cell], name: str, output: str) -> list[str]:
    """Write ``output.md``, ``.csv`` and, with matplotlib, ``.png``, and return their names."""
    contents = {
        ".md": markdown(cells, name).encode(),
        ".csv": as_csv(cells).encode(),
        ".png": draw(cells, name),
    }
    files = {
        f"{output}{suffix}": content for suffix, content in contents.items() if content is not None
    }
    for path, content in files.items():
        with write_file(path) as file:
            file.write(content)
    return list(files)
