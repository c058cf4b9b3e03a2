"""Measure an encoder on minimal pairs, such as BLiMP (arXiv 1912.00582): of two sentences that
differ in little, the acceptable one should have the higher score.

Nothing is fine-tuned; `likelihood` says how a sentence is scored.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binomtest

from ...pipeline.errors import UserError
from ..copies import local_copy
from ..tasks.tables import TableRow, read_rows
from .likelihood import SentenceScorer

COLUMNS = ("sentence_good", "sentence_bad")
GROUPS = ("field", "linguistics_term", "phenomenon")
"""Columns by which accuracy is reported, where a file has them; BLiMP has the first two."""


class MinimalPair(NamedTuple):
    """Two sentences that differ in little."""

    good: str
    bad: str
    groups: dict[str, str]
    """What kind of pair it is, by column."""


class Accuracy(NamedTuple):
    """How often the acceptable sentence has the higher score."""

    pairs: int
    accuracy: float
    low: float
    """Ends of the 95% interval (Wilson's)."""
    high: float

    @classmethod
    def of(cls, is_right: Sequence[bool]) -> "Accuracy":
        """Return the accuracy over some pairs."""
        result = binomtest(sum(is_right), len(is_right))
        interval = result.proportion_ci(method="wilson")
        return cls(
            len(is_right), float(result.statistic), float(interval.low), float(interval.high)
        )


def evaluate_minimal_pairs(
    run: str | Path,
    data: str | Path,
    device: str = "auto",
    *,
    columns: tuple[str, str] = COLUMNS,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Return ``all``, an `Accuracy` as a dict, and for each column of `GROUPS` in the data one of
    each of its values.

    `data` is a table, or a folder of JSON Lines; `columns` are those of the acceptable sentence and
    of the other. `progress` is called with the number of sentences scored and that of all. Raises
    `UserError` if a column is missing, and as `SentenceScorer`.
    """
    pairs = list(read_minimal_pairs(data, columns))
    if not pairs:
        raise UserError(f"{data} has no pairs.")
    sentences = [sentence for pair in pairs for sentence in (pair.good, pair.bad)]

    def report(num_done: int) -> None:
        if progress:
            progress(num_done, len(sentences))

    scores_N2 = SentenceScorer(run, device).scores(sentences, report).reshape(-1, 2)
    is_right_N = scores_N2[:, 0] > scores_N2[:, 1]
    return {"all": Accuracy.of(is_right_N.tolist())._asdict(), **_by_group(pairs, is_right_N)}


def _by_group(pairs: Sequence[MinimalPair], is_right_N: np.ndarray) -> dict[str, Any]:
    found: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for pair, is_right in zip(pairs, is_right_N.tolist(), strict=True):
        for column, value in pair.groups.items():
            found[column][value].append(is_right)
    accuracies: dict[str, Any] = {}
    for column, by_value in found.items():
        accuracies[column] = {
            value: Accuracy.of(answers)._asdict() for value, answers in sorted(by_value.items())
        }
    return accuracies


def read_minimal_pairs(
    data: str | Path, columns: tuple[str, str] = COLUMNS
) -> Iterator[MinimalPair]:
    """Yield the pairs of a table, or of all JSON Lines in a folder, by name."""
    files = [local_copy(data)]
    if files[0].is_dir():
        files = sorted(files[0].glob("*.jsonl"))
        if not files:
            raise UserError(f"The folder {data} has no .jsonl files.")
    for file in files:
        for row in read_rows(file):
            _check_columns(row, columns)
            good, bad = map(row.text, columns)
            yield MinimalPair(good, bad, dict(_groups(row)))


def _check_columns(row: TableRow, columns: tuple[str, str]) -> None:
    for column in columns:
        if column not in row.values:
            raise UserError(
                f"{row.where}: there is no column {column}, only {', '.join(row.values)}. Minimal "
                "pairs need two columns of sentences; labelled examples need a model that is "
                "fine-tuned."
            )


def _groups(row: TableRow) -> Iterator[tuple[str, str]]:
    for column in GROUPS:
        value = row.values.get(column)
        if isinstance(value, str):
            yield column, value
