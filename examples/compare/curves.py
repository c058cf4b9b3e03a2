"""Held-out loss by tokens trained on, of several encoders: as CSV, and as a picture.

    python examples/compare/curves.py BERT=run-1 BERT=run-2 ModernBERT=run-3 --output curves.svg

Runs of one name are its seeds: the line is their mean. A file of the points is written beside the
picture, and can be given instead of runs.
"""

import csv
import json
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
from clozeworks.pipeline import UserError

# Readable on white and on black.
TEXT_COLOUR = "#808080"
COLOURS = ("#d95f02", "#1b9e77", "#7570b3", "#e7298a", "#66a61e")


@dataclass(frozen=True)
class Point:
    """What one encoder had learned after some of its training."""

    name: str
    """The kind of encoder."""
    seed: int
    tokens: int
    """Without padding."""
    loss: float
    """Held out: masked-LM loss in nats."""
    accuracy: float
    """Held out: share of the masked tokens."""


def read_run(name: str, seed: int, run: Path) -> list[Point]:
    """Return the evaluations of a finished run of `clozeworks pretrain`."""
    try:
        summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{run} is not a finished run: it has no summary.json.") from None
    tokens_per_step = summary["tokens"] / summary["step"]
    points = []
    with (run / "metrics.csv").open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            if line["split"] == "validation":
                tokens = round(int(line["step"]) * tokens_per_step)
                loss = float(line["mlm_loss"])
                points.append(Point(name, seed, tokens, loss, float(line["mlm_accuracy"])))
    return points


def write_points(path: Path, points: Sequence[Point]) -> None:
    """Write the points as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        names = [field.name for field in fields(Point)]
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        for point in points:
            rounded = {"loss": f"{point.loss:.4f}", "accuracy": f"{point.accuracy:.4f}"}
            writer.writerow(asdict(point) | rounded)


def read_points(path: Path) -> list[Point]:
    """Return the points that `write_points` wrote."""
    points = []
    with path.open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            point = Point(
                name=line["name"],
                seed=int(line["seed"]),
                tokens=int(line["tokens"]),
                loss=float(line["loss"]),
                accuracy=float(line["accuracy"]),
            )
            points.append(point)
    return points


def by_seed(points: Iterable[Point], name: str) -> list[list[Point]]:
    """Return the curves of a kind of encoder, one for each seed, from its first point to its
    last.
    """
    curves: dict[int, list[Point]] = {}
    for point in points:
        if point.name == name:
            curves.setdefault(point.seed, []).append(point)
    return [sorted(curve, key=lambda point: point.tokens) for curve in curves.values()]


def tokens_until(curve: Sequence[Point], loss: float) -> float | None:
    """Return after how many tokens a curve first is at `loss`, interpolated between two points;
    None if it never is. The first point is the earliest answer.
    """
    if curve[0].loss <= loss:
        return curve[0].tokens
    for before, after in pairwise(curve):
        if after.loss <= loss < before.loss:
            share = (before.loss - loss) / (before.loss - after.loss)
            return before.tokens + share * (after.tokens - before.tokens)
    return None


def draw(points: Sequence[Point]) -> bytes:
    """Return the curves as SVG: a line for the mean, and thin ones for the seeds."""
    # Imported here because it takes a second.
    import io

    import matplotlib
    from matplotlib.figure import Figure

    # Text stays text, and the same points give the same bytes.
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "curves", "text.color": TEXT_COLOUR}
    for name in ("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"):
        settings[name] = TEXT_COLOUR
    names = list(dict.fromkeys(point.name for point in points))
    image = io.BytesIO()
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(6, 3.2), layout="constrained")
        axes = figure.subplots()
        for name, colour in zip(names, COLOURS, strict=False):
            curves = by_seed(points, name)
            _draw_kind(axes, name, curves, colour)
        axes.set(xlabel="tokens trained on, millions", ylabel="held-out masked-LM loss, nats")
        axes.grid(axis="y", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside upper center", ncols=2, frameon=False)
        figure.savefig(image, format="svg", transparent=True, metadata={"Date": None})
    return image.getvalue()


def _draw_kind(axes, name: str, curves: Sequence[Sequence[Point]], colour: str) -> None:
    # The loss before the first update, the same for all, would flatten the rest.
    curves = [[point for point in curve if point.tokens] for curve in curves]
    for curve in curves:
        if len(curves) > 1:
            millions = [point.tokens / 1e6 for point in curve]
            losses = [point.loss for point in curve]
            axes.plot(millions, losses, color=colour, linewidth=0.6, alpha=0.5)
    # Seeds have their evaluations at the same steps.
    together = list(zip(*curves, strict=False))
    millions = [points[0].tokens / 1e6 for points in together]
    means = [statistics.mean(point.loss for point in points) for points in together]
    axes.plot(millions, means, color=colour, linewidth=2, label=name)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.argument("sources", nargs=-1, required=True, metavar="NAME=RUN... | CURVES.csv")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("curves.svg"),
    show_default=True,
    help="The picture; the points are written beside it, as .csv.",
)
def curves(sources: tuple[str, ...], output: Path) -> None:
    """Draw the held-out loss of runs of `clozeworks pretrain`; runs of one NAME are its seeds."""
    points: list[Point] = []
    num_runs: dict[str, int] = {}
    for source in sources:
        name, separator, run = source.partition("=")
        if not separator:
            points += read_points(Path(source))
            continue
        num_runs[name] = num_runs.get(name, 0) + 1
        points += read_run(name, num_runs[name], Path(run))
    output.write_bytes(draw(points))
    write_points(output.with_suffix(".csv"), points)
    click.echo(f"Wrote {output} and {output.with_suffix('.csv')}.")


def main() -> None:
    """Run the command; a user's mistake is one line."""
    try:
        curves()
    except UserError as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main()
