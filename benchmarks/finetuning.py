"""Fine-tuning on a CPU beside `transformers.Trainer`: whole commands, and updates of three sizes.

    python -m benchmarks.finetuning [--threads 1] [--model tiny]...

The task is the quickstart's word order, from `examples/model`: two epochs of 16, dev after each.
The sizes are BERTs with random weights, one epoch on its sentences, and on texts of eight.

`Trainer` is set as its documentation calls fastest on a CPU: batches of like lengths
(`group_by_length`), padded to their longest row, bf16 if the processor has AMX, the fused AdamW.
Both have the dropout of the encoder's own configuration: none for `examples/model`, 0.1 for
BERT. The seconds of updates are without start, reading and measurements on dev.
"""

import argparse
import csv
import os
import shutil
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from clozeworks.model.encoders.catalogue import CONFIGS

from .process import CLOZEWORKS, run_measured
from .table import Row

EXAMPLES = Path(__file__).parents[1] / "examples"
HAS_AMX = torch.cpu._is_amx_tile_supported()


class Case(NamedTuple):
    """A fine-tuning, the same for both."""

    name: str
    checkpoint: Path
    data: Path
    epochs: int
    dropout: float


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", default="1")
    parser.add_argument("--model", action="append", choices=("example", "tiny", "mini", "base"))
    parser.add_argument("--peer", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peer:
        checkpoint, data, epochs, output = arguments.peer
        train_peer(checkpoint, Path(data), int(epochs), Path(output))
        return
    os.environ["OMP_NUM_THREADS"] = arguments.threads
    precision = "bf16" if HAS_AMX else "fp32"
    peer = f"`Trainer` {transformers.__version__}, {precision}, group_by_length"
    with TemporaryDirectory() as folder:
        for case in cases(Path(folder), arguments.model or ["example", "tiny", "base"]):
            compare(case, peer, Path(folder))


def cases(folder: Path, models: list[str]) -> list[Case]:
    short = EXAMPLES / "quickstart" / "word-order"
    long = folder / "long"
    write_long(short, long)
    found = []
    for model in models:
        if model == "example":
            found.append(Case(model, EXAMPLES / "model", short, 2, 0.0))
            continue
        checkpoint = folder / model
        write_bert(model, checkpoint)
        for name, data in (("short", short), ("long", long)):
            found.append(Case(f"{model}, {name}", checkpoint, data, 1, 0.1))
    return found


def write_long(short: Path, long: Path) -> None:
    """Write a task whose texts are eight texts of one class."""
    long.mkdir()
    for name in ("train.tsv", "dev.tsv"):
        lines = ["label\tsentence"]
        by_class: dict[str, list[str]] = {}
        for row in read_rows(short / name):
            by_class.setdefault(row["label"], []).append(row["sentence"])
        for label, texts in by_class.items():
            for first in range(0, len(texts), 8):
                lines.append(f"{label}\t{' '.join(texts[first : first + 8])}")
        (long / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def write_bert(size: str, folder: Path) -> None:
    """Write a BERT with random weights and the tokenizer of `examples/model`."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(EXAMPLES / "model")
    fields = CONFIGS["bert"].vocabulary_fields(len(tokenizer), 0, 2, 3)
    config = CONFIGS["bert"].named(size, **fields)
    model = transformers.BertForPreTraining(transformers.BertConfig(**config.to_hf()))
    model.save_pretrained(folder)
    for file in (EXAMPLES / "model").glob("*token*"):
        shutil.copy(file, folder)
    shutil.copy(EXAMPLES / "model" / "vocab.txt", folder)


def compare(case: Case, peer_title: str, folder: Path) -> None:
    """Print the lines of a whole command, and of its updates alone."""
    output = folder / "output"
    ours = [
        *(*CLOZEWORKS, "finetune", "classify", case.data, "--checkpoint", case.checkpoint),
        *("--output", output, "--epochs", case.epochs, "--batch-size", 16, "--max-length", 512),
        *("--learning-rates", 3e-4, "--dropout", case.dropout, "--device", "cpu"),
    ]
    peer_output = folder / "peer"
    peer = [sys.executable, "-m", "benchmarks.finetuning", "--peer"]
    peer += [case.checkpoint, case.data, case.epochs, peer_output]
    # 1 says that random weights have learned nothing.
    used = run_measured([str(argument) for argument in ours], fine=(0, 1))
    peer_used = run_measured([str(argument) for argument in peer])
    ((row), *_) = csv.DictReader((output / "results.csv").open())
    peer_seconds, peer_accuracy = map(float, peer_output.read_text().split())
    seconds = float(row["seconds"])
    rows = [
        Row(
            f"fine-tune {case.name}",
            used.wall_s,
            f"{peer_title}, accuracy {peer_accuracy:.3f}",
            peer_used.wall_s,
            "s",
            f"accuracy {float(row['accuracy']):.3f}",
        ),
        Row("... its CPU time", used.cpu_s, peer_title, peer_used.cpu_s, "s of CPU"),
        Row("... updates alone", seconds, peer_title, peer_seconds, "s"),
    ]
    for each in rows:
        print(each.markdown("finetuning"), flush=True)
    shutil.rmtree(output)


def train_peer(checkpoint: str, data: Path, epochs: int, output: Path) -> None:
    """Train with `Trainer`; write the seconds of its updates, and the accuracy on dev."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    sets: dict[str, list[dict[str, Any]]] = {}
    for split in ("train", "dev"):
        rows = read_rows(data / f"{split}.tsv")
        names = sorted({row["label"] for row in rows})
        encoded = tokenizer([row["sentence"] for row in rows], truncation=True, max_length=512)
        sets[split] = [
            {"input_ids": input_ids, "attention_mask": mask, "labels": names.index(row["label"])}
            for row, input_ids, mask in zip(
                rows, encoded["input_ids"], encoded["attention_mask"], strict=True
            )
        ]
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        checkpoint, num_labels=len(names)
    )
    settings = transformers.TrainingArguments(
        output_dir=str(output.with_suffix(".d")),
        num_train_epochs=epochs,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=64,
        learning_rate=3e-4,
        weight_decay=0.01,
        warmup_steps=0.1,
        train_sampling_strategy="group_by_length",
        bf16=HAS_AMX,
        use_cpu=True,
        save_strategy="no",
        eval_strategy="epoch",
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = transformers.Trainer(
        model=model,
        args=settings,
        train_dataset=sets["train"],  # pyright: ignore[reportArgumentType]
        eval_dataset=sets["dev"],  # pyright: ignore[reportArgumentType]
        data_collator=transformers.DataCollatorWithPadding(tokenizer),
        compute_metrics=lambda given: {
            "accuracy": float(np.mean(np.argmax(given.predictions, -1) == given.label_ids))
        },
    )
    started = time.monotonic()
    trainer.train()
    seconds = time.monotonic() - started
    measured = [entry for entry in trainer.state.log_history if "eval_runtime" in entry]
    seconds -= sum(entry["eval_runtime"] for entry in measured)
    best = max(entry["eval_accuracy"] for entry in measured)
    output.write_text(f"{seconds} {best}\n")


if __name__ == "__main__":
    main()
