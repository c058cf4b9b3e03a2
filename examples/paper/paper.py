"""The experiments of the BERT paper (arXiv 1810.04805), one command each, at a scale you choose.

    python examples/paper/paper.py table8 --data DATA --output results/table8

README.md in this folder says what they read and what they show.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Any

import click
from bilstm import FEATURES
from clozeworks.model import predict
from clozeworks.pipeline import UserError
from experiment import Classifying, Experiment, announce, is_there
from figures import FIGURE_5, TABLE_1, TABLE_5, TABLE_6, TABLE_7, TABLE_8
from glue_zip import write_server_zip
from scale import Scale, make_scale, scale_options

WORD_ORDER = Classifying(
    "classify", Path(__file__).resolve().parents[1] / "quickstart" / "word-order"
)
"""Are the words of a sentence in order? An encoder of an hour learns too little for GLUE."""
GLUE_FOLDERS = {
    "cola": "CoLA",
    "sst2": "SST-2",
    "mrpc": "MRPC",
    "qqp": "QQP",
    "stsb": "STS-B",
    "mnli": "MNLI",
    "qnli": "QNLI",
    "rte": "RTE",
    "wnli": "WNLI",
}
"""As published."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
def paper() -> None:
    """Repeat the BERT paper's experiments at a scale you choose, each ending in a table beside the
    paper's figures.

    A command that was killed resumes when you rerun it. A task without data is skipped.
    """


def experiment(
    papers_tasks: Sequence[str] = (),
    task_at_an_hour: Classifying | None = WORD_ORDER,
    **at_an_hour: Any,
) -> Callable[[Callable[..., None]], click.Command]:
    """Make a function of an `Experiment` a command with the options that all of them share.

    `papers_tasks` are the tasks of GLUE that the paper fine-tunes on. `task_at_an_hour` stands for
    them at the smallest scale, at which `at_an_hour` are the experiment's own settings.
    """

    def decorate(function: Callable[..., None]) -> click.Command:
        @wraps(function)
        def command(
            data: Path,
            output: Path,
            corpus: Path | None,
            text: tuple[str, ...],
            task: tuple[str, ...],
            scale: str,
            **values: Any,
        ) -> None:
            # Options of the scale; what is left in `values` are the function's own.
            settings = {}
            for each in fields(Scale):
                settings[each.name] = values.pop(each.name)
            if task:
                tasks = [_parse_task(given) for given in task]
            elif scale == "hour" and task_at_an_hour:
                tasks = [task_at_an_hour]
            else:
                tasks = [
                    Classifying(name, data / "glue" / GLUE_FOLDERS[name]) for name in papers_tasks
                ]
            made = Experiment(
                data=data,
                texts=text or (str(data / "text"),),
                output=output,
                corpus=corpus or output / "corpus",
                tasks=tuple(tasks),
                scale=make_scale(scale, at_an_hour, settings),
            )
            function(made, **values)

        return paper.command()(_shared_options(scale_options(command)))

    return decorate


def _shared_options(command: Callable[..., Any]) -> Callable[..., Any]:
    folder = click.Path(path_type=Path)
    for option in reversed(
        [
            click.option(
                "--data",
                type=folder,
                required=True,
                help="Folder with text/ (anything that `clozeworks ingest` reads), glue/ (MRPC/, "
                "RTE/, … as published), squad/ (JSON of SQuAD 1.1) and ner/ (CoNLL columns).",
            ),
            click.option(
                "--output", type=folder, required=True, help="Folder for encoders and results."
            ),
            click.option(
                "--corpus",
                type=folder,
                help="Folder for documents, vocabulary and instances, which experiments can share; "
                "the default is corpus/ in the output.",
            ),
            click.option(
                "--text",
                multiple=True,
                metavar="SOURCE",
                help="Text for pre-training instead of text/; may be repeated.",
            ),
            click.option(
                "--task",
                multiple=True,
                metavar="NAME=FOLDER",
                help="Task of classification, such as stsb=glue/STS-B; may be repeated. The "
                "default is the paper's tasks, and at the scale of an hour word order.",
            ),
        ]
    ):
        command = option(command)
    return command


def _parse_task(text: str) -> Classifying:
    name, separator, folder = text.partition("=")
    if not separator:
        raise click.BadParameter(f"--task {text}: give NAME=FOLDER.")
    return Classifying(name, Path(folder))


# With both objectives, `tiny` does not learn masked words in an hour at a rate of 1e-3.
@experiment(papers_tasks=("mnli", "qnli", "mrpc", "sst2"), steps=9000, learning_rate=2e-3)
def table5(made: Experiment) -> None:
    """Pre-training tasks (Table 5).

    Masked LM and next sentences; no next sentences; left to right; and a BiLSTM on top of that.
    """
    objectives = {"full": "mlm+nsp", "no-nsp": "mlm", "left-to-right": "ltr"}
    for row, objective in objectives.items():
        for seed in range(made.scale.encoders):
            encoder = made.pretrain(row, seed, objective=objective)
            made.finetune_on_tasks(row, seed, encoder)
            made.finetune_on_squad(row, seed, encoder)
            if row == "left-to-right":
                # The same encoder again: the BiLSTM lets each token see what follows it.
                lstm_size = made.scale.lstm_size
                made.finetune_on_tasks(f"{row}-bilstm", seed, encoder, lstm_size)
                made.finetune_on_squad(f"{row}-bilstm", seed, encoder, lstm_size)
    made.write_table(TABLE_5, "table5")


@experiment(papers_tasks=("mnli", "mrpc", "sst2"))
def table6(made: Experiment) -> None:
    """Sizes of the encoder (Table 6): held-out perplexity and classification."""
    for row in made.scale.sizes:
        layers, width, heads = map(int, row.split("-"))
        for seed in range(made.scale.encoders):
            encoder = made.pretrain(
                row, seed, num_layers=layers, hidden_size=width, num_heads=heads
            )
            made.finetune_on_tasks(row, seed, encoder)
    made.write_table(TABLE_6, "table6")


@experiment(model="mini", rates=(1e-4,))
def table7(made: Experiment) -> None:
    """Named entities by fine-tuning, and from features of a frozen encoder (Table 7).

    The six sets of features need an encoder with four layers.
    """
    for seed in range(made.scale.encoders):
        encoder = made.pretrain("encoder", seed)
        made.finetune_on_entities("fine-tuned", seed, encoder)
        for features in FEATURES:
            made.train_on_features(features, seed, encoder, features)
    made.write_table(TABLE_7, "table7")


@experiment(papers_tasks=("mnli",))
def table8(made: Experiment) -> None:
    """Procedures of masking (Table 8): what replaces the tokens to predict.

    A row is the percentages of [MASK], of the same token and of a random one.
    """
    # The paper's concatenation of the last four layers needs four; tiny has two.
    features = "last" if made.scale.model == "tiny" else "concat-last-four"
    for row in TABLE_8.rows:
        mask, same, random = map(int, row.split("-"))
        for seed in range(made.scale.encoders):
            # Masks drawn anew in each epoch let all six procedures share the instances.
            encoder = made.pretrain(
                row, seed, dynamic_masking="token", mask_split=(mask, random, same)
            )
            made.finetune_on_tasks(row, seed, encoder)
            made.finetune_on_entities(row, seed, encoder)
            made.train_on_features(row, seed, encoder, features, column="ner-features")
    made.write_table(TABLE_8, "table8")


@experiment(papers_tasks=("mnli",), steps=8000)
def figure5(made: Experiment) -> None:
    """Accuracy by steps of pre-training, masked LM against left to right (Figure 5)."""
    # One run per curve: its models are archived on the way, so all points share a learning-rate
    # schedule, as in the paper.
    every = made.scale.steps // made.scale.points
    objectives = {"masked-lm": "mlm", "left-to-right": "ltr"}
    for row, objective in objectives.items():
        for seed in range(made.scale.encoders):
            encoder = made.pretrain(row, seed, objective=objective, archive_every=every)
            for point in range(1, made.scale.points + 1):
                step = point * every
                archived = encoder / "archive" / f"step-{step}"
                made.finetune_at_step(row, seed, archived, step)
    made.write_table(FIGURE_5, "figure5")


@experiment(papers_tasks=tuple(GLUE_FOLDERS), task_at_an_hour=None, rates=(5e-5, 4e-5, 3e-5, 2e-5))
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path),
    required=True,
    help="The encoder: a run of `clozeworks pretrain`, or any BERT of Hugging Face.",
)
def glue(made: Experiment, checkpoint: Path) -> None:
    """All tasks of GLUE from one encoder (Table 1), and the zip file for GLUE's server."""
    made.finetune_on_tasks("dev", 0, checkpoint)
    made.write_table(TABLE_1, "table1")

    folders = [outputs[0] / "test" for outputs in made.finetuned.values()]
    mnli = made.finetuned.get(("dev", "mnli"))
    diagnostic = made.data / "glue" / "diagnostic" / "diagnostic.tsv"
    if mnli and is_there(diagnostic):
        announce("answer the diagnostic set")
        folders.append(made.output / "diagnostics")
        predict(mnli[0], diagnostic, folders[-1], official=True)
    missing = write_server_zip(folders, made.output / "glue.zip")
    click.echo(f"not in {made.output / 'glue.zip'}: {', '.join(missing) or 'nothing'}")


def main() -> None:
    """Run a command; a user's mistake is one line."""
    try:
        paper()
    except UserError as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main()
