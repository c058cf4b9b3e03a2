"""The table that a command prints at its end."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from ..pipeline.execution.counters import WORDS_LEFT_OUT, count_of

if TYPE_CHECKING:
    from ..pipeline.execution.estimates import Estimate
    from ..pipeline.manifests import DocumentsManifest, InstancesManifest, Manifest

ALREADY_FINISHED = "already finished, nothing to do"


@dataclass(frozen=True)
class CommandSummary:
    """What one command wrote, and where: rows of (name, value)."""

    command: str
    where: str
    rows: list[tuple[str, str]]


def is_first_rank() -> bool:
    """Return whether this process prints; under torchrun only one does."""
    return os.environ.get("RANK", "0") == "0"


def print_summaries(summaries: list[CommandSummary]) -> None:
    """Print a table of what the commands wrote to standard output."""
    if not is_first_rank():
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Column, Table

    console = Console()
    table = Table(
        "stage", "", Column(overflow="fold"), box=None, pad_edge=False, header_style="bold"
    )
    for entry in summaries:
        table.add_row(f"[bold]{entry.command}[/]", "where", escape(entry.where))
        for what, value in entry.rows:
            table.add_row("", what, escape(value))
    console.print(table)


def summarize_shards(
    command: str, where: str, manifest: "DocumentsManifest | InstancesManifest"
) -> CommandSummary:
    """Summarise a directory of shards by its manifest."""
    shards = manifest.shards
    rows = state_rows(manifest)
    for split in ("train", "validation"):
        here = [shard for shard in shards if shard.split == split]
        num_rows, num_bytes = sum(shard.rows for shard in here), sum(shard.bytes for shard in here)
        rows.append(
            (
                split,
                f"{count_of(num_rows, 'row')}, {count_of(len(here), 'shard')}, {megabytes(num_bytes)}",
            )
        )
    counts = {
        **manifest.counts,
        **{f"bad: {reason}": count for reason, count in manifest.bad.items()},
    }
    words = {name: count for name, count in counts.items() if name.startswith(WORDS_LEFT_OUT)}
    rows.extend(
        (name.replace("_", " "), f"{count:,}")
        for name, count in counts.items()
        if name not in words
    )
    if words:
        reasons = sorted(words, key=lambda name: -words[name])
        shown = (
            f"{name.removeprefix(WORDS_LEFT_OUT).replace('_', ' ')} {words[name]:,}"
            for name in reasons
        )
        rows.append(("words left out", f"{sum(words.values()):,}: {', '.join(shown)}"))
    return CommandSummary(command, where, rows)


def state_rows(manifest: "Manifest") -> list[tuple[str, str]]:
    """Return a row that says so if the stage was finished before, and nothing was done."""
    return [("state", ALREADY_FINISHED)] if manifest.already_finished else []


def summarize_dry_run(command: str, where: str, estimate: "Estimate") -> CommandSummary:
    """Summarise what a command would do and need, after ``--dry-run``."""
    if estimate.state == "finished":
        return CommandSummary(f"{command} --dry-run", where, [("state", ALREADY_FINISHED)])
    rows = [
        ("state", "unfinished, would resume" if estimate.state == "begun" else "new"),
        ("units of work", estimate.units),
        ("to read", megabytes(estimate.input_bytes)),
        ("to write", megabytes(estimate.output_bytes)),
        ("temporary files", megabytes(estimate.temporary_bytes)),
        ("workers x memory", f"{estimate.workers} x {megabytes(estimate.worker_bytes)}"),
        ("time", f"about {duration(estimate.seconds)} from the start"),
    ]
    return CommandSummary(f"{command} --dry-run", where, rows)


def duration(seconds: float) -> str:
    """Format a time, such as 45 s, 10 min or 2.5 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def figure(value: float) -> str:
    """Format a count such as 12,345 or a measured value such as 0.843."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"


def warn(message: str) -> None:
    """Print a one-line warning to standard error."""
    if is_first_rank():
        click.echo(f"Warning: {message}.", err=True)


def megabytes(num_bytes: int) -> str:
    """Format a size, such as 1.2 MB."""
    return f"{num_bytes / 1e6:,.1f} MB"
