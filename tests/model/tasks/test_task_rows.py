"""How texts and pairs become rows of tokens."""

import json
import shutil
from itertools import product

import pytest
import transformers
from clozeworks.model.tokenizer import TextTokenizer, cut_lengths, tokenizer_files
from clozeworks.pipeline.errors import UserError

from tests.fixtures.task_files import write


@pytest.mark.parametrize("limit", [2, 7, 8])
def test_pairs_are_cut_as_by_the_fast_tokenizer_of_transformers(checkpoint, limit):
    theirs = transformers.AutoTokenizer.from_pretrained(checkpoint)
    for length_a, length_b in product(range(12), range(1, 12)):  # "" is no pair for it
        encoded = theirs(
            "the " * length_a, "the " * length_b, truncation="longest_first", max_length=limit + 3
        )
        types = encoded["token_type_ids"]
        expected = (types.count(0) - 2, types.count(1) - 1)
        assert cut_lengths(length_a, length_b, limit) == expected


def test_rows_equal_those_of_transformers(checkpoint):
    ours, theirs = TextTokenizer(checkpoint), transformers.AutoTokenizer.from_pretrained(checkpoint)
    for text, pair in [
        ("The film was good.", None),
        ("", None),
        ("very DULL, unknownword", "a book! b"),
        ("", "a"),
    ]:
        tokens_b = None if pair is None else ours.token_ids([pair])[0]
        ids, segment_b_start, _ = ours.row(ours.token_ids([text])[0], tokens_b, 40)
        expected = theirs(text, pair)
        assert ids.tolist() == expected["input_ids"]
        types = [int(position >= segment_b_start) for position in range(len(ids))]
        assert types == expected["token_type_ids"]
    assert ours.row(list(range(50)), None, 10)[0].tolist() == [2, *range(8), 3]
    assert len(ours.row(list(range(50)), list(range(50)), 11)[0]) == 11


def test_special_tokens_in_a_text_are_text(checkpoint):
    tokenizer = TextTokenizer(checkpoint)
    ids = tokenizer.token_ids(["was [MASK] [SEP] good"])[0]
    assert not {2, 3, 4} & set(ids)
    assert ids == [
        id
        for part in ("was [", "mask", "] [", "sep", "] good")
        for id in tokenizer.token_ids([part])[0]
    ]


def test_a_vocabulary_alone_makes_the_same_tokenizer(checkpoint, tmp_path):
    write(tmp_path / "vocab.txt", (checkpoint / "vocab.txt").read_text())
    texts = ["The films was good!", "[MASK]"]
    assert TextTokenizer(tmp_path).token_ids(texts) == TextTokenizer(checkpoint).token_ids(texts)
    files = tokenizer_files(tmp_path)
    assert files.keys() == {"vocab.txt", "tokenizer.json"}
    write(tmp_path / "tokenizer.json", files["tokenizer.json"].decode())
    assert transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(tmp_path / "tokenizer.json")
    ).encode("[MASK]")


def test_a_checkpoint_without_a_vocabulary_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"is empty: give .* a vocab\.txt or a tokenizer\.json"):
        TextTokenizer(tmp_path)
    write(tmp_path / "vocab.txt", "a\nb\n[UNK]\n")
    with pytest.raises(UserError, match=r"vocab\.txt lacks .*\[CLS\]"):
        TextTokenizer(tmp_path)


def test_a_tokenizer_that_cuts_and_pads_loses_that(tmp_path, checkpoint):
    tokenizer = json.loads((checkpoint / "tokenizer.json").read_text())
    shutil.copytree(checkpoint, tmp_path / "cutting")
    path = tmp_path / "cutting" / "tokenizer.json"
    cutting = {"max_length": 8, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    padding = {
        "strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
        "pad_type_id": 0, "pad_token": "[PAD]",
    }  # fmt: skip
    path.write_text(json.dumps({**tokenizer, "truncation": cutting, "padding": padding}))
    written = json.loads(tokenizer_files(tmp_path / "cutting")["tokenizer.json"])
    assert written == tokenizer
    # One that does not is copied byte for byte.
    content = (checkpoint / "tokenizer.json").read_bytes()
    assert tokenizer_files(checkpoint)["tokenizer.json"] == content
