"""``clozeworks ingest``."""

from typing import Any

import click

from ..pipeline.config import IngestConfig, RunOptions
from ..pipeline.execution.counters import count_of, name_counts
from .options import config_options, make_config
from .summary import CommandSummary, summarize_dry_run, summarize_shards, warn


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option("--output", required=True, metavar="DOCUMENTS", help="Directory to write the documents to.")
@config_options(IngestConfig, RunOptions)
@click.pass_context
def ingest(ctx: click.Context, sources: tuple[str, ...], output: str, **values: Any) -> CommandSummary:
    """Turn dumps, books and tables into clean documents, shuffled, split and sharded.

    A SOURCE is a Wikipedia XML dump (.xml, .xml.bz2, .xml.gz, .xml.xz), WikiExtractor's output, a text or a book (.txt,
    or a .tar or .zip of them), JSON Lines (.jsonl), Parquet, a folder of any of these, a pattern such as 'dumps/*.bz2',
    or a data set of the Hugging Face hub (hf:NAME[:CONFIG[:SPLIT]]) or saved to disk (hf:FOLDER). Options for Apache
    Beam follow after --.
    """
    from ..pipeline.ingest.pipeline import estimate
    from ..pipeline.ingest.pipeline import ingest as run_ingest

    config, options = make_config(IngestConfig, values), make_config(RunOptions, values, beam_options=ctx.obj or ())
    if options.dry_run:
        return summarize_dry_run("ingest", output, estimate(sources, output, config, options))
    manifest = run_ingest(sources, output, config, options)
    _warn(manifest)
    return summarize_shards("ingest", output, manifest)


def _warn(manifest: dict[str, Any]) -> None:
    """Say what was left out, and what kept the work from being shared out."""
    counts, bad = manifest["counts"], manifest["bad"]
    if bad:
        reason = min(bad, key=lambda reason: (-bad[reason], reason))
        first = f"{reason.replace('_', ' ')} at {manifest['examples'][reason][0]}"
        warn(f"bad input: {name_counts(bad)}; for instance {first}")
    if num_files := counts.get("files_of_unknown_format", 0):
        names = ", ".join(manifest["examples"]["files_of_unknown_format"])
        warn(
            f"left out {count_of(num_files, 'file')} in no known format, for instance {names}; say --format to read all"
        )
    if num_files := counts.get("single_stream_files", 0):
        warn(f"{count_of(num_files, '.bz2 file')} of a single stream, for one worker only; take the multistream dump")
    for reason, what in (("duplicate_texts", "equals another's"), ("near_duplicates", "is nearly another's")):
        if num_documents := counts.get(reason, 0):
            first = manifest["examples"][reason][0]
            warn(f"left out {count_of(num_documents, 'document')} whose text {what}; for instance {first}")
    if num_documents := counts.get("repeated_ids", 0):
        first = manifest["examples"]["repeated_ids"][0]
        warn(f"left out {count_of(num_documents, 'document')} whose id another has; for instance {first}")
