"""Files of ``torch.save``: the values of `torch.load`, and nothing else that a file could do."""

import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from clozeworks.model.checkpoint import Checkpoint, ModelFiles, save_model
from clozeworks.model.encoders.bert import BertForPreTraining
from clozeworks.model.encoders.bert_config import ModelConfig
from clozeworks.model.torch_file import TorchFileError, read_torch_file
from clozeworks.pipeline.errors import UserError
from torch._utils import _rebuild_tensor_v2

CONFIG = ModelConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24
)


def trained() -> dict[str, Any]:
    """Return a model's weights, tied and of every type, and a state as an optimiser has it."""
    model = BertForPreTraining(CONFIG)
    group = {"lr": 1e-3, "betas": (0.9, 0.999), "fused": None, "params": [0, 1]}
    averages = {"step": torch.tensor(3.0), "exp_avg": torch.ones(2, 2)}
    weights: dict[str, Any] = dict(model.state_dict())
    words = weights["bert.embeddings.word_embeddings.weight"]
    types = (torch.float64, torch.bfloat16, torch.float16, torch.int8, torch.uint8, torch.bool)
    return {
        **model.state_dict(),  # an OrderedDict with the versions of its modules
        "tied": words,
        "transposed": words.t()[3:],
        "position_ids": torch.arange(50).expand(1, -1),
        "parameter": torch.nn.Parameter(torch.ones(3)),
        "empty": torch.empty(0, 4),
        "byte": torch.ones(3).to(torch.float8_e4m3fn),
        **{str(kind): torch.ones(2, 3).to(kind) for kind in types},
        "state": {0: averages, 1: {**averages}},
        "param_groups": [
            group,
            {**group, "params": [2], "lr": 2**40, "amsgrad": False, "foreach": -300},
        ],
    }


def assert_equal(one: Any, other: Any) -> None:
    if isinstance(other, torch.Tensor):
        assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
        assert torch.equal(one.to(torch.float64), other.to(torch.float64))
    elif isinstance(other, dict):
        assert list(one) == list(other)
        for key, value in other.items():
            assert_equal(one[key], value)
    elif isinstance(other, list):
        assert len(one) == len(other)
        for mine, value in zip(one, other, strict=True):
            assert_equal(mine, value)
    else:
        assert one == other


@pytest.mark.parametrize(
    "options", [{}, {"pickle_protocol": 4}, {"_use_new_zipfile_serialization": False}]
)
def test_values_are_those_of_torch_load(tmp_path, options):
    values = trained()
    if "_use_new_zipfile_serialization" in options:
        del values["byte"]  # which did not exist then
    torch.save(values, tmp_path / "file", **options)
    read = read_torch_file(tmp_path / "file")
    assert_equal(read, torch.load(tmp_path / "file", weights_only=False))
    words = read["bert.embeddings.word_embeddings.weight"]
    assert read["tied"].data_ptr() == words.data_ptr()
    words += 1.0  # without a warning
    content = (tmp_path / "file").read_bytes()
    for size in (0, 3, 100, len(content) // 2, len(content) - 100):
        (tmp_path / "file").write_bytes(content[:size])
        with pytest.raises(TorchFileError):
            read_torch_file(tmp_path / "file")


class Storage:
    def __init__(self, key: Any = "0", size: Any = 4, *others: Any) -> None:
        self.description = ("storage", torch.FloatStorage, key, "cpu", size, *others)


class Call:
    """Is pickled as the call of a function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


class Pickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> Any:
        return obj.description if isinstance(obj, Storage) else None


def pickled(value: Any) -> bytes:
    file = io.BytesIO()
    Pickler(file, protocol=2).dump(value)
    return file.getvalue()


def archive(path: Path, content: bytes, method: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", method) as file:
        file.writestr("archive/data.pkl", content)
        file.writestr("archive/data/0", bytes(16))


def tensor(size: Any, stride: Any, offset: Any = 0, storage: Any = None) -> Call:
    storage = storage or Storage()
    return Call(_rebuild_tensor_v2, storage, offset, size, stride, False, {})


def doubled(times: int, innermost: Any = ()) -> Any:
    """Return tuples of the same tuple twice, which as a tree are 2 ** `times`."""
    value = innermost
    for _ in range(times):
        value = (value, value)
    return value


def twice(value: Any) -> Any:
    return {"a": value, "b": value}


# Each repeats an operation on what is already there: cheap to write, expensive to do.
MEMO = b"\x80\x02}q\x00X\x01\x00\x00\x00aq\x01"
LONG_TUPLE = b"(" + b"N" * 200_000 + b"tq\x02"
HOSTILE = {
    "stride 0": pickled({"a": tensor((200_000_000_000,), (0,))}),
    "beyond its storage": pickled({"a": tensor((2, 2), (2, 1), 1)}),
    "gaps": pickled({"a": tensor((2, 2), (2**40, 1))}),
    "negative": pickled({"a": tensor((-1, 4), (1, 1))}),
    "dimensions": pickled({"a": tensor((1,) * 100_000, (1,) * 100_000)}),
    "large storage": pickled({"a": tensor((2**40,), (1,), 0, Storage("0", 2**40))}),
    "small storage": pickled({"a": tensor((2,), (1,), 0, Storage("0", 2))}),
    "other storage": pickled({"a": tensor((2,), (1,), 0, Storage("1"))}),
    "view": pickled({"a": tensor((2,), (1,), 0, Storage("0", 4, "view"))}),
    "code": pickled({"a": Call(os.mkdir, "created")}),
    "memory": pickled({"a": Call(bytearray, 10**12)}),
    "key": b"\x80\x02}" + pickled(doubled(60))[2:-1] + b"K\x01s.",
    "storage key": pickled({"a": tensor((2,), (1,), 0, Storage(doubled(60)))}),
    "name": b"\x80\x04" + pickled(doubled(60))[2:-1] + b"\x8c\x01a\x93.",
    "arguments": MEMO + LONG_TUPLE + b"ccollections\nOrderedDict\n" + b"h\x02R" * 100_000 + b".",
    "pickle": b"\x80\x02" + b"}0" * 600_000 + b"N.",
    "marks": b"\x80\x02" + b"N" * 100_000 + b"(t" * 100_000 + b".",
    "cyclic": b"\x80\x02]q\x00h\x00a.",
    "lists": pickled({"a": doubled(60, [1])}),
    "dicts": pickled(twice({"a": 1})),
    "operation": b"\x80\x02N0N.",
    "endless": b"\x80\x02N",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_is_refused_soon(tmp_path, kind):
    archive(tmp_path / "file", HOSTILE[kind])
    if kind == "marks":  # harmless, but they could take an hour
        read_torch_file(tmp_path / "file")
    else:
        with pytest.raises(TorchFileError) as raised:
            read_torch_file(tmp_path / "file")
        assert "\n" not in str(raised.value) and len(str(raised.value)) < 200
    assert not Path("created").exists()


def test_a_compressed_file_is_refused(tmp_path):
    archive(tmp_path / "file", pickled({"a": tensor((4,), (1,))}))
    assert torch.equal(read_torch_file(tmp_path / "file")["a"], torch.zeros(4))
    archive(tmp_path / "file", pickled({"a": tensor((4,), (1,))}), zipfile.ZIP_DEFLATED)
    with pytest.raises(TorchFileError, match="it is compressed"):
        read_torch_file(tmp_path / "file")


def test_only_the_tensors_that_the_model_asks_for_are_looked_at(tmp_path):
    model = BertForPreTraining(CONFIG)
    save_model(tmp_path, ModelFiles(model.state_dict(), CONFIG.to_hf(), {}))
    (tmp_path / "model.safetensors").unlink()
    bad = torch.full((3,), torch.nan)
    torch.save({**model.state_dict(), "unused": bad}, tmp_path / "pytorch_model.bin")
    assert Checkpoint.open(tmp_path).load_into(BertForPreTraining(CONFIG)) == []
    name = "cls.predictions.bias"
    for value, fault in ((bad, r"has shape \(3,\)"), (bad[:1].expand(50), "larger than its")):
        torch.save({**model.state_dict(), name: value}, tmp_path / "pytorch_model.bin")
        with pytest.raises(UserError, match=fault):
            Checkpoint.open(tmp_path).load_into(BertForPreTraining(CONFIG))
    nan = torch.full((50,), torch.nan)
    torch.save({**model.state_dict(), name: nan}, tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"bias in .* not finite numbers"):
        Checkpoint.open(tmp_path).load_into(BertForPreTraining(CONFIG))
    torch.save({**model.state_dict(), "a\nb": nan}, tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError, match="without proper names"):
        Checkpoint.open(tmp_path).load_into(BertForPreTraining(CONFIG))
