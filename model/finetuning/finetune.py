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
from pathlib import Path
from typing import Any

import msgspec

from ...pipeline.errors import UserError
from ...pipeline.seeding import stable_hash
from ...pipeline.storage.claim import claimed
from ...pipeline.storage.directory import NO_SPACE, WORK, unwritable_as_user_error
from ...pipeline.storage.stage import VOCABULARY_FILES
from ..card import CARD, read_languages
from ..checkpoint import (
    CONFIG,
    TASK,
    WEIGHTS,
    Checkpoint,
    files_digest,
)
from ..copies import refuse_remote
from ..notices import StopRequest, print_notice
from ..tasks.batches import num_cut
from ..tasks.catalogue import task_settings
from ..tasks.splits import TaskSplits, read_data
from ..tasks.task import ExampleT, Scores, Task, prefixed
from ..training.device import kept_generators
from ..training.logs import ProgressCallback
from ..training.ranks import SHARED, Ranks, join_ranks
from .card import task_card
from .config import FinetuneConfig
from .finetuned import load_finetuned
from .folder import SearchFolder
from .predict import predict_files
from .prepare import (
    Features,
    chosen_recipe,
    identity_of,
    make_grid,
    prepare,
    report_oddities,
)
from .records import (
    RUNS,
    SUMMARY,
    RunRecord,
    SearchSummary,
    Trial,
    best_of,
    describe_run,
    main_score,
    read_log,
    read_records,
    read_summary,
)
from .results import IDENTITY, RESULTS
from .search import Trainer, search, selected_first

OWN_FILES = (
    *(SUMMARY, CARD, RESULTS, RUNS, "dev", "test", TASK, WEIGHTS, CONFIG),
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
    refuse_remote(output)
    splits = read_data(task, data, config)
    opened = Checkpoint.open(checkpoint)
    features = prepare(splits, opened, config)
    grid = make_grid(splits.task, config)
    identity = identity_of(splits, opened, config)
    recipes = [chosen_recipe(splits.task, config, trial) for trial in grid]
    smallest_batch = min(recipe.batch_size for recipe in recipes)
    path = Path(output)
    claim = claimed(str(path), identity, IDENTITY, OWN_FILES, overwrite=overwrite)
    with (
        unwritable_as_user_error(path, NO_SPACE),
        join_ranks(config.device, smallest_batch) as ranks,
        kept_generators(ranks.device),
        ranks.on_first(claim),
    ):
        folder = SearchFolder(path)
        trainer = Trainer(splits, features, opened, config, ranks, folder)
        _begin(trainer, grid)
        ranks.wait()  # for the first one, which alone writes
        _check_ranks(ranks, identity, path)
        summary = read_summary(path)
        if summary is None and search(grid, trainer, progress, stop or StopRequest()):
            if ranks.rank == 0:
                _finish(trainer, str(data))
            ranks.wait()
            summary = read_summary(path)
    if summary is None:
        return {"status": "interrupted"}
    return msgspec.to_builtins(summary)


def _begin(trainer: Trainer, grid: Sequence[Trial]) -> None:
    """Say what is odd about the examples, and forget an earlier end if there is work to do."""
    if trainer.ranks.rank > 0:
        return
    digest = trainer.splits.test_digest()
    if not trainer.folder.is_complete(grid, digest):
        trainer.folder.forget_end()
    report_oddities(trainer.splits, trainer.features)


def _check_ranks(ranks: Ranks, identity: Mapping[str, Any], path: Path) -> None:
    """Raise `UserError` if the ranks do different work, or do not share the directory."""
    claim_file = path / IDENTITY
    ranks.agree(
        {
            "the task, its data and the checkpoint": f"{stable_hash(json.dumps(identity)):016x}",
            "`output`": files_digest([claim_file]) if claim_file.is_file() else "missing",
        },
        SHARED,
    )


def _finish(trainer: Trainer, source: str) -> None:
    """Write the best model's predictions for the test files, the card, then the summary."""
    splits = trainer.splits
    folder = trainer.folder
    _predict_tests(trainer)
    records = read_records(folder.path)
    summary = summarise(records, splits, trainer.features, trainer.config.selected_metric)
    _report_degenerate(records, summary, folder.path, trainer.config)
    card = task_card(
        task=splits.task,
        data=source,
        checkpoint=records[0].checkpoint,
        languages=read_languages(trainer.checkpoint.folder),
        config=trainer.config,
        summary=summary,
        shape=Checkpoint.open(folder.path).shape,
    )
    folder.files.write_bytes(CARD, card.encode())
    # The summary comes last: it says that the search is finished.
    folder.files.write_json(SUMMARY, msgspec.to_builtins(summary))
    folder.files.remove(WORK)


def _predict_tests(trainer: Trainer) -> None:
    splits = trainer.splits
    folder = trainer.folder
    shutil.rmtree(folder.path / "test", ignore_errors=True)  # of other files
    if not splits.tests:
        return
    # Only a task of the user's own cannot be made from task.json.
    users_task = splits.task if "class" in task_settings(splits.task) else None
    # Read again from its files, as `predict` will: the best run may be one of an earlier call.
    finetuned = load_finetuned(folder.path, trainer.ranks.device, users_task)
    for split, files in splits.tests.items():
        for name, content in predict_files(finetuned, files, split).items():
            folder.files.write_bytes(f"test/{name}", content)


def _report_degenerate(
    records: Sequence[RunRecord], summary: SearchSummary, directory: Path, config: FinetuneConfig
) -> None:
    """Print which runs are no better than a constant answer, how their training loss moved, and
    what to change.
    """
    constant = main_score(summary.baseline)
    degenerate = [record for record in records if main_score(record.scores) <= constant]
    if not degenerate:
        return
    described = []
    for record in degenerate:
        words = describe_run(record)
        log = read_log(directory, record, summary.metric)
        losses = [line.loss for line in log if line.split == "train" and line.loss is not None]
        if len(losses) > 1:
            words += f" (training loss {losses[0]:.3f} to {losses[-1]:.3f})"
        described.append(words)
    remedy = "lower `learning_rates`"
    if not all(config.corrects_bias(record.learning_rate) for record in degenerate):
        remedy += " or try `bias_correction`"
    print_notice(
        f"{len(degenerate):,} of {len(records):,} runs are no better than a constant answer: "
        f"{'; '.join(described)}. If the loss does not fall, {remedy}; if it falls, give more "
        "`epochs`."
    )


def summarise(
    records: Sequence[RunRecord], splits: TaskSplits, features: Features, selected: str | None
) -> SearchSummary:
    """Return the best run, the spread of all, and baselines."""
    # A useful model beats both: a constant answer, and a model that counts single words.
    baseline = _scores_without_model(splits, splits.task.baseline, selected)
    word_baseline = _scores_without_model(splits, splits.task.word_baseline, selected)
    values = [main_score(record.scores) for record in records]
    best = best_of(records)
    at_best = [main_score(record.scores) for record in records if record.recipe == best.recipe]
    return SearchSummary(
        task=splits.task.name,
        metric=next(iter(baseline)),
        best=best.as_best(),
        dev_classes=best.dev_classes,
        runs=len(records),
        median=statistics.median(at_best),
        lowest=min(at_best),
        highest=max(at_best),
        degenerate_runs=sum(value <= main_score(baseline) for value in values),
        baseline=baseline,
        word_baseline=word_baseline,
        train_examples=len(splits.train),
        dev_examples=len(splits.dev[""]),
        train_examples_cut=num_cut(features.train),
        dev_examples_cut=num_cut(features.dev[""]),
        held_out=splits.held_out,
        test_digest=splits.test_digest(),
        train_digests=splits.train_digests(),
    )


def _scores_without_model(
    splits: TaskSplits[ExampleT],
    measure: Callable[[Sequence[ExampleT], Sequence[ExampleT]], Scores],
    selected: str | None,
) -> dict[str, float]:
    """Return what `measure` says of each dev set, given the training examples."""
    scores: dict[str, float] = {}
    for prefix, dev_examples in splits.dev.items():
        scores |= prefixed(prefix, measure(splits.train, dev_examples))
    if scores:
        return selected_first(scores, selected)
    return scores
