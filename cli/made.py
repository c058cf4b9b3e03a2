"""What a command made, said in a table at its end."""

from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table


@dataclass(frozen=True)
class Made:
    """What one command made, and where: rows of (what, how much or what came out)."""

    command: str
    where: str
    rows: list[tuple[str, str]]


def print_made(made: list[Made]) -> None:
    """Print a table of what the commands made to standard output."""
    console = Console()
    table = Table("stage", "what", "", box=None, pad_edge=False, header_style="bold")
    for entry in made:
        table.add_row(f"[bold]{entry.command}[/]", "where", escape(entry.where))
        for what, value in entry.rows:
            table.add_row("", what, escape(value))
    console.print(table)


def made_shards(command: str, where: str, manifest: dict[str, Any]) -> Made:
    """Describe a directory of shards by its manifest."""
    shards = manifest["shards"]
    rows = []
    for split in ("train", "validation"):
        here = [shard for shard in shards if shard["split"] == split]
        num_rows, num_bytes = (sum(shard[key] for shard in here) for key in ("rows", "bytes"))
        rows.append((split, f"{num_rows:,} rows, {len(here)} shards, {megabytes(num_bytes)}"))
    counts = {**manifest["counts"], **{f"bad: {reason}": count for reason, count in manifest["bad"].items()}}
    rows.extend((name.replace("_", " "), f"{count:,}") for name, count in counts.items())
    return Made(command, where, rows)


def megabytes(num_bytes: int) -> str:
    """Return a size for people.

    >>> megabytes(1_234_567)
    '1.2 MB'
    """
    return f"{num_bytes / 1e6:,.1f} MB"
