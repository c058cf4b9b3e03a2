"""Set how this process's threads compute and wait; libraries leave that to their caller.

OpenMP and MKL read the environment once, when PyTorch loads them, so this comes before any import
of it. What the user has set stays.
"""

import os
import sys

# At the end of each operation the threads wait for the slowest. By default libgomp, which PyTorch's
# wheels for Linux bundle, then spins for milliseconds: beside other work, often for a thread whose
# core the spinning keeps busy. After a thousand rounds a thread sleeps instead, which costs nothing
# that was measured on an idle machine (benchmarks/results/2026-11-23-contention.md).
SPIN_COUNT = "1000"
# The operations of a wide model last so long that its threads would sleep through the beginning of
# the next one: with a thousand rounds `base` is 14% slower alone, with these about 4%.
WIDE_SPIN_COUNT = "20000"
WIDE = 768
WAIT_VARIABLES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
# Intel's two conditions for the same bits in every process: the same code path whatever the
# memory's alignment, and a fixed number of threads ("Conditional Numerical Reproducibility").
SAME_BITS = {"MKL_CBWR": "AUTO", "MKL_DYNAMIC": "FALSE"}


def prepare_threads() -> None:
    """Set the environment of this process for PyTorch, unless PyTorch is there already."""
    if "torch" in sys.modules:
        return
    for name, value in SAME_BITS.items():
        os.environ.setdefault(name, value)
    if not any(name in os.environ for name in WAIT_VARIABLES):
        os.environ["GOMP_SPINCOUNT"] = SPIN_COUNT


def wait_for_width(hidden_size: int) -> None:
    """Let the threads of a wide model wait longer, after `prepare_threads` and before PyTorch.

    A setting of the user's own stays.
    """
    if "torch" in sys.modules or hidden_size < WIDE:
        return
    # Only what `prepare_threads` set is replaced (or the same number, if the user set that).
    if os.environ.get("GOMP_SPINCOUNT") == SPIN_COUNT:
        os.environ["GOMP_SPINCOUNT"] = WIDE_SPIN_COUNT
