"""Know the processor that a run computes on: threads, and number formats that it only emulates."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from timeit import repeat

import torch

from ..notices import print_notice

PROBE_SHAPE = (128, 256)
"""Large enough that the time is that of the product, not of the call."""
PROBE_ROUNDS = 5


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


def print_if_emulated(dtype: torch.dtype, device: torch.device) -> None:
    """Tell the user if matrix products in `dtype` are slower on this CPU than those in fp32."""
    if device.type != "cpu" or dtype == torch.float32:
        return
    if _product_seconds(dtype) > _product_seconds(torch.float32):
        name = {torch.bfloat16: "bf16", torch.float16: "fp16"}[dtype]
        print_notice(f"This CPU only emulates {name}, slowly; `precision` fp32 is faster.")


def _product_seconds(dtype: torch.dtype) -> float:
    # Measured: what a processor lists says neither which instructions its libraries use (the user
    # may have limited them) nor whether these are faster than fp32's.
    rows, size = PROBE_SHAPE
    left = torch.ones(rows, size, dtype=dtype)
    right = torch.ones(size, size, dtype=dtype)
    torch.mm(left, right)  # the first one prepares a kernel
    return min(repeat(lambda: torch.mm(left, right), number=1, repeat=PROBE_ROUNDS))
