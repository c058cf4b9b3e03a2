"""The audit passes what `build_instances` builds, and judges only what can be judged."""

import json
from dataclasses import asdict

import numpy as np
import pytest
from clozeworks.pipeline.auditing.checks import mask_checks, split_checks
from clozeworks.pipeline.auditing.measures import Measures
from clozeworks.pipeline.auditing.origins import OriginMeasures
from clozeworks.pipeline.auditing.verdict import Audit, Check, Verdict
from clozeworks.pipeline.config import BuildConfig
from clozeworks.pipeline.instances.balance import auc_of
from clozeworks.pipeline.seeding import rng_for
from clozeworks.pipeline.vocabulary.files import load_vocabulary
from sklearn.metrics import roc_auc_score

from tests.fixtures import audit_fixture
from tests.fixtures.audit_fixture import SHARD, VOCABULARY, audit, build, checks_of, failed
from tests.fixtures.documents_fixture import write_documents


def check(name: str, figure: str, verdict: Verdict, value: float = 0.5) -> Check:
    return Check(name, figure, "50%", verdict, value)


@pytest.mark.slow
@pytest.mark.parametrize("pairing", ["balanced", "bert", "sop", "none"])
@pytest.mark.parametrize("masking", ["token", "whole-word"])
def test_what_build_writes_passes(tmp_path, pairing, masking):
    audited = audit(tmp_path, build(tmp_path, pairing=pairing, masking=masking))
    assert failed(audited) == set()
    assert sum(map(sum, audited.lengths)) == checks_of(audited)["rows"].value
    assert json.loads(json.dumps(audited.to_json()))["ok"] is True


@pytest.mark.parametrize("mask_split", [(100, 0, 0), (0, 100, 0), (0, 0, 100), (60, 20, 20)])
def test_any_requested_split_passes(tmp_path, mask_split):
    assert failed(audit(tmp_path, build(tmp_path, mask_split=mask_split, mask_rate=0.3))) == set()


@pytest.mark.parametrize(("max_length", "mask_rate"), [(8, 0.15), (512, 0.4), (2048, 0.25)])
def test_any_requested_length_and_rate_passes(tmp_path, max_length, mask_rate):
    assert (
        failed(audit(tmp_path, build(tmp_path, max_length=max_length, mask_rate=mask_rate)))
        == set()
    )


def test_rows_of_little_else_than_added_tokens_pass_with_fewer_masks(tmp_path, monkeypatch):
    tokenizer = VOCABULARY.tokenizer()
    tokenizer.add_special_tokens(
        [f"w{index}" for index in range(1, 400)] + [f"##p{index}" for index in range(200)]
    )
    files = {"tokenizer.json": tokenizer.to_str().encode()}
    monkeypatch.setattr(audit_fixture, "VOCABULARY", load_vocabulary(files, "vocab"))
    assert failed(audit(tmp_path, build(tmp_path, mask_rate=0.4))) == set()


def test_the_parts_of_a_text_in_order_need_not_be_of_equal_length(tmp_path):
    audited = audit(tmp_path, build(tmp_path, pairing="sop", max_length=16))
    checks = checks_of(audited)
    assert abs((checks["AUC of length of A for the label"].value or 0) - 0.5) > 0.05
    assert checks["AUC of row length for the label"].verdict == "ok"
    assert failed(audited) == set()


def test_tokens_of_each_source_are_shown(tmp_path):
    manifest = build(tmp_path, 20)
    manifest["shards"][0]["source_tokens"] = {"books": 100, "enwiki": 300}
    manifest["shards"].append({**manifest["shards"][0], "source_tokens": {"books": 600}})
    shown = {check.name: check.measured for check in audit(tmp_path, manifest).checks}
    assert shown["tokens from books"] == "70.0%"
    assert shown["tokens from enwiki"] == "30.0%"


@pytest.mark.parametrize("negatives", ["same-source", "any"])
def test_an_origin_that_gives_away_the_label_fails(tmp_path, negatives: str):
    audited = audit(tmp_path, build(tmp_path, origins=True, negatives=negatives))
    origins = {f"AUC of {name} for the label" for name in ("language", "source")}
    assert failed(audited) == (origins if negatives == "any" else set())
    counted = {f"AUC of document length of {segment} for the label" for segment in "AB"}
    assert origins | counted <= {check.name for check in audited.checks}


@pytest.mark.parametrize(
    ("checks", "verdict", "sentence"),
    [
        ([("rows", "9", "ok"), ("tokens", "9", "info")], "ok", "All 1 checks hold."),
        (
            [("rows", "9", "ok")] * 19 + [(f"share {i}", "0.030%", "unjudged") for i in range(4)],
            "unjudged",
            "19 checks hold, 4 not judged: share 0 0.030%, share 1 0.030%, share 2 0.030% and 1 "
            "more.",
        ),
        (
            [("IsNext", "40% (39%)", "bad"), ("rows", "9", "ok"), ("a", "1", "unjudged")],
            "bad",
            "1 check fails: IsNext 40% (expected 50%); 1 hold, 1 not judged: a 1.",
        ),
        (
            [(name, "1", "bad") for name in "abcd"],
            "bad",
            "4 checks fail: a 1 (expected 50%), b 1 (expected 50%), c 1 (expected 50%) and 1 more; "
            "0 hold.",
        ),
    ],
)
def test_the_verdict_names_what_fails_and_what_was_not_judged(checks, verdict, sentence):
    audited = Audit({}, [check(*values) for values in checks], [], [], [])
    assert (audited.verdict, audited.sentence) == (verdict, sentence)


def test_the_verdict_says_what_to_do():
    failing = Check(
        "IsNext", "9%", "50%", "bad", 0.09, advice="ingest with a larger `validation_share`"
    )
    sentence = (
        "1 check fails: IsNext 9% (expected 50%; ingest with a larger `validation_share`); 0 hold."
    )
    assert Audit({}, [failing], [], [], []).sentence == sentence
    assert failing.measured_and_advice == "9%; ingest with a larger `validation_share`"


@pytest.mark.parametrize(
    ("options", "verdict"),
    [({}, "ok"), ({"pairing": "none"}, "ok"), ({"pairing": "bert"}, "unjudged")],
)
def test_the_whole_holds_only_if_all_of_it_was_judged(tmp_path, options, verdict):
    assert audit(tmp_path, build(tmp_path, origins=True, **options)).verdict == verdict


def test_sources_and_languages_are_not_judged_without_the_documents(tmp_path):
    checks = checks_of(audit(tmp_path, build(tmp_path)))
    for name in ("language", "source"):
        assert checks[f"AUC of {name} for the label"].verdict == "unjudged"
    assert checks["AUC of document length of A for the label"].verdict == "ok"


def test_labels_of_a_few_rows_are_not_judged(tmp_path):
    manifest = build(tmp_path, 2, duplicates=1, max_length=64)
    assert 4 < manifest["shards"][0]["rows"] < 60
    checks = checks_of(audit(tmp_path, manifest))
    for name in ("IsNext", "AUC of row length for the label"):
        assert checks[name].verdict == "unjudged"
        assert checks[name].asked.startswith("too little to judge")


@pytest.mark.parametrize("seed", [10, 104, 135])
def test_few_tokens_of_one_kind_in_a_few_rows_are_no_fault(tmp_path, seed: int):
    rows = build(tmp_path, 2, pairing="none", duplicates=1, max_length=64, seed=seed)
    assert failed(audit(tmp_path, rows)) == set()


def test_google_researchs_pairing_is_measured_and_not_judged(tmp_path):
    checks = checks_of(audit(tmp_path, build(tmp_path, origins=True, pairing="bert")))
    for name in ("language", "source"):
        check = checks[f"AUC of {name} for the label"]
        assert check.verdict == "unjudged"
        assert (check.value or 0) > 0.7


def test_tokens_cut_from_few_rows_are_not_judged(tmp_path):
    manifest = build(tmp_path, 2, duplicates=1, max_length=64)
    manifest["counts"]["tokens_in"] += 100
    manifest["counts"]["tokens_cut"] += 100
    audited = audit(tmp_path, manifest)
    cut = checks_of(audited)["tokens cut"]
    assert (cut.verdict, cut.asked) == ("unjudged", "too little to judge: 16 rows")
    assert not audited.failed


@pytest.mark.parametrize(("words", "fails"), [(13_000, False), (50_000, True)])
def test_long_words_may_leave_more_of_the_mask_budget(words: int, fails: bool):
    measures = Measures(VOCABULARY, BuildConfig(max_length=32, masking="whole-word"))
    measures.counts.update(
        rows=2000, tokens=64_000, text_tokens=58_000, words=words, masked=8000, masks_asked=10_000
    )
    assert [check.verdict for check in mask_checks(measures) if check.name == "masked share"] == [
        "bad" if fails else "ok"
    ]


@pytest.mark.parametrize(
    ("num_errors", "verdict"), [(-6, "bad"), (-3, "ok"), (3, "ok"), (6, "bad")]
)
def test_the_mask_split_is_judged_by_the_binomial_error(num_errors: int, verdict: str):
    measures = Measures(VOCABULARY, BuildConfig(max_length=32))
    num_masked = 1_000_000
    masks = round(800_000 + num_errors * (num_masked * 0.8 * 0.2) ** 0.5)
    measures.counts.update(rows=100_000, masked=num_masked, masked_mask=masks)
    found = {check.name: check.verdict for check in split_checks(measures)}
    assert found["masked tokens that are [MASK]"] == verdict


@pytest.mark.parametrize(("pairing", "name"), [("bert", "tokens_in"), ("balanced", "tokens_cut")])
def test_counts_missing_from_the_manifest_count_as_0(pairing, name, tmp_path):
    manifest = build(tmp_path, 20, pairing=pairing)
    del manifest["counts"][name]
    audit(tmp_path, manifest)


def test_an_empty_corpus_is_measured(tmp_path):
    manifest = {"config": asdict(BuildConfig()), "shards": [], "counts": {}}
    assert failed(audit(tmp_path, manifest)) == set()


def test_auc_is_that_of_scikit_learn():
    rng = rng_for(0, "auc")
    labels, values = rng.integers(0, 2, 500), rng.integers(0, 20, 500)
    histogram = np.zeros((2, 20), np.int64)
    np.add.at(histogram, (labels, values + 0), 1)
    assert auc_of(histogram)[0] == pytest.approx(roc_auc_score(labels, values))


def test_a_shard_from_which_no_rows_were_built_is_measured(tmp_path):
    documents = write_documents(tmp_path / "documents", {SHARD: [("books", "en", ["One."])] * 2})
    origins = OriginMeasures(documents, {})
    origins.end_shard(SHARD)
    assert origins.sources == {}
