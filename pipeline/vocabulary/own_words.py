"""Give a published vocabulary words of one's own, or say which it cuts into most pieces.

The words take the places of [unused] tokens, then new rows at the end, so that all other ids stay
as the checkpoint has them. `pretrain --vocabulary-from instances` gives each the mean of the pieces
that it was cut into.
"""

import json
import math
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import chain
from typing import NamedTuple

from tokenizers import Tokenizer

from .. import storage
from ..errors import UserError
from ..manifests import DocumentsManifest
from ..storage.directory import write_file
from ..storage.shards import shard_paths
from ..storage.state import MANIFEST, read_manifest
from .byte_level import CHARACTERS, SPACE, is_byte_level, text_of
from .counts import sentences_of
from .fertility import pieces_of_words
from .files import load_vocabulary, read_vocabulary, vocabulary_files
from .tokenize import count_words, merge_counts
from .vocabulary import Vocabulary


def add_words(base: Vocabulary, words: Sequence[str]) -> Vocabulary:
    """Return `base` with these words as tokens. Raise `UserError` if it is neither WordPiece nor a
    byte-level BPE as RoBERTa's, or if something is not one word to it.
    """
    if not base.byte_level and base.file:
        raise UserError(
            "`add` takes BERT's WordPiece, and byte-level BPE as RoBERTa and ModernBERT have it; "
            f"this checkpoint has {_kind_of(base)}."
        )
    splitter = base.splitter()
    normal_words = {}
    for written in words:
        found = splitter.words(written)
        # GPT-2's rule joins a space with the word after it.
        if len(found) != 1 or (base.byte_level and len(splitter.words(f" {written}")) != 1):
            raise UserError(
                f"`add` {written!r}: to this vocabulary it is {len(found)} words "
                f"({' '.join(found)}); give single words, without spaces and punctuation."
            )
        normal_words[found[0]] = written
    if base.byte_level:
        return _add_to_byte_level(base, list(normal_words))
    tokens = dict(enumerate(base.tokens)) | _places(base, normal_words)
    return Vocabulary(tuple(tokens.values()), base.normalization)


def _places(base: Vocabulary, tokens: Collection[str]) -> dict[int, str]:
    """Return those of `tokens` that `base` does not have, by the ids that they get."""
    unused = [index for index, token in enumerate(base.tokens) if token.startswith("[unused")]
    ids = chain(unused, range(len(base), len(base) + len(tokens)))
    return dict(zip(ids, (token for token in tokens if token not in base.ids), strict=False))


def _kind_of(vocabulary: Vocabulary) -> str:
    model = json.loads(vocabulary.file)["model"]
    match model.get("type"), vocabulary.spelling:
        case "Unigram", _:
            return "a Unigram, as XLM-RoBERTa and CamemBERT have it"
        case "BPE", "▁":
            return "a BPE of characters, as Gemma and mmBERT have it"
        case "BPE", "byte-level":
            return "a byte-level BPE that cuts words in another way, as Llama 3 has it"
    return f"a {model.get('type', 'model')} with other rules, or with added tokens"


def _add_to_byte_level(base: Vocabulary, words: Sequence[str]) -> Vocabulary:
    """Return `base` with entries for each word behind a space and without one.

    No merge leads to them: ``ignore_merges`` makes a word that is a token this token, and cuts all
    others as before. Added tokens cannot do this: they are found inside of longer words, or lose
    the space before them.
    """
    tokenizer = base.tokenizer()
    fields = json.loads(tokenizer.to_str())
    model = fields["model"]
    vocabulary = model["vocab"]
    if not model["ignore_merges"]:
        _check_merges(base, tokenizer)
    # `tokenizers` numbers added tokens from the size of the vocabulary on, whatever their ids say,
    # unless the vocabulary has them.
    for added in fields["added_tokens"]:
        vocabulary[added["content"]] = added["id"]
    tokens: list[str] = []
    for word in words:
        encoded = "".join(CHARACTERS[byte] for byte in word.encode())
        tokens += [SPACE + encoded, encoded]
    places = _places(base, tokens)
    for token_id, token in places.items():
        if token_id < len(base):
            del vocabulary[base.tokens[token_id]]
        vocabulary[token] = token_id
    num_tokens = max(vocabulary.values()) + 1
    if num_tokens > len(base):
        # Matrix products are fast at such sizes.
        for number in range(num_tokens, math.ceil(num_tokens / 64) * 64):
            vocabulary[f"[unused{number}]"] = number
    fields["added_tokens"] = [
        added for added in fields["added_tokens"] if added["content"] in vocabulary
    ]
    model["ignore_merges"] = True
    content = json.dumps(fields, ensure_ascii=False).encode()
    return load_vocabulary({**vocabulary_files(base), "tokenizer.json": content}, "the vocabulary")


def _check_merges(base: Vocabulary, tokenizer: Tokenizer) -> None:
    """Raise `UserError` if a word of old text would become another token than before."""
    splitter = base.splitter()
    for token in filter(is_byte_level, base.tokens):
        ids = [piece.id for piece in tokenizer.model.tokenize(token)]
        if ids != [base.ids[token]] and len(splitter.words(text_of(token))) == 1:
            raise UserError(
                f"`add`: the merges of this vocabulary do not make {token!r} of its text, which "
                "would be cut otherwise with words of your own; use another checkpoint."
            )


class Added(NamedTuple):
    """A vocabulary's tokens, with words of one's own, words that were none before, and new rows."""

    num_tokens: int
    num_words: int
    num_rows: int


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
    new = set(vocabulary.tokens) - set(base.tokens)
    new_words = {text_of(token).strip() for token in new if not token.startswith("[unused")}
    return Added(len(vocabulary), len(new_words), len(vocabulary) - len(base))


class Suggestion(NamedTuple):
    """Words to add, and what a vocabulary with them would save."""

    words: dict[str, tuple[int, int]]
    """How often each occurs, and the pieces that it is cut into; the costliest first."""
    num_tokens: int
    """Of the training documents, as the vocabulary cuts them now."""
    num_saved: int
    """Fewer tokens with all of the words."""


def suggest_words(documents: str, vocab: str, num_words: int) -> Suggestion:
    """Return the words that cost the training documents most pieces beyond one each."""
    corpus = read_manifest(documents, DocumentsManifest)
    vocabulary = read_vocabulary(vocab)
    splitter = vocabulary.splitter()
    paths = shard_paths(documents, corpus, "train")
    table = merge_counts(count_words(sentences_of(path), splitter) for path in paths)
    pieces = pieces_of_words(vocabulary, table["word"].combine_chunks())
    counts = table["count"].to_numpy()
    saved: Counter[str] = Counter()
    occurrences: Counter[str] = Counter()
    # The word behind a space comes first if it is the more frequent one: its pieces are shown.
    pieces_of: dict[str, int] = {}
    rows = zip(table["word"].to_pylist(), counts.tolist(), pieces.tolist(), strict=True)
    for written, count, num_pieces in rows:
        word = written.strip()
        if word:
            saved[word] += count * (num_pieces - 1)
            occurrences[word] += count
            pieces_of.setdefault(word, num_pieces)
    # A stable sort: of equals, the more frequent word comes first.
    costliest = sorted(saved, key=lambda word: -saved[word])[:num_words]
    costliest = [word for word in costliest if saved[word] > 0]
    return Suggestion(
        words={word: (occurrences[word], pieces_of[word]) for word in costliest},
        num_tokens=int(counts @ pieces),
        num_saved=sum(saved[word] for word in costliest),
    )
