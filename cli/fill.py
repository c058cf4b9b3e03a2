"""Define the command ``clozeworks fill``."""

import json

import click

from ..pipeline.errors import UserError
from .output import CommandSummary


@click.command()
@click.argument("run", type=click.Path())
@click.argument("text")
@click.option(
    "--top",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Number of candidates per [MASK].",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the candidates of each [MASK] as JSON."
)
def fill(run: str, text: str, top: int, as_json: bool) -> CommandSummary | None:
    """Print the most likely tokens for each [MASK] in TEXT, according to the model in RUN."""
    # Bytes of an argument that are not UTF-8 come as halves of surrogate pairs.
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise UserError("TEXT is not UTF-8.")
    from ..model.pretraining.fill import fill as run_fill

    masks = run_fill(run, text, top)
    if as_json:
        guesses_by_mask = [[guess._asdict() for guess in guesses] for guesses in masks]
        click.echo(json.dumps(guesses_by_mask, indent=2))
        return None
    rows = [("text", text)]
    for number, guesses in enumerate(masks, 1):
        # A line each, the token last: it may be a comma itself.
        shown = [f"{guess.probability:6.1%}  {guess.token}" for guess in guesses]
        name = "[MASK]" if len(masks) == 1 else f"[MASK] {number}"
        rows.append((name, "\n".join(shown)))
    return CommandSummary("fill", run, rows)
