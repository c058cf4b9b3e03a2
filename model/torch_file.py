"""Read what ``torch.save`` wrote, from whomever the file is: nothing in it is run, and no more is
computed or kept than the file itself holds.

Such a file is a pickle, whose operations build dicts of plain values and of tensors, and storages,
the numbers that the tensors refer to. Only the operations and functions that this needs are known
here. The storages lie in a zip archive, uncompressed; in files of before PyTorch 1.6 after the
pickle.
"""

import io
import math
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

_MAX_PICKLE = 1 << 20
"""Bytes; 5,000 tensors take fewer."""


class TorchFileError(ValueError):
    """The file is not one of ``torch.save``, or not harmless."""


def read_torch_file(path: Path) -> Any:
    """Return a file's value, its tensors on the CPU; raise `TorchFileError` if it is another's."""
    try:
        with path.open("rb") as file:
            is_archive = file.read(4) == b"PK\3\4"
            file.seek(0)
            if not is_archive:
                return _read_legacy(file, path.stat().st_size)
            with zipfile.ZipFile(file) as archive:
                return _read_archive(archive, path.stat().st_size)
    except TorchFileError:
        raise
    except Exception as error:  # a damaged file may raise anything
        raise TorchFileError("it cannot be read") from error


def _read_archive(archive: zipfile.ZipFile, file_size: int) -> Any:
    names = archive.namelist()
    if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
        raise TorchFileError("it is compressed")
    (pickle_name,) = (name for name in names if name.endswith("/data.pkl"))
    root = pickle_name.removesuffix("data.pkl")
    if f"{root}byteorder" in names and archive.read(f"{root}byteorder") != b"little":
        raise TorchFileError("its numbers are big-endian")
    if archive.getinfo(pickle_name).file_size > _MAX_PICKLE:
        raise TorchFileError("it describes too many objects")
    unpickler = _Unpickler(io.BytesIO(archive.read(pickle_name)), file_size)
    value = unpickler.load()
    for key, storage in unpickler.storages.items():
        with archive.open(f"{root}data/{key}") as member:
            _fill(storage, member)
            if member.read(1):
                raise TorchFileError("a storage does not have its size")
    return value


def _read_legacy(file: BinaryIO, file_size: int) -> Any:
    # Pickles one after the other: a magic number, the version, sizes of C's types, the value, and
    # the keys of the storages, each of which follows with its number of values before it.
    start = io.BytesIO(file.read(_MAX_PICKLE))
    if _Unpickler(start).load() != 0x1950A86A20F9469CFC6C:
        raise TorchFileError("it was not written by torch.save")
    _Unpickler(start).load()
    if not _Unpickler(start).load()["little_endian"]:
        raise TorchFileError("its numbers are big-endian")
    unpickler = _Unpickler(start, file_size)
    value = unpickler.load()
    keys = _Unpickler(start).load()
    file.seek(start.tell())
    for key in keys:
        file.seek(8, io.SEEK_CUR)
        _fill(unpickler.storages.pop(key), file)
    if unpickler.storages:
        raise TorchFileError("a storage is missing")
    return value


def _fill(storage: Tensor, file: IO[bytes]) -> None:
    content = file.read(storage.nbytes)
    if len(content) < storage.nbytes:
        raise TorchFileError("a storage is cut off")
    storage.numpy()[:] = np.frombuffer(content, np.uint8)


def _rebuild(storage: Tensor, offset: Any, shape: Any, stride: Any, *others: Any) -> Tensor:
    # The third form of the function names the type beside a storage of bytes.
    for other in others:
        if isinstance(other, torch.dtype):
            storage = storage.view(other)
    # With a stride of 0 a few bytes would be a tensor of any size.
    if len(shape) > 16 or math.prod(shape) > storage.numel():
        raise TorchFileError("a tensor is larger than its storage")
    return storage.as_strided(shape, stride, offset)  # refuses what lies beyond the storage


_KNOWN: dict[str, Any] = {
    "collections.OrderedDict": dict,
    "torch._utils._rebuild_tensor": _rebuild,
    "torch._utils._rebuild_tensor_v2": _rebuild,
    "torch._utils._rebuild_tensor_v3": _rebuild,
    "torch._utils._rebuild_parameter": lambda tensor, *_: tensor,
    "torch.storage.UntypedStorage": torch.uint8,
}
_OPERATIONS = """PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT
BINUNICODE SHORT_BINUNICODE EMPTY_DICT EMPTY_LIST EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 APPEND
APPENDS SETITEM SETITEMS REDUCE BINPUT LONG_BINPUT MEMOIZE BINGET LONG_BINGET GLOBAL STACK_GLOBAL
BINPERSID"""


class _Operations(dict[int, Callable[[Any], None]]):
    def __missing__(self, code: int) -> None:
        raise TorchFileError(f"it has the operation {chr(code)!r}")


class _Memo(dict[int, Any]):
    """What a pickle may name again. Lists of twice the same list of twice the same list, and calls
    with the same long tuple, are short to write and take forever.
    """

    def __getitem__(self, number: int) -> Any:
        value = super().__getitem__(number)
        is_short = type(value) is tuple and len(value) <= 16
        if is_short and all(isinstance(item, int | float) for item in value):
            return value
        if isinstance(value, list | dict | tuple):
            raise TorchFileError("it has the same list twice")
        return value


# Not its twin in C, which has no table of operations. `torch.load` has one, but does not know
# those of protocol 4, and lets a file repeat what takes long.
class _Unpickler(pickle._Unpickler):
    """Loads a value with at most `max_bytes` of `storages`, which are to be filled."""

    dispatch = _Operations()
    stack: list[Any]

    def __init__(self, file: BinaryIO, max_bytes: int = 0) -> None:
        super().__init__(file)
        self.memo = _Memo()
        self.max_bytes = max_bytes
        self.storages: dict[str, Tensor] = {}
        """Bytes."""

    def find_class(self, module: str, name: str) -> Any:
        path = f"{module}.{name}"
        known = _KNOWN.get(path)
        if known is None and module == "torch":  # float32, or FloatStorage
            known = getattr(torch, name, None)
            known = getattr(known, "_dtype", known)
        if path in _KNOWN or isinstance(known, torch.dtype):
            return known
        raise TorchFileError(f"it names {path[:100]!r}, which no tensor needs")

    def persistent_load(self, pid: Any) -> Tensor:
        kind, dtype, key, _, size, *view = pid
        if kind != "storage" or type(key) is not str or view not in ([], [None]):
            raise TorchFileError("a storage is not described as torch.save does")
        if key not in self.storages:
            num_bytes = size * dtype.itemsize
            self.max_bytes -= num_bytes
            if self.max_bytes < 0:
                raise TorchFileError("its storages are larger than the file")
            self.storages[key] = torch.empty(num_bytes, dtype=torch.uint8)
        return self.storages[key].view(dtype)

    def load_build(self) -> None:  # attributes, such as the versions of a state dict's modules
        self.stack.pop()

    for name in _OPERATIONS.split():
        code = getattr(pickle, name)[0]
        dispatch[code] = pickle._Unpickler.dispatch[code]
    dispatch[pickle.BUILD[0]] = load_build
