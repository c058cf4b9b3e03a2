"""Counters of one unit of work: what was seen, what was left out on purpose, what was bad."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

MAX_EXAMPLES = 3


class Counters:
    """Named counts that travel with a shard and are summed up in the manifest.

    `counts` are neutral (pages seen, redirects left out); `bad` are inputs that could not be used, by reason,
    with the first few places where each was met in `examples` (and of some neutral counts too).
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.bad: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = {}

    def count(self, name: str, amount: int = 1) -> None:
        """Add `amount` to a neutral counter."""
        self.counts[name] += amount

    def note(self, name: str, where: str) -> None:
        """Add one to a neutral counter and remember `where` it was met."""
        self.counts[name] += 1
        self._remember(name, where)

    def skip(self, reason: str, where: str) -> None:
        """Count one bad input under `reason` and remember `where` it was (file and place in it)."""
        self.bad[reason] += 1
        self._remember(reason, where)

    def _remember(self, name: str, where: str) -> None:
        examples = self.examples.setdefault(name, [])
        if len(examples) < MAX_EXAMPLES:
            examples.append(where)

    def first_bad(self) -> str:
        """Return the first bad input of the first reason, for a message; there must be one."""
        reason = next(reason for reason in self.examples if self.bad[reason])
        return f"{reason.replace('_', ' ')} at {self.examples[reason][0]}"

    def add(self, record: dict[str, Any]) -> None:
        """Add what another counters's `to_record` returned."""
        self.counts.update(record["counts"])
        self.bad.update(record["bad"])
        for reason, places in record["examples"].items():
            known = self.examples.setdefault(reason, [])
            known.extend(places[: MAX_EXAMPLES - len(known)])

    def to_record(self) -> dict[str, Any]:
        """Return the counters as plain JSON values, keys sorted."""
        return {
            "counts": dict(sorted(self.counts.items())),
            "bad": dict(sorted(self.bad.items())),
            "examples": dict(sorted(self.examples.items())),
        }


def count_of(count: int, noun: str) -> str:
    """Return a count of things for people.

    >>> count_of(1, "shard"), count_of(1_200, "shard")
    ('1 shard', '1,200 shards')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def name_counts(counts: Mapping[str, int]) -> str:
    """Return named counts for people, the most first.

    >>> name_counts({"empty_file": 1, "cut_off_page": 1_200})
    '1,200 x cut off page, 1 x empty file'
    """
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} x {name.replace('_', ' ')}" for name, count in ordered)
