"""Define the command ``clozeworks vocab``."""

import click

from ..pipeline.config import RunOptions, VocabConfig
from .data_summary import held_out_rows, summarize_dry_run, summarize_vocabulary
from .options import GroupedCommand, config_options, make_config
from .output import CommandSummary
from .progress import data_stage_terminal


@click.command(cls=GroupedCommand)
@click.argument("documents", type=click.Path())
@click.option(
    "--output",
    type=click.Path(),
    required=True,
    metavar="VOCAB",
    help="Directory to write the vocabulary to.",
)
@click.option(
    "--compare",
    type=click.Path(),
    multiple=True,
    metavar="OTHER",
    help="Also measure this vocabulary: a directory, vocab.txt or tokenizer.json. Repeatable.",
)
@config_options(VocabConfig, RunOptions)
@click.pass_context
def vocab(
    ctx: click.Context, documents: str, output: str, compare: tuple[str, ...], **values: object
) -> CommandSummary:
    """Learn a vocabulary from the words in DOCUMENTS; every run gives the same one.

    Options after -- go to Apache Beam.
    """
    from ..pipeline.execution.runner import estimate_stage
    from ..pipeline.vocabulary.files import read_vocabulary
    from ..pipeline.vocabulary.pipeline import (
        VocabularyStage,
        learn_vocabulary,
        measure_vocabulary,
    )

    for other in compare:  # report a wrong name before the work
        read_vocabulary(other)
    config = make_config(VocabConfig, values)
    options = make_config(RunOptions, values, beam_options=ctx.obj or ())
    if options.dry_run:
        stage = VocabularyStage(documents=documents, output=output, config=config)
        return summarize_dry_run(stage, estimate_stage(stage, options))
    with data_stage_terminal(options.verbose) as progress:
        manifest = learn_vocabulary(documents, output, config, options, progress)
    summary = summarize_vocabulary(output, manifest)
    for other in compare:
        measured = measure_vocabulary(documents, other)
        summary.rows.append(("compared with", other))
        summary.rows.extend(held_out_rows(measured))
    return summary
