"""Check where a model is compiled."""

import pytest
import torch
from clozeworks.model.training import compilation
from clozeworks.model.training.compilation import compiles
from clozeworks.pipeline.errors import UserError

CPU, GPU = torch.device("cpu"), torch.device("cuda")


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
    monkeypatch.setattr(
        compilation, "python_header", lambda: tmp_path / ("Python.h" if header else "none")
    )
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(compilation.shutil, "which", lambda name: name in compilers)
    monkeypatch.setattr(compilation, "has_triton", lambda: triton)
    for where, found in expected.items():
        assert compiles(None, where) is (found == "compiled")
        assert compiles(False, where) is False
        if found == "cannot":
            advice = r"install g(cc and python3-dev|\+\+), or leave the option out"
            with pytest.raises(UserError, match=f"^`compile` needs .*; {advice}"):
                compiles(True, where)
        else:
            assert compiles(True, where)
