"""The loop of pre-training and fine-tuning: batches are made ahead of time, an update follows the
other, and the losses are looked at only when something is due.
"""

from abc import ABC, abstractmethod
from contextlib import closing
from itertools import count
from typing import Any

from ..notices import StopRequest
from .device import distinct_sizes, oom_as_run_error, pinned_attention, trim_memory
from .logs import Clock
from .ranks import Ranks
from .threads import prefetch
from .update import Update, Updater


class Work(ABC):
    """What a training computes in an update, and what is due after it."""

    updater: Updater
    ranks: Ranks
    clock: Clock
    stop: StopRequest
    state: Any
    """What a checkpoint remembers; its ``step`` is the number of updates done."""
    num_steps: Any
    """Those of the whole training; None if a budget of hours ends by the clock."""

    @property
    def step(self) -> int:
        """Number of updates done."""
        return self.state.step

    @property
    @abstractmethod
    def is_over(self) -> bool:
        """Whether no update is left."""

    @abstractmethod
    def measure_start(self) -> None:
        """Measure the model before its first update, if that is wanted."""

    @abstractmethod
    def make_batch(self, step: int) -> Any:
        """Return what the update with this index computes; called in another thread. Its `batches`
        are this rank's micro-batches.
        """

    @abstractmethod
    def rate(self) -> float:
        """Return the learning rate of the next update."""

    @abstractmethod
    def count(self, batch: Any) -> None:
        """Count an update that has been launched, in `step` and on the clock."""

    @abstractmethod
    def is_due(self) -> bool:
        """Return whether anything is due after the last update, by the number of updates alone."""

    @abstractmethod
    def look(self, updates: list[Update]) -> None:
        """Take in the figures of the last updates; report them, and measure the model on held-out
        data, if that is due. Raises `UserError` if a loss is not finite.
        """

    @abstractmethod
    def save(self, *, stops: bool) -> None:
        """Write a checkpoint if that is due, as it is where the training stops."""


def train(work: Work) -> bool:
    """Update until the work is over; return False if it was asked to stop, after saving all."""
    with pinned_attention(), distinct_sizes():
        work.measure_start()
        steps_left = count(work.step)
        if work.num_steps is not None:
            steps_left = range(work.step, work.num_steps)
        batches = prefetch(work.make_batch, steps_left)
        work.clock.restart()  # whatever came before is not training
        with closing(batches), work.stop:
            while not work.is_over:
                with work.clock.waiting():
                    batch = next(batches)
                with oom_as_run_error("micro_batch_size"):
                    work.updater.update(
                        work.step,
                        batch.batches,
                        work.rate(),
                        stop_asked=work.stop.is_set(),
                        seconds=work.clock.elapsed(),
                    )
                work.count(batch)
                trim_memory(work.ranks.device, work.step)
                # After most updates nothing is due, and a GPU gets its next one at once: to look at
                # a loss is to wait until it is computed.
                if not (work.updater.is_full or work.is_due()):
                    continue
                updates = work.updater.drain()
                work.look(updates)
                # One that is asked to stop during its last update is finished.
                stops = any(update.stop_asked for update in updates) and not work.is_over
                work.save(stops=stops)
                if stops:
                    return False
    return True
