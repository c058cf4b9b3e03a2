"""Lines repeated across documents: the oracle counts them in plain Python, from the rows that
ingest reads.
"""

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clozeworks.pipeline.config import IngestConfig, RunOptions
from clozeworks.pipeline.documents import layout, pipeline, repeated_lines, scatter
from clozeworks.pipeline.documents.clean import cut_out
from clozeworks.pipeline.documents.explain import explain
from clozeworks.pipeline.documents.pipeline import ingest
from clozeworks.pipeline.documents.repeated_lines import LINES, find_repeated, hash_line
from clozeworks.pipeline.errors import RunError, UserError
from clozeworks.pipeline.execution import partitions, runner
from clozeworks.pipeline.execution.phases import do_unit, finished_units, read_plan
from clozeworks.pipeline.manifests import DocumentsManifest
from clozeworks.pipeline.seeding import stable_hash
from clozeworks.pipeline.storage.stage import StageDirectory
from hypothesis import given
from hypothesis import strategies as st

N = 5
CONFIG = IngestConfig(shards=2, validation_share=0.1, repeated_lines=N, min_characters=100)
ONE = RunOptions(workers=1)
IN_THREADS = ("--direct_running_mode=multi_threading",)
MENU = "Home. About us. Contact."
NOTICE = "© {} Low & Son: all rights reserved."


@pytest.mark.parametrize(
    "line, other, same",
    [
        ("Page 3 of 12.", "page 4 of 17", True),
        ("«Home» — News!", "home  news", True),
        ("२४ जून", "३१ जून", True),
        ("Page 3 of 12.", "Page 3 of 120.", False),
        ("resume", "résumé", False),
        ("की", "का", False),
        ("C", "C++", False),
    ],
)
def test_what_makes_lines_the_same(line: str, other: str, same: bool):
    assert (hash_line([line]) == hash_line([other])) == same


def test_sentences_are_compared_together():
    assert hash_line(["Yes.", "No."]) == hash_line(["Yes. No."]) != hash_line(["Yes."])


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=60),
    st.sets(st.integers(0, 6), max_size=3),
    st.integers(2, 5),
    st.integers(1, 20),
)
def test_lines_are_counted_in_bounded_memory(pairs, left_out, num_documents, batch_rows):
    batches = [
        pa.RecordBatch.from_pylist(
            [
                dict.fromkeys(LINES.names, 0) | {"line_hash": line, "text_hash": text}
                for line, text in part
            ],
            LINES,
        )
        for part in (
            pairs[start : start + batch_rows] for start in range(0, len(pairs), batch_rows)
        )
    ]
    counts = Counter(line for line, text in set(pairs) if text not in left_out)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeated_lines, "_PAIRS_HELD", 3)
        found = find_repeated(batches, np.array(sorted(left_out), np.uint64), num_documents)
    assert found.tolist() == sorted(
        line for line, count in counts.items() if count >= num_documents
    )


@given(st.lists(st.integers(1, 3), max_size=8), st.data())
def test_lines_are_cut_out(sizes: list[int], data: st.DataObject):
    names = [f"{line}.{sentence}" for line, size in enumerate(sizes) for sentence in range(size)]
    ends = np.cumsum([0, *sizes]).tolist()
    gone = data.draw(st.sets(st.sampled_from(range(len(sizes))))) if sizes else set()
    kept, removed = cut_out(names, {(ends[line], ends[line + 1]) for line in gone})
    assert kept == [name for name in names if int(name.partition(".")[0]) not in gone]
    assert removed == [names[ends[line] : ends[line + 1]] for line in sorted(gone)]


def lines_of(number: int) -> list[str]:
    """Return a document: own lines, and some that others have, too."""
    rng = random.Random(number)
    own = [
        f"This is about {''.join(rng.choices('abcdefg', k=20))}. It is line {line}."
        for line in range(4)
    ]
    rare = f"This is the line of {'abcdefghijklmnopqrstuvwxyz' * 2}"[: 30 + number // 3]
    shared = [MENU, NOTICE.format(1990 + number), f"{rare}.", "One of several: *.", "* * *"]
    chosen = [
        line
        for line, share in zip(shared, [0.6, 0.5, 0.9, 0.12, 0.3], strict=True)
        if rng.random() < share
    ]
    lines = [*chosen, *own, *chosen[:1]]
    # Little is left of some documents.
    return [*[MENU] * 6, f"Only this is mine: {own[0][14:34]}."] if number % 20 == 7 else lines


def write_rows(path: Path, num_documents: int = 120) -> tuple[str, dict[str, list[str]]]:
    documents = {str(number): lines_of(number) for number in range(num_documents)}
    # Copies of one text: what they share is not repeated.
    documents |= {f"copy-{number}": lines_of(0) for number in range(2 * N)}
    rows = ({"id": name, "text": "\n".join(lines)} for name, lines in documents.items())
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path), documents


def plain(line: str) -> str:
    return re.sub(r"\d", "0", re.sub(r"[^\w\s©+]", "", line.lower()))


def expected_of(documents: dict[str, list[str]]) -> tuple[dict[str, str], Counter[str]]:
    """Return the text of each different document, and what is counted."""
    distinct = {"\n".join(lines): lines for lines in documents.values()}
    counts = Counter(
        line for lines in distinct.values() for line in {plain(line) for line in lines}
    )
    repeated = {line for line, count in counts.items() if count >= N}
    assert {plain(MENU), plain(NOTICE.format(2000)), plain("* * *")} < repeated
    texts: dict[str, str] = {}
    counted: Counter[str] = Counter(duplicate_texts=len(documents) - len(distinct))
    for key, lines in distinct.items():
        kept = [line for line in lines if plain(line) not in repeated]
        gone = [line for line in lines if plain(line) in repeated]
        counted["repeated_lines"] += len(gone)
        counted["words_left_out_as_repeated_lines"] += sum(len(line.split()) for line in gone)
        if sum(map(len, kept)) >= 100:
            texts[key] = " ".join(kept)
        else:
            counted["documents_too_short"] += 1
            counted["words_left_out_as_documents_too_short"] += sum(
                len(line.split()) for line in kept
            )
    assert counted["documents_too_short"] >= 5
    return texts, counted


def rows_in(folder: Path, split: str = "*") -> list[dict[str, Any]]:
    return [
        row
        for path in sorted(folder.glob(f"{split}-*.parquet"))
        for row in pq.read_table(path).to_pylist()
    ]


def bytes_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*-of-*"))}


def test_repeated_lines_are_left_out_and_counted(tmp_path: Path):
    source, documents = write_rows(tmp_path / "rows.jsonl")
    manifest = ingest([source], str(tmp_path / "out"), CONFIG, ONE)
    texts, counted = expected_of(documents)
    assert sorted(" ".join(row["sentences"]) for row in rows_in(tmp_path / "out")) == sorted(
        texts.values()
    )
    assert {name: manifest.counts[name] for name in counted} == dict(counted)
    assert len(manifest.examples["repeated_lines"]) == 3
    for example in manifest.examples["repeated_lines"]:
        name, _, line = example.partition(": ")
        assert line in documents[name.removeprefix("jsonl:rows/")]
    assert sum(shard.split == "validation" and shard.rows >= 2 for shard in manifest.shards) == 1


def test_without_the_option_nothing_changes(tmp_path: Path):
    source, documents = write_rows(tmp_path / "rows.jsonl")
    config = IngestConfig(shards=2, validation_share=0.1)
    manifest = ingest([source], str(tmp_path / "out"), config, ONE)
    assert not [name for name in manifest.counts if "repeated_lines" in name]
    texts = {" ".join(row["sentences"]) for row in rows_in(tmp_path / "out")}
    assert texts <= {" ".join(lines) for lines in documents.values()} and len(texts) > 100


def test_near_duplicates_are_removed_first(tmp_path: Path):
    """A document of which there are many versions keeps its text once."""
    rng = random.Random(0)
    shared = [" ".join(f"w{rng.randrange(999)}" for _ in range(30)) + "." for _ in range(20)]
    texts = {
        f"version-{number}": [*shared, f"Version {'abcdefghij'[number]}."] for number in range(10)
    }
    texts |= {f"other-{number}": [*lines_of(number)[-5:], MENU] for number in range(1, 15)}
    rows = ({"id": name, "text": "\n".join(lines)} for name, lines in texts.items())
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = IngestConfig(shards=1, validation_share=0.1, repeated_lines=N, near_duplicates=0.8)
    manifest = ingest([str(tmp_path / "rows.jsonl")], str(tmp_path / "out"), config, ONE)
    assert manifest.counts["near_duplicates"] == 9
    (version,) = [row for row in rows_in(tmp_path / "out") if "version" in row["doc_id"]]
    assert version["sentences"][:-1] == shared
    assert not [row for row in rows_in(tmp_path / "out") if MENU in " ".join(row["sentences"])]


def run(
    source: str, output: Path, options: RunOptions = ONE
) -> tuple[DocumentsManifest, dict[str, bytes]]:
    manifest = ingest([source], str(output), CONFIG, options)
    assert not (output / ".work").exists()
    return manifest, bytes_in(output)


@pytest.mark.parametrize(
    "options",
    [RunOptions(workers=2), RunOptions(workers=2, beam_options=IN_THREADS)],
    ids=["processes", "Beam"],
)
def test_any_runner_makes_the_same_bytes(tmp_path: Path, options: RunOptions):
    source, _ = write_rows(tmp_path / "rows.jsonl")
    assert run(source, tmp_path / "one") == run(source, tmp_path / "other", options)


def test_parts_of_any_size_make_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source, _ = write_rows(tmp_path / "rows.jsonl")
    expected = run(source, tmp_path / "one")
    monkeypatch.setattr(scatter, "PART_TEXT_BYTES", 2000)
    monkeypatch.setattr(partitions, "PART_BYTES", 2000)
    monkeypatch.setattr(repeated_lines, "_PAIRS_HELD", 10)
    assert run(source, tmp_path / "other") == expected


@pytest.mark.parametrize("phase", ["lines", "clean", "gather"])
@pytest.mark.parametrize("num_done", [0, 1])
def test_a_run_that_ended_within_a_phase_resumes_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str, num_done: int
):
    source, _ = write_rows(tmp_path / "rows.jsonl")
    monkeypatch.setattr(pipeline, "LINES_PER_UNIT", 300)
    expected = run(source, tmp_path / "one")

    def stop_within(number: int, directory: StageDirectory, now: Any) -> None:
        if now.name == phase and len(finished_units(directory, now.name)) == num_done:
            now.work(
                directory, read_plan(directory, now)[number].payload
            )  # its files are there, its record is not
            raise MemoryError
        do_unit(number, directory, now)

    with monkeypatch.context() as patch, pytest.raises(RunError):
        patch.setattr(runner, "do_unit", stop_within)
        ingest([source], str(tmp_path / "out"), CONFIG, ONE)
    assert run(source, tmp_path / "out") == expected


def test_explain_shows_repeated_lines(tmp_path: Path):
    source, documents = write_rows(tmp_path / "rows.jsonl")
    texts, _ = expected_of(documents)
    names = [name for name, lines in documents.items() if MENU in lines]
    for name in (names[1], next(name for name in names if "\n".join(documents[name]) not in texts)):
        found = explain([source], f"jsonl:rows/{name}", CONFIG)
        assert " ".join(found.sentences) == texts.get("\n".join(documents[name]), "")
        left_out = [entry.text for entry in found.left_out if entry.reason == "repeated_lines"]
        assert left_out.count(MENU) == documents[name].count(MENU)
        assert ("documents_too_short" in {entry.reason for entry in found.left_out}) == (
            not found.sentences
        )


def test_splits_and_shards_follow_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    names = sorted(
        (f"{i}" for i in range(60)),
        key=lambda name: stable_hash(0, "validation", f"jsonl:rows/{name}"),
    )
    rng = random.Random(0)
    # The documents that would be held out are short without the menu.
    own = {
        name: "".join(rng.choices("abcdefg", k=20 if name in names[:6] else 200)) for name in names
    }
    rows = ({"id": name, "text": "\n".join([*[MENU] * 60, f"{own[name]}."])} for name in names)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(layout, "SHARD_TEXT_BYTES", 30_000)
    config = IngestConfig(validation_share=1e-9, repeated_lines=N)
    manifest = ingest([str(tmp_path / "rows.jsonl")], str(tmp_path / "out"), config, ONE)
    held_out = {row["doc_id"] for row in rows_in(tmp_path / "out", "validation")}
    assert held_out == {f"jsonl:rows/{name}" for name in names[6:8]}
    assert [shard.split for shard in manifest.shards] == [
        "train",
        "validation",
    ]  # 11 kB are left of 100 kB


def test_when_too_little_is_left_the_message_says_why(tmp_path: Path):
    rows = (
        {"id": number, "text": "\n".join([*[MENU] * 9, f"{'x' * number}."])} for number in range(9)
    )
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError, match=r"hold 0 documents.*Of 9 read, 9 are too short"):
        ingest([str(tmp_path / "rows.jsonl")], str(tmp_path / "out"), CONFIG, ONE)


def test_one_document_is_too_few_to_repeat():
    with pytest.raises(UserError, match="--repeated-lines is 1, but must be at least 2"):
        IngestConfig(repeated_lines=1)
