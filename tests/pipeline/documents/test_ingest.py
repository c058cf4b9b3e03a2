"""Ingest: parts, duplicates across sources, shard sizes, validation, and a full disk."""

import hashlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clozeworks.pipeline.config import IngestConfig, RunOptions
from clozeworks.pipeline.counters import Counters
from clozeworks.pipeline.documents import layout, scatter, shard_plan
from clozeworks.pipeline.documents.pipeline import ingest
from clozeworks.pipeline.documents.scatter import select_sentences
from clozeworks.pipeline.errors import RunError, UserError
from clozeworks.pipeline.execution import temporary
from clozeworks.pipeline.execution.job import Job, Phase
from clozeworks.pipeline.memory import cut_by_size
from clozeworks.pipeline.seeding import stable_hash
from clozeworks.pipeline.sources import formats
from clozeworks.pipeline.sources.formats import read_documents
from hypothesis import given
from hypothesis import strategies as st

CONFIG = IngestConfig(shards=2, validation_share=0.1)
ONE = RunOptions(workers=1)
PHASES = ("scatter", "deduplicate", "gather")


def write_texts(folder: Path, texts: dict[str, str]) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text)
    return str(folder)


def text_of(number: int, sentences: int = 20) -> str:
    rng = random.Random(number)
    return " ".join(
        f"Text {number} tells of {rng.randrange(10**6)} things." for _ in range(sentences)
    )


def digests(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.glob("*-of-*"))
    }


def rows_in(documents: Path, split: str = "*") -> Iterator[dict[str, Any]]:
    for path in sorted(documents.glob(f"{split}-*.parquet")):
        yield from pq.read_table(path).to_pylist()


def kept_of(*names: str) -> str:
    return min(
        (f"text:{name}" for name in names), key=lambda doc_id: stable_hash(0, "document", doc_id)
    )


@pytest.mark.parametrize("field", ["templates", "abbreviations"])
def test_wrong_rules_of_the_user_are_refused_whatever_the_sources(tmp_path: Path, field: str):
    source = write_texts(tmp_path / "texts", {"a": text_of(0)})
    config = replace(CONFIG, **{field: "[other"})
    with pytest.raises(UserError, match=f"`{field}` is not a TOML file"):
        ingest([source], str(tmp_path / "out"), config, ONE)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_short_text_does_not_wait_for_what_it_does_not_need(tmp_path: Path):
    for name in "abcde":
        (tmp_path / f"{name}.txt").write_text(f"This is the text of {name}. " * 20)
    code = """if True:
        import sys
        from clozeworks.cli.main import main
        try:
            main(["ingest", *sys.argv[1:], "--output", "out", "--min-characters", "9"])
        except SystemExit as end:
            assert not end.code
        late = {"pyarrow.compute", "pandas", "clozeworks.cli.pretrain"}
        print(late & set(sys.modules), file=sys.stderr)
    """
    names = [f"{name}.txt" for name in "abcde"]
    ended = subprocess.run([sys.executable, "-c", code, *names], cwd=tmp_path, capture_output=True)
    assert ended.stderr.endswith(b"give --language for them.\nset()\n")


def test_language_of_each_document_and_sums(tmp_path: Path):
    rows = [
        {"id": str(i), "url": url, "text": text_of(i, 10 + i)}
        for i, url in enumerate(
            ["https://en.wikipedia.org/wiki/A", "https://simple.wikipedia.org/wiki/B", ""] * 8
        )
    ]
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = IngestConfig(shards=2, validation_share=0.1)
    manifest = ingest([str(source)], str(tmp_path / "documents"), config, ONE)
    documents = list(rows_in(tmp_path / "documents"))
    expected = {"enwiki": "en", "simplewiki": "en", "jsonl": "und"}
    assert len(documents) == 24
    assert {(row["source"], row["language"]) for row in documents} == set(expected.items())
    assert manifest.languages == {"en": 16, "und": 8}
    for shard in manifest.shards:
        own = pq.read_table(tmp_path / "documents" / shard.name).to_pylist()
        for group in shard.groups:
            assert group.language == expected[group.source]
            texts = [row["sentences"] for row in own if row["source"] == group.source]
            assert (group.documents, group.characters) == (
                len(texts),
                sum(len(s) for text in texts for s in text),
            )
        assert sum(group.documents for group in shard.groups) == shard.rows == len(own)
    named = ingest([str(source)], str(tmp_path / "korean"), replace(config, language="ko"), ONE)
    # Only of documents whose source does not name one.
    assert named.languages == {"en": 16, "ko": 8}


@pytest.mark.parametrize("name", ["books/a.txt", "rows.jsonl", "sentences.parquet", "wiki_00"])
def test_a_character_that_looks_like_a_gap_costs_no_sentence(tmp_path: Path, name: str):
    lines = [
        f"The logo number {i} \ufffcof the old firm was on the wall of the town hall."
        for i in range(9)
    ]
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    if name.endswith(".parquet"):
        pq.write_table(pa.table({"text": lines}), path)
    elif name == "rows.jsonl":
        path.write_text(json.dumps({"text": "\n".join(lines)}) + "\n")
    elif name == "wiki_00":
        text = "\n".join(lines).replace("\ufffc", "&#xFFFC;")
        url = "https://en.wikipedia.org/wiki?curid=1"
        path.write_text(f'<doc id="1" url="{url}" title="A">\nA\n\n{text}\n</doc>\n')
    else:
        path.write_text("\n".join(lines))
    counters = Counters()
    config = IngestConfig(documents="sentence" if name == "sentences.parquet" else "auto")
    (raw,) = read_documents(str(path), config, counters)
    sentences = select_sentences(raw, config, counters)
    assert sentences == [line.replace("\ufffc", "") for line in lines]
    assert counters.counts["sentences_with_gaps"] == 0


@pytest.mark.parametrize(
    ("line", "config", "is_noted"),
    [
        ("A click on a link opens window", IngestConfig(), True),
        ("A click on a link opens window", IngestConfig(keep_lines=True), False),
        ("A click on a link opens a window.", IngestConfig(), False),
    ],
)
def test_a_text_with_an_item_on_each_line_is_noted(tmp_path, line, config, is_noted):
    (tmp_path / "items.txt").write_text("\n".join("very " * (i % 9) + line for i in range(200)))
    counters = Counters()
    (raw,) = read_documents(str(tmp_path / "items.txt"), config, counters)
    select_sentences(raw, config, counters)
    assert counters.counts["texts_without_sentences"] == is_noted


@given(st.lists(st.integers(1, 50), max_size=30), st.integers(1, 100))
def test_parts_hold_what_is_asked_for(sizes: list[int], part_bytes: int):
    parts = list(cut_by_size(sizes, int, part_bytes))
    assert [size for part in parts for size in part] == sizes
    assert all(sum(part[:-1]) < part_bytes for part in parts)
    assert all(sum(part) >= part_bytes for part in parts[:-1])


@pytest.mark.parametrize("reverse", [False, True])
def test_of_equal_texts_in_several_sources_one_stays(tmp_path, monkeypatch, reverse: bool):
    monkeypatch.setattr(scatter, "PART_TEXT_BYTES", 1500)
    ours = {f"{i}": text_of(i) for i in range(20)}
    wrapped = {f"copy-{i}": text_of(i).replace(". ", ".\n") for i in range(5)}
    sources = [
        write_texts(tmp_path / "ours", ours),
        write_texts(tmp_path / "theirs", {**wrapped, "own": text_of(77)}),
    ]
    manifest = ingest(sources[:: -1 if reverse else 1], str(tmp_path / "out"), CONFIG, ONE)
    kept = {kept_of(f"ours/{i}", f"theirs/copy-{i}") for i in range(5)}
    assert {row["doc_id"] for row in rows_in(tmp_path / "out")} == {
        *kept, "text:theirs/own", *(f"text:ours/{i}" for i in range(5, 20))
    }  # fmt: skip
    assert manifest.counts["duplicate_texts"] == 5
    for line in manifest.examples["duplicate_texts"]:
        gone, stays = line.split(" repeats ")
        assert stays in kept and gone not in kept and gone[-1] == stays[-1]


def test_no_text_is_in_both_splits_and_validation_has_a_tenth_however_many_go(tmp_path):
    # The documents that would be for validation, those with the lowest hashes, are copies of
    # others.
    names = sorted(
        (f"{i}" for i in range(200)),
        key=lambda name: stable_hash(0, "validation", f"text:texts/{name}"),
    )
    by_hash = sorted(names[:160], key=lambda name: stable_hash(0, "document", f"text:texts/{name}"))
    copies = [name for name in names[:6] if name not in by_hash[:8]]
    texts = {name: text_of(int(name)) for name in names} | {
        name: text_of(int(by_hash[0])) for name in copies
    }
    source = write_texts(tmp_path / "texts", texts)
    config = IngestConfig(validation_share=1e-9)
    manifest = ingest([source], str(tmp_path / "out"), config, ONE)
    train, validation = (
        [row["doc_id"] for row in rows_in(tmp_path / "out", split)]
        for split in ("train", "validation")
    )
    assert len(copies) >= 3
    num_kept = 200 - len(copies)
    num_held_out = num_kept // 10
    expected = [f"text:texts/{name}" for name in names if name not in copies][:num_held_out]
    assert sorted(validation) == sorted(expected)
    assert len(train) == num_kept - num_held_out and not {*train} & {*validation}
    assert manifest.counts["duplicate_texts"] == len(copies)


def test_a_repeated_id_is_not_a_duplicate(tmp_path):
    rows = "".join(f'{{"id": "{i % 12}", "text": "{text_of(i % 12)}"}}\n' for i in range(15))
    (tmp_path / "rows.jsonl").write_text(rows)
    manifest = ingest([str(tmp_path / "rows.jsonl")], str(tmp_path / "out"), IngestConfig(), ONE)
    assert (manifest.counts["repeated_ids"], manifest.counts["duplicate_texts"]) == (3, 0)
    assert {*manifest.examples["repeated_ids"]} == {f"jsonl:rows/{i}" for i in range(3)}
    assert manifest.counts["words_left_out_as_repeated_ids"] == 3 * len(text_of(0).split())
    assert len(list(rows_in(tmp_path / "out"))) == 12


def notes_of_patients(num_patients: int, num_notes: int) -> str:
    rows = [{"patient": f"p{i % num_patients}", "text": text_of(i)} for i in range(num_notes)]
    return "".join(json.dumps(row) + "\n" for row in sorted(rows, key=lambda row: row["patient"]))


def test_ids_of_several_rows_of_a_table_are_a_mistake_unless_they_are_few(tmp_path):
    (tmp_path / "notes.jsonl").write_text(notes_of_patients(10, 40))
    sources = [str(tmp_path / "notes.jsonl")]
    config = IngestConfig(id_column="patient")
    message = r"notes\.jsonl: 30 of 40 rows have the id of another row in `id_column` 'patient', .*"
    with pytest.raises(UserError, match=message + "`documents` sentence joins"):
        ingest(sources, str(tmp_path / "out"), config, ONE)
    joined = replace(config, documents="sentence")
    assert (
        sum(shard.rows for shard in ingest(sources, str(tmp_path / "j"), joined, ONE).shards) == 10
    )
    many = RunOptions(workers=1, max_bad=0.8)
    assert ingest(sources, str(tmp_path / "many"), config, many).counts["repeated_ids"] == 30
    # The same rows twice, and other versions of them in another table, are no mistake.
    for name, first in (("a", 0), ("b", 100)):
        rows = [{"patient": f"p{i}", "text": text_of(first + i)} for i in range(20)]
        content = "".join(json.dumps(row) + "\n" for row in rows)
        write_texts(tmp_path / "tables", {})
        (tmp_path / "tables" / f"{name}.jsonl").write_text(2 * content)
    manifest = ingest([str(tmp_path / "tables")], str(tmp_path / "both"), config, ONE)
    assert manifest.counts["repeated_ids"] == 60


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "tsv", "parquet"])
@pytest.mark.parametrize(
    "option", ["id_column", "title_column", "language_column", "source_column", "text_column"]
)
def test_a_column_that_no_part_has_is_a_mistake_and_one_of_some_is_not(
    tmp_path, suffix: str, option: str
):
    folder = tmp_path / "tables"
    folder.mkdir(parents=True)
    rows = pa.table({"key": [f"k{i}" for i in range(9)], "text": [text_of(i) for i in range(9)]})
    for name, table in (("a", rows), ("b", rows.rename_columns(["other", "text"]))):
        path = folder / f"{name}.{suffix}"
        if suffix == "parquet":
            pq.write_table(table, path)
        elif suffix == "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
        else:
            delimiter = {"csv": ",", "tsv": "\t"}[suffix]
            lines = [table.column_names, *zip(*table.to_pydict().values(), strict=True)]
            path.write_text("".join(delimiter.join(line) + "\n" for line in lines))
    texts = "text," if option == "text_column" else ""
    named: dict[str, Any] = {option: f"{texts}kye"}
    wrong = IngestConfig(**named)
    with pytest.raises(UserError, match=f"`{option}` is 'kye', but no source|column 'kye'"):
        ingest([str(tmp_path / "tables")], str(tmp_path / "out"), wrong, ONE)
    # The first rows tell before anything is claimed.
    assert not (tmp_path / "out").exists()
    if option != "text_column":
        named = {option: "key"}
        ingest([str(tmp_path / "tables")], str(tmp_path / "key"), IngestConfig(**named), ONE)


@pytest.mark.slow
@pytest.mark.parametrize("num_ids", [20, 100])
def test_of_two_versions_of_each_document_one_stays(tmp_path, num_ids: int):
    # Both versions of an id have the same validation hash, so that both are in one split. A tenth
    # is held out, of the versions.
    num_held_out = 2 * num_ids // 10
    rows = [{"id": str(i % num_ids), "text": text_of(i)} for i in range(2 * num_ids)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    manifest = ingest([str(tmp_path / "rows.jsonl")], str(tmp_path / "out"), IngestConfig(), ONE)
    assert manifest.counts["repeated_ids"] == num_ids
    train, validation = (
        {row["doc_id"] for row in rows_in(tmp_path / "out", split)} for split in ("train", "val*")
    )
    assert len(train) == num_ids - num_held_out and len(validation) == num_held_out
    assert not train & validation


def test_a_source_edited_in_place_is_another_one(tmp_path):
    source = write_texts(
        tmp_path / "texts", {f"{i}": text_of(i) for i in range(20)} | {"long": text_of(0, 50_000)}
    )
    ingest([source], str(tmp_path / "out"), CONFIG, ONE)
    with (tmp_path / "texts" / "long.txt").open("r+b") as file:
        file.seek(100_000)
        file.write(b"x")
    with pytest.raises(UserError, match="other"):
        ingest([source], str(tmp_path / "out"), CONFIG, ONE)


@pytest.mark.slow
def test_bad_input_is_listed_whatever_the_runner_and_can_be_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "MIN_RANGE_BYTES", 1 << 14)
    lines = [json.dumps({"text": text_of(i)}) for i in range(60)]
    bad = [lines[0][:-1], json.dumps({"text": [5, "\ud800é"]}), "x" * 20_000]
    source = write_texts(tmp_path / "rows", {".hidden": text_of(0)})
    content = "\n".join([bad[0], *lines[1:]]).encode() + b'\n"\xff'
    (tmp_path / "rows" / "a.jsonl").write_bytes(content)
    (tmp_path / "rows" / "b.jsonl").write_text("\n".join([*bad[1:], lines[1]]))
    (tmp_path / "rows" / "link.txt").symlink_to(tmp_path / "nothing")
    out, other = tmp_path / "out", tmp_path / "other"
    similar = replace(CONFIG, near_duplicates=0.8)
    for config, output in ((similar, other), (CONFIG, out)):
        with pytest.raises(UserError, match=r"1 x broken link.* \(bad/ in `output` lists"):
            ingest([source], str(output), config, ONE)
    assert not list(other.glob(".work/*/candidates"))  # before pairs are compared
    listed = {path.name: path.read_bytes() for path in out.glob("bad/*")}
    lax = RunOptions(workers=1, max_bad=1, overwrite=True)
    in_beam = replace(lax, beam_options=("--direct_running_mode=in_memory",))
    for options in (replace(lax, overwrite=False), replace(lax, workers=2), in_beam):
        output = other if options.overwrite else out  # where it resumes
        assert ingest([source], str(output), CONFIG, options).counts["hidden_files"] == 1
        assert {path.name: path.read_bytes() for path in output.glob("bad/*")} == listed
    rows = [json.loads(line) for name in sorted(listed) for line in listed[name].splitlines()]
    assert [*rows[0]] == ["kind", "file", "place", "reason", "record"]
    assert rows[1]["reason"].startswith("Expecting ',' delimiter")
    end = f"byte {len(content) - 2}"
    assert [(row["kind"], row["file"][5:], row["place"], row["record"]) for row in rows] == [
        ("broken_link", "link.txt", "", None),
        ("not_json", "a.jsonl", "byte 0", bad[0]),
        ("invalid_utf8", "a.jsonl", end, '"\\xff'),
        ("not_json", "a.jsonl", end, '"\ufffd'),
        ("text_is_not_a_string", "b.jsonl", "byte 0", bad[1].replace("\\u00e9", "é")),
        ("not_json", "b.jsonl", f"byte {len(bad[1]) + 1}", None),
    ]
    (tmp_path / "new.jsonl").write_text(bad[0] + "}")
    (other / "bad" / "mine.txt").write_text("")
    sources = [str(out), str(tmp_path / "new.jsonl")]
    manifest = ingest(sources, str(other), CONFIG, replace(lax, max_bad=0))
    assert [path.name for path in other.glob("bad/*")] == ["mine.txt"]
    assert sum(shard.rows for shard in manifest.shards) == 60
    (tmp_path / "many.jsonl").write_text("x\n" * 8000)  # a megabyte of them is listed
    manifest = ingest([*sources[:1], str(tmp_path / "many.jsonl")], str(other), CONFIG, lax)
    listed_lines = sum(path.read_bytes().count(b"\n") for path in other.glob("bad/*.jsonl"))
    assert manifest.counts["bad_inputs_not_listed"] == 8000 - listed_lines > 0


@pytest.mark.parametrize(
    ("num_ids", "num_texts", "config", "message"),
    [
        (1, 9, IngestConfig(), "hold 0 documents: of documents with the same id only one stays"),
        (3, 9, IngestConfig(), "hold 1 document: of documents with the same id only one stays"),
        (9, 9, IngestConfig(validation_share=0.9), "one stays; a lower `validation_share` holds"),
        (3, 9, IngestConfig(shards=1), "^A train shard would hold 1 document: lower `shards`.$"),
        (9, 3, IngestConfig(), "hold 3 documents; at least 4 different ones are needed"),
        (9, 9, IngestConfig(keep_language=("ko",)), "left out: 9 x documents in other languages. "),
    ],
)
def test_too_few_documents_are_reported(
    tmp_path, num_ids: int, num_texts: int, config: IngestConfig, message: str
):
    rows = [{"id": str(i % num_ids), "text": text_of(i % num_texts)} for i in range(9)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError, match=message):
        ingest([str(tmp_path / "rows.jsonl")], str(tmp_path / "out"), config, ONE)


def test_near_duplicates_are_named_where_too_few_documents_stay(tmp_path):
    texts = {f"{i}": f"{text_of(0)} It is {i % 6}." for i in range(8)}
    with pytest.raises(UserError, match=r"left out: 5 x near duplicates, 2 x duplicate texts\."):
        ingest(
            [write_texts(tmp_path / "texts", texts)],
            str(tmp_path / "out"),
            IngestConfig(near_duplicates=0.8),
            ONE,
        )


def test_a_shard_with_too_much_text_is_refused_before_it_is_gathered(tmp_path, monkeypatch):
    source = write_texts(tmp_path / "texts", {f"{i}": text_of(i) for i in range(40)})
    monkeypatch.setattr(shard_plan, "MOST_TEXT_BYTES", 10_000)
    with pytest.raises(UserError, match=r"more than 10,000: raise `shards`\.$"):
        ingest([source], str(tmp_path / "out"), CONFIG, ONE)
    more = replace(CONFIG, shards=4)
    assert ingest([source], str(tmp_path / "out"), more, ONE).shards


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("num_done", [0, 1])
def test_a_run_that_ended_within_a_phase_resumes_to_the_same_bytes(
    tmp_path, monkeypatch, phase: str, num_done: int
):
    source = write_texts(tmp_path / "texts", {f"{i}": text_of(i % 40) for i in range(60)})
    expected = ingest([source], str(tmp_path / "whole"), CONFIG, ONE)

    stopped = phase
    do = Job.do

    def stop_within(job: Job, number: int, phase: Phase) -> None:
        num_units = len(job.units(phase.name))
        num_finished = len(job.finished_units(phase.name))
        do(job, number, phase)
        if phase.name == stopped and num_finished == min(num_done, num_units - 1):
            # As if it was killed before this unit left its record.
            job.remove(job.temporary(f"{phase.name}/{number:05d}.json"))
            raise MemoryError

    monkeypatch.setattr(Job, "do", stop_within)
    with pytest.raises(RunError):
        ingest([source], str(tmp_path / "out"), CONFIG, ONE)
    monkeypatch.undo()
    assert ingest([source], str(tmp_path / "out"), CONFIG, ONE) == expected
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")
    assert not (tmp_path / "out" / ".work").exists()


@pytest.mark.slow
def test_many_shards_a_partition_make_the_same_documents(tmp_path, monkeypatch):
    """A huge corpus in small: more shards than partitions, and each row exactly once."""
    source = write_texts(
        tmp_path / "texts", {f"{i:03}": text_of(i % 380, 5 + i % 30) for i in range(400)}
    )
    few = ingest([source], str(tmp_path / "few"), IngestConfig(validation_share=0.1), ONE)
    monkeypatch.setattr(layout, "SHARD_TEXT_BYTES", 10_000)
    monkeypatch.setattr(scatter, "PART_TEXT_BYTES", 10_000)
    monkeypatch.setattr(temporary, "CHUNK_BYTES", 10_000)
    many = ingest([source], str(tmp_path / "many"), IngestConfig(validation_share=0.1), ONE)
    assert many.counts == few.counts
    for split in ("train", "validation"):
        shards = [shard for shard in many.shards if shard.split == split]
        assert len(shards) > 3
        for index, shard in enumerate(shards):
            assert shard.name == f"{split}-{index:05d}-of-{len(shards):05d}.parquet"
            assert shard.rows == pq.read_metadata(tmp_path / "many" / shard.name).num_rows
        rows = [[*rows_in(tmp_path / name, split)] for name in ("few", "many")]
        assert rows[0] == rows[1]


@pytest.mark.slow
def test_a_file_that_may_not_grow_leaves_nothing_that_looks_finished(tmp_path):
    source = write_texts(tmp_path / "texts", {f"{i}": text_of(i, 400) for i in range(30)})
    script = "from clozeworks.cli.main import main; main()"
    command = [sys.executable, "-c", script, "ingest", source, f"--output={tmp_path}/out"]

    def limit_files() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    options: dict[str, Any] = {"env": environment, "preexec_fn": limit_files, "check": False}
    completed = subprocess.run([*command, "--workers=1"], capture_output=True, text=True, **options)
    assert completed.returncode == 1
    last_line = completed.stderr.splitlines()[-1]
    assert "out: File too large. Fix this and rerun; it resumes. Log: " in last_line
    assert Path(last_line.split("Log: ")[1]).exists()
    left = [path.name for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert not [
        name for name in left if name.endswith(".parquet") or name.removesuffix(".json").isdecimal()
    ]
    manifest = ingest([source], str(tmp_path / "out"), IngestConfig(), ONE)
    assert sum(shard.rows for shard in manifest.shards) == 30
