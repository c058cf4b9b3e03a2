import bz2
import gzip
import io
import lzma
import random
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from clozeworks.pipeline.config import IngestConfig
from clozeworks.pipeline.counters import Counters
from clozeworks.pipeline.sources import archives
from clozeworks.pipeline.sources.archives import SUFFIXES
from clozeworks.pipeline.sources.records import RawDocument
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.reading import ONE_RANGE, Source
from tests.fixtures.shared_data import DATA, needs_shared_data

TEXTS = {
    f"shelf/Book {number}.txt": f"This is book {number}, by someone.\n\nIt goes on.\n"
    for number in range(5)
}
Files = Mapping[str, bytes | str]


def tar(files: Files, **options: int) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", **options) as archive:  # pyright: ignore
        for name, text in files.items():
            raw = text.encode() if isinstance(text, str) else text
            info = tarfile.TarInfo(name)
            info.size = len(raw)
            archive.addfile(info, io.BytesIO(raw))
    return content.getvalue()


def zipped(files: Files, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return content.getvalue()


def zstd(content: bytes) -> bytes:
    return pa.compress(content, codec="zstd", asbytes=True)


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    ".tar": bytes,
    ".tar.gz": gzip.compress,
    ".tgz": gzip.compress,
    ".tar.bz2": lambda content: bz2.compress(content, 1),
    ".tar.xz": lambda content: lzma.compress(content, preset=0),
    ".tar.zst": zstd,
}


def pack(suffix: str, files: Files) -> bytes:
    return zipped(files) if suffix == ".zip" else COMPRESSORS[suffix](tar(files))


def read(
    content: bytes, name: str, counters: Counters | None = None, range_bytes: int = ONE_RANGE
) -> list[RawDocument]:
    return list(Source("archive", content, name).read(counters, range_bytes))


def ids(documents: Iterable[RawDocument]) -> list[str]:
    return [document.id for document in documents]


def expected(files: Files, stem: str) -> Iterator[RawDocument]:
    for name, text in files.items():
        yield from Source("text", str(text).encode(), f"{stem}/{name}").read()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_members_are_read_as_files_are(suffix: str) -> None:
    counters = Counters()
    found = read(pack(suffix, {**TEXTS}), f"box/novels{suffix}", counters)
    assert found == list(expected({**TEXTS}, "box/novels"))
    assert ids(found)[0] == "box/novels/shelf/Book 0"
    assert not counters.bad


def test_members_are_read_in_the_format_that_is_asked_for() -> None:
    config = IngestConfig(format="gutenberg")
    found = Source("archive", zipped({**TEXTS}), "novels.zip").read(config=config)
    assert {document.source for document in found} == {"gutenberg"}


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_all_methods_of_zip(method: int) -> None:
    assert read(zipped({**TEXTS}, method), "novels.zip") == list(expected({**TEXTS}, "novels"))


@pytest.mark.parametrize("range_bytes", [100, 1000, 3000])
def test_the_ranges_of_a_zip_give_each_member_once(range_bytes: int) -> None:
    rng = random.Random(0)
    texts = {
        f"{'long ' * 30}/{n}.txt": f"It is {n}, " + rng.randbytes(n * 20).hex() + "."
        for n in range(30)
    }
    content = zipped({**texts})
    source = Source("archive", content, "a.zip")
    ranges = source.plan(range_bytes)
    assert len(ranges) > 2
    assert ranges == source.plan(range_bytes)
    assert [part.stop for part in ranges] == [*(part.start for part in ranges[1:]), None]
    assert read(content, "a.zip", range_bytes=range_bytes) == read(content, "a.zip")
    assert len(read(content, "a.zip")) == 30


@pytest.mark.parametrize("suffix", [suffix for suffix in SUFFIXES if suffix != ".zip"])
def test_a_tar_is_one_range(suffix: str) -> None:
    source = Source("archive", pack(suffix, {**TEXTS}), f"a{suffix}")
    assert len(source.plan(range_bytes=100)) == 1


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_compressed_and_other_members(suffix: str) -> None:
    counters = Counters()
    files: Files = {
        "./a.txt.gz": gzip.compress(b"It is a, here."),
        "b.TXT": "It is b, here.",
        "c.txt.zst": zstd(b"It is c, here."),
        "._b.TXT": b"\0\5\x16\7",
        "cover.jpg": b"\xff\xd8",
    }
    assert ids(read(pack(suffix, files), f"x{suffix}", counters)) == ["x/a", "x/b", "x/c"]
    assert counters.counts["members_of_unknown_format"] == 2
    assert not counters.bad


def test_names_in_other_encodings_and_with_backslashes() -> None:
    content = tar({"caf?.txt": "It is a café."}, format=tarfile.GNU_FORMAT).replace(
        b"caf?", b"caf\xe9"
    )
    header = bytearray(content[:512])
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    assert ids(read(bytes(header) + content[512:], "a.tar")) == ["a/caf\\xe9"]
    assert ids(read(zipped({"shelf\\Emma.txt": "It is Emma."}), "a.zip")) == ["a/shelf/Emma"]


@pytest.mark.parametrize("suffix", [".tar", ".zip"])
@pytest.mark.parametrize(
    "name", ["../evil.txt", "a/../../evil.txt", "/etc/evil.txt", "C:\\evil.txt", "a/.."]
)
def test_members_that_point_elsewhere(suffix: str, name: str) -> None:
    counters = Counters()
    found = read(pack(suffix, {name: "Evil is here.", **TEXTS}), f"x{suffix}", counters)
    assert len(found) == 5
    assert dict(counters.bad) == {"unsafe_member": 1}
    assert counters.examples["unsafe_member"] == [
        f"x{suffix}: {name.replace(chr(92), '/') if suffix == '.zip' else name}"
    ]


def test_links_and_devices_in_a_tar() -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, kind in {
            "sym.txt": tarfile.SYMTYPE,
            "hard.txt": tarfile.LNKTYPE,
            "dev.txt": tarfile.CHRTYPE,
        }.items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
        info = tarfile.TarInfo("folder")
        info.type = tarfile.DIRTYPE
        archive.addfile(info)
    whole = content.getvalue()[:2048] + tar({**TEXTS})
    counters = Counters()
    assert len(read(whole, "a.tar", counters)) == 5
    assert dict(counters.bad) == {"link_or_device_member": 3}


def test_links_in_a_zip() -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        link = zipfile.ZipInfo("link.txt")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd is where it leads.")
    counters = Counters()
    assert read(content.getvalue(), "a.zip", counters) == []
    assert dict(counters.bad) == {"link_or_device_member": 1}


def test_an_encrypted_and_a_damaged_member_cost_only_themselves() -> None:
    content = bytearray(zipped({**TEXTS}, zipfile.ZIP_STORED))
    content[content.index(b"This is book 1")] ^= 1
    central = content.index(b"PK\1\2")
    content[central + 8] |= 1
    counters = Counters()
    assert ids(read(bytes(content), "a.zip", counters)) == [
        f"a/shelf/Book {number}" for number in (2, 3, 4)
    ]
    assert dict(counters.bad) == {"encrypted_member": 1, "damaged_member": 1, "no_text": 1}
    assert counters.examples["encrypted_member"] == ["a.zip: shelf/Book 0.txt"]
    assert counters.examples["damaged_member"][0].startswith("a.zip: shelf/Book 1.txt: Bad CRC-32")


def test_a_member_whose_header_is_damaged_and_one_of_an_unknown_method() -> None:
    content = bytearray(zipped({**TEXTS}))
    content[0] ^= 1
    second = content.index(b"PK\1\2", content.index(b"PK\1\2") + 4)
    content[second + 10] = 97
    counters = Counters()
    assert len(read(bytes(content), "a.zip", counters)) == 3
    assert dict(counters.bad) == {"damaged_member": 1, "unsupported_member": 1}


@pytest.mark.parametrize("cut", [200, 512 + 30, 1024, 1024 + 542, 2048 + 100, 5000])
def test_a_tar_that_is_cut_off_gives_what_is_before(cut: int) -> None:
    whole = list(expected({**TEXTS}, "a"))
    counters = Counters()
    found = read(tar({**TEXTS})[:cut], "a.tar", counters)
    assert [document.id for document in found] == ids(whole[: (cut - 512 + 1023) // 1024])
    assert found[: cut // 1024] == whole[: cut // 1024]
    assert dict(counters.bad) == {"not_an_archive" if cut < 512 else "damaged_archive": 1}


@pytest.mark.parametrize(
    "suffix", [suffix for suffix in SUFFIXES if suffix not in (".tar", ".zip")]
)
def test_a_compressed_tar_that_is_cut_off_gives_what_is_before(suffix: str) -> None:
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghij", k=5)) for _ in range(180_000)]
    files: Files = {
        f"{n}.txt": " ".join(words[n * 18_000 : (n + 1) * 18_000]) + "." for n in range(10)
    }
    content = pack(suffix, files)
    counters = Counters()
    found = read(content[: len(content) * 3 // 4], f"a{suffix}", counters)
    assert ids(found)[:5] == [f"a/{n}" for n in range(5)]
    assert len(found) < 10
    assert dict(counters.bad) == {"corrupt_file": 1}


def test_a_damaged_header_costs_what_comes_after_it() -> None:
    content = bytearray(tar({**TEXTS}))
    content[2048 + 5] ^= 1
    for range_bytes in (ONE_RANGE, 500, 1500, 2500):
        counters = Counters()
        assert ids(read(bytes(content), "a.tar", counters, range_bytes)) == [
            "a/shelf/Book 0",
            "a/shelf/Book 1",
        ]
        assert counters.examples == {
            "damaged_archive": ["a.tar, after shelf/Book 1.txt: no header and no end mark follow"]
        }


def test_what_follows_the_end_mark_is_counted() -> None:
    counters = Counters()
    assert ids(
        read(tar({"a.txt": "It is a."}) + tar({"b.txt": "It is b."}), "a.tar", counters)
    ) == ["a/a"]
    assert counters.examples == {
        "damaged_archive": ["a.tar, after a.txt: data follow the end mark"]
    }


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    "content", [b"", b"This is only text, not what its name says.\n" * 40, b"\xff" * 3000]
)
def test_a_file_that_is_not_an_archive_is_counted(suffix: str, content: bytes) -> None:
    for range_bytes in (ONE_RANGE, 100):
        counters = Counters()
        assert read(content, f"a{suffix}", counters, range_bytes) == []
        assert sum(counters.bad.values()) == 1
        assert set(counters.bad) <= {"not_an_archive", "corrupt_file"}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_archive_without_text_is_counted(suffix: str) -> None:
    for files in ({}, {"a.jpg": b"\xff\xd8"}):
        counters = Counters()
        assert read(pack(suffix, files), f"a{suffix}", counters) == []
        assert counters.examples["archive_without_text"] == [f"a{suffix}"]


@pytest.mark.parametrize("suffix", [".tar.gz", ".tar.xz", ".zip"])
def test_a_member_that_expands_beyond_measure(suffix: str) -> None:
    counters = Counters()
    bomb = b"It expands beyond measure.\n" + b" " * 18_000_000
    found = read(pack(suffix, {"bomb.txt": bomb, **TEXTS}), f"a{suffix}", counters)
    assert ids(found)[-5:] == [f"a/shelf/Book {number}" for number in range(5)]
    assert dict(counters.bad) == {"compression_bomb": 1}
    assert counters.examples["compression_bomb"][0].startswith(f"a{suffix}: bomb.txt")


@pytest.mark.parametrize("suffix", [".tar", ".zip"])
def test_a_compressed_member_that_expands_beyond_measure(suffix: str) -> None:
    counters = Counters()
    bomb = gzip.compress(b"It expands beyond measure.\n" + b" " * 18_000_000)
    found = read(pack(suffix, {"bomb.txt.gz": bomb, **TEXTS}), f"a{suffix}", counters)
    assert ids(found)[-5:] == [f"a/shelf/Book {number}" for number in range(5)]
    assert dict(counters.bad) == {"compression_bomb": 1}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_archive_that_expands_beyond_measure(
    suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "ARCHIVE_ALLOWANCE", 2_250_000)
    bomb = gzip.compress(b"It expands.\n" + b" " * 500_000)
    files: Files = {f"{n}.txt.gz": bomb for n in range(100)}
    counters = Counters()
    content = pack(suffix, files)
    found = read(content, f"a{suffix}", counters)
    assert 4 <= len(found) <= 70
    assert dict(counters.bad) == {"compression_bomb": 1}


def test_hostile_headers_end_soon() -> None:
    def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
        info = tarfile.TarInfo(name)
        info.size, info.type = size, kind
        return info.tobuf(tarfile.GNU_FORMAT)

    for first in (
        header("a.txt", -1024),
        header("huge", 1 << 80),
        header("x", -(ONE_RANGE), tarfile.GNUTYPE_LONGNAME),
    ):
        for compressor in (bytes, gzip.compress):
            counters = Counters()
            read(
                compressor(tar({"ok.txt": "It is fine."})[:1024] + first + tar({**TEXTS})),
                "a.tar.gz" if compressor is gzip.compress else "a.tar",
                counters,
            )
            assert counters.bad["damaged_archive"] == 1
    counters = Counters()
    read(header("x", 10, tarfile.GNUTYPE_LONGNAME) * 5000, "a.tar", counters)
    assert sum(counters.bad.values()) == 1


def test_memory_does_not_grow_with_the_archive() -> None:
    rng = random.Random(2)
    line = " ".join("".join(rng.choices("abcdefghij", k=5)) for _ in range(4000)) + ".\n\n"

    def peak(num_members: int) -> int:
        content = gzip.compress(tar({f"{n}.txt": line * 20 for n in range(num_members)}), 1)
        tracemalloc.start()
        assert sum(1 for _ in Source("archive", content, "a.tar.gz").read()) == num_members
        found = tracemalloc.get_traced_memory()[1] - len(content)
        tracemalloc.stop()
        return found

    assert peak(40) < 1.2 * peak(8)


@given(
    st.binary(max_size=2000), st.sampled_from(SUFFIXES), st.integers(0, 6000), st.integers(0, 255)
)
def test_any_damage_is_read_or_counted(junk: bytes, suffix: str, offset: int, bits: int) -> None:
    read(junk, f"a{suffix}")
    content = bytearray(pack(suffix, {**TEXTS}))
    content[offset % len(content)] ^= bits
    content[offset:offset] = junk[:40]
    counters = Counters()
    found = read(bytes(content), f"a{suffix}", counters)
    assert found or counters.bad
    assert len(set(ids(found))) == len(found)


@needs_shared_data
def test_the_novels_are_read_from_their_archive() -> None:
    path = DATA / "books" / "novels.tar.gz"
    documents = Source("archive", path, "novels.tar.gz").read()
    with tarfile.open(path) as archive:
        for member in iter(archive.next, None):
            if not member.isfile():
                continue
            stream = archive.extractfile(member)
            assert stream is not None
            document = next(documents)
            assert document.id == f"novels/{member.name.removesuffix('.txt')}"
            assert 0.95 < sum(map(len, document.paragraphs)) / member.size <= 1
            if document.id > "novels/novels/Barclay":
                break


def test_of_joined_zips_the_first_is_counted_as_lost() -> None:
    for before, bad in (
        (zipped({"a.txt": "It is a."}), {"damaged_archive": 1}),
        (b"#!/bin/sh", {}),
    ):
        counters = Counters()
        assert ids(read(before + zipped({"b.txt": "It is b."}), "a.zip", counters)) == ["a/b"]
        assert counters.bad == bad


def test_a_zip_without_its_first_bytes_counts_the_member_that_they_cost(tmp_path: Path) -> None:
    # On disk: to seek before the beginning is another error there than in memory.
    path = tmp_path / "a.zip"
    path.write_bytes(zipped({**TEXTS})[10:])
    counters = Counters()
    found = ids(Source("archive", path, "a.zip").read(counters))
    assert len(found) == len(TEXTS) - 1
    assert counters.bad == {"damaged_member": 1}
