"""The audit as one self-contained HTML page without scripts: verdict, plots, example rows and checks.

``report.html``, beside this file, is its Jinja template; the page follows the reader's light or dark theme.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader

from ..vocab.vocabulary import Vocabulary
from .decode import decode_row
from .verdict import Audit, checks_by_name

MAX_BARS = 64
AUC_RANGE = (0.3, 0.7)


def render_report(audits: Mapping[str, Audit], rows: Sequence[Mapping[str, Any]], vocabulary: Vocabulary) -> str:
    """Return the page for one or two audits by the name of their corpus, with example `rows` of the first."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("report.html").render(
        corpora=list(audits.items()),
        checks=checks_by_name(audits.values()),
        examples=[(row, decode_row(row, vocabulary)) for row in rows],
        labels=_labels,
        shares=_shares,
        auc_x=_auc_x,
    )


def _labels(audit: Audit) -> tuple[str, str]:
    """Return what labels 0 and 1 mean."""
    special = {"sop": ("in order", "swapped"), "none": ("one segment", "–")}
    return special.get(audit.config["pairing"], ("IsNext", "NotNext"))


def _shares(histograms: Sequence[Sequence[int]]) -> list[list[tuple[str, float]]]:
    """Return histograms as at most `MAX_BARS` bars each: the values of a bar, and their share of the sum of all."""
    counts = np.array(histograms)
    starts = np.arange(0, counts.shape[1], -(-counts.shape[1] // MAX_BARS))
    stops = np.append(starts[1:], counts.shape[1]) - 1
    spans = [f"{first}" if first == last else f"{first} to {last}" for first, last in zip(starts, stops, strict=True)]
    shares = np.add.reduceat(counts, starts, axis=1) / max(counts.sum(), 1)
    return [list(zip(spans, row, strict=True)) for row in shares.tolist()]


def _auc_x(value: float) -> float:
    """Return where the plot of areas under the curve shows `value`, in percent of its width."""
    low, high = AUC_RANGE
    return round(100 * (min(max(value, low), high) - low) / (high - low), 2)
