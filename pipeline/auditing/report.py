"""Render an audit of instances or documents as one self-contained HTML page without scripts.

The Jinja templates lie beside this file: ``instances.html`` and ``documents.html`` extend
``base.html``, and share the macros of ``corpus.html`` and ``macros.html``. The page follows the
reader's light or dark theme.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..cards import render
from .decode import Example, label_names
from .documents import BINS_PER_OCTAVE, DocumentsAudit
from .verdict import Audit, checks_by_name

MAX_BARS = 64
NUM_TICKS = 5
# Of the axis of the plot. An area beyond it is drawn at the edge; its figure stands beside it.
AUC_RANGE = (0.3, 0.7)

Histogram = Sequence[int]
Corpora = Sequence[Sequence[Histogram]]
"""The histograms of each corpus: one, or two for a mirrored plot."""
Bars = list[tuple[str, float]]
"""The name of each bar, for instance ``16 to 31``, and its share of the whole."""


@dataclass(frozen=True)
class Plots:
    """Histograms that share their axes: for each corpus the bars of one or two histograms."""

    bars: list[list[Bars]]
    highest: float
    ticks: list[str]


def render_instances(audits: Mapping[str, Audit], examples: Sequence[Example]) -> str:
    """Return the page for one or two audits by the name of their directory, with `examples` of rows
    of the first.
    """
    # Without documents a plot stays empty, in its place beside the other corpus.
    documents = [audit.documents for audit in audits.values()]
    document_lengths = [[each.document_lengths if each else []] for each in documents]
    sentence_lengths = [[each.sentence_lengths if each else []] for each in documents]
    return render(
        "pipeline/auditing/instances.html",
        corpora=list(audits.items()),
        checks=checks_by_name(audits.values()),
        examples=examples,
        row_lengths=_plots([audit.lengths for audit in audits.values()]),
        segment_lengths=_plots([audit.segment_lengths for audit in audits.values()]),
        mask_positions=_plots([[audit.mask_positions] for audit in audits.values()]),
        document_lengths=_log_plots(document_lengths),
        sentence_lengths=_log_plots(sentence_lengths),
        labels=_labels,
        auc_x=_auc_x,
    )


def render_documents(audits: Mapping[str, DocumentsAudit]) -> str:
    """Return the page for one or two audits of documents by the name of their directory."""
    return render(
        "pipeline/auditing/documents.html",
        corpora=list(audits.items()),
        document_lengths=_log_plots([[audit.document_lengths] for audit in audits.values()]),
        sentence_lengths=_log_plots([[audit.sentence_lengths] for audit in audits.values()]),
    )


def _labels(audit: Audit) -> tuple[str, str]:
    return label_names(audit.config["pairing"])


def _plots(corpora: Corpora) -> Plots:
    """Return plots of histograms by value from 0 on, in at most `MAX_BARS` bars."""
    # width 130     values 0 to 129, 3 to a bar
    # starts        0         3         6      …  129
    # names         0 to 2    3 to 5    6 to 8 …  129
    all_histograms = itertools.chain.from_iterable(corpora)
    width = max(len(histogram) for histogram in all_histograms)
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
    return _draw(corpora, starts, names, ticks)


def _log_plots(corpora: Corpora) -> Plots:
    """Return plots of histograms of `documents.BINS_PER_OCTAVE`, a bar for each bin from the first
    to the last that any of them fills.
    """
    filled: list[int] = []
    for histogram in itertools.chain.from_iterable(corpora):
        filled += np.flatnonzero(histogram).tolist()
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
    return _draw(corpora, range(first, stop), names, ticks)


def _draw(corpora: Corpora, starts: Sequence[int], names: Sequence[str], ticks: list[str]) -> Plots:
    """Return a bar from each of the `starts` to the next, as a share of all counts of a corpus."""
    bars: list[list[Bars]] = []
    highest = 0.0
    for histograms in corpora:
        shares = _shares(histograms, starts)
        highest = max(highest, float(shares.max()))
        bars_of_corpus = []
        for shares_of_histogram in shares.tolist():
            named_bars = list(zip(names, shares_of_histogram, strict=True))
            bars_of_corpus.append(named_bars)
        bars.append(bars_of_corpus)
    # The templates divide by the highest bar; where all are empty it is 1.
    return Plots(bars, highest or 1, ticks)


def _shares(histograms: Sequence[Histogram], starts: Sequence[int]) -> np.ndarray:
    """Return the share of each bar in the counts of a corpus, float64 [histograms, bars]."""
    # Histograms may end before the last bar, and differ in length:
    #
    #     counts   5 1 7 2 0 0       starts 0, 2, 4: bars of 6, 9 and 0
    #              3 0 0 0 0 0                       bars of 3, 0 and 0
    longest = max(len(histogram) for histogram in histograms)
    width = max(starts[-1] + 1, longest)
    counts = np.zeros((len(histograms), width))
    for index, histogram in enumerate(histograms):
        counts[index, : len(histogram)] = histogram
    # Of a corpus, not of each histogram: two labels in one plot then show their proportion too.
    counts_of_bars = np.add.reduceat(counts, starts, axis=1)
    return counts_of_bars / max(counts.sum(), 1)


def _auc_x(value: float) -> float:
    """Return the place of `value` in the plot of areas under the curve, in percent of its width."""
    low, high = AUC_RANGE
    shown = min(max(value, low), high)
    return round(100 * (shown - low) / (high - low), 2)
