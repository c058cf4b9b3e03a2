"""The names of the tasks and the options that only some of them take; needs no PyTorch."""

from ...pipeline.errors import UserError, did_you_mean
from ..finetuning.config import FinetuneConfig

_BILSTM = ("bilstm", "lstm_size")

TASK_OPTIONS = {
    **dict.fromkeys(
        ("cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli"), _BILSTM
    ),
    "classify": ("text", "text_pair", "label", *_BILSTM),
    "squad": ("stride", "max_question_length", "max_answer_length", "metric", *_BILSTM),
    "swag": (),
    "ner": ("features", "lstm_size"),
}
"""By the task's name: the options that other tasks do not take."""


def check_task(name: str, config: FinetuneConfig) -> None:
    """Raise `UserError` for an unknown name or another task's option."""
    if name not in TASK_OPTIONS:
        raise UserError(f"There is no task {name!r}{did_you_mean(name, TASK_OPTIONS)}.")
    others = {option for options in TASK_OPTIONS.values() for option in options}.difference(
        TASK_OPTIONS[name]
    )
    for option in sorted(others):
        if getattr(config, option) not in (None, False):
            owners = ", ".join(task for task, options in TASK_OPTIONS.items() if option in options)
            raise UserError(
                f"--{option.replace('_', '-')} is for {owners}; {name} does not take it."
            )
