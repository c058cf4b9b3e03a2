"""Lines of plain and compressed files, in ranges of bytes."""

import bz2
import gzip
import io
import lzma
import random
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest
from clozeworks.pipeline.execution.counters import Counters
from clozeworks.pipeline.sources.compression import without_compression
from clozeworks.pipeline.sources.lines import LONGEST_LINE_BYTES, plan_line_ranges, read_lines
from clozeworks.pipeline.sources.records import InputRange
from hypothesis import given
from hypothesis import strategies as st

COMPRESS = {
    "gz": gzip.compress,
    "bz2": lambda content: bz2.compress(content, 1),
    "xz": lambda content: lzma.compress(content, preset=0),
    "zst": lambda content: pa.compress(content, "zstd", asbytes=True),
}


def opened(path: str) -> io.BufferedReader:
    return Path(path).open("rb")


def lines_of(path: Path, counters: Counters, range_bytes: int = 1 << 20) -> list[tuple[int, bytes]]:
    ranges = plan_line_ranges(str(path), path.name, "jsonl", path.stat().st_size, range_bytes)
    return [line for part in ranges for line in read_lines(part, opened, counters)]


@given(st.binary(max_size=60).map(lambda raw: raw.replace(b"\r", b"\n\n").replace(b"a", b"\n")), st.integers(1, 70))
def test_ranges_give_every_line_once(content: bytes, range_bytes: int):
    ranges = plan_line_ranges("x", "x.jsonl", "jsonl", len(content), range_bytes)
    found = [line for part in ranges for line in read_lines(part, lambda _: io.BytesIO(content), Counters())]
    expected = content.removesuffix(b"\n").removeprefix(b"\xef\xbb\xbf").split(b"\n") if content else []
    assert [line for _, line in found] == expected
    assert all(content[place:].startswith(line) for place, line in found if place)


def test_windows_line_ends_and_a_byte_order_mark_are_no_part_of_lines(tmp_path: Path):
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert lines_of(tmp_path / "a.jsonl", Counters()) == [(0, b"one"), (8, b"two")]


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_files_of_several_streams(tmp_path: Path, suffix: str):
    path = tmp_path / f"a.jsonl.{suffix}"
    path.write_bytes(COMPRESS[suffix](b"one\ntw") + COMPRESS[suffix](b"o\nthree"))
    counters = Counters()
    assert lines_of(path, counters, range_bytes=10) == [(0, b"one"), (4, b"two"), (8, b"three")]
    assert not counters.bad


@pytest.mark.parametrize("suffix", COMPRESS)
def test_what_stands_before_the_end_of_a_cut_off_file_is_read(tmp_path: Path, suffix: str):
    rng = random.Random(0)
    content = b"".join(b"%d %s\n" % (i, rng.randbytes(30).hex().encode()) for i in range(30_000))
    compressed = COMPRESS[suffix](content)
    path = tmp_path / f"a.jsonl.{suffix}"
    path.write_bytes(compressed[: len(compressed) // 2])
    counters = Counters()
    found = [line for _, line in lines_of(path, counters)]
    assert 0.8 * 15_000 < len(found) < 1.2 * 15_000
    assert found[:-1] == content.split(b"\n")[: len(found) - 1]
    assert counters.bad == {"corrupt_file": 1}
    assert counters.examples["corrupt_file"][0].startswith(path.name)


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_file_that_is_not_what_its_name_says(tmp_path: Path, suffix: str):
    (tmp_path / f"a.{suffix}").write_bytes(b"no compressed file at all")
    counters = Counters()
    assert lines_of(tmp_path / f"a.{suffix}", counters) == []
    assert counters.bad == {"corrupt_file": 1}


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_an_oversized_line_costs_only_itself(tmp_path: Path, suffix: str):
    block = random.Random(0).randbytes(512).hex().encode()  # which shrinks to a hundredth: no bomb
    content = b"one\n" + block * (2 * LONGEST_LINE_BYTES // len(block) + 1) + b"\ntwo\n"
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(gzip.compress(content, 1) if suffix else content)
    counters = Counters()
    found = lines_of(path, counters, range_bytes=LONGEST_LINE_BYTES)
    assert found == [(0, b"one"), (len(content) - 4, b"two")]
    assert counters.to_record()["examples"] == {"oversized_line": [f"{path.name}, byte 4"]}


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_compressed_file_that_expands_beyond_measure_is_read_no_further(tmp_path: Path, suffix: str):
    content = b"one\n" + b"x" * 40_000_000 + b"\ntwo\n"
    path = tmp_path / f"a.jsonl.{suffix}"
    path.write_bytes(COMPRESS[suffix](content))
    counters = Counters()
    tracemalloc.start()
    sizes = [len(line) for _, line in lines_of(path, counters)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sizes[0] == 3 and sum(sizes) < 25_000_000
    assert counters.bad == {"compression_bomb": 1}
    assert counters.examples["compression_bomb"][0].startswith(f"{path.name}, beyond byte ")
    assert peak < 3 * LONGEST_LINE_BYTES


def test_a_failing_disk_is_no_bad_input(tmp_path: Path):
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError(5, "Input/output error")

    part = InputRange(path="a.gz", name="a.gz", format="jsonl")
    with pytest.raises(OSError, match="Input/output"):
        list(read_lines(part, lambda _: Failing(), Counters()))


def test_names_without_compression():
    assert [without_compression(name) for name in ("a.txt.GZ", "a.zst", "a.zip")] == ["a.txt", "a", "a.zip"]
