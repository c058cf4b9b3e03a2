"""Define the command ``clozeworks ingest``."""

import click

from ..pipeline.config import IngestConfig, RunOptions
from .data_summary import summarize_documents, summarize_dry_run
from .options import GroupedCommand, config_options, make_config, max_bad_option
from .output import CommandSummary
from .progress import data_stage_terminal


@click.command(cls=GroupedCommand)
@click.argument("sources", type=click.Path(), nargs=-1, required=True, metavar="SOURCE...")
@click.option(
    "--output",
    type=click.Path(),
    required=True,
    metavar="DOCUMENTS",
    help="Directory to write the documents to.",
)
@config_options(IngestConfig, RunOptions)
@max_bad_option
@click.pass_context
def ingest(
    ctx: click.Context, sources: tuple[str, ...], output: str, **values: object
) -> CommandSummary:
    """Turn dumps, books and tables into clean documents, shuffled, split and sharded.

    A SOURCE is a Wikipedia XML dump (.xml, .xml.bz2, .xml.gz, .xml.xz), WikiExtractor output, a
    text or book (.txt), JSON Lines (.jsonl), CSV, TSV, Parquet, a folder
    of any of these, a pattern such as 'dumps/*.bz2', or a data set from the Hugging Face Hub
    (hf:NAME[:CONFIG[:SPLIT]]) or saved to disk (hf:FOLDER). Options after -- go to Apache Beam.
    """
    from ..pipeline.documents.pipeline import IngestStage
    from ..pipeline.documents.pipeline import ingest as run_ingest
    from ..pipeline.execution.runner import estimate_stage

    config = make_config(IngestConfig, values)
    options = make_config(RunOptions, values, beam_options=ctx.obj or ())
    if options.dry_run:
        stage = IngestStage(sources=sources, output=output, config=config, max_bad=options.max_bad)
        return summarize_dry_run(stage, estimate_stage(stage, options))
    with data_stage_terminal(options.verbose) as progress:
        manifest = run_ingest(sources, output, config, options, progress)
    return summarize_documents(output, manifest)
