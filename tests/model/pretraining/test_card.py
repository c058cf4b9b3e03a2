"""The model card: what it takes from the manifests, and from the configuration."""

import json
from typing import Any

import pytest
from clozeworks.model.card import shown
from clozeworks.model.config import PretrainConfig
from clozeworks.model.encoders.bert_config import ModelConfig
from clozeworks.model.pretraining.card import model_card
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
    "status": "finished",
    "parameters": 9,
    "step": 2000,
    "rows": 5,
    "tokens": 6,
    "initial": {"loss": 9.0},
    "final": {"loss": 2.5},
    "best": None,
    "validation_rows": 300,
}
SHAPE = ModelConfig()


def card_of(
    shape: ModelConfig = SHAPE, products: str = "fp32", rows: int = 300, **options: Any
) -> str:
    manifest = json.loads(json.dumps(MANIFEST).replace('"rows": 300', f'"rows": {rows}'))
    summary: Summary = {**SUMMARY, "validation_rows": rows}
    return model_card(PretrainConfig(**options), shape, [parsed(manifest)], summary, products)


def lines_of(**options: Any) -> set[str]:
    return set(card_of(**options).splitlines())


def test_values_are_shown_as_they_are():
    assert shown("a <b> & `c` [e](f) | g\n# h") == r"a \<b\> \& \`c\` \[e\](f) g # h"
    assert [shown(value) for value in (12345, True, (80, 10), [])] == [
        "12,345", "True", "80, 10", "none",
    ]  # fmt: skip


def test_markup_in_the_name_of_a_source_does_nothing():
    name = "<img src=x>|[a](b)`\n\n---\n# x: y"
    manifest = json.loads(json.dumps(MANIFEST).replace('"enwiki"', json.dumps(name)))
    scores: dict[str, float] = {"mlm_accuracy": 0.5}
    summary: Summary = {**SUMMARY, "initial": scores, "final": scores}
    card = model_card(PretrainConfig(), SHAPE, [parsed(manifest)], summary, "fp32")
    line = r"| tokens from \<img src=x\> \[a\](b)\` --- # x: y, all passes | 1,600 |"
    assert line in card.splitlines()
    [result] = ModelCard(card).data.get("eval_results")
    assert (result.dataset_type, result.metric_value) == (name, 0.5)


def test_data_are_those_of_the_training_shards():
    expected = {
        "| training rows | 17 |",
        "| validation rows | 300 |",
        "| tokens from text, all passes | 5 |",
    }
    expected |= {"| tokens from enwiki, all passes | 1,600 |", "| documents in und | 4 |"}
    expected |= {
        "| max length | 128 |",
        "| fingerprint | abc |",
        "| vocabulary's fingerprint | def |",
    }
    assert expected <= lines_of(steps=2000)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"steps": 2000, "warmup_steps": 1500}, "| warmup steps | 1,500 |"),
        ({"license": "mit"}, "| license | mit |"),
        ({"products": "bf16"}, "| matrix products | bf16 |"),
        ({}, "| rows | 300 |"),
        ({}, "| initializer range | 0.02 |"),
        ({"checkpoint": "/home/me/secret/run"}, "| checkpoint | run |"),
        ({"checkpoint": "/hub/models--a--b/snapshots/0123"}, "| checkpoint | a/b |"),
        ({"checkpoint": "s3://bucket/run/"}, "| checkpoint | run |"),
        ({}, "| vocab size | 30,522 |"),
        (
            {"dynamic_masking": "whole-word", "mask_split": (100, 0, 0)},
            "| mask split | 100, 0, 0 |",
        ),
        ({"dynamic_masking": "token", "mask_rate": (0.3,)}, "| mask rate | 0.3 |"),
        ({}, "| weight | none |"),
        ({}, "| loss | 2.5 (before training 9) |"),
    ],
)
def test_the_recipe_is_stated(options, line):
    assert line in lines_of(**options)


def test_what_is_measured_on_too_few_rows_is_no_figure():
    few = card_of(rows=12)
    assert "| rows | too little to judge: 12 rows |" in few
    assert "before training" not in few and "before training" in card_of()
    few_data = ModelCard(few).data
    assert few_data.get("model-index") is None and few_data.get("eval_results") is None


@pytest.mark.parametrize(
    ("languages", "sentence"),
    [
        ({"en": 1, "de": 2}, "Die Hauptstadt von Frankreich ist {mask}."),
        ({"xx": 5}, "{mask}"),
        ({"und": 5}, "{mask}"),
    ],
)
def test_the_example_is_in_the_language_of_most_documents(languages, sentence):
    manifest = make_manifest("build", SHARDS, languages=languages)
    card = model_card(PretrainConfig(), SHAPE, [parsed(manifest)], SUMMARY, "fp32")
    assert f'fill(f"{sentence}")' in card


def test_only_options_that_were_given_are_stated():
    lines = lines_of(steps=2000, model="mini")
    assert not any(line.startswith(("| hours |", "| mask split | none")) for line in lines)
    assert "| model | mini |" in lines and "| decay share | 0.1 |" not in lines
    lines = lines_of(checkpoint="/home/me/run", schedule="constant-with-decay")
    assert not any(line.startswith("| model |") for line in lines)
    assert "| decay share | 0.1 |" in lines


def test_the_front_matter_names_languages_and_task():
    both_ways, from_left = ModelCard(card_of()), ModelCard(card_of(ModelConfig(is_decoder=True)))
    assert both_ways.data.get("language") == ["en", "lt"]
    assert both_ways.data.get("pipeline_tag") == "fill-mask"
    assert 'pipeline("fill-mask"' in both_ways.text
    assert from_left.data.get("pipeline_tag") is None
    assert "fill-mask" not in from_left.text


def test_without_languages_none_is_named():
    manifest = {name: value for name, value in MANIFEST.items() if name != "languages"}
    card = ModelCard(
        model_card(
            PretrainConfig(), ModelConfig(), [parsed(manifest), parsed(MANIFEST)], SUMMARY, "fp32"
        )
    )
    assert "## Data, phase 2" in card.text
    assert "documents in" not in model_card(
        PretrainConfig(), ModelConfig(), [parsed(manifest)], SUMMARY, "fp32"
    )
