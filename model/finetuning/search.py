"""The runs of a search, one after another; the model of the best one is kept."""

import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..checkpoint import TASK
from ..mirror import upload
from ..training.logs import ProgressCallback
from ..training.loop import StopRequest
from ..training.ranks import Ranks
from .dev import DevMeasurement, write_dev_answers
from .job import RECORD, Job
from .results import (
    LEFT_TO_RIGHT,
    RESULTS,
    RunRecord,
    Trial,
    describe_run,
    results_table,
    run_order,
)
from .task_model import make_model, write_model
from .train import CHECKPOINT, Training, train_model

MODEL = "model"
"""The folder of a run's model, as long as it is the best one."""


def search(
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
    if best_of([*job.records(), record]) is record:
        model_folder = (directory / MODEL).relative_to(job.output)
        with job.files.write_folder(str(model_folder)) as folder:
            write_model(folder, model, task, job.checkpoint)
            write_dev_answers(folder / "dev", job, on_dev)
    # The record comes last: a run is done once it has one.
    job.files.write_json(f"{directory.relative_to(job.output)}/{RECORD}", record)
    return True


def best_of(records: Sequence[RunRecord]) -> RunRecord:
    """Return the record of the best run; of equal ones, the one with the highest learning rate and
    then the lowest seed.
    """

    def best_first(record: RunRecord) -> tuple[Any, ...]:
        return -main_score(record["scores"]), *run_order(record)

    return min(records, key=best_first)


def main_score(scores: Mapping[str, float]) -> float:
    """Return the score that chooses between runs, which is the first."""
    return next(iter(scores.values()))


def _keep_best(job: Job) -> None:
    """Move the best run's model, if it is not there yet, to the output; delete other models, and
    checkpoints.

    A model waits in its run's directory until the run is recorded. While files are moved there is
    no ``task.json``, without which nothing reads them.
    """
    records = job.records()
    best = best_of(records)
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
