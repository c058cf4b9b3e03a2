"""Render an audit of instances or documents as one self-contained HTML page without scripts.

The Jinja templates lie beside this file: ``instances.html`` and ``documents.html`` extend
``base.html``, and share the macros of ``corpus.html`` and ``macros.html``. The page follows the
reader's light or dark theme.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader

from .decode import Example, label_names
from .documents import BINS_PER_OCTAVE, DocumentsAudit
from .verdict import Audit, checks_by_name

MAX_BARS = 64
NUM_TICKS = 5
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
    document_lengths = []
    sentence_lengths = []
    for audit in audits.values():
        # Without documents at hand the plot stays empty, in its place beside the other corpus.
        documents = audit.documents
        document_lengths.append([documents.document_lengths] if documents else [[]])
        sentence_lengths.append([documents.sentence_lengths] if documents else [[]])
    return _template("instances.html").render(
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
    return _template("documents.html").render(
        corpora=list(audits.items()),
        document_lengths=_log_plots([[audit.document_lengths] for audit in audits.values()]),
        sentence_lengths=_log_plots([[audit.sentence_lengths] for audit in audits.values()]),
    )


def _template(name: str) -> Any:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def _labels(audit: Audit) -> tuple[str, str]:
    return label_names(audit.config["pairing"])


def _plots(corpora: Corpora) -> Plots:
    """Return plots of histograms by value from 0 on, in at most `MAX_BARS` bars::

    width 130     values 0 to 129, 3 to a bar
    starts        0         3         6      …  129
    names         0 to 2    3 to 5    6 to 8 …  129
    """
    width = max(len(histogram) for histograms in corpora for histogram in histograms)
    values_per_bar = max(1, math.ceil(width / MAX_BARS))
    starts = list(range(0, width, values_per_bar))
    names = []
    for start, stop in itertools.pairwise([*starts, width]):
        names.append(str(start) if stop == start + 1 else f"{start} to {stop - 1}")
    ticks = [f"{(width - 1) * tick / (NUM_TICKS - 1):.0f}" for tick in range(NUM_TICKS)]
    return _draw(corpora, starts, names, ticks)


def _log_plots(corpora: Corpora) -> Plots:
    """Return plots of histograms of `documents.BINS_PER_OCTAVE`, a bar for each bin.

    Empty bins on both sides are left out::

        bins             0  1  2  3  4  5     bin i: from 2 ** (i / 2) characters on
        counts           0  0  7  0  2  0
        first, last            2     5        bounds 2, 2, 4, 5: the bars' names and ticks
    """
    filled = []
    for histograms in corpora:
        for histogram in histograms:
            filled += [bin for bin, count in enumerate(histogram) if count]
    first = min(filled, default=0)
    last = max(filled, default=0) + 1
    bounds = [int(2 ** (bin / BINS_PER_OCTAVE)) for bin in range(first, last + 1)]
    names = [f"of {low:,} to {high:,} characters" for low, high in itertools.pairwise(bounds)]
    tick_bounds = [tick * (last - first) // (NUM_TICKS - 1) for tick in range(NUM_TICKS)]
    ticks = [f"{bounds[bound]:,}" for bound in tick_bounds]
    return _draw(corpora, range(first, last), names, ticks)


def _draw(corpora: Corpora, starts: Sequence[int], names: Sequence[str], ticks: list[str]) -> Plots:
    """Return the counts between the `starts`, as shares of all counts of a corpus."""
    bars: list[list[Bars]] = []
    highest = 0.0
    for histograms in corpora:
        shares = _shares(histograms, starts)
        bars.append([list(zip(names, row, strict=True)) for row in shares.tolist()])
        highest = max(highest, float(shares.max()))
    return Plots(bars, highest or 1, ticks)


def _shares(histograms: Sequence[Histogram], starts: Sequence[int]) -> np.ndarray:
    """Return the share of each bar in the counts of a corpus, float64 [histograms, bars]."""
    # Histograms may end before the last bar, and differ in length.
    width = max(starts[-1] + 1, *map(len, histograms))
    counts = np.zeros((len(histograms), width))
    for row, histogram in zip(counts, histograms, strict=True):
        row[: len(histogram)] = histogram
    return np.add.reduceat(counts, starts, axis=1) / max(counts.sum(), 1)


def _auc_x(value: float) -> float:
    """Return the place of `value` in the plot of areas under the curve, in percent of its width."""
    low, high = AUC_RANGE
    shown = min(max(value, low), high)
    return round(100 * (shown - low) / (high - low), 2)
