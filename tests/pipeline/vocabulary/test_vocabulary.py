"""The vocabulary's files load in `tokenizers` and `transformers`; bad ones name their fault."""

import json
import pickle
import unicodedata
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.vocabulary.fertility import fertility_report
from clozeworks.pipeline.vocabulary.files import (
    load_vocabulary,
    read_vocabulary,
    unusual_class,
    vocabulary_files,
)
from clozeworks.pipeline.vocabulary.normalization import Normalization
from clozeworks.pipeline.vocabulary.tokenize import DictionaryTokenizer, Speller, count_words
from clozeworks.pipeline.vocabulary.vocabulary import Vocabulary
from clozeworks.pipeline.vocabulary.wordpiece import learn_pieces, special_tokens
from tokenizers import Tokenizer

from tests.fixtures.shared_data import DATA, needs_shared_data

NORMALIZATIONS = [
    Normalization(lowercase, strip) for lowercase in (True, False) for strip in (True, False)
]
PIECES = [
    *("cafe", "café", "Cafe", "Café", "s", "##s", "가", "##나", "가나", ".", ",", "中"),
    *("##é", "É", "E", "e", "é"),
]
TEXTS = ["Café cafe É, s.", "café中가나 s", "cafes [MASK] Cafe\u0301s"]
SPECIALS = special_tokens(0)


def vocabulary_of(normalization: Normalization = NORMALIZATIONS[0]) -> Vocabulary:
    return Vocabulary((*special_tokens(2), *PIECES), normalization)


def written(vocabulary: Vocabulary, directory: Path) -> Path:
    for name, content in vocabulary_files(vocabulary).items():
        (directory / name).write_bytes(content)
    return directory


def as_vocab_txt(*lines: str) -> dict[str, bytes]:
    return {"vocab.txt": "\n".join(lines).encode()}


@pytest.mark.slow
@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_transformers_encodes_the_same(normalization, tmp_path):
    transformers = pytest.importorskip("transformers")
    vocabulary = vocabulary_of(normalization)
    written(vocabulary, tmp_path)
    ids, offsets = DictionaryTokenizer(vocabulary.tokens, normalization).encode(pa.array(TEXTS[:2]))
    first, second = ids[: offsets[1]].tolist(), ids[offsets[1] :].tolist()
    cls, sep = vocabulary.cls_id, vocabulary.sep_id
    for loader in (transformers.AutoTokenizer, transformers.BertTokenizerFast):
        tokenizer = loader.from_pretrained(str(tmp_path))
        encoded = tokenizer(*TEXTS[:2])
        assert encoded["input_ids"] == [cls, *first, sep, *second, sep]
        assert encoded["token_type_ids"] == [0] * (len(first) + 2) + [1] * (len(second) + 1)
        assert tokenizer.mask_token_id == vocabulary.mask_id
        assert tokenizer.pad_token_id == vocabulary.pad_id
        assert tokenizer("[MASK]")["input_ids"] == [cls, vocabulary.mask_id, sep]


def test_composed_and_decomposed_text_is_the_same_words(tmp_path):
    transformers = pytest.importorskip("transformers")
    vocabulary = vocabulary_of(Normalization(True, strip_accents=False, composes=True))
    written(vocabulary, tmp_path)
    assert read_vocabulary(str(tmp_path)) == vocabulary
    assert vocabulary.fingerprint != vocabulary_of(Normalization(True, False)).fingerprint
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    decomposed = unicodedata.normalize("NFD", "Café cafés 나나")
    assert tokenizer.tokenize(decomposed) == tokenizer.tokenize("Café cafés 나나")
    assert tokenizer.tokenize(decomposed)[:3] == ["café", "café", "##s"]


def test_tokenizer_json_loads_in_tokenizers(tmp_path):
    written(vocabulary_of(), tmp_path)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    tokens = tokenizer.encode("CAFÉ [MASK]", "s").tokens
    assert tokens == ["[CLS]", "cafe", "[MASK]", "[SEP]", "s", "[SEP]"]
    assert tokenizer.decode(tokenizer.encode("cafes.").ids) == "cafes."


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_files_round_trip(normalization):
    vocabulary = vocabulary_of(normalization)
    files = vocabulary_files(vocabulary)
    assert load_vocabulary(files, "vocab") == vocabulary
    del files["tokenizer.json"]
    assert load_vocabulary(files, "vocab") == vocabulary


def special_ids(vocabulary: Vocabulary) -> tuple[int, ...]:
    return tuple(vocabulary.ids[token] for token in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"))


def test_ids_and_masks():
    vocabulary = vocabulary_of()
    assert vocabulary.tokens[: vocabulary.mask_id + 1] == tuple(special_tokens(2))
    assert special_ids(vocabulary) == (0, 3, 4, 5, 6)
    assert np.flatnonzero(vocabulary.is_ordinary).tolist() == list(range(7, 7 + len(PIECES)))
    continuing = [vocabulary.tokens[i] for i in np.flatnonzero(vocabulary.continues)]
    assert continuing == ["##s", "##나", "##é"]


def test_brackets_and_hashes_of_text_are_ordinary():
    vocabulary = Vocabulary((*SPECIALS, "[", "]", "#", "##"), NORMALIZATIONS[0])
    assert vocabulary.is_ordinary[5:].all()
    assert not vocabulary.continues.any()


def test_fingerprint_depends_on_tokens_and_normalization():
    vocabularies = [
        *map(vocabulary_of, NORMALIZATIONS),
        Vocabulary((*SPECIALS, "a"), NORMALIZATIONS[0]),
    ]
    assert len({vocabulary.fingerprint for vocabulary in vocabularies}) == 5
    copy = pickle.loads(pickle.dumps(vocabularies[0]))
    assert copy.fingerprint == vocabulary_of().fingerprint


@pytest.mark.parametrize(
    ("pieces", "normalization"),
    [
        (["the", "cafe"], Normalization(lowercase=True, strip_accents=True)),
        (["the", "café", "가"], Normalization(lowercase=True, strip_accents=False)),
        (["The", "cafe"], Normalization(lowercase=False, strip_accents=False)),
    ],
)
def test_normalization_is_inferred_from_tokens(pieces, normalization):
    assert load_vocabulary(as_vocab_txt(*SPECIALS, *pieces), "v").normalization == normalization


@needs_shared_data
@pytest.mark.parametrize(
    ("name", "size", "lowercase"), [("uncased", 30522, True), ("cased", 28996, False)]
)
def test_published_vocabularies(name, size, lowercase):
    path = DATA / f"bert/bert-base-{name}-vocab.txt"
    vocabulary = load_vocabulary({"vocab.txt": path.read_bytes()}, str(path))
    assert len(vocabulary) == size
    assert vocabulary.normalization == Normalization(lowercase, lowercase)
    assert special_ids(vocabulary) == (0, 100, 101, 102, 103)


def test_windows_line_ends_and_bom():
    content = "\ufeff" + "\r\n".join([*SPECIALS, "a"]) + "\r\n"
    assert load_vocabulary({"vocab.txt": content.encode()}, "v").tokens == (*SPECIALS, "a")


def changed_json(part: str, name: Any, value: object) -> dict[str, bytes]:
    content = json.loads(vocabulary_files(vocabulary_of())["tokenizer.json"])
    content[part][name] = value
    return {"tokenizer.json": json.dumps(content).encode()}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "v has no vocabulary"),
        (as_vocab_txt("[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"), r"v/vocab.txt lacks \[MASK\]"),
        (as_vocab_txt(*SPECIALS, "a", "b", "a"), "token 'a' is on lines 6 and 8"),
        (as_vocab_txt(*SPECIALS, "", "b"), "line 6 is empty"),
        (as_vocab_txt(*SPECIALS, "▁a", "b"), "words begin with ▁ and no token with ##, .*json"),
        (as_vocab_txt("a 12", "b@@ 9"), "a token and its count, as PhoBERT and BERTweet"),
        (as_vocab_txt("<s>", "b@@", "c"), "end with @@"),
        (
            {**as_vocab_txt(*SPECIALS, "a"), "tokenizer_config.json": b'{"auto_map": ["t.T", 0]}'},
            "auto_map names code, which is never run",
        ),
        ({"vocab.txt": b"\xff\xfe["}, "not valid UTF-8"),
        ({"tokenizer.json": b"{"}, "v/tokenizer.json is damaged .* Fetch it again"),
        ({"tokenizer.json": b"[]"}, "expected object, got array"),
        ({"tokenizer.json": b"{}"}, "v/tokenizer.json: object missing required field model"),
        ({"tokenizer.json": b'{"model": "WordPiece"}'}, "model: expected object, got str"),
        (changed_json("model", "vocab", 5), "model.vocab: expected object | array"),
        (changed_json("model", "vocab", {"[PAD]": 0, "a": 99}), "the id 99, and there are 7"),
        (changed_json("model", "vocab", {"[PAD]": 0, "a": 6}), "ids of its"),
        (as_vocab_txt(*SPECIALS, "[unused0]"), "only special tokens"),
    ],
)
def test_bad_files_are_refused(files, message):
    with pytest.raises(UserError, match=message):
        load_vocabulary(files, "v")


@pytest.mark.parametrize(
    ("setting", "value", "usual"),
    [
        ("tokenize_chinese_chars", False, "true"),
        ("do_basic_tokenize", False, "true"),
        ("do_word_tokenize", False, "true"),
        ("do_subword_tokenize", False, "true"),
        ("word_tokenizer_type", "mecab", '"basic"'),
        ("subword_tokenizer_type", "character", '"wordpiece"'),
    ],
)
def test_a_tokenizer_unlike_berts_is_refused(setting, value, usual):
    def load(**settings: object) -> Vocabulary:
        config = json.dumps({"do_lower_case": False, **settings}).encode()
        return load_vocabulary(
            {**as_vocab_txt(*SPECIALS, "a"), "tokenizer_config.json": config}, "v"
        )

    assert load(**{setting: json.loads(usual)}) == load()
    message = f"^v/tokenizer_config.json: {setting} is {json.dumps(value)}, not {usual}. Only BERT"
    with pytest.raises(UserError, match=message):
        load(**{setting: value})


def test_another_class_than_berts_is_one_notice(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join((*SPECIALS, "a")))
    config = tmp_path / "tokenizer_config.json"
    assert unusual_class(str(tmp_path)) == ""
    config.write_text('{"tokenizer_class": "BertTokenizerFast"}')
    assert unusual_class(str(tmp_path)) == ""
    config.write_text('{"tokenizer_class": "OwnTokenizer"}')
    assert 'names "OwnTokenizer", but vocab.txt is read as BERT\'s' in unusual_class(str(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{}")
    assert unusual_class(str(tmp_path)) == ""  # it says itself how text is cut


@needs_shared_data
def test_korean_keeps_its_syllables_and_nearly_all_characters():
    path = DATA / "wikipedia" / "kowiki-hf.parquet"
    texts = pq.read_table(path, columns=["text"])["text"].to_pylist()[:600]
    lines = [line for text in texts for line in text.split("\n")]
    keep = Normalization(True, False)
    words, sample = (count_words([pa.array(part)], Speller(keep)) for part in (lines, lines[::5]))
    learn = partial(learn_pieces, words["word"], words["count"].to_numpy(), size=12_000)
    tokens, _, report = learn()
    jamo = [token for token in tokens if any("\u1100" <= letter <= "\u11ff" for letter in token)]
    assert len(jamo) < 0.01 * len(tokens)  # those of the text itself
    assert sum("가" <= token.removeprefix("##")[0] <= "힣" for token in tokens) > 8_000
    assert 1_000 < report.num_alphabet < 6_000
    unknown, unknown_of_few = (
        fertility_report(sample, Vocabulary(tuple(learned), keep)).unknown_share
        for learned in (tokens, learn(limit_alphabet=1000)[0])
    )
    assert unknown < 0.003 < 0.01 < unknown_of_few


def test_fertility_report():
    words = pa.table({"word": ["s", "cafes", "xyz"], "count": [5, 2, 1]})
    report = fertility_report(words, vocabulary_of())
    assert (report.num_words, report.num_tokens, report.num_distinct_words) == (8, 10, 3)
    assert report.tokens_per_word == 10 / 8
    assert report.unknown_share == 1 / 10
    assert report.longest_tokens == ["cafe", "s", "##s"]
    assert report.rarest_tokens == [("##s", 2), ("cafe", 2), ("s", 5)]
    assert report.num_tokens_absent == len(PIECES) - 3
    assert fertility_report(words.slice(3), vocabulary_of()).tokens_per_word == 0
