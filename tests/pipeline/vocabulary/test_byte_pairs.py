"""Byte pairs merged for many words at once: the ids are those of `tokenizers`."""

import random

import numpy as np
import pyarrow as pa
import pytest
from clozeworks.pipeline.vocabulary.byte_level import CHARACTERS, ByteLevelTokenizer
from clozeworks.pipeline.vocabulary.byte_pairs import MAX_BYTES, BytePairs
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers


def draw_merges(draw: random.Random, alphabet: str, number: int) -> list[tuple[str, str]]:
    """Return merges in no sensible order, no two of which make the same token."""
    tokens = list(alphabet)
    merges = []
    for _ in range(number):
        left, right = draw.choices(tokens, k=2)
        if left + right not in tokens:
            tokens.append(left + right)
            merges.append((left, right))
    draw.shuffle(merges)
    return merges


def make_tokenizer(merges: list[tuple[str, str]]) -> Tokenizer:
    tokens = dict.fromkeys([*sorted(CHARACTERS), *(left + right for left, right in merges)])
    tokenizer = Tokenizer(models.BPE({token: 7 + i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


@pytest.mark.parametrize("seed", range(10))
def test_words_become_the_tokens_of_tokenizers(seed: int):
    draw = random.Random(seed)
    alphabet = "abcdefgh"[: 2 + seed % 7]
    merges = draw_merges(draw, alphabet, number=3 ** (1 + seed % 5))
    tokenizer = make_tokenizer(merges)
    words = ["".join(draw.choices(alphabet, k=draw.randint(1, MAX_BYTES))) for _ in range(300)]
    text = np.frombuffer("".join(words).encode(), np.uint8)
    offsets = np.cumsum([0, *map(len, words)])
    pairs = BytePairs(merges, tokenizer.get_vocab(), CHARACTERS)
    ids, lengths = pairs.encode(text, offsets)
    expected = [tokenizer.encode(word).ids for word in words]
    assert ids.tolist() == [token_id for token_ids in expected for token_id in token_ids]
    assert lengths.tolist() == list(map(len, expected))


@pytest.mark.parametrize("normalizer", ["NFC", "NFD", "Lowercase", "StripAccents", "none"])
@pytest.mark.parametrize("twice", [False, True], ids=["", "a token made twice"])
def test_many_chunks_have_the_ids_of_tokenizers(normalizer: str, twice: bool):
    draw = random.Random(0)
    letters = "aeThNéÉßſİıΣςжԶ가각ᄀ\u1161\u11a8中ﬁ豈𝒜क"
    other = "019²½Ⅷ.,'\"-。’\u0301\u0323ा\t\x00\x1c\x7f\x85\xa0\u2009\u200d\u3000\ufffd\uffff😀"
    merges = draw_merges(draw, "aethn" + CHARACTERS[0xC3] + CHARACTERS[0xA9], number=60)
    if twice:
        merges += [("x", "y"), ("xy", "z"), ("y", "z"), ("x", "yz")]
    tokenizer = make_tokenizer(merges)
    if normalizer != "none":
        steps = [normalizers.NFD()] if normalizer == "StripAccents" else []
        steps.append(getattr(normalizers, normalizer)())
        tokenizer.normalizer = normalizers.Sequence(steps)
    chunks = []
    for _ in range(3000):
        characters = draw.choice([letters, "xyz", "019", "-.,", letters + other])
        word = "".join(draw.choices(characters, k=draw.randint(1, 12)))
        chunks.append(draw.choice(["", " "]) + word)
    ids, offsets = ByteLevelTokenizer(tokenizer, adds_space=False).encode(
        pa.array(chunks), np.ones(len(chunks), bool)
    )
    expected = [each.ids for each in tokenizer.encode_batch_fast(chunks)]
    for chunk, start, stop, token_ids in zip(
        chunks, offsets[:-1], offsets[1:], expected, strict=True
    ):
        assert ids[start:stop].tolist() == token_ids, ascii(chunk)
