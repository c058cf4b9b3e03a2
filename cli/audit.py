"""Define the command ``clozeworks audit``."""

import json
from collections.abc import Mapping
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
@click.argument("other", type=click.Path(), required=False)
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
    other: str | None,
    documents: str | None,
    report: str | None,
    verify: bool,
    as_json: bool,
) -> CommandSummary | None:
    """Measure instances, or documents, in DIRECTORY.

    Instances are checked against their build options; the exit code is 1 if anything is out of
    tolerance. Documents are measured without a vocabulary: sizes, lengths, what was left out, and
    signs of bad text, such as markup. OTHER, a second directory of the same kind, is shown beside
    the first. Checksums of pages are always verified; --verify compares whole files.
    """
    from ..pipeline.storage.stage import read_any_manifest, verify_files

    if report is not None:
        check_suffix("report", report, ".html", "a web page, which a browser prints as PDF")
    directories = [directory]
    if other:
        directories.append(other)
    if verify:
        for each in directories:
            verify_files(each)
    stage = read_any_manifest(directory).stage
    if stage == "vocab":
        raise UserError(
            f"{directory} was written by `clozeworks vocab`; "
            "audit measures instances and documents."
        )
    failed = []
    if stage == "ingest":
        if documents:
            raise UserError(f"--documents is for instances, but {directory} has documents.")
        audits = _audit_documents(directories, report, as_json)
    else:
        audits = _audit_instances(directories, documents, report, as_json)
        failed = [name for name, measured in audits.items() if measured.failed]
    sentences = {name: with_flags(measured.sentence) for name, measured in audits.items()}
    if len(sentences) > 1:
        sentences = {name: f"{name}: {sentence}" for name, sentence in sentences.items()}
    rows = [("verdict", sentence) for sentence in sentences.values()]
    if report:
        rows.append(("report", report))
    summary = CommandSummary("audit", directory, rows)
    if failed:
        # `ctx.exit` leaves at once: `main` prints no summary afterwards.
        if not as_json:
            print_summaries([summary])
        for name in failed:
            tell("notice", sentences[name])
        ctx.exit(1)
    if as_json:
        return None  # a summary would follow the JSON
    return summary


def _audit_documents(
    directories: list[str], report: str | None, as_json: bool
) -> "dict[str, DocumentsAudit]":
    """Measure, print and report documents."""
    from ..pipeline.auditing.documents import audit_documents
    from ..pipeline.auditing.report import render_documents

    audits = {directory: audit_documents(directory) for directory in directories}
    if as_json:
        _print_json(audits)
    elif not settings.is_quiet:
        for measured in audits.values():
            _print_documents(measured)
    if report:
        _write(report, render_documents(audits))
    return audits


def _audit_instances(
    directories: list[str], documents: str | None, report: str | None, as_json: bool
) -> "dict[str, Audit]":
    """Measure, print and report instances; `documents` are those of the first directory."""
    from ..pipeline.auditing.beside import documents_beside
    from ..pipeline.auditing.checks import audit as measure
    from ..pipeline.auditing.decode import first_examples
    from ..pipeline.auditing.report import render_instances

    first, *others = directories
    documents_of = {first: documents, **dict.fromkeys(others)}
    audits: dict[str, Audit] = {}
    for directory, measured_documents in documents_of.items():
        if report and not measured_documents:
            measured_documents = documents_beside(directory)
        audits[directory] = measure(directory, measured_documents)
    if as_json:
        _print_json(audits)
    elif not settings.is_quiet:
        _print_checks(audits)
        if documents and (measured := audits[first].documents):
            click.echo()
            _print_documents(measured)
    if report:
        measured = audits[first].documents
        examples = first_examples(first, NUM_EXAMPLES, measured.directory if measured else None)
        _write(report, render_instances(audits, examples))
    return audits


def _print_json(audits: "Mapping[str, Audit | DocumentsAudit]") -> None:
    values = {directory: measured.to_json() for directory, measured in audits.items()}
    click.echo(json.dumps(values, indent=1))


def _write(path: str, page: str) -> None:
    from ..pipeline.storage.directory import write_file

    with write_file(path) as file:
        file.write(page.encode())


def _print_checks(audits: "dict[str, Audit]") -> None:
    from rich.table import Column
    from rich.text import Text

    from ..pipeline.auditing.verdict import checks_by_name

    columns: list[str | Column] = ["check"]
    for directory in audits:
        heading = "measured" if len(audits) == 1 else directory
        columns += [Column(heading, overflow="fold"), "expected", ""]
    rows = []
    for name, checks in checks_by_name(audits.values()).items():
        cells: list[str | Text] = [name]
        for check in checks:
            if check is None:  # only the other directory has it
                cells += ["", "", ""]
            else:
                mark = Text(*MARKS[check.verdict])
                cells += [with_flags(check.measured_and_advice), check.asked, mark]
        rows.append(cells)
    print_table(columns, rows)


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
