"""``clozeworks ingest``."""

from typing import Any

import click

from ..pipeline.config import IngestConfig, RunOptions
from .made import Made, made_shards
from .options import config_options, make_config


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option("--output", required=True, metavar="DOCUMENTS", help="Directory to write the documents to.")
@config_options(IngestConfig, RunOptions)
@click.pass_context
def ingest(ctx: click.Context, sources: tuple[str, ...], output: str, **values: Any) -> Made:
    """Turn dumps, books and tables into clean documents, shuffled, split and sharded.

    A SOURCE is a Wikipedia XML dump (.xml, .xml.bz2, .xml.gz, .xml.xz), a plain-text book, a Parquet file with a text
    column, a folder of any of these, or a pattern such as 'dumps/*.bz2'. Options for Apache Beam follow after --.
    """
    from ..pipeline.ingest import ingest as run_ingest

    options = make_config(RunOptions, values, beam_options=ctx.obj or ())
    manifest = run_ingest(sources, output, make_config(IngestConfig, values), options)
    return made_shards("ingest", output, manifest)
