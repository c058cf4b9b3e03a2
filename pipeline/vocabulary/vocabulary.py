"""A WordPiece vocabulary and its files, in the names and layouts of Hugging Face."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Literal

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

_TOLERATED_SHARE = 0.001
"""A vocabulary's own normalisation may change this share of its tokens: hand-made lists have
strays.
"""
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

    pad_id = _id_of(PAD)
    unk_id = _id_of(UNK)
    cls_id = _id_of(CLS)
    sep_id = _id_of(SEP)
    mask_id = _id_of(MASK)

    @cached_property
    def is_ordinary(self) -> np.ndarray:
        """Bool [vocab_size]: tokens that represent text, unlike [MASK] or [unused7]."""
        return np.array([_is_ordinary(token) for token in self.tokens])

    @cached_property
    def continues(self) -> np.ndarray:
        """Bool [vocab_size]: tokens that continue a word ("##")."""
        return np.array([len(token) > 2 and token.startswith("##") for token in self.tokens])

    @cached_property
    def fingerprint(self) -> str:
        """A hash of 32 hexadecimal digits: equal if every text gets the same ids."""
        content = json.dumps([self.tokens, self.normalization])
        return blake2b(content.encode(), digest_size=16).hexdigest()


def vocabulary_files(vocabulary: Vocabulary, max_length: int = 512) -> dict[str, bytes]:
    """Return the contents of ``vocab.txt``, ``tokenizer.json`` and ``tokenizer_config.json``.

    ``transformers`` loads a directory with these files; without the last it would lower-case a
    cased vocabulary. ``tokenizer.json`` knows the special tokens and makes ``[CLS] A [SEP] B
    [SEP]``. `max_length` is the length of the model's rows in tokens.
    """
    tokenizer = bert_tokenizer(vocabulary.tokens, vocabulary.normalization)
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.post_processor = TemplateProcessing(
        single=f"{CLS}:0 $A:0 {SEP}:0",
        pair=f"{CLS}:0 $A:0 {SEP}:0 $B:1 {SEP}:1",
        special_tokens=[(CLS, vocabulary.cls_id), (SEP, vocabulary.sep_id)],
    )
    # "[PAD]" is named in the field pad_token, and so on.
    names_of_specials = {f"{token[1:-1].lower()}_token": token for token in SPECIAL_TOKENS}
    config = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": vocabulary.normalization.lowercase,
        "strip_accents": vocabulary.normalization.strip_accents,
        "tokenize_chinese_chars": True,
        "model_max_length": max_length,
        **names_of_specials,
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
            f"{path} is unfinished: rerun the `clozeworks vocab` command that writes it; "
            "it resumes."
        )
    files = read_files(path) or _read_single_file(path)
    if not files:
        fault = describe_absence(path)
        # Without a fault the directory exists, and `load_vocabulary` says what it lacks.
        if fault:
            raise UserError(
                f"{fault}: give a directory with a vocabulary, a vocab.txt or a tokenizer.json."
            )
    return load_vocabulary(files, path)


def _read_single_file(path: str) -> dict[str, bytes]:
    """Return the content of a vocabulary's file, whatever its name, under its usual name."""
    if path.endswith(".txt"):
        usual_name = "vocab.txt"
    elif path.endswith(".json"):
        usual_name = "tokenizer.json"
    else:
        return {}
    if not storage.exists(path):
        return {}
    return {usual_name: storage.read_bytes(path)}


def read_files(directory: str) -> dict[str, bytes]:
    """Return the contents of a directory's vocabulary files (see `VOCABULARY_FILES`) by name."""
    contents = {}
    for name in VOCABULARY_FILES:
        path = storage.join(directory, name)
        if storage.exists(path):
            contents[name] = storage.read_bytes(path)
    return contents


def _file_path(where: str, name: str) -> str:
    """Return the path of a file for messages; `where` is its directory, or the file itself."""
    if where.endswith((".txt", ".json")):
        return where
    return storage.join(where, name)


def load_vocabulary(files: Mapping[str, bytes], where: str) -> Vocabulary:
    """Parse a vocabulary from its files' contents by name; messages call their directory `where`.

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
    tokens = _parse_vocab_txt(files["vocab.txt"], _file_path(where, "vocab.txt"))
    config_path = _file_path(where, "tokenizer_config.json")
    config_content = files.get("tokenizer_config.json", b"{}")
    config = parse_json(config_content, _TokenizerConfig, config_path, _ADVICE)
    if config.do_lower_case is None:
        return Vocabulary(tokens, _infer_normalization(tokens))
    return Vocabulary(tokens, _normalization(config.do_lower_case, config.strip_accents))


def _parse_vocab_txt(content: bytes, path: str) -> tuple[str, ...]:
    try:
        text = content.decode("utf-8-sig")  # Windows editors put a byte order mark first
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not valid UTF-8 (byte {error.start}); is it a vocabulary?"
        ) from error
    # Not splitlines(): a token may contain U+2028 and other characters that it takes for line ends.
    lines = text.removesuffix("\n").split("\n")
    return _checked([line.removesuffix("\r") for line in lines], path)


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
    """The fields of a ``tokenizer.json`` that splits text as BERT does; others are not parsed."""

    model: _Model
    normalizer: _Normalizer
    pre_tokenizer: _PreTokenizer
    added_tokens: list[_AddedToken] | None = None


def _from_tokenizer_json(content: bytes, path: str) -> Vocabulary:
    tokenizer = parse_json(content, _TokenizerFile, path, _ADVICE)
    normalizer = tokenizer.normalizer
    if not (normalizer.clean_text and normalizer.handle_chinese_chars):
        raise UserError(
            f"{path}: normalizer.clean_text and handle_chinese_chars must be true. {_ADVICE}"
        )
    # The special tokens may be listed only here, not in the model's vocabulary.
    ids = tokenizer.model.vocab
    for added in tokenizer.added_tokens or []:
        ids.setdefault(added.content, added.id)
    tokens = sorted(ids, key=ids.__getitem__)
    if [ids[token] for token in tokens] != list(range(len(tokens))):
        raise UserError(
            f"{path}: the ids of its {len(tokens)} tokens must be 0 to {len(tokens) - 1}, "
            "each exactly once."
        )
    normalization = _normalization(normalizer.lowercase, normalizer.strip_accents)
    return Vocabulary(_checked(tokens, path), normalization)


def _normalization(lowercase: bool, strip_accents: bool | None) -> Normalization:
    if strip_accents is None:  # BERT's default: accents go with the capitals
        strip_accents = lowercase
    return Normalization(lowercase, strip_accents)


def _infer_normalization(tokens: Sequence[str]) -> Normalization:
    """Infer the normalisation a vocabulary was made for: the one that leaves (nearly) all its
    tokens unchanged.
    """
    texts = [token for token in tokens if not token.startswith("[")]

    def leaves_tokens_unchanged(**options: bool) -> bool:
        normalizer = BertNormalizer(clean_text=False, handle_chinese_chars=False, **options)
        num_changed = sum(normalizer.normalize_str(text) != text for text in texts)
        return num_changed < _TOLERATED_SHARE * max(1, len(texts))

    lowercase = leaves_tokens_unchanged(lowercase=True, strip_accents=False)
    if not lowercase:
        return Normalization(lowercase=False, strip_accents=False)
    return Normalization(
        lowercase=True,
        strip_accents=leaves_tokens_unchanged(lowercase=False, strip_accents=True),
    )


def _checked(tokens: list[str], path: str) -> tuple[str, ...]:
    """Return the tokens; raise `UserError` for repeated tokens, or missing special ones."""
    if "" in tokens:
        raise UserError(f"{path}: line {tokens.index('') + 1} is empty; each line must be a token.")
    repeated = [token for token, count in Counter(tokens).items() if count > 1]
    if repeated:
        example = repeated[0]
        lines = [str(line) for line, token in enumerate(tokens, start=1) if token == example]
        raise UserError(
            f"{path}: token {example!r} is on lines {' and '.join(lines)} "
            f"({len(repeated)} tokens are repeated); remove all but one."
        )
    distinct = set(tokens)
    missing = [token for token in SPECIAL_TOKENS if token not in distinct]
    if missing:
        raise UserError(
            f"{path} lacks {' '.join(missing)}; a BERT vocabulary needs {' '.join(SPECIAL_TOKENS)}."
        )
    if not any(map(_is_ordinary, tokens)):
        raise UserError(f"{path} has only special tokens, which cannot represent text.")
    return tuple(tokens)
