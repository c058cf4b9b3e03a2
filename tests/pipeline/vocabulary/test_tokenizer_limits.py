"""A stranger's tokenizer.json is refused by name unless it is known to be harmless."""

import base64
import json
import struct
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from clozeworks.model.tokenizer import TextTokenizer
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.vocabulary import tokenizer_limits
from clozeworks.pipeline.vocabulary.files import read_vocabulary
from clozeworks.pipeline.vocabulary.normalization import Normalization
from clozeworks.pipeline.vocabulary.tokenizer_limits import check_tokenizer
from clozeworks.pipeline.vocabulary.vocabulary import SPECIAL_TOKENS, Vocabulary
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from tokenizers.trainers import BpeTrainer, UnigramTrainer

OWN = Vocabulary((*SPECIAL_TOKENS, "the", "##r", "cat"), Normalization(True, True))
FIELDS = json.loads(OWN.tokenizer().to_str())
NFD = {"type": "NFD"}
LONG = "x" * 1001


def replace(pattern: dict[str, Any], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def sequence(*steps: Any) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": list(steps)}


def charsmap(text: str, becomes: str) -> str:
    """Return SentencePiece's map of one character: a double array with a chain of units."""
    units = [0] * 256 * (len(text.encode()) + 2)
    at = 0
    for number, byte in enumerate((*text.encode(), 0), 1):
        child = 256 * number + byte
        is_last = byte == 0
        units[at] |= (at ^ 256 * number) << 10 | is_last << 8
        units[child] = 1 << 31 if is_last else byte
        at = child
    trie = struct.pack(f"<{len(units)}I", *units)
    content = struct.pack("<I", len(trie)) + trie + becomes.encode() + b"\0"
    return base64.b64encode(content).decode()


def precompiled(charsmap: str) -> dict[str, Any]:
    return {"type": "Precompiled", "precompiled_charsmap": charsmap}


def template(**fields: Any) -> dict[str, Any]:
    return {"type": "TemplateProcessing", **fields}


METASPACE = {"type": "Metaspace", "replacement": "a"}
METASPACES = {"type": "Sequence", "pretokenizers": [METASPACE] * 2}
MANY_TOKENS = {"x": {"ids": [2], "tokens": ["[CLS]"] * 99}}
PROCESSING = {"type": "BertProcessing", "sep": ["[SEP]", 9], "cls": ["[CLS]", 2]}


def nested(depth: int) -> Any:
    return sequence(nested(depth - 1)) if depth else NFD


@pytest.mark.parametrize(
    ("component", "value", "fault"),
    [
        ("normalizer", sequence(*[{"type": "ByteLevel"}] * 2), "ByteLevel can lengthen a text"),
        (
            "normalizer",
            sequence(sequence(*[NFD] * 9), *[NFD] * 8),
            "expected array of length <= 16",
        ),
        ("normalizer", nested(6), "nested too deeply"),
        ("normalizer", sequence(*[sequence()] * 17), "or more than 16"),
        ("normalizer", sequence(5), r"normalizer\[0\]: expected object, got int"),
        ("normalizer", {"type": "Sequence"}, r"invalid value 'Sequence'"),
        ("normalizer", {"type": ["NFC"]}, "normalizer.*type: expected str, got list"),
        ("normalizer", {"type": "Prepend", "prepend": LONG}, "prepend: expected str of"),
        ("normalizer", replace({"String": "a"}, "b" * 17), "Replace writes 17 characters"),
        ("normalizer", replace({"String": "a"}, "\ufdfa"), "Replace writes 18 characters"),
        ("normalizer", sequence(*[replace({"String": "a"}, "aa")] * 2), "Replace can lengthen"),
        ("normalizer", sequence(*[replace({"Regex": "x*"}, "a")] * 2), "Replace can lengthen"),
        ("normalizer", sequence(*[replace({"Regex": r"\s+"}, "_")] * 2), "Replace can lengthen"),
        ("normalizer", replace({"String": ""}, "a"), "pattern.String: expected str of length >= 1"),
        ("normalizer", replace({"String": 1, "Regex": []}, "a"), "pattern.String: expected str"),
        ("normalizer", replace({"String": LONG}, ""), "expected str of length <= 1000"),
        ("normalizer", replace({"Regex": "(x+x+)+y"}, ""), "regular expression fails on short"),
        ("normalizer", sequence(FIELDS["normalizer"], FIELDS["normalizer"]), "BertNormalizer can"),
        (
            "normalizer",
            sequence(replace({"String": "a"}, "b" * 12), FIELDS["normalizer"]),
            "make 36 characters of one",
        ),
        ("normalizer", precompiled("?"), "charsmap is damaged"),
        # The trie is longer than the map.
        ("normalizer", precompiled("////AAAA"), "is damaged"),
        ("normalizer", precompiled(charsmap("a", "b" * 33)), "make 33 characters of one"),
        ("pre_tokenizer", METASPACES, "Metaspace can lengthen"),
        ("pre_tokenizer", {"type": "FixedLength", "length": 0}, "invalid value 'FixedLength'"),
        (
            "pre_tokenizer",
            {"type": "Split", "pattern": {"Regex": r"(\w+\s?)+$"}},
            "regular expression",
        ),
        ("decoder", {"type": "CTC"}, "decoder.*invalid value 'CTC'"),
        ("decoder", replace({"Regex": "(x+x+)+y"}, ""), "regular expression"),
        ("post_processor", PROCESSING, r"'\[SEP\]' with another"),
        (
            "post_processor",
            template(special_tokens={"x": {"ids": [2] * 99}}),
            "ids: expected array",
        ),
        ("post_processor", template(special_tokens=MANY_TOKENS), "tokens: expected array"),
        ("post_processor", template(single=[0] * 17), "single: expected array of length <= 16"),
        ("added_tokens", [{"id": 1_000_000_000, "content": "x"}], "id 1000000000, and there are 9"),
        ("added_tokens", [{"id": True, "content": "x"}], "id: expected int, got bool"),
        ("added_tokens", [{"id": 1, "content": LONG}], "content: expected str of length <= 1000"),
        ("added_tokens", [{"id": 1, "content": None}], "content: expected str, got null"),
        ("added_tokens", [{"id": 1, "content": "x" * 1000}] * 501, "more than 500,000 characters"),
        ("added_tokens", "none", "added_tokens: expected array"),
        ("model", {"type": "GPT"}, "model.type: invalid .*GPT"),
        ("model", 5, "model: expected object, got int"),
        ("model", {"vocab": [["a"]]}, "model.vocab.*expected"),
        ("model", {"vocab": [[f"{i:01000d}", 0] for i in range(1010)]}, "longer than those of any"),
        ("model.max_input_chars_per_word", 1_000_000_000, "expected int <= 1000"),
        ("model.continuing_subword_prefix", "#" * 17, "expected str of length <= 16"),
        ("model.unk_token", "[NOPE]", r"unk_token '\[NOPE\]' is not one of its tokens"),
        ("model.unk_token", ["[UNK]"], r"unk_token: expected str \| null, got array"),
        ("model.unk_id", 8, "unk_id 8 is not the id"),
        ("model", {"vocab": [["", 0]]}, r"model.vocab\[0\]\[0\]: expected str of length >= 1"),
        ("model", {"vocab": [["a", 0]] * 1_000_001}, "it has 1,000,001 tokens"),
        ("model.merges", [["a", "b"]] * 200, "it has 200 merges, and 13 tokens"),
        ("model.dropout", 0.1, "model.dropout: expected"),
    ],
)
def test_what_is_not_known_to_be_harmless_is_refused_by_name(
    component: str, value: Any, fault: str
):
    fields = json.loads(json.dumps(FIELDS))
    name, _, field = component.partition(".")
    if field:
        fields[name][field] = value
    else:
        fields[name] = value
    if name == "model" and not field:
        fields |= {"added_tokens": [], "post_processor": None}
    with pytest.raises(UserError, match=rf"^t\.json: .*{fault}.*; use another tokenizer\.$"):
        check_tokenizer(fields, "t.json")


def test_a_trial_runs_nothing_of_the_current_folder_and_must_succeed(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tokenizers.py").write_text("open('executed', 'w')")
    tokenizer_limits._try_out(("harmless",))
    assert not (tmp_path / "executed").exists()
    for code in ("print('text')", "raise MemoryError"):
        with pytest.raises(UserError, match="fails on short texts"):
            tokenizer_limits._try_out(("x",), code)


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"mask_token": ["x"]}, 'mask_token is ["x"], not a token'),
        ({"mask_token": {"content": ["x"]}}, 'mask_token is ["x"], not a token'),
        ({"pad_token": 5}, "pad_token is 5, not a token"),
    ],
)
def test_a_special_token_that_is_not_a_text_is_named(tmp_path: Path, settings: Any, fault: str):
    fields = json.loads(json.dumps(FIELDS).replace("[CLS]", "<s>"))
    (tmp_path / "tokenizer.json").write_text(json.dumps(fields))
    read_vocabulary(str(tmp_path))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(UserError) as error:
        read_vocabulary(str(tmp_path))
    assert fault in str(error.value)


def test_a_text_that_a_tokenizer_has_no_token_for_is_one_error(tmp_path: Path):
    fields = json.loads(json.dumps(FIELDS))
    fields["model"] = {"type": "Unigram", "vocab": [[t, 0.0] for t in OWN.tokens], "unk_id": None}
    (tmp_path / "tokenizer.json").write_text(json.dumps(fields))
    with pytest.raises(UserError, match=r"The tokenizer fails at a text .*unk_id"):
        TextTokenizer(tmp_path).token_ids(["ab"])


def test_a_step_may_be_absent(tmp_path: Path):
    fields = {name: value for name, value in FIELDS.items() if name != "normalizer"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(fields))
    assert not read_vocabulary(str(tmp_path)).continues[7]


SENTENCES = [
    "The quick brown fox didn't jump; 12,345 dogs (and cats) slept.",
    "Le cœur déçu mais l'âme plutôt naïve, Louÿs rêva de ``crapaüter''.",
    "Съешь же ещё этих мягких  французских булок, да выпей чаю.",
    "这是一个中文句子，没有空格。 ﬁne ﷺ",
]
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def published(form: str) -> Tokenizer:
    """Return a tokenizer with the steps of a published one, as `transformers` converts them."""
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    bpe = BpeTrainer(vocab_size=400, special_tokens=names, show_progress=False)
    unigram = UnigramTrainer(
        vocab_size=150, special_tokens=names, unk_token="<unk>", show_progress=False
    )
    if form == "Llama3":
        tokenizer, trainer = Tokenizer(models.BPE(ignore_merges=True)), bpe
        split = pre_tokenizers.Split(Regex(LLAMA_3), "isolated")
        to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, to_bytes])
    elif form == "Roberta":
        tokenizer, trainer = Tokenizer(models.BPE()), bpe
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    elif form == "Gemma":
        tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        trainer = bpe
    else:
        tokenizer, trainer = Tokenizer(models.Unigram()), unigram
        converters = import_module("transformers.convert_slow_tokenizer")
        converter = object.__new__(getattr(converters, f"{form}Converter"))
        converter.original_tokenizer = SimpleNamespace(keep_accents=False, do_lower_case=True)
        spec = SimpleNamespace(precompiled_charsmap=base64.b64decode(charsmap("ﬁ", "fi")))
        tokenizer.normalizer = converter.normalizer(SimpleNamespace(normalizer_spec=spec))
        tokenizer.pre_tokenizer = converter.pre_tokenizer("▁", add_prefix_space=True)
    tokenizer.train_from_iterator(SENTENCES * 3, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return tokenizer


@pytest.mark.parametrize(
    "form", ["Albert", "Gemma", "Llama3", "RemBert", "Roberta", "T5", "XLMRoberta", "XLNet"]
)
def test_the_forms_of_published_tokenizers_keep_their_ids(form: str, tmp_path: Path):
    tokenizer = published(form)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    vocabulary = read_vocabulary(str(tmp_path))
    texts = [*SENTENCES, "ﬁ"]
    ids, _ = vocabulary.text_tokenizer().encode(pa.array(texts), np.ones(len(texts), bool))
    expected = tokenizer.encode_batch(texts, add_special_tokens=False)
    assert ids.tolist() == [token for each in expected for token in each.ids]
