"""Define the commands ``clozeworks ingest``, ``vocab``, ``build``, and ``corpus`` for all three."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ..pipeline.config import BuildConfig, IngestConfig, RunOptions, VocabConfig
from .data_summary import (
    held_out_rows,
    summarize_documents,
    summarize_dry_run,
    summarize_instances,
    summarize_vocabulary,
)
from .options import GroupedCommand, config_options, make_config, path_option
from .output import CommandSummary, warn
from .progress import data_stage_terminal

if TYPE_CHECKING:
    from ..pipeline.execution.job import Stage

sources_argument = click.argument(
    "sources", type=click.Path(), nargs=-1, required=True, metavar="SOURCE..."
)


@click.command(cls=GroupedCommand)
@sources_argument
@path_option("--output", "DOCUMENTS", "Directory to write the documents to.")
@config_options(IngestConfig, RunOptions)
@click.pass_context
def ingest(
    ctx: click.Context, sources: tuple[str, ...], output: str, **values: object
) -> CommandSummary:
    """Turn dumps, books and tables into clean documents, shuffled, split and sharded.

    A SOURCE is a Wikipedia XML dump (.xml, .xml.bz2, .xml.gz, .xml.xz), WikiExtractor output, a
    text or book (.txt), JSON Lines (.jsonl), CSV, TSV, Parquet, a folder of any of these, a pattern
    such as 'dumps/*.bz2', or a data set from the Hugging Face Hub (hf:NAME[:CONFIG[:SPLIT]]) or
    saved to disk (hf:FOLDER). Options after -- go to Apache Beam.
    """
    from ..pipeline.documents.pipeline import IngestStage

    config = make_config(IngestConfig, values)
    options = make_config(RunOptions, values, beam_options=ctx.obj or ())
    stage = IngestStage(sources=sources, output=output, config=config, max_bad=options.max_bad)
    return _run(stage, options, summarize_documents)


def _run(
    stage: "Stage", options: RunOptions, summarize: Callable[[str, Any], CommandSummary]
) -> CommandSummary:
    if options.dry_run:
        return summarize_dry_run(stage, options)
    from ..pipeline.execution.runner import run_stage

    with data_stage_terminal(options.verbose) as progress:
        manifest = run_stage(stage, options, progress)
    return summarize(stage.output, manifest)


@click.command(cls=GroupedCommand)
@click.argument("documents", type=click.Path())
@path_option("--output", "VOCAB", "Directory to write the vocabulary to.")
@click.option(
    "--compare",
    type=click.Path(),
    multiple=True,
    metavar="OTHER",
    help="Also measure this vocabulary: a directory, vocab.txt or tokenizer.json. Repeatable.",
)
@config_options(VocabConfig, RunOptions, without=("max_bad",))
@click.pass_context
def vocab(
    ctx: click.Context,
    documents: str,
    output: str,
    compare: tuple[str, ...],
    **values: object,
) -> CommandSummary:
    """Learn a vocabulary from the words in DOCUMENTS; every run gives the same one.

    Options after -- go to Apache Beam.
    """
    from ..pipeline.vocabulary.files import read_vocabulary
    from ..pipeline.vocabulary.pipeline import VocabularyStage, measure_vocabulary

    for other in compare:  # report a wrong name before the work
        read_vocabulary(other).splitter()
    config = make_config(VocabConfig, values)
    options = make_config(RunOptions, values, beam_options=ctx.obj or ())
    stage = VocabularyStage(documents=documents, output=output, config=config)
    summary = _run(stage, options, summarize_vocabulary)
    for other in compare if not options.dry_run else ():
        measured = measure_vocabulary(documents, other)
        summary.rows.append(("compared with", other))
        summary.rows.extend(held_out_rows(measured))
    return summary


@click.command(cls=GroupedCommand)
@click.argument("documents", type=click.Path())
@path_option("--vocab", "VOCAB", "Directory with the vocabulary, or a vocab.txt or tokenizer.json.")
@path_option("--output", "INSTANCES", "Directory to write the instances to.")
@config_options(BuildConfig, RunOptions, without=("max_bad",))
@click.pass_context
def build(
    ctx: click.Context, documents: str, vocab: str, output: str, **values: object
) -> CommandSummary:
    """Turn DOCUMENTS into masked rows in Parquet: sentence pairs, unless --pairing is none.

    Options after -- go to Apache Beam.
    """
    from ..pipeline.instances.pipeline import InstancesStage
    from ..pipeline.vocabulary.files import unusual_class

    config = make_config(BuildConfig, values)
    options = make_config(RunOptions, values, beam_options=ctx.obj or ())
    stage = InstancesStage(documents=documents, vocab=vocab, output=output, config=config)
    if not options.dry_run and (notice := unusual_class(vocab)):
        warn(notice)
    return _run(stage, options, summarize_instances)


@click.command(cls=GroupedCommand)
@sources_argument
@path_option("--output", "CORPUS", "Directory for the folders documents, vocab and instances.")
@config_options(IngestConfig, VocabConfig, BuildConfig, RunOptions, without=("dry_run",))
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
