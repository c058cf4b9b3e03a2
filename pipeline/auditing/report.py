"""Render an audit as one self-contained HTML page, with figures as SVG by matplotlib.

Text in the figures takes the colour of the page, which follows the reader's light or dark theme.
"""

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .decode import Instance, label_names
from .verdict import Audit, Check

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The axis of the plot. An area beyond it is drawn at the edge; its figure stands beside it.
AUC_RANGE = (0.3, 0.7)
COLOURS = {"a": "#3b82d6", "b": "#d9622b", "ok": "#3b82d6", "bad": "#d03050"}
INK = "#123456"  # stands for the colour of the page's text


def render_report(name: str, audit: Audit, examples: Sequence[Instance]) -> str:
    """Return the page for the audit of the directory `name`, with `examples` of its rows."""
    from jinja2 import Environment, StrictUndefined
    from matplotlib import rc_context

    labels = label_names(audit.config["pairing"])
    figures = {}
    inked = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    style: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": "report",  # the same bytes in each run
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        **dict.fromkeys(inked, INK),
    }
    with rc_context(style):
        if audit.config["pairing"] == "none":
            row_lengths = {"rows": np.sum(audit.lengths, axis=0).tolist()}
        else:
            row_lengths = dict(zip(labels, audit.lengths, strict=True))
        figures["Rows by length in tokens"] = _histograms(row_lengths)
        figures["Masks by position in the row"] = _histograms({"masks": audit.mask_positions})
        if audit.config["pairing"] != "none":
            segments = dict(zip("AB", audit.segment_lengths, strict=True))
            figures["Segments by length in tokens"] = _histograms(segments)
            areas = [each for each in audit.checks if each.name.startswith("AUC")]
            figures["What gives the label away (AUC; 0.5 is chance)"] = _areas(areas)
    template = Path(__file__).with_name("report.html").read_text(encoding="utf-8")
    environment = Environment(
        undefined=StrictUndefined, autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(template).render(
        name=name, audit=audit, examples=examples, labels=labels, figures=figures
    )


def _histograms(histograms: dict[str, list[int]]) -> str:
    """Draw one or two histograms of values from 0 on, by name, as shares of all that they count."""
    total = max(sum(map(sum, histograms.values())), 1)
    figure = _new_figure(height=2.4)
    axes = figure.subplots()
    for colour, (name, histogram) in zip("ab", histograms.items(), strict=False):
        values_per_bar = max(1, math.ceil(len(histogram) / 64))  # bars wide enough to see
        starts = np.arange(0, len(histogram), values_per_bar)
        shares = np.add.reduceat(np.array(histogram), starts) / total
        edges = [*starts, starts[-1] + values_per_bar]
        # The first is filled, the second an outline, so that equal ones are both seen.
        fill = colour == "a"
        axes.stairs(shares, edges, label=name, color=COLOURS[colour], fill=fill, alpha=0.7, lw=1.8)
    axes.set_ylabel("share of all")
    axes.yaxis.set_major_formatter(lambda share, _: f"{share:.1%}")
    axes.set_xlim(left=0)
    if len(histograms) > 1:
        axes.legend(frameon=False)
    return _svg(figure)


def _areas(checks: list[Check]) -> str:
    """Draw how well single measures predict the label: areas, intervals, and what is tolerated."""
    shown = [check for check in checks if check.interval]
    figure = _new_figure(height=0.6 + 0.28 * len(shown))
    axes = figure.subplots()
    names = []
    for row, check in enumerate(reversed(shown)):
        assert check.value is not None and check.interval is not None
        measure = check.name.removeprefix("AUC of ").removesuffix(" for the label")
        names.append(f"{measure}  {check.figure}")
        colour = COLOURS.get(check.verdict, "#a87800")  # neither good nor bad
        if check.tolerance:
            axes.barh(row, 2 * check.tolerance, left=0.5 - check.tolerance, color="#8884")
        low, high = np.clip(check.interval, *AUC_RANGE)
        axes.plot((low, high), (row, row), color=colour)
        axes.plot(np.clip(check.value, *AUC_RANGE), row, "o", color=colour)
    axes.set_yticks(range(len(names)), names)
    axes.axvline(0.5, color=INK, linewidth=0.8)
    axes.set_xlim(AUC_RANGE)
    return _svg(figure)


def _new_figure(height: float) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=(5.6, height), layout="constrained")


def _svg(figure: "Figure") -> str:
    """Return the figure in the colour of the page."""
    from markupsafe import Markup

    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    drawing = file.getvalue()
    # Without the XML declaration; no text of others is in it.
    return Markup(drawing[drawing.index("<svg") :].replace(INK, "currentColor"))
