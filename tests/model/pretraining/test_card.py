"""The model card: what it takes from the manifests, and from the configuration."""

import json
from typing import Any

import pytest
from clozeworks.model.card import shown
from clozeworks.model.config import PretrainConfig
from clozeworks.model.encoders.bert_config import ModelConfig
from clozeworks.model.pretraining.pretrain import model_card
from clozeworks.model.pretraining.setup import Summary
from huggingface_hub import ModelCard

from tests.fixtures.manifest_fixture import make_manifest, parsed


def shard(split: str, rows: int, **tokens: int) -> dict[str, Any]:
    return {
        "name": f"{split}-00000-of-00001.parquet",
        "split": split,
        "rows": rows,
        "bytes": 1,
        "source_tokens": tokens,
    }


SHARDS = [
    shard("train", 10, enwiki=600, text=5),
    shard("train", 7, enwiki=1000),
    shard("validation", 300, enwiki=50),
]
MANIFEST = make_manifest(
    "build",
    SHARDS,
    fingerprint="abc",
    tokenizer={"fingerprint": "def", "size": 9},
    languages={"en": 2, "lt": 1, "und": 4},
)
SUMMARY: Summary = {
    "status": "finished", "parameters": 9, "step": 2000, "rows": 5, "tokens": 6,
    "initial": {"loss": 9.0}, "final": {"loss": 2.5}, "best": None, "validation_rows": 300,
}  # fmt: skip
SHAPE = ModelConfig()


def card_of(
    shape: ModelConfig = SHAPE, products: str = "fp32", rows: int = 300, **options: Any
) -> str:
    manifest = json.loads(json.dumps(MANIFEST).replace('"rows": 300', f'"rows": {rows}'))
    summary: Summary = {**SUMMARY, "validation_rows": rows}
    return model_card(PretrainConfig(**options), shape, [parsed(manifest)], summary, products)


def test_values_are_shown_as_they_are():
    assert shown("a <b> & `c` [e](f) | g\n# h") == r"a \<b\> \& \`c\` \[e\](f) g # h"
    assert [shown(value) for value in (12345, 0.12345, "mini")] == ["12,345", "0.1235", "mini"]


def test_markup_in_the_name_of_a_source_does_nothing():
    name = "<img src=x>|[a](b)`\n\n---\n# x: y"
    manifest = json.loads(json.dumps(MANIFEST).replace('"enwiki"', json.dumps(name)))
    card = model_card(PretrainConfig(), SHAPE, [parsed(manifest)], SUMMARY, "fp32")
    line = r"| tokens by source, all passes | \<img src=x\> \[a\](b)\` --- # x: y 1,600; text 5 |"
    assert line in card.splitlines()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({}, "| rows | 17 of at most 128 tokens |"),
        ({}, "| tokens by source, all passes | enwiki 1,600; text 5 |"),
        ({}, "| documents by language | en 2; lt 1; und 4 |"),
        ({"batch_size": 64}, "| trained for | 2,000 steps of 64 rows |"),
        ({}, "| tokens seen | 6 |"),
        ({"products": "bf16"}, "| matrix products | bf16 |"),
        ({"checkpoint": "/home/me/secret/run"}, "| started from | run |"),
        ({"checkpoint": "/hub/models--a--b/snapshots/0123"}, "| started from | a/b |"),
        ({"checkpoint": "s3://bucket/run/"}, "| started from | run |"),
        ({}, "| rows | 300 |"),
        ({}, "| loss | 2.5 (before training 9) |"),
    ],
)
def test_data_and_figures_are_stated(options, line):
    assert line in card_of(**options).splitlines()


def test_two_phases_are_told_apart():
    config = {**MANIFEST["config"], "max_length": 512}
    both = [parsed(MANIFEST), parsed({**MANIFEST, "config": config})]
    card = model_card(PretrainConfig(), SHAPE, both, SUMMARY, "fp32")
    rows = "17 of at most 128 tokens, then 17 of at most 512 tokens"
    # Both were built from the same documents.
    documents = "| documents by language | en 2; lt 1; und 4 |"
    assert {f"| rows | {rows} |", documents} <= set(card.splitlines())


def test_what_is_measured_on_too_few_rows_is_no_figure():
    few = card_of(rows=12)
    assert "| rows | too little to judge: 12 rows |" in few
    assert "before training" not in few and "before training" in card_of()


def test_the_front_matter_names_languages_and_task():
    both_ways, from_left = ModelCard(card_of()), ModelCard(card_of(ModelConfig(is_decoder=True)))
    assert both_ways.data.get("language") == ["en", "lt"]
    assert both_ways.data.get("pipeline_tag") == "fill-mask"
    assert 'pipeline("fill-mask"' in both_ways.text
    assert from_left.data.get("pipeline_tag") is None
    assert "fill-mask" not in from_left.text


def test_without_languages_none_is_named():
    manifest = {name: value for name, value in MANIFEST.items() if name != "languages"}
    card = model_card(PretrainConfig(), SHAPE, [parsed(manifest)], SUMMARY, "fp32")
    assert "| documents by language | unknown |" in card
    assert ModelCard(card).data.get("language") is None
