"""Lines of plain and compressed files, in ranges of bytes."""

import bz2
import gzip
import io
import lzma
import random
import tracemalloc

import pyarrow as pa
import pytest
from clozeworks.pipeline.config import IngestConfig
from clozeworks.pipeline.counters import Counters
from clozeworks.pipeline.sources.streams import (
    LONGEST_LINE_BYTES,
    InputRange,
    decompressed,
    plan_lines,
    read_lines,
)
from hypothesis import given
from hypothesis import strategies as st

COMPRESS = {
    "gz": gzip.compress,
    "bz2": lambda content: bz2.compress(content, 1),
    "xz": lambda content: lzma.compress(content, preset=0),
    "zst": lambda content: pa.compress(content, "zstd", asbytes=True),
}


def lines_of(
    content: bytes, name: str, counters: Counters, range_bytes: int = 1 << 20
) -> list[tuple[int, bytes]]:
    entry = InputRange(path=name, name=name, format="jsonl", num_bytes=len(content))
    ranges = plan_lines(entry, range_bytes, IngestConfig())
    streams = [decompressed(io.BytesIO(content), name, counters) for _ in ranges]
    return [
        line
        for stream, part in zip(streams, ranges, strict=True)
        for line in read_lines(stream, part, counters)
    ]


@given(
    st.binary(max_size=60).map(lambda raw: raw.replace(b"\r", b"\n\n").replace(b"a", b"\n")),
    st.integers(1, 70),
)
def test_ranges_give_every_line_once(content: bytes, range_bytes: int):
    found = lines_of(content, "x.jsonl", Counters(), range_bytes)
    expected = (
        content.removesuffix(b"\n").removeprefix(b"\xef\xbb\xbf").split(b"\n") if content else []
    )
    assert [line for _, line in found] == expected
    assert all(content[offset:].startswith(line) for offset, line in found if offset)


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_files_of_several_streams(suffix: str):
    content = COMPRESS[suffix](b"one\ntw") + COMPRESS[suffix](b"o\nthree")
    counters = Counters()
    found = lines_of(content, f"a.jsonl.{suffix}", counters, range_bytes=10)
    assert found == [(0, b"one"), (4, b"two"), (8, b"three")]
    assert not counters.bad


def test_line_ends_and_byte_order_marks_of_joined_files_are_not_part_of_lines():
    content = b"\xef\xbb\xbfone\r\n\xef\xbb\xbftwo\n"
    assert lines_of(content, "a.jsonl", Counters()) == [(0, b"one"), (8, b"two")]


@pytest.mark.parametrize("suffix", ["bz2", "xz", "gz"])
@pytest.mark.parametrize("damage", ["header", "bytes after the end"])
def test_what_follows_a_stream_is_read_or_counted(suffix: str, damage: str):
    first, second = COMPRESS[suffix](b"one\n"), COMPRESS[suffix](b"two\n")
    if damage == "header":
        content = first + bytes([second[0] ^ 1]) + second[1:]
    else:
        content = first + b"no stream at all"
    counters = Counters()
    assert lines_of(content, f"a.jsonl.{suffix}", counters) == [(0, b"one")]
    assert counters.bad == {"corrupt_file": 1}


@pytest.mark.parametrize("num_zeros", [4, 16_000])
def test_padding_of_xz(num_zeros: int):
    content = lzma.compress(b"one\n") + bytes(num_zeros)
    for following, num_lines in ((b"", 1), (lzma.compress(b"two\n"), 2)):
        counters = Counters()
        assert len(lines_of(content + following, "a.jsonl.xz", counters)) == num_lines
        assert not counters.bad


@pytest.mark.parametrize("suffix", ["bz2", "xz", "gz"])
def test_empty_streams_are_valid(suffix: str):
    compress = COMPRESS[suffix]
    empty = compress(b"")
    content = empty + compress(b"one\n") + empty + empty + compress(b"two\n") + empty
    counters = Counters()
    assert lines_of(content, f"a.jsonl.{suffix}", counters) == [(0, b"one"), (4, b"two")]
    assert not counters.bad


@pytest.mark.slow
@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_cut_off_file_is_read_up_to_the_cut(suffix: str):
    rng = random.Random(0)
    content = b"".join(b"%d %s\n" % (i, rng.randbytes(30).hex().encode()) for i in range(30_000))
    compressed = COMPRESS[suffix](content)
    half = compressed[: len(compressed) // 2]
    counters = Counters()
    found = [line for _, line in lines_of(half, f"a.jsonl.{suffix}", counters)]
    assert 0.8 * 15_000 < len(found) < 1.2 * 15_000
    assert found[:-1] == content.split(b"\n")[: len(found) - 1]
    assert counters.bad == {"corrupt_file": 1}
    assert counters.examples["corrupt_file"][0].startswith(f"a.jsonl.{suffix}")


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_file_that_is_not_what_its_name_says(suffix: str):
    counters = Counters()
    assert lines_of(b"not a compressed file at all", f"a.{suffix}", counters) == []
    assert counters.bad == {"corrupt_file": 1}


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_an_oversized_line_costs_only_itself(suffix: str):
    block = random.Random(0).randbytes(512).hex().encode()  # shrinks to a hundredth: not a bomb
    content = b"one\n" + block * (2 * LONGEST_LINE_BYTES // len(block) + 1) + b"\ntwo\n"
    name = f"a.jsonl{suffix}"
    counters = Counters()
    found = lines_of(
        gzip.compress(content, 1) if suffix else content,
        name,
        counters,
        range_bytes=LONGEST_LINE_BYTES,
    )
    assert found == [(0, b"one"), (len(content) - 4, b"two")]
    assert counters.to_record()["examples"] == {"oversized_line": [f"{name}, byte 4"]}


@pytest.mark.slow
@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_compressed_file_that_expands_beyond_measure_is_read_no_further(suffix: str):
    content = COMPRESS[suffix](b"one\n" + b"x" * 40_000_000 + b"\ntwo\n")
    counters = Counters()
    tracemalloc.start()
    sizes = [len(line) for _, line in lines_of(content, f"a.jsonl.{suffix}", counters)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sizes[0] == 3 and sum(sizes) < 25_000_000
    assert counters.bad == {"compression_bomb": 1}
    assert counters.examples["compression_bomb"][0].startswith(f"a.jsonl.{suffix}, beyond byte ")
    assert peak < 3 * LONGEST_LINE_BYTES


def test_a_failing_disk_is_not_bad_input():
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        decompressed(Failing(), "a.gz", Counters()).readline()
