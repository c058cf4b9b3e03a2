"""Define the command ``clozeworks audit``."""

import json
from typing import TYPE_CHECKING

import click

from ..pipeline.errors import UserError
from .data_summary import WORDS_BAR
from .failures import with_flags
from .options import check_suffix
from .output import print_table, printable, settings, tell
from .summary import CommandSummary, print_summaries

if TYPE_CHECKING:
    from ..pipeline.auditing.documents import DocumentsAudit
    from ..pipeline.auditing.verdict import Audit

NUM_EXAMPLES = 6
MARKS = {
    "ok": ("ok", "green"),
    "bad": ("BAD", "bold red"),
    "warn": ("warning", "yellow"),
    "unjudged": ("not judged", "yellow"),
    "info": ("", ""),
}
"""The text and style of each verdict."""


@click.command()
@click.argument("directory", type=click.Path())
@click.option(
    "--documents",
    type=click.Path(),
    help="Also measure these documents, which the instances were built from. "
    "With --report, documents beside the instances are the default.",
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
    help="First read every file and compare its digest with the manifest's.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the measurements as JSON.")
@click.pass_context
def audit(
    ctx: click.Context,
    directory: str,
    documents: str | None,
    report: str | None,
    verify: bool,
    as_json: bool,
) -> CommandSummary | None:
    """Measure instances, or documents, in DIRECTORY.

    Instances are checked against their build options; the exit code is 1 if anything is out of
    tolerance. Documents are measured without a vocabulary: sizes, lengths, what was left out, and
    signs of bad text, such as markup. Checksums of pages are always verified; --verify compares
    whole files.
    """
    from ..pipeline.storage.stage import read_any_manifest, verify_files

    if report is not None:
        check_suffix("report", report, ".html", "a web page, which a browser prints as PDF")
    if verify:
        verify_files(directory)
    stage = read_any_manifest(directory).stage
    if stage == "vocab":
        raise UserError(
            f"{directory} was written by `clozeworks vocab`; "
            "audit measures instances and documents."
        )
    has_failed = False
    if stage == "ingest":
        if documents:
            raise UserError(f"--documents is for instances, but {directory} has documents.")
        measured = _audit_documents(directory, report, as_json)
    else:
        measured = _audit_instances(directory, documents, report, as_json)
        has_failed = bool(measured.failed)
    sentence = with_flags(measured.sentence)
    rows = [("verdict", sentence)]
    if report:
        rows.append(("report", report))
    summary = CommandSummary("audit", directory, rows)
    if has_failed:
        # `ctx.exit` leaves at once: `main` prints no summary afterwards.
        if not as_json:
            print_summaries([summary])
        tell("notice", sentence)
        ctx.exit(1)
    if as_json:
        return None  # a summary would follow the JSON
    return summary


def _audit_documents(directory: str, report: str | None, as_json: bool) -> "DocumentsAudit":
    """Measure, print and report documents."""
    from ..pipeline.auditing.documents import audit_documents
    from ..pipeline.auditing.report import render_documents

    measured = audit_documents(directory)
    if as_json:
        _print_json(directory, measured)
    elif not settings.is_quiet:
        _print_documents(measured)
    if report:
        _write(report, render_documents(directory, measured))
    return measured


def _audit_instances(
    directory: str, documents: str | None, report: str | None, as_json: bool
) -> "Audit":
    """Measure, print and report instances."""
    from ..pipeline.auditing.beside import documents_beside
    from ..pipeline.auditing.checks import audit as measure
    from ..pipeline.auditing.decode import first_examples
    from ..pipeline.auditing.report import render_instances

    measured_documents = documents
    if report and not documents:
        measured_documents = documents_beside(directory)
    measured = measure(directory, measured_documents)
    if as_json:
        _print_json(directory, measured)
    elif not settings.is_quiet:
        _print_checks(measured)
        if documents and measured.documents:
            click.echo()
            _print_documents(measured.documents)
    if report:
        titles = measured.documents.directory if measured.documents else None
        examples = first_examples(directory, NUM_EXAMPLES, titles)
        _write(report, render_instances(directory, measured, examples))
    return measured


def _print_json(directory: str, measured: "Audit | DocumentsAudit") -> None:
    click.echo(json.dumps({directory: measured.to_json()}, indent=1))


def _write(path: str, page: str) -> None:
    from ..pipeline.storage.directory import write_file

    with write_file(path) as file:
        file.write(page.encode())


def _print_checks(measured: "Audit") -> None:
    from rich.table import Column
    from rich.text import Text

    rows = []
    for check in measured.checks:
        mark = Text(*MARKS[check.verdict])
        rows.append((check.name, with_flags(check.measured_and_advice), check.asked, mark))
    print_table(["check", Column("measured", overflow="fold"), "expected", ""], rows)


def _print_documents(measured: "DocumentsAudit") -> None:
    """Print the sizes by source and language, the signs of bad text with an example of each, and
    the counters of what was left out.
    """
    click.echo(printable(f"documents in {measured.directory}"))
    _print_sizes(measured)
    click.echo()
    signs = []
    for sign in measured.signs:
        examples = [f"{text} ({document})" for document, text in sign.examples]
        signs.append((sign.name, sign.count, examples))
    _print_counts("sign", signs)
    click.echo()
    left_out = [(each.name, each.count, each.examples) for each in measured.counted]
    _print_counts("read and left out by ingest", left_out)
    click.echo()
    _print_words(measured)
    click.echo()


def _print_sizes(measured: "DocumentsAudit") -> None:
    from rich.table import Column

    headings = (
        "documents",
        "sentences",
        "characters",
        "sentences per document",
        "characters per sentence",
    )
    columns = [Column(heading, justify="right") for heading in headings]
    rows = []
    for origin in measured.origins:
        row = (
            origin.source,
            origin.language,
            f"{origin.documents:,}",
            f"{origin.sentences:,}",
            f"{origin.characters:,}",
            f"{origin.sentences / max(origin.documents, 1):,.1f}",
            f"{origin.characters / max(origin.sentences, 1):,.1f}",
        )
        rows.append(row)
    print_table(["source", "language", *columns], rows)


def _print_words(measured: "DocumentsAudit") -> None:
    """Print the words kept, and left out by reason, with a bar of each share."""
    from rich.table import Column

    rows = []
    for name, count, share in measured.word_shares:
        label = name if name == "kept" else f"left out: {name}"
        rows.append((label, f"{count:,}", f"{share:.1%}", "█" * round(share * WORDS_BAR)))
    columns = [Column(heading, justify="right") for heading in ("count", "share")]
    print_table(["words", *columns, ""], rows)


def _print_counts(heading: str, counts: list[tuple[str, int, list[str]]]) -> None:
    """Print (name, count, examples), with the first example of each."""
    from rich.table import Column

    rows = []
    for name, count, examples in counts:
        example = examples[0] if examples else ""
        rows.append((name, f"{count:,}", example))
    columns = [Column("count", justify="right"), Column("for example", overflow="fold")]
    print_table([heading, *columns], rows)
