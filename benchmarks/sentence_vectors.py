"""Sentence vectors beside `sentence-transformers`' own trainer: the same encoder, pairs and recipe.

    python -m benchmarks.sentence_vectors STS_B CHECKPOINT [--seeds 3] [--loss cosine]
        [--rows 0] [--epochs 1] [--log runs.jsonl] [--trainers ours sentence-transformers]

STS_B contains train.tsv and dev.tsv. `cosine` trains on the scores (Sentence-BERT's squared error),
`contrastive` on the pairs with a score of 4 or more, with the other pairs of a batch as wrong
answers. Both trainers use batches of 16 (cosine) or 64 rows, rate 2e-5, 10% warm-up, fp32, one
thread, the checkpoint's dropout, and AdamW (theirs with bias correction; ours with and without).
After warm-up their rate falls from the peak, ours from where a decay from the first update would
be: a tenth less in sum. So theirs is measured with our schedule, too.
Spearman on dev, by their evaluator for both; seconds of training per step. Finished runs are
recorded in --log.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.update(TOKENIZERS_PARALLELISM="false", OMP_NUM_THREADS="1")

import torch
from clozeworks.model.finetuning.config import FinetuneConfig
from clozeworks.model.finetuning.finetune import finetune
from clozeworks.model.tasks.tables import read_rows
from clozeworks.model.training.optim import learning_rate
from torch.optim.lr_scheduler import LambdaLR

MAX_LENGTH = 128
RATE = 2e-5
BATCH_SIZES = {"cosine": 16, "contrastive": 64}
THEIRS = "sentence-transformers"
THEIRS_WITH_OUR_RATE = "sentence-transformers, our schedule"
TRAINERS = ("ours", "ours, bias correction", THEIRS, THEIRS_WITH_OUR_RATE)
COLUMNS = "sentence1\tsentence2"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--trainers", nargs="+", default=list(TRAINERS), choices=list(TRAINERS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--loss", choices=list(BATCH_SIZES), default="cosine")
    parser.add_argument("--rows", type=int, default=0, help="Use the first rows only; 0 for all.")
    parser.add_argument("--epochs", type=float, default=1)
    parser.add_argument("--log", type=Path, default=Path("sentence_vectors.jsonl"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    done = set()
    if options.log.exists():
        for line in options.log.read_text().splitlines():
            record = json.loads(line)
            done.add((record["loss"], record["trainer"], record["seed"], record["checkpoint"]))
    train = list(pairs(options.data / "train.tsv"))
    if options.rows:
        train = train[: options.rows]
    if options.loss == "contrastive":
        train = [pair for pair in train if pair[2] >= 4]
    dev = list(pairs(options.data / "dev.tsv"))
    for seed in range(options.seeds):
        for trainer in options.trainers:
            key = (options.loss, trainer, seed, str(options.checkpoint))
            if key in done:
                continue
            figures = run(trainer, train, dev, seed, options)
            names = ("loss", "trainer", "seed", "checkpoint")
            record = {**dict(zip(names, key, strict=True)), **figures}
            print(json.dumps(record), flush=True)
            with options.log.open("a") as file:
                file.write(json.dumps(record) + "\n")


def pairs(path: Path) -> Iterator[tuple[str, str, float]]:
    for row in read_rows(path):
        yield row.text("sentence1"), row.text("sentence2"), row.number("score")


def run(
    trainer: str, train: list[Any], dev: list[Any], seed: int, options: argparse.Namespace
) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        if trainer in (THEIRS, THEIRS_WITH_OUR_RATE):
            has_our_rate = trainer == THEIRS_WITH_OUR_RATE
            return train_theirs(train, dev, seed, options, folder, has_our_rate)
        return train_ours(train, dev, seed, options, Path(folder), trainer != "ours")


def train_ours(
    train: list[Any],
    dev: list[Any],
    seed: int,
    options: argparse.Namespace,
    folder: Path,
    bias_correction: bool,
) -> dict[str, float]:
    from sentence_transformers import SentenceTransformer  # pyright: ignore[reportMissingImports]

    (folder / "data").mkdir()
    for name, rows, with_scores in (
        ("train.tsv", train, options.loss == "cosine"),
        ("dev.tsv", dev, True),
    ):
        lines = [COLUMNS + "\tscore" * with_scores]
        for first, second, score in rows:
            lines.append(f"{first}\t{second}" + f"\t{score}" * with_scores)
        (folder / "data" / name).write_text("\n".join(lines) + "\n")
    config = FinetuneConfig(
        max_length=MAX_LENGTH,
        batch_size=BATCH_SIZES[options.loss],
        epochs=options.epochs,
        learning_rates=(RATE,),
        seed=seed,
        bias_correction=bias_correction,
        # Theirs trains with the checkpoint's own.
        dropout=json.loads((options.checkpoint / "config.json").read_text())["hidden_dropout_prob"],
        precision="fp32",
        device="cpu",
    )
    output = folder / "model"
    finetune("similarity", folder / "data", options.checkpoint, output, config)
    (record_file,) = output.glob("runs/*/run.json")
    record = json.loads(record_file.read_text())
    steps = max(1, round(options.epochs * -(-len(train) // BATCH_SIZES[options.loss])))
    return {
        "spearman": spearman(SentenceTransformer(str(output), device="cpu"), dev),
        "before": record["untrained"]["spearman"],
        "step_s": record["seconds"] / steps,
        "steps": steps,
        "best_step": record["step"],
    }


def spearman(model: Any, dev: list[Any]) -> float:
    from sentence_transformers.sentence_transformer.evaluation import (  # pyright: ignore[reportMissingImports]
        EmbeddingSimilarityEvaluator,
    )

    first, second, scores = zip(*dev, strict=True)
    evaluator = EmbeddingSimilarityEvaluator(list(first), list(second), list(scores))
    return evaluator(model)["spearman_cosine"]


def train_theirs(
    train: list[Any],
    dev: list[Any],
    seed: int,
    options: argparse.Namespace,
    folder: str,
    has_our_rate: bool,
) -> dict[str, float]:
    from datasets import Dataset
    from sentence_transformers import (  # pyright: ignore[reportMissingImports]
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer import losses, modules  # pyright: ignore[reportMissingImports]

    torch.manual_seed(seed)
    transformer = modules.Transformer(str(options.checkpoint), max_seq_length=MAX_LENGTH)
    pooling = modules.Pooling(transformer.get_embedding_dimension(), "mean")
    model = SentenceTransformer(modules=[transformer, pooling], device="cpu")
    before = spearman(model, dev)
    columns = {"sentence1": [pair[0] for pair in train], "sentence2": [pair[1] for pair in train]}
    loss: Any = losses.MultipleNegativesRankingLoss(model)
    if options.loss == "cosine":
        columns["label"] = [pair[2] / 5 for pair in train]
        loss = losses.CosineSimilarityLoss(model)
    settings = SentenceTransformerTrainingArguments(
        output_dir=folder,
        num_train_epochs=options.epochs,
        per_device_train_batch_size=BATCH_SIZES[options.loss],
        learning_rate=RATE,
        warmup_steps=0.1,
        weight_decay=0.01,
        seed=seed,
        use_cpu=True,
        save_strategy="no",
        report_to="none",
        logging_strategy="no",
        disable_tqdm=True,
    )
    trainer = SentenceTransformerTrainer(
        model=model, args=settings, train_dataset=Dataset.from_dict(columns), loss=loss
    )
    if has_our_rate:
        num_steps = round(options.epochs * -(-len(train) // BATCH_SIZES[options.loss]))
        warmup_steps = round(0.1 * num_steps)
        trainer.lr_scheduler = LambdaLR(
            trainer.create_optimizer(),
            lambda step: learning_rate(step, 1.0, warmup_steps, num_steps),
        )
    started = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - started
    steps = trainer.state.global_step
    return {
        "spearman": spearman(model, dev),
        "before": before,
        "step_s": seconds / steps,
        "steps": steps,
        "best_step": steps,
    }


if __name__ == "__main__":
    main()
