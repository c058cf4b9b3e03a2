"""Where a model is computed: the device, the number format there, and its memory."""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ...pipeline.errors import UserError

# Dense bf16 products a second, by what the device's name holds (NVIDIA's data sheets, SXM where there are several).
PEAK_FLOPS = {"H100": 989e12, "H200": 989e12, "GH200": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12}

MICRO_BATCH_TOKENS = {"cpu": 4096, "cuda": 32768}
MALLOC_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
TRIM_EVERY = 10


def find_device(name: str) -> torch.device:
    """Return the device that is meant by ``auto``, ``cpu`` or ``cuda``; raises `UserError` where there is no GPU."""
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("--device is cuda, but no GPU can be used here; leave it out, or look at `nvidia-smi`.")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def uses_bf16(precision: str, device: torch.device) -> bool:
    """Tell whether matrix products are in bf16 under ``auto``, ``fp32`` or ``bf16``."""
    if precision == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported()
    return precision == "bf16"


def peak_flops(device: torch.device) -> float | None:
    """Return how many dense bf16 FLOPs a second `device` can do; None for a CPU, and where it is not known."""
    if device.type != "cuda":
        return None
    words = torch.cuda.get_device_name(device).replace("-", " ").split()
    return next((PEAK_FLOPS[word] for word in words if word in PEAK_FLOPS), None)


@contextmanager
def oom_as_user_error(option: str) -> Iterator[None]:
    """Turn running out of memory into a `UserError` that names the `option` to lower."""
    try:
        yield
    except RuntimeError as error:
        if not (isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error)):
            raise
        raise UserError(f"A batch does not fit into the memory of this device; lower {option}.") from None


def trim_memory(device: torch.device, step: int) -> None:
    """Give freed memory back to the system, at every tenth step on a CPU (with glibc).

    PyTorch keeps a kernel for each new length of a batch. On the heap these lie between the freed tensors, whose room
    then fits no others: fine-tuning a model of 6 x 384 on SQuAD came to 8.6 GB. It costs 3 % of the time.
    """
    if device.type == "cpu" and step % TRIM_EVERY == 0 and MALLOC_TRIM:
        MALLOC_TRIM(0)
