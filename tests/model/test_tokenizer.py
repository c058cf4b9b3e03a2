"""A tokenizer that others wrote, and what its settings say."""

import json
import math
from pathlib import Path

import pytest
from clozeworks.model.tokenizer import TextTokenizer, model_max_length
from clozeworks.pipeline.errors import UserError

OWN = Path(__file__).resolve().parents[2] / "examples" / "model" / "tokenizer.json"


@pytest.mark.slow
def test_a_tokenizer_with_a_normaliser_of_its_own_is_used(tmp_path: Path):
    values = json.loads(OWN.read_text(encoding="utf-8"))
    replacement = {"type": "Replace", "pattern": {"String": "a"}, "content": "e"}
    steps = [values["normalizer"], replacement]
    values["normalizer"] = {"type": "Sequence", "normalizers": steps}
    (tmp_path / "tokenizer.json").write_text(json.dumps(values), encoding="utf-8")
    changed = TextTokenizer(tmp_path)
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
