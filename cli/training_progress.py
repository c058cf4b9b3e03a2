"""Show the live line of a training run; without a terminal, a plain line once a minute."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from .output import PLAIN_EVERY_S, settings, tell
from .summary import duration, is_first_rank

# Most important first: a narrow terminal cuts off the rest.
SHOWN = {
    "loss": "loss {:.3f}",
    "mlm_loss": "MLM loss {:.3f}",
    "nsp_loss": "NSP loss {:.3f}",
    "mlm_accuracy": "MLM accuracy {:.1%}",
    "nsp_accuracy": "NSP accuracy {:.1%}",
    "tokens_per_second": "{:,.0f} tokens/s",
    "examples_per_second": "{:,.0f} examples/s",
    "mfu": "MFU {:.1%}",
    "learning_rate": "rate {:.1e}",
    "data_wait": "wait {:.1%}",
    "peak_memory_gb": "{:.1f} GB",
}
Report = Callable[[Mapping[str, Any]], None]
_Started = dict[str, tuple[int, float]]
"""The first step that was reported of each part of the work, and when."""


@contextmanager
def training_progress() -> Iterator[Report]:
    """Show the latest numbers of a run and the time left on standard error.

    On a terminal this is one live line, elsewhere (``nohup``, CI) and as JSON a line every
    `PLAIN_EVERY_S`, so short runs print nothing. Yield a function that takes the numbers: ``step``,
    ``steps`` and those in `SHOWN`; a new ``stage`` (a string) has a time left of its own.
    """
    # Imported late: `clozeworks --help` imports this module.
    from rich.console import Console
    from rich.text import Text

    if not is_first_rank() or settings.is_quiet:
        yield lambda numbers: None
        return
    console = Console(stderr=True)
    is_live = console.is_terminal and not settings.as_json
    started = _Started()
    last_line_s = time.monotonic()
    with console.status("") if is_live else nullcontext() as status:

        def report(numbers: Mapping[str, Any]) -> None:
            nonlocal last_line_s
            now = time.monotonic()
            line = _line(numbers, started, now)
            if status:
                # `Text`, in which brackets are not rich's markup.
                status.update(Text(line))
            elif now - last_line_s >= PLAIN_EVERY_S:
                last_line_s = now
                tell("progress", line, **numbers)

        yield report


def _line(numbers: Mapping[str, Any], started: _Started, now: float) -> str:
    # "12 of 400" and the time left are those of one part of the work, such as one fine-tuning run.
    part = numbers.get("stage", "training")
    step = numbers["step"]
    steps = numbers["steps"]
    shown = [f"{step:,} of {steps:,}"]
    # Steps from before a resume must not count towards the time left.
    first_step, first_time = started.setdefault(part, (step, now))
    if step > first_step:
        seconds_per_step = (now - first_time) / (step - first_step)
        shown.append(f"{duration((steps - step) * seconds_per_step)} left")
    for name, form in SHOWN.items():
        if name in numbers:
            shown.append(form.format(numbers[name]))
    return f"{part}: {', '.join(shown)}"
