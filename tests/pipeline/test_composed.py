"""Text that comes decomposed (NFD) makes the same documents and vocabulary as NFC."""

import json
import unicodedata
from pathlib import Path

import pytest
from clozeworks.pipeline.config import IngestConfig, RunOptions, VocabConfig
from clozeworks.pipeline.documents.pipeline import ingest
from clozeworks.pipeline.sources.formats import read_documents
from clozeworks.pipeline.vocabulary.pipeline import learn_vocabulary

pytestmark = pytest.mark.slow

CORPUS = Path(__file__).resolve().parents[2] / "examples" / "korean" / "kowiki.jsonl"
ONE = RunOptions(workers=1)


def test_half_of_the_documents_decomposed(tmp_path: Path):
    rows = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]
    found: list[dict[str, object]] = []
    for folder in (tmp_path / "composed", tmp_path / "half"):
        folder.mkdir()
        for row in rows[1::2] if folder.name == "half" else ():
            row["text"] = unicodedata.normalize("NFD", row["text"])
        (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
        documents = str(folder / "documents")
        manifest = ingest(
            [str(folder / "rows.jsonl")],
            documents,
            IngestConfig(shards=1, validation_share=0.05),
            ONE,
        )
        learn_vocabulary(documents, str(folder / "vocab"), VocabConfig(size=3000), ONE)
        vocabulary = (folder / "vocab" / "vocab.txt").read_text(encoding="utf-8")
        found.append(
            {"counts": manifest.counts, "shards": manifest.shards, "vocabulary": vocabulary}
        )
    assert found[0] == found[1]
    assert not any("\u1100" <= character <= "\u11ff" for character in str(found[1]["vocabulary"]))


def test_a_book(tmp_path: Path):
    """Whose lines are wrapped at a width in characters."""
    words = " ".join(json.loads(CORPUS.read_text(encoding="utf-8").splitlines()[1])["text"].split())
    book = "\n".join(words[start : start + 60] for start in range(0, 6000, 60))
    text = f"제 1 장\n\n{book}\n"
    (tmp_path / "composed.txt").write_text(text, encoding="utf-8")
    (tmp_path / "decomposed.txt").write_text(unicodedata.normalize("NFD", text), encoding="utf-8")
    composed, decomposed = (document.paragraphs for document in read_documents(str(tmp_path)))
    assert composed == decomposed != []
