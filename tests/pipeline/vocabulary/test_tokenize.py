"""The ids must be those of `tokenizers` for each whole sentence, whatever is in it."""

import random
import unicodedata
from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clozeworks.pipeline.vocabulary import tokenize
from clozeworks.pipeline.vocabulary.normalization import Normalization, bert_tokenizer
from clozeworks.pipeline.vocabulary.tokenize import (
    DictionaryTokenizer,
    Speller,
    count_words,
    encode_texts,
    join_words,
    merge_counts,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.shared_data import DATA, needs_shared_data

NORMALIZATIONS = [
    *(Normalization(lowercase, strip) for lowercase in (True, False) for strip in (True, False)),
    Normalization(lowercase=True, strip_accents=False, composes=True),
]
ALPHABET = (
    "aAeE zZ09.,[]-#'éÉñßẞİıΣςσКйёあがガｶﾞ가각ᄀ中文々。、—’क्षाไกំầ"
    "\u0301\u0323\u0345\u302e\u200d\ufe0f\ufeff\ufffd"
)
CONTROLS = (
    "\x00\t\n\r\x0b\x1c\x7f\x85\xa0\u2028\u3000\ue000\U000f0000\U0001f600\U0001f3fd"
    "\U00020000\U0002f800豈\u1fef;〈"
)
TOKENS = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "an", "##an", "mask", "MASK"),
    *("ab", "##ba", "[", "]"),
    *(char for char in dict.fromkeys(ALPHABET + CONTROLS) if char not in "[] "),
    *(f"##{char}" for char in dict.fromkeys(ALPHABET + CONTROLS)),
]

words = st.one_of(
    st.text(st.sampled_from(ALPHABET + CONTROLS), max_size=6),
    st.text(max_size=4),
    st.sampled_from(["[MASK]", "[SEP]", "the", "An", "a\u302e\U0001d165"]),
    st.sampled_from(["a" * 100, "a" * 101, "é" * 51, "e\u0301" * 51, "a" * 10_000]),
)
sentences = st.lists(words, max_size=8).flatmap(
    lambda parts: st.sampled_from([" ", "", "  "]).map(lambda s: s.join(parts))
)


def split(ids: np.ndarray, offsets: np.ndarray) -> list[list[int]]:
    return [ids[begin:end].tolist() for begin, end in pairwise(offsets)]


def expected_ids(
    texts: list[str], tokens: list[str], normalization: Normalization
) -> list[list[int]]:
    tokenizer = bert_tokenizer(tokens, normalization)
    return [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]


@pytest.fixture(scope="module")
def known() -> dict[Normalization, DictionaryTokenizer]:
    """Tokenisers that live through all examples, so that what they remember is tested too."""
    return {
        normalization: DictionaryTokenizer(TOKENS, normalization)
        for normalization in NORMALIZATIONS
    }


@pytest.mark.slow
@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@given(texts=st.lists(sentences, max_size=5))
@settings(max_examples=150)
def test_ids_equal_tokenizers(known, normalization, texts):
    ids, offsets = known[normalization].encode(pa.array(texts, pa.string()))
    assert ids.dtype == np.int32
    assert offsets.dtype == np.int64
    assert split(ids, offsets) == expected_ids(texts, TOKENS, normalization)


@pytest.mark.slow
@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_sampled_code_points(known, normalization):
    rng = random.Random(7)
    codes = [code for code in rng.sample(range(0x30000), 12_000) if not 0xD800 <= code < 0xE000]
    texts = [
        "a".join(chr(code) + rng.choice(ALPHABET) for code in codes[i : i + 4])
        for i in range(0, len(codes), 4)
    ]
    assert split(*known[normalization].encode(pa.array(texts))) == expected_ids(
        texts, TOKENS, normalization
    )


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_marks_that_change_places(normalization):
    # Two spacing marks: stripping accents keeps them, but its NFD sorts them.
    texts = ["a\u302e\U0001d165", "a\U0001d165\u302e", "e\u0323\u0301\u302e\U0001d165"]
    tokens = [*TOKENS, "##\U0001d165", "\U0001d165"]
    got = split(*DictionaryTokenizer(tokens, normalization).encode(pa.array(texts)))
    assert got == expected_ids(texts, tokens, normalization)
    sorts = normalization.strip_accents or normalization.composes
    assert (got[0] == got[1]) is sorts


def cuts_of(text: str) -> list[int]:
    content = np.frombuffer(text.encode(), np.uint8)
    speller = Speller(Normalization(True, True))
    _, _, cuts = speller.prepare(content, np.array([0, len(content)]), np.zeros(1, bool))
    return cuts.tolist()


def test_every_wide_cut_is_one_of_tokenizers():
    tokenizer = bert_tokenizer(["[UNK]"], Normalization(True, True))
    wide = [code for code in range(0x800, 0x10000) if not 0xD800 <= code < 0xE000]
    isolated = [code for code in wide if cuts_of(f"a{chr(code)}b") == [0, 1, 4, 5]]
    assert len(isolated) > 20_000
    for code in isolated[::5]:
        normalized = tokenizer.normalizer.normalize_str(f"a{chr(code)}b")
        words = [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normalized)]
        assert words == ["a", chr(code), "b"]


def test_special_tokens_in_text_are_text():
    tokenizer = DictionaryTokenizer(TOKENS, Normalization(True, True))
    ids, _ = tokenizer.encode(pa.array(["[MASK] [SEP]"]))
    assert [TOKENS[i] for i in ids[:3]] == ["[", "mask", "]"]
    assert not {TOKENS.index("[MASK]"), TOKENS.index("[SEP]")} & set(ids.tolist())


@pytest.mark.parametrize(
    "array",
    [pa.array(["the an", "", "an"]).slice(1), pa.array(["", ""]), pa.array([], pa.string())],
    ids=["slice", "all empty", "none"],
)
def test_arrays_of_every_kind(array):
    normalization = Normalization(True, True)
    got = split(*DictionaryTokenizer(TOKENS, normalization).encode(array))
    assert got == expected_ids(array.to_pylist(), TOKENS, normalization)


def test_small_slices_and_a_full_cache_change_nothing():
    texts = [f"the {i} an{i % 7}, é{i % 5}. ab" for i in range(300)]
    normalization = Normalization(True, True)
    expected = expected_ids(texts, TOKENS, normalization)
    tokenizer = DictionaryTokenizer(TOKENS, normalization)
    got = tokenizer.encode(pa.array(texts), slice_bytes=100, chunks_together=7, cache_bytes=2000)
    assert split(*got) == expected
    assert tokenizer.cached_bytes < 2000 + 7 * 100


def test_short_texts_and_calls_give_the_ids_of_long_ones():
    tokenizer = bert_tokenizer(TOKENS, Normalization(True, True))
    words = [f"{'the an ab'[i % 3 * 3 :]}{i}" for i in range(20)]
    whole, _ = encode_texts(tokenizer, [" ".join(words)])
    texts = join_words(words, " ", words_per_text=3)
    ids, lengths = encode_texts(tokenizer, texts, texts_per_call=2)
    assert ids.tolist() == whole.tolist()
    assert (len(texts), sum(lengths)) == (7, len(whole))


def expected_counts(texts: list[str], normalization: Normalization) -> list[tuple[str, int]]:
    tokenizer = bert_tokenizer(["[UNK]"], normalization)
    counts: Counter[str] = Counter()
    for text in texts:
        normalized = tokenizer.normalizer.normalize_str(text)
        counts.update(word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normalized))
    return sorted(counts.items(), key=lambda item: (-item[1], item[0].encode()))


@pytest.mark.slow
@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@given(texts=st.lists(sentences, max_size=5))
@settings(max_examples=100)
def test_word_counts_equal_tokenizers(normalization, texts):
    table = count_words([pa.array(texts, pa.string())], Speller(normalization))
    assert list(zip(*table.to_pydict().values(), strict=True)) == expected_counts(
        texts, normalization
    )


def test_merged_counts_equal_counts_of_all():
    splitter = Speller(Normalization(True, True))
    parts = [pa.array(part, pa.string()) for part in (["the an the", "É."], [], ["an an e ab."])]
    tables = [count_words([part], splitter) for part in parts]
    assert merge_counts(tables).equals(count_words(parts, splitter))
    assert merge_counts([]).num_rows == 0


def test_counts_are_64_bit():
    table = pa.table({"word": ["a"], "count": [2**40]}, schema=tokenize.WORD_COUNTS)
    assert merge_counts([table, table])["count"].to_pylist() == [2**41]


@needs_shared_data
def test_real_wikipedia():
    path, vocab = (
        DATA / "wikipedia/enwiki-hf-00000-of-00002.parquet",
        DATA / "bert/bert-base-uncased-vocab.txt",
    )
    tokens = vocab.read_text(encoding="utf-8").splitlines()
    texts = next(pq.ParquetFile(path).iter_batches(60, columns=["text"]))["text"]
    normalization = Normalization(True, True)
    got = split(*DictionaryTokenizer(tokens, normalization).encode(texts))
    assert got == expected_ids(texts.to_pylist(), tokens, normalization)


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_signs_that_join_the_letter_before_them(normalization):
    texts = ["\u1112\u1161\u11ab", "\u0995\u09c7\u09be"]  # parts of 한 and of কো
    tokens = [*TOKENS, "한", "\u0995\u09cb"]
    got = split(*DictionaryTokenizer(tokens, normalization).encode(pa.array(texts)))
    assert got == expected_ids(texts, tokens, normalization)
    assert (got == [[len(TOKENS)], [len(TOKENS) + 1]]) is normalization.composes


@pytest.mark.slow
def test_all_that_unicode_joins_with_the_character_before_is_known():
    joined = set()
    for code in range(0x110000):
        parts = unicodedata.decomposition(chr(code)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            pair = "".join(chr(int(part, 16)) for part in parts)
            if unicodedata.normalize("NFC", pair) == chr(code):
                joined.add(pair[1])
    joined |= {unicodedata.normalize("NFD", "각")[1], unicodedata.normalize("NFD", "각")[2]}
    told_apart = set(map(chr, Speller(Normalization(True, False, composes=True))))
    assert {mark for mark in joined if not unicodedata.combining(mark)} <= told_apart
