"""The device that a model runs on: its number format, its memory, and how fast it could be."""

import ctypes
import os
import resource
import shutil
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._triton import has_triton

from ...pipeline.errors import UserError
from ..config import ModelConfig

# Dense bf16 FLOPs per second, by a word in the device's name (NVIDIA's data sheets; the SXM figure
# if there are two).
PEAK_FLOPS = {
    "H100": 989e12,
    "H200": 989e12,
    "GH200": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L4": 121e12,
}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
MICRO_BATCH_TOKENS = {"cpu": 4096, "cuda": 32768}
"""Tokens computed at once unless the user sets a micro-batch size; padding counts."""
MALLOC_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
TRIM_EVERY = 10


def find_device(name: str) -> torch.device:
    """Return the device for ``auto``, ``cpu`` or ``cuda``; raises `UserError` if ``cuda`` is not
    available.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError(
            "`device` is cuda, but no GPU is available; leave it out, or check `nvidia-smi`."
        )
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def host_memory() -> int:
    """Return the bytes of memory of this machine, or of its part that this process may use."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    limits += [
        limit
        for limit in resource.getrlimit(resource.RLIMIT_AS)[:1]
        if limit != resource.RLIM_INFINITY
    ]
    with suppress(OSError, ValueError):  # no control groups, or "max"
        limits.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(limits)


def product_dtype(precision: str, device: torch.device) -> torch.dtype:
    """Return the number format of matrix products under ``auto``, ``fp32``, ``bf16`` or ``fp16``.

    ``auto`` is bf16 on a GPU that computes in it, fp16 on one with tensor cores for that alone
    (V100, T4), else fp32.
    """
    if precision != "auto":
        return DTYPES[precision]
    if device.type != "cuda":
        return torch.float32
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.bfloat16
    return torch.float16 if torch.cuda.get_device_capability(device) >= (7, 0) else torch.float32


def compiles(choice: bool | None, device: torch.device) -> bool:
    """Return whether to compile a model: by default on a GPU that can. Raises `UserError` if it
    cannot be compiled.
    """
    on_gpu = device.type == "cuda"
    compilers = [os.environ.get("CC", "gcc"), "clang"] if on_gpu else [os.environ.get("CXX", "g++")]
    can = any(map(shutil.which, compilers)) and (has_triton() or not on_gpu)
    if choice and not can:
        needed = "Triton and a C compiler; install gcc" if on_gpu else "a C++ compiler; install g++"
        raise UserError(f"`compile` needs {needed}, or leave the option out.")
    return on_gpu and can if choice is None else choice


def autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[Any]:
    """Compute matrix products in `dtype` within the block; fp32 changes nothing."""
    return nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype)


def kept_generators(device: torch.device) -> AbstractContextManager[None]:
    """Give the caller's random generators back as they were: making a model draws from PyTorch's,
    and each update seeds it for dropout.
    """
    return torch.random.fork_rng([device] if device.type == "cuda" else [])


@contextmanager
def pinned_attention() -> Iterator[None]:
    """Rule out the attention of cuDNN within the block: it rounds a dropout rate to a sixteenth
    without saying so.
    """
    was_enabled = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(was_enabled)


def rows_per_micro_batch(asked: int | None, row_tokens: int, device: torch.device) -> int:
    """Return the rows to compute at once: as `asked`, or as many of `row_tokens` as fit into the
    device's budget.
    """
    return asked or max(1, MICRO_BATCH_TOKENS[device.type] // row_tokens)


def drain_every(device: torch.device) -> int:
    """Return the steps between two looks at the losses: a GPU waits for new work meanwhile, a CPU
    does not.
    """
    return 10 if device.type == "cuda" else 1


def peak_flops(device: torch.device) -> float | None:
    """Return the dense bf16 FLOPs per second that `device` is capable of; None for a CPU or an
    unknown GPU.
    """
    if device.type != "cuda":
        return None
    words = torch.cuda.get_device_name(device).replace("-", " ").split()
    return next((PEAK_FLOPS[word] for word in words if word in PEAK_FLOPS), None)


def update_flops(config: ModelConfig, lengths: np.ndarray, num_predicted: int) -> float:
    """Return the FLOPs of an update on rows of these `lengths`, for the model-FLOPs utilisation
    (MFU).

    Only necessary work counts: real tokens, attention within a row, the masked-LM head at
    `num_predicted` tokens.
    """
    hidden, num_tokens = config.hidden_size, lengths.sum()
    projections = (8 * hidden**2 + 4 * hidden * config.intermediate_size) * num_tokens
    attention = 4 * hidden * np.square(lengths, dtype=np.float64).sum()
    head = 2 * hidden * (hidden + config.vocab_size) * num_predicted
    pooler = 2 * hidden**2 * len(lengths)
    return 3.0 * float(config.num_hidden_layers * (projections + attention) + head + pooler)


def peak_memory(device: torch.device) -> dict[str, float]:
    """Return the most GPU memory allocated so far, as ``peak_memory_gb``; nothing for a CPU."""
    return (
        {"peak_memory_gb": torch.cuda.max_memory_allocated(device) / 1e9}
        if device.type == "cuda"
        else {}
    )


@contextmanager
def oom_as_user_error(option: str) -> Iterator[None]:
    """Turn running out of memory into a `UserError` that names the `option` to lower."""
    try:
        yield
    except RuntimeError as error:
        if not (isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error)):
            raise
        raise UserError(
            f"A batch does not fit into the memory of this device; lower `{option}`."
        ) from None


def trim_memory(device: torch.device, step: int) -> None:
    """Return freed memory to the system, every tenth step on a CPU (with glibc).

    PyTorch caches a kernel for each new batch length. On the heap these lie between freed tensors
    and fragment it: without trimming, fine-tuning a 6 x 384 model on SQuAD grew to 8.6 GB. Trimming
    costs 3 % of the time.
    """
    if device.type == "cpu" and step % TRIM_EVERY == 0 and MALLOC_TRIM:
        MALLOC_TRIM(0)
