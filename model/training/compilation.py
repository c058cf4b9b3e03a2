"""Compile a model with `torch.compile`: whether it can be, and what varies between batches."""

import os
import shutil
import sys
import sysconfig
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.fx.experimental._config as fx_config
from torch.utils._triton import has_triton

from ...pipeline.errors import UserError


def compiles(choice: bool | None, device: torch.device) -> bool:
    """Return whether to compile a model: by default on a GPU that can. Raises `UserError` if it
    cannot be compiled.
    """
    on_gpu = device.type == "cuda"
    # Asked here, because without a compiler torch.compile fails only at the first update.
    if on_gpu:
        # Triton writes the kernels, and builds a launcher in C for each, a module of Python.
        c_compilers = (os.environ.get("CC", "gcc"), "clang")
        has_compiler = any(map(shutil.which, c_compilers))
        can_compile = has_triton() and has_compiler and python_header().is_file()
        needed = "Triton, a C compiler and Python.h; install gcc and python3-dev"
    else:
        cxx_compiler = os.environ.get("CXX", "g++")
        can_compile = bool(shutil.which(cxx_compiler))
        needed = "a C++ compiler; install g++"
    if choice is None:
        return on_gpu and can_compile
    if choice and not can_compile:
        raise UserError(f"`compile` needs {needed}, or leave the option out.")
    return choice


def python_header() -> Path:
    """Return where this Python has its header for modules in C; on many systems it is a package of
    its own, python3-dev.
    """
    return Path(sysconfig.get_path("include"), "Python.h")


def uncompiled() -> AbstractContextManager[object]:
    """Run what is compiled as plain PyTorch within the block: evaluation has other shapes, and no
    gradients, for which everything would be compiled again.
    """
    if "torch._dynamo" not in sys.modules:
        return nullcontext()  # nothing is compiled, and importing it takes a second
    return torch.compiler.set_stance("force_eager")


def distinct_sizes() -> AbstractContextManager[object]:
    """Compile within the block for sizes that vary one by one: two that are equal in the first
    batch, such as its rows and a head's numbers, would else have to be equal in all, and the next
    batch be compiled again ("duck shapes").
    """
    # Not an option of torch.compile; PyTorch's own messages advise this one.
    settings: Any = fx_config
    return settings.patch(use_duck_shape=False)
