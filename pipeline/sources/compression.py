"""Decompress files, up to where they are damaged or turn out to be bombs.

English text shrinks to a third or a quarter of its size, very repetitive text to a twentieth. Data
that expand to more than `BOMB_RATIO` times their size, and beyond an allowance in bytes, are not
text: they are a bomb.
"""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

import pyarrow as pa

from ..counters import Counters
from ..encodings import recoded, stream_of

COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst")

BOMB_RATIO = 200
"""Times its compressed size that text may expand to."""
TEXT_ALLOWANCE = 1 << 24
"""Bytes that one text may expand to whatever the ratio."""

# If a file ends too early, Arrow does not return what it decompressed in the last call: small calls
# lose little.
_ZSTD_READ_BYTES = 1 << 13
_READ_BYTES = 1 << 13

# The specification of .xz: zero bytes may follow a stream, in groups of four.
_XZ_PADDING_BYTES = 4

# What reading damaged data raises; see `is_failure`.
_DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    zlib.error,
    lzma.LZMAError,
    pa.ArrowException,
)


def is_failure(error: Exception) -> bool:
    """Return whether the disk or the network failed, so that the data may be good.

    Decompressors raise `OSError` for damaged data too, but without an error number.
    """
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    return isinstance(error, OSError) and error.errno is not None


@contextmanager
def counted_damage(reason: str, location: str, counters: Counters) -> Iterator[None]:
    """End the block at damaged data, which is counted; raise if the disk or the network failed."""
    try:
        yield
    except _DAMAGE as error:
        if is_failure(error):
            raise
        message = str(error) or type(error).__name__
        counters.skip(reason, f"{location}: {message}")


def is_compressed(name: str) -> bool:
    """Return whether a file is compressed, by its name."""
    return name.lower().endswith(COMPRESSED_SUFFIXES)


def stem_of(name: str, *suffixes: str) -> str:
    """Return a file's name without the suffix of its compression, then without one of `suffixes`.

    >>> stem_of("part-0.jsonl.zst"), stem_of("part-0.jsonl.zst", ".jsonl")
    ('part-0.jsonl', 'part-0')
    """
    return _without_suffix(_without_suffix(name, COMPRESSED_SUFFIXES), suffixes)


def _without_suffix(name: str, suffixes: Sequence[str]) -> str:
    for suffix in suffixes:
        if name.lower().endswith(suffix):
            return name[: -len(suffix)]
    return name


def is_bomb(num_compressed: int, num_bytes: int, allowance: int) -> bool:
    """Return whether `num_bytes` of text are too many for the bytes they were compressed to.

    >>> is_bomb(1_000, 1_000_000, allowance=10_000_000)
    False
    >>> is_bomb(1_000, 20_000_000, allowance=10_000_000)
    True
    """
    return num_bytes > allowance and num_bytes > BOMB_RATIO * num_compressed


def decompressed(
    file: BinaryIO, name: str, counters: Counters, allowance: int = TEXT_ALLOWANCE
) -> BinaryIO:
    """Return the bytes of a file, decompressed if its `name` says that it is compressed.

    A decompressed stream cannot seek. It ends at the first damage (``corrupt_file`` in `counters`)
    or when it turns out to be a bomb (``compression_bomb``): `allowance` is how many bytes it may
    expand to whatever the ratio. `file` stays open.
    """
    if not is_compressed(name):
        return file
    return stream_of(_decompressed_blocks(file, name, counters, allowance))


def _decompressed_blocks(
    file: BinaryIO, name: str, counters: Counters, allowance: int
) -> Iterator[bytes]:
    read = _decompressor(file, name)
    start = file.tell()
    num_compressed = 0
    num_bytes = 0
    with counted_damage("corrupt_file", name, counters):
        while block := read(_READ_BYTES):
            num_bytes += len(block)
            # Arrow closes a file at its end, which can then no longer tell.
            if not file.closed:
                num_compressed = file.tell() - start
            if is_bomb(num_compressed, num_bytes, allowance):
                counters.skip("compression_bomb", f"{name}, beyond byte {num_bytes}")
                return
            yield block


def text_stream(file: BinaryIO, name: str, encoding: str, counters: Counters) -> BinaryIO:
    """Return the bytes of a text, `decompressed` and in UTF-8."""
    remedy = "give another `encoding`, or convert the file to UTF-8"
    return recoded(decompressed(file, name, counters), encoding, name, remedy)


def _decompressor(file: BinaryIO, name: str) -> Callable[[int], bytes]:
    """Return a function that reads at most that many decompressed bytes, and none at the end.

    At damage it raises one of `_DAMAGE`.
    """
    suffix = name.lower().rpartition(".")[2]
    if suffix == "zst":
        # By Arrow, because Python's library has no Zstandard before 3.14.
        stream = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
        return lambda size: stream.read(min(size, _ZSTD_READ_BYTES))
    if suffix == "bz2":
        return _StreamReader(file, bz2.BZ2Decompressor).read
    if suffix == "xz":
        return _StreamReader(file, lzma.LZMADecompressor, _XZ_PADDING_BYTES).read
    # Not `read`, which continues until it has all of `size`, and at damage loses what it had.
    return gzip.GzipFile(fileobj=file).read1


class _StreamReader:
    """Reads a file of one stream after another to its last byte.

    `bz2.open` and `lzma.open` stop without an error at the first bytes after a stream that do not
    begin another one: damage to a header there would cost the rest of the file in silence.
    """

    def __init__(
        self,
        file: BinaryIO,
        new_decompressor: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor],
        padding_bytes: int = 0,
    ) -> None:
        """Read `file`, whose streams may be followed by zeros in groups of `padding_bytes`."""
        self._file = file
        self._new_decompressor = new_decompressor
        self._padding_bytes = padding_bytes
        self._decompressor = new_decompressor()
        self._unread = b""

    def read(self, size: int) -> bytes:
        """Return at most `size` decompressed bytes, none at the end of the file.

        Raise one of `_DAMAGE` at anything that is neither a stream nor valid padding.
        """
        while True:
            if self._decompressor.eof and not self._begin_stream():
                return b""
            compressed = b""
            if self._decompressor.needs_input:
                compressed = self._unread or self._file.read(_READ_BYTES)
                self._unread = b""
                if not compressed:
                    raise EOFError("it ends within a stream")
            block = self._decompressor.decompress(compressed, size)
            if block:
                return block

    def _begin_stream(self) -> bool:
        """Go on to the stream after the one that ended; return False at the end of the file."""
        compressed = self._decompressor.unused_data or self._file.read(_READ_BYTES)
        num_padding = 0
        while self._padding_bytes and compressed.startswith(b"\0"):
            stripped = compressed.lstrip(b"\0")
            num_padding += len(compressed) - len(stripped)
            compressed = stripped or self._file.read(_READ_BYTES)
        if num_padding and num_padding % self._padding_bytes:
            raise EOFError(f"{num_padding} zero bytes follow a stream")
        if not compressed:
            return False
        self._decompressor = self._new_decompressor()
        self._unread = compressed
        return True
