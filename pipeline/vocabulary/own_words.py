"""Give a published WordPiece vocabulary words of one's own, or say which it cuts into most pieces.

The words take the places of [unused] tokens, then new rows at the end, so that all other ids stay
as the checkpoint has them. `pretrain --vocabulary-from instances` gives each the mean of the pieces
that it was cut into.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from .. import storage
from ..errors import UserError
from ..manifests import DocumentsManifest
from ..storage.directory import write_file
from ..storage.shards import shard_paths
from ..storage.state import MANIFEST, read_manifest
from .counts import sentences_of
from .files import read_vocabulary, vocabulary_files
from .tokenize import count_words, merge_counts
from .vocabulary import Vocabulary


class CostlyWord(NamedTuple):
    """A word of a corpus, how often it occurs, and the pieces that a vocabulary cuts it into."""

    word: str
    num_occurrences: int
    num_pieces: int


def add_words(base: Vocabulary, words: Sequence[str]) -> Vocabulary:
    """Return `base` with these words as tokens; those that are one already are left out. Raise
    `UserError` if it is not BERT's WordPiece, or if something is not one word to it.
    """
    if base.file:
        raise UserError(
            "`add` takes a checkpoint with BERT's WordPiece; this one has another kind."
        )
    splitter = base.splitter()
    tokens = list(base.tokens)
    unused = [index for index, token in enumerate(tokens) if token.startswith("[unused")]
    known = set(tokens)
    for written in words:
        found = splitter.words(written)
        if len(found) != 1:
            raise UserError(
                f"`add` {written!r}: to this vocabulary it is {len(found)} words "
                f"({' '.join(found)}); give single words, without spaces and punctuation."
            )
        [word] = found
        if word in known:
            continue
        known.add(word)
        if unused:
            tokens[unused.pop(0)] = word
        else:
            tokens.append(word)
    return Vocabulary(tuple(tokens), base.normalization)


class Added(NamedTuple):
    """What words of one's own came to in a vocabulary."""

    num_tokens: int
    """All of the vocabulary's."""
    num_words: int
    """Words that were not tokens before."""
    num_rows: int
    """Words that are not in the places of [unused] tokens."""


def write_with_words(model: str, lines: str, output: str, *, overwrite: bool) -> Added:
    """Write the vocabulary of `model` with the words in `lines` to a directory; raise `UserError`
    if it has other files, unless `overwrite`, or if a stage wrote it.
    """
    base = read_vocabulary(model)
    words = [line.strip() for line in lines.split("\n")]
    vocabulary = add_words(base, [word for word in words if word])
    if storage.exists(storage.join(output, MANIFEST)):
        raise UserError(f"{output} is what its {MANIFEST} records: choose another `output`.")
    if storage.visible_names(output) and not overwrite:
        raise UserError(f"{output} exists; give `overwrite` to replace its tokenizer.")
    for name, content in vocabulary_files(vocabulary).items():
        with write_file(storage.join(output, name)) as file:
            file.write(content)
    return Added(
        num_tokens=len(vocabulary),
        num_words=len(set(vocabulary.tokens) - set(base.tokens)),
        num_rows=len(vocabulary) - len(base),
    )


def suggest_words(documents: str, vocab: str, num_words: int) -> list[CostlyWord]:
    """Return the words of the training documents that cost most pieces beyond one each, as often
    as they occur: costliest first.
    """
    corpus = read_manifest(documents, DocumentsManifest)
    vocabulary = read_vocabulary(vocab)
    splitter = vocabulary.splitter()
    paths = shard_paths(documents, corpus, "train")
    table = merge_counts(count_words(sentences_of(path), splitter) for path in paths)
    _, offsets = vocabulary.text_tokenizer().encode(table["word"].combine_chunks())
    pieces = np.diff(offsets)
    counts = table["count"].to_numpy()
    # A stable sort: of equals, the more frequent word comes first.
    costliest = np.argsort(-(counts * (pieces - 1)), kind="stable")[:num_words]
    costliest = costliest[pieces[costliest] > 1]
    chosen = table.take(pa.array(costliest)).to_pylist()
    return [
        CostlyWord(row["word"].strip(), row["count"], int(pieces[index]))
        for row, index in zip(chosen, costliest.tolist(), strict=True)
    ]
