"""Copy tensors between CPU and GPU without waiting for either."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a CPU's tensor on `device`, without waiting for a GPU."""
    if device.type != "cuda":
        return tensor.to(device)
    # Nothing is pinned twice. Before a copy from other memory the driver may wait for the GPU.
    return tensor.pin_memory().to(device, non_blocking=True)


def fetch(tensor: Tensor) -> Callable[[], Tensor]:
    """Return a function that returns `tensor` on the CPU, and waits for a GPU only until it is
    computed, not for what is queued later.
    """
    if tensor.device.type != "cuda":
        return lambda: tensor
    copy = tensor.to("cpu", non_blocking=True)  # into pinned memory
    copied = torch.cuda.Event()
    copied.record()

    def wait() -> Tensor:
        copied.synchronize()
        return copy

    return wait


def one_behind(launched: Iterable[Callable[[], T]]) -> Iterator[T]:
    """Yield what each function in `launched` returns, when the next one is there: a GPU computes
    one batch while the CPU looks at the batch before.
    """
    before: Callable[[], T] | None = None
    for wait in launched:
        if before:
            yield before()
        before = wait
    if before:
        yield before()
