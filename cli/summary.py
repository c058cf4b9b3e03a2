"""Print the table at a command's end, notices and warnings; format their numbers."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..pipeline.execution.counters import (
    LOST_TO_TEMPLATE,
    NUM_TEMPLATES,
    WORDS_LEFT_OUT,
    count_of,
    most_costly_templates,
)
from ..pipeline.wording import in_words
from .failures import as_typed
from .output import print_table, settings, tell

if TYPE_CHECKING:
    from ..pipeline.execution.estimate import Estimate
    from ..pipeline.manifests import DocumentsManifest, InstancesManifest, Manifest

RARE_PAIRS = (
    "forced_pairs",
    "unexchanged_pairs",
    "pairs_across_sources",
    "pairs_across_languages",
)
"""Shown only where there are some: a reader would have to look them up in docs/counters.md."""
BAR_WIDTH = 40
ALREADY_FINISHED = "already finished, nothing to do"


@dataclass(frozen=True)
class CommandSummary:
    """What one command wrote, and where: rows of (name, value)."""

    command: str
    where: str
    rows: list[tuple[str, str]]
    exit_code: int = 0
    """Of the process, once the stages of a recipe that follow are done too."""


def is_first_rank() -> bool:
    """Return whether this process prints; under torchrun only one does."""
    return os.environ.get("RANK", "0") == "0"


def print_summaries(summaries: list[CommandSummary]) -> None:
    """Print a table of what the commands wrote to standard output."""
    if not is_first_rank() or settings.is_quiet:
        return
    from rich.table import Column
    from rich.text import Text

    rows: list[list[str | Text]] = []
    for summary in summaries:
        rows.append([Text(summary.command, "bold"), "where", summary.where])
        for name, value in summary.rows:
            rows.append(["", name, value])
    # Folded, not cut: paths are copied from here.
    print_table(["stage", "", Column(overflow="fold")], rows)


def summarize_shards(
    command: str, where: str, manifest: "DocumentsManifest | InstancesManifest"
) -> CommandSummary:
    """Summarise a directory of shards by its manifest."""
    rows = state_rows(manifest)
    for split in ("train", "validation"):
        shards = [shard for shard in manifest.shards if shard.split == split]
        num_rows = sum(shard.rows for shard in shards)
        num_bytes = sum(shard.bytes for shard in shards)
        sizes = [
            count_of(num_rows, "row"),
            count_of(len(shards), "shard"),
            megabytes(num_bytes),
        ]
        rows.append((split, ", ".join(sizes)))

    words_left_out = {}
    for name, count in manifest.counts.items():
        # Gathered in one row below: there may be a dozen reasons.
        if name.startswith(WORDS_LEFT_OUT):
            words_left_out[name.removeprefix(WORDS_LEFT_OUT)] = count
        elif not name.startswith(LOST_TO_TEMPLATE) and (count or name not in RARE_PAIRS):
            rows.append((in_words(name), f"{count:,}"))
    if costly := most_costly_templates(manifest.counts)[:NUM_TEMPLATES]:
        costs = {name.removeprefix(LOST_TO_TEMPLATE): manifest.counts[name] for name in costly}
        rows.append(("words lost to unknown templates", _most_first(costs)))
    for reason, count in manifest.bad.items():
        rows.append((f"bad: {in_words(reason)}", f"{count:,}"))
    num_kept = getattr(manifest, "words_kept", 0)
    if num_kept:
        rows += word_rows(num_kept, words_left_out)
    elif words_left_out:
        rows.append(("words left out", _most_first(words_left_out)))
    return CommandSummary(command, where, rows)


def word_rows(num_kept: int, left_out: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return rows with the share of the words that were kept, a bar of it, and the shares that were
    left out, by reason.

    >>> word_rows(75, {"tables": 20, "lists": 5})[0]
    ('words kept', '75 of 100 (75.0%) ██████████████████████████████░░░░░░░░░░')
    """
    total = num_kept + sum(left_out.values())
    share = num_kept / total
    num_full = round(share * BAR_WIDTH)
    bar = "█" * num_full + "░" * (BAR_WIDTH - num_full)
    rows = [("words kept", f"{num_kept:,} of {total:,} ({share:.1%}) {bar}")]
    reasons = []
    for reason in sorted(left_out, key=lambda reason: -left_out[reason]):
        count = left_out[reason]
        if count:
            reasons.append(f"{in_words(reason)} {count:,} ({count / total:.1%})")
    if reasons:
        rows.append(("words left out", ", ".join(reasons)))
    return rows


def _most_first(counts: Mapping[str, int]) -> str:
    """Format counts by reason, such as ``30: tables 20, lists 10``."""
    reasons = sorted(counts, key=lambda reason: -counts[reason])
    shown = [f"{in_words(reason)} {counts[reason]:,}" for reason in reasons]
    return f"{sum(counts.values()):,}: {', '.join(shown)}"


def state_rows(manifest: "Manifest") -> list[tuple[str, str]]:
    """Return a row that says so if the stage was finished before, and nothing was done."""
    if not manifest.already_finished:
        return []
    return [("state", ALREADY_FINISHED)]


def summarize_dry_run(command: str, where: str, estimate: "Estimate") -> CommandSummary:
    """Summarise what a command would do and need, after ``--dry-run``."""
    title = f"{command} --dry-run"
    if estimate.state == "finished":
        return CommandSummary(title, where, [("state", ALREADY_FINISHED)])
    state = "new"
    if estimate.state == "begun":
        state = "unfinished, would resume"
    needs = estimate.needs
    rows = [
        ("state", state),
        ("units of work", needs.units),
        ("to read", megabytes(needs.input_bytes)),
        ("to write", megabytes(needs.output_bytes)),
        ("temporary files", megabytes(needs.temporary_bytes)),
    ]
    if estimate.free_bytes is not None:
        rows.append(("free disk", megabytes(estimate.free_bytes)))
    return CommandSummary(title, where, rows)


def warn(message: str) -> None:
    """Print a one-line warning to standard error."""
    if is_first_rank():
        tell("warning", f"{as_typed(message)}.")


class NoticeHandler(logging.Handler):
    """Prints what the libraries log for the user: plain lines, with fields as flags."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a notice."""
        tell("notice", as_typed(record.getMessage()))


def duration(seconds: float) -> str:
    """Format a time, such as 45 s, 10 min or 2.5 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def figure(value: float) -> str:
    """Format a count such as 12,345 or a measured value such as 0.843."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.3f}"


def megabytes(num_bytes: int) -> str:
    """Format a size, such as 1.2 MB."""
    return f"{num_bytes / 1e6:,.1f} MB"
