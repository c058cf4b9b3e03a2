"""``clozeworks audit``."""

import json
from typing import TYPE_CHECKING

import click

from .summary import CommandSummary

if TYPE_CHECKING:
    from ..pipeline.audit.verdict import Audit

NUM_EXAMPLES = 8
MARKS = {"ok": "[green]ok[/]", "bad": "[bold red]BAD[/]", "unjudged": "[yellow]not judged[/]", "info": ""}


@click.command()
@click.argument("instances", type=click.Path())
@click.argument("other", type=click.Path(), required=False)
@click.option(
    "--report", type=click.Path(), metavar="FILE.html", help="Also write a web page with plots and example instances."
)
@click.option("--json", "as_json", is_flag=True, help="Print the measurements as JSON.")
@click.pass_context
def audit(
    ctx: click.Context, instances: str, other: str | None, report: str | None, as_json: bool
) -> CommandSummary | None:
    """Measure INSTANCES against their build options; exit with 1 if anything is out of tolerance.

    OTHER, a second directory of instances, is shown beside the first.
    """
    from ..pipeline.audit.checks import audit as measure

    audits = {directory: measure(directory) for directory in (instances, other) if directory}
    if as_json:
        click.echo(json.dumps({directory: measured.to_json() for directory, measured in audits.items()}, indent=1))
    else:
        _print(audits)
    if report:
        _write_report(report, audits)
    sentences = {
        directory: f"{directory}: {measured.sentence}" if other else measured.sentence
        for directory, measured in audits.items()
    }
    failed = [directory for directory, measured in audits.items() if measured.failed]
    for directory in failed:
        click.echo(sentences[directory], err=True)
    if failed:
        ctx.exit(1)
    rows = [("verdict", sentence) for sentence in sentences.values()]
    return None if as_json else CommandSummary("audit", instances, [*rows, *([("report", report)] if report else [])])


def _print(audits: "dict[str, Audit]") -> None:
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


def _write_report(path: str, audits: "dict[str, Audit]") -> None:
    from ..pipeline.audit.decode import first_rows
    from ..pipeline.audit.report import render_report
    from ..pipeline.execution.directory import read_manifest, write_file
    from ..pipeline.manifests import InstancesManifest
    from ..pipeline.vocab.vocabulary import read_vocabulary

    first = next(iter(audits))
    vocabulary = read_vocabulary(first)
    rows = list(first_rows(first, read_manifest(first, InstancesManifest), "train", NUM_EXAMPLES, vocabulary))
    with write_file(path) as file:
        file.write(render_report(audits, rows, vocabulary).encode())
