"""Sum up the checks of an audit, in one sentence, for the terminal and the report."""

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from .documents import DocumentsAudit

NUM_NAMED = 3

Verdict = Literal["ok", "bad", "warn", "unjudged", "info"]
"""``warn`` is out of tolerance, but by a property of the text, or in the held-out rows alone;
``unjudged`` is a property of good instances that was not compared with a tolerance; ``info`` has
none.
"""


@dataclass(frozen=True)
class Check:
    """One line of the audit: texts, the plain `value`, its 95% `interval`, and how far an AUC may
    be from one half.

    `advice` says what to do about it, if that is known.
    """

    name: str
    measured: str
    asked: str
    verdict: Verdict
    value: float | None
    interval: tuple[float, float] | None = None
    tolerance: float | None = None
    advice: str = ""

    def explained(self, reason: str, advice: str, verdict: Verdict = "warn") -> "Check":
        """Return the check with the reason for what was measured, and what to do about it."""
        measured = f"{self.measured}; {reason}"
        return replace(self, measured=measured, verdict=verdict, advice=advice)

    @property
    def figure(self) -> str:
        """What was measured, without intervals and remarks."""
        return re.split(r" \(|;", self.measured)[0]

    @property
    def name_and_figure(self) -> str:
        """For instance ``IsNext 13.63%``."""
        return f"{self.name} {self.figure}"

    @property
    def measured_and_advice(self) -> str:
        """For a table's cell."""
        return _joined(self.measured, self.advice)

    @property
    def complaint(self) -> str:
        """For instance ``IsNext 13.63% (expected 50% ± 0.5%)``, with the advice."""
        return f"{self.name_and_figure} ({_joined(f'expected {self.asked}', self.advice)})"


def _joined(text: str, advice: str) -> str:
    if not advice:
        return text
    return f"{text}; {advice}"


@dataclass(frozen=True)
class Audit:
    """All checks, and the histograms behind the report.

    `lengths` counts rows by length in tokens, one list per label; `segment_lengths` does so for
    segments A and B; `mask_positions` counts masked tokens by position in the row; `top_masked`
    holds the most frequently masked tokens with their counts. `shares_read` is the share of each
    source and language in the training tokens of all passes; `documents` are measured if they are
    at hand.
    """

    config: dict[str, Any]
    checks: list[Check]
    lengths: list[list[int]]
    segment_lengths: list[list[int]]
    mask_positions: list[int]
    top_masked: list[tuple[str, int]]
    shares_read: dict[tuple[str, str], float]
    documents: DocumentsAudit | None = None

    @property
    def failed(self) -> list[Check]:
        """The checks that are out of tolerance."""
        return self._having("bad")

    @property
    def verdict(self) -> Verdict:
        """The verdict of the whole: ``ok`` only if every property was judged and holds."""
        if self.failed:
            return "bad"
        if self._having("warn"):
            return "warn"
        if self._having("unjudged"):
            return "unjudged"
        return "ok"

    @property
    def sentence(self) -> str:
        """The verdict in a sentence, with the figures of checks that fail or were not judged."""
        failed = self.failed
        num_held = len(self._having("ok"))
        unjudged = sorted(self._having("unjudged"), key=_interest)
        warnings = self._having("warn")
        if not failed and not unjudged and not warnings:
            return f"All {num_held} checks hold."
        rest = ""
        if warnings:
            rest = f"; to know: {_listed(check.complaint for check in warnings)}"
        if unjudged:
            figures = _listed(check.name_and_figure for check in unjudged)
            rest += f", {len(unjudged)} not judged: {figures}"
        if not failed:
            return f"{num_held} checks hold{rest}."
        fails = "1 check fails"
        if len(failed) > 1:
            fails = f"{len(failed)} checks fail"
        complaints = _listed(check.complaint for check in failed)
        return f"{fails}: {complaints}; {num_held} hold{rest}."

    def _having(self, verdict: Verdict) -> list[Check]:
        return [check for check in self.checks if check.verdict == verdict]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        shares = []
        for (source, language), share in self.shares_read.items():
            shares.append({"source": source, "language": language, "share": share})
        fields = asdict(replace(self, shares_read={}))  # its keys are pairs, which JSON lacks
        return {
            **fields,
            "shares_read": shares,
            "ok": not self.failed,
            "verdict": self.verdict,
            "sentence": self.sentence,
        }


def _interest(check: Check) -> tuple[bool, bool, float]:
    """Order checks that were not judged: the share of labels first, then the measures that predict
    the label best, then the others.
    """
    is_share_of_labels = check.name in ("IsNext", "pairs in order")
    predicts_label = check.name.startswith("AUC")
    distance_from_half = 0.0
    if check.value is not None:
        distance_from_half = abs(check.value - 0.5)
    # False sorts before True, so the keys say what a check is not.
    return not is_share_of_labels, not predicts_label, -distance_from_half


def _listed(texts: Iterable[str]) -> str:
    texts = list(texts)
    named = ", ".join(texts[:NUM_NAMED])
    num_more = len(texts) - NUM_NAMED
    if num_more > 0:
        return f"{named} and {num_more} more"
    return named
