"""Define the command ``clozeworks ingest``."""

from collections import Counter
from typing import TYPE_CHECKING

import click

from ..pipeline.config import IngestConfig, RunOptions
from ..pipeline.counters import count_words
from ..pipeline.wording import in_words
from .data_summary import summarize_documents, summarize_dry_run
from .options import GroupedCommand, config_options, make_config, max_bad_option
from .output import printable
from .summary import CommandSummary
from .terminal import data_stage_terminal

if TYPE_CHECKING:
    from ..pipeline.documents.explain import Explanation

LONGEST_SHOWN = 200
"""Characters of a passage that ``--explain`` shows."""


@click.command(cls=GroupedCommand)
@click.argument("sources", type=click.Path(), nargs=-1, required=True, metavar="SOURCE...")
@click.option(
    "--output",
    type=click.Path(),
    metavar="DOCUMENTS",
    help="Directory to write the documents to (required unless --explain is given).",
)
@click.option(
    "--explain",
    metavar="DOCUMENT",
    help="Only show what is kept and left out of one document, and why: the first with this id or "
    "title.",
)
@config_options(IngestConfig, RunOptions)
@max_bad_option
@click.pass_context
def ingest(
    ctx: click.Context,
    sources: tuple[str, ...],
    output: str | None,
    explain: str | None,
    **values: object,
) -> CommandSummary | None:
    """Turn dumps, books and tables into clean documents, shuffled, split and sharded.

    A SOURCE is a Wikipedia XML dump (.xml, .xml.bz2, .xml.gz, .xml.xz), WikiExtractor output, a
    text or book (.txt, or a .tar or .zip of them), JSON Lines (.jsonl), CSV, TSV, Parquet, a folder
    of any of these, a pattern such as 'dumps/*.bz2', or a data set from the Hugging Face Hub
    (hf:NAME[:CONFIG[:SPLIT]]) or saved to disk (hf:FOLDER). Options after -- go to Apache Beam.
    """
    from ..pipeline.documents.pipeline import IngestStage
    from ..pipeline.documents.pipeline import ingest as run_ingest
    from ..pipeline.execution.estimate import estimate_stage

    config = make_config(IngestConfig, values)
    options = make_config(RunOptions, values, beam_options=ctx.obj or ())
    if explain is not None:
        from ..pipeline.documents.explain import explain as explain_document

        print_explanation(explain_document(sources, explain, config))
        return None
    if output is None:
        # Not `required=True` on the option, because --explain writes nothing.
        raise click.UsageError("Missing option '--output'.")
    if options.dry_run:
        stage = IngestStage(sources=sources, output=output, config=config, max_bad=options.max_bad)
        return summarize_dry_run(stage, estimate_stage(stage, options))
    with data_stage_terminal(options.verbose) as progress:
        manifest = run_ingest(sources, output, config, options, progress)
    return summarize_documents(output, manifest)


def print_explanation(explanation: "Explanation") -> None:
    """Print a document's sentences, and what was left out of it: why, and how many words."""
    heading = explanation.doc_id
    if explanation.title:
        heading += f" ({explanation.title})"
    click.echo(printable(f"{heading}\n\nkept:"))
    for sentence in explanation.sentences or ["nothing"]:
        click.echo(printable(f"  {sentence}"))

    click.echo("\nleft out:")
    num_words: Counter[str] = Counter()
    for passage in explanation.left_out:
        num_words[passage.reason] += passage.num_words
        # Without text: all of it was left out in parts, which are shown for reasons of their own.
        if passage.text:
            reason = in_words(passage.reason)
            shown = printable(_shortened(passage.text))
            click.echo(f"  {passage.num_words:>6,} {reason}: {shown}")

    click.echo("\nwords:")
    num_kept = count_words(" ".join(explanation.sentences))
    click.echo(f"{num_kept:>8,} kept")
    for reason, count in num_words.most_common():
        if count >= 0:
            click.echo(f"{count:>8,} left out as {in_words(reason)}")
        else:
            # "{{convert|5|km|mi}}" is one word of markup, and five words of text.
            click.echo(f"{-count:>8,} added by templates and formulas")
    from ..pipeline.text.wikitext.repair import GAP

    if any(GAP in passage.text for passage in explanation.left_out):
        click.echo(f"\n{GAP} stands for a formula, template or list that was removed.")


def _shortened(text: str) -> str:
    if len(text) <= LONGEST_SHOWN:
        return text
    return f"{text[:LONGEST_SHOWN]} …"
