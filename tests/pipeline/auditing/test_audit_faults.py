"""The audit names each planted fault."""

import re

import pyarrow.parquet as pq
import pytest
from clozeworks.pipeline.errors import UserError

from tests.fixtures.audit_fixture import (
    FULL_STOP,
    VOCABULARY,
    audit,
    build,
    checks_of,
    failed,
    mask_separator,
    spoil,
)


def set_labels(rows, share: float = 0.1):
    for row in rows[: int(share * len(rows))]:
        row["next_sentence_label"] = 1 - row["next_sentence_label"]


def pair_within_document(rows):
    row = next(row for row in rows if row["next_sentence_label"] == 1)
    row["document_b"] = row["document_a"]


def pair_across_documents(rows):
    row = next(row for row in rows if row["next_sentence_label"] == 0)
    row["document_b"] = row["document_a"] + 1


def random_unused(rows):
    row = rows[3]
    row["input_ids"][row["masked_lm_positions"][0]] = VOCABULARY.ids["[unused1]"]


def lose_a_mask(rows):
    row = rows[5]
    position, original = row["masked_lm_positions"].pop(), row["masked_lm_ids"].pop()
    row["input_ids"][position] = original


def lose_all_masks(rows):
    for row in rows:
        row["masked_lm_positions"], row["masked_lm_ids"] = [], []


def first_token_pad(rows):
    """As a streaming example did: labels[0] = 0 on padded rows, so that [CLS] learns [PAD]."""
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


def drop_rows(rows):
    del rows[-10:]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "named"),
    [
        (set_labels, {"NotNext pairs within one document", "IsNext pairs across documents"}),
        (mask_separator, {"masks on [CLS] or [SEP]"}),
        (pair_within_document, {"NotNext pairs within one document"}),
        (pair_across_documents, {"IsNext pairs across documents"}),
        (random_unused, {"special or [unused] tokens drawn as random"}),
        (lose_a_mask, {"rows with the wrong number of masks"}),
        (lose_all_masks, {"masked share"}),
        (first_token_pad, {"rows with misplaced [CLS] or [SEP]", "masks on [CLS] or [SEP]"}),
        (special_in_text, {"special tokens in the text"}),
        (wrong_first_token, {"rows with misplaced [CLS] or [SEP]"}),
        (position_beyond_row, {"positions out of range or out of order"}),
        (positions_out_of_order, {"positions out of range or out of order"}),
        (label_of_another_kind, {"labels other than 0 and 1"}),
        (
            longer_not_next,
            {"AUC of row length for the label", "AUC of B ending a sentence for the label"},
        ),
        (drop_rows, {"rows", "tokens in rows (documents minus tokens cut)"}),
    ],
)
def test_a_planted_fault_is_named(tmp_path, fault, named):
    manifest = build(tmp_path)
    spoil(tmp_path, manifest, fault)
    assert named <= failed(audit(tmp_path, manifest))


def test_shares_of_no_masks_at_all_are_not_judged(tmp_path):
    manifest = build(tmp_path, 20)
    spoil(tmp_path, manifest, lose_all_masks)
    verdicts = {check.name: check.verdict for check in audit(tmp_path, manifest).checks}
    assert {
        verdicts[name] for name in ("masked tokens that are [MASK]", "… a random token", "… kept")
    } == {"unjudged"}


def test_ends_that_tell_the_label_only_together_are_named(tmp_path):
    manifest = build(tmp_path)

    def end_alike_if_next(rows):
        for index, row in enumerate(rows):
            ends_a = index // 2 % 2
            ends_b = ends_a ^ row["next_sentence_label"]
            for place, ends in ((row["segment_b_start"], ends_a), (len(row["input_ids"]), ends_b)):
                if place - 2 not in row["masked_lm_positions"]:
                    row["input_ids"][place - 2] = FULL_STOP if ends else FULL_STOP + 1

    spoil(tmp_path, manifest, end_alike_if_next)
    checks = checks_of(audit(tmp_path, manifest))
    assert checks["AUC of B ending a sentence for the label"].verdict == "ok"
    assert checks["AUC of lengths and ends of A and B for the label"].verdict == "warn"


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
    check = checks_of(audit(tmp_path, manifest))["IsNext"]
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


def test_a_vocabulary_of_another_language_is_named(tmp_path):
    manifest = build(tmp_path)

    def forget_words(rows):
        for row in rows:
            # What is masked stays as it is, so that the masks do.
            for position in range(1, len(row["input_ids"]), 8):
                is_masked = position in row["masked_lm_positions"]
                if not is_masked and row["input_ids"][position] > FULL_STOP:
                    row["input_ids"][position] = VOCABULARY.unk_id

    assert checks_of(audit(tmp_path, manifest))["unknown tokens"].verdict == "ok"
    spoil(tmp_path, manifest, forget_words)
    check = checks_of(audit(tmp_path, manifest))["unknown tokens"]
    assert check.verdict == "bad" and "learned from these documents" in check.complaint


def test_a_vocabulary_that_hardly_occurs_is_named(tmp_path):
    def use_few_words(rows):
        for row in rows:
            for column in ("input_ids", "masked_lm_ids"):
                row[column] = [
                    token if token <= FULL_STOP else FULL_STOP + 1 + token % 300
                    for token in row[column]
                ]

    manifest = build(tmp_path)
    name = "tokens of the vocabulary that occur"
    assert checks_of(audit(tmp_path, manifest))[name].verdict == "info"
    spoil(tmp_path, manifest, use_few_words)
    check = checks_of(audit(tmp_path, manifest))[name]
    assert check.verdict == "warn"
    assert check.complaint == (
        "tokens of the vocabulary that occur 37.6% (expected at least 50%; give `vocab` a lower "
        "`size`)"
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


@pytest.mark.parametrize(
    ("num_shards", "advice"),
    [(1, "add documents of it, or leave it out"), (2, "ingest with fewer `shards`")],
)
def test_groups_too_small_for_their_shard_are_named(tmp_path, num_shards: int, advice: str):
    manifest = build(tmp_path, origins=True, negatives="any")
    manifest["config"]["negatives"] = "same-source"
    manifest["shards"] *= num_shards
    checks = checks_of(audit(tmp_path, manifest))
    number = f"{manifest['counts']['pairs_across_sources']:,}"
    check = checks["AUC of source for the label"]
    assert check.measured.endswith(
        f"; {number} pairs join two sources, one with too few documents in its shard"
    )
    assert check.advice == advice


def test_a_document_that_does_not_exist_is_a_damaged_shard(tmp_path):
    manifest = build(tmp_path, origins=True)
    spoil(tmp_path, manifest, lambda rows: rows[0].update(document_b=250))
    with pytest.raises(UserError, match="document 250, but the shard of documents has 250"):
        audit(tmp_path, manifest)
