"""What is an encoder worth? Fine-tune the same tasks from several starts, and compare.

    python examples/compare/compare.py --data DATA --start mine=run --output compared

README.md in this folder says what it reads.
"""

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from clozeworks.model import FinetuneConfig, finetune
from clozeworks.pipeline import UserError

RANDOM = "random"
GLUE_FOLDERS = {
    "cola": "CoLA",
    "sst2": "SST-2",
    "mrpc": "MRPC",
    "stsb": "STS-B",
    "mnli": "MNLI",
    "qnli": "QNLI",
    "rte": "RTE",
}
"""As published."""


@dataclass(frozen=True)
class Score:
    """The runs of one start on one task, by the task's first metric."""

    metric: str
    median: float
    lowest: float
    highest: float

    def __str__(self) -> str:
        if self.lowest == self.highest:
            return f"{self.median:.1f}"
        return f"{self.median:.1f} [{self.lowest:.1f}, {self.highest:.1f}]"


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    required=True,
    help="Folder with glue/ (MRPC/, RTE/, … as published), squad/ (JSON of SQuAD 1.1) and ner/ "
    "(CoNLL columns); a task that is not there is skipped.",
)
@click.option("--output", type=click.Path(path_type=Path), required=True, help="For the results.")
@click.option(
    "--start",
    "starts",
    multiple=True,
    required=True,
    metavar="NAME=MODEL",
    help="A model to start from and its row in the table; may be repeated. The first is also "
    "fine-tuned from random weights.",
)
@click.option("--rate", type=float, default=1e-4, show_default=True, help="Learning rate.")
@click.option("--epochs", type=float, default=3.0, show_default=True, help="Epochs.")
@click.option("--seeds", type=int, default=3, show_default=True, help="Runs of each start.")
@click.option(
    "--max-length",
    type=int,
    help="Longest row in tokens, at most what the encoders were trained on; the default is each "
    "task's.",
)
@click.option("--precision", default="auto", show_default=True, help="auto, fp32 or bf16.")
def compare(
    data: Path,
    output: Path,
    starts: tuple[str, ...],
    rate: float,
    epochs: float,
    seeds: int,
    max_length: int | None,
    precision: Any,
) -> None:
    """Fine-tune the same tasks from several starts, and print a table.

    Runs that are there already are kept, so starts and seeds can be added later.
    """
    models = dict(_parse_start(start) for start in starts)
    # Random weights of the first start's shape; its vocabulary is the same.
    models[RANDOM] = next(iter(models.values()))
    scores: dict[tuple[str, str], Score] = {}
    for task, folder in _tasks_in(data).items():
        stride = None  # the task's own
        if task == "squad" and max_length:
            stride = max_length // 2  # windows of a passage must overlap
        for row, model in models.items():
            click.echo(f"{time.strftime('%H:%M')} {task} from {row}")
            config = FinetuneConfig(
                learning_rates=(rate,),
                epochs=epochs,
                seeds=seeds,
                max_length=max_length,
                stride=stride,
                random_weights=row == RANDOM,
                precision=precision,
            )
            summary = finetune(task, folder, model, output / row / task, config)
            # SQuAD's official script reports percent, all others report fractions.
            factor = 1 if task == "squad" else 100
            scores[row, task] = Score(
                metric=summary["metric"],
                median=factor * summary["median"],
                lowest=factor * summary["lowest"],
                highest=factor * summary["highest"],
            )
    table = _markdown(list(models), scores)
    (output / "starts.md").write_text(table, encoding="utf-8")
    click.echo(f"\n{table}")


def _parse_start(text: str) -> tuple[str, str]:
    name, separator, model = text.partition("=")
    if not separator or name == RANDOM:
        raise click.BadParameter(f"--start {text}: give NAME=MODEL, and no start named {RANDOM}.")
    return name, model


def _tasks_in(data: Path) -> dict[str, Path]:
    """Return the folders of the tasks that are there."""
    folders = {name: data / "glue" / folder for name, folder in GLUE_FOLDERS.items()}
    folders |= {"ner": data / "ner", "squad": data / "squad"}
    tasks = {}
    for task, folder in folders.items():
        if folder.exists():
            tasks[task] = folder
        else:
            click.echo(f"{task} is skipped: {folder} does not exist")
    if not tasks:
        raise click.ClickException(f"There is no task in {data}.")
    return tasks


def _markdown(rows: list[str], scores: dict[tuple[str, str], Score]) -> str:
    """Return a table with a row per start and a column per task."""
    # Every start has a score on every task.
    columns = {task: f"{task} ({score.metric})" for (_, task), score in scores.items()}
    head = ["", *columns.values()]
    alignment = ["---"] + ["---:"] * len(columns)
    lines = [head, alignment]
    for row in rows:
        cells = [str(scores[row, task]) for task in columns]
        lines.append([row, *cells])
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{body}\n\nOn dev, in percent: median [lowest, highest] over the seeds.\n"


def main() -> None:
    """Run the command; a user's mistake is one line."""
    try:
        compare()
    except UserError as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main()
