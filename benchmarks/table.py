"""Rows of the results page: a stage beside a peer, with the peer's version and setting."""

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from .inputs import Inputs

HEADER = "| what | clozeworks | peer | ratio | command |\n|---|---|---|---|---|"


class Row(NamedTuple):
    """One line of the table; README and docs/comparison.md cite it by `what`."""

    what: str
    ours: float
    peer: str
    """Name, version and setting, in a few words."""
    theirs: float | None
    """None if the peer is absent or failed."""
    unit: str
    """``s`` is better low, all others are better high."""
    note: str = ""
    """Behind our figure."""

    def markdown(self, group: str) -> str:
        ours = ", ".join(filter(None, (shown(self.ours, self.unit), self.note)))
        theirs = "absent"
        ratio = "–"
        if self.theirs is not None:
            theirs = shown(self.theirs, self.unit)
            is_time = self.unit.startswith("s")
            ratio = significant(self.theirs / self.ours if is_time else self.ours / self.theirs)
        cells = (self.what, ours, f"{self.peer}: {theirs}", ratio)
        return f"| {' | '.join(cells)} | `python -m benchmarks {group}` |"


def peer_row(
    what: str,
    ours: float,
    peer: str,
    setting: str,
    result: Mapping[str, Any] | None,
    unit: str,
    *,
    figure: str = "figure",
) -> Row:
    """Return the row of a peer's script, which found `figure`; None if there was no result."""
    if result is None:
        return Row(what, ours, f"{peer}, {setting}", None, unit)
    name = f"{peer} {result['version']}, {setting}"
    if "num_different" in result:
        same = f"{result['num_different']:,} of {result['num_sentences']:,} sentences differ"
        name += f", {same if result['num_different'] else 'equal ids'}"
    return Row(what, ours, name, result[figure], unit)


def print_rows(group: str, inputs: Inputs) -> None:
    """Print each row of a group when it is measured."""
    for row in importlib.import_module(f"{__package__}.{group}").rows(inputs):
        print(row.markdown(group), flush=True)


def shown(value: float, unit: str) -> str:
    """Write a figure with two or three digits that count."""
    if value >= 1e6:
        return f"{significant(value / 1e6)} M {unit}"
    return f"{significant(value)} {unit}"


def significant(value: float) -> str:
    if value >= 1000:
        return f"{round(value, 2 - len(str(int(value)))):,.0f}"
    if value < 1:
        return f"{value:.2g}"
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"
