"""Render an audit of instances or documents as one self-contained HTML page without scripts.

The Jinja templates lie beside this file: ``instances.html`` and ``documents.html`` extend
``base.html``, and share the macros of ``corpus.html`` and ``macros.html``. The page follows the
reader's light or dark theme.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..cards import render
from .decode import Example, label_names
from .documents import BINS_PER_OCTAVE, DocumentsAudit
from .verdict import Audit

MAX_BARS = 64
NUM_TICKS = 5
# Of the axis of the plot. An area beyond it is drawn at the edge; its figure stands beside it.
AUC_RANGE = (0.3, 0.7)

Histogram = Sequence[int]
Bars = list[tuple[str, float]]
"""The name of each bar, for instance ``16 to 31``, and its share of the whole."""


@dataclass(frozen=True)
class Plot:
    """The bars of one histogram, or of two that share their axes."""

    bars: list[Bars]
    highest: float
    ticks: list[str]


def render_instances(name: str, audit: Audit, examples: Sequence[Example]) -> str:
    """Return the page for the audit of the directory `name`, with `examples` of its rows."""
    return render(
        "pipeline/auditing/instances.html",
        name=name,
        audit=audit,
        checks={check.name: check for check in audit.checks},
        examples=examples,
        row_lengths=_plot(audit.lengths),
        segment_lengths=_plot(audit.segment_lengths),
        mask_positions=_plot([audit.mask_positions]),
        length_plots=_length_plots(audit.documents),
        labels=label_names(audit.config["pairing"]),
        auc_x=_auc_x,
    )


def render_documents(name: str, audit: DocumentsAudit) -> str:
    """Return the page for the audit of the documents in the directory `name`."""
    return render(
        "pipeline/auditing/documents.html",
        name=name,
        audit=audit,
        length_plots=_length_plots(audit),
    )


def _length_plots(audit: DocumentsAudit | None) -> dict[str, Plot]:
    """Return plots of the lengths of documents and of sentences, by what they count."""
    if audit is None:
        return {}
    return {
        "documents": _log_plot(audit.document_lengths),
        "sentences": _log_plot(audit.sentence_lengths),
    }


def _plot(histograms: Sequence[Histogram]) -> Plot:
    """Return the plot of histograms by value from 0 on, in at most `MAX_BARS` bars."""
    # width 130     values 0 to 129, 3 to a bar
    # starts        0         3         6      …  129
    # names         0 to 2    3 to 5    6 to 8 …  129
    width = max(len(histogram) for histogram in histograms)
    values_per_bar = max(1, math.ceil(width / MAX_BARS))
    starts = list(range(0, width, values_per_bar))
    names = []
    for start, stop in itertools.pairwise([*starts, width]):
        last = stop - 1
        if start == last:
            names.append(f"{start}")
        else:
            names.append(f"{start} to {last}")
    ticks = [f"{value:.0f}" for value in np.linspace(0, width - 1, NUM_TICKS)]
    return _draw(histograms, starts, names, ticks)


def _log_plot(histogram: Histogram) -> Plot:
    """Return the plot of a histogram of `documents.BINS_PER_OCTAVE`, a bar for each bin from the
    first to the last that is filled.
    """
    filled = np.flatnonzero(histogram).tolist()
    # bins             0  1  2  3  4  5     bin i: from 2 ** (i / 2) characters on
    # counts           0  0  7  0  2  0
    # first, stop            2        5     bars 2, 3 and 4 between the bounds 2, 2, 4 and 5
    first = min(filled, default=0)
    stop = max(filled, default=0) + 1
    bounds = []
    for bin in range(first, stop + 1):
        bounds.append(int(2 ** (bin / BINS_PER_OCTAVE)))
    names = []
    for low, high in itertools.pairwise(bounds):
        names.append(f"of {low:,} to {high:,} characters")
    ticks = []
    for tick in range(NUM_TICKS):
        nearest_bound = tick * (stop - first) // (NUM_TICKS - 1)
        ticks.append(f"{bounds[nearest_bound]:,}")
    return _draw([histogram], range(first, stop), names, ticks)


def _draw(
    histograms: Sequence[Histogram], starts: Sequence[int], names: Sequence[str], ticks: list[str]
) -> Plot:
    """Return a bar from each of the `starts` to the next, as a share of all counts."""
    shares = _shares(histograms, starts)
    bars = []
    for shares_of_histogram in shares.tolist():
        bars.append(list(zip(names, shares_of_histogram, strict=True)))
    # The templates divide by the highest bar; where all are empty it is 1.
    return Plot(bars, float(shares.max()) or 1, ticks)


def _shares(histograms: Sequence[Histogram], starts: Sequence[int]) -> np.ndarray:
    """Return the share of each bar in the counts of all, float64 [histograms, bars]."""
    # Histograms may end before the last bar, and differ in length:
    #
    #     counts   5 1 7 2 0 0       starts 0, 2, 4: bars of 6, 9 and 0
    #              3 0 0 0 0 0                       bars of 3, 0 and 0
    longest = max(len(histogram) for histogram in histograms)
    width = max(starts[-1] + 1, longest)
    counts = np.zeros((len(histograms), width))
    for index, histogram in enumerate(histograms):
        counts[index, : len(histogram)] = histogram
    # Of all, not of each histogram: two labels in one plot then show their proportion too.
    counts_of_bars = np.add.reduceat(counts, starts, axis=1)
    return counts_of_bars / max(counts.sum(), 1)


def _auc_x(value: float) -> float:
    """Return the place of `value` in the plot of areas under the curve, in percent of its width."""
    low, high = AUC_RANGE
    shown = min(max(value, low), high)
    return round(100 * (shown - low) / (high - low), 2)
