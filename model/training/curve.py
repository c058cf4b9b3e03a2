"""The learning curve of a run, ``loss.png``, drawn from its ``metrics.csv``."""

import csv
import importlib.util
from pathlib import Path

CURVE = "loss.png"
DRAWN = {"mlm_loss": "masked-LM loss (nats)", "nsp_accuracy": "NSP accuracy"}


def can_draw() -> bool:
    """Return whether matplotlib is installed; the extra ``[train]`` brings it, but training does
    not need it.
    """
    return importlib.util.find_spec("matplotlib") is not None


def draw_curve(run: Path) -> None:
    """Draw losses and accuracies over the steps; does nothing without matplotlib, or before the
    first step.
    """
    with (run / "metrics.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    if not can_draw() or lines[-1]["step"] == "0":
        return
    from matplotlib.figure import Figure  # imported here because it takes a second

    columns = [column for column in DRAWN if any(line[column] for line in lines)]
    figure = Figure(figsize=(8, 3.2 * len(columns)), dpi=120, layout="constrained")
    for axes, column in zip(
        figure.subplots(len(columns), sharex=True, squeeze=False)[:, 0], columns, strict=True
    ):
        for split, name, style in (("train", "training", "-"), ("validation", "held out", "o-")):
            measured = [line for line in lines if line["split"] == split and line[column]]
            steps, values = (
                [kind(line[key]) for line in measured]
                for key, kind in (("step", int), (column, float))
            )
            axes.plot(steps, values, style, label=name, linewidth=1, markersize=3)
        axes.set(xlabel="step", ylabel=DRAWN[column])
        axes.grid(axis="y", alpha=0.3)
        axes.legend()
    partial = run / f"{CURVE}.partial"
    figure.savefig(partial, format="png")
    partial.replace(run / CURVE)
