"""Memory that is given back."""

import sys
from pathlib import Path

import pytest
import torch
from clozeworks.model.training.device import trim_memory


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


@pytest.mark.skipif(sys.platform != "linux", reason="the heap is glibc's")
def test_freed_memory_between_what_stays_is_given_back_at_every_tenth_step():
    tensors = [torch.ones(20_000) for _ in range(2000)]  # of 80 kB, so on the heap
    kept = tensors[::50]
    del tensors
    full = resident_mb()
    trim_memory(torch.device("cpu"), 9)
    assert resident_mb() > full - 10
    trim_memory(torch.device("cpu"), 10)
    assert resident_mb() < full - 100
    assert len(kept) == 40
