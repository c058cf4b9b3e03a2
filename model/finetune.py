"""Fine-tuning: one trainer for every task, over each learning rate and seed; the best run on dev is kept.

The output directory is a model directory in Hugging Face's layout, with ``task.json`` (what `predict` needs to know of
the task), ``results.csv`` (one line a run), ``summary.json``, and ``runs/`` with a record for each finished run: when
the same command runs again, those are skipped. On the CPU the same seed gives the same weights, to the last bit.
"""

import csv
import hashlib
import io
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count, islice, product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ..pipeline.errors import UserError
from ..pipeline.seeding import rng_for, stable_hash
from .bert import initialise
from .checkpoint import CONFIG, OLD_WEIGHTS, TOKENIZER_FILES, WEIGHTS, load_weights, read_config, save_model, write_file
from .device import find_device, memory_told, uses_bf16
from .finetune_config import FinetuneConfig
from .optim import MAX_GRADIENT_NORM, learning_rate, make_optimizer, set_learning_rate
from .predict import TASK, check_fit, infer
from .run import claim, write_json
from .tasks.catalogue import find_entry
from .tasks.splits import dev_sets, find_splits, hold_out
from .tasks.task import Feature, Recipe, Task, TaskModel, make_batch
from .tasks.tokenizer import TextTokenizer, tokenizer_files

IDENTITY = "finetune.json"
RUNS = "runs"
RESULTS = "results.csv"
SUMMARY = "summary.json"
OWN_FILES = (SUMMARY, RESULTS, RUNS, TASK, WEIGHTS, CONFIG, *TOKENIZER_FILES, IDENTITY)
POOL_BATCHES = 16
REPORT_EVERY = 10

Progress = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class TaskData:
    """A task with its training and dev examples, and the files they come from."""

    task: Task
    train: list[Any]
    dev: dict[str, list[Any]]
    """By what stands before the metrics' names: nothing, or ``mismatched_`` for MNLI's second dev set."""
    files: list[Path]
    held_out: bool
    """There is no dev file, so that a tenth of the training examples is held out."""


@dataclass(frozen=True)
class Job:
    """All that the runs have in common."""

    data: TaskData
    train: list[Feature]
    dev: dict[str, list[Feature]]
    checkpoint: Path
    config: FinetuneConfig
    recipe: Recipe
    """The task's own, with what the user chose."""
    device: torch.device


def finetune(
    task_name: str,
    data: str | Path,
    checkpoint: str | Path,
    output: str | Path,
    config: FinetuneConfig,
    progress: Progress | None = None,
    *,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Fine-tune `checkpoint` on a task for each learning rate and seed, and return what ``summary.json`` holds.

    `data` is a folder or file of the official form, `checkpoint` any BERT directory in Hugging Face's layout. The
    same call goes on with unfinished work; `overwrite` starts anew. `progress` is called about every tenth step with
    ``stage`` (which run it is), ``step``, ``steps``, ``loss`` and ``examples_per_second``.

    Raises `UserError` for bad input, for an `output` that holds something else, and for a loss that is not finite.
    """
    output, checkpoint = Path(output), Path(checkpoint)
    if output.resolve() == checkpoint.resolve():
        raise UserError(f"--output is the checkpoint itself ({output}); give another directory.")
    job = _prepare(read_data(task_name, data, config), checkpoint, config)
    claim(output, _identity(job), overwrite, OWN_FILES)
    (output / RUNS).mkdir(exist_ok=True)
    grid = list(product(job.recipe.learning_rates, range(config.seed, config.seed + config.seeds)))
    records: list[dict[str, Any]] = []
    for index, (rate, seed) in enumerate(grid, 1):
        path = output / RUNS / f"learning-rate-{rate}-seed-{seed}.json"
        if not path.exists():
            stage = f"run {index} of {len(grid)} (learning rate {rate:g}, seed {seed})"
            model, task, record = _run(job, rate, seed, _staged(progress, stage))
            if all(_main(record["scores"]) > _main(other["scores"]) for other in records):
                _save(output, model, task, job)
            write_json(path, record)
        records.append(json.loads(path.read_text(encoding="utf-8")))
        _write_results(output / RESULTS, records)
    summary = _summary(job, records)
    write_json(output / SUMMARY, summary)
    return summary


def _prepare(data: TaskData, checkpoint: Path, config: FinetuneConfig) -> Job:
    shape = read_config(checkpoint)
    tokenizer = TextTokenizer(checkpoint)
    check_fit(tokenizer, shape, data.task.max_length, checkpoint)
    if shape.is_decoder:
        raise UserError(f"{checkpoint} reads from left to right, so that its [CLS] sees no text; take another model.")
    dev = {prefix: data.task.encode(examples, tokenizer) for prefix, examples in data.dev.items()}
    train = data.task.encode(data.train, tokenizer)
    return Job(data, train, dev, checkpoint, config, _recipe(data.task, config), find_device(config.device))


def _recipe(task: Task, config: FinetuneConfig) -> Recipe:
    chosen = {name: getattr(config, name) for name in Recipe._fields}
    return task.recipe._replace(**{name: value for name, value in chosen.items() if value is not None})


def _staged(progress: Progress | None, stage: str) -> Progress:
    return lambda live: progress({"stage": stage, **live}) if progress else None


def _run(job: Job, rate: float, seed: int, report: Progress) -> tuple[TaskModel, Task, dict[str, Any]]:
    """Train and evaluate once; return the model, the task as tuned on dev, and the record of the run."""
    started = time.perf_counter()
    model = make_model(job.data.task, job.checkpoint, job.config, seed).to(job.device)
    with memory_told("--batch-size"):
        train_model(model, job.train, job.config, job.recipe, rate, seed, report)
    outputs = {prefix: infer(model, features, job.config.precision) for prefix, features in job.dev.items()}
    task = job.data.task.tuned(outputs[""], job.dev[""], job.data.dev[""])
    scores = {}
    for prefix, features in job.dev.items():
        measured = task.scores(outputs[prefix], features, job.data.dev[prefix])
        scores |= {f"{prefix}{name}": value for name, value in measured.items()}
    run = {"task": task.name, "checkpoint": str(job.checkpoint), "seed": seed, "learning_rate": rate}
    return model, task, {**run, "scores": scores, "seconds": round(time.perf_counter() - started, 3)}


def read_data(task_name: str, data: str | Path, config: FinetuneConfig) -> TaskData:
    """Return the examples for training and development; without a dev file, a tenth is held out by hash.

    Raises `UserError` for bad rows, and where there is no training file or no row in a file.
    """
    entry = find_entry(task_name, config)
    splits = find_splits(data, entry.suffixes)
    if "train" not in splits:
        raise UserError(f"{data} holds no file with train in its name, only for {', '.join(splits)}.")
    task = entry.read(splits["train"], config)
    train, dev_files = _read_all(task, splits["train"]), dev_sets(splits)
    dev = {prefix: _read_all(task, files) for prefix, files in dev_files.items()}
    held_out = "" not in dev
    if held_out:
        train, dev[""] = hold_out(train, task.group)
    files = [file for part in (splits["train"], *dev_files.values()) for file in part]
    return TaskData(task, train, dict(sorted(dev.items())), files, held_out)


def _read_all(task: Task, files: Sequence[Path]) -> list[Any]:
    examples = [example for file in files for example in task.read(file, labelled=True)]
    if not examples:
        raise UserError(f"{files[0]} holds no rows.")
    return examples


def make_model(task: Task, checkpoint: Path, config: FinetuneConfig, seed: int) -> TaskModel:
    """Return the encoder of `checkpoint` with a new head, on the CPU; a pooler that is not there is new too."""
    rates = {"hidden_dropout_prob": config.dropout, "attention_probs_dropout_prob": config.dropout}
    shape = replace(read_config(checkpoint), **rates)
    model = task.model(shape)
    generator = torch.Generator().manual_seed(_torch_seed(seed, "head"))
    for module in (model.bert.pooler, *(child for name, child in model.named_children() if name != "bert")):
        initialise(module, shape, generator)
    # Only the encoder, so that the head of another task in the checkpoint is left there.
    load_weights(nn.ModuleDict({"bert": model.bert}), checkpoint, new=("bert.pooler.",))
    return model


def train_model(
    model: TaskModel,
    features: Sequence[Feature],
    config: FinetuneConfig,
    recipe: Recipe,
    peak_rate: float,
    seed: int,
    report: Progress,
) -> None:
    """Train `model` in place on `features`, on its device; raises `UserError` where the loss is not finite."""
    device = next(model.parameters()).device
    lengths = np.array([feature.length for feature in features])
    num_steps = max(1, round(recipe.epochs * math.ceil(len(features) / recipe.batch_size)))
    warmup_steps = round(config.warmup_share * num_steps)
    optimizer = make_optimizer(model, config.weight_decay, bias_correction=config.bias_correction)
    model.train()
    started, num_examples = time.perf_counter(), 0
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(_torch_seed(seed, "dropout"))
        for step, rows in enumerate(islice(batch_rows(lengths, recipe.batch_size, seed), num_steps)):
            batch = make_batch([features[row] for row in rows]).to(device)
            set_learning_rate(optimizer, learning_rate(step, peak_rate, warmup_steps, num_steps))
            with torch.autocast(device.type, torch.bfloat16, enabled=uses_bf16(config.precision, device)):
                loss = model.loss(model(batch), batch)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
            optimizer.step()
            optimizer.zero_grad()
            num_examples += len(rows)
            if step % REPORT_EVERY == 0 or step == num_steps - 1:
                speed = num_examples / (time.perf_counter() - started)
                live = {"step": step + 1, "steps": num_steps, "loss": _finite(loss, step, peak_rate)}
                report({**live, "examples_per_second": speed})


def batch_rows(lengths: np.ndarray, batch_size: int, seed: int) -> Iterator[np.ndarray]:
    """Yield the row numbers of each batch, epoch after epoch without end; each epoch has every row once.

    Rows are in a random order, in which every `POOL_BATCHES` batches are sorted by length among themselves, so that
    a batch has little padding; the order of the batches is random again. The last, partial batch is kept.
    """
    for epoch in count():
        rng = rng_for(seed, "finetune", "order", epoch)
        order = rng.permutation(len(lengths))
        batches = []
        for start in range(0, len(order), POOL_BATCHES * batch_size):
            pool = order[start : start + POOL_BATCHES * batch_size]
            pool = pool[np.argsort(lengths[pool], kind="stable")]
            batches.extend(pool[first : first + batch_size] for first in range(0, len(pool), batch_size))
        for index in rng.permutation(len(batches)):
            yield batches[index]


def _torch_seed(seed: int, use: str) -> int:
    return int(rng_for(seed, "finetune", use).integers(2**62))


def _finite(loss: torch.Tensor, step: int, peak_rate: float) -> float:
    value = loss.item()
    if not math.isfinite(value):
        raise UserError(f"The loss is {value} at step {step + 1} with learning rate {peak_rate:g}; take a lower one.")
    return value


def _main(scores: Mapping[str, float]) -> float:
    return next(iter(scores.values()))


def _identity(job: Job) -> dict[str, Any]:
    """Return all that decides what the runs give; where they are computed is no part of it."""
    options = {name: value for name, value in asdict(job.config).items() if name != "device"} | job.recipe._asdict()
    options["max_length"] = job.data.task.max_length
    parts = [job.checkpoint / name for name in (WEIGHTS, OLD_WEIGHTS, CONFIG, *TOKENIZER_FILES)]
    digests = {"data": _digest(job.data.files), "checkpoint": _digest([part for part in parts if part.is_file()])}
    return {"task": job.data.task.name, **digests, **json.loads(json.dumps(options))}


def _digest(paths: Sequence[Path]) -> str:
    digests = []
    for path in paths:
        with path.open("rb") as file:
            digests.append(hashlib.file_digest(file, "blake2b").hexdigest())
    return f"{stable_hash(*digests):016x}"


def _save(output: Path, model: TaskModel, task: Task, job: Job) -> None:
    config = model.bert.config.to_hf() | task.hf_settings()
    save_model(output, model.state_dict(), config, tokenizer_files(job.checkpoint))
    write_json(output / TASK, task.settings())


def _write_results(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    lines = [{**record, **record["scores"]} for record in records]
    columns = [name for name in lines[0] if name not in ("scores", "seconds")]
    text = io.StringIO()
    writer = csv.DictWriter(text, [*columns, "seconds"], extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    write_file(path, text.getvalue().encode())


def _summary(job: Job, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the best run, the spread of all, and what no better than always the same answer is worth.

    A run is degenerate where its first metric is no higher than that of this answer.
    """
    baseline = job.data.task.baseline(job.data.train, job.data.dev[""])
    values = [_main(record["scores"]) for record in records]
    best = records[int(np.argmax(values))]
    return {
        "task": job.data.task.name,
        "metric": next(iter(baseline)),
        "best": {name: best[name] for name in ("learning_rate", "seed", "scores")},
        "runs": len(records),
        "median": statistics.median(values),
        "lowest": min(values),
        "highest": max(values),
        "degenerate_runs": sum(value <= _main(baseline) for value in values),
        "baseline": baseline,
        "train_examples": len(job.data.train),
        "dev_examples": len(job.data.dev[""]),
        "held_out": job.data.held_out,
    }
