"""The recipes of the examples run as they are written, with small values of variables."""

import json
import string
from pathlib import Path
from typing import Any

import pytest
from clozeworks.cli.main import main

from tests.fixtures.checkpoint_fixture import make_checkpoint
from tests.fixtures.degenerate import may_be_degenerate

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LETTERS = string.ascii_lowercase


def run_small(recipe: str, output: Path, **variables: Any) -> None:
    settings = [
        part
        for name, value in variables.items()
        for part in ("--set", f"{name.replace('_', '-')}={value}")
    ]
    with may_be_degenerate():
        main(["run", str(EXAMPLES / recipe), "--output", str(output), *settings])


def vocabulary(folder: Path) -> list[str]:
    return (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()


def summary(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "summary.json").read_text())


def test_korean(tmp_path: Path):
    run_small("korean/recipe.toml", tmp_path, steps=3, epochs=0.1, seeds=1)
    tokens = vocabulary(tmp_path / "vocab")
    num_with_syllables = sum("가" <= token[-1] <= "힣" for token in tokens)
    num_jamo = sum("\u1100" <= character <= "\u11ff" for token in tokens for character in token)
    assert (len(tokens), num_jamo) == (4000, 0)
    assert num_with_syllables > 3000
    documents = json.loads((tmp_path / "documents" / "manifest.json").read_text())
    assert documents["languages"] == {"ko": 106}
    for start in ("model", "random"):
        assert summary(tmp_path / "results" / f"korsts-{start}")["train_examples"] == 600
        assert summary(tmp_path / "results" / f"xnli-{start}")["held_out"]


def test_adapt(tmp_path: Path):
    words = [*LETTERS, *(f"##{letter}" for letter in LETTERS), "the"]
    make_checkpoint(tmp_path / "bert", words, max_position_embeddings=128)
    text = EXAMPLES / "quickstart" / "corpus" / "books" / "poe-*.txt"
    run_small("adapt/recipe.toml", tmp_path, text=text, steps=3, batch_size=4, duplicates=1)
    for name, source in (("adapted", "bert"), ("moved", "vocab")):
        assert {"initial", "final"} <= summary(tmp_path / name).keys()
        assert vocabulary(tmp_path / name) == vocabulary(tmp_path / source)


def test_the_smallest_recipe_by_size(tmp_path: Path):
    text = EXAMPLES / "quickstart" / "corpus" / "books" / "poe-*.txt"
    run_small("recipes/1-million-words.toml", tmp_path, text=text, tokens=20_000)
    assert summary(tmp_path / "run")["status"] == "finished"


@pytest.mark.parametrize("words", ["10", "100"])
def test_larger_recipes_by_size_are_accepted(words: str, tmp_path: Path, capsys):
    recipe = str(EXAMPLES / "recipes" / f"{words}-million-words.toml")
    main(["run", recipe, "--output", str(tmp_path / "encoder"), "--dry-run"])
    assert "[4/4] clozeworks pretrain" in capsys.readouterr().out


def test_quickstart(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run_small("quickstart/recipe.toml", tmp_path, steps=2, epochs=0.02)
    assert "All 30 checks hold." in capsys.readouterr().out
    assert (tmp_path / "report.html").exists()
    assert summary(tmp_path / "word-order")["train_examples"] == 2000
    runs = (tmp_path / "word-order-random" / "results.csv").read_text()
    assert "random weights" in runs
