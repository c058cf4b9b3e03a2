"""Fine-tuning: a task over each learning rate and seed; the best run on dev is kept.

The output is a model directory in Hugging Face's layout, with ``task.json`` (what `predict` needs
to know of the task), ``README.md`` (the model card), ``results.csv`` (one line a run),
``summary.json``, ``runs/`` with the record and the logs of each run, and predictions for the test
files in ``test/``. On the CPU the same seed gives the same weights, to the last bit.
"""

import json
import shutil
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ...pipeline.errors import UserError
from ...pipeline.parsing import parse_json
from ...pipeline.seeding import rng_for, stable_hash
from ...pipeline.storage.directory import (
    NO_SPACE,
    WORK,
    OutputDirectory,
    claimed,
    unwritable_as_user_error,
)
from ...pipeline.storage.stage import VOCABULARY_FILES
from ..bert import initialise
from ..card import CARD, read_languages
from ..checkpoint import (
    CONFIG,
    WEIGHTS,
    files_digest,
    load_weights,
    model_digest,
    read_config,
    save_model,
    write_json,
)
from ..config import ModelConfig
from ..mirror import mirrored, upload
from ..tasks.splits import TaskData, read_data
from ..tasks.task import Feature, Recipe, Task, TaskModel, num_cut, report_cut
from ..tokenizer import TextTokenizer, check_fit, tokenizer_files, trained_length
from ..training.logs import ProgressCallback, RunLog
from ..training.ranks import SHARED, Ranks, join_ranks, print_notice
from .card import task_card
from .config import FinetuneConfig
from .predict import TASK, infer, load_finetuned, predict_files
from .results import (
    LEFT_TO_RIGHT,
    RESULTS,
    SUMMARY,
    BestRun,
    RunRecord,
    SearchSummary,
    read_summary,
    results_table,
)
from .train import CHECKPOINT, METRICS, SPEED, Training, train_model

IDENTITY = "finetune.json"
RUNS = "runs"
RECORD = "run.json"
MODEL = "model"
OWN_FILES = (SUMMARY, CARD, RESULTS, RUNS, "dev", "test", TASK, WEIGHTS, CONFIG, *VOCABULARY_FILES)
# How the work is done, not what it is: these may change when it resumes.
FREE_OPTIONS = ("micro_batch_size", "checkpoint_every", "compile", "license", "device")
# Which runs there are, not what one of them is: more may be asked for.
GRID_OPTIONS = ("learning_rates", "seeds", "seed")


@dataclass(frozen=True)
class Job:
    """All that the runs have in common."""

    source: str
    """Where the data come from, as the user named it."""
    data: TaskData
    train: list[Feature]
    dev: dict[str, list[Feature]]
    checkpoint: str
    config: FinetuneConfig
    recipe: Recipe
    """The task's own, with what the user chose."""
    output: Path

    def grid(self) -> list[tuple[float, int]]:
        """Return the learning rate and the seed of each run."""
        seeds = range(self.config.seed, self.config.seed + self.config.seeds)
        return list(product(self.recipe.learning_rates, seeds))

    @property
    def files(self) -> OutputDirectory:
        """The output directory."""
        return OutputDirectory(str(self.output))

    def records(self) -> list[RunRecord]:
        """Return the records of the finished runs, also of earlier calls, the highest learning rate
        first.
        """
        advice = "Delete it and rerun; this run is repeated."
        paths = (self.output / RUNS).glob(f"*/{RECORD}")
        records = [parse_json(path.read_bytes(), RunRecord, path, advice) for path in paths]
        return sorted(records, key=lambda record: (-record["learning_rate"], record["seed"]))

    def directory(self, rate: float, seed: int) -> Path:
        """Return where the record and the logs of a run are."""
        return self.output / RUNS / f"learning-rate-{rate}-seed-{seed}"


def finetune(
    task_name: str,
    data: str | Path,
    checkpoint: str | Path,
    output: str | Path,
    config: FinetuneConfig,
    progress: ProgressCallback | None = None,
    *,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Fine-tune `checkpoint` on a task for each learning rate and seed, and return what
    ``summary.json`` holds.

    `data` is a folder or file of the official form, or a data set of the Hub
    (``hf:nyu-mll/glue:sst2``), `checkpoint` any BERT directory in Hugging Face's layout. The same
    call resumes unfinished work; one with other learning rates or seeds adds those runs;
    `overwrite` starts over. ``status`` is ``finished``, or ``interrupted`` (and nothing else is
    there) by a signal, when everything is saved. `progress` is called about every tenth step with
    ``stage`` (which run it is) and what `train_model` says. Raises `UserError` for bad input, for
    an `output` that holds something else, and for a loss that is not finite.
    """
    if str(output) == str(checkpoint) or Path(output).resolve() == Path(checkpoint).resolve():
        raise UserError(f"--output is the checkpoint itself ({output}); give another directory.")
    data_read = read_data(task_name, data, config.task_options)
    with mirrored(output) as directory:
        job = _prepare(str(data), data_read, str(checkpoint), directory, config)
        return _finetune(job, progress, overwrite)


def _finetune(job: Job, progress: ProgressCallback | None, overwrite: bool) -> dict[str, Any]:
    with (
        unwritable_as_user_error(job.output, NO_SPACE),
        join_ranks(job.config.device, job.recipe.batch_size) as ranks,
        ranks.on_first(
            claimed(str(job.output), _identity(job), IDENTITY, OWN_FILES, overwrite=overwrite)
        ),
    ):
        if ranks.rank == 0:
            if not _is_complete(job):
                # The card too, so that nobody exports the next best model with the figures of this
                # one.
                for name in (SUMMARY, CARD):
                    (job.output / name).unlink(missing_ok=True)
            report_cut(job.data.task, "train", num_cut(job.train), len(job.data.train))
            for prefix, features in job.dev.items():
                report_cut(
                    job.data.task, _dev_split(prefix), num_cut(features), len(job.data.dev[prefix])
                )
        ranks.wait()  # for the first one, which alone writes
        claim = job.output / IDENTITY
        ranks.agree(
            {
                "the task, its data and the checkpoint": f"{stable_hash(json.dumps(_identity(job))):016x}",
                "--output": files_digest([claim]) if claim.is_file() else "missing",
            },
            SHARED,
        )
        summary = read_summary(job.output)
        if summary is None and _search(job, ranks, progress):
            if ranks.rank == 0:
                _finish(job, ranks.device)
            ranks.wait()
            summary = read_summary(job.output)
    return {**summary} if summary else {"status": "interrupted"}


def _is_complete(job: Job) -> bool:
    """Return whether all runs are done, the card has this licence, and the predictions are of these
    test files.
    """
    card, license = job.output / CARD, job.config.license
    if not card.is_file() or not all((job.directory(*run) / RECORD).exists() for run in job.grid()):
        return False
    has_license = license is None or f"\nlicense: {license}\n" in card.read_text(
        encoding="utf-8", errors="replace"
    )
    summary = read_summary(job.output)
    return (
        has_license and summary is not None and summary.get("test_digest") == job.data.test_digest()
    )


def _prepare(
    source: str, data: TaskData, checkpoint: str, output: Path, config: FinetuneConfig
) -> Job:
    shape = read_config(checkpoint)
    tokenizer = TextTokenizer(checkpoint)
    check_fit(tokenizer, shape, data.task.max_length, checkpoint)
    dev = {prefix: data.task.encode(examples, tokenizer) for prefix, examples in data.dev.items()}
    train = [
        feature for feature in data.task.encode(data.train, tokenizer) if feature.target is not None
    ]
    if not train:
        raise UserError(
            f"None of the {len(data.train):,} training examples has a usable label or answer; check the training file."
        )
    if not config.random_weights:
        _report_untrained(checkpoint, shape, [*train, *chain.from_iterable(dev.values())])
    recipe = data.task.recipe._replace(**config.given(*Recipe._fields))
    return Job(source, data, train, dev, checkpoint, config, recipe, output)


def _report_untrained(checkpoint: str, shape: ModelConfig, features: Sequence[Feature]) -> None:
    """Print how many rows are longer than those of pre-training, if any are."""
    trained = trained_length(checkpoint, shape.max_position_embeddings)
    lengths = [len(row.input_ids) for feature in features for row in feature.rows]
    if num_longer := sum(length > trained for length in lengths):
        found = f"{num_longer:,} of {len(lengths):,} rows are longer than in the pre-training of {checkpoint}"
        print_notice(
            f"{found}, whose positions past {trained} are untrained; give --max-length {trained}."
        )


def _dev_split(prefix: str) -> str:
    return f"dev_{prefix}".removesuffix("_")


def _search(job: Job, ranks: Ranks, progress: ProgressCallback | None) -> bool:
    """Do all runs that are not done, and keep the best; return False where one was asked to stop."""
    grid = job.grid()
    for index, (rate, seed) in enumerate(grid, 1):
        stage = f"run {index} of {len(grid)} (learning rate {rate:g}, seed {seed})"
        # Only the first rank looks for the record, for it may be writing it when the others look.
        done = ranks.rank == 0 and (job.directory(rate, seed) / RECORD).exists()
        done = bool(ranks.sum(torch.tensor([float(done)], device=ranks.device)).item())
        if not done and not _run(job, rate, seed, ranks, _staged(progress, stage)):
            return False
        if ranks.rank == 0:
            _keep_best(job)
            job.files.write_bytes(RESULTS, results_table(job.records()))
            upload(job.output)
    return True


def _staged(progress: ProgressCallback | None, stage: str) -> ProgressCallback:
    return lambda live: progress({"stage": stage, **live}) if progress else None


def _best(records: Sequence[RunRecord]) -> RunRecord:
    """Return the record of the best run; of equal ones, that of the highest learning rate and then
    the lowest seed.
    """
    return min(
        records,
        key=lambda record: (-_main(record["scores"]), -record["learning_rate"], record["seed"]),
    )


def _run(job: Job, rate: float, seed: int, ranks: Ranks, report: ProgressCallback) -> bool:
    """Train and evaluate once, and write what came out; return False where it was asked to stop."""
    directory = job.directory(rate, seed)
    model = make_model(job.data.task, job.checkpoint, job.config, seed).to(ranks.device)
    training = Training(job.train, job.config, job.recipe, rate, seed, ranks, directory)
    seconds = train_model(model, training, report)
    if seconds is None:
        return False
    if ranks.rank > 0:
        return True
    outputs = {prefix: infer(model, features) for prefix, features in job.dev.items()}
    task = job.data.task.tuned(outputs[""], job.dev[""], job.data.dev[""])
    scores: dict[str, float] = {}
    for prefix, features in job.dev.items():
        measured = task.scores(outputs[prefix], features, job.data.dev[prefix])
        scores |= {f"{prefix}{name}": value for name, value in measured.items()}
    with RunLog(directory, training.num_steps, (*METRICS, *scores), SPEED) as log:
        log.metrics(training.num_steps, "dev", scores)
    given, settings = job.data.task.settings(), task.settings()
    direction = LEFT_TO_RIGHT if model.bert.config.is_decoder else None
    record = RunRecord(
        task=task.name,
        variant=" ".join(filter(None, (task.variant, direction))),
        checkpoint="random weights" if job.config.random_weights else job.checkpoint,
        seed=seed,
        learning_rate=rate,
        tuned={name: value for name, value in settings.items() if value != given[name]},
        scores=scores,
        seconds=round(seconds, 3),
    )
    if _best([*job.records(), record]) is record:
        _save(job, model, task, outputs, directory / MODEL)
    job.files.write_json(f"{directory.relative_to(job.output)}/{RECORD}", record)
    return True


def _save(
    job: Job,
    model: TaskModel,
    task: Task,
    outputs: Mapping[str, Sequence[np.ndarray]],
    directory: Path,
) -> None:
    """Write the model directory, and the answers to the dev examples in the form of the official
    script.
    """
    config = (
        model.bert.config.to_hf() | {"architectures": [type(model).__name__]} | task.hf_settings()
    )
    with job.files.write_folder(str(directory.relative_to(job.output))) as folder:
        save_model(folder, model.state_dict(), config, tokenizer_files(job.checkpoint))
        write_json(folder / TASK, task.settings())
        for prefix, features in job.dev.items():
            examples = job.data.dev[prefix]
            answers = task.answers(outputs[prefix], features, examples)
            for name, content in task.official(answers, examples, _dev_split(prefix)).items():
                (folder / "dev").mkdir(exist_ok=True)
                (folder / "dev" / name).write_bytes(content)


def _keep_best(job: Job) -> None:
    """Move the best run's model, if it is not there yet, to the output; delete other models, and
    checkpoints.

    A model waits in its run's directory until the run is recorded. While files are moved there is
    no ``task.json``, without which nothing reads them.
    """
    records = job.records()
    best = _best(records)
    for record in records:
        directory = job.directory(record["learning_rate"], record["seed"])
        if record is best and (directory / MODEL / TASK).exists():
            (job.output / TASK).unlink(missing_ok=True)
            shutil.rmtree(job.output / "test", ignore_errors=True)  # of the model before
            files = (path for path in (directory / MODEL).rglob("*") if path.is_file())
            for file in sorted(files, key=lambda path: path.name == TASK):
                target = job.output / file.relative_to(directory / MODEL)
                target.parent.mkdir(exist_ok=True)
                file.replace(target)
        shutil.rmtree(directory / MODEL, ignore_errors=True)
        for checkpoint in (
            directory / CHECKPOINT,
            (directory / CHECKPOINT).with_suffix(".partial"),
        ):
            checkpoint.unlink(missing_ok=True)


def _finish(job: Job, device: torch.device) -> None:
    """Write what the best model says of the test files, then the summary."""
    shutil.rmtree(job.output / "test", ignore_errors=True)  # of other files
    if job.data.tests:
        finetuned = load_finetuned(job.output, device)
        for split, files in job.data.tests.items():
            for name, content in predict_files(finetuned, files, split).items():
                job.files.write_bytes(f"test/{name}", content)
    summary = _summary(job, job.records())
    job.files.write_bytes(CARD, _card(job, summary).encode())
    job.files.write_json(SUMMARY, summary)
    job.files.remove(WORK)


def _card(job: Job, summary: SearchSummary) -> str:
    task, recipe = job.data.task, job.recipe
    return task_card(
        task,
        job.source,
        job.records()[0]["checkpoint"],
        read_languages(job.checkpoint),
        job.config,
        {"batch_size": recipe.batch_size, "epochs": f"{recipe.epochs:g}"},
        summary,
        in_transformers="architectures" not in task.hf_settings()
        and not read_config(job.output).is_decoder,
    )


def make_model(task: Task, checkpoint: str | Path, config: FinetuneConfig, seed: int) -> TaskModel:
    """Return the encoder of `checkpoint` with a new head, on the CPU; a pooler that is not there is
    new too.
    """
    rates = {"hidden_dropout_prob": config.dropout, "attention_probs_dropout_prob": config.dropout}
    shape = replace(read_config(checkpoint), **rates)
    model = task.model(shape)
    generator = torch.Generator().manual_seed(
        int(rng_for(seed, "finetune", "head").integers(2**62))
    )
    for module in (
        model.bert.pooler,
        *(child for name, child in model.named_children() if name != "bert"),
    ):
        initialise(module, shape, generator)
    if config.random_weights:
        initialise(model.bert, shape, generator)
    else:
        # Only the encoder, so that the head of another task in the checkpoint is left there.
        load_weights(nn.ModuleDict({"bert": model.bert}), checkpoint, new=("bert.pooler.",))
    return model


def _main(scores: Mapping[str, float]) -> float:
    return next(iter(scores.values()))


def _identity(job: Job) -> dict[str, Any]:
    """Return all that decides what the runs give; how and where they are computed is no part of it."""
    options = {
        name: value for name, value in asdict(job.config).items() if name not in FREE_OPTIONS
    }
    options |= job.recipe._asdict() | {"max_length": job.data.task.max_length}
    options = {name: value for name, value in options.items() if name not in GRID_OPTIONS}
    digests = {"data": job.data.digest(), "checkpoint": model_digest(job.checkpoint)}
    return {"task": job.data.task.name, **digests, **json.loads(json.dumps(options))}


def _summary(job: Job, records: Sequence[RunRecord]) -> SearchSummary:
    """Return the best run, the spread of all, and baselines; a run no better than a constant answer
    by the first metric is degenerate.
    """
    task, train = job.data.task, job.data.train
    baseline, word_baseline = (
        {
            f"{prefix}{name}": value
            for prefix, examples in job.data.dev.items()
            for name, value in measure(train, examples).items()
        }
        for measure in (task.baseline, task.word_baseline)
    )
    values = [_main(record["scores"]) for record in records]
    best = _best(records)
    return {
        "status": "finished",
        "task": task.name,
        "metric": next(iter(baseline)),
        "best": BestRun(
            learning_rate=best["learning_rate"],
            seed=best["seed"],
            tuned=best["tuned"],
            scores=best["scores"],
        ),
        "runs": len(records),
        "median": statistics.median(values),
        "lowest": min(values),
        "highest": max(values),
        "degenerate_runs": sum(value <= _main(baseline) for value in values),
        "baseline": baseline,
        "word_baseline": word_baseline,
        "train_examples": len(train),
        "dev_examples": len(job.data.dev[""]),
        "train_examples_cut": num_cut(job.train),
        "dev_examples_cut": num_cut(job.dev[""]),
        "held_out": job.data.held_out,
        "test_digest": job.data.test_digest(),
    }
