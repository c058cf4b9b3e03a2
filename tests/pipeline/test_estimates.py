"""A dry run estimates sizes and times that grow with the input and shrink with workers."""

import pytest
from clozeworks.pipeline.config import IngestConfig, RunOptions
from clozeworks.pipeline.documents.pipeline import estimate_documents
from clozeworks.pipeline.instances.pipeline import estimate_instances
from clozeworks.pipeline.sources.formats import Input
from clozeworks.pipeline.vocabulary.pipeline import estimate_vocabulary

MEGABYTE = 1_000_000
ONE, TWO = RunOptions(workers=1), RunOptions(workers=2)


def dump(num_bytes: int, name: str = "wiki.xml.bz2") -> Input:
    return Input(f"/x/{name}", name, "wikipedia", num_bytes)


def test_ten_times_the_input_takes_ten_times_the_disk_and_less_than_ten_times_the_time():
    small, large = (
        estimate_documents([dump(n * 100 * MEGABYTE)], 10 * n, IngestConfig(), ONE, "new")
        for n in (1, 10)
    )
    assert large.output_bytes == pytest.approx(10 * small.output_bytes, rel=0.01)
    assert 8 * small.seconds < large.seconds < 10 * small.seconds
    assert large.worker_bytes == pytest.approx(small.worker_bytes, rel=0.25)


@pytest.mark.parametrize("name", ["wiki.xml-p1p41242", "dump"])
def test_a_plain_dump_is_known_by_what_its_name_lacks(name: str):
    plain, same = (
        estimate_documents([dump(100 * MEGABYTE, name)], 9, IngestConfig(), ONE, "new")
        for name in ("wiki.xml", name)
    )
    assert plain == same


def test_a_second_worker_halves_the_time_but_not_the_start_up():
    one, two = (
        estimate_instances([20 * MEGABYTE] * 40, 5, options, "new") for options in (ONE, TWO)
    )
    assert one.seconds / 2 < two.seconds < one.seconds / 1.9
    assert estimate_instances([20 * MEGABYTE], 5, TWO, "new").workers == 1


def test_estimates_match_the_run_they_were_fitted_to():
    # 27.1 MB of Parquet, 86 MB of text: 36.9 MB of documents, 34.3 MB of instances in one
    # duplicate; 12, 16 and 6 s.
    table = Input("enwiki.parquet", "enwiki.parquet", "parquet", 27_100_000)
    documents = estimate_documents([table], 1, IngestConfig(), ONE, "new")
    vocabulary = estimate_vocabulary([36_900_000], ONE, "new")
    instances = estimate_instances([36_900_000], 1, ONE, "new")
    assert documents.output_bytes == pytest.approx(36_900_000, rel=0.1)
    assert instances.output_bytes == pytest.approx(34_300_000, rel=0.1)
    for estimate, seconds in ((documents, 12), (vocabulary, 16), (instances, 6)):
        assert estimate.seconds == pytest.approx(seconds, rel=0.4)
        assert 450 * MEGABYTE < estimate.worker_bytes < 700 * MEGABYTE
