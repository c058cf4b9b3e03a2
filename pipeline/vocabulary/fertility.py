"""Measure how well a vocabulary covers a language: its fertility (tokens per word), its unknown
tokens, and its longest and rarest ones.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..manifests import FertilityReport
from .byte_level import ByteLevelTokenizer
from .vocabulary import Vocabulary


def fertility_report(words: pa.Table, vocabulary: Vocabulary) -> FertilityReport:
    """Measure a vocabulary on words counted (`WORD_COUNTS`) with its normalisation."""
    counts = words["count"].to_numpy()
    ids, offsets = _encode_words(vocabulary, words["word"].combine_chunks())
    token_counts = np.zeros(len(vocabulary), np.int64)
    np.add.at(token_counts, ids, np.repeat(counts, np.diff(offsets)))
    num_words = int(counts.sum())
    without_space = pc.call_function("utf8_ltrim", [words["word"]], pc.TrimOptions(" "))
    lengths_of_words = pc.call_function("utf8_length", [without_space])
    num_characters = int(lengths_of_words.to_numpy() @ counts)
    num_tokens = int(token_counts.sum())
    num_unknown = 0
    if vocabulary.unk_id is not None:
        num_unknown = int(token_counts[vocabulary.unk_id])

    ordinary = np.flatnonzero(vocabulary.is_ordinary)
    occurring = ordinary[token_counts[ordinary] > 0]
    tokens = vocabulary.readable
    lengths_of_tokens = np.array([len(text) for text in vocabulary.texts])
    # A stable sort, so that ties stay in the order of ids.
    longest = occurring[np.argsort(-lengths_of_tokens[occurring], kind="stable")]
    # Ties go to the tokens learned last: words say more than the single characters that come first.
    by_count = np.lexsort((-occurring, token_counts[occurring]))
    rarest = occurring[by_count]
    num_examples = 10
    return FertilityReport(
        num_words=num_words,
        num_distinct_words=words.num_rows,
        num_tokens=num_tokens,
        tokens_per_word=num_tokens / max(1, num_words),
        characters_per_token=num_characters / max(1, num_tokens),
        unknown_share=num_unknown / max(1, num_tokens),
        num_tokens_absent=len(ordinary) - len(occurring),
        longest_tokens=[tokens[token_id] for token_id in longest[:num_examples]],
        rarest_tokens=[
            (tokens[token_id], int(token_counts[token_id])) for token_id in rarest[:num_examples]
        ],
    )


def pieces_of_words(vocabulary: Vocabulary, words: pa.StringArray) -> np.ndarray:
    """Return the number of tokens of each word, int64, as `count_words` gives them."""
    _, offsets = _encode_words(vocabulary, words)
    return np.diff(offsets)


def _encode_words(vocabulary: Vocabulary, words: pa.StringArray) -> tuple[np.ndarray, np.ndarray]:
    tokenizer = vocabulary.text_tokenizer()
    if vocabulary.byte_level:
        # Words have their space already.
        tokenizer = ByteLevelTokenizer(vocabulary.tokenizer(), adds_space=False)
    return tokenizer.encode(words, np.ones(len(words), bool))
