"""``clozeworks audit``."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from ..pipeline.errors import UserError
from .summary import CommandSummary

if TYPE_CHECKING:
    from ..pipeline.audit.documents import DocumentsAudit
    from ..pipeline.audit.verdict import Audit

NUM_EXAMPLES = 6
MARKS = {"ok": "[green]ok[/]", "bad": "[bold red]BAD[/]", "unjudged": "[yellow]not judged[/]", "info": ""}


@click.command()
@click.argument("directory", type=click.Path())
@click.argument("other", type=click.Path(), required=False)
@click.option(
    "--documents",
    type=click.Path(),
    help="Directory of the documents that the instances were built from, to measure them too. With --report, documents "
    "that lie beside the instances are the default.",
)
@click.option("--report", type=click.Path(), metavar="FILE.html", help="Also write a web page with plots and examples.")
@click.option("--json", "as_json", is_flag=True, help="Print the measurements as JSON.")
@click.pass_context
def audit(
    ctx: click.Context, directory: str, other: str | None, documents: str | None, report: str | None, as_json: bool
) -> CommandSummary | None:
    """Measure instances, or documents, in DIRECTORY.

    Instances are checked against their build options; the exit code is 1 if anything is out of tolerance. Documents
    are measured before there is a vocabulary: sizes, lengths, what was left out, and signs of bad text, such as markup.
    OTHER, a second directory of the same kind, is shown beside the first.
    """
    from ..pipeline.execution.stage import read_any_manifest

    directories = [directory, *([other] if other else [])]
    stage = read_any_manifest(directory).stage
    if stage == "vocab":
        raise UserError(f"{directory} was written by `clozeworks vocab`; audit measures instances and documents.")
    if stage == "ingest":
        if documents:
            raise UserError(f"--documents is for instances, but {directory} has documents.")
        sentences, failed = _audit_documents(directories, report, as_json), []
    else:
        sentences, failed = _audit_instances(directories, documents, report, as_json)
    if failed:
        ctx.exit(1)
    rows = [("verdict", sentence) for sentence in sentences]
    return None if as_json else CommandSummary("audit", directory, [*rows, *([("report", report)] if report else [])])


def _audit_documents(directories: list[str], report: str | None, as_json: bool) -> list[str]:
    from ..pipeline.audit.documents import audit_documents
    from ..pipeline.audit.report import render_documents

    audits = {directory: audit_documents(directory) for directory in directories}
    if as_json:
        _print_json(audits)
    else:
        for measured in audits.values():
            _print_documents(measured)
    if report:
        _write(report, render_documents(audits))
    return [_named(directory, measured.sentence, directories) for directory, measured in audits.items()]


def _audit_instances(
    directories: list[str], documents: str | None, report: str | None, as_json: bool
) -> tuple[list[str], list[str]]:
    """Measure, print and report; return the verdicts, and those of directories that fail."""
    from ..pipeline.audit.checks import audit as measure
    from ..pipeline.audit.documents import documents_beside

    given = {directories[0]: documents}
    audits = {
        directory: measure(directory, given.get(directory) or (documents_beside(directory) if report else None))
        for directory in directories
    }
    if as_json:
        _print_json(audits)
    else:
        _print_checks(audits)
    if report:
        _write_report(report, audits)
    sentences = {directory: _named(directory, measured.sentence, directories) for directory, measured in audits.items()}
    failed = [sentences[directory] for directory, measured in audits.items() if measured.failed]
    for sentence in failed:
        click.echo(sentence, err=True)
    return [*sentences.values()], failed


def _named(directory: str, sentence: str, directories: list[str]) -> str:
    return f"{directory}: {sentence}" if len(directories) > 1 else sentence


def _print_json(audits: "Mapping[str, Audit | DocumentsAudit]") -> None:
    click.echo(json.dumps({directory: measured.to_json() for directory, measured in audits.items()}, indent=1))


def _print_checks(audits: "dict[str, Audit]") -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from ..pipeline.audit.verdict import checks_by_name

    table = Table("check", box=None, pad_edge=False, header_style="bold")
    for directory in audits:
        table.add_column(escape(directory) if len(audits) > 1 else "measured", overflow="fold")
        table.add_column("expected")
        table.add_column("")
    for name, cells in checks_by_name(audits.values()).items():
        shown = [(escape(cell.measured), cell.asked, MARKS[cell.verdict]) if cell else ("", "", "") for cell in cells]
        table.add_row(escape(name), *(text for cell in shown for text in cell))
    Console().print(table)


def _print_documents(measured: "DocumentsAudit") -> None:
    """Print the sizes by source and language, and the signs of bad text with an example of each."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Column, Table

    headings = ("documents", "sentences", "characters", "sentences per document", "characters per sentence")
    sizes = Table("source", "language", *(Column(name, justify="right") for name in headings), box=None, pad_edge=False)
    for origin in measured.origins:
        figures = (origin.documents, origin.sentences, origin.characters)
        means = origin.sentences / max(origin.documents, 1), origin.characters / max(origin.sentences, 1)
        sizes.add_row(
            escape(origin.source), origin.language, *(f"{count:,}" for count in figures), *(f"{x:,.1f}" for x in means)
        )
    signs = Table(Column("sign"), Column("count", justify="right"), Column("for example", overflow="fold"))
    signs.box, signs.pad_edge = None, False
    for sign in measured.signs:
        example = "{1} ({0})".format(*sign.examples[0]) if sign.examples else ""
        signs.add_row(sign.name, f"{sign.count:,}", escape(example))
    for table in (sizes, signs):
        Console().print(table)
        click.echo()


def _write_report(path: str, audits: "dict[str, Audit]") -> None:
    from ..pipeline.audit.decode import first_examples
    from ..pipeline.audit.report import render_instances
    from ..pipeline.execution.stage import read_manifest
    from ..pipeline.manifests import InstancesManifest
    from ..pipeline.vocab.vocabulary import read_vocabulary

    directory, measured = next(iter(audits.items()))
    documents = measured.documents.directory if measured.documents else None
    manifest = read_manifest(directory, InstancesManifest)
    examples = first_examples(directory, manifest, NUM_EXAMPLES, read_vocabulary(directory), documents)
    _write(path, render_instances(audits, examples))


def _write(path: str, page: str) -> None:
    from ..pipeline.execution.directory import write_file

    with write_file(path) as file:
        file.write(page.encode())
