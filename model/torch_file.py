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
import pickletools
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

_MAX_PICKLE = 1 << 20
"""Bytes; 5,000 tensors take fewer."""


class TorchFileError(ValueError):
    """The file is not one of ``torch.save``, or not harmless."""


def read_torch_file(path: Path) -> Any:
    """Return the value in a file, with its tensors on the CPU; raise `TorchFileError` for what is
    not as ``torch.save`` writes it.
    """
    try:
        file_size = path.stat().st_size
        with path.open("rb") as file:
            is_archive = file.read(4) == b"PK\3\4"
            file.seek(0)
            if not is_archive:
                return _read_legacy(file, file_size)
            with zipfile.ZipFile(file) as archive:
                return _read_archive(archive, file_size)
    except TorchFileError:
        raise
    except Exception as error:  # a damaged file may raise anything
        raise TorchFileError("it cannot be read") from error


@dataclass(frozen=True, eq=False)
class _Storage:
    key: str
    dtype: torch.dtype
    num_bytes: int


@dataclass(frozen=True, eq=False)
class _Stored:
    """A tensor whose storage is not read yet."""

    storage: _Storage
    dtype: torch.dtype
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    def check(self) -> None:
        """Raise `TorchFileError` unless its storage holds each of its numbers."""
        num_dimensions = len(self.shape)
        numbers: tuple[Any, ...] = ()
        if num_dimensions == len(self.stride) <= 16:
            numbers = (self.offset, *self.shape, *self.stride)
        if not numbers or not all(type(number) is int and number >= 0 for number in numbers):
            raise TorchFileError("a tensor has no proper shape")
        size = math.prod(self.shape)
        last = self.offset
        for length, step in zip(self.shape, self.stride, strict=True):
            last += (length - 1) * step
        # With a stride of 0 a few bytes would be a tensor of any size.
        num_stored = self.storage.num_bytes // self.dtype.itemsize
        if size and (size > num_stored or last >= num_stored):
            raise TorchFileError("a tensor is larger than its storage")


def _read_archive(archive: zipfile.ZipFile, file_size: int) -> Any:
    members = {member.filename: member for member in archive.infolist()}
    if any(member.compress_type != zipfile.ZIP_STORED for member in members.values()):
        raise TorchFileError("it is compressed")
    (pickle_name,) = (name for name in members if name.endswith("/data.pkl"))
    root = pickle_name.removesuffix("data.pkl")
    if f"{root}byteorder" in members and archive.read(f"{root}byteorder") != b"little":
        raise TorchFileError("its numbers are big-endian")
    if members[pickle_name].file_size > _MAX_PICKLE:
        raise TorchFileError("it describes too many objects")
    unpickler = _Unpickler(io.BytesIO(archive.read(pickle_name)))
    value = unpickler.load()

    def read(key: str, num_bytes: int) -> bytes:
        member = members[f"{root}data/{key}"]
        if member.file_size != num_bytes:
            raise TorchFileError("a storage does not have its size")
        return archive.read(member)

    return _with_tensors(value, _loaded(unpickler.storages, read, file_size), {})


def _read_legacy(file: BinaryIO, file_size: int) -> Any:
    # Pickles one after the other: a magic number, the version, sizes of C's types, the value, and
    # the keys of the storages, each of which follows with its number of values before it.
    start = io.BytesIO(file.read(_MAX_PICKLE))
    if _Unpickler(start).load() != 0x1950A86A20F9469CFC6C:
        raise TorchFileError("it was not written by torch.save")
    _Unpickler(start).load()
    if not _Unpickler(start).load()["little_endian"]:
        raise TorchFileError("its numbers are big-endian")
    unpickler = _Unpickler(start)
    value = unpickler.load()
    keys = _Unpickler(start).load()
    sizes = {storage.key: storage.num_bytes for storage in unpickler.storages}
    places: dict[str, int] = {}
    place = start.tell()
    for key in keys:
        if type(key) is not str:
            raise TorchFileError("a storage has no name")
        places[key] = place + 8
        place += 8 + sizes[key]

    def read(key: str, num_bytes: int) -> bytes:
        file.seek(places[key])
        return file.read(num_bytes)

    return _with_tensors(value, _loaded(unpickler.storages, read, file_size), {})


def _loaded(
    storages: Iterable[_Storage], read: Callable[[str, int], bytes], file_size: int
) -> dict[str, Tensor]:
    """Return the bytes of each storage, as a tensor that the tensors in it share."""
    sizes: dict[str, int] = {}
    for storage in storages:
        sizes[storage.key] = max(storage.num_bytes, sizes.get(storage.key, 0))
    if sum(sizes.values()) > file_size:
        raise TorchFileError("its storages are larger than the file")
    loaded: dict[str, Tensor] = {}
    for key, num_bytes in sizes.items():
        # A copy, as Python's bytes may not be written to.
        content = bytearray(read(key, num_bytes))
        if len(content) < num_bytes:
            raise TorchFileError("a storage is cut off")
        loaded[key] = torch.empty(0, dtype=torch.uint8)
        if content:
            loaded[key] = torch.frombuffer(content, dtype=torch.uint8)
    return loaded


def _with_tensors(value: Any, loaded: dict[str, Tensor], done: dict[int, Any]) -> Any:
    """Return a value with its tensors; `done` are the parts that were met before, by their ids."""
    # Lists of twice the same list of twice the same list would never be done.
    if id(value) not in done:
        new = value
        if isinstance(value, _Stored):
            flat = loaded[value.storage.key][: value.storage.num_bytes].view(value.dtype)
            new = flat.as_strided(value.shape, value.stride, value.offset)
        elif isinstance(value, dict):
            new = {key: _with_tensors(item, loaded, done) for key, item in value.items()}
        elif isinstance(value, list | tuple):
            new = type(value)([_with_tensors(item, loaded, done) for item in value])
        done[id(value)] = new
    return done[id(value)]


def _few(arguments: Any) -> tuple[Any, ...]:
    # A long tuple that is passed again and again would take forever.
    if type(arguments) is not tuple or len(arguments) > 8:
        raise TorchFileError("it calls a function with other arguments")
    return arguments


def _add_items(target: Any, items: Iterable[tuple[Any, Any]]) -> None:
    for key, value in items:
        # Hashing a tuple of tuples of tuples takes as long as somebody likes.
        if type(target) is not dict or type(key) not in (str, int):
            raise TorchFileError("it has a dict whose keys are not names")
        target[key] = value


def _storage(kind: str, dtype: torch.dtype, key: str, device: str, size: int, *view: Any) -> Any:
    is_plain = kind == "storage" and type(key) is str and type(size) is int and size >= 0
    if not is_plain or not isinstance(dtype, torch.dtype) or any(part is not None for part in view):
        raise TorchFileError("a storage is not described as torch.save does")
    return _Storage(key, dtype, size * dtype.itemsize)


@dataclass(frozen=True)
class _Function:
    call: Callable[..., Any]


def _rebuild(storage: Any, offset: Any, shape: Any, stride: Any, *others: Any) -> _Stored:
    if type(storage) is not _Storage or type(shape) is not tuple or type(stride) is not tuple:
        raise TorchFileError("a tensor has no proper shape")
    # The third form of the function names the type beside a storage of bytes.
    types = [other for other in others if isinstance(other, torch.dtype)]
    tensor = _Stored(storage, types[0] if types else storage.dtype, offset, shape, stride)
    tensor.check()
    return tensor


_KNOWN: dict[str, Any] = {
    **{f"torch {name}": kind for name, kind in vars(torch).items() if type(kind) is torch.dtype},
    "collections OrderedDict": _Function(lambda: {}),
    "torch._utils _rebuild_tensor": _Function(_rebuild),
    "torch._utils _rebuild_tensor_v2": _Function(_rebuild),
    "torch._utils _rebuild_tensor_v3": _Function(_rebuild),
    "torch._utils _rebuild_parameter": _Function(lambda tensor, *_: tensor),
    "torch.storage UntypedStorage": torch.uint8,
    "torch DoubleStorage": torch.float64,
    "torch FloatStorage": torch.float32,
    "torch HalfStorage": torch.float16,
    "torch BFloat16Storage": torch.bfloat16,
    "torch LongStorage": torch.int64,
    "torch IntStorage": torch.int32,
    "torch ShortStorage": torch.int16,
    "torch CharStorage": torch.int8,
    "torch ByteStorage": torch.uint8,
    "torch BoolStorage": torch.bool,
}


_OPERATIONS = """PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT
BINUNICODE SHORT_BINUNICODE EMPTY_DICT EMPTY_LIST EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 APPEND
APPENDS BINPUT LONG_BINPUT MEMOIZE BINGET LONG_BINGET GLOBAL STACK_GLOBAL BINPERSID"""


class _Operations(dict[int, Callable[[Any], None]]):
    def __missing__(self, code: int) -> None:
        name = next(known.name for known in pickletools.opcodes if known.code == chr(code))
        raise TorchFileError(f"it has the operation {name}")


# Not its twin in C, which has no table of operations. `torch.load` has one, but does not know
# those of protocol 4, and lets a file repeat what takes long.
class _Unpickler(pickle._Unpickler):
    """Returns the value that a pickle describes, with tensors as `_Stored`."""

    dispatch = _Operations()
    stack: list[Any]
    pop_mark: Callable[[], list[Any]]

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self.storages: list[_Storage] = []

    def find_class(self, module: str, name: str) -> Any:
        known = _KNOWN.get(f"{module} {name}")
        if known is None:
            raise TorchFileError(f"it names {f'{module}.{name}'[:100]!r}, which no tensor needs")
        return known

    def persistent_load(self, pid: Any) -> Any:
        self.storages.append(_storage(*_few(pid)))
        return self.storages[-1]

    def load_reduce(self) -> None:
        arguments = _few(self.stack.pop())
        function = self.stack.pop()
        if not isinstance(function, _Function):
            raise TorchFileError("it calls what is not a function")
        self.stack.append(function.call(*arguments))

    def load_build(self) -> None:  # attributes, such as the versions of a state dict's modules
        self.stack.pop()

    def load_setitem(self) -> None:
        pair = self.stack.pop(-2), self.stack.pop()
        _add_items(self.stack[-1], [pair])

    def load_setitems(self) -> None:
        items = self.pop_mark()
        _add_items(self.stack[-1], zip(items[::2], items[1::2], strict=True))

    for name in _OPERATIONS.split():
        code = getattr(pickle, name)[0]
        dispatch[code] = pickle._Unpickler.dispatch[code]
    dispatch[pickle.REDUCE[0]] = load_reduce
    dispatch[pickle.BUILD[0]] = load_build
    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.SETITEMS[0]] = load_setitems
