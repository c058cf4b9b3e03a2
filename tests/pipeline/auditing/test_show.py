"""Show prints documents and instances as people read them, and reports broken files in one line."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clozeworks.cli.main import main
from clozeworks.pipeline.manifests import DocumentsManifest
from clozeworks.pipeline.schemas import DOCUMENTS, instances_schema
from clozeworks.pipeline.storage.state import read_manifest
from clozeworks.pipeline.vocabulary.files import vocabulary_files
from clozeworks.pipeline.vocabulary.normalization import Normalization
from clozeworks.pipeline.vocabulary.vocabulary import SPECIAL_TOKENS, Vocabulary

from tests.fixtures.command_fixture import error_of
from tests.fixtures.manifest_fixture import write_manifest

VOCABULARY = Vocabulary(
    (*SPECIAL_TOKENS, "a", "##b", "c", "[bold]", "d"), Normalization(True, True)
)
CLS, SEP, MASK = VOCABULARY.cls_id, VOCABULARY.sep_id, VOCABULARY.mask_id
SHARD = "train-00000-of-00001.parquet"

# [CLS] a ##b [MASK=c] [SEP] [d=a] [=d] [bold] [SEP]
ROW = {
    "input_ids": [CLS, 5, 6, MASK, SEP, 9, 9, 8, SEP], "segment_b_start": 5,
    "masked_lm_positions": [3, 5, 6], "masked_lm_ids": [7, 5, 9], "next_sentence_label": 1,
    "document_a": 3, "document_b": 8, "duplicate": 2,
}  # fmt: skip
DOCUMENT = {
    "doc_id": "enwiki:7", "source": "enwiki", "language": "en", "title": "[b]Cloze[/b]",
    "sentences": ["One.", "Two."],
}  # fmt: skip


def write(path: Path, stage: str, table: pa.Table) -> str:
    """Write a directory of a stage with one shard."""
    for name, content in vocabulary_files(VOCABULARY).items():
        (path / name).write_bytes(content)
    pq.write_table(table, path / SHARD)
    write_manifest(path, stage, {SHARD: table.num_rows})
    return str(path)


def instances(path: Path, rows: list[dict]) -> str:
    return write(path, "build", pa.Table.from_pylist(rows, instances_schema(len(VOCABULARY))))


def test_instances_are_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    main(["show", instances(tmp_path, [ROW, ROW, ROW]), "-n", "2"])
    head = "NotNext, documents 3 and 8, pass 2, 9 tokens"
    assert (
        capsys.readouterr().out
        == f"{head}\n[CLS] a ##b [MASK=c] [SEP] [d=a] [=d] [bold] [SEP]\n\n" * 2
    )


def test_labels_are_those_of_the_pairing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    directory = instances(tmp_path, [ROW, {**ROW, "next_sentence_label": 0}])
    for pairing, names in (("sop", ["swapped", "in order"]), ("bert", ["NotNext", "IsNext"])):
        write_manifest(tmp_path, "build", {SHARD: 2}, config={"pairing": pairing})
        main(["show", directory])
        assert [line.split(",")[0] for line in capsys.readouterr().out.splitlines()[::3]] == names
    write_manifest(tmp_path, "build", {SHARD: 2}, config={"pairing": "none"})
    main(["show", directory])
    assert "one segment, documents" in capsys.readouterr().out


def test_documents_are_shown_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    main(["show", write(tmp_path, "ingest", pa.Table.from_pylist([DOCUMENT], DOCUMENTS))])
    assert (
        capsys.readouterr().out == "enwiki:7  [b]Cloze[/b]  (en, 2 sentences)\n  One.\n  Two.\n\n"
    )


def test_rows_are_found_by_text_id_and_condition(tmp_path: Path, capsys):
    documents = tmp_path / "documents"
    documents.mkdir()
    other = {**DOCUMENT, "doc_id": "b:1", "source": "b", "sentences": ["ÉTÉ here.", "No."]}
    rows = [other, *[{**DOCUMENT, "doc_id": f"enwiki:{number}"} for number in range(8)]]
    directory = write(documents, "ingest", pa.Table.from_pylist(rows, DOCUMENTS))
    for line in (["--grep", "été"], ["b:1"], ["--where", "source = 'b' AND len(sentences) = 2"]):
        main(["show", directory, *line])
        shown = capsys.readouterr().out.splitlines()
        assert shown[0].startswith("b:1  ") and shown[1] == "  ÉTÉ here."
        assert ("  No." in shown) == ("--grep" not in line)  # the sentences with the text alone
    main(["show", directory, *(f"enwiki:{number}" for number in range(6))])
    assert capsys.readouterr().out.count("enwiki:") == 6  # more than -n
    main(["show", directory, "c:1", "b:1"])
    assert f"Warning: not in {directory}: c:1.\n" in capsys.readouterr().err
    refusal = f"c:1 is not in {directory}, whose ids are such as b:1."
    assert refusal in error_of(capsys, "show", directory, "c:1")
    for line in (["--grep", "nothing"], ["--where", "source = 'dewiki'"]):
        assert "Nothing like this" in error_of(capsys, "show", directory, *line)
    assert "each finds rows" in error_of(capsys, "show", directory, "b:1", "--grep", "été")
    error = error_of(capsys, "show", directory, "--where", "no")
    assert '--where: Binder Error: Referenced column "no"' in error
    assert error.endswith(f" The columns are {', '.join(DOCUMENTS.names)}.\n")

    # Instances by their documents, which lie beside them.
    (tmp_path / "instances").mkdir()
    rows = [{**ROW, "document_a": number, "document_b": 8} for number in range(8)]
    found = instances(tmp_path / "instances", rows)
    digest = read_manifest(directory, DocumentsManifest).digest
    inputs = [{"stage": "ingest", "digest": digest}]
    write_manifest(tmp_path / "instances", "build", {SHARD: 8}, inputs=inputs)
    main(["show", found, "enwiki:3"])
    assert capsys.readouterr().out.startswith("NotNext, documents 4 and 8, ")
    main(["show", found, "--where", "document_a > 5"])
    assert [line.split()[2] for line in capsys.readouterr().out.splitlines()[::3]] == ["6", "7"]


def test_of_packed_rows_only_the_documents_with_these_ids_are_shown(tmp_path: Path, capsys):
    for name in ("documents", "instances"):
        (tmp_path / name).mkdir()
    rows = [{**DOCUMENT, "doc_id": f"enwiki:{number}"} for number in range(4)]
    directory = write(tmp_path / "documents", "ingest", pa.Table.from_pylist(rows, DOCUMENTS))
    row = {
        "input_ids": [CLS, 5, SEP, CLS, 7, SEP], "sequence_starts": [0, 3],
        "masked_lm_positions": [1], "masked_lm_ids": [6], "duplicate": 0,
    }  # fmt: skip
    rows = [{**row, "documents": [0, 1]}, {**row, "documents": [2, 3]}]
    schema = instances_schema(len(VOCABULARY), packed=True)
    found = write(tmp_path / "instances", "build", pa.Table.from_pylist(rows, schema))
    inputs = [{"stage": "ingest", "digest": read_manifest(directory, DocumentsManifest).digest}]
    config = {"pairing": "none", "max_length": 1024}
    write_manifest(Path(found), "build", {SHARD: 2}, inputs=inputs, config=config)
    main(["show", found, "enwiki:3"])
    assert capsys.readouterr().out.splitlines()[::3] == [
        "one segment, documents 3 and 3, pass 0, 3 tokens"
    ]


@pytest.mark.parametrize("stage", ["ingest", "build"])
def test_broken_shards_are_one_line(stage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    what = "documents" if stage == "ingest" else "instances"
    directory = write(tmp_path, stage, pa.table({"text": ["of another schema"]}))
    assert "it has no column" in error_of(capsys, "show", directory)
    shard = tmp_path / SHARD
    shard.write_bytes(shard.read_bytes()[:-20])
    assert f"{SHARD} cannot be read as {what} (" in error_of(capsys, "show", directory)
    shard.unlink()
    assert f"{SHARD} cannot be read" in error_of(capsys, "show", directory)
