"""A tokenizer that others wrote is tried out before it is trusted."""

import json
import math
from pathlib import Path

import pytest
from clozeworks.model.tokenizer import TextTokenizer, model_max_length
from clozeworks.pipeline.errors import UserError

OWN = Path(__file__).resolve().parents[2] / "examples" / "model" / "tokenizer.json"


def with_replacements(folder: Path, content: str, times: int) -> Path:
    """Write a tokenizer that replaces each "a" by `content`, several times over."""
    values = json.loads(OWN.read_text(encoding="utf-8"))
    replacement = {"type": "Replace", "pattern": {"String": "a"}, "content": content}
    steps = [values["normalizer"], *[replacement] * times]
    values["normalizer"] = {"type": "Sequence", "normalizers": steps}
    (folder / "tokenizer.json").write_text(json.dumps(values), encoding="utf-8")
    return folder


@pytest.mark.slow
def test_a_tokenizer_that_fills_the_memory_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match=r"lengthens text by 14 replacements"):
        TextTokenizer(with_replacements(tmp_path, "a" * 10, times=14))
    # A text without the character would pass.
    with pytest.raises(UserError, match=r"makes 100 tokens of one character"):
        TextTokenizer(with_replacements(tmp_path, "." * 100, times=1))


@pytest.mark.slow
def test_a_regular_expression_without_end_is_one_error(tmp_path: Path):
    folder = with_replacements(tmp_path, "b", times=1)
    values = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    values["normalizer"]["normalizers"][1]["pattern"] = {"Regex": "(x+x+)+y"}
    (folder / "tokenizer.json").write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(UserError, match="The tokenizer fails at a text"):
        TextTokenizer(folder).token_ids(["x" * 60])


@pytest.mark.slow
def test_a_tokenizer_with_a_normaliser_of_its_own_is_used(tmp_path: Path):
    changed = TextTokenizer(with_replacements(tmp_path, "e", times=1))
    assert changed.token_ids(["a man"]) == TextTokenizer(OWN.parent).token_ids(["e men"])


def test_files_that_say_otherwise_which_letters_are_read_are_refused(tmp_path: Path):
    (tmp_path / "tokenizer.json").write_bytes(OWN.read_bytes())
    config = {"tokenizer_class": "BertTokenizerFast", "do_lower_case": False}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"lowercase true, but .* do_lower_case false"):
        TextTokenizer(tmp_path)
    # Of others `transformers` reads tokenizer.json alone.
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert TextTokenizer(tmp_path).token_ids(["A man"]) == TextTokenizer(OWN.parent).token_ids(
        ["a man"]
    )


@pytest.mark.parametrize("said", ["null", "0", "-1"])
def test_a_length_that_is_none_is_no_limit(tmp_path: Path, said: str):
    (tmp_path / "tokenizer_config.json").write_text(f'{{"model_max_length": {said}}}')
    assert model_max_length(tmp_path) == math.inf
