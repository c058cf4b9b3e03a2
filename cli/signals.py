"""Handle Ctrl-C and SIGTERM, also during training: finish the update, save, and leave."""

import signal
from typing import Any, Self

from ..model.notices import StopRequest


class Terminated(KeyboardInterrupt):
    """An interrupt by SIGTERM, after which a command ends with another code than after Ctrl-C."""


def terminate(number: int, frame: object) -> None:
    """Interrupt this process, as the handler of SIGTERM."""
    raise Terminated


class StopOnSignal(StopRequest):
    """Asks a training to stop at the first SIGINT or SIGTERM; a second one acts as without this.

    Only while a training loop runs, which can save what it did: elsewhere the first signal ends the
    command at once.
    """

    was_terminated = False

    def interrupt(self) -> KeyboardInterrupt:
        """Return the interrupt that the training was asked to stop by."""
        return Terminated() if self.was_terminated else KeyboardInterrupt()

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
        self.was_terminated = number == signal.SIGTERM
        # The next one acts as it would without a training: who asks twice will not wait.
        signal.signal(number, self._handlers_before[number])
