"""An audit as one self-contained HTML page without scripts, of instances or of documents.

The Jinja templates lie beside this file: ``instances.html`` and ``documents.html`` extend
``base.html``, and share the macros of ``corpus.html`` and ``macros.html``. The page follows the
reader's light or dark theme.
"""

import itertools
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

Corpora = Sequence[Sequence[Sequence[int]]]
"""The histograms of each corpus: one, or two for a mirrored plot."""
Bars = list[tuple[str, float]]
"""The values of each bar, and their share of the whole."""


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
    found = [audit.documents for audit in audits.values()]
    return _template("instances.html").render(
        corpora=list(audits.items()),
        checks=checks_by_name(audits.values()),
        examples=examples,
        row_lengths=_plots([audit.lengths for audit in audits.values()]),
        segment_lengths=_plots([audit.segment_lengths for audit in audits.values()]),
        mask_positions=_plots([[audit.mask_positions] for audit in audits.values()]),
        document_lengths=_log_plots(
            [[audit.document_lengths] if audit else [[]] for audit in found]
        ),
        sentence_lengths=_log_plots(
            [[audit.sentence_lengths] if audit else [[]] for audit in found]
        ),
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
    loader = FileSystemLoader(Path(__file__).parent)
    return Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True
    ).get_template(name)


def _labels(audit: Audit) -> tuple[str, str]:
    return label_names(audit.config["pairing"])


def _plots(corpora: Corpora) -> Plots:
    """Return plots of histograms by value from 0 on, in at most `MAX_BARS` bars."""
    width = max(len(histogram) for histograms in corpora for histogram in histograms)
    starts = list(range(0, width, max(1, -(-width // MAX_BARS))))
    stops = [*starts[1:], width]
    names = [
        str(start) if stop == start + 1 else f"{start} to {stop - 1}"
        for start, stop in zip(starts, stops, strict=True)
    ]
    return _drawn(
        corpora,
        starts,
        names,
        [f"{(width - 1) * part / (NUM_TICKS - 1):.0f}" for part in range(NUM_TICKS)],
    )


def _log_plots(corpora: Corpora) -> Plots:
    """Return plots of histograms of `documents.BINS_PER_OCTAVE`, a bar for each bin."""
    filled = [
        bin
        for histograms in corpora
        for histogram in histograms
        for bin, count in enumerate(histogram)
        if count
    ]
    first, last = min(filled, default=0), max(filled, default=0) + 1
    bounds = [int(2 ** (bin / BINS_PER_OCTAVE)) for bin in range(first, last + 1)]
    names = [f"of {low:,} to {high:,} characters" for low, high in itertools.pairwise(bounds)]
    ticks = [f"{bounds[part * (last - first) // (NUM_TICKS - 1)]:,}" for part in range(NUM_TICKS)]
    return _drawn(corpora, list(range(first, last)), names, ticks)


def _drawn(
    corpora: Corpora, starts: Sequence[int], names: Sequence[str], ticks: list[str]
) -> Plots:
    """Return the counts between the `starts`, as shares of all counts of a corpus."""
    bars: list[list[Bars]] = []
    for histograms in corpora:
        padded = np.zeros((len(histograms), max(starts[-1] + 1, *map(len, histograms))))
        for row, histogram in zip(padded, histograms, strict=True):
            row[: len(histogram)] = histogram
        shares = np.add.reduceat(padded, starts, axis=1) / max(padded.sum(), 1)
        bars.append([list(zip(names, row, strict=True)) for row in shares.tolist()])
    return Plots(bars, max(share for own in bars for row in own for _, share in row) or 1, ticks)


def _auc_x(value: float) -> float:
    """Return where the plot of areas under the curve shows `value`, in percent of its width."""
    low, high = AUC_RANGE
    return round(100 * (min(max(value, low), high) - low) / (high - low), 2)
