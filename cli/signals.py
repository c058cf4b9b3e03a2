"""Handle Ctrl-C and SIGTERM during training: finish the update, save, and leave."""

import signal
from typing import Any, Self

from ..model.training.stop import StopRequest


class StopOnSignal(StopRequest):
    """Asks a training to stop at the first SIGINT or SIGTERM; a second one acts as without this.

    Only while a training loop runs, which can save what it did: elsewhere the first signal ends the
    command at once.
    """

    def __enter__(self) -> Self:
        self._handlers_before: dict[int, Any] = {}
        for number in (signal.SIGINT, signal.SIGTERM):
            self._handlers_before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: object) -> None:
        self.request()
        # The next one acts as it would without a training: who asks twice will not wait.
        signal.signal(number, self._handlers_before[number])
