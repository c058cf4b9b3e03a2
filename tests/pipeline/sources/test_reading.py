"""Documents without a stage: as an iterator, and in a Beam pipeline of one's own."""

import shutil
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to
from clozeworks.pipeline.config import IngestConfig
from clozeworks.pipeline.counters import Counters
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.sources.formats import read_documents
from clozeworks.pipeline.transforms import ReadDocuments

VERSION = version("apache-beam")  # without it Beam tries to download another runner
CORPUS = Path(__file__).resolve().parents[3] / "examples" / "quickstart" / "corpus"


@pytest.mark.slow
def test_the_quickstart_is_read_by_the_transform_as_by_the_iterator():
    counters = Counters()
    documents = [asdict(document) for document in read_documents(str(CORPUS), counters=counters)]
    assert {document["source"] for document in documents} == {"enwiki", "gutenberg", "text"}
    assert len(documents) > 50
    assert not counters.bad
    pipeline = beam.Pipeline(
        runner="DirectRunner", options=PipelineOptions(update_compatibility_version=VERSION)
    )
    assert_that(pipeline | ReadDocuments(str(CORPUS)), equal_to(documents))
    result = pipeline.run()
    result.wait_until_finish()
    metrics = result.metrics().query()["counters"]
    assert {metric.key.metric.name: metric.committed for metric in metrics} == counters.counts


def test_sources_in_the_working_directory_are_read_and_bad_input_is_counted(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("One text.\n")
    (tmp_path / "b.txt").write_text("")
    (tmp_path / "c.doc").write_text("?")
    monkeypatch.chdir(tmp_path)
    counters = Counters()
    (document,) = read_documents(["."], IngestConfig(documents="file"), counters)
    assert document.paragraphs == ["One text."]
    assert counters.bad == {"empty_file": 1}
    assert counters.counts["files_of_unknown_format"] == 1
    options = PipelineOptions(update_compatibility_version=VERSION)
    pipeline = beam.Pipeline(runner="DirectRunner", options=options)
    _ = pipeline | ReadDocuments(".", IngestConfig(documents="file"))
    result = pipeline.run()
    result.wait_until_finish()
    counted = {each.key.metric.name for each in result.metrics().query()["counters"]}
    assert {"files_of_unknown_format", "empty_file"} <= counted


def test_a_source_that_does_not_exist_is_refused_at_once(tmp_path):
    for read in (read_documents, ReadDocuments):
        with pytest.raises(UserError, match="none"):
            read(str(tmp_path / "none"))
    shutil.rmtree(tmp_path)
