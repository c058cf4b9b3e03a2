"""``clozeworks build``."""

from typing import Any

import click

from ..pipeline.config import BuildConfig, RunOptions
from .made import Made, made_shards
from .options import config_options, make_config


@click.command()
@click.argument("documents")
@click.option("--vocab", required=True, metavar="VOCAB", help="Directory of the vocabulary, or a vocab.txt.")
@click.option("--output", required=True, metavar="INSTANCES", help="Directory to write the instances to.")
@config_options(BuildConfig, RunOptions)
@click.pass_context
def build(ctx: click.Context, documents: str, vocab: str, output: str, **values: Any) -> Made:
    """Turn DOCUMENTS into masked sentence pairs in Parquet.

    Options for Apache Beam follow after --.
    """
    from ..pipeline.build import build as run_build

    options = make_config(RunOptions, values, beam_options=ctx.obj or ())
    manifest = run_build(documents, vocab, output, make_config(BuildConfig, values), options)
    return made_shards("build", output, manifest)
