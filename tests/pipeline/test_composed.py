"""Text that comes decomposed (NFD), as from macOS and some corpora, makes the same documents and vocabulary as NFC."""

import json
import unicodedata
from pathlib import Path

from clozeworks.pipeline.config import IngestConfig, RunOptions, VocabConfig
from clozeworks.pipeline.ingest.pipeline import ingest
from clozeworks.pipeline.sources.documents import read_documents
from clozeworks.pipeline.vocab.pipeline import learn_vocabulary

CORPUS = Path(__file__).resolve().parents[2] / "examples" / "korean" / "kowiki.jsonl"
ONE = RunOptions(workers=1)


def test_half_of_the_documents_decomposed(tmp_path: Path):
    rows = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]
    found: list[dict[str, object]] = []
    for forms in (("NFC", "NFC"), ("NFC", "NFD")):
        folder = tmp_path / forms[1]
        folder.mkdir()
        texts = [unicodedata.normalize(forms[number % 2], row["text"]) for number, row in enumerate(rows)]
        lines = (json.dumps(row | {"text": text}) for row, text in zip(rows, texts, strict=True))
        (folder / "rows.jsonl").write_text("\n".join(lines))
        documents = str(folder / "documents")
        manifest = ingest([str(folder / "rows.jsonl")], documents, IngestConfig(shards=1, validation_share=0.05), ONE)
        learn_vocabulary(documents, str(folder / "vocab"), VocabConfig(size=3000), ONE)
        vocabulary = (folder / "vocab" / "vocab.txt").read_text(encoding="utf-8")
        found.append({"counts": manifest.counts, "shards": manifest.shards, "vocabulary": vocabulary})
    assert found[0] == found[1]
    assert not any("\u1100" <= character <= "\u11ff" for character in str(found[1]["vocabulary"]))


def test_a_book(tmp_path: Path):
    """Whose lines are wrapped at a width in characters."""
    words = " ".join(json.loads(CORPUS.read_text(encoding="utf-8").splitlines()[1])["text"].split())
    book = "\n".join(words[start : start + 60] for start in range(0, 6000, 60))
    found = []
    for form in ("NFC", "NFD"):
        (tmp_path / form).mkdir()
        (tmp_path / form / "book.txt").write_text(unicodedata.normalize(form, f"제 1 장\n\n{book}\n"), encoding="utf-8")
        (document,) = read_documents(str(tmp_path / form / "book.txt"))
        found.append(document.paragraphs)
    assert found[0] == found[1] != []
