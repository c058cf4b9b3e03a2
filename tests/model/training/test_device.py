"""Check which devices a model is compiled for."""

import pytest
import torch
from clozeworks.model.training import device
from clozeworks.model.training.device import compiles
from clozeworks.pipeline.errors import UserError

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    "compilers, triton, expected",
    [
        (("g++", "gcc"), True, {CPU: "compiled if asked", GPU: "compiled"}),
        (("g++", "gcc"), False, {CPU: "compiled if asked", GPU: "cannot"}),
        (("clang",), True, {CPU: "cannot", GPU: "compiled"}),
        ((), True, {CPU: "cannot", GPU: "cannot"}),
    ],
)
def test_a_model_is_compiled_where_it_can_be(compilers, triton, expected, monkeypatch):
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(device.shutil, "which", lambda name: name in compilers)
    monkeypatch.setattr(device, "has_triton", lambda: triton)
    for where, found in expected.items():
        assert compiles(None, where) is (found == "compiled")
        assert compiles(False, where) is False
        if found == "cannot":
            with pytest.raises(
                UserError, match=r"^`compile` needs .*; install g(cc|\+\+), or leave the option out"
            ):
                compiles(True, where)
        else:
            assert compiles(True, where)
