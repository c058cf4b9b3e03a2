"""A WordPiece vocabulary and its files, in the names and layouts of Hugging Face."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from tokenizers.normalizers import BertNormalizer
from tokenizers.processors import TemplateProcessing

from .. import storage
from ..errors import UserError
from ..parsing import parse_json
from ..storage.stage import VOCABULARY_FILES, describe_absence, unfinished_stage
from .tokenize import Normalization, bert_tokenizer

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

_TOLERATED_SHARE = 0.001  # of tokens that the vocabulary's own normalisation would change: hand-made lists have strays
_ADVICE = "Only BERT's WordPiece vocabularies are supported."


def _id_of(token: str) -> "cached_property[int]":
    return cached_property(lambda vocabulary: vocabulary.ids[token])


@dataclass(frozen=True)
class Vocabulary:
    """The tokens in the order of their ids, and the normalisation of text before tokenisation."""

    tokens: tuple[str, ...]
    normalization: Normalization

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each token."""
        return {token: token_id for token_id, token in enumerate(self.tokens)}

    pad_id, unk_id, cls_id, sep_id, mask_id = map(_id_of, SPECIAL_TOKENS)

    @cached_property
    def is_ordinary(self) -> np.ndarray:
        """Which tokens represent text, bool [vocab_size]: all but [MASK], [unused7] and the like."""
        return np.array([_is_ordinary(token) for token in self.tokens])

    @cached_property
    def continues(self) -> np.ndarray:
        """Which tokens continue a word ("##"), bool [vocab_size]."""
        return np.array([len(token) > 2 and token.startswith("##") for token in self.tokens])

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the tokens and the normalisation, 32 hexadecimal digits: equal if every text
        gets the same ids.
        """
        content = json.dumps([self.tokens, self.normalization])
        return blake2b(content.encode(), digest_size=16).hexdigest()


def vocabulary_files(vocabulary: Vocabulary, max_length: int = 512) -> dict[str, bytes]:
    """Return the contents of ``vocab.txt``, ``tokenizer.json`` and ``tokenizer_config.json``.

    ``transformers`` loads a directory with these files; without the last it would lower-case a
    cased vocabulary. ``tokenizer.json`` knows the special tokens and makes ``[CLS] A [SEP] B
    [SEP]``. `max_length`, in tokens, is that of the model's rows.
    """
    tokenizer = bert_tokenizer(vocabulary.tokens, vocabulary.normalization)
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.post_processor = TemplateProcessing(
        single=f"{CLS}:0 $A:0 {SEP}:0",
        pair=f"{CLS}:0 $A:0 {SEP}:0 $B:1 {SEP}:1",
        special_tokens=[(CLS, vocabulary.cls_id), (SEP, vocabulary.sep_id)],
    )
    config = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": vocabulary.normalization.lowercase,
        "strip_accents": vocabulary.normalization.strip_accents,
        "tokenize_chinese_chars": True,
        "model_max_length": max_length,
        **{f"{token[1:-1].lower()}_token": token for token in SPECIAL_TOKENS},
    }
    return {
        "vocab.txt": "".join(f"{token}\n" for token in vocabulary.tokens).encode(),
        "tokenizer.json": tokenizer.to_str(pretty=True).encode(),
        "tokenizer_config.json": (json.dumps(config, indent=2) + "\n").encode(),
    }


def read_vocabulary(path: str) -> Vocabulary:
    """Return the vocabulary in a directory, or in a single ``vocab.txt`` or ``tokenizer.json``.

    Raise `UserError` if there is no usable one, or if `clozeworks vocab` has not finished.
    """
    if unfinished_stage(path) == "vocab":
        raise UserError(
            f"{path} is unfinished: rerun the `clozeworks vocab` command that writes it; it resumes."
        )
    files = read_files(path)
    if not files and path.endswith((".txt", ".json")) and storage.exists(path):
        files = {
            "vocab.txt" if path.endswith(".txt") else "tokenizer.json": storage.read_bytes(path)
        }
    if not files and (fault := describe_absence(path)):
        raise UserError(
            f"{fault}: give a directory with a vocabulary, a vocab.txt or a tokenizer.json."
        )
    return load_vocabulary(files, path)


def read_files(directory: str) -> dict[str, bytes]:
    """Return the contents of those of `VOCABULARY_FILES` that are in `directory`, by name."""
    paths = {name: storage.join(directory, name) for name in VOCABULARY_FILES}
    return {name: storage.read_bytes(path) for name, path in paths.items() if storage.exists(path)}


def _file_path(where: str, name: str) -> str:
    """Return the path of a file for messages; `where` is its directory, or the file itself."""
    return where if where.endswith((".txt", ".json")) else storage.join(where, name)


def load_vocabulary(files: Mapping[str, bytes], where: str) -> Vocabulary:
    """Parse a vocabulary from the contents of its files by name; `where`, their directory, is used
    in messages.

    Uses ``tokenizer.json``, or else ``vocab.txt`` with the normalisation in
    ``tokenizer_config.json``. Without the latter, the normalisation follows from the tokens: if
    none has upper case or accents, text must lose them too. Raise `UserError` if there is neither
    file, or if it is not a WordPiece vocabulary with BERT's special tokens.
    """
    if "tokenizer.json" in files:
        return _from_tokenizer_json(files["tokenizer.json"], _file_path(where, "tokenizer.json"))
    if "vocab.txt" not in files:
        raise UserError(
            f"{where} has no vocabulary: it contains neither tokenizer.json nor vocab.txt."
        )
    path = _file_path(where, "vocab.txt")
    try:
        lines = files["vocab.txt"].decode("utf-8-sig").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not valid UTF-8 (byte {error.start}); is it a vocabulary?"
        ) from error
    tokens = _checked([line.removesuffix("\r") for line in lines], path)
    config_path = _file_path(where, "tokenizer_config.json")
    config = parse_json(
        files.get("tokenizer_config.json", b"{}"), _TokenizerConfig, config_path, _ADVICE
    )
    if config.do_lower_case is None:
        return Vocabulary(tokens, _normalization_of(tokens))
    return Vocabulary(tokens, _normalization(config.do_lower_case, config.strip_accents))


def _is_ordinary(token: str) -> bool:
    return not (len(token) > 2 and token[0] == "[" and token[-1] == "]")


class _TokenizerConfig(Struct):
    do_lower_case: bool | None = None
    strip_accents: bool | None = None


class _Model(Struct, tag_field="type", tag="WordPiece"):
    vocab: dict[str, int]
    unk_token: Literal["[UNK]"]
    continuing_subword_prefix: Literal["##"]
    max_input_chars_per_word: Literal[100]  # MAX_WORD_CHARACTERS


class _Normalizer(Struct, tag_field="type", tag="BertNormalizer"):
    clean_text: bool
    handle_chinese_chars: bool
    lowercase: bool = True
    strip_accents: bool | None = None


class _PreTokenizer(Struct, tag_field="type", tag="BertPreTokenizer"):
    pass


class _AddedToken(Struct):
    content: str
    id: int


class _TokenizerFile(Struct):
    """A ``tokenizer.json`` that splits text as BERT does."""

    model: _Model
    normalizer: _Normalizer
    pre_tokenizer: _PreTokenizer
    added_tokens: list[_AddedToken] | None = None


def _from_tokenizer_json(content: bytes, path: str) -> Vocabulary:
    tokenizer = parse_json(content, _TokenizerFile, path, _ADVICE)
    normalizer, ids = tokenizer.normalizer, tokenizer.model.vocab
    if not (normalizer.clean_text and normalizer.handle_chinese_chars):
        raise UserError(
            f"{path}: normalizer.clean_text and handle_chinese_chars must be true. {_ADVICE}"
        )
    for added in tokenizer.added_tokens or []:
        ids.setdefault(added.content, added.id)
    tokens = sorted(ids, key=ids.__getitem__)
    if [ids[token] for token in tokens] != list(range(len(tokens))):
        raise UserError(
            f"{path}: the ids of its {len(tokens)} tokens must be 0 to {len(tokens) - 1}, each exactly once."
        )
    return Vocabulary(
        _checked(tokens, path), _normalization(normalizer.lowercase, normalizer.strip_accents)
    )


def _normalization(lowercase: bool, strip_accents: bool | None) -> Normalization:
    # By default BERT strips accents if it lower-cases.
    return Normalization(lowercase, lowercase if strip_accents is None else strip_accents)


def _normalization_of(tokens: Sequence[str]) -> Normalization:
    """Infer the normalisation a vocabulary was made for: the one that leaves (nearly) all its
    tokens unchanged.
    """
    texts = [token for token in tokens if not token.startswith("[")]

    def suits(**options: bool) -> bool:
        normalizer = BertNormalizer(clean_text=False, handle_chinese_chars=False, **options)
        return sum(
            normalizer.normalize_str(text) != text for text in texts
        ) < _TOLERATED_SHARE * max(1, len(texts))

    lowercase = suits(lowercase=True, strip_accents=False)
    return Normalization(lowercase, lowercase and suits(lowercase=False, strip_accents=True))


def _checked(tokens: list[str], path: str) -> tuple[str, ...]:
    """Return the tokens; raise `UserError` unless they are distinct, not empty, and include BERT's
    special tokens.
    """
    if "" in tokens:
        raise UserError(f"{path}: line {tokens.index('') + 1} is empty; each line must be a token.")
    duplicates = [token for token, count in Counter(tokens).items() if count > 1]
    if duplicates:
        lines = [str(i) for i, token in enumerate(tokens, start=1) if token == duplicates[0]]
        raise UserError(
            f"{path}: token {duplicates[0]!r} is on lines {' and '.join(lines)} ({len(duplicates)} tokens are "
            "repeated); remove all but one."
        )
    missing = [token for token in SPECIAL_TOKENS if token not in set(tokens)]
    if missing:
        raise UserError(
            f"{path} lacks {' '.join(missing)}; a BERT vocabulary needs {' '.join(SPECIAL_TOKENS)}."
        )
    if not any(map(_is_ordinary, tokens)):
        raise UserError(f"{path} has only special tokens, which cannot represent text.")
    return tuple(tokens)
