"""Fine-tune on SST-2 beside `transformers`: the same encoder, sentences, batch size and number of
updates, on one core.

    python benchmarks/finetune.py SST-2_FOLDER CHECKPOINT [--updates 20] [--rounds 3]

The peer is ``BertForSequenceClassification``, trained as in its examples: random batches padded to
their longest row by ``DataCollatorWithPadding``, PyTorch's fused AdamW, clipping. Rounds are
interleaved; the fastest of each counts. Times are CPU time, so other work on the machine does not
count.
"""

import argparse
import os
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

# Before anything starts a thread pool: one core for each side.
os.environ.update(TOKENIZERS_PARALLELISM="false", OMP_NUM_THREADS="1")

import torch
import transformers
from clozeworks.model.checkpoint import Checkpoint
from clozeworks.model.finetuning.config import FinetuneConfig
from clozeworks.model.finetuning.model import make_model
from clozeworks.model.finetuning.results import Hyperparameters
from clozeworks.model.finetuning.run import FinetuneWork
from clozeworks.model.finetuning.setup import FinetuneSetup
from clozeworks.model.tasks.batches import Feature
from clozeworks.model.tasks.glue import GLUE
from clozeworks.model.tasks.splits import TaskSplits
from clozeworks.model.tokenizer import TextTokenizer
from clozeworks.model.training.optim import WEIGHT_DECAY
from clozeworks.model.training.ranks import Ranks
from rich.console import Console
from rich.table import Table

CONFIG = FinetuneConfig(device="cpu", precision="fp32")
TASK = GLUE["sst2"]
RUN = Hyperparameters(learning_rate=2e-5, batch_size=32, epochs=1.0, seed=0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    features = read_features(
        arguments.data, arguments.checkpoint, arguments.updates * RUN.batch_size
    )
    trainers = {"transformers": train_peer, "clozeworks": train_ours}
    seconds: dict[str, list[float]] = {name: [] for name in trainers}
    for _ in range(arguments.rounds):
        for name, train in trainers.items():
            seconds[name].append(train(features, arguments.checkpoint))
    num_tokens = sum(feature.length for feature in features)
    table = Table(
        "trainer", "examples/s", "ratio", title=f"{len(features)} sentences, {num_tokens} tokens"
    )
    peer = min(seconds["transformers"])
    for name, rounds in seconds.items():
        table.add_row(name, f"{len(features) / min(rounds):.1f}", f"{peer / min(rounds):.2f}")
    Console().print(table)


def read_features(folder: Path, checkpoint: Path, num_features: int) -> list[Feature]:
    examples = list(islice(TASK.read(folder / "train.tsv", labelled=True), num_features))
    return TASK.encode(examples, TextTokenizer(checkpoint))


def train_ours(features: list[Feature], checkpoint: Path) -> float:
    opened = Checkpoint.open(checkpoint)
    setup = FinetuneSetup(
        splits=TaskSplits(TASK, [], {}, {}, False),
        checkpoint=opened,
        config=CONFIG,
        train=features,
        dev={},
    )
    model = make_model(TASK, opened, CONFIG, RUN.seed)
    ranks = Ranks(0, 1, torch.device("cpu"))

    def train() -> None:
        FinetuneWork(setup=setup, run=RUN, model=model, ranks=ranks).train()

    return processor_time(train)


def train_peer(features: list[Feature], checkpoint: Path) -> float:
    model = transformers.BertForSequenceClassification.from_pretrained(checkpoint).train()
    collate = transformers.DataCollatorWithPadding(
        transformers.AutoTokenizer.from_pretrained(checkpoint)
    )
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=RUN.learning_rate, weight_decay=WEIGHT_DECAY, fused=True
    )

    def train() -> None:
        for rows in torch.randperm(len(features), generator=torch.Generator().manual_seed(0)).split(
            RUN.batch_size
        ):
            chosen = [features[row] for row in rows.tolist()]
            batch = collate(
                [{"input_ids": one.rows[0].input_ids, "labels": _label(one)} for one in chosen]
            )
            model(**batch).loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

    return processor_time(train)


def _label(feature: Feature) -> int:
    assert feature.target is not None
    return int(feature.target)


def processor_time(work: Callable[[], object]) -> float:
    """Return the CPU seconds that `work` takes."""
    started = time.process_time()
    work()
    return time.process_time() - started


if __name__ == "__main__":
    main()
