"""The learning curve of a run, ``loss.png``, drawn from its ``metrics.csv``."""

import csv
import importlib.util
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CURVE = "loss.png"
TRAIN, VALIDATION, CHANCE, INK = "#8fb8de", "#b3261e", "#9a9a9a", "#333333"
SMOOTHED_OVER = 0.02
"""Share of the lines of the log that the training curve is averaged over."""
Points = tuple[list[int], list[float]]


def can_draw() -> bool:
    """Tell whether matplotlib is there, which the extra ``[train]`` brings, but training does not need."""
    return importlib.util.find_spec("matplotlib") is not None


def draw_curve(run: Path) -> None:
    """Draw losses and accuracies over the steps; does nothing where there is no matplotlib, or less than two points."""
    lines = read_metrics(run)
    if not can_draw() or lines[-1]["step"] == "0":
        return
    # Imported here: it takes a second. The figure knows its own backend, so none is chosen for the whole process.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    has_labels = any(line["nsp_accuracy"] for line in lines)
    figure = Figure(figsize=(8, 6.4 if has_labels else 4.6), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    top, *rest = figure.subplots(
        2 if has_labels else 1, sharex=True, height_ratios=[5, 2][: 1 + has_labels], squeeze=False
    )
    _draw_losses(top[0], lines)
    for row in rest:
        _draw_accuracies(row[0], lines)
    (rest[-1] if rest else top)[0].set_xlabel("step")
    partial = run / f"{CURVE}.partial"
    figure.savefig(partial, format="png")
    partial.replace(run / CURVE)


def read_metrics(run: Path) -> list[dict[str, str]]:
    """Return the lines of a run's ``metrics.csv``; what was not measured is empty."""
    with (run / "metrics.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def points(lines: list[dict[str, str]], split: str, column: str) -> Points:
    """Return steps and values of a column on one split, where it was measured."""
    chosen = [line for line in lines if line["split"] == split and line[column]]
    return [int(line["step"]) for line in chosen], [float(line[column]) for line in chosen]


def smooth(values: list[float], weight: float) -> list[float]:
    """Return the running mean of `values`, each new one counting with `weight`; unbiased from the first on.

    >>> smooth([4.0, 4.0, 4.0], 0.1)
    [4.0, 4.0, 4.0]
    """
    smoothed, total, count = [], 0.0, 0.0
    for value in values:
        total, count = (1 - weight) * total + weight * value, (1 - weight) * count + weight
        smoothed.append(total / count)
    return smoothed


def _draw_losses(axes: "Axes", lines: list[dict[str, str]]) -> None:
    _draw(axes, lines, "mlm_loss", "{:.3f}")
    axes.set_ylabel("masked-LM loss (nats)")
    axes.set_title(_title(lines), loc="left", fontsize=11, color=INK)
    perplexity = axes.secondary_yaxis("right")
    low, high = axes.get_ylim()
    ticks = [p for e in range(5) for p in (10**e, 2 * 10**e, 5 * 10**e) if low <= math.log(p) <= high]
    perplexity.set_yticks([math.log(tick) for tick in ticks], [f"{tick:,}" for tick in ticks])
    perplexity.set_ylabel("perplexity", color=INK)
    perplexity.tick_params(length=0, colors=INK)
    perplexity.spines["right"].set_visible(False)
    axes.legend(frameon=False, loc="upper right", labelcolor=INK)


def _draw_accuracies(axes: "Axes", lines: list[dict[str, str]]) -> None:
    axes.axhline(0.5, color=CHANCE, linewidth=0.8, linestyle=":")
    _draw(axes, lines, "nsp_accuracy", "{:.1%}")
    axes.set_ylabel("NSP accuracy")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")


def _draw(axes: "Axes", lines: list[dict[str, str]], column: str, form: str) -> None:
    style: dict[str, Any] = {"solid_capstyle": "round", "solid_joinstyle": "round"}
    steps, values = points(lines, "train", column)
    weight = 1 / max(1.0, SMOOTHED_OVER * len(values))
    axes.plot(steps, values, color=TRAIN, alpha=0.45, linewidth=0.8, **style)
    axes.plot(steps, smooth(values, weight), color=TRAIN, linewidth=1.8, label="training", **style)
    steps, values = points(lines, "validation", column)
    axes.plot(steps, values, color=VALIDATION, linewidth=1.6, marker="o", markersize=3, label="held out", **style)
    axes.annotate(
        form.format(values[-1]),
        (steps[-1], values[-1]),
        xytext=(0, 7),
        textcoords="offset points",
        ha="right",
        color=VALIDATION,
    )
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0.01)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.tick_params(length=0, colors=INK)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _title(lines: list[dict[str, str]]) -> str:
    steps, losses = points(lines, "validation", "mlm_loss")
    best = min(range(len(losses)), key=losses.__getitem__)
    return f"{steps[-1]:,} steps; lowest held-out loss {losses[best]:.3f} at step {steps[best]:,}"
