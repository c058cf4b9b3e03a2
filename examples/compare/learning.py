"""How soon is an encoder as good as BERT? Pre-train a BERT, a ModernBERT, and a ModernBERT by
`transformers`' own Trainer on the same rows, and compare.

    python examples/compare/learning.py INSTANCES --output learned

README.md in this folder says what it reads and measures.
"""

import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import click
import torch
import torch.nn.functional as F
import transformers
from clozeworks.model import InstanceDataset, PretrainConfig, collate, pretrain
from clozeworks.pipeline import UserError
from curves import Point, draw, tokens_until, write_points
from torch import Tensor

BERT = "BERT"
MODERNBERT = "ModernBERT"
THEIRS = "ModernBERT by transformers"
ARCHITECTURES = {BERT: "bert", MODERNBERT: "modernbert"}
FOLDERS = {BERT: "bert", MODERNBERT: "modernbert", THEIRS: "transformers"}
NUM_EVALUATIONS = 10
ROWS_AT_ONCE = 32
IGNORED = -100


@dataclass(frozen=True)
class Learned:
    """What one encoder of one seed learned, and what that cost."""

    points: list[Point]
    cpu_s_per_million: float | None
    """CPU time of training on a million tokens; None if a finished training was not timed."""


@dataclass(frozen=True)
class Plan:
    """The recipe that all encoders share."""

    instances: str
    output: Path
    config: PretrainConfig
    tokens_per_step: float
    held_out: list[Mapping[str, Tensor]]
    """Batches of the validation split."""

    @property
    def steps(self) -> int:
        """Updates of each encoder."""
        assert self.config.steps is not None
        return self.config.steps

    @property
    def archived_steps(self) -> range:
        """Where models are kept, the last one excepted."""
        assert self.config.archive_every is not None
        return range(self.config.archive_every, self.steps, self.config.archive_every)

    def folder(self, name: str, seed: int) -> Path:
        """Return where the encoder of this kind and seed is."""
        return self.output / FOLDERS[name] / f"seed-{seed}"


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.argument("instances", type=click.Path(exists=True, file_okay=False))
@click.option("--output", type=click.Path(path_type=Path), required=True, help="For the results.")
@click.option("--model", default="tiny", show_default=True, help="Size, as in `pretrain`.")
@click.option("--tokens", default=3_000_000, show_default=True, help="Tokens to train on.")
@click.option("--batch-size", default=32, show_default=True, help="Rows of an update.")
@click.option("--learning-rate", default=2e-3, show_default=True, help="Peak learning rate.")
@click.option("--precision", default="fp32", show_default=True, help="fp32 or bf16.")
@click.option("--seeds", default=3, show_default=True, help="Encoders of each kind.")
@click.option("--rows", default=500, show_default=True, help="Held-out rows.")
def learning(
    instances: str,
    output: Path,
    model: Any,
    tokens: int,
    batch_size: int,
    learning_rate: float,
    precision: Any,
    seeds: int,
    rows: int,
) -> None:
    """Pre-train BERT, ModernBERT and `transformers`' ModernBERT on the same INSTANCES, on the CPU.

    Ends in a table and a picture. Encoders that are there already are kept, and unfinished ones
    resume.
    """
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    dataset = InstanceDataset(instances, batch_size=batch_size)
    tokens_per_step = dataset.directory.mean_length * batch_size
    steps = max(1, round(tokens / tokens_per_step))
    config = PretrainConfig(
        model=model,
        objective="mlm",
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        dropout=0.0,
        precision=precision,
        archive_every=-(-steps // NUM_EVALUATIONS),
        # The held-out loss is measured afterwards, by one program for all.
        evaluate_every=steps,
        device="cpu",
    )
    plan = Plan(instances, output, config, tokens_per_step, list(_held_out(instances, rows)))
    learned: dict[str, list[Learned]] = {name: [] for name in FOLDERS}
    for seed in range(1, seeds + 1):
        for name in FOLDERS:  # theirs comes last: it reads the shape of ours
            click.echo(f"{time.strftime('%H:%M')} {name}, seed {seed}")
            learned[name].append(_learn(plan, name, seed))
    points = [point for runs in learned.values() for run in runs for point in run.points]
    write_points(output / "curves.csv", points)
    (output / "curves.svg").write_bytes(draw(points))
    table = _markdown(learned)
    (output / "learning.md").write_text(table, encoding="utf-8")
    click.echo(f"\n{table}")


def _held_out(instances: str, num_rows: int) -> Iterator[Mapping[str, Tensor]]:
    dataset = InstanceDataset(instances, "validation", batch_size=ROWS_AT_ONCE, epochs=1)
    rows = iter(islice(dataset, num_rows))
    while batch := list(islice(rows, ROWS_AT_ONCE)):
        yield collate(batch)


def _learn(plan: Plan, name: str, seed: int) -> Learned:
    """Train an encoder, or finish it, and measure what it had learned along the way."""
    folder = plan.folder(name, seed)
    result = folder / "learned.json"
    if not result.is_file():
        if name == THEIRS:
            cpu_s = _train_theirs(plan, seed)
        else:
            cpu_s = _train_ours(plan, name, seed)
        measured = [_measure(plan, model) for model in _models(plan, name, seed).values()]
        values = {"cpu_s_per_step": cpu_s, "steps": plan.steps, "measured": measured}
        result.write_text(json.dumps(values, indent=2))
    values = json.loads(result.read_text())
    if values["steps"] != plan.steps:
        raise UserError(f"{folder} has other steps ({values['steps']}); choose another --output.")
    points = []
    for step, (loss, accuracy) in zip(_models(plan, name, seed), values["measured"], strict=True):
        tokens = round(step * plan.tokens_per_step)
        points.append(Point(name, seed, tokens, loss, accuracy))
    cpu_s = values["cpu_s_per_step"]
    if cpu_s is not None:
        cpu_s *= 1e6 / plan.tokens_per_step
    return Learned(points, cpu_s)


def _models(plan: Plan, name: str, seed: int) -> dict[int, Path]:
    """Return the models that a training kept, by the number of updates."""
    folder = plan.folder(name, seed)
    if name == THEIRS:
        steps = [*plan.archived_steps, plan.steps]
        return {step: folder / f"checkpoint-{step}" for step in steps}
    models = {step: folder / f"archive/step-{step}" for step in plan.archived_steps}
    models[plan.steps] = folder
    return models


def _train_ours(plan: Plan, name: str, seed: int) -> float | None:
    """Train with `clozeworks pretrain`; return the CPU seconds of an update."""
    values = vars(plan.config) | {"architecture": ARCHITECTURES[name], "seed": seed}
    folder = plan.folder(name, seed)
    started = time.process_time()
    summary = pretrain(PretrainConfig(**values), [plan.instances], folder)
    cpu_s = time.process_time() - started
    if summary["status"] == "already finished":
        return None
    # Of this process alone, if the training was interrupted before; without the evaluations.
    timings = json.loads((folder / "timings.json").read_text())
    share = timings["seconds"] / (timings["seconds"] + timings["evaluation_s"])
    return cpu_s * share / timings["steps"]


def _train_theirs(plan: Plan, seed: int) -> float | None:
    """Train with `transformers`' Trainer on the same rows; return the CPU seconds of an update."""
    folder = plan.folder(THEIRS, seed)
    config = transformers.AutoConfig.from_pretrained(plan.folder(MODERNBERT, seed))
    transformers.set_seed(seed)
    model = transformers.AutoModelForMaskedLM.from_config(config)
    recipe = plan.config
    arguments = transformers.TrainingArguments(
        str(folder),
        max_steps=plan.steps,
        per_device_train_batch_size=recipe.batch_size,
        learning_rate=recipe.learning_rate or 0.0,  # `learning` gives one
        warmup_steps=plan.steps // 10,
        weight_decay=0.01,
        bf16=recipe.precision == "bf16",
        save_steps=plan.archived_steps.step,
        seed=seed,
        use_cpu=True,
        ignore_data_skip=True,  # the data set skips rows itself, at once
        remove_unused_columns=False,  # before `collate` has seen them
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    first_step = 0
    checkpoint = None
    kept = [step for step, path in _models(plan, THEIRS, seed).items() if path.is_dir()]
    if kept:
        first_step = max(kept)
        checkpoint = str(folder / f"checkpoint-{first_step}")
    if first_step == plan.steps:
        return None
    dataset = InstanceDataset(plan.instances, batch_size=recipe.batch_size, seed=seed)
    dataset.load_state_dict(dataset.state_dict(num_batches=first_step))
    trainer = transformers.Trainer(
        model, arguments, train_dataset=dataset, data_collator=_masked_words
    )
    started = time.process_time()
    trainer.train(resume_from_checkpoint=checkpoint)
    return (time.process_time() - started) / (plan.steps - first_step)


def _masked_words(rows: Sequence[Any]) -> dict[str, Tensor]:
    """Return a batch without segments and next sentences, which a ModernBERT does not know."""
    batch = collate(rows)
    unknown = ("token_type_ids", "next_sentence_label")
    return {name: values for name, values in batch.items() if name not in unknown}


@torch.inference_mode()
def _measure(plan: Plan, directory: Path) -> tuple[float, float]:
    """Return held-out loss and accuracy of the masked words, as `transformers` computes them."""
    model: Any = transformers.AutoModelForMaskedLM.from_pretrained(directory).eval()
    names = ["input_ids", "attention_mask"]
    if model.config.model_type == "bert":
        names.append("token_type_ids")
    loss = 0.0
    num_right = 0
    num_masked = 0
    for batch in plan.held_out:
        logits_BLV = model(**{name: batch[name] for name in names}).logits
        is_masked = batch["labels"] != IGNORED
        logits_MV = logits_BLV[is_masked]
        labels_M = batch["labels"][is_masked]
        loss += F.cross_entropy(logits_MV, labels_M, reduction="sum").item()
        num_right += int((logits_MV.argmax(1) == labels_M).sum())
        num_masked += len(labels_M)
    return loss / num_masked, num_right / num_masked


def _markdown(learned: Mapping[str, Sequence[Learned]]) -> str:
    """Return a table with a row per kind of encoder."""
    last_losses = [run.points[-1].loss for run in learned[BERT]]
    target = statistics.median(last_losses)
    lines = [
        f"| | held-out loss | accuracy, % | million tokens to {target:.2f} | CPU seconds to "
        f"{target:.2f} | CPU seconds per million tokens |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, runs in learned.items():
        last = [run.points[-1] for run in runs]
        tokens = []
        seconds = []
        costs = []
        for run in runs:
            reached = tokens_until(run.points, target)
            tokens.append(None if reached is None else reached / 1e6)
            if run.cpu_s_per_million is not None:
                costs.append(run.cpu_s_per_million)
                seconds.append(None if reached is None else costs[-1] * reached / 1e6)
        cells = [
            name,
            _spread([point.loss for point in last], ".2f"),
            _spread([100 * point.accuracy for point in last], ".1f"),
            _spread(tokens, ".2f"),
            _spread(seconds, ".0f"),
            _spread(costs, ".1f"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    body = "\n".join(lines)
    return f"{body}\n\nMedian [lowest, highest] over the seeds; {target:.2f} is BERT's last loss.\n"


def _spread(values: Sequence[float | None], form: str) -> str:
    """Return the median, with the lowest and the highest; None is what was never reached."""
    reached = [value for value in values if value is not None]
    if len(reached) < len(values) or not values:
        return f"reached by {len(reached)} of {len(values)}"
    text = f"{statistics.median(reached):{form}}"
    if len(reached) > 1:
        text += f" [{min(reached):{form}}, {max(reached):{form}}]"
    return text


def main() -> None:
    """Run the command; a user's mistake is one line."""
    try:
        learning()
    except UserError as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main()
