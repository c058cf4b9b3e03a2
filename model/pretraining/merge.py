"""Merge the last archived models of a pre-training: their mean, in place of a decay of the rate.

After Megatron-LM's pull request 5114; what it gained in trials here is in
``benchmarks/results/2026-11-30-merged.md``.
"""

from pathlib import Path

from safetensors.torch import save

from ...pipeline import storage
from ...pipeline.data_card import CARD
from ...pipeline.errors import UserError
from ...pipeline.storage.directory import WORK, OutputDirectory, locked
from ...pipeline.storage.state import describe_absence
from ..card import model_name, read_languages, render_card
from ..checkpoint import CONFIG, WEIGHTS, Checkpoint
from ..tokenizer import tokenizer_files
from .evaluate import evaluate


def merge(
    run: str | Path, instances: str, last: int, output: str | Path, device: str = "auto"
) -> dict[str, dict[str, float]]:
    """Write the mean of the `last` models in ``run/archive`` to the new or empty folder `output`.

    Returns what `evaluate` measures of the ``last`` model alone, whose files but the weights are
    kept, and of the ``mean``. Raises `UserError` if there are fewer models, or one is damaged.
    """
    output = str(output)
    if absence := describe_absence(str(run)):
        raise UserError(f"{absence}: give a run of `clozeworks pretrain`.")
    archive = storage.join(str(run), "archive")
    numbers = [name.removeprefix("step-") for name in storage.folder_names(archive)]
    steps = sorted(int(number) for number in numbers if number.isdecimal())
    if not 2 <= last <= len(steps):
        raise UserError(
            f"`last` is {last}, but {archive} holds {len(steps)} models: merge two or more; "
            "pre-train with a smaller `archive_every` to keep more."
        )
    if present := storage.visible_names(output):
        raise UserError(f"{output} is not empty ({present[0]}, …). Choose another `output`.")
    names = [storage.join(archive, f"step-{step}") for step in steps[-last:]]
    newest = Checkpoint.open(names[-1])
    measured = {"last": evaluate(newest.name, instances, device=device)}
    own = newest.weights()
    means = {name: weight.double() / last for name, weight in own.items()}
    for other in names[:-1]:
        for name, weight in Checkpoint.open(other).weights().items():
            means[name] += weight.double() / last
    weights = {name: mean.to(own[name].dtype) for name, mean in means.items()}
    target = OutputDirectory(output)
    with locked(output):
        target.write_bytes(WEIGHTS, save(weights, metadata={"format": "pt"}))
        for name, content in tokenizer_files(newest.name).items():
            target.write_bytes(name, content)
        target.write_bytes(CONFIG, (newest.folder / CONFIG).read_bytes())
        measured["mean"] = evaluate(output, instances, device=device)
        training = {"mean of the weights of": f"steps {steps[-last]:,} to {steps[-1]:,}"}
        card = render_card(
            f"The mean of {last} archived models of {model_name(str(run))}",
            {"Training": training, "On held-out documents": measured["mean"]},
            usage="" if newest.shape.is_decoder else None,
            language=read_languages(Path(run)) or None,
            tags=[newest.shape.model_type],
            pipeline_tag=None if newest.shape.is_decoder else "fill-mask",
            datasets=[],
        )
        target.write_bytes(CARD, card.encode())
        target.remove(WORK)
    return measured
