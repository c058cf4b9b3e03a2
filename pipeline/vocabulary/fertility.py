"""Measure how well a vocabulary covers a language: its fertility (tokens per word), its unknown
tokens, and its longest and rarest ones.
"""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import WhitespaceSplit

from ..manifests import FertilityReport
from .byte_level import CHARACTERS
from .tokenize import encode_texts, join_words
from .vocabulary import Vocabulary

_NUM_EXAMPLES = 10


def fertility_report(words: pa.Table, vocabulary: Vocabulary) -> FertilityReport:
    """Measure a vocabulary on counted words (a table of schema `WORD_COUNTS`, with the vocabulary's
    normalisation).

    `tokens_per_word` is the fertility.
    """
    token_counts = np.zeros(len(vocabulary), np.int64)
    texts, counts_of_texts = _texts_of(words, vocabulary)
    tokenizer = Tokenizer(vocabulary.tokenizer().model)
    tokenizer.pre_tokenizer = WhitespaceSplit()
    ids, lengths = encode_texts(tokenizer, texts)
    np.add.at(token_counts, ids, np.repeat(counts_of_texts, lengths))
    counts = words["count"].to_numpy()
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
    return FertilityReport(
        num_words=num_words,
        num_distinct_words=words.num_rows,
        num_tokens=num_tokens,
        tokens_per_word=num_tokens / max(1, num_words),
        characters_per_token=num_characters / max(1, num_tokens),
        unknown_share=num_unknown / max(1, num_tokens),
        num_tokens_absent=len(ordinary) - len(occurring),
        longest_tokens=[tokens[token_id] for token_id in longest[:_NUM_EXAMPLES]],
        rarest_tokens=[
            (tokens[token_id], int(token_counts[token_id])) for token_id in rarest[:_NUM_EXAMPLES]
        ],
    )


def _texts_of(words: pa.Table, vocabulary: Vocabulary) -> tuple[list[str], np.ndarray]:
    """Return the words in texts, as the vocabulary's model reads them, and how often each text
    occurs, int64 [num_texts].
    """
    # Most words occur once or twice: texts of words with equal counts are few, and the number of
    # tokens of a text is all that has to be known of it.
    by_count = words.sort_by("count")
    all_words = by_count["word"].to_pylist()
    if vocabulary.byte_level:
        # In the characters that stand for bytes; the one for a space is none.
        all_words = ["".join(CHARACTERS[byte] for byte in word.encode()) for word in all_words]
    counts, firsts = np.unique(by_count["count"].to_numpy(), return_index=True)
    bounds = pairwise([*firsts.tolist(), len(all_words)])
    texts: list[str] = []
    counts_of_texts: list[int] = []
    for count, (first, stop) in zip(counts.tolist(), bounds, strict=True):
        texts += join_words(all_words[first:stop], " ")
        counts_of_texts += [count] * (len(texts) - len(counts_of_texts))
    return texts, np.array(counts_of_texts, np.int64)
