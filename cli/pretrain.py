"""``clozeworks pretrain``."""

from typing import Any

import click

from ..model.config import PretrainConfig
from .options import config_options, make_config
from .summary import CommandSummary
from .training_progress import report_upload, training_progress

LEARNED_NSP = 0.55
"""Below this accuracy a newcomer needs to know that chance is 0.5."""


@click.command()
@click.argument("instances", type=click.Path(), nargs=-1, required=True, metavar="INSTANCES...")
@click.option(
    "--output",
    type=click.Path(),
    required=True,
    metavar="RUN",
    help="Directory for the model, its logs and checkpoints.",
)
@click.option("--overwrite", is_flag=True, help="Delete the output directory's contents and start over.")
@click.option(
    "--resume", is_flag=True, help="Fail unless there is a run to resume (an unfinished run is resumed anyway)."
)
@config_options(PretrainConfig)
def pretrain(instances: tuple[str, ...], output: str, overwrite: bool, resume: bool, **values: Any) -> CommandSummary:
    """Pre-train a BERT encoder on INSTANCES.

    At every checkpoint RUN is a model that `transformers` can load. Rerun the command to resume an unfinished run.
    """
    from ..model.pretraining.pretrain import pretrain as run_pretrain
    from ..model.training.curve import can_draw

    config = make_config(PretrainConfig, values)
    report_upload(output)
    with training_progress() as report:
        summary = run_pretrain(config, list(instances), output, report, overwrite=overwrite, resume=resume)
    if summary["status"] == "interrupted":
        raise click.Abort
    rows = _rows(summary)
    if not can_draw():
        rows.append(("loss curve", "not drawn: matplotlib is missing, run pip install 'clozeworks[train]'"))
    return CommandSummary("pretrain", output, rows)


def _rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    names = {
        "mlm_loss": "masked-LM loss, held out",
        "mlm_accuracy": "masked-LM accuracy, held out",
        "nsp_accuracy": "NSP accuracy, held out",
    }
    before, after = summary["initial"], summary["final"]
    measured = [
        (text, f"{before[name]:.3f} before, {after[name]:.3f} after") for name, text in names.items() if name in after
    ]
    if after.get("nsp_accuracy", 1.0) < LEARNED_NSP:
        measured.append(
            ("", "NSP is at chance (0.5), which is usual for a short run: it takes far more text than words do")
        )
    sizes = [(name, f"{summary[name]:,}") for name in ("parameters", "step", "rows", "tokens")]
    return [("status", summary["status"]), *sizes, *measured]
