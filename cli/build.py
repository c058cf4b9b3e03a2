"""Define the command ``clozeworks build``."""

import click

from ..pipeline.config import BuildConfig, RunOptions
from .data_summary import summarize_dry_run, summarize_instances
from .options import GroupedCommand, config_options, make_config
from .output import CommandSummary
from .progress import data_stage_terminal


@click.command(cls=GroupedCommand)
@click.argument("documents", type=click.Path())
@click.option(
    "--vocab",
    type=click.Path(),
    required=True,
    metavar="VOCAB",
    help="Directory with the vocabulary, or a vocab.txt or tokenizer.json.",
)
@click.option(
    "--output",
    type=click.Path(),
    required=True,
    metavar="INSTANCES",
    help="Directory to write the instances to.",
)
@config_options(BuildConfig, RunOptions)
@click.pass_context
def build(
    ctx: click.Context, documents: str, vocab: str, output: str, **values: object
) -> CommandSummary:
    """Turn DOCUMENTS into masked sentence pairs in Parquet.

    Options after -- go to Apache Beam.
    """
    from ..pipeline.execution.runner import estimate_stage
    from ..pipeline.instances.pipeline import InstancesStage
    from ..pipeline.instances.pipeline import build as run_build

    config = make_config(BuildConfig, values)
    options = make_config(RunOptions, values, beam_options=ctx.obj or ())
    if options.dry_run:
        stage = InstancesStage(documents=documents, vocab=vocab, output=output, config=config)
        return summarize_dry_run(stage, estimate_stage(stage, options))
    with data_stage_terminal(options.verbose) as progress:
        manifest = run_build(documents, vocab, output, config, options, progress)
    return summarize_instances(output, manifest)
