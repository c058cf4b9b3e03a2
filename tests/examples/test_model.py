"""The encoder in examples/model: small, its own, and of use."""

import hashlib
import json
from pathlib import Path

import pytest
import torch
import transformers
from click.testing import CliRunner
from clozeworks.cli.main import commands

from tests.fixtures.checkpoint_fixture import fill

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "examples" / "model"
RESULTS = ROOT / "benchmarks" / "results" / "2026-11-26-encoders.md"


def test_it_is_small_and_the_one_that_was_measured():
    assert sum(path.stat().st_size for path in MODEL.iterdir()) < 12_000_000
    digest = hashlib.sha256((MODEL / "model.safetensors").read_bytes()).hexdigest()
    assert digest in RESULTS.read_text(encoding="utf-8")


def test_lines_of_standard_input_are_filled():
    lines = "The dogs\u2028[MASK] barking.\n\nShe gave him a cup of [MASK].\n"
    command = ["fill", str(MODEL), "-", "--json"]
    printed = CliRunner().invoke(commands, command, input=lines).stdout.splitlines()
    assert [json.loads(line)[0][0]["token"] for line in printed] == ["were", "tea"]


@pytest.mark.parametrize(
    ("text", "token"),
    [
        ("The dogs [MASK] barking.", "were"),
        ("He was [MASK] in New York and moved to London.", "born"),
        ("She gave him a cup of [MASK].", "tea"),
    ],
)
def test_it_fills_masks_as_transformers_does(text, token):
    ((best, *_),) = fill(MODEL, text, top=3)
    assert best.token == token
    pipeline = transformers.pipeline("fill-mask", model=str(MODEL), dtype=torch.float32)
    theirs = pipeline(text, top_k=1)[0]
    assert theirs["token_str"] == token
    assert best.probability == pytest.approx(theirs["score"], abs=1e-5)
