"""Dev scores of fine-tuning beside `transformers`: the same checkpoint, rows, recipe and number of
seeds.

    python benchmarks/glue_parity.py GLUE_FOLDER CHECKPOINT [--tasks rte mrpc sst2] [--seeds 3]
        [--log runs.jsonl] [--precision bf16]

GLUE_FOLDER contains the official files of RTE, MRPC and SST-2 (2,000 of its training sentences are
used). The recipe is the paper's at one learning rate: 5e-5, batches of 32, 3 epochs, warm-up over
10% of the steps. The peer is ``BertForSequenceClassification`` in a plain loop, with random
batches padded to their longest row and BERT's Adam reimplemented here, so only the tokens come from
clozeworks. Our score should be within the peer's spread.

A run of MiniLM (6 layers of 384) takes 100 to 600 seconds on one core, the peer's nearly twice as
long; with ``--precision bf16`` (both trainers) a third of that, if the CPU supports it. Finished
runs are recorded in --log and not repeated.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# Before anything starts a thread pool: one core for each run.
os.environ.update(TOKENIZERS_PARALLELISM="false", OMP_NUM_THREADS="1")

import numpy as np
import torch
import transformers
from clozeworks.model.checkpoint import Checkpoint
from clozeworks.model.finetuning.config import FinetuneConfig
from clozeworks.model.finetuning.model import infer, make_model
from clozeworks.model.finetuning.results import Hyperparameters
from clozeworks.model.finetuning.run import FinetuneWork
from clozeworks.model.finetuning.setup import FinetuneSetup
from clozeworks.model.tasks import metrics
from clozeworks.model.tasks.batches import Feature
from clozeworks.model.tasks.classify import TextExample
from clozeworks.model.tasks.glue import GLUE
from clozeworks.model.tasks.splits import TaskSplits
from clozeworks.model.tokenizer import TextTokenizer
from clozeworks.model.training.graphs import make_inference
from clozeworks.model.training.ranks import Ranks
from rich.console import Console
from rich.table import Table
from torch import Tensor

FOLDERS = {"rte": "RTE", "mrpc": "MRPC", "sst2": "SST-2"}
LIMITS = {"sst2": 2000}
RATE, BATCH_SIZE, EPOCHS, WARMUP_SHARE = 5e-5, 32, 3, 0.1


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--tasks", nargs="+", default=list(FOLDERS), choices=list(FOLDERS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--limit", type=int, help="take no more training and dev examples than this, for a trial"
    )
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--log", type=Path)
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    log = arguments.log
    runs = (
        [json.loads(line) for line in log.read_text().splitlines()] if log and log.exists() else []
    )
    paths = {
        "data": str(arguments.data.resolve()),
        "checkpoint": str(arguments.checkpoint.resolve()),
    }
    same = {**paths, "limit": arguments.limit, "precision": arguments.precision}
    for task in arguments.tasks:
        for seed in range(arguments.seeds):
            for trainer in ("clozeworks", "transformers"):
                key = {"task": task, "seed": seed, "trainer": trainer} | same
                if not any(key.items() <= run.items() for run in runs):
                    runs.append(key | run_once(arguments, task, seed, trainer))
                    if log:
                        log.write_text("".join(json.dumps(run) + "\n" for run in runs))
    asked = [run for run in runs if run["task"] in arguments.tasks and same.items() <= run.items()]
    print_table(asked)


def run_once(arguments: argparse.Namespace, task: str, seed: int, trainer: str) -> dict[str, Any]:
    """Train and measure once; return GLUE's score for the task and the CPU seconds."""
    folder, checkpoint = arguments.data / FOLDERS[task], arguments.checkpoint
    tokenizer = TextTokenizer(checkpoint)
    train, dev = (
        list(GLUE[task].read(folder / f"{name}.tsv", labelled=True)) for name in ("train", "dev")
    )
    train, dev = train[: LIMITS.get(task)][: arguments.limit], dev[: arguments.limit]
    features = GLUE[task].encode(train, tokenizer), GLUE[task].encode(dev, tokenizer)
    started = time.process_time()
    predict = predict_ours if trainer == "clozeworks" else predict_peer
    score = measure(task, predict(task, *features, checkpoint, seed, arguments.precision), dev)
    return {
        "score": score,
        "seconds": round(time.process_time() - started, 1),
        "examples": len(train),
    }


def measure(task: str, logits: np.ndarray, dev: list[TextExample]) -> float:
    """Return F1 for MRPC, else accuracy."""
    return metrics.measure(
        GLUE[task].metrics[0],
        logits.argmax(1),
        np.array([example.target for example in dev], dtype=np.int64),
    )


def predict_ours(
    task: str, train: list[Feature], dev: list[Feature], checkpoint: Path, seed: int, precision: Any
) -> np.ndarray:
    """Return logits (N, 2) for the dev examples after training by `clozeworks`."""
    config = FinetuneConfig(device="cpu", precision=precision)
    opened = Checkpoint.open(checkpoint)
    setup = FinetuneSetup(
        splits=TaskSplits(GLUE[task], [], {}, {}, False),
        checkpoint=opened,
        config=config,
        train=train,
        dev={},
    )
    run = Hyperparameters(learning_rate=RATE, batch_size=BATCH_SIZE, epochs=EPOCHS, seed=seed)
    model = make_model(GLUE[task], opened, config, seed)
    ranks = Ranks(0, 1, torch.device("cpu"))
    FinetuneWork(setup=setup, run=run, model=model, ranks=ranks).train()
    return np.stack(infer(model, dev, make_inference(ranks.device)))


def predict_peer(
    task: str, train: list[Feature], dev: list[Feature], checkpoint: Path, seed: int, precision: str
) -> np.ndarray:
    """Return logits (N, 2) for the dev examples after training by a plain loop over a model of
    `transformers`.
    """
    torch.manual_seed(seed)
    model = transformers.BertForSequenceClassification.from_pretrained(checkpoint).train()
    adam = BertAdam(model)
    batches = [rows for _ in range(EPOCHS) for rows in torch.randperm(len(train)).split(BATCH_SIZE)]
    warmup_steps = round(WARMUP_SHARE * len(batches))
    for step, rows in enumerate(batches):
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = model(**collate([train[row] for row in rows.tolist()])).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step(RATE * (step / warmup_steps if step < warmup_steps else 1 - step / len(batches)))
    model.eval()
    with torch.inference_mode():
        return np.concatenate([model(**collate([feature])).logits.numpy() for feature in dev])


def collate(features: list[Feature]) -> dict[str, Tensor]:
    """Return inputs for a `transformers` model, padded to the longest row."""
    rows = [feature.row for feature in features]
    longest = max(len(row.input_ids) for row in rows)
    shape = (len(rows), longest)
    batch = {
        name: torch.zeros(shape, dtype=torch.long)
        for name in ("input_ids", "token_type_ids", "attention_mask")
    }
    for index, row in enumerate(rows):
        length = len(row.input_ids)
        batch["input_ids"][index, :length] = torch.from_numpy(row.input_ids)
        batch["token_type_ids"][index, row.segment_b_start : length] = 1
        batch["attention_mask"][index, :length] = 1
    return {
        **batch,
        "labels": torch.tensor([int(np.asarray(feature.target)) for feature in features]),
    }


class BertAdam:
    """Adam as in google-research/bert: no bias correction; decoupled decay except for biases and
    LayerNorm.
    """

    def __init__(self, model: torch.nn.Module):
        self.parameters = dict(model.named_parameters())
        self.averages = {
            name: (torch.zeros_like(x), torch.zeros_like(x)) for name, x in self.parameters.items()
        }

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Apply the gradients to the parameters and clear them."""
        for name, parameter in self.parameters.items():
            assert parameter.grad is not None
            mean, square = self.averages[name]
            mean.mul_(0.9).add_(parameter.grad, alpha=0.1)
            square.mul_(0.999).addcmul_(parameter.grad, parameter.grad, value=0.001)
            update = mean / (square.sqrt() + 1e-6)
            if not name.endswith("bias") and "LayerNorm" not in name:
                update += 0.01 * parameter
            parameter -= rate * update
            parameter.grad = None


def print_table(runs: list[dict[str, Any]]) -> None:
    table = Table(
        "task",
        "trainer",
        "scores",
        "median",
        "spread",
        "within the peer's",
        "ms of a core per example",
    )
    for task in dict.fromkeys(run["task"] for run in runs):
        scores = {
            name: by_trainer(runs, task, name, "score") for name in ("transformers", "clozeworks")
        }
        low, high = min(scores["transformers"]), max(scores["transformers"])
        for name, found in scores.items():
            within = "" if name == "transformers" else str(low <= statistics.median(found) <= high)
            seconds, examples = (
                by_trainer(runs, task, name, "seconds"),
                by_trainer(runs, task, name, "examples"),
            )
            cost = 1000 * sum(seconds) / sum(examples) / EPOCHS
            listed = ", ".join(f"{score:.3f}" for score in found)
            spread = f"{max(found) - min(found):.3f}"
            table.add_row(
                task, name, listed, f"{statistics.median(found):.3f}", spread, within, f"{cost:.0f}"
            )
    Console().print(table)


def by_trainer(runs: Iterable[dict[str, Any]], task: str, trainer: str, what: str) -> list[Any]:
    return [run[what] for run in runs if (run["task"], run["trainer"]) == (task, trainer)]


if __name__ == "__main__":
    main()
