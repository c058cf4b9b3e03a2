"""Pre-train: from instances to an encoder, exact and resumable.

`pretrain` plans the run (`plan`), sets it up on its device (`setup`), makes or loads the model
(`setup.start`), claims the folder, and trains (`training.loop`, on the updates of `work`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path

from ...pipeline.data_card import hub_languages
from ...pipeline.manifests import InstancesManifest, too_little_to_judge
from ...pipeline.storage.directory import WORK, OutputDirectory, kept
from ..card import CARD, model_name, render_card
from ..config import EVALUATION_ROWS, PretrainConfig
from ..copies import refuse_remote
from ..encoders.config import EncoderConfig
from ..notices import StopRequest, print_notice
from ..training.device import DTYPES, deterministic, kept_generators
from ..training.logs import ProgressCallback, RunLog
from ..training.loop import train
from ..training.ranks import join_ranks
from ..training.run import (
    MODEL_FILES,
    SUMMARY,
    agree_on_run,
    claimed_run,
    delete_checkpoints,
    link_files,
    read_summary,
    refuse_inside,
    resumes_run,
)
from ..training.threads import SnapshotWriter, kept_threads, use_threads
from .evaluate import text_measures
from .plan import make_plan
from .setup import PretrainSetup, PretrainState, StartedRun, Summary, start
from .work import PretrainWork


def pretrain(
    config: PretrainConfig,
    instances: str | list[str],
    output: str | Path,
    progress: ProgressCallback | None = None,
    *,
    overwrite: bool = False,
    stop: StopRequest | None = None,
) -> Summary:
    """Train an encoder on one directory of `instances`, or on several one after the other, into
    `output`, and return the summary.

    The same call resumes an interrupted run; `overwrite` starts over, and `stop` lets another
    thread end the run early, once everything is saved: ``status`` is then ``interrupted``, else
    ``finished`` or ``already finished``. `progress` is called after each update (on a GPU ten
    times a second) with ``step``, ``steps``, ``learning_rate``, `evaluate.metrics` in training and
    `Clock.rates`; while held-out rows are measured with a ``stage``. Raises `UserError` for
    instances that do not match each other or the model, another run's directory, a loss that is not
    finite, and a batch that does not fit into memory.
    """
    refuse_remote(output)
    if isinstance(instances, str | Path):
        instances = [instances]
    folder = Path(output)
    if config.checkpoint is not None:
        refuse_inside(config.checkpoint, folder)
    plan = make_plan(config, instances)
    # Ranks join before the first one claims the folder: a refusal has to reach all of them.
    with (
        kept(*instances),
        join_ranks(config.device, config.batch_size) as ranks,
        kept_generators(ranks.device),
        deterministic(config.deterministic),
        kept_threads(),
        ExitStack() as claim,
    ):
        run = None
        # What is refused now has deleted nothing. Other ranks may not see the folder as the first.
        if ranks.num_ranks == 1 and not resumes_run(output, plan.identity, overwrite=overwrite):
            run = start(plan, ranks, None)
        claim.enter_context(ranks.on_first(claimed_run(folder, plan.identity, overwrite)))
        latest = agree_on_run(ranks, plan.identity, folder, plan.checkpoint)
        if summary := read_summary(folder, Summary):
            summary["status"] = "already finished"
            return summary
        if latest and ranks.rank == 0:
            # The run may have been killed before it was.
            delete_checkpoints(folder, keep=1)
            link_files(MODEL_FILES, latest, folder)
            print_notice(f"Resumes {output} from {latest.name}.")
        if latest or run is None:
            run = start(plan, ranks, latest)
        return _train(run, latest, folder, progress, stop)


def _train(
    run: StartedRun,
    latest: Path | None,
    folder: Path,
    progress: ProgressCallback | None,
    stop: StopRequest | None,
) -> Summary:
    setup = run.setup
    state = run.state
    _note_parts(setup, state)
    state.num_threads = use_threads(state.num_threads, setup.ranks.device)
    open_log: AbstractContextManager[RunLog | None] = nullcontext()
    if setup.ranks.rank == 0:
        # Without a checkpoint no line of an earlier log is right.
        last_step = state.step if latest else -1
        open_log = RunLog(folder, last_step)
    with open_log as log, SnapshotWriter() as writer:
        work = PretrainWork(
            **run._asdict(),
            output=folder,
            log=log,
            writer=writer,
            show=progress or (lambda figures: None),
            stop=stop or StopRequest(),
        )
        if not train(work):
            return _summary(work, "interrupted")
        writer.wait()  # a finished run has all its files, or an error says what is missing
        if run.updater.graphs is not None:
            print_notice(f"Updates as CUDA graphs: {run.updater.graphs.figures()}.")
        return _finish(work)


def _note_parts(setup: PretrainSetup, state: PretrainState) -> None:
    """Note into how many parts a batch is divided, and say so if a resumed run changes that."""
    plan = setup.plan
    num_rows = min(setup.rows_at_once(plan.phases[0]), plan.config.batch_size)
    how = ", as dropout is drawn anew" if plan.config.dropout else " in their last digits"
    for what, before, now in (
        ("ranks", state.num_ranks, setup.ranks.num_ranks),
        ("rows in a micro-batch", state.micro_batch_size, num_rows),
    ):
        if before not in (None, now):
            print_notice(
                f"The run began with {before} {what} and resumes with {now}: its weights will "
                f"differ{how}."
            )
    state.num_ranks = setup.ranks.num_ranks
    state.micro_batch_size = num_rows


def _finish(work: PretrainWork) -> Summary:
    """Write the last files of a run, and return its summary."""
    summary = _summary(work, "finished")
    plan = work.plan
    if work.ranks.rank == 0:
        output = OutputDirectory(str(work.output))
        output.write_json("timings.json", work.clock.totals())
        name_by_dtype = {dtype: name for name, dtype in DTYPES.items()}
        card = model_card(
            plan.config,
            work.model.config,
            [directory.manifest for directory in plan.directories],
            summary,
            name_by_dtype[work.setup.dtype],
        )
        output.write_bytes(CARD, card.encode())
        output.write_json(SUMMARY, summary)  # last: a run with a summary is finished
        output.remove(WORK)
    return summary


def _summary(work: PretrainWork, status: str) -> Summary:
    state = work.state
    assert state.initial is not None and state.final is not None, "measured before the first step"
    last_phase = work.plan.directories[-1]
    shards = last_phase.manifest.shards
    num_held_out = sum(shard.rows for shard in shards if shard.split == "validation")
    summary: Summary = {
        "status": status,
        "step": state.step,
        "parameters": sum(parameter.numel() for parameter in work.model.parameters()),
        "tokens": state.num_tokens,
        "rows": state.num_rows,
        "initial": state.initial,
        "final": state.final,
        "best": state.best,
        "validation_rows": min(num_held_out, EVALUATION_ROWS),
        "text": text_measures(work.setup.validation[-1], last_phase.vocabulary, work.ranks),
    }
    also = work.plan.also
    rows = work.setup.also
    if status != "finished" or also is None or rows is None:
        return summary
    if state.also_digest != also.manifest.digest:
        print_notice(f"{also.path} was not measured before the first step: nothing is compared.")
    else:
        summary["also"] = {
            "path": also.path,
            "initial": state.also or {},
            "final": work.measure_also() or {},
            "text": text_measures(rows, last_phase.vocabulary, work.ranks),
        }
    return summary


def model_card(
    config: PretrainConfig,
    shape: EncoderConfig,
    manifests: Sequence[InstancesManifest],
    summary: Summary,
    products: str,
) -> str:
    """Return the card of a run as Markdown; `products` is the number format of matrix products."""
    tokens = Counter[str]()
    documents = Counter[str]()
    rows = []
    for manifest in manifests:
        # The larger number, not the sum: phases are built from the same documents.
        documents |= Counter(manifest.languages)
        training_shards = [shard for shard in manifest.shards if shard.split == "train"]
        for shard in training_shards:
            tokens.update(shard.source_tokens)
        num_rows = sum(shard.rows for shard in training_shards)
        rows.append(f"{num_rows:,} of at most {manifest.config.max_length:,} tokens")
    training: dict[str, object] = {
        "parameters": summary["parameters"],
        # A text counts as often as its rows are stored.
        "tokens by source, all passes": _counts(tokens),
        "documents by language": _counts(documents),
        "rows": ", then ".join(rows),
        "trained for": f"{summary['step']:,} steps of {config.batch_size:,} rows",
        "tokens seen": summary["tokens"],
        "matrix products": products,
    }
    if config.checkpoint:
        training["started from"] = model_name(config.checkpoint)
    too_few = too_little_to_judge(summary["validation_rows"])
    measured: dict[str, object] = {"rows": too_few or summary["validation_rows"]}
    if not too_few:
        for name, after in summary["final"].items():
            measured[name] = f"{after:.4g} (before training {summary['initial'][name]:.4g})"
    fills_masks = not shape.is_decoder
    return render_card(
        f"A {shape.title} encoder pre-trained by Clozeworks",
        {"Training": training, "On held-out documents": measured},
        usage=None if fills_masks else "",
        language=hub_languages(documents) or None,
        license=config.license,
        tags=[shape.model_type],
        pipeline_tag="fill-mask" if fills_masks else None,
        datasets=sorted(tokens),
    )


def _counts(counts: Mapping[str, int]) -> str:
    return "; ".join(f"{name} {counts[name]:,}" for name in sorted(counts)) or "unknown"
