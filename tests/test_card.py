"""The model card: what it takes from the manifests, and from the configuration."""

from typing import Any

import pytest
from clozeworks.model.card import model_card
from clozeworks.model.config import ModelConfig, PretrainConfig

MANIFEST: dict[str, Any] = {
    "config": {"max_length": 128},
    "fingerprint": "abc",
    "tokenizer": {"fingerprint": "def", "size": 30522},
    "shards": [
        {"name": "train-00000-of-00002.parquet", "rows": 10, "source_tokens": {"enwiki": 600, "text": 5}},
        {"name": "train-00001-of-00002.parquet", "rows": 7, "source_tokens": {"enwiki": 1000}},
        {"name": "validation-00000-of-00001.parquet", "rows": 3, "source_tokens": {"enwiki": 50}},
    ],
}
SUMMARY = {"parameters": 9, "step": 2000, "rows": 5, "tokens": 6, "initial": {"loss": 9.0}, "final": {"loss": 2.5}}


def lines_of(**options: Any) -> set[str]:
    return set(model_card(PretrainConfig(**options), ModelConfig(), [MANIFEST], SUMMARY).splitlines())


def test_data_are_those_of_the_training_shards():
    expected = {"| training rows | 17 |", "| tokens from enwiki | 1,600 |", "| tokens from text | 5 |"}
    expected |= {"| max length | 128 |", "| fingerprint | abc |", "| vocabulary's fingerprint | def |"}
    assert expected <= lines_of(steps=2000)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"steps": 2000}, "| warm-up | 200 steps |"),
        ({"tokens": 10**9}, "| warm-up | 200 steps |"),
        ({"steps": 2000, "warmup_steps": 1500}, "| warm-up | 1,500 steps |"),
        ({"hours": 1.5}, "| warm-up | a tenth of 1.5 hours |"),
        ({"duplicates_per_epoch": 2}, "| duplicates per epoch | 2 |"),
        ({"dynamic_masking": "whole-word", "mask_split": (100, 0, 0)}, "| mask split | 100, 0, 0 |"),
    ],
)
def test_the_recipe_is_stated(options, line):
    assert line in lines_of(**options)


def test_nothing_is_said_of_masks_that_are_as_stored():
    assert not any("masks" in line or "duplicates" in line for line in lines_of(steps=2000))
