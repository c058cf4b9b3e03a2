"""Sources: which files a command names, their formats, and how they are cut into units."""

import bz2
import gzip
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clozeworks.pipeline.config import IngestConfig
from clozeworks.pipeline.counters import Counters
from clozeworks.pipeline.errors import RunError, UserError
from clozeworks.pipeline.sources.formats import MIN_RANGE_BYTES, find_inputs, plan_units, read_range

AUTO = IngestConfig()
PROSE = "Almonds are a rich source of oil, as several studies have shown."
TEXT = f"{PROSE} {PROSE}\n".encode()
LINE = json.dumps({"text": PROSE}).encode() + b"\n"
DOC = (
    f'<doc id="1" url="https://en.wikipedia.org/wiki?curid=1" title="A">\nA\n\n{PROSE}\n\n</doc>\n'
).encode()
DUMP = (
    b'<mediawiki xml:lang="en"><siteinfo><dbname>enwiki</dbname></siteinfo>'
    b"<page><title>A</title><ns>0</ns><id>5</id>"
    b"<revision><text>" + PROSE.encode() + b"</text></revision></page></mediawiki>"
)


def write(path: Path, content: bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return str(path)


def formats(folder: Path, config: IngestConfig = AUTO) -> tuple[dict[str, str], int]:
    inputs, left_out = find_inputs([str(folder)], str(folder.parent / "out"), config)
    known = {entry.name.removeprefix(f"{folder.name}/"): entry.format for entry in inputs}
    return known, left_out.counts["files_of_unknown_format"]


FILES = {
    "enwiki-20231101-pages-articles.xml": (DUMP, "wikipedia"),
    "enwiki-20231101-pages-articles1.xml-p1p41242.bz2": (bz2.compress(DUMP), "wikipedia"),
    "enwiki-pages-articles-multistream-index1.txt-p1p41242.bz2": (bz2.compress(b"600:1:A\n"), None),
    "enwiki-pages-articles-multistream-index.txt.bz2": (bz2.compress(b"600:1:A\n"), None),
    "enwiki-20240101-md5sums.txt": (TEXT, None),
    "enwiki-20240101-sha1sums.json": (LINE, None),
    "SHA256SUMS": (LINE, None),
    "dumpstatus.json": (LINE, None),
    "dumpruninfo.txt": (TEXT, None),
    "enwiki-20240101-siteinfo-namespaces.json.gz": (gzip.compress(LINE), None),
    "enwiki-latest-pages-articles.xml.bz2-rss.xml": (DUMP, None),
    "enwiki-20240101-stub-articles.xml-p1p20.gz": (gzip.compress(DUMP), None),
    "checksums-explained.txt": (TEXT, "text"),
    "dump": (b'<?xml version="1.0"?>\n' + DUMP, "wikipedia"),
    "AA/wiki_00": (DOC, "wikiextractor"),
    "AA/wiki_01.bz2": (bz2.compress(DOC), "wikiextractor"),
    "AA/wiki_02": (LINE, "jsonl"),
    "Emma.TXT": (TEXT, "text"),
    "pg11.txt.utf-8": (TEXT, "text"),
    "Persuasion.txt.gz": (gzip.compress(TEXT), "text"),
    "part.jsonl": (LINE, "jsonl"),
    "part-1.ndjson.gz": (gzip.compress(LINE), "jsonl"),
    "part-2.json.zst": (pa.compress(LINE, "zstd", asbytes=True), "jsonl"),
    "long.json": (b'{"text": "' + b"x" * 200_000 + b'"}\n', "jsonl"),
    "state.json": (json.dumps({"a": 1}, indent=1).encode(), None),
    "squad.json": (json.dumps([1, 2]).encode(), None),
    "part-00000": (LINE, "jsonl"),
    "part-00001.gz": (gzip.compress(LINE), "jsonl"),
    "README": (TEXT, None),
    "cover.jpg": (LINE, None),
    "broken.bz2": (b"no bz2", None),
}


def test_formats_are_known_by_name_or_by_the_first_bytes(tmp_path: Path):
    for name, (content, _) in FILES.items():
        write(tmp_path / "all" / name, content)
    found, left_out = formats(tmp_path / "all")
    assert found == {name: kind for name, (_, kind) in FILES.items() if kind}
    assert left_out == sum(1 for _, kind in FILES.values() if not kind)


def test_format_says_what_names_do_not(tmp_path: Path):
    write(tmp_path / "all" / "a.md", TEXT)
    assert formats(tmp_path / "all", IngestConfig(format="text")) == ({"a.md": "text"}, 0)
    assert formats(tmp_path / "all", IngestConfig(format="jsonl"))[0] == {"a.md": "jsonl"}


def read_all(sources: list[str], config: IngestConfig = AUTO) -> tuple[Counter[str], Counters]:
    """Return the sources of the documents that sources hold, counted."""
    inputs, _ = find_inputs(sources, "/nowhere/out", config)
    counters = Counters()
    parts = [part for unit in plan_units(inputs, config) for part in unit]
    return Counter(
        document.source for part in parts for document in read_range(part, config, counters)
    ), counters


def test_all_forms_are_mixed_in_one_command_each_with_its_source(tmp_path: Path):
    write(tmp_path / "dumps" / "enwiki-articles1.xml-p1p9.bz2", bz2.compress(DUMP))
    write(tmp_path / "dumps" / "enwiki-articles2.xml-p10p19.bz2", bz2.compress(DUMP))
    write(tmp_path / "text" / "AA" / "wiki_00", DOC.replace(b"en.wiki", b"ko.wiki"))
    write(tmp_path / "books" / "Emma.txt.gz", gzip.compress(TEXT))
    write(tmp_path / "lines.jsonl", LINE * 3)
    pq.write_table(pa.table({"text": [PROSE]}), tmp_path / "table.parquet")
    datasets.Dataset.from_list([{"text": PROSE, "label": 1}] * 2).save_to_disk(tmp_path / "saved")
    names = ["dumps/*.bz2", "text", "books/", "lines.jsonl", "table.parquet", "saved"]
    found, counters = read_all([f"{tmp_path}/{name}" for name in names])
    assert found == {"enwiki": 2, "kowiki": 1, "text": 1, "jsonl": 3, "parquet": 1, "saved": 2}
    assert not counters.bad
    assert (
        read_all([f"hf:{tmp_path}/saved"])[0]
        == read_all([f"{tmp_path}/saved"], IngestConfig(format="hf"))[0]
    )


def test_empty_files_are_counted(tmp_path: Path):
    for name in ("a.txt", "b.jsonl", "c.parquet", "d.xml", "e.xml.bz2"):
        write(tmp_path / "all" / name, b"")
    write(tmp_path / "all" / "g.txt", TEXT)
    found, counters = read_all([f"{tmp_path}/all"])
    assert found == {"text": 1}
    assert counters.bad == {"empty_file": 5}
    assert counters.examples["empty_file"] == ["all/a.txt", "all/b.jsonl", "all/c.parquet"]


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (["all/a.txt", "all/a.txt"], "all/a.txt is listed twice among the sources"),
        (["all", "all/a.txt"], "all/a.txt is listed twice among the sources"),
        (["all/*.txt", "all"], "is listed twice among the sources"),
        (["all/a.txt", "link.txt"], "link.txt is listed twice among the sources"),
        (["saved", "hf:saved"], "saved:train is listed twice among the sources"),
        (["all/a.txt", "other/a.txt"], "^other/a.txt and all/a.txt have the same name .*: rename"),
        (["all/b.txt", "twins/b.txt.utf-8"], "^twins/b.txt.utf-8 and all/b.txt have the same name"),
        (["twins"], "^twins/a.ndjson.gz and twins/a.json have the same name but for suffixes"),
        (["empty"], "The folder empty is empty."),
        (["nothing.txt"], "nothing.txt does not exist"),
        (["all/nothing*"], "nothing\\* matches no file"),
        (["packed"], r"^packed/a.tar.gz is an archive: unpack it \(tar xf a.tar.gz\) and give the"),
        (["a b.ZIP"], r"^a b.ZIP is an archive: unpack it \(unzip 'a b.ZIP'\) and give the"),
        (["pictures"], "pictures: no file in a known format"),
        (["all/README"], "^all/README: no file in a known format, only 1 x files of unknown"),
        (["stages/v"], r"^stages/v holds a vocabulary, written by `clozeworks vocab`, not texts:"),
        (["stages"], r"^stages/i holds instances, written by `clozeworks build`, not texts"),
        (["hf:all"], r"`output` \S*out is inside the source hf:all, or contains it: "),
        (["all"], r"`output` \S*out is inside the source all, or contains it: "),
        (["out"], "^`output` out is inside the source out, or contains it: choose another"),
        (["out/a.txt"], "^`output` out is inside the source out/a.txt, or contains it: "),
    ],
)
def test_mistakes_of_the_user(tmp_path: Path, monkeypatch, sources: list[str], message: str):
    monkeypatch.chdir(tmp_path)
    for name in (
        "all/a.txt",
        "all/b.txt",
        "other/a.txt",
        "all/README",
        "out/a.txt",
        "pictures/a.jpg",
        "packed/a.tar.gz",
        "packed/a.txt",
        "a b.ZIP",
        "twins/b.txt.utf-8",
    ):
        write(tmp_path / name, TEXT)
    for name in ("a.csv", "a.json", "a.ndjson.gz"):
        write(tmp_path / "twins" / name, LINE)
    for name, stage in (("v", "vocab"), ("i", "build")):
        made_from = [{"stage": "ingest", "digest": "0"}]
        manifest = {"inputs": made_from, "stage": stage, "versions": {"clozeworks": "1"}}
        write(tmp_path / "stages" / name / "manifest.json", json.dumps(manifest).encode())
        write(tmp_path / "stages" / name / "vocab.txt", TEXT)
    (tmp_path / "empty").mkdir()
    (tmp_path / "link.txt").symlink_to(tmp_path / "all" / "a.txt")
    datasets.Dataset.from_list([{"text": PROSE}]).save_to_disk("saved")
    with pytest.raises(UserError, match=message):
        find_inputs(
            sources,
            "all/out" if sources[0] in ("all", "hf:all") and len(sources) == 1 else "out",
            AUTO,
        )


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path):
    write(Path(f"{tmp_path}/all/caf\udce9.txt"), TEXT)
    with pytest.raises(UserError, match=r"all/caf\\xe9.txt' is not a valid UTF-8 file name"):
        find_inputs([f"{tmp_path}/all"], "out", AUTO)


def test_units_are_of_similar_size_and_hold_every_range_once(tmp_path: Path):
    write(tmp_path / "all" / "a.jsonl", b"")
    write(tmp_path / "all" / "big.jsonl", LINE * 160_000)
    for number in range(200):
        write(tmp_path / "all" / f"small-{number}.txt", TEXT * 20)
    inputs, _ = find_inputs([f"{tmp_path}/all"], f"{tmp_path}/out", AUTO)
    units = plan_units(inputs, AUTO)
    ranges: list[Any] = [part for unit in units for part in unit]
    assert len(set(ranges)) == len(ranges)
    assert {part.name for part in ranges} == {entry.name for entry in inputs}
    assert max(sum(part.num_bytes for part in unit) for unit in units) <= 2 * MIN_RANGE_BYTES
    assert len(units) < 40


def test_what_is_not_read_in_a_folder_is_counted_by_name(tmp_path: Path, monkeypatch):
    folder = tmp_path / "all"
    hidden = (".hidden.txt", ".git/c.txt", "sub/_SUCCESS")
    for name in ("a.txt", "sub/b.txt", *hidden, "locked/d.txt", "picture.jpg"):
        write(folder / name, TEXT)
    write(tmp_path / "all-other" / "e.txt", TEXT)
    (folder / "file-link.txt").symlink_to(folder / "sub" / "_SUCCESS")
    (folder / "link-to-a.txt").symlink_to(folder / "a.txt")
    (folder / "link-out.txt").symlink_to(tmp_path / "all-other" / "e.txt")
    (folder / "folder-link").symlink_to(tmp_path / "all-other")
    (folder / "sub" / "loop").symlink_to(folder)
    (folder / "broken.txt").symlink_to(tmp_path / "nothing")
    os.mkfifo(folder / "pipe.txt")
    scandir = os.scandir

    def refuse(path: str) -> Any:
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    inputs, left_out = find_inputs([str(folder)], None, AUTO)
    assert [entry.name for entry in inputs] == ["all/a.txt", "all/file-link.txt", "all/sub/b.txt"]
    assert left_out.to_record() == {
        "counts": {
            "files_of_unknown_format": 1, "hidden_files": 3, "linked_files": 1, "linked_folders": 2,
            "links_out_of_folder": 1, "special_files": 1,
        },
        "bad": {"broken_link": 1, "unreadable_folder": 1},
        "examples": {
            "broken_link": ["all/broken.txt"],
            "files_of_unknown_format": ["all/picture.jpg"],
            "hidden_files": ["all/.git", "all/.hidden.txt", "all/sub/_SUCCESS"],
            "linked_files": ["all/link-to-a.txt"],
            "linked_folders": ["all/folder-link", "all/sub/loop"],
            "links_out_of_folder": ["all/link-out.txt"],
            "special_files": ["all/pipe.txt"],
            "unreadable_folder": ["all/locked"],
        },
    }  # fmt: skip
    for name in ("pipe.txt", "broken.txt"):
        with pytest.raises(UserError, match=f"{name}: no file in a known format"):
            find_inputs([str(folder / name)], None, AUTO)
    assert find_inputs([str(folder / "link-out.txt")], None, AUTO)[0]
    # Globs of folders leave out no less; what lies beside a manifest of others is read.
    write(folder / "manifest.json", b'{\n "name": "my reviews"\n}\n')
    write(folder / "bad" / "reviews.txt", TEXT)
    for pattern in ("a*l", "al*/**"):
        inputs, left_out = find_inputs([f"{tmp_path}/{pattern}"], None, AUTO)
        assert str(folder / "bad" / "reviews.txt") in [entry.path for entry in inputs]
        assert left_out.counts["links_out_of_folder"] == 1
        assert left_out.counts["files_of_unknown_format"] == 2


@pytest.mark.parametrize("suffix", ["txt", "jsonl", "parquet", "xml"])
@pytest.mark.parametrize("change", ["shrinks", "is replaced", "vanishes", "becomes a folder"])
def test_a_source_that_changes_while_it_is_read_ends_the_run(
    tmp_path: Path, suffix: str, change: str
):
    file = tmp_path / f"a.{suffix}"
    content = {"txt": TEXT, "jsonl": LINE, "xml": DUMP}.get(suffix, b"")
    file.write_bytes(2 * content)
    if suffix == "parquet":
        pq.write_table(pa.table({"text": [PROSE]}), file)
    inputs, _ = find_inputs([str(file)], None, AUTO)
    [unit] = plan_units(inputs, AUTO)
    if change == "shrinks":
        os.truncate(file, file.stat().st_size // 2)
    elif change == "is replaced":
        other = tmp_path / "other"
        other.write_bytes(file.read_bytes())  # of equal size and content, but who knows
        other.replace(file)
    else:
        file.unlink()
    if change == "becomes a folder":
        file.mkdir()
    with pytest.raises(RunError, match=rf"a\.{suffix} was changed or removed while it was read"):
        list(read_range(unit[0], AUTO, Counters()))
