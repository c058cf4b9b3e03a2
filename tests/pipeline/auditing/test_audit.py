"""The audit passes what `build_instances` builds, and names each planted fault."""

import json
import re
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clozeworks.cli.main import main
from clozeworks.pipeline.auditing.checks import audit_instances
from clozeworks.pipeline.auditing.judging import wilson_interval
from clozeworks.pipeline.auditing.mask_checks import mask_checks
from clozeworks.pipeline.auditing.measures import Measures, scripts_of
from clozeworks.pipeline.auditing.verdict import Audit, Check, Verdict
from clozeworks.pipeline.config import BuildConfig
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.instances.balance import auc_of
from clozeworks.pipeline.instances.chunks import Corpus
from clozeworks.pipeline.instances.origins import origins_of
from clozeworks.pipeline.instances.table import build_instances, parquet_options
from clozeworks.pipeline.schemas import DOCUMENTS, instances_schema
from clozeworks.pipeline.seeding import rng_for
from clozeworks.pipeline.vocabulary.tokenize import Normalization
from clozeworks.pipeline.vocabulary.vocabulary import SPECIAL_TOKENS, Vocabulary, vocabulary_files
from manifest_fixture import make_manifest, parsed, write_manifest
from sklearn.metrics import roc_auc_score

VOCABULARY = Vocabulary(
    (
        *(*SPECIAL_TOKENS, "[unused0]", "[unused1]", "."),
        *(
            *(f"w{i}" for i in range(400)),
            *(f"한{i}" for i in range(200)),
            *(f"##p{i}" for i in range(200)),
        ),
    ),
    Normalization(True, True),
)
FULL_STOP = VOCABULARY.ids["."]
SHARD = "train-00000-of-00001.parquet"
REPEATED_ROWS = "repeated rows (with 4 or more masked spans)"


def corpus_of(num_documents: int, seed: int = 0) -> Corpus:
    rng = rng_for(seed, "corpus")
    sizes = rng.integers(4, 30, num_documents)
    offsets = np.append(0, np.cumsum(rng.integers(4, 45, sizes.sum())))
    token_ids = rng.integers(FULL_STOP + 1, len(VOCABULARY), offsets[-1]).astype(np.int32)
    token_ids[offsets[1:] - 1] = FULL_STOP
    return Corpus(token_ids, offsets, np.append(0, np.cumsum(sizes)))


def mixed(corpus: Corpus, documents: Path) -> Corpus:
    """Turn every other document into Korean ones of another source, and write their shard."""
    is_korean = np.arange(len(corpus.document_offsets) - 1) % 2
    names, hangul = np.array([["enwiki", "en"], ["kowiki", "ko"]])[is_korean], VOCABULARY.ids["한0"]
    of_token = np.repeat(is_korean, corpus.document_lengths()).astype(bool)
    token_ids = np.where(
        of_token & (corpus.token_ids != FULL_STOP),
        hangul + corpus.token_ids % 200,
        corpus.token_ids,
    )
    token_ids[~of_token & (token_ids >= hangul) & (token_ids < hangul + 200)] -= 200
    rows = [
        {"doc_id": str(row), "source": source, "language": language, "title": "", "sentences": []}
        for row, (source, language) in enumerate(names.tolist())
    ]
    table = pa.Table.from_pylist(rows, DOCUMENTS)
    documents.mkdir()
    pq.write_table(table, documents / SHARD)
    return replace(corpus, token_ids=token_ids.astype(np.int32), origins=origins_of(table))


def build(directory: Path, num_documents: int = 250, origins: bool = False, **options) -> dict:
    """Write a shard of two passes, as the stage does, and return its manifest."""
    config = BuildConfig(**{"duplicates": 2, **options})
    corpus, counts = corpus_of(num_documents), Counter()
    if origins:
        corpus = mixed(corpus, directory / "documents")
    schema = instances_schema(len(VOCABULARY))
    with pq.ParquetWriter(directory / SHARD, schema, **parquet_options(schema)) as writer:
        for duplicate in range(config.duplicates):
            rngs = [rng_for(config.seed, step, duplicate) for step in ("pairs", "masks")]
            built = build_instances(corpus, VOCABULARY, config, rngs[0], rngs[1], duplicate)
            writer.write_table(built.table, row_group_size=1000)
            counts.update(built.counts)
    shards = [{"name": SHARD, "split": "train", "rows": counts.pop("rows")}]
    return {"config": asdict(config), "shards": shards, "counts": dict(counts)}


def audit(directory: Path, manifest: dict) -> Audit:
    documents = directory / "documents"
    return audit_instances(
        str(directory),
        parsed(make_manifest("build", **manifest)),
        VOCABULARY,
        str(documents) if documents.exists() else None,
    )


def spoil(directory: Path, manifest: dict, fault) -> None:
    """Apply `fault` to the rows (a list of dictionaries) of the first shard."""
    path = directory / manifest["shards"][0]["name"]
    rows = pq.read_table(path).to_pylist()
    fault(rows)
    pq.write_table(
        pa.Table.from_pylist(rows, instances_schema(len(VOCABULARY))), path, row_group_size=1000
    )


def write_directory(directory: Path, manifest: dict) -> str:
    """Write beside the shards what else a directory of instances holds."""
    for name, content in vocabulary_files(VOCABULARY).items():
        (directory / name).write_bytes(content)
    rows = {shard["name"]: shard["rows"] for shard in manifest["shards"]}
    write_manifest(directory, "build", rows, config=manifest["config"], counts=manifest["counts"])
    return str(directory)


def failed(audited: Audit) -> set[str]:
    return {check.name for check in audited.failed}


@pytest.mark.slow
@pytest.mark.parametrize("pairing", ["balanced", "bert", "sop", "none"])
@pytest.mark.parametrize("masking", ["token", "whole-word", "span"])
def test_what_build_writes_passes(tmp_path, pairing, masking):
    audited = audit(tmp_path, build(tmp_path, pairing=pairing, masking=masking))
    assert failed(audited) == set()
    assert sum(map(sum, audited.lengths)) == next(
        check.value for check in audited.checks if check.name == "rows"
    )
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


@pytest.mark.parametrize(
    ("masking", "max_length", "verdict"),
    [("token", 16, "unjudged"), ("whole-word", 32, "ok"), ("span", 32, "unjudged")],
)
def test_masks_of_short_rows_may_repeat_by_chance(tmp_path, masking, max_length, verdict):
    manifest = build(
        tmp_path, 20, pairing="none", duplicates=10, max_length=max_length, masking=masking
    )
    checks = {check.name: check.verdict for check in audit(tmp_path, manifest).checks}
    assert checks[REPEATED_ROWS] == verdict


def test_the_parts_of_a_text_in_order_need_not_be_of_equal_length(tmp_path):
    audited = audit(tmp_path, build(tmp_path, pairing="sop", max_length=16))
    checks = {check.name: check for check in audited.checks}
    assert abs((checks["AUC of length of A for the label"].value or 0) - 0.5) > 0.05
    assert checks["AUC of row length for the label"].verdict == "ok"
    assert failed(audited) == set()


def test_tokens_of_each_source_and_frequent_masks_are_shown(tmp_path):
    manifest = build(tmp_path, 20)
    manifest["shards"][0]["source_tokens"] = {"books": 100, "enwiki": 300}
    manifest["shards"].append({**manifest["shards"][0], "source_tokens": {"books": 600}})
    shown = {check.name: check.measured for check in audit(tmp_path, manifest).checks}
    assert shown["tokens from books"] == "70.0%"
    assert shown["tokens from enwiki"] == "30.0%"
    assert shown["most frequently masked"].startswith(". ")


@pytest.mark.parametrize("negatives", ["same-source", "any"])
def test_an_origin_that_gives_away_the_label_fails(tmp_path, negatives: str):
    audited = audit(tmp_path, build(tmp_path, origins=True, negatives=negatives))
    origins = {f"AUC of {name} for the label" for name in ("language", "source", "script")}
    assert failed(audited) == (origins if negatives == "any" else set())
    counted = {f"AUC of document length of {segment} for the label" for segment in "AB"}
    assert origins | counted <= {check.name for check in audited.checks}


def check(name: str, figure: str, verdict: Verdict, value: float = 0.5) -> Check:
    return Check(name, figure, "50%", verdict, value)


@pytest.mark.parametrize(
    ("checks", "verdict", "sentence"),
    [
        ([("rows", "9", "ok"), ("tokens", "9", "info")], "ok", "All 1 checks hold."),
        (
            [
                *[("rows", "9", "ok")] * 19,
                *[
                    ("tokens cut", "0.030%", "unjudged", 0.0003),
                    ("AUC of length", "0.510", "unjudged", 0.51),
                ],
                *[
                    ("AUC of source", "0.000", "unjudged", 0.0),
                    ("IsNext", "45.0% (44% to 46%)", "unjudged", 0.45),
                ],
            ],
            "unjudged",
            "19 checks hold, 4 not judged: IsNext 45.0%, AUC of source 0.000, AUC of length 0.510 "
            "and 1 more.",
        ),
        (
            [
                ("IsNext", "40% (39% to 41%); 9% in pass 1", "bad"),
                ("rows", "9", "ok"),
                ("a", "1", "unjudged"),
            ],
            "bad",
            "1 check fails: IsNext 40% (expected 50%); 1 hold, 1 not judged: a 1.",
        ),
        (
            [(name, "1", "bad") for name in "abcde"],
            "bad",
            "5 checks fail: a 1 (expected 50%), b 1 (expected 50%), c 1 (expected 50%) and 2 more; "
            "0 hold.",
        ),
    ],
)
def test_the_verdict_names_what_fails_and_what_was_not_judged(checks, verdict, sentence):
    audited = Audit({}, [check(*values) for values in checks], [], [], [], [], {})
    assert (audited.verdict, audited.sentence) == (verdict, sentence)


def test_the_verdict_says_what_to_do():
    failing = Check(
        "IsNext", "9%", "50%", "bad", 0.09, advice="ingest with a larger `validation_share`"
    )
    sentence = (
        "1 check fails: IsNext 9% (expected 50%; ingest with a larger `validation_share`); 0 hold."
    )
    assert Audit({}, [failing], [], [], [], [], {}).sentence == sentence
    assert failing.measured_and_advice == "9%; ingest with a larger `validation_share`"


@pytest.mark.parametrize(
    ("options", "verdict"),
    [({}, "ok"), ({"pairing": "none"}, "ok"), ({"pairing": "bert"}, "unjudged")],
)
def test_the_whole_holds_only_if_all_of_it_was_judged(tmp_path, options, verdict):
    assert audit(tmp_path, build(tmp_path, origins=True, **options)).verdict == verdict


def test_what_the_manifest_does_not_count_is_not_judged(tmp_path):
    audited = audit(tmp_path, {**build(tmp_path, origins=True), "counts": {}})
    assert audited.verdict == "unjudged"
    assert "the manifest does not count it" in str(audited.checks)


def test_sources_and_languages_are_not_judged_without_the_documents(tmp_path):
    checks = {check.name: check for check in audit(tmp_path, build(tmp_path)).checks}
    for name in ("language", "source"):
        assert checks[f"AUC of {name} for the label"].verdict == "unjudged"
    assert checks["AUC of document length of A for the label"].verdict == "ok"


def test_a_document_that_does_not_exist_is_a_damaged_shard(tmp_path):
    manifest = build(tmp_path, origins=True)
    spoil(tmp_path, manifest, lambda rows: rows[0].update(document_b=250))
    with pytest.raises(UserError, match="document 250, but the shard of documents has 250"):
        audit(tmp_path, manifest)


def test_labels_of_a_few_rows_are_not_judged(tmp_path):
    manifest = build(tmp_path, 2, duplicates=1, max_length=64)
    assert 4 < manifest["shards"][0]["rows"] < 60
    checks = {check.name: check for check in audit(tmp_path, manifest).checks}
    for name in (
        "IsNext",
        "AUC of row length for the label",
        "spread of random tokens (chi-squared per token)",
    ):
        assert checks[name].verdict == "unjudged"
        assert checks[name].asked.startswith("too little to judge")


@pytest.mark.parametrize("seed", [10, 104, 135])
def test_few_tokens_of_one_kind_in_a_few_rows_are_no_fault(tmp_path, seed: int):
    assert (
        failed(
            audit(
                tmp_path, build(tmp_path, 2, pairing="none", duplicates=1, max_length=64, seed=seed)
            )
        )
        == set()
    )


def test_google_researchs_pairing_is_measured_and_not_judged(tmp_path):
    checks = {
        check.name: check
        for check in audit(tmp_path, build(tmp_path, origins=True, pairing="bert")).checks
    }
    for name in ("language", "source", "script"):
        check = checks[f"AUC of {name} for the label"]
        assert check.verdict == "unjudged"
        assert (check.value or 0) > 0.7


def test_scripts_of_tokens():
    tokens = ["[MASK]", "der", "##й", "한국", "東京", "です", ".", "##1", "x9"]
    assert scripts_of(tokens)[0].tolist() == [0, 1, 2, 3, 4, 4, 0, 0, 1]


def set_labels(rows, share: float = 0.1):
    for row in rows[: int(share * len(rows))]:
        row["next_sentence_label"] = 1 - row["next_sentence_label"]


def wrong_label(rows):
    rows[11]["next_sentence_label"] = 1 - rows[11]["next_sentence_label"]


def mask_separator(rows):
    row = rows[7]
    row["masked_lm_positions"][0] = row["segment_b_start"] - 1
    row["masked_lm_ids"][0] = row["input_ids"][row["segment_b_start"] - 1]
    row["input_ids"][row["segment_b_start"] - 1] = VOCABULARY.mask_id


def pair_within_document(rows):
    row = next(row for row in rows if row["next_sentence_label"] == 1)
    row["document_b"] = row["document_a"]


def pair_across_documents(rows):
    row = next(row for row in rows if row["next_sentence_label"] == 0)
    row["document_b"] = row["document_a"] + 1


def random_unused(rows):
    row = rows[3]
    row["input_ids"][row["masked_lm_positions"][0]] = VOCABULARY.ids["[unused1]"]


def random_of_few(rows):
    """Replace all random tokens by one."""
    for row in rows:
        for position, original in zip(
            row["masked_lm_positions"], row["masked_lm_ids"], strict=True
        ):
            if row["input_ids"][position] not in (original, VOCABULARY.mask_id):
                row["input_ids"][position] = 100


def lose_a_mask(rows):
    row = rows[5]
    position, original = row["masked_lm_positions"].pop(), row["masked_lm_ids"].pop()
    row["input_ids"][position] = original


def lose_all_masks(rows):
    for row in rows:
        row["masked_lm_positions"], row["masked_lm_ids"] = [], []


def first_token_pad(rows):
    """What a streaming example did: labels[0] = 0 on padded rows, so that [CLS] learns to predict
    [PAD].
    """
    for row in rows[:5]:
        row["masked_lm_positions"].insert(0, 0)
        row["masked_lm_ids"].insert(0, VOCABULARY.pad_id)


def special_in_text(rows):
    rows[0]["input_ids"][1] = VOCABULARY.sep_id


def wrong_first_token(rows):
    rows[0]["input_ids"][0] = 100


def position_beyond_row(rows):
    rows[0]["masked_lm_positions"][-1] = len(rows[0]["input_ids"])


def positions_out_of_order(rows):
    rows[0]["masked_lm_positions"].reverse()
    rows[0]["masked_lm_ids"].reverse()


def label_of_another_kind(rows):
    rows[0]["next_sentence_label"] = 2


def longer_not_next(rows):
    """Cut IsNext rows only, as filling NotNext pairs to the brim does."""
    for row in rows:
        end = len(row["input_ids"]) - 20
        if row["next_sentence_label"] == 0 and end > row["segment_b_start"] + 1:
            kept = [position for position in row["masked_lm_positions"] if position < end - 1]
            row["input_ids"] = [*row["input_ids"][: end - 1], VOCABULARY.sep_id]
            row["masked_lm_positions"], row["masked_lm_ids"] = (
                kept,
                row["masked_lm_ids"][: len(kept)],
            )


def repeat_rows(rows):
    rows[: len(rows) // 20] = rows[-(len(rows) // 20) :]


def drop_rows(rows):
    del rows[-10:]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "named"),
    [
        (set_labels, "NotNext pairs within one document"),
        (set_labels, "IsNext pairs across documents"),
        (mask_separator, "masks on [CLS] or [SEP]"),
        (pair_within_document, "NotNext pairs within one document"),
        (pair_across_documents, "IsNext pairs across documents"),
        (random_unused, "special or [unused] tokens drawn as random"),
        (random_of_few, "spread of random tokens (chi-squared per token)"),
        (lose_a_mask, "rows with the wrong number of masks"),
        (lose_all_masks, "masked share"),
        (first_token_pad, "rows with misplaced [CLS] or [SEP]"),
        (first_token_pad, "masks on [CLS] or [SEP]"),
        (special_in_text, "special tokens in the text"),
        (wrong_first_token, "rows with misplaced [CLS] or [SEP]"),
        (position_beyond_row, "positions out of range or out of order"),
        (positions_out_of_order, "positions out of range or out of order"),
        (label_of_another_kind, "labels other than 0 and 1"),
        (longer_not_next, "AUC of row length for the label"),
        (longer_not_next, "AUC of B ending a sentence for the label"),
        (repeat_rows, REPEATED_ROWS),
        (drop_rows, "rows"),
        (drop_rows, "tokens in rows (documents minus tokens cut)"),
    ],
)
def test_a_planted_fault_is_named(tmp_path, fault, named):
    manifest = build(tmp_path)
    spoil(tmp_path, manifest, fault)
    assert named in failed(audit(tmp_path, manifest))


def test_shares_of_no_masks_at_all_are_not_judged(tmp_path):
    manifest = build(tmp_path, 20)
    spoil(tmp_path, manifest, lose_all_masks)
    verdicts = {check.name: check.verdict for check in audit(tmp_path, manifest).checks}
    assert {
        verdicts[name] for name in ("masked tokens that are [MASK]", "… a random token", "… kept")
    } == {"unjudged"}


def test_tolerances_of_an_auc_have_as_many_decimals_as_the_auc(tmp_path):
    checks = {check.name: check for check in audit(tmp_path, build(tmp_path, 20)).checks}
    auc = checks["AUC of row length for the label"]
    assert re.fullmatch(r"0\.500 ± 0\.\d{3}", auc.asked)
    assert auc.asked.endswith(f"{auc.tolerance:.3f}")


def test_a_single_wrong_label_is_named(tmp_path):
    manifest = build(tmp_path)
    spoil(tmp_path, manifest, wrong_label)
    named = failed(audit(tmp_path, manifest))
    assert len(named & {"NotNext pairs within one document", "IsNext pairs across documents"}) == 1


def test_rows_that_differ_only_in_what_is_masked_do_not_repeat(tmp_path):
    manifest = build(tmp_path)

    def repeat_but_for_the_masked(rows):
        for index in range(1, len(rows) // 10):
            originals = [FULL_STOP + 1 + index, *rows[0]["masked_lm_ids"][1:]]
            rows[index] = {**rows[0], "masked_lm_ids": originals}

    spoil(tmp_path, manifest, repeat_but_for_the_masked)
    assert REPEATED_ROWS not in failed(audit(tmp_path, manifest))


def test_labels_out_of_balance_are_named(tmp_path):
    manifest = build(tmp_path)

    def leave_out(rows):
        rows[:] = [row for index, row in enumerate(rows) if row["next_sentence_label"] or index % 3]
        manifest["shards"][0]["rows"] = len(rows)

    spoil(tmp_path, manifest, leave_out)
    assert "IsNext" in failed(audit(tmp_path, manifest))


@pytest.mark.parametrize(
    ("split", "advice"), [("train", ""), ("validation", "ingest with a larger `validation_share`")]
)
def test_a_pass_out_of_balance_is_named_where_all_rows_together_are_balanced(
    tmp_path, split: str, advice: str
):
    manifest = build(tmp_path, duplicates=2)
    [shard] = manifest["shards"]
    name = shard["name"].replace("train", split)
    (tmp_path / shard["name"]).rename(tmp_path / name)
    shard |= {"name": name, "split": split}

    def trade_labels(rows):
        for label, duplicate in ((0, 0), (1, 1)):
            traded = [
                row
                for row in rows
                if (row["next_sentence_label"], row["duplicate"]) == (label, duplicate)
            ]
            for row in traded[:150]:
                row["next_sentence_label"] = 1 - label

    spoil(tmp_path, manifest, trade_labels)
    check = next(check for check in audit(tmp_path, manifest).checks if check.name == "IsNext")
    assert (check.verdict, check.asked) == ("bad", "50% in each pass over a shard")
    assert re.fullmatch(r"\d\d\.\d% in pass 0 of \S+ and 1 more", check.figure)
    assert re.search(r"; (49|50)\.\d+% \(.*\) in all$", check.measured)
    assert check.advice == advice


def test_a_split_other_than_the_requested_one_is_named(tmp_path):
    manifest = build(tmp_path, mask_split=(60, 20, 20))
    manifest["config"]["mask_split"] = [80, 10, 10]
    assert {"masked tokens that are [MASK]", "… a random token", "… kept"} <= failed(
        audit(tmp_path, manifest)
    )


def test_split_words_are_named(tmp_path):
    manifest = build(tmp_path, masking="token")
    manifest["config"]["masking"] = "whole-word"
    assert "partly masked words" in failed(audit(tmp_path, manifest))


def test_a_capped_number_of_masks_is_named(tmp_path):
    """At most 20 predictions at length 512, as four code bases have it."""
    manifest = build(tmp_path, max_length=512, mask_rate=0.04)
    manifest["config"]["mask_rate"] = 0.15
    assert "rows with the wrong number of masks" in failed(audit(tmp_path, manifest))


@pytest.mark.slow
@pytest.mark.parametrize("field", ["tokenizer", "max_length", "seed"])
def test_a_shard_of_another_build_is_named(tmp_path, field):
    manifest = build(tmp_path)
    path = tmp_path / manifest["shards"][0]["name"]
    footer = {"tokenizer": VOCABULARY.fingerprint, "max_length": "128", "seed": "0"}
    for planted in ({}, {field: "other"}):
        named = {f"clozeworks.{name}": value for name, value in {**footer, **planted}.items()}
        pq.write_table(pq.read_table(path).replace_schema_metadata(named), path)
        expected = {"shards of another vocabulary, length or seed"} if planted else set()
        assert failed(audit(tmp_path, manifest)) == expected


def test_lost_tokens_are_named(tmp_path):
    manifest = build(tmp_path)
    manifest["counts"]["tokens_in"] = int(manifest["counts"]["tokens_in"] * 1.01)
    manifest["counts"]["tokens_cut"] = (
        manifest["counts"]["tokens_in"] - manifest["counts"]["tokens_used"]
    )
    assert failed(audit(tmp_path, manifest)) == {"tokens cut"}


def test_tokens_cut_from_few_rows_are_not_judged(tmp_path):
    manifest = build(tmp_path, 2, duplicates=1, max_length=64)
    manifest["counts"]["tokens_in"] += 100
    manifest["counts"]["tokens_cut"] += 100
    audited = audit(tmp_path, manifest)
    [cut] = [check for check in audited.checks if check.name == "tokens cut"]
    assert (cut.verdict, cut.asked) == ("unjudged", "too little to judge: 16 rows")
    assert not audited.failed


@pytest.mark.parametrize(("words", "fails"), [(13_000, False), (50_000, True)])
def test_long_words_may_leave_more_of_the_mask_budget(words: int, fails: bool):
    measures = Measures(VOCABULARY, BuildConfig(max_length=32, masking="whole-word"), 2000)
    measures.counts.update(
        rows=2000, tokens=64_000, text_tokens=58_000, words=words, masked=8000, masks_asked=10_000
    )
    assert [check.verdict for check in mask_checks(measures) if check.name == "masked share"] == [
        "bad" if fails else "ok"
    ]


@pytest.mark.parametrize(("pairing", "name"), [("bert", "tokens_in"), ("balanced", "tokens_cut")])
def test_counts_missing_from_the_manifest_count_as_0(pairing, name, tmp_path):
    manifest = build(tmp_path, 20, pairing=pairing)
    del manifest["counts"][name]
    audit(tmp_path, manifest)


def test_a_shard_cut_off_or_missing_is_one_clear_error(tmp_path):
    manifest = build(tmp_path, 20)
    path = tmp_path / manifest["shards"][0]["name"]
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match=r"train-00000-of-00001.parquet cannot be read"):
        audit(tmp_path, manifest)
    path.unlink()
    with pytest.raises(UserError, match="cannot be read"):
        audit(tmp_path, manifest)


def test_another_schema_is_one_clear_error(tmp_path):
    manifest = build(tmp_path, 20)
    pq.write_table(pa.table({"text": ["no instances"]}), tmp_path / manifest["shards"][0]["name"])
    with pytest.raises(
        UserError, match=r"cannot be read as instances .*it has no column 'input_ids'"
    ):
        audit(tmp_path, manifest)


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("input_ids", [2, 50_000, 3], "contains token 50000, but its vocabulary has"),
        ("masked_lm_positions", [-1], "Integer value -1 not in range"),
        ("masked_lm_ids", [9, 9, 9], "different lengths"),
        ("input_ids", [2, None, 3], "a value is missing"),
        ("segment_b_start", 1 << 40, "not in range"),
        ("document_a", None, "a value is missing"),
    ],
)
def test_values_out_of_range_are_one_error_naming_shard_and_column(
    name, value, fault, tmp_path, capsys
):
    manifest = build(tmp_path, 20)
    path = tmp_path / manifest["shards"][0]["name"]
    table = pq.read_table(path)
    planted = pa.array(
        [value] * len(table), pa.list_(pa.int64()) if isinstance(value, list) else pa.int64()
    )
    pq.write_table(table.set_column(table.column_names.index(name), name, planted), path)
    directory = write_directory(tmp_path, manifest)
    for command in ("audit", "show"):
        with pytest.raises(SystemExit):
            main([command, directory])
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert f"{path} cannot be read as instances" in error
        assert name in error
        assert fault in error


def test_an_empty_corpus_is_measured(tmp_path):
    manifest = {"config": asdict(BuildConfig()), "shards": [], "counts": {}}
    assert failed(audit(tmp_path, manifest)) == set()


def test_auc_is_that_of_scikit_learn():
    rng = rng_for(0, "auc")
    labels, values = rng.integers(0, 2, 500), rng.integers(0, 20, 500)
    histogram = np.zeros((2, 20), np.int64)
    np.add.at(histogram, (labels, values + 0), 1)
    assert auc_of(histogram)[0] == pytest.approx(roc_auc_score(labels, values))


def test_wilson_interval_is_that_of_the_literature():
    # Newcombe (1998), Statistics in Medicine 17, table I: 15 of 148, 95 %.
    assert wilson_interval(15, 148) == pytest.approx((0.0624, 0.1605), abs=1e-4)


@pytest.mark.slow
def test_the_command_line_passes_and_writes_what_it_measured(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    small, spans = tmp_path / "small", tmp_path / "spans"
    for directory, masking in ((small, "token"), (spans, "span")):
        directory.mkdir()
        write_directory(directory, build(directory, masking=masking))
    main(["audit", str(small), "--json"])
    measured = json.loads(capsys.readouterr().out)
    assert measured[str(small)]["ok"]
    report = tmp_path / "new" / "report.html"
    main(["audit", str(small), str(spans), f"--report={report}"])
    table = capsys.readouterr().out
    assert "partly masked words" in table
    assert f"{report}\n" in table.replace(" ", "")
    assert str(small) in report.read_text()
    assert str(spans) in report.read_text()


def test_the_command_line_ends_with_1_naming_what_is_out_of_tolerance(tmp_path, capsys):
    manifest = build(tmp_path)
    spoil(tmp_path, manifest, mask_separator)
    directory = write_directory(tmp_path, manifest)
    with pytest.raises(SystemExit) as ended:
        main(["audit", directory, "--json"])
    assert ended.value.code == 1
    captured = capsys.readouterr()
    assert not json.loads(captured.out)[directory]["ok"]
    sentence = json.loads(captured.out)[directory]["sentence"]
    assert captured.err == f"{sentence}\n"
    assert "masks on [CLS] or [SEP] 1 (expected 0)" in sentence


@pytest.mark.slow
def test_if_one_of_two_fails_both_verdicts_and_the_report_are_printed(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "300")
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()
        manifest = build(tmp_path / name, 20)
        if name == "bad":
            spoil(tmp_path / name, manifest, mask_separator)
        write_directory(tmp_path / name, manifest)
    good, bad, report = (str(tmp_path / name) for name in ("good", "bad", "r.html"))
    with pytest.raises(SystemExit) as ended:
        main(["audit", good, bad, f"--report={report}"])
    assert ended.value.code == 1
    captured = capsys.readouterr()
    assert captured.err.startswith(f"{bad}: 2 checks fail: special tokens in the text 1")
    for shown in (f"{good}: ", captured.err, report):
        assert "".join(shown.split()) in "".join(captured.out.split())  # lines are wrapped


@pytest.mark.slow
def test_a_report_that_cannot_be_written_is_one_line(tmp_path, capsys):
    directory = write_directory(tmp_path, build(tmp_path, 20))
    with pytest.raises(SystemExit) as ended:
        main(["audit", directory, f"--report={tmp_path}"])
    assert ended.value.code == 2
    assert (
        capsys.readouterr().err
        == f"Error: {tmp_path} is not a regular file; choose another path.\n"
    )
    assert not list(tmp_path.parent.glob(f"{tmp_path.name}.*"))


@pytest.mark.parametrize(
    ("num_shards", "advice"),
    [(1, "add documents of it, or leave it out"), (2, "ingest with fewer `shards`")],
)
def test_groups_too_small_for_their_shard_are_named(tmp_path, num_shards: int, advice: str):
    manifest = build(tmp_path, origins=True, negatives="any")
    manifest["config"]["negatives"] = "same-source"
    manifest["shards"] *= num_shards
    checks = {check.name: check for check in audit(tmp_path, manifest).checks}
    number = f"{manifest['counts']['pairs_across_sources']:,}"
    check = checks["AUC of source for the label"]
    assert check.measured.endswith(
        f"; {number} pairs join two sources, one with too few documents in its shard"
    )
    assert check.advice == advice
