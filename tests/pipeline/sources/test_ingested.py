"""Documents that `ingest` wrote as a source of another `ingest`: a corpus that grows."""

import hashlib
import random
from dataclasses import replace
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clozeworks.pipeline.config import IngestConfig, RunOptions
from clozeworks.pipeline.counters import Counters
from clozeworks.pipeline.documents.pipeline import IngestStage, ingest
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.execution.job import open_job
from clozeworks.pipeline.sources.formats import read_documents

ONE = RunOptions(workers=1)
CONFIG = IngestConfig(validation_share=0.2, min_characters=1, min_sentences=1)


def write_texts(folder: Path, numbers: list[int]) -> str:
    folder.mkdir(parents=True)
    for number in numbers:
        # Two of each seven texts are the same, under names of their own.
        rng = random.Random(number % 5)
        text = " ".join(f"It tells of {rng.randrange(10**6)} things." for _ in range(20))
        (folder / f"{number}.txt").write_text(text)
    return str(folder)


def digests(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.glob("*.parquet")
    }


@pytest.mark.slow
def test_a_corpus_that_grows_is_the_corpus_of_all_its_sources(tmp_path: Path):
    numbers = random.Random(0).sample(range(40), 40)
    parts = [numbers[:15], numbers[15:30], numbers[30:]]
    sources = [write_texts(tmp_path / f"part{i}", part) for i, part in enumerate(parts)]
    ingest(sources, str(tmp_path / "all"), CONFIG, ONE)
    documents = tmp_path / "day0"
    ingest(sources[:1], str(documents), CONFIG, ONE)
    for day in (1, 2):
        grown = tmp_path / f"day{day}"
        manifest = ingest([str(documents), sources[day]], str(grown), CONFIG, ONE)
        # What lies beside the documents is no source, and is not counted as one.
        assert "files_of_unknown_format" not in manifest.counts
        documents = grown
    assert digests(documents) == digests(tmp_path / "all")


@pytest.mark.slow
def test_sentences_stay_although_they_would_be_cut_otherwise(tmp_path: Path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(6):
        (folder / f"{number}.txt").write_text(f"We saw Zzyx. Muller {number} there. He left.")
    own = replace(CONFIG, abbreviations='[abbreviations]\n"*" = "zzyx"')
    ingest([str(folder)], str(tmp_path / "day0"), own, ONE)
    ingest([str(tmp_path / "day0")], str(tmp_path / "day1"), CONFIG, ONE)
    assert digests(tmp_path / "day1") == digests(tmp_path / "day0")


def test_an_unfinished_directory_is_refused(tmp_path: Path):
    documents = tmp_path / "documents"
    ingest([write_texts(tmp_path / "texts", list(range(5)))], str(documents), CONFIG, ONE)
    stage = IngestStage(
        sources=(str(tmp_path / "texts"),), output=str(documents), config=CONFIG, max_bad=0.5
    )
    begun, _ = open_job(stage, stage.plan(), overwrite=True)
    begun.write_bytes("train-00000-of-00001.parquet", b"")
    for source in (documents, tmp_path, documents / "*.parquet"):
        with pytest.raises(UserError, match="documents is unfinished"):
            ingest([str(source)], f"{tmp_path}-new", CONFIG, ONE)


ROW: dict[str, object] = {"doc_id": "s:a  b", "source": "s", "language": "en", "title": "T"}
ROW |= {"sentences": ["It is.", "It was."]}


def written(folder: Path, rows: list[dict[str, object]], **kinds: pa.DataType) -> str:
    table = pa.Table.from_pylist(rows).append_column(
        "__index_level_0__", pa.array(range(len(rows)))
    )
    for name, kind in kinds.items():
        index = table.schema.get_field_index(name)
        table = table.set_column(index, name, table[name].cast(kind))
    pq.write_table(table, folder / "part.parquet")
    return str(folder / "part.parquet")


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.string()])
def test_documents_that_were_filtered_elsewhere_are_documents(tmp_path: Path, kind: pa.DataType):
    path = written(tmp_path, [ROW] * 3, doc_id=kind, title=kind, sentences=pa.large_list(kind))
    found = list(read_documents(path))
    assert [(document.source, document.id) for document in found] == [("s", "a  b")] * 3
    assert [document.paragraphs for document in found] == [ROW["sentences"]] * 3
    datasets.Dataset.from_list([ROW] * 3).save_to_disk(tmp_path / "saved")
    assert list(read_documents(str(tmp_path / "saved"))) == found


def test_nulls_and_controls_in_documents(tmp_path: Path):
    rows = [{**ROW, name: None} for name in ROW]
    rows.append({**ROW, "title": "\x1b[31mT", "sentences": ["It\x1b is.", None, "\u200b"]})
    rows.append({**ROW, "sentences": [" ", " It is.", "It  was. "]})
    counters = Counters()
    found = list(read_documents(written(tmp_path, rows), counters=counters))
    assert [document.id for document in found] == ["part#0", "s:a  b", *["a  b"] * 4]
    assert (found[-2].title, found[-2].paragraphs) == ("[31mT", ["It is."])
    assert found[-1].paragraphs == ROW["sentences"]
    assert counters.counts == {"rows_with_empty_columns": 4, "rows_without_text": 1}
    assert counters.examples["rows_with_empty_columns"][0] == "part.parquet, row 0: doc_id"


@pytest.mark.parametrize("per_row", [1, 50])
def test_documents_of_one_long_sentence_are_a_bomb(tmp_path: Path, per_row: int):
    sentence = "It goes on and on. " * 50_000
    path = written(tmp_path, [{**ROW, "sentences": [sentence] * per_row}] * (100 // per_row))
    counters = Counters()
    found = list(read_documents(path, counters=counters))
    assert sum(len(document.paragraphs) for document in found) < 30
    assert counters.bad == {"compression_bomb": 1}
