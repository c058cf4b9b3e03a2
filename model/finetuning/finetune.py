"""Fine-tuning: a task over each learning rate and seed; the best run on dev is kept.

The output is a model directory in Hugging Face's layout, with ``task.json`` (what `predict` needs
to know of the task), ``README.md`` (the model card), ``results.csv`` (one line a run),
``summary.json``, ``runs/`` with the record and the logs of each run, and predictions for the test
files in ``test/``. On the CPU the same seed gives the same weights, to the last bit.
"""

import json
import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ...pipeline.config import identity_fields
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
from ..card import CARD, read_languages
from ..checkpoint import (
    CONFIG,
    POOLING,
    SENTENCE_FILES,
    TASK,
    WEIGHTS,
    files_digest,
    load_weights,
    model_digest,
    read_config,
    save_model,
    write_json,
)
from ..encoders.config import EncoderConfig
from ..encoders.encoder import initialise
from ..mirror import local_copy, mirrored, upload
from ..tasks.catalogue import task_settings
from ..tasks.repeats import find_repeats
from ..tasks.splits import TaskData, read_data
from ..tasks.tables import shown
from ..tasks.task import Answer, Feature, Recipe, Scores, Task, TaskModel, num_cut, report_cut
from ..tokenizer import TextTokenizer, check_fit, tokenizer_files, trained_length
from ..training.device import kept_generators, product_dtype
from ..training.logs import ProgressCallback
from ..training.loop import StopRequest
from ..training.processor import print_if_emulated
from ..training.ranks import SHARED, Ranks, join_ranks, print_notice
from .card import task_card
from .config import FinetuneConfig
from .predict import infer, load_finetuned, predict_files
from .results import (
    IDENTITY,
    LEFT_TO_RIGHT,
    RESULTS,
    SUMMARY,
    BestRun,
    RunRecord,
    SearchSummary,
    Trial,
    describe_run,
    draw_confusion,
    read_summary,
    results_table,
    run_name,
    run_order,
)
from .train import CHECKPOINT, Training, train_model

RUNS = "runs"
RECORD = "run.json"
MODEL = "model"
OWN_FILES = (
    *(SUMMARY, CARD, RESULTS, RUNS, "dev", "test", TASK, WEIGHTS, CONFIG),
    *(*SENTENCE_FILES, str(Path(POOLING).parent)),
    *VOCABULARY_FILES,
)


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

    def grid(self) -> list[Trial]:
        """Return what tells each run from the others."""
        choices = {
            "learning_rate": self.recipe.learning_rates,
            **self.config.varied,
            "seed": range(self.config.seed, self.config.seed + self.config.seeds),
        }
        return [
            Trial(**dict(zip(choices, values, strict=True)))  # type: ignore[typeddict-item]
            for values in product(*choices.values())
        ]

    def trial_of(self, record: RunRecord) -> Trial:
        """Return what tells a recorded run from the others."""
        names = ("learning_rate", "seed", *self.config.varied)
        return Trial(**{name: record[name] for name in names})  # type: ignore[typeddict-item]

    def recipe_of(self, trial: Trial) -> Recipe:
        """Return the recipe of a run."""
        return self.recipe._replace(**{name: trial[name] for name in self.config.varied})

    @property
    def batch_sizes(self) -> list[int]:
        """The batch size of each run."""
        return [self.recipe_of(trial).batch_size for trial in self.grid()]

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
        return sorted(records, key=run_order)

    def directory(self, trial: Trial) -> Path:
        """Return where the record and the logs of a run are."""
        return self.output / RUNS / run_name(trial)

    def is_done(self, trial: Trial) -> bool:
        """Return whether the run is recorded: its scores, and its model if that is the best."""
        return (self.directory(trial) / RECORD).exists()


def finetune(
    task: str | Task,
    data: str | Path,
    checkpoint: str | Path,
    output: str | Path,
    config: FinetuneConfig,
    progress: ProgressCallback | None = None,
    *,
    overwrite: bool = False,
    stop: StopRequest | None = None,
) -> dict[str, Any]:
    """Fine-tune `checkpoint` on a task for each learning rate and seed, and return what
    ``summary.json`` holds.

    `task` is a name, or a `Task` of your own, such as one with another head. `data` is a folder or
    file of the official form, or a data set of the Hub (``hf:nyu-mll/glue:sst2``), `checkpoint` any
    BERT directory in Hugging Face's layout. The same call resumes unfinished work; one with other
    learning rates or seeds adds those runs; `overwrite` starts over, and `stop` lets another thread
    end the work early: ``status`` is then ``interrupted``, and nothing else is there, but all is
    saved. Otherwise it is ``finished``. `progress` is called about every tenth step with ``stage``
    (which run it is) and what `train_model` says. Raises `UserError` for bad input, for an `output`
    that holds something else, and for a loss that is not finite.
    """
    if str(output) == str(checkpoint) or Path(output).resolve() == Path(checkpoint).resolve():
        raise UserError(f"`output` is the checkpoint itself ({output}); give another directory.")
    task_data = read_data(task, data, config.task_options)
    with mirrored(output) as directory:
        job = _prepare(str(data), task_data, str(checkpoint), directory, config)
        return _finetune(job, progress, overwrite, stop)


def _prepare(
    source: str, data: TaskData, checkpoint: str, output: Path, config: FinetuneConfig
) -> Job:
    """Encode the examples; raise `UserError` if the model cannot be trained on them."""
    if data.task.whole_batches and config.micro_batch_size:
        raise UserError(
            f"{data.task.name} compares the examples of a batch, so `micro_batch_size` cannot "
            "divide it; lower `batch_size`."
        )
    for examples in data.dev.values():
        data.task.check_dev(examples)
    metrics = list(data.task.baseline(data.train, data.dev[""]))
    if config.select and _metric_name(config.select) not in metrics:
        raise UserError(f"`select` is {config.select}; choose one of {', '.join(metrics)}.")
    shape = read_config(checkpoint)
    if config.keep_head:
        _check_head(data.task, shape, checkpoint)
    tokenizer = TextTokenizer(checkpoint)
    check_fit(tokenizer, shape, data.task.max_length, checkpoint)
    dev = {prefix: data.task.encode(examples, tokenizer) for prefix, examples in data.dev.items()}
    encoded = data.task.encode(data.train, tokenizer)
    # Of SQuAD for instance, a question whose answer is not where the file says has no target.
    train = [feature for feature in encoded if feature.target is not None]
    if not train:
        raise UserError(
            f"None of the {len(data.train):,} training examples has a usable label or answer; "
            "check the training file."
        )
    if not config.random_weights:
        _report_untrained(checkpoint, shape, [train, *dev.values()])
    given = config.given(*Recipe._fields)
    chosen = {name: value for name, value in given.items() if name not in config.varied}
    recipe = data.task.recipe._replace(**chosen)
    return Job(source, data, train, dev, checkpoint, config, recipe, output)


def _check_head(task: Task, shape: EncoderConfig, checkpoint: str) -> None:
    """Raise `UserError` unless the checkpoint has a head of this kind, for the same labels."""
    if not task.has_new_weights:
        raise UserError(f"`keep_head` is for tasks with a head of their own, not {task.name}.")
    path = local_copy(checkpoint) / CONFIG
    saved = parse_json(path.read_bytes(), dict[str, Any], path)
    expected = {"architectures": [_architecture(task.model(shape))], **task.hf_settings()}
    for name in ("architectures", "id2label"):
        if saved.get(name) != expected.get(name):
            raise UserError(
                f"`keep_head`: {name} of {checkpoint} is {shown(saved.get(name))}, not "
                f"{shown(expected.get(name))} as here."
            )


def _architecture(model: TaskModel) -> str:
    """Return the name of the model's class in ``transformers``, if it has one there."""
    if model.hf_name:
        return f"{model.encoder.config.hf_prefix}{model.hf_name}"
    return type(model).__name__


def _report_untrained(
    checkpoint: str, shape: EncoderConfig, splits: Sequence[Sequence[Feature]]
) -> None:
    """Print how many rows are longer than those of pre-training, if any are."""
    trained = trained_length(checkpoint, shape.max_position_embeddings)
    features = [feature for split in splits for feature in split]
    # A long passage of SQuAD is a feature for each window; a question of SWAG has four rows.
    lengths = [len(row.input_ids) for feature in features for row in feature.rows]
    num_longer = sum(length > trained for length in lengths)
    if num_longer:
        print_notice(
            f"{num_longer:,} of {len(lengths):,} rows are longer than in the pre-training of "
            f"{checkpoint}, whose positions past {trained} are untrained; "
            f"give `max_length` {trained}."
        )


def _finetune(
    job: Job, progress: ProgressCallback | None, overwrite: bool, stop: StopRequest | None
) -> dict[str, Any]:
    identity = _identity(job)
    claim = claimed(str(job.output), identity, IDENTITY, OWN_FILES, overwrite=overwrite)
    with (
        unwritable_as_user_error(job.output, NO_SPACE),
        join_ranks(job.config.device, min(job.batch_sizes)) as ranks,
        kept_generators(ranks.device),
        ranks.on_first(claim),
    ):
        if job.data.task.whole_batches and ranks.num_ranks > 1:
            raise UserError(
                f"{job.data.task.name} compares the examples of a batch, which cannot be divided "
                "among processes; run it without torchrun."
            )
        if ranks.rank == 0:
            if not _is_complete(job):
                # The card too, so that nobody exports the next best model with the figures of this
                # one.
                for name in (SUMMARY, CARD):
                    (job.output / name).unlink(missing_ok=True)
                dtype = product_dtype(job.config.precision, ranks.device)
                print_if_emulated(dtype, ranks.device)
            _report_cuts(job)
            _report_repeats(job.data)
        ranks.wait()  # for the first one, which alone writes
        claim_file = job.output / IDENTITY
        claim_digest = files_digest([claim_file]) if claim_file.is_file() else "missing"
        job_digest = f"{stable_hash(json.dumps(identity)):016x}"
        # The second one differs where ranks on several machines do not share the directory.
        same_on_all = {
            "the task, its data and the checkpoint": job_digest,
            "`output`": claim_digest,
        }
        ranks.agree(same_on_all, SHARED)
        summary = read_summary(job.output)
        if summary is None and _search(job, ranks, progress, stop):
            if ranks.rank == 0:
                _finish(job, ranks.device)
            ranks.wait()
            summary = read_summary(job.output)
    return {**summary} if summary else {"status": "interrupted"}


def _identity(job: Job) -> dict[str, Any]:
    """Return all that decides the runs' results, but not how and where they are computed."""
    task = job.data.task
    options = identity_fields(job.config)
    # The task's defaults take the place of None: an option that is given as its default is no
    # other run.
    chosen = {**job.recipe._asdict(), "max_length": task.max_length}
    for name, value in chosen.items():
        if name in options and name not in job.config.varied:
            options[name] = value
    identity = {
        "task": task.name,
        "data": job.data.digest(),
        "checkpoint": model_digest(job.checkpoint),
        **options,
    }
    settings = task_settings(task)
    if "class" in settings:
        # A task of the user's own may differ in anything. What other tasks are made from is among
        # the options and in the data's digest.
        identity["task_settings"] = settings
    return json.loads(json.dumps(identity))  # as it is read back: tuples are lists


def _report_cuts(job: Job) -> None:
    task = job.data.task
    report_cut(task, "train", num_cut(job.train), len(job.data.train))
    for prefix, features in job.dev.items():
        report_cut(task, _dev_split(prefix), num_cut(features), len(job.data.dev[prefix]))


def _report_repeats(data: TaskData) -> None:
    repeats = find_repeats(data.task, data.train, data.dev)
    num_train = f"{len(data.train):,} training examples"
    if repeats.repeated:
        print_notice(
            f"{repeats.repeated:,} of {num_train} repeat another, with its label: they count twice."
        )
    if repeats.contradictory:
        print_notice(
            f"{repeats.contradictory:,} of {num_train} have the text of another, but not its "
            f"label, for example {shown(repeats.example)}: no model can learn both."
        )
    if repeats.shared:
        num_dev = sum(len(examples) for examples in data.dev.values())
        print_notice(
            f"{repeats.shared:,} of {num_dev:,} dev examples are training examples too, which "
            "flatters the scores."
        )


def _dev_split(prefix: str) -> str:
    """Return the name of a dev set: ``dev``, or ``dev_mismatched``."""
    return f"dev_{prefix}".removesuffix("_")


def _is_complete(job: Job) -> bool:
    """Return whether all runs are done, the card has this licence, and the predictions are of these
    test files.
    """
    if not all(map(job.is_done, job.grid())):
        return False
    card = job.output / CARD
    if not card.is_file():
        return False
    # The licence is no part of the identity: another one only needs a new card.
    license = job.config.license
    text = card.read_text(encoding="utf-8", errors="replace")
    if license is not None and f"\nlicense: {license}\n" not in text:
        return False
    summary = read_summary(job.output)
    return summary is not None and summary.get("test_digest") == job.data.test_digest()


# The search
# --------------------------------------------------------------------------------------------------


def _search(
    job: Job, ranks: Ranks, progress: ProgressCallback | None, stop: StopRequest | None
) -> bool:
    """Do all runs that are not done, and keep the best; return False if one was asked to stop."""
    grid = job.grid()
    for number, trial in enumerate(grid, 1):
        title = f"run {number} of {len(grid)} ({describe_run(trial)})"
        # Only the first rank looks for the record, for it may be writing it when the others look.
        # Its 1 or 0 reaches them as a sum.
        is_recorded = ranks.rank == 0 and job.is_done(trial)
        num_recorded = ranks.sum(torch.tensor([float(is_recorded)], device=ranks.device))
        is_done = num_recorded.item() > 0
        if not is_done and not _run(job, trial, ranks, _titled(progress, title), stop):
            return False
        if ranks.rank == 0:
            _keep_best(job)
            job.files.write_bytes(RESULTS, results_table(job.records()))
            upload(job.output)
    return True


def _titled(progress: ProgressCallback | None, title: str) -> ProgressCallback:
    if progress is None:
        return lambda live: None
    return lambda live: progress({"stage": title, **live})


def _run(
    job: Job,
    trial: Trial,
    ranks: Ranks,
    report: ProgressCallback,
    stop: StopRequest | None,
) -> bool:
    """Train and evaluate once, and record it; return False if it was asked to stop."""
    directory = job.directory(trial)
    seed = trial["seed"]
    model = make_model(job.data.task, job.checkpoint, job.config, seed).to(ranks.device)
    on_dev = DevMeasurement(job, model)
    training = Training(
        job.train,
        job.config,
        job.recipe_of(trial),
        trial["learning_rate"],
        seed,
        ranks,
        directory,
        evaluate=on_dev.measure,
        evaluate_start=not job.data.task.has_new_weights,
        whole_batches=job.data.task.whole_batches,
    )
    trained = train_model(model, training, report, stop)
    if trained is None:
        return False
    if ranks.rank > 0:
        # One rank evaluates; the others wait for it at the next run's first sum.
        return True

    best = trained.best
    if best.weights is not None and best.step < trained.step:
        model.load_state_dict(best.weights)
        on_dev.measure()
    elif not on_dev.outputs:
        on_dev.measure()  # interrupted after its last update
    task = on_dev.task

    given_settings = job.data.task.settings()
    tuned = {}
    for name, value in task.settings().items():
        if value != given_settings[name]:
            tuned[name] = value
    direction = LEFT_TO_RIGHT if model.encoder.config.is_decoder else ""
    record = RunRecord(
        task=task.name,
        variant=f"{task.variant} {direction}".strip(),
        checkpoint="random weights" if job.config.random_weights else job.checkpoint,
        **trial,
        tuned=tuned,
        scores=on_dev.scores,
        step=trained.step if best.step < 0 else best.step,
        untrained=best.start,
        dev_classes=task.class_report(on_dev.answers(""), job.data.dev[""]),
        seconds=round(trained.seconds, 3),
    )
    # A model that is not the best so far never will be, and is not written.
    if _best([*job.records(), record]) is record:
        model_folder = (directory / MODEL).relative_to(job.output)
        with job.files.write_folder(str(model_folder)) as folder:
            _write_model(folder, model, task, job.checkpoint)
            _write_dev_answers(folder / "dev", job, on_dev)
    # The record comes last: a run is done once it has one.
    job.files.write_json(f"{directory.relative_to(job.output)}/{RECORD}", record)
    return True


class DevMeasurement:
    """Measures a model on the dev sets, and keeps the last outputs, task and scores."""

    def __init__(self, job: Job, model: TaskModel):
        self._job = job
        self._model = model
        self.outputs: dict[str, list[np.ndarray]] = {}
        """Of each dev set."""
        self.task = job.data.task
        """With the thresholds that suit these outputs."""
        self.scores: dict[str, float] = {}

    def measure(self) -> dict[str, float]:
        """Return the scores of the model as it is now, by name."""
        job = self._job
        self.outputs = {
            prefix: infer(self._model, features) for prefix, features in job.dev.items()
        }
        # Thresholds, such as SQuAD 2.0's for no answer, are chosen on the first dev set, and hold
        # for all that is scored or predicted with this model.
        self.task = job.data.task.tuned(self.outputs[""], job.dev[""], job.data.dev[""])
        scores: dict[str, float] = {}
        for prefix, features in job.dev.items():
            measured = self.task.scores(self.outputs[prefix], features, job.data.dev[prefix])
            scores |= {f"{prefix}{name}": value for name, value in measured.items()}
        self.scores = _selected_first(scores, job.config.select)
        return self.scores

    def answers(self, prefix: str) -> list[Answer]:
        """Return the answers to the examples of a dev set."""
        job = self._job
        return self.task.answers(self.outputs[prefix], job.dev[prefix], job.data.dev[prefix])


def _metric_name(name: str) -> str:
    return name.replace("-", "_")


def _selected_first(scores: dict[str, float], select: str | None) -> dict[str, float]:
    """Return the scores with the one that chooses before the others."""
    if select is None:
        return scores
    name = _metric_name(select)
    return {name: scores[name], **scores}


def _write_model(folder: Path, model: TaskModel, task: Task, checkpoint: str) -> None:
    """Write a model directory that `transformers` loads, with ``task.json``."""
    shape = model.encoder.config
    config = shape.to_hf(_architecture(model))
    config |= task.hf_settings()
    weights = model.state_dict()
    if not model.uses_pooler:
        for name in list(weights):
            if name.startswith(model.encoder.optional_weights):
                del weights[name]
    save_model(folder, weights, config, tokenizer_files(checkpoint))
    for name, content in task.library_files(shape).items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    write_json(folder / TASK, task_settings(task))


def _write_dev_answers(folder: Path, job: Job, on_dev: DevMeasurement) -> None:
    """Write the answers to the dev examples, with their texts and the truth, and in the form of the
    task's official script, if any.
    """
    task = on_dev.task
    folder.mkdir()
    for prefix, examples in job.data.dev.items():
        split = _dev_split(prefix)
        answers = on_dev.answers(prefix)
        lines = []
        for answer, example in zip(answers, examples, strict=True):
            line = {**task.texts(example), **answer, "truth": task.truth(example)}
            line.pop("n_best", None)  # of SQuAD, in a file of its own
            lines.append(json.dumps(line, ensure_ascii=False) + "\n")
        (folder / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")
        for name, content in task.official(answers, examples, split).items():
            (folder / name).write_bytes(content)
    report = task.class_report(on_dev.answers(""), job.data.dev[""])
    if report["confusion"]:
        picture = draw_confusion(report)
        if picture:
            (folder / "confusion.png").write_bytes(picture)


def _best(records: Sequence[RunRecord]) -> RunRecord:
    """Return the record of the best run; of equal ones, the one with the highest learning rate and
    then the lowest seed.
    """

    def best_first(record: RunRecord) -> tuple[Any, ...]:
        return -_main(record["scores"]), *run_order(record)

    return min(records, key=best_first)


def _main(scores: Mapping[str, float]) -> float:
    """Return the score that chooses between runs, which is the first."""
    return next(iter(scores.values()))


def _keep_best(job: Job) -> None:
    """Move the best run's model, if it is not there yet, to the output; delete other models, and
    checkpoints.

    A model waits in its run's directory until the run is recorded. While files are moved there is
    no ``task.json``, without which nothing reads them.
    """
    records = job.records()
    best = _best(records)
    for record in records:
        directory = job.directory(record)
        model = directory / MODEL
        if record is best and (model / TASK).exists():
            (job.output / TASK).unlink(missing_ok=True)
            shutil.rmtree(job.output / "test", ignore_errors=True)  # of the model before
            files = [path for path in model.rglob("*") if path.is_file()]
            # False sorts before True: task.json comes last.
            for file in sorted(files, key=lambda path: path.name == TASK):
                target = job.output / file.relative_to(model)
                target.parent.mkdir(exist_ok=True)
                file.replace(target)
        shutil.rmtree(model, ignore_errors=True)
        checkpoint = directory / CHECKPOINT
        checkpoint.unlink(missing_ok=True)
        checkpoint.with_suffix(".partial").unlink(missing_ok=True)


# The model
# --------------------------------------------------------------------------------------------------


def make_model(task: Task, checkpoint: str | Path, config: FinetuneConfig, seed: int) -> TaskModel:
    """Return the encoder of `checkpoint`, on the CPU, with a new head unless `keep_head`; a pooler,
    or a ModernBERT's layers before the head, that are not there are new too.
    """
    shape = read_config(checkpoint).with_dropout(config.dropout)
    head_seed = int(rng_for(seed, "finetune", "head").integers(2**62))
    with torch.random.fork_rng(devices=[]):  # the caller's generator stays as it is
        # For modules of a head that `initialise` does not know and leaves as PyTorch makes them.
        torch.manual_seed(head_seed)
        model = task.model(shape)
    generator = torch.Generator().manual_seed(head_seed)
    encoder = model.encoder
    new = [encoder.get_submodule(name) for name in encoder.optional_modules]
    new.extend(child for child in model.children() if child is not encoder)
    for module in new:
        initialise(module, shape, generator)
    if config.random_weights:
        initialise(encoder, shape, generator)
    elif config.keep_head:
        load_weights(model, checkpoint, new=encoder.optional_weights)
    else:
        # Only these, so that the last layer of another task in the checkpoint is left there.
        parts = nn.ModuleDict(model.pretrained_parts)
        load_weights(parts, checkpoint, new=(*encoder.optional_weights, "head."))
    return model


# The end
# --------------------------------------------------------------------------------------------------


def _finish(job: Job, device: torch.device) -> None:
    """Write the best model's predictions for the test files, the card, then the summary."""
    shutil.rmtree(job.output / "test", ignore_errors=True)  # of other files
    if job.data.tests:
        # Only a task of the user's own cannot be made from task.json.
        users_task = None
        if "class" in task_settings(job.data.task):
            users_task = job.data.task
        # Read again from its files, as `predict` will: the best run may be one of an earlier call.
        finetuned = load_finetuned(job.output, device, users_task)
        for split, files in job.data.tests.items():
            predictions = predict_files(finetuned, files, split)
            for name, content in predictions.items():
                job.files.write_bytes(f"test/{name}", content)
    summary = _summary(job, job.records())
    job.files.write_bytes(CARD, _card(job, summary).encode())
    # The summary comes last: it says that the search is finished.
    job.files.write_json(SUMMARY, summary)
    job.files.remove(WORK)


def _card(job: Job, summary: SearchSummary) -> str:
    task = job.data.task
    has_hf_head = "architectures" not in task.hf_settings()
    shape = read_config(job.output)
    recipe = job.recipe_of(summary["best"])
    return task_card(
        task,
        job.source,
        job.records()[0]["checkpoint"],
        read_languages(job.checkpoint),
        job.config,
        {"batch_size": recipe.batch_size, "epochs": f"{recipe.epochs:g}"},
        summary,
        shape,
        in_transformers=has_hf_head and not shape.is_decoder,
    )


def _summary(job: Job, records: Sequence[RunRecord]) -> SearchSummary:
    """Return the best run, the spread of all, and baselines; a run no better than a constant answer
    by the first metric is degenerate.
    """
    # A useful model beats both: a constant answer, and a model that counts single words.
    baseline = _measure_on_dev(job, job.data.task.baseline)
    word_baseline = _measure_on_dev(job, job.data.task.word_baseline)
    values = [_main(record["scores"]) for record in records]
    best = _best(records)
    return {
        "status": "finished",
        "task": job.data.task.name,
        "metric": next(iter(baseline)),
        "best": BestRun(
            **job.trial_of(best),
            tuned=best["tuned"],
            scores=best["scores"],
            step=best.get("step", 0),
        ),
        "untrained": best.get("untrained", {}),
        "dev_classes": best.get("dev_classes", {"classes": {}, "confusion": []}),
        "runs": len(records),
        "median": statistics.median(values),
        "lowest": min(values),
        "highest": max(values),
        "degenerate_runs": sum(value <= _main(baseline) for value in values),
        "baseline": baseline,
        "word_baseline": word_baseline,
        "train_examples": len(job.data.train),
        "dev_examples": len(job.data.dev[""]),
        "train_examples_cut": num_cut(job.train),
        "dev_examples_cut": num_cut(job.dev[""]),
        "held_out": job.data.held_out,
        "test_digest": job.data.test_digest(),
        "train_digests": job.data.train_digests(),
    }


def _measure_on_dev(
    job: Job, measure: Callable[[Sequence[Any], Sequence[Any]], Scores]
) -> dict[str, float]:
    """Return what `measure` says of each dev set, given the training examples."""
    scores: dict[str, float] = {}
    for prefix, dev_examples in job.data.dev.items():
        measured = measure(job.data.train, dev_examples)
        for name, value in measured.items():
            scores[prefix + name] = value
    if scores:
        return _selected_first(scores, job.config.select)
    return scores
