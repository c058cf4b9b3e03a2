"""Render an audit as one self-contained HTML page, in the reader's light or dark theme."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .decode import Instance, label_names
from .verdict import Audit


def render_report(name: str, audit: Audit, examples: Sequence[Instance]) -> str:
    """Return the page for the audit of the directory `name`, with `examples` of its rows."""
    from jinja2 import Environment, StrictUndefined

    labels = label_names(audit.config["pairing"])
    row_lengths = dict(zip(labels, audit.lengths, strict=True))
    if audit.config["pairing"] == "none":
        row_lengths = {"rows": np.sum(audit.lengths, axis=0).tolist()}
    figures = {
        "Rows by length in tokens": _histogram(row_lengths),
        "Masks by position in the row": _histogram({"masks": audit.mask_positions}),
    }
    if audit.config["pairing"] != "none":
        segments = dict(zip("AB", audit.segment_lengths, strict=True))
        figures["Segments by length in tokens"] = _histogram(segments)
    template = Path(__file__).with_name("report.html").read_text(encoding="utf-8")
    environment = Environment(
        undefined=StrictUndefined, autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(template).render(
        name=name, audit=audit, examples=examples, labels=labels, figures=figures
    )


def _histogram(counts: dict[str, list[int]]) -> dict[str, Any]:
    """Return bars by name, as shares of all that is counted, the highest, and the axis's end."""
    total = max(sum(map(sum, counts.values())), 1)
    length = max(map(len, counts.values()))
    values_per_bar = math.ceil(length / 64)  # bars wide enough to see
    starts = np.arange(0, length, values_per_bar)
    bars = {}
    highest = 0.0
    for name, values in counts.items():
        shares = np.add.reduceat(values, starts) / total
        bars[name] = shares.tolist()
        highest = max(highest, float(shares.max()))
    return {"bars": bars, "highest": highest, "end": len(starts) * values_per_bar}
