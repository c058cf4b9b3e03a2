"""Fine-tuning: a task with each learning rate, batch size, number of epochs and seed; the best run
on dev is kept.

finetune.json        the identity of the work: task, data, encoder and options; other work
                     is refused
runs/                a directory for each run, as `training.run` has it
results.csv          a line for each run
summary.json         the best run, and how the others compare; once all are finished
model.safetensors …  the model of the best run, in Hugging Face's layout, with ``task.json`` (what
                     `predict` needs to know of the task) and its answers on dev in ``dev/``
README.md            the model card
test/                predictions for the test files
"""

import shutil
import statistics
from collections.abc import Sequence
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any, cast

from msgspec import structs

from ...pipeline.storage.directory import WORK, OutputDirectory
from ...pipeline.storage.state import claimed
from ..card import CARD, model_name, read_languages, render_card
from ..checkpoint import TASK, Checkpoint
from ..copies import refuse_remote
from ..encoders.config import EncoderConfig
from ..notices import StopRequest, print_notice
from ..tasks.batches import num_cut
from ..tasks.catalogue import GLUE, task_settings
from ..tasks.task import Scores, Task, prefixed
from ..training.device import deterministic, kept_generators
from ..training.logs import ProgressCallback
from ..training.ranks import Ranks, join_ranks
from ..training.run import (
    BEST,
    CHECKPOINTS,
    MODEL_FILES,
    SUMMARY,
    delete_checkpoints,
    link_files,
    refuse_inside,
)
from .config import FinetuneConfig, all_of
from .model import load_finetuned, make_model
from .predict import predict_files
from .results import (
    IDENTITY,
    RESULTS,
    RUNS,
    FinetuneSummary,
    Hyperparameters,
    RunSummary,
    best_of,
    read_runs,
    read_summary,
    results_table,
)
from .run import train_run
from .setup import FinetuneSetup, report_oddities, set_up

OWN_FILES = (SUMMARY, CARD, RESULTS, RUNS, "dev", "test", TASK, *MODEL_FILES)


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
) -> FinetuneSummary:
    """Fine-tune `checkpoint` on a task with each combination of the hyperparameters, and return
    what ``summary.json`` holds.

    `task` is a name or a `Task`; `data` a folder or file of the official form, or a data set of the
    Hub (``hf:nyu-mll/glue:sst2``). The same call resumes unfinished work; one with other learning
    rates, batch sizes, epochs or seeds adds those runs; `overwrite` starts over, and `stop` lets
    another thread end the work once everything is saved: the summary then has only a ``status``,
    ``interrupted``. `progress` is called about every tenth step with ``stage`` (which run it is)
    and what `FinetuneWork.show` says. Raises `UserError` for bad input, for an `output` that holds
    something else, and for a loss that is not finite.
    """
    refuse_remote(output)
    refuse_inside(checkpoint, output)
    setup = set_up(task, data, Checkpoint.open(checkpoint), config)
    runs = _runs(setup.task, config)
    smallest_batch = min(run.batch_size for run in runs)
    path = Path(output)
    if overwrite:
        # Weights that are refused now have deleted nothing.
        make_model(setup.task, setup.checkpoint, config, config.seed)
    with (
        join_ranks(config.device, smallest_batch) as ranks,
        kept_generators(ranks.device),
        deterministic(config.deterministic),
        ranks.on_first(
            claimed(str(path), setup.identity, IDENTITY, OWN_FILES, overwrite=overwrite)
        ),
    ):
        report_oddities(setup)
        summary = read_summary(path)
        is_left = summary is None or summary["test_digest"] != setup.splits.test_digest()
        is_left |= not all((path / run.folder / SUMMARY).exists() for run in runs)
        if ranks.from_first(is_left):
            if not _train_all(setup, runs, path, ranks, progress, stop or StopRequest()):
                return cast(FinetuneSummary, {"status": "interrupted"})
            for updater in setup.updaters:
                assert updater.graphs is not None
                print_notice(f"Updates as CUDA graphs: {updater.graphs.figures()}.")
            if ranks.rank == 0:
                _finish(setup, path, str(data), ranks)
            ranks.wait()
        summary = read_summary(path)
        assert summary is not None
        # Also if all was done before: the command ends with 1 again.
        if ranks.rank == 0 and summary["degenerate_runs"]:
            print_notice(
                f"{summary['degenerate_runs']:,} of {summary['runs']:,} runs are within one "
                "standard error of a constant answer. If the loss in their metrics.csv does not "
                "fall, lower `learning_rates`; if it falls, give more `epochs`."
            )
    return summary


def _runs(task: Task, config: FinetuneConfig) -> list[Hyperparameters]:
    """Return all combinations of what the user chose, or the task's defaults."""
    recipe = task.recipe
    rates = config.learning_rates or recipe.learning_rates
    sizes = all_of(config.batch_size) or (recipe.batch_size,)
    numbers_of_epochs = all_of(config.epochs) or (recipe.epochs,)
    seeds = range(config.seed, config.seed + config.seeds)
    return [
        Hyperparameters(learning_rate=rate, batch_size=int(size), epochs=float(epochs), seed=seed)
        for rate, size, epochs, seed in product(rates, sizes, numbers_of_epochs, seeds)
    ]


def _train_all(
    setup: FinetuneSetup,
    runs: Sequence[Hyperparameters],
    path: Path,
    ranks: Ranks,
    progress: ProgressCallback | None,
    stop: StopRequest,
) -> bool:
    """Do the runs that are not done; return False if asked to stop."""

    def show(title: str, figures: dict[str, Any]) -> None:
        if progress:
            progress({"stage": title, **figures})

    if ranks.rank == 0:
        # The card too, so that nobody exports the next best model with the figures of this one.
        OutputDirectory(str(path)).remove(SUMMARY, CARD)
    for number, run in enumerate(runs, 1):
        title = f"run {number} of {len(runs)} ({run.in_words})"
        if not train_run(setup, run, ranks, path / run.folder, partial(show, title), stop):
            return False
        if ranks.rank > 0:
            continue
        # Only the best model is kept: another never will be the best again.
        finished = read_runs(path)
        best = best_of(finished)
        for other in finished:
            if other is best:
                delete_checkpoints(path / other.folder)
            else:
                shutil.rmtree(path / other.folder / CHECKPOINTS, ignore_errors=True)
    return True


def _finish(setup: FinetuneSetup, path: Path, data: str, ranks: Ranks) -> None:
    """Put the best run's model into the output directory, with results, predictions and card."""
    output = OutputDirectory(str(path))
    runs = read_runs(path)
    best = best_of(runs)
    model = path / best.folder / BEST
    # Without task.json nothing reads the files, of which some are still those of the model before.
    output.remove(TASK, "dev", "test")
    answers = [f"dev/{file.name}" for file in sorted((model / "dev").iterdir())]
    link_files((*MODEL_FILES, *answers, TASK), model, path)
    output.write_bytes(RESULTS, results_table(runs))
    if setup.splits.tests:
        # Only a task of the user's own cannot be made from task.json.
        users_task = setup.task if "class" in task_settings(setup.task) else None
        # Read again from its files, as `predict` will: the best run may be one of an earlier call.
        finetuned = load_finetuned(path, ranks.device, users_task)
        for split, files in setup.splits.tests.items():
            for name, content in predict_files(finetuned, files, split).items():
                output.write_bytes(f"test/{name}", content)
    summary = summarise(setup, runs)
    card = task_card(
        task=setup.task,
        data=data,
        checkpoint=best.checkpoint,
        languages=read_languages(setup.checkpoint.folder),
        summary=summary,
        shape=Checkpoint.open(path).shape,
    )
    output.write_bytes(CARD, card.encode())
    # The summary comes last: it says that all runs are finished.
    output.write_json(SUMMARY, summary)
    output.remove(WORK)


def summarise(setup: FinetuneSetup, runs: Sequence[RunSummary]) -> FinetuneSummary:
    """Return the best run, the spread of all, and baselines."""
    splits = setup.splits
    # A useful model beats both: a constant answer, and a model that counts single words.
    baseline: Scores = {}
    word_baseline: Scores = {}
    for prefix, examples in splits.dev.items():
        baseline |= prefixed(prefix, splits.task.baseline(splits.train, examples))
        word_baseline |= prefixed(prefix, splits.task.word_baseline(splits.train, examples))
    metric = next(iter(baseline))
    best = best_of(runs)
    scores_at_best = [run.score for run in runs if run.recipe == best.recipe]
    return {
        "status": "finished",
        "task": splits.task.name,
        "metric": metric,
        "best": {
            **{name: getattr(best, name) for name in Hyperparameters.__struct_fields__},
            "step": best.step,
            "tuned": best.tuned,
            "scores": best.scores,
        },
        "dev_classes": structs.asdict(best.dev_classes),
        "runs": len(runs),
        "median": statistics.median(scores_at_best),
        "lowest": min(scores_at_best),
        "highest": max(scores_at_best),
        "degenerate_runs": sum(
            run.is_degenerate(baseline[metric], len(splits.dev[""])) for run in runs
        ),
        "baseline": baseline,
        "word_baseline": word_baseline,
        "train_examples": len(splits.train),
        "dev_examples": len(splits.dev[""]),
        "train_examples_cut": num_cut(setup.train),
        "dev_examples_cut": num_cut(setup.dev[""]),
        "held_out": splits.held_out,
        "test_digest": splits.test_digest(),
        "train_digests": splits.train_digests(),
    }


def task_card(
    task: Task,
    data: str,
    checkpoint: str,
    languages: list[str],
    summary: FinetuneSummary,
    shape: EncoderConfig,
) -> str:
    """Return the card of a search's best run; `languages` and `shape` are the encoder's."""
    best = summary["best"]
    name = f"{task.name} {task.variant}".strip()
    dataset, dataset_name = _dataset(task.name, data)
    split = "train (held-out part)" if summary["held_out"] else "validation"
    training = {
        "encoder": model_name(checkpoint),
        "data": dataset_name,
        "training examples": summary["train_examples"],
        "dev examples": f"{summary['dev_examples']:,}, {split}",
        f"best of {summary['runs']:,} on dev": (
            f"learning rate {best['learning_rate']:.4g}, batch size {best['batch_size']}, "
            f"epochs {best['epochs']:.4g}, seed {best['seed']}"
        ),
    }
    if shape.is_decoder:
        training["attention"] = "left to right"
    # SQuAD 2.0 has 13, of answerable and other questions; all are in summary.json.
    scores: dict[str, object] = dict(islice(best["scores"].items(), 8))
    for metric in scores.keys() & summary["baseline"].keys():
        constant = summary["baseline"][metric]
        scores[metric] = f"{scores[metric]:.4g} ({constant:.4g} for a constant answer)"
    usage = "```console\n$ clozeworks predict . FILE --output predictions.jsonl\n```"
    return render_card(
        f"A {shape.title} encoder fine-tuned on {name} by Clozeworks",
        {"Training": training, "On the dev examples": scores},
        usage=None if task.in_transformers and not shape.is_decoder else usage,
        language=languages or None,
        tags=[shape.model_type],
        pipeline_tag=task.pipeline,
        datasets=[dataset],
    )


def _dataset(task: str, data: str) -> tuple[str, str]:
    """Return a data set's address on the Hub and its name; a local one's file or folder twice."""
    if task in GLUE:
        return "nyu-mll/glue", f"GLUE {task}"
    name = Path(data).name
    if data.startswith("hf:"):
        name, _, _ = data.removeprefix("hf:").partition(":")
    return name, name
