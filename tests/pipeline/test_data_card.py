"""The data card: the Hub's metadata, and that ``datasets`` loads the directory by it."""

from pathlib import Path

import pytest
from clozeworks.pipeline.config import BuildConfig, IngestConfig, RunOptions, VocabConfig
from clozeworks.pipeline.data_card import CARD, data_card, hub_languages
from clozeworks.pipeline.documents.pipeline import ingest
from clozeworks.pipeline.instances.pipeline import build
from clozeworks.pipeline.manifests import DocumentsManifest
from clozeworks.pipeline.storage.state import read_manifest
from huggingface_hub import DatasetCard
from msgspec import structs

from tests.fixtures.stages_fixture import Configs, make_stages

ONE = RunOptions(workers=1)


def test_languages_are_codes_of_two_or_three_letters():
    languages = {"ltg": 1, "be-tarask": 1, "be": 1, "und": 5, "x-other": 1}
    assert hub_languages(languages) == ["be", "ltg"]


@pytest.mark.slow
@pytest.mark.parametrize("languages", [{}, {"en": 2, "no": 1, "nb": 1, "off": 1, "zh-hant": 4}])
def test_the_metadata_is_as_the_hub_writes_it(corpus: Path, languages: dict[str, int]):
    manifest = read_manifest(str(corpus / "documents"), DocumentsManifest)
    card = data_card(structs.replace(manifest, languages=languages))
    metadata = DatasetCard(card).data
    assert metadata.get("language") == (hub_languages(languages) or None)
    assert card.startswith(f"---\n{metadata.to_yaml()}\n---\n")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    texts = folder / "texts"
    texts.mkdir()
    for number in range(12):
        sentences = [f"Text {number} has the sentence {i}, and it is fine." for i in range(20)]
        (texts / f"{number}.txt").write_text(" ".join(sentences))
    configs = Configs(IngestConfig(language="en"), VocabConfig(size=200), BuildConfig(duplicates=2))
    make_stages(texts, folder, configs)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["documents", "instances"])
def test_a_directory_can_be_published(corpus: Path, stage: str, tmp_path: Path, monkeypatch):
    from datasets import load_dataset, load_dataset_builder

    card = DatasetCard.load(corpus / stage / CARD)
    assert card.data.get("language") == ["en"] and card.data.get("license") == "unknown"
    assert card.data.get("task_categories") == ["fill-mask"]
    assert str(corpus) not in card.content
    described = load_dataset_builder(str(corpus / stage), cache_dir=str(tmp_path)).info
    loaded = load_dataset(str(corpus / stage), cache_dir=str(tmp_path))
    assert described.splits
    assert {name: split.num_examples for name, split in described.splits.items()} == loaded.num_rows
    assert set(loaded) == {"train", "validation"}


@pytest.mark.slow
def test_two_directories_of_one_name_are_not_taken_for_each_other(corpus: Path, tmp_path: Path):
    from datasets import load_dataset

    config = IngestConfig(language="en", validation_share=0.4)
    ingest([str(corpus / "texts")], str(tmp_path / "documents"), config, ONE)
    num_rows = []
    for directory in (corpus, tmp_path):
        loaded = load_dataset(str(directory / "documents"), cache_dir=str(tmp_path / "cache"))
        num_rows.append(loaded.num_rows)
    assert num_rows[0] != num_rows[1]


@pytest.mark.slow
def test_packed_rows_can_be_loaded(corpus: Path, tmp_path: Path):
    from datasets import load_dataset

    config = BuildConfig(pairing="none", max_length=1024)
    build(str(corpus / "documents"), str(corpus / "vocab"), str(tmp_path / "packed"), config, ONE)
    loaded = load_dataset(str(tmp_path / "packed"), cache_dir=str(tmp_path / "cache"))
    assert "sequence_starts" in loaded["train"].column_names
    assert "segment_b_start" not in loaded["train"].column_names
