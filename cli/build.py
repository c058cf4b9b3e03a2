"""Define the command ``clozeworks build``."""

from typing import TYPE_CHECKING, Any

import click

from ..pipeline.config import BuildConfig, RunOptions
from ..pipeline.execution.counters import count_of
from .options import GroupedCommand, config_options, make_config
from .summary import CommandSummary, summarize_dry_run, summarize_shards, warn
from .terminal import data_stage_terminal

if TYPE_CHECKING:
    from ..pipeline.manifests import InstancesShard

NUM_WARNINGS = 3


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
    ctx: click.Context, documents: str, vocab: str, output: str, **values: Any
) -> CommandSummary:
    """Turn DOCUMENTS into masked sentence pairs in Parquet.

    Options after -- go to Apache Beam.
    """
    from ..pipeline.instances.pipeline import build as run_build
    from ..pipeline.instances.pipeline import estimate_build

    config = make_config(BuildConfig, values)
    options = make_config(RunOptions, values, beam_options=ctx.obj or ())
    if options.dry_run:
        estimate = estimate_build(documents, vocab, output, config, options)
        return summarize_dry_run("build", output, estimate)
    with data_stage_terminal(options.verbose) as progress:
        manifest = run_build(documents, vocab, output, config, options, progress)
    _warn(manifest.shards)
    return summarize_shards("build", output, manifest)


def _warn(shards: "list[InstancesShard]") -> None:
    """Warn of shards whose labels could not be balanced."""
    shards_with_warnings = [shard for shard in shards if shard.warnings]
    for shard in shards_with_warnings[:NUM_WARNINGS]:
        warn(f"{shard.name}: {shard.warnings[0]}")
    num_more = len(shards_with_warnings) - NUM_WARNINGS
    if num_more > 0:
        warn(f"{count_of(num_more, 'more shard')} with such warnings; see the manifest")
