"""Define the command ``clozeworks audit``."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from ..pipeline.errors import UserError
from .failures import as_typed
from .options import check_suffix
from .output import make_console, printable, tell
from .summary import BAR_WIDTH, CommandSummary, print_summaries

if TYPE_CHECKING:
    from rich.table import Table

    from ..pipeline.auditing.documents import DocumentsAudit
    from ..pipeline.auditing.verdict import Audit

NUM_EXAMPLES = 6
MARKS = {
    "ok": "[green]ok[/]",
    "bad": "[bold red]BAD[/]",
    "warn": "[yellow]warning[/]",
    "unjudged": "[yellow]not judged[/]",
    "info": "",
}


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
    if stage == "ingest":
        if documents:
            raise UserError(f"--documents is for instances, but {directory} has documents.")
        sentences = _audit_documents(directories, report, as_json)
        failed = []
    else:
        sentences, failed = _audit_instances(directories, documents, report, as_json)
    rows = [("verdict", sentence) for sentence in sentences]
    if report:
        rows.append(("report", report))
    summary = CommandSummary("audit", directory, rows)
    if failed:
        # `ctx.exit` leaves at once: `main` prints no summary afterwards.
        if not as_json:
            print_summaries([summary])
        for sentence in failed:
            tell("notice", sentence)
        ctx.exit(1)
    if as_json:
        return None  # a summary would follow the JSON
    return summary


def _audit_documents(directories: list[str], report: str | None, as_json: bool) -> list[str]:
    from ..pipeline.auditing.documents import audit_documents
    from ..pipeline.auditing.report import render_documents

    audits = {directory: audit_documents(directory) for directory in directories}
    if as_json:
        _print_json(audits)
    else:
        for measured in audits.values():
            _print_documents(measured)
    if report:
        _write(report, render_documents(audits))
    sentences = []
    for directory, measured in audits.items():
        sentences.append(_named(directory, measured.sentence, directories))
    return sentences


def _audit_instances(
    directories: list[str], documents: str | None, report: str | None, as_json: bool
) -> tuple[list[str], list[str]]:
    """Measure, print and report; return the verdicts, and the verdicts of directories that fail."""
    from ..pipeline.auditing.beside import documents_beside
    from ..pipeline.auditing.checks import audit as measure

    audits: dict[str, Audit] = {}
    for directory in directories:
        measured_documents = None
        if directory == directories[0]:
            measured_documents = documents  # of DIRECTORY, not of OTHER
        if report and not measured_documents:
            measured_documents = documents_beside(directory)
        audits[directory] = measure(directory, measured_documents)
    if as_json:
        _print_json(audits)
    else:
        _print_checks(audits)
        if documents and (measured := audits[directories[0]].documents):
            click.echo()
            _print_documents(measured)
    if report:
        _write_report(report, audits)
    sentences = []
    failed = []
    for directory, measured in audits.items():
        sentence = _named(directory, measured.sentence, directories)
        sentences.append(sentence)
        if measured.failed:
            failed.append(sentence)
    return sentences, failed


def _named(directory: str, sentence: str, directories: list[str]) -> str:
    """Return a verdict, with its directory in front if there are two."""
    sentence = as_typed(sentence)
    if len(directories) == 1:
        return sentence
    return f"{directory}: {sentence}"


def _print_json(audits: "Mapping[str, Audit | DocumentsAudit]") -> None:
    values = {directory: measured.to_json() for directory, measured in audits.items()}
    click.echo(json.dumps(values, indent=1))


def _print_checks(audits: "dict[str, Audit]") -> None:
    from rich.markup import escape
    from rich.table import Table

    from ..pipeline.auditing.verdict import checks_by_name

    table = Table("check", box=None, pad_edge=False, header_style="bold")
    # Three columns for each directory: measured, expected, verdict.
    for directory in audits:
        heading = "measured"
        if len(audits) > 1:
            heading = escape(directory)
        table.add_column(heading, overflow="fold")
        table.add_column("expected")
        table.add_column("")
    for name, checks in checks_by_name(audits.values()).items():
        cells = [escape(name)]
        for check in checks:
            if check is None:  # only the other directory has it
                cells += ["", "", ""]
                continue
            # Names such as [MASK] are not rich's markup; the marks are.
            measured = escape(as_typed(check.measured_and_advice))
            cells += [measured, check.asked, MARKS[check.verdict]]
        table.add_row(*cells)
    make_console().print(table)


def _print_documents(measured: "DocumentsAudit") -> None:
    """Print the sizes by source and language, the signs of bad text with an example of each, and
    the counters of what was left out.
    """
    signs = []
    for sign in measured.signs:
        examples = [f"{text} ({document})" for document, text in sign.examples]
        signs.append((sign.name, sign.count, examples))
    left_out = []
    for counter in measured.counted:
        left_out.append((counter.name, counter.count, counter.examples))
    if not measured.words_kept:
        for counter in measured.words_left_out:
            name = f"words left out: {counter.name}"
            left_out.append((name, counter.count, counter.examples))
    console = make_console()
    click.echo(printable(f"documents in {measured.directory}"))
    console.print(_sizes_table(measured))
    click.echo()
    console.print(_counts_table("sign", signs))
    click.echo()
    console.print(_counts_table("read and left out by ingest", left_out))
    click.echo()
    if measured.words_kept:
        console.print(_words_table(measured))
        click.echo()


def _sizes_table(measured: "DocumentsAudit") -> "Table":
    from rich.markup import escape
    from rich.table import Column, Table

    headings = (
        "documents",
        "sentences",
        "characters",
        "sentences per document",
        "characters per sentence",
    )
    columns = [Column(heading, justify="right") for heading in headings]
    table = Table("source", "language", *columns, box=None, pad_edge=False)
    for origin in measured.origins:
        table.add_row(
            escape(origin.source),
            origin.language,
            f"{origin.documents:,}",
            f"{origin.sentences:,}",
            f"{origin.characters:,}",
            f"{origin.sentences / max(origin.documents, 1):,.1f}",
            f"{origin.characters / max(origin.sentences, 1):,.1f}",
        )
    return table


def _words_table(measured: "DocumentsAudit") -> "Table":
    """Return a table of the words kept, and left out by reason, with a bar of each share."""
    from rich.table import Column, Table

    table = Table(
        "words",
        Column("count", justify="right"),
        Column("share", justify="right"),
        "",
        box=None,
        pad_edge=False,
    )
    for name, count, share in measured.word_shares:
        label = name if name == "kept" else f"left out: {name}"
        table.add_row(label, f"{count:,}", f"{share:.1%}", "█" * round(share * BAR_WIDTH))
    return table


def _counts_table(heading: str, rows: list[tuple[str, int, list[str]]]) -> "Table":
    """Return a table of (name, count, examples), with the first example of each."""
    from rich.markup import escape
    from rich.table import Column, Table

    table = Table(
        heading,
        Column("count", justify="right"),
        Column("for example", overflow="fold"),
        box=None,
        pad_edge=False,
    )
    for name, count, examples in rows:
        example = ""
        if examples:
            example = escape(examples[0])
        table.add_row(name, f"{count:,}", example)
    return table


def _write_report(path: str, audits: "dict[str, Audit]") -> None:
    from ..pipeline.auditing.decode import first_examples
    from ..pipeline.auditing.report import render_instances
    from ..pipeline.manifests import InstancesManifest
    from ..pipeline.storage.stage import read_manifest
    from ..pipeline.vocabulary.vocabulary import read_vocabulary

    # The page shows examples of the first directory alone.
    directory, measured = next(iter(audits.items()))
    documents = None
    if measured.documents:
        documents = measured.documents.directory
    manifest = read_manifest(directory, InstancesManifest)
    vocabulary = read_vocabulary(directory)
    examples = first_examples(directory, manifest, NUM_EXAMPLES, vocabulary, documents)
    _write(path, render_instances(audits, examples))


def _write(path: str, page: str) -> None:
    from ..pipeline.storage.directory import write_file

    with write_file(path) as file:
        file.write(page.encode())
