"""Keep the number of threads of a run on a CPU."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..notices import print_notice


def use_threads(recorded: int | None, device: torch.device) -> int | None:
    """Compute with as many threads as the run did so far, `recorded`, and return their number.

    The number of threads decides the order of sums, and with it the last bits of the weights.
    ``OMP_NUM_THREADS`` overrides it; a line says what changes. A run on a GPU has no such number
    (None), and a new one takes what PyTorch offers.
    """
    if device.type != "cpu":
        return None
    offered = torch.get_num_threads()
    chosen = recorded or offered
    if recorded and recorded != offered:
        began = f"The run began with {_threads(recorded)}"
        if "OMP_NUM_THREADS" in os.environ:
            chosen = offered
            differs = "the weights will differ in their last digits from an uninterrupted run's"
            print_notice(f"{began} and goes on with {offered} (OMP_NUM_THREADS); {differs}.")
        else:
            print_notice(f"{began} and goes on with them; this machine would take {offered}.")
    # Even if it is the same number: this also forbids MKL to take fewer threads when it sees fit.
    torch.set_num_threads(chosen)
    return chosen


def _threads(number: int) -> str:
    return "1 thread" if number == 1 else f"{number} threads"


@contextmanager
def kept_threads() -> Iterator[None]:
    """Give the caller's number of threads back as it was."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)
