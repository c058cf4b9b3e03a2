"""Draw the learning curve of a run, ``loss.png``, from its ``metrics.csv``."""

import csv
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CURVE = "loss.png"
DRAWN = {"mlm_loss": "masked-LM loss (nats)", "nsp_accuracy": "NSP accuracy"}
SPLITS = (("train", "training", "-"), ("validation", "held out", "o-"))
"""The splits in ``metrics.csv``, with their names and line styles in the legend."""


def can_draw() -> bool:
    """Return whether matplotlib is installed: the extra ``[train]`` has it, but training works
    without.
    """
    return importlib.util.find_spec("matplotlib") is not None


def _draw_column(axes: "Axes", column: str, lines: Sequence[Mapping[str, str]]) -> None:
    for split, name, style in SPLITS:
        steps = []
        values = []
        for line in lines:
            if line["split"] == split and line[column]:
                steps.append(int(line["step"]))
                values.append(float(line[column]))
        axes.plot(steps, values, style, label=name, linewidth=1, markersize=3)
    axes.set(xlabel="step", ylabel=DRAWN[column])
    axes.grid(axis="y", alpha=0.3)
    axes.legend()


def draw_curve(run: Path) -> None:
    """Draw losses and accuracies over the steps; does nothing without matplotlib, or before the
    first step.
    """
    with (run / "metrics.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    if not can_draw() or lines[-1]["step"] == "0":
        return
    # Imported here because it takes a second. Not pyplot: this runs in a thread beside training,
    # and pyplot keeps its figures in a global list that is not made for threads.
    from matplotlib.figure import Figure

    # A run without next sentences has no values for them, and gets one plot.
    columns = []
    for column in DRAWN:
        if any(line[column] for line in lines):
            columns.append(column)
    height = 3.2 * len(columns)
    figure = Figure(figsize=(8, height), dpi=120, layout="constrained")
    rows_of_plots = figure.subplots(len(columns), sharex=True, squeeze=False)
    for axes, column in zip(rows_of_plots[:, 0], columns, strict=True):
        _draw_column(axes, column, lines)
    # Another name first: somebody may be looking at the picture.
    partial = run / f"{CURVE}.partial"
    figure.savefig(partial, format="png")
    partial.replace(run / CURVE)
