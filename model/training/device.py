"""Know the device that a model runs on: its number format, its memory, its greatest speed, whether
models are compiled for it, and how to copy to it without waiting.
"""

import os
import re
import shutil
import sys
import sysconfig
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar, get_args

import numpy as np
import torch
import torch.fx.experimental._config as fx_config
from torch import Tensor
from torch.utils._triton import has_triton

from ...pipeline.config import check
from ...pipeline.errors import RunError, UserError
from ...pipeline.memory import trim_heap
from ..config import Device
from ..encoders.config import EncoderConfig
from ..notices import print_notice

T = TypeVar("T")
# Dense bf16 FLOPs per second (fp16 on those without bf16), by words of the device's name. From
# NVIDIA's data sheets. The first whose words are all there counts: a card for PCIe is slower than
# the module of the same name.
PEAK_FLOPS = {
    "B200": 2250e12,
    "GB200": 2500e12,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "H200 NVL": 835e12,
    "H200": 989e12,
    "GH200": 989e12,
    "A100": 312e12,
    "A40": 150e12,
    "A30": 165e12,
    "A10": 125e12,
    "A10G": 70e12,
    "L40S": 362e12,
    "L40": 181e12,
    "L4": 121e12,
    "RTX 4090": 165e12,
    "RTX 3090": 71e12,
    "V100 PCIE": 112e12,
    "V100": 125e12,
    "T4": 65e12,
}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
UNTESTED = ("mps", "xpu")
"""Used only if the user names them."""
MICRO_BATCH_TOKENS = {"cpu": 4096, "cuda": 32768}
"""The most tokens computed at once unless the user sets a micro-batch size; padding counts."""
OUT_OF_MEMORY = re.compile(
    "allocate memory|CUBLAS_STATUS_ALLOC_FAILED|out of memory|could not create a primitive$"
)
"""In the errors of a CPU, of cuBLAS, NCCL and oneDNN, which have no class of their own."""


def find_device(name: str) -> torch.device:
    """Return the device for ``auto``, ``cpu``, ``cuda``, ``mps`` or ``xpu``."""
    names = get_args(Device)
    if name not in names:
        raise UserError(f"`device` is {name!r}; give one of {', '.join(names)}.")
    if name == "cpu":
        return torch.device("cpu")
    if name in UNTESTED:
        is_there = getattr(torch, name).is_available()
        check(is_there, "device", name, "PyTorch finds no such GPU here")
        return torch.device(name)
    with warnings.catch_warnings():
        # PyTorch's own about an old driver; ours says what to do.
        warnings.simplefilter("ignore")
        if torch.cuda.is_available():
            return torch.device("cuda")
    obstacle = obstacle_to_gpu(Path("/dev"))
    if name == "cuda":
        raise UserError(f"`device` is cuda, but {obstacle or 'this machine has no NVIDIA GPU'}.")
    if obstacle:
        print_notice(f"The CPU is used: {obstacle}.")
    return torch.device("cpu")


def obstacle_to_gpu(devices: Path) -> str | None:
    """Return why PyTorch cannot use a GPU of NVIDIA that is in `devices`; None if none is."""
    if not any(devices.glob("nvidia[0-9]*")) or os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return None
    return (
        f"PyTorch {torch.__version__} cannot use the NVIDIA GPU; install one for the CUDA that "
        "`nvidia-smi` names (https://pytorch.org/get-started/locally)"
    )


def product_dtype(precision: str, device: torch.device) -> torch.dtype:
    """Return the number format of matrix products; ``auto`` is what the device is made for."""
    if precision != "auto":
        return DTYPES[precision]
    if device.type != "cuda":
        return torch.float32
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.bfloat16
    if torch.cuda.get_device_capability(device) >= (7, 0):
        return torch.float16
    return torch.float32


def autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[object]:
    """Compute matrix products in `dtype` within the block; fp32 changes nothing."""
    if dtype == torch.float32:
        return nullcontext()
    return torch.autocast(device.type, dtype)


def kept_generators(device: torch.device) -> AbstractContextManager[None]:
    """Give the caller's random generators back as they were."""
    # Without a list, PyTorch would visit, and so initialise, every GPU.
    gpus = []
    if device.type == "cuda":
        gpus.append(device)
    return torch.random.fork_rng(gpus)


@contextmanager
def pinned_attention() -> Iterator[None]:
    """Rule out the attention of cuDNN within the block: it rounds a dropout rate to a sixteenth
    without saying so, refuses some shapes, and plans each new one.
    """
    was_enabled = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(was_enabled)


@contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """Compute on a GPU as every other time, too, if `wanted`: sums in one order, slower."""
    if not wanted:
        yield
        return
    # cuBLAS reads it at its first product.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    was_deterministic = torch.are_deterministic_algorithms_enabled()
    settings: Any = torch.utils.deterministic
    fills_memory = settings.fill_uninitialized_memory
    uses_efficient = torch.backends.cuda.mem_efficient_sdp_enabled()
    torch.use_deterministic_algorithms(True)
    # Every new tensor would be filled with NaN before it is written, a kernel more for each.
    settings.fill_uninitialized_memory = False
    # The attention to padded rows whose gradients are added up in any order.
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(was_deterministic)
        settings.fill_uninitialized_memory = fills_memory
        torch.backends.cuda.enable_mem_efficient_sdp(uses_efficient)


def tokens_at_once(config: EncoderConfig, device: torch.device) -> int:
    """Return the tokens of a micro-batch in training: `MICRO_BATCH_TOKENS`, halved until they fit
    into a GPU's memory.

    The whole memory counts, not what is free just now: a run that resumes has to compute the same
    micro-batches.
    """
    if device.type != "cuda":
        return MICRO_BATCH_TOKENS["cpu"]
    tokens = MICRO_BATCH_TOKENS["cuda"]
    memory = torch.cuda.get_device_properties(device).total_memory
    # Weight, gradient and Adam's two averages of each parameter, in fp32.
    state_bytes = 16 * config.num_parameters()
    # The rest is for kernels that are not compiled, and for what lies between two of them.
    available = 0.6 * (memory - state_bytes)
    while tokens > 1024 and tokens * config.activation_bytes() > available:
        tokens //= 2
    return tokens


def sum_dtype(device: torch.device) -> torch.dtype:
    """Return the number format of sums over many rows: float64, which GPUs of Apple lack."""
    return torch.float32 if device.type == "mps" else torch.float64


def drain_every(update_s: float) -> int:
    """Return the updates between two looks at the losses: those of 0.1 s, from ten to 500."""
    return int(min(max(10, 0.1 / max(update_s, 1e-9)), 500))


def peak_flops(device: torch.device) -> float | None:
    """Return the dense bf16 FLOPs per second of `device`; None for a CPU or an unknown GPU."""
    if device.type != "cuda":
        return None
    # Whole words, such as those of "NVIDIA A100-SXM4-80GB": "L4" is a part of "L40S", too.
    words = set(torch.cuda.get_device_name(device).replace("-", " ").split())
    # A part of a GPU, or a smaller chip, has the name of the whole one and such a word.
    if words & {"MIG", "Laptop", "D"}:
        return None
    for name, flops in PEAK_FLOPS.items():
        if words.issuperset(name.split()):
            return flops
    return None


def update_flops(config: EncoderConfig, lengths: np.ndarray, num_predicted: int) -> float:
    """Return the necessary FLOPs of an update on rows of these `lengths`, for MFU."""
    hidden = config.hidden_size
    # The head's own layer, and the product with all word embeddings.
    head = 2 * hidden * (hidden + config.vocab_size) * num_predicted
    return 3.0 * (config.encoder_flops(lengths) + head)  # backward takes twice as much


def peak_memory(device: torch.device) -> dict[str, float]:
    """Return the most GPU memory allocated so far, as ``peak_memory_gb``; nothing for a CPU."""
    if device.type != "cuda":
        return {}
    # `max_memory_allocated` flattens all statistics first, for a millisecond.
    allocated = torch.cuda.memory_stats_as_nested_dict(device)["allocated_bytes"]
    return {"peak_memory_gb": allocated["all"]["peak"] / 1e9}


@contextmanager
def oom_as_run_error(option: str) -> Iterator[None]:
    """Turn running out of memory into a `RunError` that names the `option` to lower."""
    try:
        yield
    except RuntimeError as error:
        said_so = OUT_OF_MEMORY.search(str(error))
        if not said_so and not isinstance(error, torch.OutOfMemoryError):
            raise
        raise RunError(
            f"A batch does not fit into the memory of this device; lower `{option}`."
        ) from None


def trim_memory(device: torch.device, step: int) -> None:
    """Return freed memory to the system, every tenth step on a CPU.

    PyTorch caches a kernel for each new batch length. On the heap these lie between freed tensors
    and fragment it: without trimming, fine-tuning a 6 x 384 model on SQuAD grew to 8.6 GB. Trimming
    costs 3% of the time.
    """
    if device.type == "cpu" and step % 10 == 0:
        trim_heap()


def compiles(choice: bool | None, device: torch.device, *, pays: bool = True) -> bool:
    """Return whether to compile a model: by default on a GPU that can, if it `pays`."""
    on_gpu = device.type == "cuda"
    # Asked here, because without a compiler torch.compile fails only at the first update.
    if on_gpu:
        # Triton writes the kernels, and builds a launcher in C for each, a module of Python.
        c_compilers = (os.environ.get("CC", "gcc"), "clang")
        has_compiler = any(map(shutil.which, c_compilers))
        # On many systems the header is a package of its own, python3-dev.
        has_header = Path(sysconfig.get_path("include"), "Python.h").is_file()
        can_compile = has_triton() and has_compiler and has_header
        needed = "Triton, a C compiler and Python.h; install gcc and python3-dev"
    else:
        cxx_compiler = os.environ.get("CXX", "g++")
        can_compile = bool(shutil.which(cxx_compiler))
        needed = "a C++ compiler; install g++"
    if choice is None:
        return on_gpu and can_compile and pays
    if choice and not can_compile:
        raise UserError(f"`compile` needs {needed}, or leave the option out.")
    return choice


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


def default_generator(device: torch.device) -> torch.Generator:
    """Return the generator that dropout draws from. `torch.manual_seed` would seed it, too, and in
    passing those of devices that are not there, for a third of the CPU time of a small update.
    """
    if device.type == "cuda":
        torch.cuda.init()
        return torch.cuda.default_generators[device.index or 0]
    if device.type == "mps":
        return torch.mps._get_default_mps_generator()
    return torch.default_generator


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a CPU's tensor on `device`, without waiting for a GPU."""
    if device.type != "cuda":
        return tensor.to(device)
    # Nothing is pinned twice. Before a copy from other memory the driver may wait for the GPU.
    return tensor.pin_memory().to(device, non_blocking=True)


def fetch(tensor: Tensor) -> Callable[[], Tensor]:
    """Return a function that returns `tensor` on the CPU, and waits until it is computed."""
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
    """Yield what each function returns when the next one is there: a GPU computes meanwhile."""
    before: Callable[[], T] | None = None
    for wait in launched:
        if before:
            yield before()
        before = wait
    if before:
        yield before()
