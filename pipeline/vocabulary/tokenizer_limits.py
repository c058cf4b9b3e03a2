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
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Annotated, Any, Literal, Union
from unicodedata import normalize

from msgspec import Meta, Struct, defstruct

from ..errors import UserError
from ..parsing import convert_values, describe_fault
from .normalization import RULES

_Token = Annotated[str, Meta(min_length=1, max_length=1000)]
_Short = Annotated[str, Meta(max_length=16)]
_SpecialToken = tuple[str, int]


class _Pattern(Struct, forbid_unknown_fields=True):
    String: Annotated[str, Meta(min_length=1, max_length=1000)] | None = None
    Regex: Annotated[str, Meta(min_length=1, max_length=1000)] | None = None


class _Special(Struct):
    ids: Annotated[list[int], Meta(max_length=16)]
    tokens: Annotated[list[str], Meta(max_length=16)]


def _steps(names: str, **fields: Sequence[tuple[Any, ...]]) -> Any:
    """Return the type of up to sixteen steps: those of these names, and those with `fields`."""
    kinds = []
    for name, of_step in {**dict.fromkeys(names.split(), ()), **fields}.items():
        kinds.append(defstruct(name, of_step, tag=name, tag_field="type"))
    return Annotated[list[Union[tuple(kinds)]], Meta(max_length=16)]  # noqa: UP007


_REPLACE = (("pattern", _Pattern), ("content", Annotated[str, Meta(max_length=1000)]))
_AROUND = (("cls", _SpecialToken), ("sep", _SpecialToken))
_PIECES = Annotated[list[Any], Meta(max_length=16)]
_TEMPLATE = (("special_tokens", dict[str, _Special]), ("single", _PIECES), ("pair", _PIECES))


class _Model(Struct):
    vocab: dict[_Token, int] | list[tuple[_Token, float]]
    type: Literal["BPE", "Unigram", "WordLevel", "WordPiece"] = "BPE"  # files of 2020 do not say
    max_input_chars_per_word: Annotated[int, Meta(ge=1, le=1000)] = 100
    continuing_subword_prefix: _Short | None = None
    end_of_word_suffix: _Short | None = None
    unk_token: str | None = None
    unk_id: int | None = None
    merges: list[Any] = []
    dropout: Annotated[float, Meta(ge=0, le=0)] | None = None
    """It would cut a text otherwise each time."""


class _Added(Struct):
    content: _Token
    id: int


# All that a file may have, its sequences of steps laid flat.
_FILE: Any = defstruct(
    "File",
    [
        ("model", _Model),
        (
            "normalizer",
            _steps(
                "ByteLevel Lowercase NFC NFD NFKC NFKD Nmt Strip StripAccents",
                BertNormalizer=[("handle_chinese_chars", bool, True)],
                Precompiled=[("precompiled_charsmap", str)],
                Prepend=[("prepend", _Short)],
                Replace=_REPLACE,
            ),
        ),
        (
            "pre_tokenizer",
            _steps(
                "BertPreTokenizer ByteLevel CharDelimiterSplit Digits Punctuation UnicodeScripts "
                "Whitespace WhitespaceSplit",
                Metaspace=[("replacement", _Short)],
                Split=[("pattern", _Pattern)],
            ),
        ),
        (
            "post_processor",
            _steps(
                "ByteLevel",
                BertProcessing=_AROUND,
                RobertaProcessing=_AROUND,
                TemplateProcessing=_TEMPLATE,
            ),
        ),
        (
            "decoder",
            _steps(
                "BPEDecoder ByteFallback ByteLevel Fuse Metaspace Strip WordPiece",
                Replace=_REPLACE,
            ),
        ),
        ("added_tokens", list[_Added] | None, None),
    ],
)
# What the steps of a "Sequence" are called.
_KEYS = (
    ("normalizer", "normalizers"),
    ("pre_tokenizer", "pretokenizers"),
    ("post_processor", "processors"),
    ("decoder", "decoders"),
)
_NEVER_EMPTY = {" {2,}", *(pattern for rule in RULES.values() for pattern, _ in rule)}
"""Regular expressions that are known: fast, and each match has a character or more."""


def check_tokenizer(fields: Mapping[str, Any], path: str) -> None:
    """Raise `UserError` if a field of a ``tokenizer.json`` is not known to be harmless."""
    try:
        steps = {component: list(_flat(fields.get(component), key)) for component, key in _KEYS}
        file = convert_values({**fields, **steps}, _FILE)
        growth = _check_steps(steps)
        _check_tokens(file.model, file.added_tokens or [], steps["post_processor"], growth)
    except ValueError as error:
        raise UserError(f"{path}: {describe_fault(error)}; use another tokenizer.") from None
    except UserError as refusal:
        raise UserError(f"{path}: {refusal}; use another tokenizer.") from None


def _flat(step: Any, key: str, depth: int = 0) -> Iterator[Any]:
    """Yield the steps of a component, without the sequences that hold them under `key`."""
    match step:
        case None:
            return
        case {"type": "Sequence"} if isinstance(step.get(key), list):
            if depth == 4 or len(step[key]) > 16:
                raise UserError(f"its {key} are nested too deeply, or more than 16")
            for inner in step[key]:
                yield from _flat(inner, key, depth + 1)
        case _:
            yield step


def _check_steps(steps: Mapping[str, list[dict[str, Any]]]) -> int:
    """Return how many characters become of one at most, but for what is put before a text."""
    patterns = {step.get("pattern", {}).get("Regex") for step in chain(*steps.values())}
    unknown = sorted(patterns - _NEVER_EMPTY - {None})
    if unknown:
        _try_out(tuple(unknown))
    growth = 1
    lengthening: set[str] = set()
    for step in steps["normalizer"] + steps["pre_tokenizer"]:
        growth_of_step = _growth(step)
        if not growth_of_step:
            continue
        kind = step["type"]
        if kind in lengthening:
            raise UserError(f"{kind} can lengthen a text, and is there more than once")
        lengthening.add(kind)
        growth *= growth_of_step
    if growth > 32:  # U+FDFA becomes 18 letters by NFKC, in the map of every Unigram
        raise UserError(f"its normalizer and pre_tokenizer make {growth} characters of one")
    return growth


def _growth(step: Mapping[str, Any]) -> int:
    """Return how many characters a step can make of one; 0 if it never lengthens a text."""
    match step:
        case {"type": "ByteLevel"}:
            return 4  # the bytes of UTF-8
        case {"type": "BertNormalizer"}:
            return 3 if step.get("handle_chinese_chars", True) else 0
        case {"type": "Metaspace" | "Prepend"}:
            return 1  # once a piece, or a text
        case {"type": "Precompiled", "precompiled_charsmap": encoded}:
            return _growth_of_map(encoded)
        case {"type": "Replace", "pattern": pattern, "content": content}:
            return _growth_of_replacement(pattern, content)
    return 0


def _growth_of_replacement(pattern: Mapping[str, str], content: str) -> int:
    written = len(normalize("NFKD", content))
    match pattern:
        case {"String": str(replaced)}:
            num_replaced = len(replaced)
        case {"Regex": regex} if regex in _NEVER_EMPTY:
            num_replaced = 1
        case _:
            num_replaced = 0  # it may match between any two characters
    if written <= num_replaced:
        return 0
    if written > 16:
        raise UserError(f"Replace writes {written} characters, and 16 are the limit")
    if num_replaced == 0:
        return written + 1
    return math.ceil(written / num_replaced)


def _growth_of_map(encoded: str) -> int:
    """Return the length of the longest text in a map: the size of a trie, the trie, texts."""
    size_of_trie = 0
    try:
        content = base64.b64decode(encoded, validate=True)
        size_of_trie = int.from_bytes(content[:4], "little")
        texts = content[4 + size_of_trie :].decode()
    except (binascii.Error, UnicodeDecodeError):
        texts = ""
    if not texts or size_of_trie % 4:
        raise UserError("its precompiled_charsmap is damaged")
    return max(len(normalize("NFKD", text)) for text in texts.split("\0"))


# Patterns of nested repetitions need one character again and again; others take long for any text.
_TRIAL = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (2, 2))
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
    """Raise `UserError` if regular expressions fail, or take long, in a process of their own."""
    command = [sys.executable, "-P", "-c", code]  # as for workers
    done = subprocess.run(
        command, input=json.dumps(patterns), capture_output=True, text=True, check=False
    )
    if done.stdout.strip() != "done":
        raise UserError(
            f"a regular expression fails on short texts ({json.dumps(patterns[0])[:60]})"
        )


def _check_tokens(
    model: _Model, added: list[_Added], processors: Sequence[Mapping[str, Any]], growth: int
) -> None:
    id_of = model.vocab
    if len(id_of) > 1_000_000:
        raise UserError(f"it has {len(id_of):,} tokens, and 1,000,000 are the limit")
    if isinstance(id_of, list):
        id_of = {piece: index for index, (piece, _) in enumerate(id_of)}
        # A character takes 350 bytes in the trie of a Unigram.
        if sum(map(len, id_of)) > 1_000_000 + 8 * len(id_of):
            raise UserError("its pieces are longer than those of any language")
    num_tokens = len(id_of) + len(added)
    for token_id in chain(id_of.values(), (token.id for token in added)):
        if not 0 <= token_id < num_tokens:
            raise UserError(f"a token has the id {token_id}, and there are {num_tokens:,}")
    # Some have a merge for each way in which a token can be cut in two.
    if len(model.merges) > 8 * num_tokens:
        raise UserError(f"it has {len(model.merges):,} merges, and {num_tokens:,} tokens")
    # A character takes 7 µs in the search for added tokens.
    added_text = "".join(token.content for token in added)
    if growth * len(normalize("NFKD", added_text)) > 500_000:
        raise UserError("its added_tokens have more than 500,000 characters")
    if model.unk_id is not None and not 0 <= model.unk_id < len(model.vocab):
        raise UserError(f"its unk_id {model.unk_id} is not the id of one of its tokens")
    id_of = {token.content: token.id for token in added} | id_of
    if model.unk_token is not None and model.unk_token not in id_of:
        raise UserError(f"its unk_token {model.unk_token!r} is not one of its tokens")
    for token, token_id in chain.from_iterable(map(_special_tokens, processors)):
        if id_of.get(token) != token_id:
            raise UserError(f"its post_processor has {token!r} with another id")


def _special_tokens(processor: Mapping[str, Any]) -> list[_SpecialToken]:
    """Return the tokens that a post-processor puts around texts, and their ids."""
    match processor:
        case {"cls": cls, "sep": sep}:
            return [tuple(cls), tuple(sep)]
        case {"special_tokens": special_tokens}:
            pairs: list[_SpecialToken] = []
            for special in special_tokens.values():
                if len(special["tokens"]) != len(special["ids"]):
                    raise UserError("its post_processor has other numbers of tokens and ids")
                pairs += zip(special["tokens"], special["ids"], strict=True)
            return pairs
    return []
