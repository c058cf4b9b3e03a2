"""English and Korean Wikipedia in one corpus: whole syllables, no language tells the label."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from clozeworks.pipeline.auditing.checks import audit
from clozeworks.pipeline.config import BuildConfig, IngestConfig, RunOptions, VocabConfig
from clozeworks.pipeline.documents.pipeline import ingest
from clozeworks.pipeline.instances.pipeline import build
from clozeworks.pipeline.vocabulary.files import read_vocabulary
from clozeworks.pipeline.vocabulary.pipeline import learn_vocabulary

from tests.fixtures.shared_data import DATA, needs_shared_data

pytestmark = pytest.mark.slow

ONE = RunOptions(workers=1)
SOURCES = {"enwiki-hf-00000-of-00002.parquet": 320, "kowiki-hf.parquet": 300}


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("mixture")
    for name, num_articles in SOURCES.items():
        pq.write_table(
            pq.read_table(DATA / "wikipedia" / name).slice(0, num_articles), folder / name
        )
    ingest(
        [str(folder / name) for name in SOURCES],
        str(folder / "documents"),
        IngestConfig(shards=2),
        ONE,
    )
    return str(folder / "documents")


@needs_shared_data
def test_syllables_stay_whole_and_language_tells_nothing(documents: str, tmp_path: Path):
    learned = learn_vocabulary(documents, str(tmp_path / "vocab"), VocabConfig(size=8000), ONE)
    assert learned.accents is not None and "ko (" in learned.accents.reason
    tokens = read_vocabulary(str(tmp_path / "vocab")).tokens
    assert sum(any("가" <= letter <= "힣" for letter in token) for token in tokens) > 2000
    assert not any("\u1100" <= letter <= "\u11ff" for token in tokens for letter in token)

    instances = str(tmp_path / "instances")
    build(documents, str(tmp_path / "vocab"), instances, BuildConfig(duplicates=1), ONE)
    audited = audit(instances, documents)
    assert not audited.failed
    values = {check.name: check.value for check in audited.checks}
    for name in ("language", "source"):
        assert values[f"AUC of {name} for the label"] == pytest.approx(0.5, abs=0.02)
