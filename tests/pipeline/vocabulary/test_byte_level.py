"""Byte-level BPE: the ids of `tokenizers`, the merges of the plain algorithm."""

import json
import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from clozeworks.pipeline.config import VocabConfig
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.instances.masking import find_words
from clozeworks.pipeline.vocabulary.byte_level import (
    CHARACTERS,
    ByteLevelTokenizer,
    continues_word,
    text_of,
)
from clozeworks.pipeline.vocabulary.files import (
    byte_level_vocabulary,
    load_vocabulary,
    read_vocabulary,
    vocabulary_files,
)
from clozeworks.pipeline.vocabulary.normalization import Normalization
from clozeworks.pipeline.vocabulary.tokenize import count_words
from clozeworks.pipeline.vocabulary.vocabulary import SPECIAL_TOKENS, Vocabulary
from clozeworks.pipeline.vocabulary.wordpiece import learn_pieces
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from tests.fixtures.byte_level_fixture import MERGES, PIECES, write_published_tokenizer

CASED = Normalization(lowercase=False, strip_accents=False)
NORMALIZATIONS = [
    Normalization(lowercase, strip) for lowercase in (True, False) for strip in (True, False)
]
TRICKY = (
    "aAtTnN'\"19.,[]-#%éÉßİıΣςé가각ᄀ中文々。、—’क्षाไกំầ"
    "\u0301\u0323\u0345\u200d\ufeff\ufffd\x00\t\n\r\x0b\x1c\x7f\x85\xa0\u1680\u2009\u2028\u205f\u3000"
    "\ue000\U0001f600²½Ⅷ"
)
words = st.one_of(
    st.text(st.sampled_from(TRICKY + "  "), max_size=8),
    st.text(max_size=4),
    st.sampled_from(["don't", "'tis", "[MASK]", "''s", "10", "a\u3000 b", "\u2009b", "\u2028b"]),
)
sentences = st.lists(st.lists(words, max_size=5).map(" ".join), max_size=5)


def make_vocabulary(normalization: Normalization = CASED) -> Vocabulary:
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens = [*specials, *PIECES]
    return byte_level_vocabulary(tokens, MERGES, normalization)


@settings(max_examples=300)
@given(sentences, st.sampled_from(NORMALIZATIONS))
def test_ids_are_those_of_tokenizers(texts: list[str], normalization: Normalization):
    vocabulary = make_vocabulary(normalization)
    peer = vocabulary.tokenizer()
    peer.encode_special_tokens = True
    ids, offsets = vocabulary.text_tokenizer().encode(pa.array(texts, pa.string()))
    for text, (start, stop) in zip(texts, pairwise(offsets.tolist()), strict=True):
        # A word of nothing but accents leaves two spaces side by side when they are stripped. The
        # peer sees these as one word, we as the ends of two: the only difference.
        if any(not peer.normalizer.normalize_str(word) for word in text.split()):
            continue
        assert ids[start:stop].tolist() == peer.encode(text, add_special_tokens=False).ids


@settings(max_examples=200)
@given(st.lists(words.map(str.strip).filter(bool), min_size=1, max_size=6))
def test_a_document_is_tokenised_like_its_sentences_with_spaces_between(texts: list[str]):
    # As documents have them: no white space at the ends, and none but spaces inside.
    texts = [" ".join(text.split()) for text in texts]
    texts = [text for text in texts if text]
    for vocabulary, starts in ((make_vocabulary(), None), (PUBLISHED, first_of(texts))):
        peer = vocabulary.tokenizer()
        peer.encode_special_tokens = True
        ids, _ = vocabulary.text_tokenizer().encode(pa.array(texts, pa.string()), starts)
        assert ids.tolist() == peer.encode(" ".join(texts), add_special_tokens=False).ids


# Merges that `tiktoken`'s rule does not follow: it would join any two parts of a token.
NOT_RANKS = {
    "a token made twice": [("x", "y"), ("xy", "z"), ("y", "z"), ("x", "yz")],
    "a part after the whole": [("xy", "z"), ("x", "y")],
    "a part that no merge makes": [("x", "yz")],
    "a token that its text does not become": [("x", "y"), ("y", "z"), ("x", "yz")],
}


@pytest.mark.parametrize("more", [*NOT_RANKS, "none", "words of one's own"])
@pytest.mark.parametrize("normalizer", ["NFC", "NFD", "Lowercase", "StripAccents", "none"])
def test_many_chunks_have_the_ids_of_tokenizers(normalizer: str, more: str):
    draw = random.Random(0)
    letters = "aeThNéÉßſİıΣςжԶ가각ᄀ\u1161\u11a8中ﬁ豈𝒜क"
    other = "019²½Ⅷ.,'\"-。’\u0301\u0323ा\t\n\x00\x1c\x7f\x85\xa0\u2009\u200d\u3000\ufffd\uffff😀"
    chunks = []
    for _ in range(3000):
        characters = draw.choice([letters, "xyz", "019", "-.,", letters + other])
        word = "".join(draw.choices(characters, k=draw.randint(1, 12)))
        chunks.append(draw.choice(["", " "]) + word)
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    learner.train_from_iterator(
        [chunk for chunk in chunks if "y" not in chunk],
        trainers.BpeTrainer(vocab_size=600, initial_alphabet=list(CHARACTERS), show_progress=False),
    )
    model = json.loads(learner.to_str())["model"]
    merges = list(map(tuple, model["merges"])) + NOT_RANKS.get(more, [])
    tokens = dict.fromkeys([*sorted(CHARACTERS), *(left + right for left, right in merges), "yz"])
    if more == "words of one's own":
        tokens |= dict.fromkeys(["xyzzy", "Ġxyz"])
    ids_of_tokens = {token: 7 + i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(ids_of_tokens, merges, ignore_merges="own" in more))
    tokenizer.pre_tokenizer = learner.pre_tokenizer
    if normalizer != "none":
        steps = [normalizers.NFD()] if normalizer == "StripAccents" else []
        steps.append(getattr(normalizers, normalizer)())
        tokenizer.normalizer = normalizers.Sequence(steps)
    # A line break in a word, and then none.
    for some in (chunks, [chunk for chunk in chunks if "\n" not in chunk]):
        ours = ByteLevelTokenizer(tokenizer, adds_space=False)  # which knows no words yet
        assert (ours.fast_model is not None) is (more == "none")
        ids, offsets = ours.encode(pa.array(some), np.ones(len(some), bool))
        expected = [each.ids for each in tokenizer.encode_batch_fast(some)]
        for chunk, (start, stop), of_chunk in zip(
            some, pairwise(offsets.tolist()), expected, strict=True
        ):
            assert ids[start:stop].tolist() == of_chunk, ascii(chunk)


def first_of(texts: list[str]) -> np.ndarray:
    return np.arange(len(texts)) == 0


@pytest.fixture(scope="module", autouse=True)
def _published(tmp_path_factory: pytest.TempPathFactory) -> None:
    global PUBLISHED
    PUBLISHED = read_vocabulary(
        str(write_published_tokenizer(tmp_path_factory.mktemp("published")))
    )


PUBLISHED: Vocabulary


def test_published_tokenizers_are_read_with_their_ids():
    assert PUBLISHED.byte_level is not None and not PUBLISHED.adds_space
    num_text = 2 + 256 + len(MERGES)
    expected = {"[UNK]": 3, "[CLS]": 4, "[SEP]": 5, "[PAD]": 6, "[MASK]": 7}
    assert {token: PUBLISHED.ids[token] - num_text for token in SPECIAL_TOKENS} == expected
    # Random replacements are text: no special tokens, nor what was added.
    ordinary = {PUBLISHED.tokens[i] for i in np.flatnonzero(PUBLISHED.is_ordinary)}
    assert ordinary == set(PIECES)
    files = vocabulary_files(PUBLISHED)
    assert set(files) == {"tokenizer.json", "tokenizer_config.json"}
    # transformers 4 heeds this, not tokenizer.json.
    assert json.loads(files["tokenizer_config.json"])["add_prefix_space"] is False
    files_of_ours = vocabulary_files(make_vocabulary())
    assert json.loads(files_of_ours["tokenizer_config.json"])["add_prefix_space"] is True
    again = load_vocabulary(files, "again")
    assert again.fingerprint == PUBLISHED.fingerprint != make_vocabulary().fingerprint


@pytest.mark.parametrize(
    "change", [{"pre_tokenizer": {"type": "Whitespace"}}, {"normalizer": {"type": "NFKC"}}]
)
def test_other_tokenizers_are_left_to_tokenizers(change: dict):
    content = json.loads(vocabulary_files(PUBLISHED)["tokenizer.json"])
    files = {"tokenizer.json": json.dumps(content | change).encode()}
    vocabulary = load_vocabulary(files, "folder")
    assert vocabulary.byte_level is None
    assert vocabulary.is_foreign


def plain_bpe(counts: dict[str, int], num_merges: int) -> list[tuple[str, str]]:
    """Merge as Sennrich et al. do, recounting everything each time; ties go to older tokens."""
    splits = {word: [CHARACTERS[byte] for byte in word.encode()] for word in counts}
    age = {character: number for number, character in enumerate(sorted(CHARACTERS))}
    merges = []
    while len(merges) < num_merges:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, pieces in splits.items():
            position = 0
            while position < len(pieces) - 1:
                pair = (pieces[position], pieces[position + 1])
                pairs[pair] += counts[word]
                # aaa holds one pair aa that can be merged, not two.
                overlaps = pair[0] == pair[1] and pieces[position + 2 : position + 3] == [pair[1]]
                position += 2 if overlaps else 1
        pairs = +pairs
        if not pairs or max(pairs.values()) < 2:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], age[pair[0]], age[pair[1]]))
        merges.append(best)
        joined = best[0] + best[1]
        age[joined] = len(age)
        for pieces in splits.values():
            position = 0
            while position < len(pieces) - 1:
                if (pieces[position], pieces[position + 1]) == best:
                    pieces[position : position + 2] = [joined]
                position += 1
    return merges


@settings(max_examples=60)
@given(
    st.dictionaries(
        st.text(st.sampled_from(" abcé한"), min_size=1, max_size=7), st.integers(1, 9), max_size=12
    )
)
def test_merges_are_those_of_the_plain_algorithm(counts: dict[str, int]):
    words = pa.array(list(counts), pa.string())
    numbers = np.array(list(counts.values()), np.int64)
    tokens, merges, report = learn_pieces(words, numbers, size=300, of_bytes=True)
    expected = plain_bpe(counts, 300 - 256 - 5)
    assert merges == expected
    assert tokens == [
        *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
        *sorted(CHARACTERS),
        *(left + right for left, right in expected),
    ]
    assert report.num_merges == len(merges) and report.num_missing == 39 - len(merges)


def test_a_size_below_the_bytes_is_refused():
    with pytest.raises(UserError, match="single characters alone take 261"):
        learn_pieces(pa.array(["a"]), np.array([1]), size=260, of_bytes=True)
    with pytest.raises(UserError, match="`limit_alphabet` is 100"):
        VocabConfig(algorithm="bpe", limit_alphabet=100)


@given(sentences)
def test_words_are_counted_as_gpt_2_splits_them(texts: list[str]):
    vocabulary = make_vocabulary()
    counted = count_words([pa.array(texts, pa.string())], vocabulary.splitter())
    peer = vocabulary.tokenizer()
    expected: Counter[str] = Counter()
    for text in texts:
        normal = peer.normalizer.normalize_str(text)
        for word, _ in peer.pre_tokenizer.pre_tokenize_str(normal):
            expected[text_of(word)] += 1
    found = dict(zip(counted["word"].to_pylist(), counted["count"].to_pylist(), strict=True))
    assert found == dict(expected)


def test_tokens_are_read_and_joined_as_words():
    assert text_of("Ġcaf") == " caf" and text_of("Ã©") == "é" and text_of("Ã") == "�"
    joins = ["ing", "é", "Ã", "10", "à¤¿"]  # the last is a vowel sign of Devanagari
    starts = ["Ġthe", ".", "'t", "Ġ", '."', "ä¸Ń"]  # the last is a Chinese character
    assert [continues_word(text_of(token)) for token in joins] == [True] * len(joins)
    assert [continues_word(text_of(token)) for token in starts] == [False] * len(starts)
    vocabulary = make_vocabulary()
    ids, _ = vocabulary.text_tokenizer().encode(pa.array(["the thing didn't."]))
    row = np.array([vocabulary.cls_id, *ids, vocabulary.sep_id])
    found = find_words(row, np.array([0, len(row)]), np.array([len(row)]), vocabulary.continues)
    pieces = [
        "".join(vocabulary.readable[i] for i in row[start : start + length])
        for start, length in zip(found.start, found.length, strict=True)
    ]
    assert pieces == ["▁the", "▁thing", "▁didn", "'t", "."]
