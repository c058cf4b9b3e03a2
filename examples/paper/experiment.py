"""The steps that the experiments share: one corpus, encoders, fine-tuning, and a table at the end.

Each step writes a directory of its own and resumes, or returns at once if it is finished. So a
command that was killed goes on where it was, and one with more seeds keeps those that are there.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import click
from bilstm import on_features, with_bilstm
from clozeworks.model import (
    FinetuneConfig,
    PretrainConfig,
    Task,
    finetune,
    make_task,
    pretrain,
)
from clozeworks.pipeline import (
    BuildConfig,
    IngestConfig,
    RunOptions,
    VocabConfig,
    build,
    ingest,
    learn_vocabulary,
)
from figures import PERPLEXITY, PaperTable
from scale import Scale
from table import (
    Cell,
    draw_curves,
    draw_table,
    finetuned_cell,
    markdown,
    perplexity_cell,
    write_table,
)

PROGRESS_EVERY_S = 60.0


@dataclass(frozen=True)
class Classifying:
    """A task of classification, and where its files are."""

    name: str
    """As `clozeworks finetune` names it."""
    folder: Path

    @property
    def column(self) -> str:
        """Its column in the table: a GLUE task's own name, of other tables the folder's."""
        return self.folder.name if self.name == "classify" else self.name


@dataclass
class Experiment:
    """One table of the paper: where it reads and writes, its scale, and its results so far."""

    data: Path
    """With ``text``, ``glue``, ``squad`` and ``ner``."""
    texts: tuple[str, ...]
    """For `ingest`."""
    output: Path
    corpus: Path
    """For documents, vocabulary and instances, which experiments can share."""
    tasks: tuple[Classifying, ...]
    scale: Scale
    finetuned: dict[tuple[str, str], list[Path]] = field(default_factory=dict)
    """Outputs of `finetune` by row and column, one per encoder."""
    perplexities: dict[str, list[float]] = field(default_factory=dict)
    """Of the encoders, on held-out text, by row."""

    # Steps
    # ----------------------------------------------------------------------------------------------

    @cached_property
    def instances(self) -> Path:
        """The training data of all encoders, made when first asked for."""
        documents = self.corpus / "documents"
        vocab = self.corpus / "vocab"
        instances = self.corpus / "instances"
        # The same calls whoever asks: where the corpus is finished they return at once.
        announce(f"text to instances in {self.corpus}")
        options = RunOptions()
        ingest(list(self.texts), str(documents), IngestConfig(), options)
        vocab_config = VocabConfig(size=self.scale.vocab_size)
        learn_vocabulary(str(documents), str(vocab), vocab_config, options)
        build_config = BuildConfig(max_length=self.scale.max_length)
        build(str(documents), str(vocab), str(instances), build_config, options)
        return instances

    def pretrain(self, row: str, seed: int, **changes: Any) -> Path:
        """Train an encoder of a row, with these `changes` to the scale's settings; return its
        directory.
        """
        scale = self.scale
        settings: dict[str, Any] = {
            "model": scale.model,
            "objective": scale.objective,
            "steps": scale.steps,
            "batch_size": scale.batch_size,
            "learning_rate": scale.learning_rate,
            "dropout": scale.dropout,
            "precision": scale.precision,
            "compile": scale.compile,
            "seed": seed,
        }
        config = PretrainConfig(**{**settings, **changes})
        output = self.output / row / str(seed) / "encoder"
        instances = [str(self.instances)]
        announce(f"pre-train {output}")
        summary = pretrain(config, instances, output, progress_lines())
        self.perplexities.setdefault(row, []).append(summary["final"][PERPLEXITY])
        return output

    def finetune_on_tasks(
        self, row: str, seed: int, encoder: Path, lstm_size: int | None = None
    ) -> None:
        """Fine-tune an encoder on each task of classification, a BiLSTM on top of it if asked."""
        for each in self.tasks:
            if not is_there(each.folder):
                continue
            task = make_task(each.name, each.folder, max_length=self.scale.max_length)
            if lstm_size:
                task = with_bilstm(task, lstm_size)
            self._finetune(row, each.column, seed, task, each.folder, encoder, self._config())

    def finetune_at_step(self, row: str, seed: int, encoder: Path, step: int) -> None:
        """Fine-tune an encoder of this step on the first task, in a column of the step's."""
        task = self.tasks[0]
        if is_there(task.folder):
            made = make_task(task.name, task.folder, max_length=self.scale.max_length)
            self._finetune(row, str(step), seed, made, task.folder, encoder, self._config())

    def finetune_on_squad(
        self, row: str, seed: int, encoder: Path, lstm_size: int | None = None
    ) -> None:
        """Fine-tune an encoder on SQuAD, a BiLSTM on top of it if asked."""
        folder = self.data / "squad"
        if not is_there(folder):
            return
        scale = self.scale
        task = make_task("squad", folder, max_length=scale.max_length, stride=scale.squad_stride)
        if lstm_size:
            task = with_bilstm(task, lstm_size)
        config = self._config(epochs=scale.squad_epochs)
        self._finetune(row, "squad", seed, task, folder, encoder, config)

    def finetune_on_entities(self, row: str, seed: int, encoder: Path) -> None:
        """Fine-tune an encoder on named entities."""
        folder = self.data / "ner"
        if is_there(folder):
            task = make_task("ner", folder, max_length=self.scale.max_length)
            self._finetune(row, "ner", seed, task, folder, encoder, self._config())

    def train_on_features(
        self, row: str, seed: int, encoder: Path, features: str, column: str = "ner"
    ) -> None:
        """Train a BiLSTM for named entities on hidden states of a frozen encoder."""
        folder = self.data / "ner"
        if not is_there(folder):
            return
        scale = self.scale
        task = make_task("ner", folder, max_length=scale.max_length)
        task = on_features(task, features, scale.lstm_size)
        # A head from random weights wants a higher rate and more epochs than fine-tuning.
        config = self._config(learning_rates=scale.feature_rates, epochs=scale.feature_epochs)
        self._finetune(row, column, seed, task, folder, encoder, config)

    def _config(self, **changes: Any) -> FinetuneConfig:
        settings: dict[str, Any] = {
            "learning_rates": self.scale.rates,
            "epochs": self.scale.epochs,
            "seeds": self.scale.seeds,
            "precision": self.scale.precision,
        }
        # None of the task's own options, such as `max_length`: the `Task` object has them.
        return FinetuneConfig(**{**settings, **changes})

    def _finetune(
        self,
        row: str,
        column: str,
        seed: int,
        task: Task,
        data: Path,
        encoder: Path,
        config: FinetuneConfig,
    ) -> None:
        output = self.output / row / str(seed) / column
        announce(f"fine-tune {output}")
        finetune(task, data, encoder, output, config, progress_lines())
        self.finetuned.setdefault((row, column), []).append(output)

    # The end
    # ----------------------------------------------------------------------------------------------

    def write_table(self, table: PaperTable, name: str) -> None:
        """Print the table of all results, and write it into the output, with a picture."""
        cells = self._cells(table)
        if table.columns:
            figure = draw_table(table, cells)
        else:  # a figure of the paper, whose columns are steps
            figure = draw_curves(table, cells)
        path = self.output / name
        write_table(table, cells, figure, path)
        click.echo(f"\n{markdown(table, cells)}\nwritten to {path}.md, .csv and .png")

    def _cells(self, table: PaperTable) -> list[Cell]:
        cells = [
            finetuned_cell(table, row, column, outputs)
            for (row, column), outputs in self.finetuned.items()
        ]
        if PERPLEXITY in table.columns:
            for row, values in self.perplexities.items():
                cells.append(perplexity_cell(table, row, values))
        if not cells:
            raise click.ClickException(f"There is no data for any task in {self.data}.")
        return cells


def is_there(path: Path) -> bool:
    """Return whether a task's data is there; otherwise say that it is skipped."""
    if not path.exists():
        click.echo(f"skipped: {path} does not exist")
    return path.exists()


def announce(step: str) -> None:
    """Print what is done next."""
    click.echo(f"{time.strftime('%H:%M')} {step}")


def progress_lines() -> Callable[[Mapping[str, Any]], None]:
    """Return a function that prints the figures of a run about once a minute."""
    last_s = time.monotonic()

    def report(figures: Mapping[str, Any]) -> None:
        nonlocal last_s
        if time.monotonic() - last_s >= PROGRESS_EVERY_S:
            last_s = time.monotonic()
            # Pre-training reports one loss per objective, fine-tuning the task's.
            loss = figures.get("mlm_loss", figures.get("loss", float("nan")))
            click.echo(f"  step {figures['step']:,} of {figures['steps']:,}, loss {loss:.3f}")

    return report
