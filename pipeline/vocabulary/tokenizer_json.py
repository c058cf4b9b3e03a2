"""Read ``tokenizer.json``: WordPiece that splits text as BERT does, or GPT-2's byte-level BPE."""

import json
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from ..errors import UserError
from ..parsing import parse_json
from .apostrophes import Replacement, rules_of
from .byte_level import CHARACTERS
from .tokenize import Normalization
from .vocabulary import ByteLevel, Vocabulary, checked_tokens, is_ordinary

ADVICE = "Only BERT's WordPiece and ModernBERT's byte-level BPE are supported."


def vocabulary_of_json(content: bytes, path: str) -> Vocabulary:
    """Return the vocabulary in a ``tokenizer.json``; errors name its `path`.

    Raise `UserError` if it is neither WordPiece nor byte-level BPE with BERT's special tokens, or
    does not split text as BERT or GPT-2 does.
    """
    # Files of 2020 do not name the model.
    if parse_json(content, _AnyTokenizerFile, path, ADVICE).model.type == "BPE":
        return _from_byte_level_json(content, path)
    return _from_tokenizer_json(content, path)


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


class _Pattern(Struct):
    Regex: str


class _Replace(Struct, tag_field="type", tag="Replace"):
    pattern: _Pattern
    content: str


class _Nfc(Struct, tag_field="type", tag="NFC"):
    pass


class _NormalizerSequence(Struct, tag_field="type", tag="Sequence"):
    """BERT's normaliser, perhaps NFC before it, and the replacements of apostrophes after it."""

    normalizers: list[_Normalizer | _Nfc | _Replace]


class _PreTokenizer(Struct, tag_field="type", tag="BertPreTokenizer"):
    pass


class _AddedToken(Struct):
    content: str
    id: int
    special: bool = False


class _TokenizerFile(Struct):
    """The fields of a ``tokenizer.json`` that splits text as BERT does; others are not parsed."""

    model: _Model
    normalizer: _Normalizer | _NormalizerSequence
    pre_tokenizer: _PreTokenizer
    added_tokens: list[_AddedToken] | None = None


class _AnyModel(Struct):
    type: str | None = None


class _AnyTokenizerFile(Struct):
    model: _AnyModel


class _BpeModel(Struct):
    vocab: dict[str, int]
    merges: list[str | tuple[str, str]]
    dropout: None = None
    continuing_subword_prefix: Literal[""] | None = None
    end_of_word_suffix: Literal[""] | None = None
    byte_fallback: Literal[False] = False


class _BpeNormalizer(Struct):
    type: Literal["NFC", "NFD", "Lowercase", "StripAccents", "Sequence"]
    normalizers: list["_BpeNormalizer"] = []


class _BytePreTokenizer(Struct, tag_field="type", tag="ByteLevel"):
    add_prefix_space: bool
    use_regex: Literal[True] = True


class _BpeFile(Struct):
    """The fields of a ``tokenizer.json`` with GPT-2's byte-level BPE, and a normalisation that
    does not look across words.
    """

    model: _BpeModel
    normalizer: _BpeNormalizer | None
    pre_tokenizer: _BytePreTokenizer
    added_tokens: list[_AddedToken] | None = None


def _from_byte_level_json(content: bytes, path: str) -> Vocabulary:
    parsed = parse_json(content, _BpeFile, path, ADVICE)
    model = parsed.model
    tokens = _in_order(model.vocab, parsed.added_tokens, path)
    merges: list[tuple[str, str]] = []
    for merge in model.merges:
        if isinstance(merge, str):  # before 2024
            left, _, right = merge.partition(" ")
            merges.append((left, right))
        else:
            merges.append(merge)
    pieces = {left + right for left, right in merges} | set(CHARACTERS)
    steps = _normalizer_steps(parsed.normalizer)
    byte_level = ByteLevel(
        tokenizer_json=content.decode(),
        pieces=frozenset(pieces.intersection(tokens)),
        adds_space=parsed.pre_tokenizer.add_prefix_space,
        rules=json.dumps([merges, steps, parsed.pre_tokenizer.add_prefix_space]),
    )
    if len(set(CHARACTERS) - set(tokens)):
        raise UserError(f"{path} lacks tokens of single bytes. {ADVICE}")
    normalization = Normalization("Lowercase" in steps, "StripAccents" in steps)
    return Vocabulary(checked_tokens(tokens, path), normalization, byte_level)


def _normalizer_steps(normalizer: _BpeNormalizer | None) -> list[str]:
    if normalizer is None:
        return []
    if normalizer.type != "Sequence":
        return [normalizer.type]
    steps: list[str] = []
    for step in normalizer.normalizers:
        steps += _normalizer_steps(step)
    return steps


def _in_order(
    ids: dict[str, int], added_tokens: Sequence[_AddedToken] | None, path: str
) -> list[str]:
    """Return the tokens of a ``tokenizer.json`` in the order of their ids."""
    # The special tokens may be listed only here, not in the model's vocabulary.
    for added in added_tokens or []:
        ids.setdefault(added.content, added.id)
    tokens = sorted(ids, key=ids.__getitem__)
    if [ids[token] for token in tokens] != list(range(len(tokens))):
        raise UserError(
            f"{path}: the ids of its {len(tokens)} tokens must be 0 to {len(tokens) - 1}, "
            "each exactly once."
        )
    return tokens


def _from_tokenizer_json(content: bytes, path: str) -> Vocabulary:
    tokenizer = parse_json(content, _TokenizerFile, path, ADVICE)
    normalizer, apostrophes, composes = _split_normalizer(tokenizer.normalizer, path)
    if not (normalizer.clean_text and normalizer.handle_chinese_chars):
        raise UserError(
            f"{path}: normalizer.clean_text and handle_chinese_chars must be true. {ADVICE}"
        )
    for added in tokenizer.added_tokens or []:
        # tokenizers finds them anywhere in a text, even within words.
        if not added.special and is_ordinary(added.content):
            raise UserError(f"{path} adds the token {added.content!r} to its model's. {ADVICE}")
    tokens = _in_order(tokenizer.model.vocab, tokenizer.added_tokens, path)
    normalization = normalization_of(normalizer.lowercase, normalizer.strip_accents)
    normalization = normalization._replace(apostrophes=apostrophes, composes=composes)
    return Vocabulary(checked_tokens(tokens, path), normalization)


def _split_normalizer(
    normalizer: _Normalizer | _NormalizerSequence, path: str
) -> tuple[_Normalizer, tuple[str, ...], bool]:
    """Return BERT's normaliser, the names of the rules for apostrophes after it, and whether text
    is composed before it.
    """
    if isinstance(normalizer, _Normalizer):
        return normalizer, (), False
    steps = normalizer.normalizers
    composes = bool(steps) and isinstance(steps[0], _Nfc)
    first, *others = steps[composes:] or [None]
    replacements = [
        Replacement(other.pattern.Regex, other.content)
        for other in others
        if isinstance(other, _Replace)
    ]
    rules = rules_of(replacements)
    if not isinstance(first, _Normalizer) or len(replacements) < len(others) or rules is None:
        raise UserError(f"{path}: its normalizers are not known. {ADVICE}")
    return first, rules, composes


def normalization_of(lowercase: bool, strip_accents: bool | None) -> Normalization:
    """Return the normalisation that a tokenizer's settings ask for."""
    if strip_accents is None:  # BERT's default: accents go with the capitals
        strip_accents = lowercase
    return Normalization(lowercase, strip_accents)
