"""``clozeworks fill``."""

import click

from .summary import CommandSummary


@click.command()
@click.argument("run")
@click.argument("text")
@click.option("--top", type=click.IntRange(1), default=5, show_default=True, help="Number of candidates per [MASK].")
def fill(run: str, text: str, top: int) -> CommandSummary:
    """Print the most likely tokens for each [MASK] in TEXT, according to the model in RUN."""
    from ..model.pretraining.fill import fill as run_fill

    rows = [
        (text, ", ".join(f"{token} {probability:.1%}" for token, probability in candidates))
        for candidates in run_fill(run, text, top)
    ]
    return CommandSummary("fill", run, rows)
