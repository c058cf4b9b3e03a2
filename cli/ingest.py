"""``clozeworks ingest``."""

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from ..pipeline.config import IngestConfig, RunOptions
from ..pipeline.execution.counters import count_of, count_words, name_counts
from ..pipeline.languages import UNKNOWN
from .options import config_options, make_config
from .summary import CommandSummary, summarize_dry_run, summarize_shards, warn

if TYPE_CHECKING:
    from ..pipeline.documents.explain import Explanation
    from ..pipeline.manifests import DocumentsManifest

LONGEST_SHOWN = 200


@click.command()
@click.argument("sources", type=click.Path(), nargs=-1, required=True, metavar="SOURCE...")
@click.option(
    "--output",
    type=click.Path(),
    metavar="DOCUMENTS",
    help="Directory to write the documents to (required unless --explain is given).",
)
@click.option(
    "--explain",
    metavar="DOCUMENT",
    help="Only show what is kept and left out of one document, and why: of the first with this id "
    "or title.",
)
@config_options(IngestConfig, RunOptions)
@click.pass_context
def ingest(
    ctx: click.Context,
    sources: tuple[str, ...],
    output: str | None,
    explain: str | None,
    **values: Any,
) -> CommandSummary | None:
    """Turn dumps, books and tables into clean documents, shuffled, split and sharded.

    A SOURCE is a Wikipedia XML dump (.xml, .xml.bz2, .xml.gz, .xml.xz), WikiExtractor output, a
    text or book (.txt, or a .tar or .zip of them), JSON Lines (.jsonl), CSV, TSV, Parquet, a folder
    of any of these, a pattern such as 'dumps/*.bz2', or a data set from the Hugging Face Hub
    (hf:NAME[:CONFIG[:SPLIT]]) or saved to disk (hf:FOLDER). Options after -- go to Apache Beam.
    """
    from ..pipeline.documents.pipeline import estimate
    from ..pipeline.documents.pipeline import ingest as run_ingest

    config, options = (
        make_config(IngestConfig, values),
        make_config(RunOptions, values, beam_options=ctx.obj or ()),
    )
    if explain is not None:
        from ..pipeline.documents.explain import explain as explain_document

        print_explanation(explain_document(sources, explain, config))
        return None
    if output is None:
        raise click.UsageError("Missing option '--output'.")
    if options.dry_run:
        return summarize_dry_run("ingest", output, estimate(sources, output, config, options))
    manifest = run_ingest(sources, output, config, options)
    _warn(manifest)
    return summarize_shards("ingest", output, manifest)


def print_explanation(explanation: "Explanation") -> None:
    """Print the sentences of a document, what was left out of it by reason, and the number of words
    of each.
    """
    title = f" ({explanation.title})" if explanation.title else ""
    click.echo(f"{explanation.doc_id}{title}\n\nkept:")
    for sentence in explanation.sentences or ["nothing"]:
        click.echo(f"  {sentence}")
    click.echo("\nleft out:")
    num_words: Counter[str] = Counter()
    for entry in explanation.left_out:
        num_words[entry.reason] += entry.num_words
        if entry.text:
            reason = entry.reason.replace("_", " ")
            click.echo(f"  {entry.num_words:>6,} {reason}: {_shortened(entry.text)}")
    click.echo("\nwords:")
    click.echo(f"{count_words(' '.join(explanation.sentences)):>8,} kept")
    for reason, count in num_words.most_common():
        click.echo(f"{count:>8,} left out as {reason.replace('_', ' ')}")


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]} …"


def _warn(manifest: "DocumentsManifest") -> None:
    """Warn of skipped input, and of files that only one worker can read."""
    counts, bad = manifest.counts, manifest.bad
    if bad:
        reason = min(bad, key=lambda reason: (-bad[reason], reason))
        first = f"{reason.replace('_', ' ')} at {manifest.examples[reason][0]}"
        warn(f"bad input: {name_counts(bad)}; for example {first}")
    if num_files := counts.get("files_of_unknown_format", 0):
        names = ", ".join(manifest.examples["files_of_unknown_format"])
        skipped = f"{count_of(num_files, 'file')} of unknown format"
        warn(f"skipped {skipped}, for example {names}; give --format to read all")
    if num_folders := counts.get("linked_folders", 0):
        names = ", ".join(manifest.examples["linked_folders"])
        skipped = count_of(num_folders, "linked folder")
        warn(f"skipped {skipped}, for example {names}; to read them, name them as sources")
    if num_files := counts.get("single_stream_files", 0):
        files = count_of(num_files, "single-stream .bz2 file")
        warn(f"{files} can be read by only one worker each; use multistream dumps")
    if num_unknown := manifest.languages.get(UNKNOWN, 0):
        split = "sentences are split as in English; give --language for them"
        warn(f"the language of {count_of(num_unknown, 'document')} is unknown: {split}")
    removed = {
        "duplicate_texts": "exact duplicate",
        "near_duplicates": "near-duplicate",
        "repeated_ids": "repeated id",
    }
    for reason, what in removed.items():
        if num_removed := counts.get(reason, 0):
            warn(
                f"removed {count_of(num_removed, what)}; for example {manifest.examples[reason][0]}"
            )
