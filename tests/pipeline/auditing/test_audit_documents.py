"""The audit of documents counts what is there, and finds the signs of bad text that are planted."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clozeworks.cli.main import main
from clozeworks.pipeline.auditing.beside import documents_beside
from clozeworks.pipeline.auditing.checks import audit
from clozeworks.pipeline.auditing.decode import first_examples
from clozeworks.pipeline.auditing.documents import (
    BINS_PER_OCTAVE,
    audit_documents,
)
from clozeworks.pipeline.auditing.signs import (
    LONG,
    MAX_EXAMPLES,
    REPEATED,
    HashSample,
    excerpt,
    find_signs,
    hash_long,
)
from clozeworks.pipeline.config import BuildConfig, RunOptions, VocabConfig
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.instances.pipeline import build
from clozeworks.pipeline.manifests import DocumentsManifest
from clozeworks.pipeline.schemas import DOCUMENTS
from clozeworks.pipeline.storage.stage import read_manifest
from clozeworks.pipeline.vocabulary.files import read_vocabulary
from clozeworks.pipeline.vocabulary.pipeline import learn_vocabulary
from tokenizers import Tokenizer

from tests.fixtures.command_fixture import error_of
from tests.fixtures.manifest_fixture import write_manifest

ONE = RunOptions(workers=1)
LONG_SENTENCE = (
    "The same long sentence of more than one hundred characters, such as a licence, is in many "
    "documents."
)


def write_documents(path: Path, documents: list[tuple[str, str, list[str]]], **fields) -> str:
    """Write documents (source, language, sentences) as a directory of two shards."""
    path.mkdir(exist_ok=True)
    rows = [
        {
            "doc_id": f"{source}:{i}",
            "source": source,
            "language": language,
            "title": f"Title {i}",
            "sentences": text,
        }
        for i, (source, language, text) in enumerate(documents)
    ]
    half = max(1, len(rows) // 5)
    sizes = {}
    for split, own in (("train", rows[half:]), ("validation", rows[:half])):
        name = f"{split}-00000-of-00001.parquet"
        pq.write_table(pa.Table.from_pylist(own, DOCUMENTS), path / name)
        sizes[name] = len(own)
    write_manifest(path, "ingest", sizes, **fields)
    return str(path)


def write_instances(path: Path, documents_digest: str) -> None:
    """Write a directory of instances without rows that says it was built from the documents with
    this digest.
    """
    path.mkdir()
    shard = "train-00000-of-00001.parquet"
    (path / shard).write_bytes(b"")
    write_manifest(
        path, "build", {shard: 0}, inputs=[{"stage": "ingest", "digest": documents_digest}]
    )


def prose(num_documents: int, source: str = "books") -> list[tuple[str, str, list[str]]]:
    return [
        (source, "en", [f"Chapter {i} has a line {j} of text." for j in range(i % 7 + 3)])
        for i in range(num_documents)
    ]


def test_sizes_are_summed_by_source_and_language(tmp_path):
    documents = [
        ("books", "en", ["A sentence.", "Another one."]),
        ("enwiki", "en", ["Éé."]),
        ("books", "en", ["B."]),
    ]
    measured = audit_documents(write_documents(tmp_path, [*documents, ("books", "ko", [])]))
    found = [
        (origin.source, origin.language, origin.documents, origin.sentences, origin.characters)
        for origin in measured.origins
    ]
    assert found == [("books", "en", 2, 3, 25), ("enwiki", "en", 1, 1, 3), ("books", "ko", 1, 0, 0)]
    assert measured.total("characters") == 28
    assert sum(measured.document_lengths) == 4
    assert sum(measured.sentence_lengths) == 4
    # 11 and 12 characters lie between 2 ** 3 and 2 ** 3.5 or above
    assert measured.sentence_lengths[int(3.5 * BINS_PER_OCTAVE)] == 1
    assert json.loads(json.dumps(measured.to_json()))["origins"][0]["source"] == "books"


@pytest.mark.slow
def test_tokens_per_word_are_those_of_tokenizers(tmp_path):
    path = write_documents(
        tmp_path / "documents", [("x", "ko", ["한국어 \U0001f600 문장 chapter."]), *prose(20)]
    )
    learn_vocabulary(path, str(tmp_path / "vocab"), VocabConfig(size=100), ONE)
    tokenizer = Tokenizer.from_file(str(tmp_path / "vocab" / "tokenizer.json"))
    measured = audit_documents(path, read_vocabulary(str(tmp_path / "vocab")))
    texts = {
        "books": [text for _, _, texts in prose(20) for text in texts],
        "x": ["한국어 \U0001f600 문장 chapter."],
    }
    for origin in measured.origins:
        encodings = [
            tokenizer.encode(text, add_special_tokens=False) for text in texts[origin.source]
        ]
        tokens = [token for encoding in encodings for token in encoding.tokens]
        words = sum(len(set(encoding.word_ids)) for encoding in encodings)
        assert (origin.tokens, origin.words) == (len(tokens), words)
        assert origin.unknown_tokens == tokens.count("[UNK]")
    assert measured.origins[-1].unknown_tokens > 0


@pytest.mark.parametrize(
    ("sentence", "names"),
    [
        ("A plain sentence.", set()),
        ("“Is it?” he asked (twice).", set()),
        ("그는 갔다.", set()),
        ("これは文です。」", set()),
        ("A control\x07character.", {"control characters"}),
        ("A zero\u200bwidth space.", {"invisible characters"}),
        ("Bad byte \ufffd here.", {"characters that could not be decoded"}),
        ("Der BÃ¤r isst.", {"text decoded as Latin-1"}),
        ("As of 2006[[update]].", {"wiki markup"}),
        ("It is <b>bold</b>.", {"HTML tags"}),
        ("Fish &amp; chips.", {"HTML entities"}),
        ("See http://example.org/.", {"web addresses"}),
        ("1.", {"sentences without a letter"}),
        ("A heading", {"sentences without final punctuation"}),
        ("x" * 1001 + ".", {LONG}),
        ("5 < 6 and 7 > 3, R&D; AT&T.", set()),
    ],
)
def test_signs_of_bad_text(sentence, names):
    assert {
        name for name, found in find_signs(pa.array(["Good.", sentence])) if found.tolist() == [1]
    } == names
    for name in names:
        assert excerpt(name, sentence) in (sentence, f"{sentence[:80]} …")


def test_the_excerpt_is_around_the_sign():
    assert (
        excerpt("HTML tags", "a" * 90 + "<br>" + "b" * 90)
        == "… " + "a" * 40 + "<br>" + "b" * 76 + " …"
    )


def test_signs_are_counted_with_the_first_examples(tmp_path):
    documents = prose(10)
    for index in (3, 4, 5, 6, 7):
        documents[index][2].append(LONG_SENTENCE)
        documents[index][2][1] = f"See https://example.org/{index}."
    documents[8][2].append(f"Only once: {LONG_SENTENCE}")
    measured = audit_documents(write_documents(tmp_path, documents))
    signs = {sign.name: sign for sign in measured.signs}
    addresses, repeated = signs["web addresses"], signs[REPEATED]
    assert (addresses.count, addresses.total) == (5, measured.total("sentences"))
    assert (
        addresses.examples
        == [(f"books:{i}", f"See https://example.org/{i}.") for i in (3, 4, 5)][:MAX_EXAMPLES]
    )
    assert (repeated.count, repeated.total) == (4, 6)
    assert repeated.examples == [("books:3", f"{LONG_SENTENCE[:80]} …")]
    assert (
        measured.sentence
        == f"10 documents, {measured.total('sentences')} sentences, 2 signs of bad text."
    )


def test_what_ingest_left_out_comes_from_the_manifest(tmp_path):
    fields = {
        "counts": {"documents_read": 9, "words_left_out_as_tables": 7, "repeated_ids": 0},
        "bad": {"empty_file": 2},
        "examples": {"empty_file": ["texts/none.txt"]},
    }
    measured = audit_documents(write_documents(tmp_path, prose(5), **fields))
    assert [(entry.name, entry.count, entry.examples) for entry in measured.counted] == [
        ("documents read", 9, []),
        ("empty file", 2, ["texts/none.txt"]),
    ]
    assert [(entry.name, entry.count) for entry in measured.words_left_out] == [("tables", 7)]


@pytest.mark.slow
def test_instances_are_audited_with_their_documents(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    documents = write_documents(tmp_path / "documents", prose(40, "enwiki"))
    others = write_documents(tmp_path / "others", prose(9))
    instances = str(tmp_path / "instances")
    learn_vocabulary(documents, str(tmp_path / "vocab"), VocabConfig(size=100), ONE)
    build(documents, str(tmp_path / "vocab"), instances, BuildConfig(max_length=32), ONE)
    assert documents_beside(instances) == documents
    measured = audit(instances, documents)
    assert measured.documents
    assert measured.documents.origins[0].tokens > 0
    assert measured.shares_read == {("enwiki", "en"): 1.0}
    with pytest.raises(
        UserError, match=r"instances was not built from .*/others, but from other documents"
    ):
        audit(instances, others)
    titles = pq.read_table(f"{documents}/train-00000-of-00001.parquet")["title"].to_pylist()
    for example in first_examples(instances, 500, documents):
        assert example.title_a == titles[example.instance.document_a]
        assert example.title_b == titles[example.instance.document_b]
    main(["audit", instances, "--documents", documents])
    assert f"documents in {documents}" in capsys.readouterr().out
    main(["audit", instances, "--report", str(tmp_path / "r.html")])
    assert "Signs of bad text" in (tmp_path / "r.html").read_text()
    assert "documents in" not in capsys.readouterr().out
    main(["audit", documents, "--report", str(tmp_path / "d.html")])
    printed = capsys.readouterr().out
    assert f"verdict  {audit_documents(documents).sentence}" in printed
    assert "Audit of documents" in (tmp_path / "d.html").read_text()
    main(["audit", documents, "--json"])
    assert json.loads(capsys.readouterr().out)[documents]["origins"][0]["documents"] == 40


def test_the_tables_name_the_directory_and_show_what_was_left_out(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    counts = {"words_left_out_as_tables": 7, "redirects": 4}
    directory = write_documents(tmp_path, prose(9), counts=counts)
    main(["audit", directory])
    tables = capsys.readouterr().out
    assert tables.startswith(f"documents in {directory}\n")
    assert "books" in tables
    for name, count in (("redirects", 4), ("left out: tables", 7)):
        assert re.search(rf"^{name} +{count}\b", tables, re.MULTILINE)


def test_documents_beside_are_those_of_the_manifest(tmp_path):
    write_documents(tmp_path / "documents", prose(9))
    write_instances(tmp_path / "instances", "of others")
    assert documents_beside(f"{tmp_path}/instances") is None


def test_documents_beside_without_their_shards_are_left_alone(tmp_path):
    documents = write_documents(tmp_path / "documents", prose(9))
    write_instances(tmp_path / "instances", read_manifest(documents, DocumentsManifest).digest)
    assert documents_beside(f"{tmp_path}/instances") == documents
    (tmp_path / "documents" / "train-00000-of-00001.parquet").unlink()
    assert documents_beside(f"{tmp_path}/instances") is None


def test_the_option_documents_is_for_instances(tmp_path, capsys):
    path = write_documents(tmp_path / "documents", prose(9))
    error = error_of(capsys, "audit", path, "--documents", path)
    assert error == f"Error: --documents is for instances, but {path} has documents.\n"


def test_repeats_in_a_share_of_the_hashes_stand_for_all():
    sample = HashSample(8000, max_hashes=2000)
    for _ in range(2):
        _, hashes = hash_long(pa.array([f"{number} {LONG_SENTENCE}" for number in range(4000)]))
        sample.add(hashes)
    _, copies = sample.counts()
    assert sample.share == 0.25
    assert set(copies.tolist()) == {2}
    assert len(copies) == pytest.approx(1000, rel=0.1)


@pytest.mark.parametrize("name", [".", "./", "../instances", "../instances/."])
def test_documents_beside_the_working_folder_are_found(tmp_path, monkeypatch, name: str):
    documents = write_documents(tmp_path / "documents", prose(9))
    write_instances(tmp_path / "instances", read_manifest(documents, DocumentsManifest).digest)
    monkeypatch.chdir(tmp_path / "instances")
    assert documents_beside(name) == "../documents"
