"""Fine-tuning: a task over each learning rate and seed; the best run on dev is kept.

The output is a model directory in Hugging Face's layout, with ``task.json`` (what `predict` needs
to know of the task), ``README.md`` (the model card), ``results.csv`` (one line a run),
``summary.json``, ``runs/`` with the record and the logs of each run, and predictions for the test
files in ``test/``. On the CPU the same seed gives the same weights, to the last bit.
"""

import json
import shutil
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ...pipeline.errors import UserError
from ...pipeline.seeding import stable_hash
from ...pipeline.storage.directory import NO_SPACE, WORK, claimed, unwritable_as_user_error
from ...pipeline.storage.stage import VOCABULARY_FILES
from ..card import CARD, read_languages
from ..checkpoint import (
    CONFIG,
    POOLING,
    SENTENCE_FILES,
    TASK,
    WEIGHTS,
    files_digest,
    read_config,
)
from ..mirror import mirrored
from ..tasks.batches import num_cut
from ..tasks.catalogue import task_settings
from ..tasks.repeats import find_repeats
from ..tasks.splits import TaskSplits, read_data
from ..tasks.tables import shown
from ..tasks.task import Task, report_cut
from ..training.device import kept_generators, product_dtype
from ..training.logs import ProgressCallback
from ..training.loop import StopRequest
from ..training.processor import print_if_emulated
from ..training.ranks import SHARED, join_ranks, print_notice
from .card import task_card
from .config import FinetuneConfig
from .dev import dev_split, measure_on_dev
from .finetuned import load_finetuned
from .job import RUNS, Job, identity_of, prepare_job
from .predict import predict_files
from .results import IDENTITY, RESULTS, SUMMARY, BestRun, RunRecord, SearchSummary, read_summary
from .search import best_of, main_score, search

OWN_FILES = (
    *(SUMMARY, CARD, RESULTS, RUNS, "dev", "test", TASK, WEIGHTS, CONFIG),
    *(*SENTENCE_FILES, str(Path(POOLING).parent)),
    *VOCABULARY_FILES,
)


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
        job = prepare_job(str(data), task_data, str(checkpoint), directory, config)
        return _finetune(job, progress, overwrite, stop)


def _finetune(
    job: Job, progress: ProgressCallback | None, overwrite: bool, stop: StopRequest | None
) -> dict[str, Any]:
    identity = identity_of(job)
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
        if summary is None and search(job, ranks, progress, stop):
            if ranks.rank == 0:
                _finish(job, ranks.device)
            ranks.wait()
            summary = read_summary(job.output)
    return {**summary} if summary else {"status": "interrupted"}


def _report_cuts(job: Job) -> None:
    task = job.data.task
    report_cut(task, "train", num_cut(job.train), len(job.data.train))
    for prefix, features in job.dev.items():
        report_cut(task, dev_split(prefix), num_cut(features), len(job.data.dev[prefix]))


def _report_repeats(data: TaskSplits) -> None:
    repeats = find_repeats(data.task, data.train, data.dev)
    num_train = f"{len(data.train):,} training examples"
    if repeats.repeated:
        print_notice(
            f"{repeats.repeated:,} of {num_train} repeat another exactly: they count twice."
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
    baseline = measure_on_dev(job, job.data.task.baseline)
    word_baseline = measure_on_dev(job, job.data.task.word_baseline)
    values = [main_score(record["scores"]) for record in records]
    best = best_of(records)
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
        "degenerate_runs": sum(value <= main_score(baseline) for value in values),
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
