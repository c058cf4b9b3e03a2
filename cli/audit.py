"""``clozeworks audit``."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from ..pipeline.errors import UserError
from .failures import as_typed
from .summary import CommandSummary, print_summaries

if TYPE_CHECKING:
    from ..pipeline.auditing.documents import DocumentsAudit
    from ..pipeline.auditing.verdict import Audit

NUM_EXAMPLES = 6
MARKS = {
    "ok": "[green]ok[/]",
    "bad": "[bold red]BAD[/]",
    "unjudged": "[yellow]not judged[/]",
    "info": "",
}


@click.command()
@click.argument("directory", type=click.Path())
@click.argument("other", type=click.Path(), required=False)
@click.option(
    "--documents",
    type=click.Path(),
    help="Directory of the documents that the instances were built from, to measure them too. With --report, documents "
    "that lie beside the instances are the default.",
)
@click.option(
    "--report",
    type=click.Path(),
    metavar="FILE.html",
    help="Also write a web page with plots and examples.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the measurements as JSON.")
@click.pass_context
def audit(
    ctx: click.Context,
    directory: str,
    other: str | None,
    documents: str | None,
    report: str | None,
    as_json: bool,
) -> CommandSummary | None:
    """Measure instances, or documents, in DIRECTORY.

    Instances are checked against their build options; the exit code is 1 if anything is out of
    tolerance. Documents are measured before there is a vocabulary: sizes, lengths, what was left
    out, and signs of bad text, such as markup. OTHER, a second directory of the same kind, is shown
    beside the first.
    """
    from ..pipeline.storage.stage import read_any_manifest

    directories = [directory, *([other] if other else [])]
    stage = read_any_manifest(directory).stage
    if stage == "vocab":
        raise UserError(
            f"{directory} was written by `clozeworks vocab`; audit measures instances and documents."
        )
    if stage == "ingest":
        if documents:
            raise UserError(f"--documents is for instances, but {directory} has documents.")
        sentences, failed = _audit_documents(directories, report, as_json), []
    else:
        sentences, failed = _audit_instances(directories, documents, report, as_json)
    rows = [("verdict", sentence) for sentence in sentences]
    summary = CommandSummary("audit", directory, [*rows, *([("report", report)] if report else [])])
    if failed:
        if not as_json:
            print_summaries([summary])
        for sentence in failed:
            click.echo(sentence, err=True)
        ctx.exit(1)
    return None if as_json else summary


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
    return [
        _named(directory, measured.sentence, directories) for directory, measured in audits.items()
    ]


def _audit_instances(
    directories: list[str], documents: str | None, report: str | None, as_json: bool
) -> tuple[list[str], list[str]]:
    """Measure, print and report; return the verdicts, and those of directories that fail."""
    from ..pipeline.auditing.checks import audit as measure
    from ..pipeline.auditing.documents import documents_beside

    given = {directories[0]: documents}
    audits = {
        directory: measure(
            directory, given.get(directory) or (documents_beside(directory) if report else None)
        )
        for directory in directories
    }
    if as_json:
        _print_json(audits)
    else:
        _print_checks(audits)
        if documents and (measured := audits[directories[0]].documents):
            click.echo()
            _print_documents(measured)
    if report:
        _write_report(report, audits)
    sentences = {
        directory: _named(directory, measured.sentence, directories)
        for directory, measured in audits.items()
    }
    return [*sentences.values()], [
        sentences[directory] for directory, measured in audits.items() if measured.failed
    ]


def _named(directory: str, sentence: str, directories: list[str]) -> str:
    sentence = as_typed(sentence)
    return f"{directory}: {sentence}" if len(directories) > 1 else sentence


def _print_json(audits: "Mapping[str, Audit | DocumentsAudit]") -> None:
    click.echo(
        json.dumps(
            {directory: measured.to_json() for directory, measured in audits.items()}, indent=1
        )
    )


def _print_checks(audits: "dict[str, Audit]") -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from ..pipeline.auditing.verdict import checks_by_name

    table = Table("check", box=None, pad_edge=False, header_style="bold")
    for directory in audits:
        table.add_column(escape(directory) if len(audits) > 1 else "measured", overflow="fold")
        table.add_column("expected")
        table.add_column("")
    for name, cells in checks_by_name(audits.values()).items():
        shown = [
            (escape(as_typed(cell.measured_and_advice)), cell.asked, MARKS[cell.verdict])
            if cell
            else ("", "", "")
            for cell in cells
        ]
        table.add_row(escape(name), *(text for cell in shown for text in cell))
    Console().print(table)


def _print_documents(measured: "DocumentsAudit") -> None:
    """Print the sizes by source and language, the signs of bad text with an example of each, and
    what was left out.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Column, Table

    headings = (
        "documents",
        "sentences",
        "characters",
        "sentences per document",
        "characters per sentence",
    )
    sizes = Table(
        "source",
        "language",
        *(Column(name, justify="right") for name in headings),
        box=None,
        pad_edge=False,
    )
    for origin in measured.origins:
        figures = (origin.documents, origin.sentences, origin.characters)
        means = (
            origin.sentences / max(origin.documents, 1),
            origin.characters / max(origin.sentences, 1),
        )
        sizes.add_row(
            escape(origin.source),
            origin.language,
            *(f"{count:,}" for count in figures),
            *(f"{x:,.1f}" for x in means),
        )
    signs = [
        (sign.name, sign.count, [f"{text} ({document})" for document, text in sign.examples])
        for sign in measured.signs
    ]
    left_out = [(entry.name, entry.count, entry.examples) for entry in measured.counted]
    left_out += [
        (f"words left out: {entry.name}", entry.count, entry.examples)
        for entry in measured.words_left_out
    ]
    tables = [sizes]
    for heading, entries in (("sign", signs), ("read and left out by ingest", left_out)):
        columns = (
            Column(heading),
            Column("count", justify="right"),
            Column("for example", overflow="fold"),
        )
        tables.append(Table(*columns, box=None, pad_edge=False))
        for name, count, examples in entries:
            tables[-1].add_row(name, f"{count:,}", escape(examples[0]) if examples else "")
    click.echo(f"documents in {measured.directory}")
    for table in tables:
        Console().print(table)
        click.echo()


def _write_report(path: str, audits: "dict[str, Audit]") -> None:
    from ..pipeline.auditing.decode import first_examples
    from ..pipeline.auditing.report import render_instances
    from ..pipeline.manifests import InstancesManifest
    from ..pipeline.storage.stage import read_manifest
    from ..pipeline.vocabulary.vocabulary import read_vocabulary

    directory, measured = next(iter(audits.items()))
    documents = measured.documents.directory if measured.documents else None
    manifest = read_manifest(directory, InstancesManifest)
    examples = first_examples(
        directory, manifest, NUM_EXAMPLES, read_vocabulary(directory), documents
    )
    _write(path, render_instances(audits, examples))


def _write(path: str, page: str) -> None:
    from ..pipeline.storage.directory import write_file

    with write_file(path) as file:
        file.write(page.encode())
