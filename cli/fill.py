"""``clozeworks fill``."""

import click

from .summary import CommandSummary


@click.command()
@click.argument("run")
@click.argument("text")
@click.option(
    "--top", type=click.IntRange(1), default=5, show_default=True, help="Number of tokens to name for each [MASK]."
)
def fill(run: str, text: str, top: int) -> CommandSummary:
    """Name the likeliest tokens for each [MASK] in TEXT, by the model in RUN."""
    from ..model.pretraining.fill import fill as run_fill

    rows = [
        (text, ", ".join(f"{token} {probability:.1%}" for token, probability in candidates))
        for candidates in run_fill(run, text, top)
    ]
    return CommandSummary("fill", run, rows)
