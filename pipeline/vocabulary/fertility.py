"""Measure how well a vocabulary covers a language: its fertility (tokens per word), its unknown
tokens, and its longest and rarest ones.
"""

from array import array
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .byte_level import CHARACTERS
from .tokenize import bert_tokenizer
from .vocabulary import Vocabulary

_NUM_EXAMPLES = 10


def fertility_report(words: pa.Table, vocabulary: Vocabulary) -> dict[str, Any]:
    """Measure a vocabulary on counted words (a table of schema `WORD_COUNTS`, with the vocabulary's
    normalisation).

    Return plain values: counts of words and tokens, `tokens_per_word` (the fertility),
    `unknown_share` (of [UNK] among the tokens), the number of ordinary tokens that never occur, the
    longest that do, and the rarest with their counts.
    """
    word_counts = words["count"].to_numpy()
    token_counts = _count_tokens(words["word"].to_pylist(), word_counts, vocabulary)
    num_words = int(word_counts.sum())
    num_tokens = int(token_counts.sum())
    num_unknown = int(token_counts[vocabulary.unk_id])

    ordinary = np.flatnonzero(vocabulary.is_ordinary)
    occurring = ordinary[token_counts[ordinary] > 0]
    tokens = vocabulary.readable

    def num_characters(token_id: int) -> int:
        return len(vocabulary.texts[token_id])

    # The sort is stable, so ties stay in the order of ids.
    longest = sorted(occurring.tolist(), key=num_characters, reverse=True)
    # Ties go to the tokens learned last: words say more than the single characters that come first.
    by_count = np.lexsort((-occurring, token_counts[occurring]))
    rarest = occurring[by_count]
    return {
        "num_words": num_words,
        "num_distinct_words": words.num_rows,
        "num_tokens": num_tokens,
        "tokens_per_word": num_tokens / max(1, num_words),
        "characters_per_token": _num_characters(words) / max(1, num_tokens),
        "unknown_share": num_unknown / max(1, num_tokens),
        "num_tokens_absent": len(ordinary) - len(occurring),
        "longest_tokens": [tokens[token_id] for token_id in longest[:_NUM_EXAMPLES]],
        "rarest_tokens": [
            (tokens[token_id], int(token_counts[token_id])) for token_id in rarest[:_NUM_EXAMPLES]
        ],
    }


def _num_characters(words: pa.Table) -> int:
    """Return the number of characters in all words, without the spaces between them."""
    without_space = pc.call_function("utf8_ltrim", [words["word"]], pc.TrimOptions(" "))
    lengths = pc.call_function("utf8_length", [without_space])
    return int(lengths.to_numpy() @ words["count"].to_numpy())


def _count_tokens(words: list[str], word_counts: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    """Return how often each token occurs in words that occur `word_counts` times, int64 [vocab]."""
    if vocabulary.byte_level:
        model = vocabulary.byte_level.tokenizer().model
        # In the characters that stand for bytes.
        words = ["".join(CHARACTERS[byte] for byte in word.encode()) for word in words]
    else:
        model = bert_tokenizer(vocabulary.tokens, vocabulary.normalization).model
    # Arrays of C integers: a vocabulary is learned from millions of distinct words.
    ids = array("i")
    num_pieces = array("i")
    for word in words:
        pieces = model.tokenize(word)
        ids.extend(piece.id for piece in pieces)
        num_pieces.append(len(pieces))
    token_counts = np.zeros(len(vocabulary), np.int64)
    np.add.at(token_counts, np.array(ids), np.repeat(word_counts, num_pieces))
    return token_counts
