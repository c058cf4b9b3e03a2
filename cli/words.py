"""Define the command ``clozeworks words``."""

import click

from .options import ContentOfFile
from .output import CommandSummary


@click.command()
@click.argument("model", type=click.Path())
@click.argument("documents", type=click.Path(), required=False)
@click.option(
    "-n",
    "num_words",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="Number of words to print.",
)
@click.option(
    "--add",
    type=ContentOfFile(),
    metavar="FILE",
    help="Write the vocabulary with the words in FILE, one a line.",
)
@click.option(
    "--output", type=click.Path(), metavar="VOCAB", help="Directory to write the vocabulary to."
)
@click.option("--overwrite", is_flag=True, help="Replace the tokenizer in --output.")
def words(
    model: str,
    documents: str | None,
    num_words: int,
    add: str | None,
    output: str | None,
    overwrite: bool,
) -> CommandSummary | None:
    """Print the words of DOCUMENTS that cost MODEL's vocabulary most pieces, or add words to it.

    Words come first that cost the most pieces beyond one each, over all DOCUMENTS; each is printed
    with its count and its number of pieces. Nothing is learned: the tokens of MODEL keep their ids.
    """
    from ..pipeline.vocabulary.own_words import suggest_words, write_with_words

    if documents and add is None and output is None:
        suggestion = suggest_words(documents, model, num_words)
        for word, (num_occurrences, num_pieces) in suggestion.words.items():
            click.echo(f"{word}\t{num_occurrences}\t{num_pieces}")
        share = suggestion.num_saved / max(suggestion.num_tokens, 1)
        saved = f"{suggestion.num_saved:,} of the documents' {suggestion.num_tokens:,} tokens"
        click.echo(f"In the vocabulary, these words save {saved} ({share:.1%}).", err=True)
        return None
    if documents or add is None or output is None:
        raise click.UsageError("Give either DOCUMENTS, or --add FILE with --output VOCAB.")
    added = write_with_words(model, add, output, overwrite=overwrite)
    rows = [
        ("tokens", f"{added.num_tokens:,}"),
        ("added", f"{added.num_words:,}, {added.num_rows:,} of them new rows"),
    ]
    return CommandSummary("words", output, rows)
