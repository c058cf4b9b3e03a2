"""Judge one figure: the verdicts and the statistics that all checks of instances share."""

import math

from ..execution.counters import count_of
from ..instances.balance import Z_JUDGED
from ..manifests import too_little_to_judge
from .verdict import Check, Verdict

Z_SHOWN = 1.96
"""The intervals shown are 95% intervals."""

MAX_CHANCE = 0.25
"""If chance alone may account for a deviation this large, there are too few rows to judge."""

TOO_LITTLE = "too little to judge"

ROWS_FOR_EXACT = 10_000
"""From this many rows on, one half must be met within `HALF_TOLERANCE`; below, within chance."""

HALF_TOLERANCE = 0.005


def verdict_of(holds: bool) -> Verdict:
    """Return ``ok`` or ``bad``."""
    return "ok" if holds else "bad"


def exact(name: str, value: int, asked: int) -> Check:
    """Judge a count that must be a certain number."""
    verdict = verdict_of(value == asked)
    return Check(name, f"{value:,}", f"{asked:,}", verdict, value)


def none(name: str, value: int) -> Check:
    """Judge a count of faults."""
    return exact(name, value, 0)


def at_most(name: str, share: float, limit: float, num_rows: int) -> Check:
    """Judge a share that must not exceed a limit, which in few rows a few exceed by chance."""
    measured = f"{share:.3%}"
    if unjudged := too_little_to_judge(num_rows):
        return Check(name, measured, unjudged, "unjudged", share)
    asked = f"at most {limit:.1%}"
    return Check(name, measured, asked, verdict_of(share <= limit), share)


def info(name: str, value: float, measured: str) -> Check:
    """Show a figure that no limit applies to."""
    return Check(name, measured, "", "info", value)


def too_few(chance: float, num_rows: int) -> str:
    """Return why not to judge a share of rows that may deviate by `chance`; "" if it can be
    judged.
    """
    if chance <= MAX_CHANCE:
        return ""
    return f"{TOO_LITTLE}: {count_of(num_rows, 'row')}"


def is_half(successes: int, trials: int) -> bool:
    """Tell whether a share is one half: within the tolerance or, with few trials, within chance."""
    if trials >= ROWS_FOR_EXACT:
        return abs(successes / trials - 0.5) <= HALF_TOLERANCE
    low, high = wilson_interval(successes, trials, Z_JUDGED)
    return low <= 0.5 <= high


def wilson_interval(successes: int, trials: int, z: float = Z_SHOWN) -> tuple[float, float]:
    """Return the score interval of a share (Wilson 1927, "Probable inference, the law of
    succession, and statistical inference"); (0, 1) without trials.
    """
    if not trials:
        return 0.0, 1.0
    # Not share ± z * error, whose error is 0 where no trial succeeds, or all do.
    share = successes / trials
    spread = z * z / trials
    centre = (share + spread / 2) / (1 + spread)
    variance = share * (1 - share) / trials + spread / (4 * trials)
    half_width = z * math.sqrt(variance) / (1 + spread)
    return centre - half_width, centre + half_width
