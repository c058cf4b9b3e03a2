"""Estimate the similarity of two texts from their MinHash signatures, 128 numbers each.

The method is MinHash (Broder 1997), as Lee et al. (2022), "Deduplicating Training Data Makes
Language Models Better", use it: a text is the set of its 5-grams of lower-cased words, without
punctuation; its signature is the minima of `NUM_HASHES` hash functions over that set (made by
rensa), and the share in which two signatures agree estimates the Jaccard similarity of the sets. In
scripts without spaces each character is a word.

A signature is cut into bands; texts that agree in a whole band may be alike (locality-sensitive
hashing, Leskovec, Rajaraman and Ullman, "Mining of Massive Datasets", 3.4)::

    signature of a    7 1 9 | 4 4 2 | 8 3 5       three bands of three hashes
    signature of b    7 1 6 | 4 4 2 | 8 0 5       the second band agrees: compare a and b

One core reads 50 MB of English text a second.
"""

from functools import cache
from unicodedata import category

import numpy as np

NUM_HASHES = 128
NO_SPACES = (
    range(0x0E00, 0x1000),  # Thai, Lao and Tibetan
    range(0x1000, 0x10A0),  # Burmese
    range(0x1780, 0x1800),  # Khmer
    range(0x3041, 0x3100),  # kana
    range(0x31F0, 0x3200),  # small kana
    range(0x3400, 0xA000),  # Chinese characters
    range(0xF900, 0xFB00),  # their compatibility forms
    range(0xFF66, 0xFFA0),  # half-width kana
)
"""Code points of scripts that are written without spaces between words."""

_CHUNK = 1 << 16  # characters that are hashed at a time; a word across two chunks is cut
# The kinds of characters: between words, in a word, and a word of its own.
_SEPARATOR = 0
_WORD = 1
_ALONE = 2


def choose_bands(share: float) -> tuple[int, int]:
    """Return the number of bands, and of hashes in each, for texts of similarity `share` to meet in
    at least one.

    The bands are as long as a probability of 95% allows, for the longer they are, the
    fewer unlike texts meet.

    >>> choose_bands(0.8)
    (18, 7)
    """
    for length in range(NUM_HASHES, 0, -1):
        num_bands = NUM_HASHES // length
        miss_in_all_bands = (1 - share**length) ** num_bands
        if 1 - miss_in_all_bands >= 0.95:
            return num_bands, length
    raise ValueError(f"texts of similarity {share} are too unlike to be found")


def hash_shingles(text: str) -> np.ndarray:
    """Return a 64-bit hash of each run of five words in `text`, in order, uint64 [num_shingles]; of
    all words if there are fewer.

    >>> a = hash_shingles("One, two. Three four five!")
    >>> b = hash_shingles("one two three (four) five six")
    >>> len(a), len(b), bool(a[0] == b[0])
    (1, 2, True)
    """
    # In chunks, as the powers reach only so far; a word at a border becomes two, which is rare and
    # the same in equal texts. An empty text still has one chunk to concatenate.
    words_of_chunks = []
    for start in range(0, max(len(text), 1), _CHUNK):
        words_of_chunks.append(_hash_words(text[start : start + _CHUNK]))
    words = np.concatenate(words_of_chunks)
    length = min(5, len(words))
    if not length:
        return words
    # The words' hashes beside themselves, shifted by 0 to 4; each column is a shingle:
    #   w0 w1 w2
    #   w1 w2 w3
    #   ...
    num_shingles = len(words) - length + 1
    shifted = np.stack([words[start : start + num_shingles] for start in range(length)])
    powers, _ = _powers()
    # The powers differ from row to row, so that the order of the words counts.
    power_of_row = powers[1 : length + 1, None]
    sums = (shifted * power_of_row).sum(axis=0, dtype=np.uint64)
    return _mix(sums)


def _hash_words(text: str) -> np.ndarray:
    """Return a hash of each word of a text of at most `_CHUNK` characters, uint64 [num_words].

    A word's hash is the polynomial of its characters' codes at `base`, modulo 2**64. The terms of
    the whole text are computed at once, with powers that go on from word to word, and the inverse
    power at a word's start takes it back to 0::

        codes       t   o       b   e
        powers      b0  b1  b2  b3  b4      sums from the starts: t b0 + o b1,  b b3 + e b4
        starts      0           3           times inverses 0, 3:  t b0 + o b1,  b b0 + e b1
    """
    codes = np.frombuffer(text.lower().encode("utf-32-le"), "<u4")
    kinds = _kinds()[np.minimum(codes, 0xFFFF)]
    #   text           i t ' s   我 们        kinds: word, separator or alone
    #   kinds          w w - w - a  a
    #   word starts    ^     ^   ^  ^
    kinds_before = np.concatenate([[_SEPARATOR], kinds[:-1]])
    begins_word = (kinds == _WORD) & (kinds_before != _WORD)
    is_alone = kinds == _ALONE
    starts = np.flatnonzero(is_alone | begins_word)
    if not len(starts):
        return np.empty(0, np.uint64)
    powers, inverses = _powers()
    # A sum runs on to the start of the next word: separators in between must not count.
    codes_of_words = np.where(kinds != _SEPARATOR, codes, 0)
    terms = codes_of_words * powers[: len(codes)]
    sums = np.add.reduceat(terms, starts)
    return _mix(sums * inverses[starts])


@cache
def _kinds() -> np.ndarray:
    """Return the kinds of the characters in Unicode's first plane; the last serves all others."""
    kinds = np.full(0x10000, _SEPARATOR, np.uint8)
    for code in range(0xFFFF):
        # Marks belong to their letters: vowels in the scripts of India are marks.
        if chr(code).isalnum() or category(chr(code)) in ("Mn", "Mc"):
            kinds[code] = _WORD
    for codes in NO_SPACES:
        in_script = kinds[codes.start : codes.stop]
        in_script[in_script == _WORD] = _ALONE
    kinds[0xFFFF] = _ALONE  # mostly rare Chinese characters, and emoji
    return kinds


@cache
def _powers() -> tuple[np.ndarray, np.ndarray]:
    """Return the powers of an odd number and of its inverse, modulo 2**64, from the 0th on."""
    base = 0x9E3779B97F4A7C15
    inverse = pow(base, -1, 1 << 64)
    num_powers = 2 * _CHUNK  # in lower case a text can be longer
    factors = np.full((2, num_powers), [[base], [inverse]], np.uint64)
    factors[:, 0] = 1
    powers, inverses = np.cumprod(factors, axis=1, dtype=np.uint64)
    return powers, inverses


def _mix(values: np.ndarray) -> np.ndarray:
    """Return the values with their bits mixed (the last step of SplitMix64, one-to-one)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def sign(shingles: np.ndarray) -> np.ndarray:
    """Return the MinHash signature, uint32 [NUM_HASHES], of at least one hashed shingle."""
    from rensa import RMinHash  # pyright: ignore[reportAttributeAccessIssue]

    # The offsets of a single set of hashes. The last argument is the seed of the hash functions:
    # signatures of different seeds cannot be compared.
    offsets = np.array([0, len(shingles)], np.uint64)
    matrix = RMinHash.digest_matrix_from_flat_token_hashes(shingles, offsets, NUM_HASHES, 1)
    return np.array(matrix.to_rows()[0], np.uint32)


def hash_bands(signatures: np.ndarray, num_bands: int, length: int) -> np.ndarray:
    """Return the hash of each band, uint64 [num_texts, num_bands], of signatures [num_texts,
    NUM_HASHES].

    Only bands of one column can match: the column's number is part of the hash.
    """
    #   signature      7 1 9 4 4 2 8 3        the hashes after the last whole band are not used
    #   bands         [7 1 9][4 4 2]
    #   band hashes    h0     h1
    hashes_in_bands = num_bands * length
    used_hashes = signatures[:, :hashes_in_bands].astype(np.uint64)
    bands = used_hashes.reshape(-1, num_bands, length)
    powers, _ = _powers()
    terms = (bands + np.uint64(1)) * powers[1 : length + 1]
    band_hashes = _mix(terms.sum(axis=2, dtype=np.uint64))
    columns = np.arange(num_bands, dtype=np.uint64)
    return _mix(band_hashes + columns)


def shorten(signatures: np.ndarray) -> np.ndarray:
    """Return one byte of each hash in signatures, which suffices for `estimate_similarity`."""
    # The upper byte of a product (Fibonacci hashing) depends on all bits; the upper bytes of the
    # hashes themselves are mostly 0, because they are minima.
    products = signatures * np.uint32(0x9E3779B1)
    return (products >> np.uint32(24)).astype(np.uint8)


def estimate_similarity(ones: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the estimated Jaccard similarity of each row of shortened signatures with its row of
    the others.

    The standard error is at most 0.044, and 0.035 at a similarity of 0.8. Bytes that agree by
    chance are taken out (Li and König 2010, "b-bit minwise hashing").
    """
    by_chance = 1 / 256
    agreeing = (ones == others).mean(axis=1)
    return (agreeing - by_chance) / (1 - by_chance)
