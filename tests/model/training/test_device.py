"""Check what is known of devices: memory, speed, and their errors."""

from types import SimpleNamespace

import pytest
import torch
from clozeworks.model.encoders.bert_config import ModelConfig
from clozeworks.model.encoders.modernbert_config import ModernBertConfig
from clozeworks.model.pretraining.batches import packs_rows
from clozeworks.model.training import device as device_module
from clozeworks.model.training.device import (
    compiles,
    drain_every,
    find_device,
    obstacle_to_gpu,
    oom_as_run_error,
    peak_flops,
    product_dtype,
    sum_dtype,
    tokens_at_once,
)
from clozeworks.model.training.ranks import join_ranks
from clozeworks.pipeline.errors import RunError, UserError

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    "name, tflops",
    [
        ("NVIDIA H100 80GB HBM3", 989), ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None), ("NVIDIA GH200 480GB", 989),
        ("NVIDIA A10", 125), ("NVIDIA A10G", 70), ("NVIDIA L40S", 362),
        ("NVIDIA GeForce RTX 4090", 165), ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("Tesla V100-SXM2-32GB", 125), ("NVIDIA Future 1", None),
    ],
)  # fmt: skip
def test_a_gpu_has_the_speed_of_its_data_sheet(name, tflops, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
    assert peak_flops(GPU) == (tflops and tflops * 1e12)


@pytest.mark.parametrize(
    "config, gigabytes, tokens",
    [
        (ModelConfig.named("base"), 80, 32768),
        (ModelConfig.named("large"), 24, 8192),
        (ModelConfig.named("large"), 16, 4096),
        (ModernBertConfig.named("base"), 16, 8192),
        (ModelConfig.named("large"), 4, 1024),
    ],
)
def test_a_micro_batch_fits_into_the_memory_of_a_gpu(config, gigabytes, tokens, monkeypatch):
    properties = SimpleNamespace(total_memory=gigabytes * 1e9)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    assert tokens_at_once(config, GPU) == tokens
    assert tokens_at_once(config, CPU) == 4096


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("NCCL error: unhandled cuda error: Cuda failure 2 'out of memory'"),
        RuntimeError("could not create a primitive"),
    ],
)
def test_running_out_of_memory_says_which_option_to_lower(error):
    with pytest.raises(RunError, match="lower `batch_size`"), oom_as_run_error("batch_size"):
        raise error


@pytest.mark.parametrize(
    "message",
    ["shapes do not match", "could not create a primitive descriptor for a matmul primitive"],
)
def test_other_errors_stay_what_they_are(message):
    with pytest.raises(RuntimeError, match=message), oom_as_run_error("batch_size"):
        raise RuntimeError(message)


def test_a_gpu_that_pytorch_cannot_use_is_told_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.13.0+cpu")
    (tmp_path / "nvidiactl").touch()  # a driver without a GPU
    assert obstacle_to_gpu(tmp_path) is None
    (tmp_path / "nvidia0").touch()
    assert "PyTorch 2.13.0+cpu cannot use" in str(obstacle_to_gpu(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # hidden on purpose
    assert obstacle_to_gpu(tmp_path) is None


@pytest.mark.parametrize("name", ["mps", "xpu"])
def test_an_untested_gpu_is_used_carefully_and_only_if_it_is_named(name, monkeypatch):
    with pytest.raises(UserError, match=f"`device` is {name}, but PyTorch finds no such GPU"):
        find_device(name)
    with pytest.raises(UserError, match=r"`device` is 'gpu'.* cuda"):
        find_device("gpu")
    monkeypatch.setattr(getattr(torch, name), "is_available", lambda: True)
    assert find_device("auto").type in ("cpu", "cuda")
    device = find_device(name)
    assert device.type == name
    assert product_dtype("auto", device) == torch.float32
    assert not compiles(None, device)
    assert not packs_rows(ModelConfig(), device, torch.bfloat16)
    assert tokens_at_once(ModelConfig(), device) == 4096
    assert sum_dtype(device) == (torch.float32 if name == "mps" else torch.float64)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="one process"), join_ranks(name, 8):
        pass


def test_a_gpu_is_waited_for_about_ten_times_a_second_or_every_ten_updates():
    assert [drain_every(seconds) for seconds in (1.0, 0.0014, 1e-5, 0.0)] == [10, 71, 500, 500]


@pytest.mark.parametrize(
    "compilers, triton, header, expected",
    [
        (("g++", "gcc"), True, True, {CPU: "compiled if asked", GPU: "compiled"}),
        (("g++", "gcc"), False, True, {CPU: "compiled if asked", GPU: "cannot"}),
        (("g++", "gcc"), True, False, {CPU: "compiled if asked", GPU: "cannot"}),
        (("clang",), True, True, {CPU: "cannot", GPU: "compiled"}),
        ((), True, True, {CPU: "cannot", GPU: "cannot"}),
    ],
)
def test_a_model_is_compiled_where_it_can_be(
    compilers, triton, header, expected, monkeypatch, tmp_path
):
    (tmp_path / "Python.h").write_text("")
    include = tmp_path if header else tmp_path / "none"
    monkeypatch.setattr(device_module.sysconfig, "get_path", lambda name: str(include))
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(device_module.shutil, "which", lambda name: name in compilers)
    monkeypatch.setattr(device_module, "has_triton", lambda: triton)
    for where, found in expected.items():
        assert compiles(None, where) is (found == "compiled")
        assert compiles(False, where) is False
        if found == "cannot":
            advice = r"install g(cc and python3-dev|\+\+), or leave the option out"
            with pytest.raises(UserError, match=f"^`compile` needs .*; {advice}"):
                compiles(True, where)
        else:
            assert compiles(True, where)
