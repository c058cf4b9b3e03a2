"""``clozeworks build``."""

from typing import TYPE_CHECKING, Any

import click

from ..pipeline.config import BuildConfig, RunOptions
from ..pipeline.execution.counters import count_of
from .failures import fields_as_flags
from .options import config_options, make_config
from .summary import CommandSummary, summarize_dry_run, summarize_shards, warn

if TYPE_CHECKING:
    from ..pipeline.manifests import InstancesShard

NUM_WARNINGS = 3


@click.command()
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
    from ..pipeline.instances.pipeline import estimate

    config, options = (
        make_config(BuildConfig, values),
        make_config(RunOptions, values, beam_options=ctx.obj or ()),
    )
    if options.dry_run:
        return summarize_dry_run(
            "build", output, estimate(documents, vocab, output, config, options)
        )
    manifest = run_build(documents, vocab, output, config, options)
    _warn(manifest.shards)
    return summarize_shards("build", output, manifest)


def _warn(shards: "list[InstancesShard]") -> None:
    """Warn of shards whose labels could not be balanced."""
    warnings = [f"{shard.name}: {shard.warnings[0]}" for shard in shards if shard.warnings]
    for warning in warnings[:NUM_WARNINGS]:
        warn(fields_as_flags(warning, [build]))
    if num_more := len(warnings[NUM_WARNINGS:]):
        warn(f"{count_of(num_more, 'more shard')} with such warnings; see the manifest")
