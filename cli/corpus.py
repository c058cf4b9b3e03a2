"""Define the command ``clozeworks corpus``."""

import click

from ..pipeline.config import BuildConfig, IngestConfig, RunOptions, VocabConfig
from .data_summary import summarize_documents, summarize_instances, summarize_vocabulary
from .options import GroupedCommand, config_options, make_config, max_bad_option
from .output import CommandSummary
from .progress import data_stage_terminal


@click.command(cls=GroupedCommand)
@click.argument("sources", type=click.Path(), nargs=-1, required=True, metavar="SOURCE...")
@click.option(
    "--output",
    type=click.Path(),
    required=True,
    metavar="CORPUS",
    help="Directory for the folders documents, vocab and instances.",
)
@config_options(IngestConfig, VocabConfig, BuildConfig, RunOptions, without=("dry_run",))
@max_bad_option
@click.pass_context
def corpus(
    ctx: click.Context, sources: tuple[str, ...], output: str, **values: object
) -> list[CommandSummary]:
    """Run ingest, vocab and build, one after the other.

    SOURCE is what `clozeworks ingest` takes. Each folder is what its own command writes, and that
    command can resume it too; an option that two of them have is for both. Options after -- go to
    Apache Beam, which then runs all three stages as one pipeline, by default on this machine.
    """
    from ..pipeline.corpus import make_corpus

    ingest = make_config(IngestConfig, values)
    vocab = make_config(VocabConfig, values)
    build = make_config(BuildConfig, values)
    options = make_config(RunOptions, values, beam_options=ctx.obj or ())
    with data_stage_terminal(options.verbose) as progress:
        manifests = make_corpus(sources, output, ingest, vocab, build, options, progress)
    return [
        summarize_documents(f"{output}/documents", manifests.documents),
        summarize_vocabulary(f"{output}/vocab", manifests.vocabulary),
        summarize_instances(f"{output}/instances", manifests.instances),
    ]
