"""The live line of a training run."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

HIDDEN = ("stage", "step", "steps", "seconds_left")  # the bar shows them itself
Report = Callable[[Mapping[str, Any]], None]


@contextmanager
def live_line() -> Iterator[Report]:
    """Show a bar with the latest numbers of a run; nothing where standard error is no terminal.

    Yield a function that takes the numbers: ``step``, ``steps`` and whatever else is to be shown; a new ``stage``
    (a text) begins a new bar.
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[numbers]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bars: dict[str, Any] = {}

        def report(numbers: Mapping[str, Any]) -> None:
            stage = str(numbers.get("stage", "training"))
            if stage not in bars:
                bars[stage] = progress.add_task(stage, total=numbers["steps"], numbers="")
            shown = {key: value for key, value in numbers.items() if key not in HIDDEN}
            text = "  ".join(f"{name.replace('_', ' ')} {_short(value)}" for name, value in shown.items())
            progress.update(bars[stage], completed=numbers["step"], total=numbers["steps"], numbers=text)

        yield report


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return str(value)
