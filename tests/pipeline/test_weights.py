"""Weights: documents are read as often as asked in every pass, and their words count alike."""

import fcntl
import json
import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from clozeworks.pipeline.auditing.checks import audit
from clozeworks.pipeline.config import BuildConfig, RunOptions, VocabConfig
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.execution.runner import dry_run
from clozeworks.pipeline.instances.origins import copies_in_pass
from clozeworks.pipeline.instances.pipeline import InstancesStage, build
from clozeworks.pipeline.manifests import InstancesManifest
from clozeworks.pipeline.mixture import parse_weights, plan_mixture
from clozeworks.pipeline.seeding import rng_for
from clozeworks.pipeline.vocabulary.pipeline import VocabularyStage, learn_vocabulary
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.documents_fixture import TRAIN, VALIDATION, write_documents
from tests.fixtures.manifest_fixture import editable, make_manifest, parsed

ONE = RunOptions(workers=1)
GROUPS = [
    ("enwiki", "en", "alpha beta gamma ."),
    ("books", "en", "delta omega ."),
    ("kowiki", "ko", "zeta eta ."),
]


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> str:
    rng = np.random.default_rng(0)
    shards = {}
    for name, num_documents in ((TRAIN, 300), (VALIDATION, 9)):
        shards[name] = []
        for i, size in enumerate(rng.integers(10, 60, num_documents).tolist()):
            source, language, text = GROUPS[i % 3]
            shards[name].append((source, language, [text] * size))
    return write_documents(tmp_path_factory.mktemp("documents"), shards)


def built(documents: str, tmp_path: Path, **options) -> InstancesManifest:
    vocab, output = tmp_path / "vocab", str(tmp_path / "out")
    learn_vocabulary(documents, str(vocab), VocabConfig(size=100), ONE)
    config = BuildConfig(**{"max_length": 64, "duplicates": 4, **options})
    return build(documents, str(vocab), output, config, ONE)


@pytest.mark.slow
def test_documents_are_read_as_often_as_asked(documents: str, tmp_path: Path):
    manifest = built(documents, tmp_path, weight=("books=2.5", "ko=0.3"))
    asked = {"enwiki": 1, "books": 2.5, "kowiki": 0.3}
    rows = pq.read_table(f"{documents}/{TRAIN}")
    sources, sizes = (
        rows["source"].to_pylist(),
        rows["sentences"].combine_chunks().value_lengths().to_numpy(),
    )
    for group in manifest.mixture:
        assert group.weight == asked[group.source]
        assert group.tokens_built / group.tokens / 4 == pytest.approx(group.weight, rel=0.01)
        own = sizes[
            [source == group.source for source in sources]
        ]  # in sentences, all of them the same
        assert group.squared_tokens * own.sum() ** 2 == group.tokens**2 * (own**2).sum()
    for shard in manifest.shards:
        assert sum(shard.source_tokens.values()) == shard.counts["tokens_in"]
    verdicts = {check.name: check.verdict for check in audit(str(tmp_path / "out")).checks}
    assert (
        verdicts["times read per pass: books, en"]
        == verdicts["times read per pass: kowiki, ko"]
        == "ok"
    )
    # The rows of each pass, found by the documents that they come from.
    table = pq.read_table(
        tmp_path / "out" / TRAIN, columns=["document_a", "duplicate", "input_ids"]
    )
    kinds, lengths = (
        table["document_a"].to_numpy() % 3,
        table["input_ids"].combine_chunks().value_lengths().to_numpy(),
    )
    for duplicate in range(4):
        own = table["duplicate"].to_numpy() == duplicate
        tokens = np.bincount(kinds[own], lengths[own])
        assert tokens[1] / tokens[0] == pytest.approx(
            2.5 * 3 / 4, rel=0.1
        )  # sentences have 3 tokens, and 4


@pytest.mark.parametrize(("longest", "verdict"), [(10, "bad"), (1000, "ok")])
def test_the_audit_allows_for_the_rounding_of_a_long_document(
    documents: str, tmp_path: Path, longest: int, verdict: str
):
    built(documents, tmp_path, weight=("books=2.5",))
    path, lengths = tmp_path / "out" / "manifest.json", np.array([longest, *[10] * 99])
    manifest = editable(path)
    for group in manifest["mixture"]:
        tokens = int(lengths.sum())
        group |= {"tokens": tokens, "squared_tokens": int((lengths**2).sum())}
        group["tokens_built"] = round(4 * (group["weight"] + 0.1) * tokens)
    path.write_text(json.dumps(manifest))
    verdicts = {check.name: check.verdict for check in audit(str(tmp_path / "out")).checks}
    assert verdicts["times read per pass: books, en"] == verdict


def test_a_dry_run_refuses_an_unknown_name(documents: str, tmp_path: Path):
    vocab, output = str(tmp_path / "vocab"), str(tmp_path / "out")
    with pytest.raises(UserError, match="`weight` fr: no source"):
        config = VocabConfig(weight=("fr=2",))
        dry_run(VocabularyStage(documents=documents, output=vocab, config=config), ONE)
    learn_vocabulary(documents, vocab, VocabConfig(size=100), ONE)
    with pytest.raises(UserError, match="`weight` fr: no source"):
        config = BuildConfig(weight=("fr=2",))
        stage = InstancesStage(documents=documents, vocab=vocab, output=output, config=config)
        dry_run(stage, ONE)


def test_weights_of_1_change_nothing(documents: str, tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    plain, weighted = (
        built(documents, tmp_path / "a"),
        built(documents, tmp_path / "b", weight=("books=1",)),
    )
    assert [shard.sha256 for shard in plain.shards] == [shard.sha256 for shard in weighted.shards]


@given(st.floats(0.05, 4), st.integers(1, 6), st.integers(1, 300))
def test_copies_add_up_over_the_passes(weight: float, passes: int, num_documents: int):
    lengths, weights = np.arange(num_documents) % 7, np.full(num_documents, weight)
    copies = [copies_in_pass(weights, lengths, i, rng_for(0, "copies")) for i in range(passes)]
    total = np.sum(copies, axis=0)
    assert (np.abs(total - weight * passes) < 1 + 1e-6).all()
    assert all((np.abs(own - weight) < 1 + 1e-6).all() for own in copies)
    assert abs(total.sum() - weight * passes * num_documents) <= 5


def test_words_count_alike(documents: str, tmp_path: Path):
    for name, weight in (("plain", ()), ("weighted", ("books=2.5", "kowiki=0.3"))):
        learn_vocabulary(documents, str(tmp_path / name), VocabConfig(size=100, weight=weight), ONE)
    plain, weighted = (
        pq.read_table(tmp_path / name / "word_counts.parquet").to_pydict().values()
        for name in ("plain", "weighted")
    )
    plain, weighted = dict(zip(*plain, strict=True)), dict(zip(*weighted, strict=True))
    assert weighted["alpha"] == plain["alpha"]
    assert weighted["delta"] == pytest.approx(2.5 * plain["delta"], abs=1)
    assert weighted["zeta"] == pytest.approx(0.3 * plain["zeta"], abs=1)


def test_an_exponent_levels_languages():
    sizes = {"en": 8000, "ko": 1000, "lt": 1000}
    groups = [
        {"source": "w", "language": name, "documents": 1, "characters": n}
        for name, n in sizes.items()
    ]
    shard = {"name": TRAIN, "split": "train", "rows": 3, "bytes": 1, "groups": groups}
    corpus = parsed(make_manifest("ingest", [shard]))
    for exponent in (0.0, 0.3, 0.7, 1.0):
        mixture = plan_mixture(corpus, (), exponent)
        read = {group.language: group.weight * sizes[group.language] for group in mixture}
        assert sum(read.values()) == pytest.approx(10_000, rel=1e-4)
        assert read["en"] / read["ko"] == pytest.approx(8**exponent, rel=1e-4)
    with pytest.raises(UserError, match="`weight` fr: no source or language has this name; choose"):
        plan_mixture(corpus, ("fr=2",), 1.0)


@pytest.mark.parametrize(
    "entry", ["books", "books=", "=2", "books=0", "books=-1", "books=nan", "books=1e9"]
)
def test_mistakes_are_one_line(entry: str):
    with pytest.raises(UserError, match=f"`weight` {entry}: give NAME=WEIGHT"):
        parse_weights([entry])


@pytest.mark.parametrize("entries", [["ko=2,ko=3"], ["ko=2", "en=1,ko=3"]])
def test_a_name_has_one_weight(entries: list[str]):
    with pytest.raises(UserError, match="`weight` ko=3: ko has a weight already; give one for"):
        parse_weights(entries)


@pytest.mark.parametrize(
    ("source", "asked", "weight"), [("ko", "ko=2", 2), ("kowiki", "ko=2,kowiki=3", 6)]
)
def test_a_name_that_source_and_language_share_counts_once(source: str, asked: str, weight: float):
    groups = [{"source": source, "language": "ko", "documents": 1, "characters": 1}]
    shard = {"name": TRAIN, "split": "train", "rows": 1, "bytes": 1, "groups": groups}
    [group] = plan_mixture(parsed(make_manifest("ingest", [shard])), (asked,), 1.0)
    assert group.weight == weight


def few(path: Path, num_documents: int) -> str:
    documents = [("a" if i else "b", "en", ["x y z ."] * 30) for i in range(num_documents)]
    return write_documents(path, {TRAIN: documents, VALIDATION: documents})


@pytest.mark.parametrize("pairing", ["balanced", "bert", "sop", "none"])
@pytest.mark.parametrize("weight", ["b=3", "en=0.3"])
def test_a_document_alone_in_a_part_of_a_pass_is_left_out_if_it_needs_a_partner(
    tmp_path: Path, pairing: str, weight: str
):
    manifest = built(
        few(tmp_path / "documents", 4), tmp_path, pairing=pairing, weight=(weight,), max_length=32
    )
    left_out = manifest.counts.get("documents_without_partner", 0)
    assert bool(left_out) == (pairing in ("balanced", "bert"))
    read = sum(group.tokens_built for group in manifest.mixture) / 120
    assert read + left_out == pytest.approx(4 * (6 if weight == "b=3" else 1.2), abs=1)
    if weight == "b=3":
        reasons = [
            check.measured.partition("; ")[2] for check in audit(str(tmp_path / "out")).failed
        ]
        assert reasons == (
            [f"{left_out} documents skipped, alone in a part of a pass"] if left_out else []
        )


def test_a_shard_with_a_single_document_stays_a_mistake(tmp_path: Path):
    with pytest.raises(UserError, match="The shard has 1 document with text"):
        built(few(tmp_path / "documents", 1), tmp_path, weight=("b=3",))
    descriptor = os.open(tmp_path / "out", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # another process may go on
    os.close(descriptor)
