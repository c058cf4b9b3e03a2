"""Ranges of inputs and the raw documents in them; files as streams, decompressed up to damage, or
to a bomb; lines of a range of bytes.

A line belongs to the range in which it begins, so the ranges of any split give every line exactly
once. A compressed file is one range.

    bytes    f i r s t \\n s e c o n d \\n t h i r d \\n
    ranges   [     0      ) [     1     ) [  2  )
    lines    first, second  third         (none)
"""

import bz2
import gzip
import hashlib
import lzma
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Any, BinaryIO, Self, cast

import numpy as np
import pyarrow as pa

from .. import storage
from ..config import IngestConfig
from ..counters import Counters
from ..encodings import UTF_8, stream_of
from ..parsing import digest_of
from ..source_formats import FORMATS

NUM_SAMPLES = 16
SAMPLE_BYTES = 1 << 16

COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst")

TEXT_ALLOWANCE = 1 << 24
"""Bytes that one text may expand to whatever the ratio."""

LONGEST_LINE_BYTES = 1 << 24
"""A longer line is not a real document: it is left out and counted."""
BOM = b"\xef\xbb\xbf"
ARTICLE_HEAD = b"<doc "
"""Begins an article that WikiExtractor wrote."""
DAMAGED_FILE = "damaged_parquet_file"

_READ_BYTES = 1 << 13

# What reading damaged data raises.
_DAMAGE = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, pa.ArrowException)


@dataclass(frozen=True, kw_only=True, slots=True)
class InputRange:
    """A file or data set to read, or a part of one that can be read on its own."""

    path: str
    name: str
    """The file's name in ids and messages; the folder above the source is not part of it."""
    format: str
    """As `IngestConfig.format` names it: ``wikipedia``, ``text``, ..."""
    num_bytes: int = 0
    """Size, of a part about; 0 if unknown."""
    start: int = 0
    """First byte of the range; first row group, row or shard of a table."""
    stop: int | None = None
    """The byte (row group, ...) after the range; None: to the end of the file."""
    encoding: str = UTF_8
    """The encoding of a text, by Python's name."""
    version: str = ""
    """The version of the planned file, by `storage.version_of`; empty: any may be read."""
    digest: str = ""
    """Identifies the content of a data set, which is not a file that could be hashed."""
    lacks: tuple[str, ...] = ()
    """Columns that the user named and that the table is known not to have."""

    @property
    def stem(self) -> str:
        """Prefix of the ids of the documents in a file: its name without suffixes."""
        return stem_of(self.name, *FORMATS[self.format].dropped_from_ids)

    def cut(self, starts: Sequence[int]) -> list[Self]:
        """Return the ranges that begin at `starts`; each ends at the next, the last at the end."""
        return [
            replace(self, num_bytes=self.num_bytes // len(starts), start=start, stop=stop)
            for start, stop in zip(starts, [*starts[1:], None], strict=False)
        ]

    def cut_evenly(self, range_bytes: int) -> list[Self]:
        """Return equal ranges of at most `range_bytes` each."""
        num_ranges = max(1, ceil(self.num_bytes / range_bytes))
        return self.cut([self.num_bytes * index // num_ranges for index in range(num_ranges)])


def digest_of_file(path: str, num_bytes: int) -> str:
    """Return the digest of a file; a large one is sampled, to avoid reading it twice."""
    most_bytes = 64 << 20
    if storage.is_remote(path):
        most_bytes = NUM_SAMPLES * SAMPLE_BYTES
    with storage.open_input(path) as content:
        if num_bytes <= most_bytes:
            blake2b = partial(hashlib.blake2b, digest_size=16)
            return hashlib.file_digest(cast(Any, content), blake2b).hexdigest()
        # The first and the last bytes, where formats have their headers and footers, and 14 samples
        # in between.
        offsets = np.linspace(0, num_bytes - SAMPLE_BYTES, NUM_SAMPLES, dtype=np.int64)
        samples = []
        for offset in offsets.tolist():
            content.seek(offset)
            samples.append(content.read(SAMPLE_BYTES))
        return digest_of(b"".join(samples))


@dataclass(frozen=True, kw_only=True, slots=True)
class RawDocument:
    """One text without markup."""

    id: str
    """Unique within its source: a page's id, a file's name, a line's number."""
    source: str
    """The dump's database name (``enwiki``), or the name of the data set or format."""
    title: str
    """May be empty."""
    language: str
    """Language code (``en``) for splitting sentences; empty if unknown."""
    paragraphs: list[str]
    """Clean text, one paragraph an item, without line breaks."""
    is_cut: bool = False
    """Whether the paragraphs are sentences, of documents that `ingest` wrote."""


@contextmanager
def counted_damage(reason: str, location: str, counters: Counters) -> Iterator[None]:
    """End the block at damaged data, which is counted; raise if the disk or the network failed."""
    try:
        yield
    except _DAMAGE as error:
        # Decompressors raise `OSError` for damaged data too, but without an error number.
        has_failed = isinstance(error, OSError) and error.errno is not None
        if has_failed or isinstance(error, ConnectionError | TimeoutError):
            raise
        message = str(error) or type(error).__name__
        counters.skip(reason, f"{location}: {message}", message)


def is_compressed(name: str) -> bool:
    """Return whether a file is compressed, by its name."""
    return name.lower().endswith(COMPRESSED_SUFFIXES)


def stem_of(name: str, *suffixes: str) -> str:
    """Return a file's name without its compression's suffix and one of `suffixes`."""
    for group in (COMPRESSED_SUFFIXES, suffixes):
        for suffix in group:
            if name.lower().endswith(suffix):
                name = name[: -len(suffix)]
                break
    return name


def is_bomb(num_compressed: int, num_bytes: int, allowance: int) -> bool:
    """Return whether `num_bytes` of text are too many for the bytes they were compressed to."""
    # Very repetitive text expands to twenty times its compressed size.
    return num_bytes > allowance and num_bytes > 200 * num_compressed


def decompressed(
    file: BinaryIO, name: str, counters: Counters, allowance: int = TEXT_ALLOWANCE
) -> BinaryIO:
    """Return the bytes of a file, decompressed if its `name` says that it is compressed.

    A decompressed stream cannot seek. It ends at the first damage (``corrupt_file`` in `counters`),
    or beyond `allowance` bytes when it turns out to be a bomb (``compression_bomb``).
    """
    if not is_compressed(name):
        return file
    return stream_of(_decompressed_blocks(file, name, counters, allowance))


def _decompressed_blocks(
    file: BinaryIO, name: str, counters: Counters, allowance: int
) -> Iterator[bytes]:
    """Yield the bytes of a file up to damage, for which one of `_DAMAGE` is raised."""
    suffix = name.lower().rpartition(".")[2]
    if suffix == "zst":
        # By Arrow, because Python's library has no Zstandard before 3.14. If a file ends too
        # early, it does not return what it decompressed in the last call: small calls lose little.
        stream = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
        blocks = iter(partial(stream.read, _READ_BYTES), b"")
    elif suffix == "bz2":
        blocks = _blocks_of_streams(file, bz2.BZ2Decompressor)
    elif suffix == "xz":
        blocks = _blocks_of_streams(file, lzma.LZMADecompressor, has_padding=True)
    else:
        # Not `read`, which continues until it has all of it, and at damage loses what it had.
        blocks = iter(partial(gzip.GzipFile(fileobj=file).read1, _READ_BYTES), b"")
    start = file.tell()
    num_compressed = 0
    num_bytes = 0
    with counted_damage("corrupt_file", name, counters):
        for block in blocks:
            num_bytes += len(block)
            # Arrow closes a file at its end, which can then no longer tell.
            if not file.closed:
                num_compressed = file.tell() - start
            if is_bomb(num_compressed, num_bytes, allowance):
                counters.skip("compression_bomb", f"{name}, beyond byte {num_bytes}")
                return
            yield block


def _blocks_of_streams(
    file: BinaryIO,
    new_decompressor: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor],
    *,
    has_padding: bool = False,
) -> Iterator[bytes]:
    """Yield the bytes of one stream after another, to the last byte of a file.

    Zeros may follow a stream that `has_padding`; anything else raises one of `_DAMAGE`. `bz2.open`
    and `lzma.open` stop without an error at the first bytes after a stream that do not begin
    another one: damage to a header there would cost the rest in silence.
    """
    compressed = file.read(_READ_BYTES)
    while compressed:
        decompressor = new_decompressor()
        while not decompressor.eof:
            if decompressor.needs_input and not compressed:
                compressed = file.read(_READ_BYTES)
                if not compressed:
                    raise EOFError("it ends within a stream")
            yield decompressor.decompress(compressed, _READ_BYTES)
            compressed = b""
        compressed = decompressor.unused_data or file.read(_READ_BYTES)
        while has_padding and compressed.startswith(b"\0"):
            compressed = compressed.lstrip(b"\0") or file.read(_READ_BYTES)


def plan_lines(file: InputRange, range_bytes: int, config: IngestConfig) -> list[InputRange]:
    """Cut a file into equal ranges, unless it is compressed or recoded."""
    if is_compressed(file.name) or file.encoding != UTF_8:
        return [file]
    return file.cut_evenly(range_bytes)


def read_lines(
    stream: BinaryIO, input_range: InputRange, counters: Counters
) -> Iterator[tuple[int, bytes]]:
    """Yield each line that begins in a range: its decompressed offset, and it without its break."""
    offset = input_range.start
    if offset:
        # One byte earlier: if it is a line break, the line at `start` is ours.
        #   bytes     s e c o n d \n t h i r d          start 8: skipping from 7 ends at 12
        #   offsets   0 1 2 3 4 5 6  7 8 ...            start 7: skipping from 6 ends at 7
        stream.seek(offset - 1)
        offset += _skip_line(stream) - 1
    while input_range.stop is None or offset < input_range.stop:
        line = stream.readline(LONGEST_LINE_BYTES)
        if not line:
            return
        num_bytes = len(line)
        if num_bytes == LONGEST_LINE_BYTES and not line.endswith(b"\n"):
            counters.skip("oversized_line", f"{input_range.name}, byte {offset}")
            offset += num_bytes + _skip_line(stream)
            continue
        # Not only at offset 0: files may have been joined.
        yield offset, line.removeprefix(BOM).rstrip(b"\r\n")
        offset += num_bytes


def decode(raw: bytes, location: str, counters: Counters) -> str:
    """Return bytes as text, with U+FFFD for bad ones, which are counted as ``invalid_utf8``."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        counters.skip("invalid_utf8", location, str(error), raw)
        return raw.decode("utf-8", "replace")


def _skip_line(stream: BinaryIO) -> int:
    """Skip the rest of a line, and return its length in bytes."""
    num_bytes = 0
    while piece := stream.readline(1 << 20):
        num_bytes += len(piece)
        if piece.endswith(b"\n"):
            break
    return num_bytes
