"""Define the command ``clozeworks pretrain``."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..model.config import PretrainConfig
from ..model.encoders.modernbert_config import MODERNBERT_SIZES
from ..pipeline import storage
from ..pipeline.manifests import InstancesManifest, too_little_to_judge
from .options import GroupedCommand, config_options, make_config, overwrite_option, path_option
from .output import ALREADY_FINISHED, CommandSummary, byte_size, duration, warn
from .process import StopOnSignal, wait_for_width
from .progress import training_progress

if TYPE_CHECKING:
    from ..model.pretraining.setup import Also, Summary

MEASURED = {
    "mlm_loss": "masked-LM loss, held out",
    "mlm_accuracy": "masked-LM accuracy, held out",
    "nsp_accuracy": "NSP accuracy, held out",
}


@click.command(cls=GroupedCommand)
@click.argument("instances", type=click.Path(), nargs=-1, required=True, metavar="INSTANCES...")
@path_option("--output", "RUN", "Directory for the model, its logs and checkpoints.")
@overwrite_option
@click.option(
    "--dry-run", is_flag=True, help="Only print steps, epochs, tokens and bytes to write."
)
@config_options(PretrainConfig)
def pretrain(
    instances: tuple[str, ...],
    output: str,
    overwrite: bool,
    dry_run: bool,
    **values: object,
) -> CommandSummary:
    """Pre-train a BERT or ModernBERT on INSTANCES, or continue --checkpoint; exit with 1 if the
    held-out masked-LM loss rose.

    Each directory is a phase: of two, 90% of the steps are on the first, 10% on the second; give
    more --phase-shares. At every checkpoint RUN is a model that `transformers` can load. Rerun the
    command to resume an unfinished run.
    """
    from ..pipeline.storage.state import MANIFEST, read_manifest

    config = make_config(PretrainConfig, values)
    for path in instances:  # before PyTorch is imported, which takes seconds
        if not storage.exists(storage.join(path, MANIFEST)):
            read_manifest(path, InstancesManifest)  # raises, saying what is there instead
    # A BERT's are as wide; a checkpoint's width is not known yet.
    _, hidden_size, _ = MODERNBERT_SIZES[config.size]
    wait_for_width(config.hidden_size or hidden_size)
    if dry_run:
        return _dry_run(config, instances, output, overwrite)
    from ..model.pretraining.pretrain import pretrain as run_pretrain

    stop = StopOnSignal()
    with training_progress() as report:
        summary = run_pretrain(
            config, list(instances), output, report, overwrite=overwrite, stop=stop
        )
    if summary["status"] == "interrupted":
        raise click.Abort from stop.interrupt()  # `main` says how to resume
    too_little = too_little_to_judge(summary["validation_rows"])
    # Only masked tokens are judged: next sentences stay at chance for long, and their loss then
    # rises or falls by chance.
    before = summary["initial"]["mlm_loss"]
    after = summary["final"]["mlm_loss"]
    has_risen = after > before and not too_little
    if has_risen:
        rose = f"the held-out masked-LM loss rose from {before:.3f} to {after:.3f}"
        warn(f"{rose}; lower --learning-rate or train longer")
    also = summary.get("also")
    if also and also["final"]["mlm_loss"] > 1.1 * also["initial"]["mlm_loss"]:
        warn(
            f"the masked-LM loss on {also['path']} rose by more than a tenth: the model forgets; "
            "lower --learning-rate, or build the instances with some of that text"
        )
    rows = _rows(summary, too_little)
    return CommandSummary("pretrain", output, rows, exit_code=int(has_risen))


def _dry_run(
    config: PretrainConfig, instances: tuple[str, ...], output: str, overwrite: bool
) -> CommandSummary:
    """Return what the run would do and write; nothing is trained."""
    import numpy as np
    import torch

    from ..model.encoders.catalogue import make_pretrain_model
    from ..model.pretraining.plan import make_plan
    from ..model.training.logs import read_log
    from ..model.training.run import resumes_run

    plan = make_plan(config, list(instances))
    title = "pretrain --dry-run"
    state = "new"
    if resumes_run(output, plan.identity, overwrite=overwrite):
        if Path(output, "summary.json").exists():
            return CommandSummary(title, output, [("state", ALREADY_FINISHED)])
        state = "unfinished, would resume"
    with torch.device("meta"):  # without memory
        model = make_pretrain_model(plan.shape)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    rows = [("state", state), ("parameters", f"{num_parameters:,}")]
    num_steps = plan.schedule.num_steps
    num_archived = 0
    if num_steps is None:
        rows.append(("hours", f"{config.hours:g}, {config.batch_size:,} rows a step"))
    else:
        rows.append(("steps", f"{num_steps:,}, {config.batch_size:,} rows each, over all ranks"))
        for number, phase_steps in enumerate(plan.phase_steps(), 1):
            phase = plan.phases[number - 1]
            num_rows = config.batch_size * phase_steps
            epochs = f"{num_rows / phase.directory.num_rows:.3g} of {phase.directory.path}"
            if len(plan.phases) == 1:
                rows.append(("epochs", epochs))
                continue
            max_length = phase.directory.max_length
            shown = f"{phase_steps:,} steps, rows of up to {max_length:,} tokens, epochs {epochs}"
            rates = phase.masks and phase.masks.rates_at(np.array([0, num_rows]))
            if rates is not None:
                shown += ", masks " + " to ".join(f"{rate:g}" for rate in dict.fromkeys(rates))
            rows.append((f"phase {number}", shown))
        num_tokens = plan.num_tokens()
        rows.append(("tokens", f"{round(num_tokens):,}"))
        # How fast the run is, an interrupted one has logged.
        logged = [] if state == "new" else read_log(Path(output, "speed.csv"))
        if logged:
            share_left = 1 - int(logged[-1]["step"]) / num_steps
            left_s = share_left * num_tokens / float(logged[-1]["tokens_per_second"])
            rows.append(("time left", duration(left_s)))
        if config.archive_every:
            num_archived = num_steps // config.archive_every
    # A weight has four bytes, and Adam's averages beside it in the last checkpoint eight.
    num_bytes = num_parameters * (12 + 4 * (1 + num_archived))
    free_bytes = storage.free_bytes(output) or 0  # a run is local
    rows.append(("to write", f"about {byte_size(num_bytes)} of {byte_size(free_bytes)} free"))
    return CommandSummary(title, output, rows)


def _rows(summary: "Summary", too_little: str) -> list[tuple[str, str]]:
    before = summary["initial"]
    after = summary["final"]
    rows = [("status", summary["status"])]
    for name in ("parameters", "step", "rows", "tokens"):
        rows.append((name, f"{summary[name]:,}"))
    for name, text in MEASURED.items():
        if name in after:
            rows.append((text, _change(before[name], after[name])))
    if "also" in summary:
        rows += _also_rows(summary, summary["also"])
    if too_little:
        advice = "ingest more documents, or with a larger --validation-share"
        rows.append(("", f"{too_little}; {advice}"))
        return rows
    # Close to it a newcomer needs to know that chance is 0.5. Instances without a segment B are not
    # measured by it, and need no remark.
    if after.get("nsp_accuracy", 1.0) < 0.55:
        at_chance = "NSP is at chance (0.5), as usual in a short run"
        rows.append(("", f"{at_chance}: it takes far more text to learn than masked words"))
    return rows


def _change(before: float, after: float) -> str:
    return f"{before:.3f} before, {after:.3f} after"


def _also_rows(summary: "Summary", also: "Also") -> list[tuple[str, str]]:
    """Return what changed on other text, and measures by which vocabularies compare."""
    rows = []
    before, after = also["initial"], also["final"]
    for name in ("mlm_loss", "mlm_accuracy"):
        title = MEASURED[name].replace("held out", "also")
        rows.append((title, _change(before[name], after[name])))
    measured = [("held out", summary), ("also", also)]
    for place, values in measured:
        size = values["text"]["characters_per_token"]
        losses = [values[when]["mlm_loss"] / size for when in ("initial", "final")]
        rows.append((f"loss a character, {place}", _change(*losses)))
    fertility = [f"{values['text']['tokens_per_word']:.3f} {place}" for place, values in measured]
    rows.append(("tokens a word", ", ".join(fertility)))
    return rows
