"""Refuse a ``tokenizer.json`` with which a stranger could take all memory, or no end of time.

``tokenizers`` does whatever the file says: forty steps that each double a text, a padding of a
terabyte. So the list is of what published tokenizers need, and all else is refused by its name,
before ``tokenizers`` reads the file. A step that cannot lengthen a text may be repeated; one that
can stands in the file once. Unicode's forms lengthen a text only by what NFKD makes of its
characters, and nothing when they are repeated: so what a step writes is measured in NFKD.
"""

import base64
import binascii
import json
import math
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any
from unicodedata import normalize

from ..errors import UserError
from .normalization import RULES

_NORMALIZERS = {
    "BertNormalizer",
    "ByteLevel",
    "Lowercase",
    "NFC",
    "NFD",
    "NFKC",
    "NFKD",
    "Nmt",
    "Precompiled",
    "Prepend",
    "Replace",
    "Strip",
    "StripAccents",
}
_PRE_TOKENIZERS = {
    "BertPreTokenizer",
    "ByteLevel",
    "CharDelimiterSplit",
    "Digits",
    "Metaspace",
    "Punctuation",
    "Split",
    "UnicodeScripts",
    "Whitespace",
    "WhitespaceSplit",
}
_PROCESSORS = {"BertProcessing", "ByteLevel", "RobertaProcessing", "TemplateProcessing"}
_DECODERS = {
    "BPEDecoder",
    "ByteFallback",
    "ByteLevel",
    "Fuse",
    "Metaspace",
    "Replace",
    "Strip",
    "WordPiece",
}
_MODELS = {"BPE", "Unigram", "WordLevel", "WordPiece"}
_COMPONENTS = {
    # What the steps of a "Sequence" are called, and which there are.
    "normalizer": ("normalizers", _NORMALIZERS),
    "pre_tokenizer": ("pretokenizers", _PRE_TOKENIZERS),
    "post_processor": ("processors", _PROCESSORS),
    "decoder": ("decoders", _DECODERS),
}
_NEVER_EMPTY = {" {2,}", *(each.pattern for rule in RULES.values() for each in rule)}
"""Regular expressions that are known: fast, and each match has a character or more."""


def check_tokenizer(fields: Mapping[str, Any], path: str) -> None:
    """Raise `UserError` if the `fields` of the ``tokenizer.json`` at `path` are not all known to be
    harmless.
    """
    try:
        growth = _check_steps(fields)
        _check_tokens(fields, growth)
    except UserError as refusal:
        raise UserError(f"{path}: {refusal}; use another tokenizer.") from None


def _check_steps(fields: Mapping[str, Any]) -> int:
    """Return how many characters become of one at most, but for what is put before a text."""
    growth = 1
    lengthening: set[str] = set()
    patterns: list[str] = []
    for component, (key, known) in _COMPONENTS.items():
        steps = list(_flat(fields.get(component), component, key))
        if len(steps) > 16:
            raise UserError(f"its {component} has {len(steps)} steps, and 16 are the limit")
        for step in steps:
            kind = step.get("type")
            if not isinstance(kind, str) or kind not in known:
                raise UserError(f"its {component} has the unknown type {_shown(kind)}")
            patterns += _regex_of(step)
            if component not in ("normalizer", "pre_tokenizer"):
                continue
            growth_of_step = _growth(step)
            if growth_of_step and kind in lengthening:
                raise UserError(f"{kind} can lengthen a text, and is there more than once")
            if growth_of_step:
                lengthening.add(kind)
                growth *= growth_of_step
    if growth > 32:  # U+FDFA becomes 18 letters by NFKC, in the map of every Unigram
        raise UserError(f"its normalizer and pre_tokenizer make {growth} characters of one")
    unknown = sorted(set(patterns) - _NEVER_EMPTY)
    if unknown:
        _try_out(tuple(unknown))
    return growth


def _flat(step: Any, component: str, key: str, depth: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the steps of a component, without the sequences that hold them."""
    if step is None:
        return
    if not isinstance(step, dict):
        raise UserError(f"its {component} has {_shown(step)} in place of a step")
    if step.get("type") != "Sequence":
        yield step
        return
    steps = step.get(key)
    if not isinstance(steps, list) or depth == 4:
        raise UserError(f"its {component} has a Sequence without a list, or nested too deeply")
    for inner in steps:
        yield from _flat(inner, component, key, depth + 1)


def _growth(step: Mapping[str, Any]) -> int:
    """Return how many characters a step can make of one; 0 if it never lengthens a text."""
    match step:
        case {"type": "ByteLevel"}:
            return 4  # the bytes of UTF-8
        case {"type": "BertNormalizer"}:
            return 3 if step.get("handle_chinese_chars", True) else 0
        case {"type": "Metaspace"}:
            _at_most(16, step.get("replacement"), "the replacement of Metaspace")
            return 1  # one character a piece
        case {"type": "Prepend"}:
            _at_most(16, step.get("prepend"), "what Prepend writes")
            return 1
        case {"type": "Precompiled"}:
            return _growth_of_map(step.get("precompiled_charsmap"))
        case {"type": "Replace"}:
            return _growth_of_replacement(step)
    return 0


def _growth_of_replacement(step: Mapping[str, Any]) -> int:
    written = len(normalize("NFKD", _text(step.get("content"), "what Replace writes")))
    match step.get("pattern"):
        case {"String": str(replaced)} if replaced:
            num_replaced = len(replaced)
        case {"Regex": str(regex)} if regex in _NEVER_EMPTY:
            num_replaced = 1
        case {"Regex": str(regex)} if regex:
            num_replaced = 0  # it may match between any two characters
        case pattern:
            raise UserError(f"Replace has the pattern {_shown(pattern)}")
    if written <= num_replaced:
        return 0
    if written > 16:
        raise UserError(f"Replace writes {written} characters, and 16 are the limit")
    if num_replaced == 0:
        return written + 1
    return math.ceil(written / num_replaced)


def _growth_of_map(encoded: Any) -> int:
    """Return the length of the longest text in SentencePiece's map of characters: the size of a
    trie, the trie, and the texts, each of which ends with a zero byte.
    """
    try:
        content = base64.b64decode(_text(encoded, "precompiled_charsmap"), validate=True)
        texts = content[4 + int.from_bytes(content[:4], "little") :].decode()
    except (binascii.Error, UnicodeDecodeError):
        raise UserError("its precompiled_charsmap is damaged") from None
    return max(len(normalize("NFKD", text)) for text in texts.split("\0"))


def _regex_of(step: Mapping[str, Any]) -> list[str]:
    pattern = step.get("pattern")
    if not isinstance(pattern, dict):
        return []
    for text in pattern.values():
        _at_most(1000, text, f"a pattern of {step['type']}")
    return [pattern["Regex"]] if "Regex" in pattern else []


# Patterns of nested repetitions need one character again and again; others take long for any text.
_TRIAL = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (5, 5))
try:
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
except ValueError:  # on macOS, or below a limit that is lower already
    pass
from tokenizers import Regex
from tokenizers.pre_tokenizers import Split
# Letters of Latin, Cyrillic, Hebrew, Arabic, Devanagari, Thai, Chinese and Korean too.
codes = [*range(32, 127), 10, 0xE9, 0x416, 0x5D0, 0x627, 0x915, 0xE01, 0x4E2D, 0xD55C]
texts = [chr(code) * 50 for code in codes]
texts += ["The cat's 12 mice don't; (A.B.) sleep! " * 50, " x" * 500, "a" * 2000, " " * 2000]
texts += ["1a" * 500, "".join(map(chr, codes)) * 10]
for pattern in json.load(sys.stdin):
    split = Split(Regex(pattern), "isolated")
    for text in texts:
        split.pre_tokenize_str(text)
print("done")
"""


@lru_cache(maxsize=8)
def _try_out(patterns: tuple[str, ...], code: str = _TRIAL) -> None:
    """Raise `UserError` if regular expressions cannot be compiled, or take seconds for short texts,
    in a process of their own: nothing else can end them.
    """
    command = [sys.executable, "-P", "-c", code]  # as for workers
    done = subprocess.run(
        command, input=json.dumps(patterns), capture_output=True, text=True, check=False
    )
    if done.stdout.strip() != "done":
        raise UserError(f"a regular expression fails on short texts ({_shown(patterns[0])})")


def _check_tokens(fields: Mapping[str, Any], growth: int) -> None:
    model = fields.get("model")
    # Files of 2020 do not say the type of their model.
    if not isinstance(model, dict) or str(model.get("type", "BPE")) not in _MODELS:
        kind = model.get("type") if isinstance(model, dict) else model
        raise UserError(f"its model has the unknown type {_shown(kind)}")
    added = fields.get("added_tokens") or []
    if not isinstance(added, list) or not all(isinstance(token, dict) for token in added):
        raise UserError("its added_tokens are not a list of tokens")
    id_of = _ids_of_model(model.get("vocab"))
    tokens = [*id_of, *(token.get("content") for token in added)]
    ids = [*id_of.values(), *(token.get("id") for token in added)]
    for token_id in ids:
        if type(token_id) is not int or not 0 <= token_id < len(ids):
            raise UserError(f"a token has the id {_shown(token_id)}, and there are {len(ids):,}")
    for token in tokens:
        if type(token) is not str or len(token) > 1000:
            _at_most(1000, token, "a token")
    # A character takes 350 bytes in the trie of a Unigram, and 7 µs in the search for added tokens.
    if isinstance(model["vocab"], list) and sum(map(len, id_of)) > 1_000_000 + 8 * len(id_of):
        raise UserError("its pieces are longer than those of any language")
    added_text = "".join(tokens[len(id_of) :])
    if growth * len(normalize("NFKD", added_text)) > 500_000:
        raise UserError("its added_tokens have more than 500,000 characters")
    id_of = dict(zip(tokens, ids, strict=True)) | id_of
    _check_model(model, id_of)
    _check_specials(fields, id_of)


def _ids_of_model(vocabulary: Any) -> dict[str, int]:
    match vocabulary:
        case dict():
            return vocabulary
        case [*entries] if all(isinstance(entry, list) and len(entry) == 2 for entry in entries):
            if all(isinstance(piece, str) for piece, _ in entries):
                return {piece: index for index, (piece, _) in enumerate(entries)}
    raise UserError("its model has no vocab")


def _check_model(model: Mapping[str, Any], id_of: Mapping[str, int]) -> None:
    longest_word = model.get("max_input_chars_per_word", 100)
    if type(longest_word) is not int or not 0 < longest_word <= 1000:
        shown = _shown(longest_word)
        raise UserError(f"max_input_chars_per_word is {shown}, and 1,000 is the limit")
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        _at_most(16, model.get(name) or "", name)
    if model.get("dropout"):
        raise UserError("its model has a dropout, which cuts a text otherwise each time")
    unknown = model.get("unk_token")
    if unknown is not None and (not isinstance(unknown, str) or unknown not in id_of):
        raise UserError(f"its unk_token {_shown(unknown)} is not one of its tokens")
    unknown = model.get("unk_id")
    if unknown is not None and (type(unknown) is not int or not 0 <= unknown < len(model["vocab"])):
        raise UserError(f"its unk_id {_shown(unknown)} is not the id of one of its tokens")


def _check_specials(fields: Mapping[str, Any], id_of: Mapping[str, int]) -> None:
    """Refuse special tokens of the post-processor that are not the tokens with their ids."""
    for step in _flat(fields.get("post_processor"), "post_processor", "processors"):
        pairs: list[tuple[Any, Any]] = []
        for role in ("cls", "sep"):
            match step.get(role):
                case [token, token_id]:
                    pairs.append((token, token_id))
        special_tokens = step.get("special_tokens")
        if isinstance(special_tokens, dict):
            for special in special_tokens.values():
                match special:
                    case {"tokens": [*tokens], "ids": [*ids]} if len(tokens) == len(ids) <= 16:
                        pairs += zip(tokens, ids, strict=True)
                    case _:
                        raise UserError(f"its post_processor has {_shown(special)}")
        for pieces in (step.get("single"), step.get("pair")):
            if isinstance(pieces, list) and len(pieces) > 16:
                raise UserError("its post_processor puts more than 16 pieces together")
        for token, token_id in pairs:
            if not isinstance(token, str) or id_of.get(token) != token_id:
                raise UserError(f"its post_processor has {_shown(token)} with another id")


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise UserError(f"{what} is {_shown(value)}, not a text")
    return value


def _at_most(limit: int, value: Any, what: str) -> None:
    text = _text(value, what)
    if len(text) > limit:
        raise UserError(f"{what} has {len(text):,} characters, and {limit:,} are the limit")


def _shown(value: Any) -> str:
    shown = json.dumps(value)
    return shown if len(shown) < 60 else f"{shown[:60]}…"
