"""Does our loop learn what `transformers` learns? Both train on the same rows in the same order
with the same recipe.

    python -m benchmarks.learning INSTANCES [--tokens 4000000] [--seeds 3] [--model tiny]

For each seed, one encoder is trained by `pretrain` and one is `transformers.BertForPreTraining` in
a plain loop: padded batches, logits at every position, its own dropout and its own mean losses.
Both use BERT's optimiser, learning rate, clipping and initial weights: the weights of each seed are
drawn once, truncated at two standard deviations (`transformers` does not truncate; with
`--own-weights` it draws its own). What counts is the loss on the validation split, measured by
`clozeworks evaluate` for both; ours should be within the spread of the seeds.

    python -m benchmarks.learning INSTANCES --check

instead runs 60 steps of one seed without dropout. Both then compute the same, and the losses of
each step must agree within 1e-4; otherwise their recipes differ.

    python -m benchmarks.learning INSTANCES --theirs OUTPUT --tokens 105000000 --model mini
        [--precision bf16]

trains `transformers` alone, seed 0, into a directory for `clozeworks finetune --checkpoint`. A
checkpoint every `SAVE_EVERY` steps lets the same command resume.
"""

import argparse
import os
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from clozeworks.model.config import PretrainConfig
from clozeworks.model.encoders.bert_config import ModelConfig
from clozeworks.model.pretraining import data
from clozeworks.model.pretraining.evaluate import evaluate
from clozeworks.model.pretraining.pretrain import pretrain
from clozeworks.model.pretraining.sequence import RowSequence
from clozeworks.model.pretraining.spec import read_spec
from clozeworks.model.pretraining.start import initial_model
from clozeworks.model.tokenizer import tokenizer_files
from clozeworks.model.training.optim import (
    MAX_GRADIENT_NORM,
    default_warmup,
    learning_rate,
    make_optimizer,
    set_learning_rate,
)
from rich.console import Console
from rich.table import Table
from torch.nn.utils import clip_grad_norm_
from transformers import BertConfig

CHECKED_STEPS = 60
SAVE_EVERY = 500
MEASURED = ("mlm_loss", "mlm_accuracy", "nsp_accuracy")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("instances")
    parser.add_argument("--tokens", type=int, default=4_000_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    # So narrow an encoder hardly learns more than word frequencies in this time from BERT's 0.02.
    parser.add_argument("--initializer-range", type=float, default=0.08)
    parser.add_argument("--warmup-steps", type=int)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--duplicates-per-epoch", type=int)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument(
        "--own-weights", action="store_true", help="let transformers draw its own initial weights"
    )
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--theirs", metavar="OUTPUT")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if arguments.check:
        check(arguments)
        return
    directory = data.open_instances(arguments.instances)
    steps = round(arguments.tokens / (directory.mean_length * arguments.batch_size))
    if arguments.theirs:
        Path(arguments.theirs).mkdir(parents=True, exist_ok=True)
        train_theirs(
            make_config(arguments, 0, steps),
            arguments.instances,
            arguments.theirs,
            arguments.own_weights,
        )
        print(evaluate(arguments.theirs, arguments.instances, device="cpu"))
        return
    table = Table(
        "seed", "trainer", *MEASURED, "minutes", title=f"{arguments.model}, {steps:,} steps"
    )
    losses: dict[str, list[float]] = {"clozeworks": [], "transformers": []}
    trainers = {
        "clozeworks": train_ours,
        "transformers": partial(train_theirs, own_weights=arguments.own_weights),
    }
    for seed in range(arguments.seeds):
        config = make_config(arguments, seed, steps)
        for name, train in trainers.items():
            started = time.perf_counter()
            with tempfile.TemporaryDirectory() as folder:
                train(config, arguments.instances, folder)
                measured = evaluate(folder, arguments.instances, device="cpu")
            losses[name].append(measured["mlm_loss"])
            cells = [f"{measured[key]:.4f}" for key in MEASURED]
            table.add_row(str(seed), name, *cells, f"{(time.perf_counter() - started) / 60:.1f}")
            print(seed, name, *cells, flush=True)
    Console().print(table)
    for name, values in losses.items():
        spread = f", from {min(values):.4f} to {max(values):.4f}"
        print(f"{name}: mean validation MLM loss {statistics.mean(values):.4f}{spread}")


def check(arguments: argparse.Namespace) -> None:
    """Compare the losses of each of `CHECKED_STEPS` steps from the same weights, on the same rows,
    without dropout.
    """
    config = make_config(arguments, 0, CHECKED_STEPS, dropout=0.0)
    ours: list[float] = []
    with tempfile.TemporaryDirectory() as folder:

        def report(numbers: dict[str, Any]) -> None:
            ours.append(numbers["mlm_loss"] + numbers["nsp_loss"])

        pretrain(config, [arguments.instances], folder, report)
        theirs = train_theirs(config, arguments.instances, folder)
    apart = max(abs(one - other) for one, other in zip(ours, theirs, strict=True))
    print(
        f"losses from {ours[0]:.4f} to {ours[-1]:.4f} in {CHECKED_STEPS} steps, "
        f"at most {apart:.1e} apart"
    )
    if apart > 1e-4:
        raise SystemExit(
            "clozeworks and transformers compute different losses: their recipes differ"
        )


def make_config(
    arguments: argparse.Namespace, seed: int, steps: int, **changes: Any
) -> PretrainConfig:
    return PretrainConfig(
        model=arguments.model,
        steps=steps,
        batch_size=arguments.batch_size,
        learning_rate=arguments.learning_rate,
        initializer_range=arguments.initializer_range,
        warmup_steps=arguments.warmup_steps,
        precision=arguments.precision,
        duplicates_per_epoch=arguments.duplicates_per_epoch,
        compile=arguments.compile,
        seed=seed,
        device="cpu",
        **{"dropout": arguments.dropout, **changes},
    )


def train_ours(config: PretrainConfig, instances: str, folder: str) -> None:
    pretrain(config, [instances], folder)


def train_theirs(
    config: PretrainConfig, instances: str, folder: str, own_weights: bool = False
) -> list[float]:
    """Train `transformers` and save its model in `folder`; return the loss of each step."""
    directory = data.open_instances(instances)
    shape: dict[str, Any] = ModelConfig.named(
        config.model,
        vocab_size=directory.vocab_size,
        hidden_dropout_prob=config.dropout,
        attention_probs_dropout_prob=config.dropout,
        initializer_range=config.initializer_range,
    ).to_hf()
    torch.manual_seed(config.seed)
    shape["attn_implementation"] = (
        "eager"  # faster than the fused one in training on short rows on the CPU
    )
    model: Any = transformers.BertForPreTraining(BertConfig(**shape)).train()
    if not own_weights:
        model.load_state_dict(
            initial_model(read_spec(config).shape([directory]), config.seed).state_dict(),
            strict=False,
        )  # less the copies of tied ones
        model.tie_weights()
    # PyTorch's AdamW without bias correction, as BERT's; test_optim.py holds it against the
    # formula.
    optimizer = make_optimizer(model, config.weight_decay)
    sequence, steps = (
        RowSequence(directory, config.seed, config.duplicates_per_epoch),
        config.steps or 0,
    )
    warmup = default_warmup(steps) if config.warmup_steps is None else config.warmup_steps
    saved, losses = Path(folder, "checkpoint.pt"), []
    if saved.exists():
        checkpoint = torch.load(saved)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        losses = checkpoint["losses"]
    if config.compile:
        model.compile(dynamic=True)
    for step in range(len(losses), steps):
        rows = sequence.rows(step * config.batch_size, (step + 1) * config.batch_size)
        with torch.autocast("cpu", torch.bfloat16, enabled=config.precision == "bf16"):
            loss = model(**peer_batch(rows)).loss
        loss.backward()
        losses.append(loss.item())
        clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
        set_learning_rate(optimizer, learning_rate(step, config.peak_rate, warmup, steps))
        optimizer.step()
        optimizer.zero_grad()
        if len(losses) % SAVE_EVERY == 0:
            mean_loss = statistics.mean(losses[-100:])
            now = time.strftime("%H:%M")
            print(f"{now} step {len(losses):,}, loss {mean_loss:.3f}", flush=True)
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "losses": losses,
            }
            torch.save(state, f"{saved}.partial")
            os.replace(f"{saved}.partial", saved)
    model.save_pretrained(folder)
    for name, content in tokenizer_files(instances).items():
        (Path(folder) / name).write_bytes(content)
    return losses


def peer_batch(rows: data.Rows) -> dict[str, torch.Tensor]:
    """Lay out rows for `transformers`: padded, with -100 wherever there is nothing to predict."""
    width = int(rows.lengths.max())
    ids, types, mask = (torch.zeros(len(rows), width, dtype=torch.long) for _ in range(3))
    labels = torch.full_like(ids, -100)
    for row in range(len(rows)):
        first, last = rows.offsets[row], rows.offsets[row + 1]
        masked = slice(rows.masked_offsets[row], rows.masked_offsets[row + 1])
        positions = torch.from_numpy(rows.masked_positions[masked].astype("int64"))
        ids[row, : last - first] = torch.from_numpy(rows.input_ids[first:last].astype("int64"))
        types[row, int(rows.segment_b_start[row]) : last - first] = 1
        mask[row, : last - first] = 1
        labels[row, positions] = torch.from_numpy(rows.masked_ids[masked].astype("int64"))
    nsp = torch.from_numpy(rows.next_sentence_label.astype("int64"))
    return {
        "input_ids": ids,
        "token_type_ids": types,
        "attention_mask": mask,
        "labels": labels,
        "next_sentence_label": nsp,
    }


if __name__ == "__main__":
    main()
