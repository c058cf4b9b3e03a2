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
SPIN_COUNT = {"GOMP_SPINCOUNT": "1000"}
WAIT_VARIABLES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
# Intel's two conditions for the same bits in every process: the same code path whatever the
# memory's alignment, and a fixed number of threads ("Conditional Numerical Reproducibility").
SAME_BITS = {"MKL_CBWR": "AUTO", "MKL_DYNAMIC": "FALSE"}


def prepare_threads() -> None:
    """Set the environment of this process for PyTorch, unless PyTorch is there already."""
    if "torch" in sys.modules:
        return
    defaults = dict(SAME_BITS)
    if not any(name in os.environ for name in WAIT_VARIABLES):
        defaults |= SPIN_COUNT
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
