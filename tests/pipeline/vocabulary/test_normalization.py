"""Apostrophes inside words: by which languages, and the same ids everywhere."""

import json
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from clozeworks.pipeline.vocabulary.files import read_vocabulary, vocabulary_files
from clozeworks.pipeline.vocabulary.normalization import (
    RULES,
    Normalization,
    bert_normalization,
    bert_tokenizer,
    rules_for,
)
from clozeworks.pipeline.vocabulary.tokenize import DictionaryTokenizer, Speller, count_words
from clozeworks.pipeline.vocabulary.vocabulary import SPECIAL_TOKENS, Vocabulary
from hypothesis import given
from hypothesis import strategies as st

UKRAINIAN = [
    "П'ять комп’ютерів об‘єднали у 2004 році.",
    "В’ячеслав Чорновіл, м. Кам'янець-Подільський; “з'їзд” і 'слово' у лапках.",
    "Слово пʼять уже має літеру, а l'eau, don't і О'Ніл ні; п'я́ть, у', 'я.",
    "п' ять, п'\u00adять, п\u0301'ять, 2'ять, п'2",
]
ALPHABET = "пяє'’‘ʼ\u0301\u00ad aO2.-中"


def vocabulary_of(*rules: str, lowercase: bool = True) -> Vocabulary:
    text = "".join(UKRAINIAN) + ALPHABET + "ʻ"
    letters = sorted({letter for letter in text + text.lower() if not letter.isspace()})
    tokens = (*SPECIAL_TOKENS, *letters, *(f"##{letter}" for letter in letters), "компʼютер")
    return Vocabulary(tokens, Normalization(lowercase, False, rules))


@pytest.mark.parametrize(
    ("shares", "rules"),
    [
        ({"uk": 1.0}, ("cyrillic",)),
        ({"ru": 0.98, "be": 0.02}, ("cyrillic",)),
        ({"ru": 0.995, "be": 0.005}, ()),
        ({"haw": 0.6, "en": 0.4}, ("okina",)),
        ({"haw": 0.4, "en": 0.6}, ()),
        ({"uz": 0.9, "uk": 0.1}, ("cyrillic", "uzbek")),
        ({"en": 0.5, "fr": 0.3, "ca": 0.2}, ()),
        ({"be-tarask": 1.0}, ("cyrillic",)),
    ],
)
def test_rules_follow_the_languages(shares: dict[str, float], rules: tuple[str, ...]):
    assert rules_for(shares) == rules


@pytest.mark.parametrize(
    "rules", [(), ("cyrillic",), ("latin",), ("okina",), ("uzbek",), ("cyrillic", "uzbek")]
)
def test_a_tokenizer_says_its_rules(rules: tuple[str, ...]):
    normalization = Normalization(True, False, rules, composes=True)
    fields = json.loads(bert_tokenizer(["[UNK]"], normalization).to_str())
    assert bert_normalization(fields) == normalization
    steps = fields["normalizer"]["normalizers"]
    steps.append(steps[-1])
    assert bert_normalization(fields) is None


def words_of(text: str, *rules: str) -> list[str]:
    splitter = Speller(Normalization(True, False, rules))
    return count_words([pa.array([text])], splitter)["word"].to_pylist()


def test_only_apostrophes_between_letters_of_the_script_are_letters():
    assert words_of("Комп'ютер комп’ютер компʼютер", "cyrillic") == ["компʼютер"]
    assert sorted(words_of("'слово' l'eau", "cyrillic")) == ["'", "eau", "l", "слово"]
    assert sorted(words_of("Hawai'i o‘zbek", "okina")) == ["hawaiʻi", "oʻzbek"]
    assert sorted(words_of("o'zbek ma'no", "uzbek")) == ["maʼno", "oʻzbek"]
    assert sorted(words_of("п'ять")) == ["'", "п", "ять"]


@pytest.mark.parametrize("lowercase", [True, False])
def test_the_fast_tokenizer_equals_tokenizers_on_ukrainian(lowercase: bool):
    check_equal(vocabulary_of("cyrillic", lowercase=lowercase), UKRAINIAN)


@given(st.lists(st.text(ALPHABET, max_size=12), max_size=4), st.sampled_from(sorted(RULES)))
def test_the_fast_tokenizer_equals_tokenizers(texts: list[str], rule: str):
    check_equal(vocabulary_of(rule), texts)


def check_equal(vocabulary: Vocabulary, texts: list[str]) -> None:
    fast = DictionaryTokenizer(vocabulary.tokens, vocabulary.normalization)
    ids, offsets = fast.encode(pa.array(texts, pa.string()))
    slow = bert_tokenizer(vocabulary.tokens, vocabulary.normalization)
    expected = [slow.encode(text).ids for text in texts]
    assert [ids[start:stop].tolist() for start, stop in pairwise(offsets)] == expected


def test_files_keep_the_rules_and_others_keep_their_fingerprint(tmp_path: Path):
    vocabulary = vocabulary_of("cyrillic")
    files = vocabulary_files(vocabulary)
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    read = read_vocabulary(str(tmp_path))
    assert read == vocabulary and read.fingerprint == vocabulary.fingerprint
    plain = Vocabulary(vocabulary.tokens, Normalization(True, False))
    assert plain.fingerprint != vocabulary.fingerprint
    assert json.loads(files["tokenizer_config.json"])["tokenizer_class"] == (
        "PreTrainedTokenizerFast"
    )
    assert json.loads(vocabulary_files(plain)["tokenizer_config.json"])["tokenizer_class"] == (
        "BertTokenizer"
    )


def test_other_normalizers_are_left_to_tokenizers(tmp_path: Path):
    content = json.loads(vocabulary_files(vocabulary_of("cyrillic"))["tokenizer.json"])
    content["normalizer"]["normalizers"][1]["content"] = "x"
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    assert read_vocabulary(str(tmp_path)).is_foreign
