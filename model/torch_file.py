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
    """Return a file's value, its tensors on the CPU; raise `TorchFileError` if it is another's."""
    try:
        file_size = path.stat().st_size
        with path.open("rb") as file:
            is_archive = file.read(4) == b"PK\3\4"
            file.seek(0)
            if is_archive:
                with zipfile.ZipFile(file) as archive:
                    value = _read_archive(archive, file_size)
            else:
                value = _read_legacy(file, file_size)
        _refuse_cycles(value, set())
        return value
    except TorchFileError:
        raise
    except Exception as error:  # a damaged file may raise anything
        raise TorchFileError("it cannot be read") from error


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

    def read(key: str, num_bytes: int) -> bytes:
        member = members[f"{root}data/{key}"]
        if member.file_size != num_bytes:
            raise TorchFileError("a storage does not have its size")
        return archive.read(member)

    content = io.BytesIO(archive.read(pickle_name))
    return _Unpickler(content, file_size, read).load()


def _read_legacy(file: BinaryIO, file_size: int) -> Any:
    # Pickles one after the other: a magic number, the version, sizes of C's types, the value, and
    # the keys of the storages, each of which follows with its number of values before it.
    start = io.BytesIO(file.read(_MAX_PICKLE))
    if _Unpickler(start).load() != 0x1950A86A20F9469CFC6C:
        raise TorchFileError("it was not written by torch.save")
    _Unpickler(start).load()
    if not _Unpickler(start).load()["little_endian"]:
        raise TorchFileError("its numbers are big-endian")
    value_start = start.tell()
    # Once for the sizes of the storages alone, by which they are found.
    without_numbers = _Unpickler(start, file_size)
    without_numbers.load()
    keys = _Unpickler(start).load()
    places: dict[str, int] = {}
    place = start.tell()
    for key in keys:
        if type(key) is not str:
            raise TorchFileError("a storage has no name")
        places[key] = place + 8
        place += 8 + len(without_numbers.storages[key])

    def read(key: str, num_bytes: int) -> bytes:
        file.seek(places[key])
        return file.read(num_bytes)

    start.seek(value_start)
    return _Unpickler(start, file_size, read).load()


def _refuse_cycles(value: Any, done: set[int]) -> None:
    """Raise `RecursionError` if a list or dict contains itself; `done` are others' ids."""
    # Lists of twice the same list of twice the same list would else take forever.
    if isinstance(value, dict | list | tuple) and id(value) not in done:
        for item in value.values() if isinstance(value, dict) else value:
            _refuse_cycles(item, done)
        done.add(id(value))


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


@dataclass(frozen=True)
class _Function:
    call: Callable[..., Any]


def _rebuild(storage: Any, offset: Any, shape: Any, stride: Any, *others: Any) -> Tensor:
    numbers: tuple[Any, ...] = ()
    are_tuples = type(shape) is tuple and type(stride) is tuple
    if type(storage) is Tensor and are_tuples and len(shape) == len(stride) <= 16:
        numbers = (offset, *shape, *stride)
    if not numbers or not all(type(number) is int and number >= 0 for number in numbers):
        raise TorchFileError("a tensor has no proper shape")
    # The third form of the function names the type beside a storage of bytes.
    for other in others:
        if isinstance(other, torch.dtype):
            storage = storage.view(other)
    size = math.prod(shape)
    last = offset
    for length, step in zip(shape, stride, strict=True):
        last += (length - 1) * step
    # With a stride of 0 a few bytes would be a tensor of any size.
    if size and (size > storage.numel() or last >= storage.numel()):
        raise TorchFileError("a tensor is larger than its storage")
    return storage.as_strided(shape, stride, offset)


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
    """Loads a value with at most `max_bytes` of storages, which `read` returns by their names and
    sizes; without it they have no numbers (PyTorch's device ``meta``).
    """

    dispatch = _Operations()
    stack: list[Any]
    pop_mark: Callable[[], list[Any]]

    def __init__(
        self,
        file: BinaryIO,
        max_bytes: int = 0,
        read: Callable[[str, int], bytes] | None = None,
    ) -> None:
        super().__init__(file)
        self.max_bytes = max_bytes
        self.read_storage = read
        self.storages: dict[str, Tensor] = {}

    def find_class(self, module: str, name: str) -> Any:
        known = _KNOWN.get(f"{module} {name}")
        if known is None:
            raise TorchFileError(f"it names {f'{module}.{name}'[:100]!r}, which no tensor needs")
        return known

    def persistent_load(self, pid: Any) -> Tensor:
        kind, dtype, key, _, size, *view = _few(pid)
        is_size = type(size) is int and size >= 0
        is_plain = kind == "storage" and type(key) is str and is_size
        if not (is_plain and isinstance(dtype, torch.dtype) and view in ([], [None])):
            raise TorchFileError("a storage is not described as torch.save does")
        num_bytes = size * dtype.itemsize
        if key not in self.storages:
            self.max_bytes -= num_bytes
            if self.max_bytes < 0:
                raise TorchFileError("its storages are larger than the file")
            self.storages[key] = self.load_storage(key, num_bytes)
        if len(self.storages[key]) != num_bytes:
            raise TorchFileError("a storage does not have its size")
        return self.storages[key].view(dtype)

    def load_storage(self, key: str, num_bytes: int) -> Tensor:
        if not self.read_storage:
            return torch.empty(num_bytes, dtype=torch.uint8, device="meta")
        # A copy, as Python's bytes may not be written to.
        content = bytearray(self.read_storage(key, num_bytes))
        if len(content) < num_bytes:
            raise TorchFileError("a storage is cut off")
        if not content:
            return torch.empty(0, dtype=torch.uint8)
        return torch.frombuffer(content, dtype=torch.uint8)

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
