"""Say which option was meant by the names in google-research/bert and ``transformers`` that people
type most.
"""

from collections.abc import Iterable, Mapping, Sequence

import click

HINTS: Mapping[str, tuple[str, ...] | str] = {
    "-o": ("--output",),
    "--lr": ("--learning-rate", "--learning-rates"),
    "--learning-rate": ("--learning-rate", "--learning-rates"),
    "--epochs": ("--epochs", "--steps", "--tokens", "--hours"),
    "--num-train-epochs": ("--epochs", "--steps", "--tokens", "--hours"),
    "--max-steps": ("--epochs", "--steps", "--tokens", "--hours"),
    "--train-batch-size": ("--batch-size",),
    "--per-device-train-batch-size": ("--batch-size",),
    "--max-seq-length": ("--max-length",),
    "--vocab-size": ("--size",),
    "--vocab-file": ("--vocab",),
    "--dupe-factor": ("--duplicates",),
    "--do-lower-case": ("--cased", "--uncased"),
    "--mlm-probability": ("--mask-rate",),
    "--warmup-ratio": ("--warmup-share", "--warmup-steps"),
    "--output-dir": ("--output",),
    "--model-name-or-path": ("--checkpoint",),
    "--fp16": "--precision sets it; auto chooses by the device",
    "--resume": "Rerun the same command: it resumes",
    "--data-dir": "The data are an argument, without an option's name",
}
"""By what people type, with hyphens (underscores are read as hyphens): our options, the likeliest
first (a command's message names those that it has), or a sentence, if there is no such option.
"""


def hint_for(option: str, command: click.Command, commands: Iterable[click.Command]) -> str:
    """Return a sentence that says what to type instead of an `option` that `command` does not have;
    empty if unknown.
    """
    name = option.replace("_", "-")
    hint = HINTS.get(name, (name,))
    if isinstance(hint, str):
        return f"{hint}."
    own = [option for option in hint if option in _options_of(command)]
    if own:
        *others, last = own
        return f"Give {', '.join(others)} or {last}." if others else f"Give {last}."
    for option in hint:
        others = [str(other.name) for other in commands if option in _options_of(other)]
        others.sort(key=lambda name: name == "corpus")  # the stages themselves first
        if others:
            return f"{option} is an option of {_listed(others)}."
    return ""


def _options_of(command: click.Command) -> list[str]:
    return [name for parameter in command.params for name in parameter.opts]


def _listed(commands: Sequence[str]) -> str:
    return " and ".join(f"`clozeworks {command}`" for command in commands[:2])
