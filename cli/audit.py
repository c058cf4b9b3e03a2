"""Define the command ``clozeworks audit``."""

import json
from dataclasses import asdict
from itertools import islice
from pathlib import PurePath
from typing import TYPE_CHECKING

import click

from ..pipeline.errors import UserError
from ..pipeline.manifests import DocumentsManifest, InstancesManifest, Manifest, VocabularyManifest
from .options import check_suffix
from .output import CommandSummary, print_summaries, print_table, settings, tell, with_flags

if TYPE_CHECKING:
    from ..pipeline.auditing.verdict import Audit

NUM_EXAMPLES = 6


@click.command()
@click.argument("directory", type=click.Path())
@click.option(
    "--documents",
    type=click.Path(),
    help="Documents that the instances were built from, if they are not beside them: what their "
    "sources and languages say about the labels is judged, too.",
)
@click.option(
    "--report",
    type=click.Path(),
    metavar="FILE.html",
    help="Also write a web page with plots and examples.",
)
@click.option(
    "--verify",
    is_flag=True,
    help="First read every file and compare its digest with the manifest's; of documents and "
    "vocabularies nothing else is checked.",
)
@click.option(
    "--against",
    type=click.Path(),
    multiple=True,
    metavar="FILE",
    help="Look for the texts of a task's file in the documents, by 13 words in a row; repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the measurements as JSON.")
@click.pass_context
def audit(
    ctx: click.Context,
    directory: str,
    documents: str | None,
    report: str | None,
    verify: bool,
    against: tuple[str, ...],
    as_json: bool,
) -> CommandSummary | None:
    """Judge instances in DIRECTORY against their build options.

    The exit code is 1 if a check fails; a warning does not change it. Checksums of pages are always
    verified; --verify compares whole files. If DIRECTORY holds documents, short words are listed
    whose full stop often ends a sentence (abbreviations for `ingest --abbreviations`), and
    machine-made articles are counted, whose ids are written into machine-made.jsonl there. With
    --against, test data are looked for in the documents.
    """
    from ..pipeline.auditing.checks import audit as measure
    from ..pipeline.storage.state import read_any_manifest, verify_files

    if report is not None:
        check_suffix("report", report, ".html", "a web page, which a browser prints as PDF")
    if against and (report or documents):
        raise UserError("--against looks in documents; --report and --documents are for instances.")
    if verify:
        verify_files(directory)
    if against:
        return _print_overlaps(directory, against, as_json)
    manifest = read_any_manifest(directory)
    if not isinstance(manifest, InstancesManifest):
        if not (report or as_json or documents):
            if verify:
                return _verified(directory, manifest)
            if isinstance(manifest, DocumentsManifest):
                return _look_at_documents(directory, manifest)
        raise UserError(
            f"{directory} was written by `clozeworks {manifest.stage}`; audit judges instances. "
            "`clozeworks show` prints documents, and `audit --verify` reads every file of any "
            "directory."
        )
    measured = measure(directory, documents)
    if as_json:
        click.echo(json.dumps({directory: measured.to_json()}, indent=1))
    elif not settings.is_quiet:
        _print_checks(measured)
    if report:
        _write_report(report, directory, measured)
    sentence = with_flags(measured.sentence)
    rows = [("verdict", sentence)]
    if report:
        rows.append(("report", report))
    summary = CommandSummary("audit", directory, rows)
    if measured.failed:
        # `ctx.exit` leaves at once: `main` prints no summary afterwards.
        if not as_json:
            print_summaries([summary])
        tell("notice", sentence)
        ctx.exit(1)
    return None if as_json else summary  # a summary would follow the JSON


def _verified(directory: str, manifest: Manifest) -> CommandSummary:
    from ..pipeline.vocabulary.files import verify_vocabulary

    if isinstance(manifest, VocabularyManifest):
        verify_vocabulary(directory, manifest.tokenizer.fingerprint)
    return CommandSummary("audit", directory, [("verdict", "All files are intact.")])


def _look_at_documents(directory: str, manifest: DocumentsManifest) -> CommandSummary:
    from ..pipeline.auditing.ends import abbreviated_ends
    from ..pipeline.auditing.machine_made import find_machine_made
    from ..pipeline.counters import name_counts
    from ..pipeline.storage.state import MACHINE_MADE

    ends = ", ".join(f"{word}. ({times})" for word, times in abbreviated_ends(directory))
    rows = [("short ends", ends or "none that repeats")]
    made, num_documents = find_machine_made(directory)
    share = len(made) / max(num_documents, 1)
    shown = f"{len(made):,} of {num_documents:,} documents ({share:.1%})"
    if made:
        shown += f"; {directory}/{MACHINE_MADE} lists them"
    rows.append(("machine-made", shown))
    if manifest.bad:
        rows.append(("bad input", f"{name_counts(manifest.bad)}; {directory}/bad lists it"))
    return CommandSummary("audit", directory, rows)


def _print_checks(measured: "Audit") -> None:
    from rich.text import Text

    marks = {
        "ok": ("ok", "green"),
        "bad": ("BAD", "bold red"),
        "warn": ("warning", "yellow"),
        "unjudged": ("not judged", "yellow"),
        "info": ("", ""),
    }
    checks = []
    for check in measured.checks:
        mark = Text(*marks[check.verdict])
        checks.append((check.name, with_flags(check.measured_and_advice), check.asked, mark))
    print_table(["check", "measured", "expected", ""], checks)


def _print_overlaps(directory: str, files: tuple[str, ...], as_json: bool) -> CommandSummary | None:
    from ..pipeline.auditing.overlap import find_overlaps

    overlaps = find_overlaps(directory, files)
    if as_json:
        click.echo(json.dumps([asdict(overlap) for overlap in overlaps], indent=1))
        return None
    rows = []
    for overlap in overlaps:
        shown = f"{overlap.file}: {overlap.in_words}"
        for row, doc_ids in sorted(overlap.found.items())[:NUM_EXAMPLES]:
            shown += f"\nrow {row:,} in {', '.join(doc_ids)}"
        rows.append(("against", shown))
    return CommandSummary("audit", directory, rows)


def _write_report(path: str, directory: str, measured: "Audit") -> None:
    from ..pipeline.auditing.decode import read_instances
    from ..pipeline.auditing.report import render_report
    from ..pipeline.storage.directory import write_file
    from ..pipeline.storage.shards import shard_paths
    from ..pipeline.storage.state import read_manifest
    from ..pipeline.vocabulary.files import read_vocabulary

    manifest = read_manifest(directory, InstancesManifest)
    vocabulary = read_vocabulary(directory)
    rows = read_instances(dict.fromkeys(shard_paths(directory, manifest, "train")), vocabulary)
    # Without the path, which is this machine's: a page is sent to others.
    name = PurePath(directory).name
    page = render_report(name, measured, list(islice(rows, NUM_EXAMPLES)))
    with write_file(path) as file:
        file.write(with_flags(page).encode())
