"""Say which option was meant, for names that other programs use: google-research/bert,
``transformers``, LDDL, fairseq.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import click


@dataclass(frozen=True)
class Hint:
    """What to type instead of another program's option."""

    options: tuple[str, ...] = ()
    """Ours, the likeliest first; the command's own ones are named."""
    advice: str = ""
    """A sentence, if there is no such option."""


def _options(*options: str) -> Hint:
    return Hint(options=options)


_STEPS = _options("--epochs", "--steps", "--tokens", "--hours")
_LEARNING_RATE = _options("--learning-rate", "--learning-rates")
_BATCH_SIZE = _options("--batch-size")
_MAX_LENGTH = _options("--max-length")
_SIZE = _options("--size")
_DUPLICATES = _options("--duplicates")
_PRECISION = Hint(advice="--precision sets it; auto chooses by the device")
_OUTPUT = _options("--output")
_CHECKPOINT = _options("--checkpoint")
_OVERWRITE = _options("--overwrite")
_ARGUMENT = Hint(advice="The data are an argument, without an option's name")
_MASK_RATE = _options("--mask-rate")
_WARMUP = _options("--warmup-share", "--warmup-steps")
_CASED = _options("--cased", "--uncased")
_RESUME = Hint(advice="Rerun the same command: it resumes")
_LOGS = Hint(advice="TensorBoard's logs are in logs/ of the output; WANDB_PROJECT names a project")

HINTS = {
    "-o": _OUTPUT,
    "-v": _options("--verbose"),
    "-j": _options("--workers"),
    "--lr": _LEARNING_RATE,
    "--learning-rate": _LEARNING_RATE,
    "--learning-rates": _LEARNING_RATE,
    "--peak-lr": _LEARNING_RATE,
    "--fp16": _PRECISION,
    "--bf16": _PRECISION,
    "--amp": _PRECISION,
    "--epochs": _STEPS,
    "--num-epochs": _STEPS,
    "--num-train-epochs": _STEPS,
    "--max-epoch": _STEPS,
    "--max-steps": _STEPS,
    "--num-train-steps": _STEPS,
    "--max-update": _STEPS,
    "--train-batch-size": _BATCH_SIZE,
    "--per-device-train-batch-size": _BATCH_SIZE,
    "--per-gpu-train-batch-size": _BATCH_SIZE,
    "--max-sentences": _BATCH_SIZE,
    "--gradient-accumulation-steps": _options("--micro-batch-size"),
    "--update-freq": _options("--micro-batch-size"),
    "--max-seq-length": _MAX_LENGTH,
    "--max-seq-len": _MAX_LENGTH,
    "--target-seq-length": _MAX_LENGTH,
    "--seq-length": _MAX_LENGTH,
    "--max-position-embeddings": _MAX_LENGTH,
    "--vocab-size": _SIZE,
    "--vocabulary-size": _SIZE,
    "--vocab-file": _options("--vocab"),
    "--tokenizer-name": _options("--vocab"),
    "--do-lower-case": _CASED,
    "--lowercase": _CASED,
    "--dupe-factor": _DUPLICATES,
    "--duplicate-factor": _DUPLICATES,
    "--masked-lm-prob": _MASK_RATE,
    "--mlm-probability": _MASK_RATE,
    "--masked-lm-ratio": _MASK_RATE,
    "--mask-prob": _MASK_RATE,
    "--do-whole-word-mask": Hint(advice="Give --masking whole-word to `clozeworks build`"),
    "--whole-word-masking": Hint(advice="Give --masking whole-word to `clozeworks build`"),
    "--warmup": _WARMUP,
    "--warmup-ratio": _WARMUP,
    "--warmup-proportion": _WARMUP,
    "--num-warmup-steps": _WARMUP,
    "--warmup-steps": _WARMUP,
    "--warmup-updates": _WARMUP,
    "--output-dir": _OUTPUT,
    "--output-file": _OUTPUT,
    "--save-dir": _OUTPUT,
    "--sink": _OUTPUT,
    "--overwrite-output-dir": _OVERWRITE,
    "--force": _OVERWRITE,
    "--init-checkpoint": _CHECKPOINT,
    "--model-name-or-path": _CHECKPOINT,
    "--restore-file": _CHECKPOINT,
    "--resume": _RESUME,
    "--resume-from-checkpoint": _RESUME,
    "--save-steps": _options("--checkpoint-every"),
    "--save-checkpoints-steps": _options("--checkpoint-every"),
    "--eval-steps": _options("--evaluate-every"),
    "--logging-dir": _LOGS,
    "--tensorboard-logdir": _LOGS,
    "--report-to": _LOGS,
    "--wandb": _LOGS,
    "--input": _ARGUMENT,
    "--input-file": _ARGUMENT,
    "--data": _ARGUMENT,
    "--data-dir": _ARGUMENT,
    "--train-file": _ARGUMENT,
    "--task-name": Hint(advice="The task is an argument: `clozeworks finetune TASK DATA`"),
    "--text-column-name": _options("--text-column", "--text"),
    "--label-column-name": _options("--label"),
    "--lang": _options("--language"),
    "--num-workers": _options("--workers"),
    "--num-proc": _options("--workers"),
    "--preprocessing-num-workers": _options("--workers"),
    "--num-shards": _options("--shards"),
    "--num-blocks": _options("--shards"),
    "--gpus": Hint(advice="Start one process for each: torchrun --nproc-per-node N -m clozeworks"),
    "--no-cuda": Hint(advice="Give --device cpu"),
    "--cpu": Hint(advice="Give --device cpu"),
    "--cuda": Hint(advice="Give --device cuda"),
    "--gpu": Hint(advice="Give --device cuda"),
    "--num-hidden-layers": _options("--num-layers"),
    "--num-attention-heads": _options("--num-heads"),
    "--top-k": _options("--top"),
}
"""By what people type, with hyphens; underscores are read as hyphens."""


def hint_for(option: str, command: click.Command, commands: Iterable[click.Command]) -> str:
    """Return a sentence that says what to type instead of an `option` that `command` does not have;
    empty if unknown.
    """
    name = option.replace("_", "-")
    hint = HINTS.get(name, Hint(options=(name,)))
    if hint.advice:
        return f"{hint.advice}."
    own = [option for option in hint.options if option in _options_of(command)]
    if own:
        *others, last = own
        return f"Give {', '.join(others)} or {last}." if others else f"Give {last}."
    for option in hint.options:
        others = [str(other.name) for other in commands if option in _options_of(other)]
        others.sort(key=lambda name: name == "corpus")  # the stages themselves first
        if others:
            return f"{option} is an option of {_listed(others)}."
    return ""


def _options_of(command: click.Command) -> list[str]:
    return [name for parameter in command.params for name in parameter.opts]


def _listed(commands: Sequence[str]) -> str:
    return " and ".join(f"`clozeworks {command}`" for command in commands[:2])
