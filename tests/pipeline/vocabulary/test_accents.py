"""Accents are stripped only if no language with a share in the text is damaged."""

import re
from pathlib import Path

import pyarrow as pa
import pytest
from clozeworks.cli.main import main
from clozeworks.pipeline.config import RunOptions, VocabConfig
from clozeworks.pipeline.manifests import Accents, DocumentsManifest, VocabularyManifest
from clozeworks.pipeline.storage.state import read_manifest
from clozeworks.pipeline.vocabulary.accents import decide_accents
from clozeworks.pipeline.vocabulary.files import read_vocabulary
from clozeworks.pipeline.vocabulary.normalization import Normalization
from clozeworks.pipeline.vocabulary.pipeline import learn_vocabulary
from clozeworks.pipeline.vocabulary.tokenize import Speller, count_words

from tests.fixtures.documents_fixture import TRAIN, VALIDATION, write_documents

TEXTS = {
    "en": "The café near the lake has been closed since the spring of that year . " * 20,
    "uk": "Київ це столиця України . Київ стоїть на Дніпрі і на своїй землі . " * 20,
    "ko": "한국어는 한반도에서 쓰이는 언어이다 . 한국어는 쉽다 . " * 20,
    "id": "Jakarta adalah kota terbesar di negara ini . " * 20,
}


def write_texts(path: Path, texts: list[tuple[str, str]]) -> str:
    """Write documents of (language, text), the first of them also as the validation split."""
    documents = [(language, language, [text]) for language, text in texts]
    return write_documents(path, {TRAIN: documents, VALIDATION: documents[:1]})


def decided(tmp_path: Path, documents: list[tuple[str, str]], **options) -> Accents:
    path = write_texts(tmp_path / "documents", documents)
    return decide_accents(VocabConfig(**options), path, read_manifest(path, DocumentsManifest))


def of(*languages: str) -> list[tuple[str, str]]:
    return [(language, TEXTS[language]) for language in languages]


HARDLY = r"it hardly damages text in an unknown language \(\d+% of the text\)$"


@pytest.mark.parametrize(
    ("documents", "options", "strip", "reason"),
    [
        (of("en"), {}, True, r"stripped, as is usual in en \(100% of the text\)"),
        (of("en", "id"), {}, True, r"in en \(\d\d% of the text\), id \(\d\d% of the text\)"),
        (of("uk"), {}, False, r"kept, .* damage uk \(100% of the text\)"),
        (of("en", "en", "ko"), {}, False, r"damage ko \(\d\d% of the text\)"),
        ([("hy", TEXTS["id"])], {}, False, r"damage hy \(100% of the text\)"),
        ([("en", TEXTS["en"] * 200), ("uk", TEXTS["uk"])], {}, True, r"in en \(100% of the text\)"),
        ([("en-gb", TEXTS["en"])], {}, True, "in en-gb"),
        ([("und", TEXTS["id"] + TEXTS["en"].replace("é", "e"))], {}, True, HARDLY),
        ([("und", TEXTS["id"]), ("en", TEXTS["en"])], {}, True, f"usual in en .*, and as {HARDLY}"),
        ([("und", TEXTS["uk"])], {}, False, "damage text in an unknown language"),
        (of("uk"), {"cased": True}, False, "the vocabulary is cased"),
        (of("en"), {"strip_accents": False}, False, "as requested"),
    ],
)
def test_decision_and_reason(tmp_path: Path, documents, options, strip: bool, reason: str):
    accents = decided(tmp_path, documents, **options)
    assert accents.strip is strip
    assert re.search(reason, accents.reason)
    assert not accents.damage


@pytest.mark.slow
@pytest.mark.parametrize("cased", [False, True])
def test_damage_that_was_requested_is_a_warning(tmp_path: Path, capsys, cased: bool):
    assert decided(tmp_path, of("en"), strip_accents=True).damage == ""
    documents = write_texts(tmp_path / "mixed", of("en", "uk"))
    output = str(tmp_path / "vocab")
    main(
        [
            "vocab",
            documents,
            "--output",
            output,
            "--size=100",
            "--strip-accents",
            *(["--cased"] if cased else []),
        ]
    )
    error = capsys.readouterr().err
    assert "Warning: --strip-accents could damage uk (" in error
    manifest = read_manifest(output, VocabularyManifest)
    assert manifest.accents is not None and manifest.accents.damage


def test_letters_stay_in_a_mixture(tmp_path: Path):
    documents = write_texts(tmp_path / "documents", of("en", "en", "uk", "ko"))
    manifest = learn_vocabulary(
        documents, str(tmp_path / "vocab"), VocabConfig(size=300), RunOptions(workers=1)
    )
    assert manifest.accents is not None and not manifest.accents.strip
    vocabulary = read_vocabulary(str(tmp_path / "vocab"))
    assert not vocabulary.normalization.strip_accents
    assert {"київ", "своїй"} <= set(vocabulary.tokens)
    assert not any(
        "\u1100" <= letter <= "\u11ff" for token in vocabulary.tokens for letter in token
    )


@pytest.mark.parametrize("text", ["한국어는", "がぎぐげご", "हिन्दी", "ภาษาไทยที่", "їжак"])
def test_stripping_destroys_letters_and_keeping_does_not(text: str):
    kept, stripped = (
        count_words([pa.array([text])], Speller(Normalization(True, strip)))
        for strip in (False, True)
    )
    assert "".join(kept["word"].to_pylist()) == text
    assert "".join(stripped["word"].to_pylist()) != text
