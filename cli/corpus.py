"""Define the command ``clozeworks corpus``."""

import dataclasses

import click
import msgspec

from ..pipeline.config import BuildConfig, IngestConfig, RunOptions, VocabConfig
from ..pipeline.errors import UserError
from ..pipeline.parsing import convert_values, describe_fault
from .data_summary import summarize_documents, summarize_instances, summarize_vocabulary
from .options import check_names, checked_by, make_config, max_bad_option, read_tables
from .summary import CommandSummary
from .terminal import data_stage_terminal

CONFIGS = {"ingest": IngestConfig, "vocab": VocabConfig, "build": BuildConfig}
FLAGS = {
    "language": "ingest",
    "validation_share": "ingest",
    "size": "vocab",
    "max_length": "build",
    "duplicates": "build",
}
"""Options of the stages that have a flag here."""


def _help_of(name: str) -> str:
    fields = {field.name: field for field in dataclasses.fields(CONFIGS[FLAGS[name]])}
    return fields[name].metadata["help"]


def _stage_configs(
    config: str | None, **values: object
) -> tuple[IngestConfig, VocabConfig, BuildConfig]:
    """Return the configs of the stages from the options of `corpus`."""
    tables = _stage_tables(config)
    for name, stage in FLAGS.items():
        if values[name] is not None:  # the command line overrides the file
            tables[stage][name] = values[name]
    try:
        return (
            convert_values(tables["ingest"], IngestConfig),
            convert_values(tables["vocab"], VocabConfig),
            convert_values(tables["build"], BuildConfig),
        )
    except msgspec.ValidationError as error:
        raise UserError(f"--config {config} is not valid ({describe_fault(error)}).") from None


def _stage_tables(path: str | None) -> dict[str, dict[str, object]]:
    """Return the options of each stage by field name."""
    tables: dict[str, dict[str, object]] = {stage: {} for stage in CONFIGS}
    if path is None:
        return tables
    top_level, tables_by_command = read_tables(path, click.get_current_context())
    for name in top_level:
        raise UserError(
            f"--config {path}: {name} is in none of the tables: put it under [ingest], [vocab] or "
            "[build]."
        )
    for stage, config in CONFIGS.items():
        tables[stage] |= tables_by_command.get(stage, {})
        # Checked here, because `convert_values` ignores names that it does not know.
        fields = [field.name for field in dataclasses.fields(config)]
        check_names(tables[stage], fields, stage, path)
    return tables


@click.command()
@click.argument("sources", type=click.Path(), nargs=-1, required=True, metavar="SOURCE...")
@click.option(
    "--output",
    type=click.Path(),
    required=True,
    metavar="CORPUS",
    help="Directory for the folders documents, vocab and instances.",
)
@click.option("--language", help=_help_of("language"))
@click.option("--validation-share", type=float, help=_help_of("validation_share"))
@click.option("--size", type=int, help=_help_of("size"))
@click.option("--max-length", type=int, help=_help_of("max_length"))
@click.option("--duplicates", type=int, help=_help_of("duplicates"))
@click.option(
    "--config",
    type=click.Path(dir_okay=False),
    help="TOML file with all other options of the stages, in the tables ingest, vocab and build.",
)
@click.option(
    "--workers",
    type=int,
    default=0,
    show_default=True,
    help="Number of worker processes on this machine; 0 means one per core, or one for little "
    "input.",
)
@max_bad_option
@click.option(
    "--overwrite", is_flag=True, help="Delete the three folders' contents and start over."
)
@click.option("--verbose", "-v", is_flag=True, help="Show the logs of libraries and Apache Beam.")
@checked_by(_stage_configs)
@click.pass_context
def corpus(
    ctx: click.Context, sources: tuple[str, ...], output: str, config: str | None, **values: object
) -> list[CommandSummary]:
    """Run ingest, vocab and build, one after the other.

    SOURCE is what `clozeworks ingest` takes. Each folder is what its own command writes, and that
    command can resume it too. Options after -- go to Apache Beam, which then runs all three stages
    as one pipeline, by default on this machine.
    """
    from ..pipeline.corpus import make_corpus

    configs = _stage_configs(config, **values)
    options = make_config(RunOptions, values, beam_options=ctx.obj or ())
    with data_stage_terminal(options.verbose) as progress:
        manifests = make_corpus(
            sources,
            output,
            *configs,
            options,
            progress,
        )
    return [
        summarize_documents(f"{output}/documents", manifests.documents),
        summarize_vocabulary(f"{output}/vocab", manifests.vocabulary),
        summarize_instances(f"{output}/instances", manifests.instances),
    ]
