from pathlib import Path

from clozeworks.pipeline.auditing.ends import abbreviated_ends

from tests.fixtures.documents_fixture import TRAIN, write_documents


def test_short_words_that_end_sentences_are_proposed_with_the_stops_within(tmp_path: Path) -> None:
    sentences = ["Det finns t.ex.", "Stockholm glänser.", "Kapt.", "Berg försvann."]
    directory = write_documents(tmp_path / "docs", {TRAIN: [("a", "sv", sentences)] * 6})
    assert abbreviated_ends(directory) == [("t.ex", 6), ("Kapt", 6)]
