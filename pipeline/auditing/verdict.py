"""Judge single figures, with the statistics that all checks of instances share, and sum up the
checks of an audit in one sentence, for the terminal and the report.
"""

import re
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from ..counters import count_of, wilson_interval
from ..instances.balance import Z_JUDGED
from ..manifests import too_little_to_judge

NUM_NAMED = 3
ROWS_FOR_EXACT = 10_000
"""From this many rows on, one half must be met within `HALF_TOLERANCE`; below, within chance."""
HALF_TOLERANCE = 0.005
Verdict = Literal["ok", "bad", "warn", "unjudged", "info"]
"""``warn`` is out of tolerance, but by a property of the text, or in the held-out rows alone;
``unjudged`` is a property of good instances that was not compared with a tolerance; ``info`` has
none.
"""


@dataclass(frozen=True)
class Check:
    """One line of the audit."""

    name: str
    measured: str
    asked: str
    verdict: Verdict
    value: float | None
    interval: tuple[float, float] | None = None
    """Covers the true value with 95% confidence."""
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
    def measured_and_advice(self) -> str:
        """For a table's cell."""
        return "; ".join(filter(None, (self.measured, self.advice)))

    @property
    def complaint(self) -> str:
        """For instance ``IsNext 13.63% (expected 50% ± 0.5%)``, with the advice."""
        expected = "; ".join(filter(None, (f"expected {self.asked}", self.advice)))
        return f"{self.name} {self.figure} ({expected})"


def judge(
    name: str,
    measured: str,
    asked: str,
    holds: bool,
    value: float,
    interval: tuple[float, float] | None = None,
    unjudged: str = "",
) -> Check:
    """Judge a figure by whether its tolerance holds, or not at all if `unjudged` says why not."""
    if unjudged:
        return Check(name, measured, unjudged, "unjudged", value, interval)
    return Check(name, measured, asked, "ok" if holds else "bad", value, interval)


def exact(name: str, value: int, asked: int = 0) -> Check:
    """Judge a count that must be a certain number: that of faults is 0."""
    return judge(name, f"{value:,}", f"{asked:,}", value == asked, value)


def at_most(name: str, share: float, limit: float, num_rows: int) -> Check:
    """Judge a share that must not exceed a limit, which in few rows a few exceed by chance."""
    asked = f"at most {limit:.1%}"
    unjudged = too_little_to_judge(num_rows)
    return judge(name, f"{share:.3%}", asked, share <= limit, share, unjudged=unjudged)


def info(name: str, value: float, measured: str) -> Check:
    """Show a figure that no limit applies to."""
    return Check(name, measured, "", "info", value)


def too_few(chance: float, num_rows: int) -> str:
    """Return why not to judge a share that may deviate by `chance`; "" if it can be."""
    # From here on chance alone may move a share half of the way from one half to 0 or 1.
    if chance <= 0.25:
        return ""
    return f"too little to judge: {count_of(num_rows, 'row')}"


def is_half(successes: int, trials: int) -> bool:
    """Tell whether a share is one half: within the tolerance or, with few trials, within chance."""
    if trials >= ROWS_FOR_EXACT:
        return abs(successes / trials - 0.5) <= HALF_TOLERANCE
    low, high = wilson_interval(successes, trials, Z_JUDGED)
    return low <= 0.5 <= high


@dataclass(frozen=True)
class Audit:
    """All checks, and the histograms that the report draws."""

    config: dict[str, Any]
    checks: list[Check]
    lengths: list[list[int]]
    """Rows by length in tokens, one list per label."""
    segment_lengths: list[list[int]]
    """The same for segments A and B, one list each."""
    mask_positions: list[int]
    """Masked tokens by position in the row."""

    @property
    def failed(self) -> list[Check]:
        """The checks that are out of tolerance."""
        return self._having("bad")

    @property
    def verdict(self) -> Verdict:
        """The verdict of the whole: ``ok`` only if every property was judged and holds."""
        for verdict in ("bad", "warn", "unjudged"):
            if self._having(verdict):
                return verdict
        return "ok"

    @property
    def sentence(self) -> str:
        """The verdict in a sentence, with the figures of checks that fail or were not judged."""
        failed = self.failed
        num_held = len(self._having("ok"))
        if self.verdict == "ok":
            return f"All {num_held} checks hold."
        parts = [f"{num_held} {'hold' if failed else 'checks hold'}"]
        if failed:
            count = "1 check fails" if len(failed) == 1 else f"{len(failed)} checks fail"
            parts.insert(0, f"{count}: {_listed([check.complaint for check in failed])}")
        if warnings := self._having("warn"):
            parts.append(f"to know: {_listed([check.complaint for check in warnings])}")
        sentence = "; ".join(parts)
        if unjudged := self._having("unjudged"):
            figures = _listed([f"{check.name} {check.figure}" for check in unjudged])
            sentence += f", {len(unjudged)} not judged: {figures}"
        return f"{sentence}."

    def _having(self, verdict: Verdict) -> list[Check]:
        return [check for check in self.checks if check.verdict == verdict]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        judged = {"ok": not self.failed, "verdict": self.verdict, "sentence": self.sentence}
        return {**asdict(self), **judged}


def _listed(texts: list[str]) -> str:
    named = ", ".join(texts[:NUM_NAMED])
    num_more = len(texts) - NUM_NAMED
    return f"{named} and {num_more} more" if num_more > 0 else named
