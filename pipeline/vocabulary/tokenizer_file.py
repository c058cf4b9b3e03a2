"""Read a ``tokenizer.json``, whoever wrote it.

WordPiece that cuts text as BERT does, and byte-level BPE that cuts it as GPT-2 does, are tokenised
by our own fast code, which gives the same ids; whatever else `tokenizer_limits` lets pass, by
``tokenizers``.
"""

import json
from collections.abc import Mapping, Set
from typing import Any

from tokenizers import Tokenizer

from ..errors import UserError
from ..parsing import parse_json
from .byte_level import CHARACTERS, is_byte_level
from .normalization import Normalization, bert_normalization
from .tokenizer_limits import check_tokenizer
from .vocabulary import SPECIAL_TOKENS, ByteLevel, Specials, Vocabulary

_USUAL_NAMES = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "mask": ("[MASK]", "<mask>"),
}


def vocabulary_of_json(files: Mapping[str, bytes], path: str) -> Vocabulary:
    """Return the vocabulary of the ``tokenizer.json`` among a directory's files; the others say
    which token has which role, if BERT's names do not. Raise `UserError` naming `path` if it cannot
    be used, or lacks a role.
    """
    content = files["tokenizer.json"]
    tokenizer = _open(content, path)
    # Those that cut or pad texts to a length were of another use of the model.
    if tokenizer.truncation or tokenizer.padding:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        content = tokenizer.to_str().encode()
    # As today's `tokenizers` writes it: with all fields.
    fields = json.loads(tokenizer.to_str())
    ids = tokenizer.get_vocab()
    tokens = sorted(ids, key=ids.__getitem__)
    if [ids[token] for token in tokens] != list(range(len(tokens))):
        raise UserError(
            f"{path}: the ids of its {len(tokens)} tokens must be 0 to {len(tokens) - 1}, "
            "each exactly once."
        )
    specials = _specials(fields, ids, files, path)
    added = {each["content"] for each in fields["added_tokens"]} - specials.names
    normalization = bert_normalization(fields)
    if normalization:
        _check_case(normalization.lowercase, files.get("tokenizer_config.json", b"{}"), path)
    byte_level = _byte_level(fields, tokens, added | specials.names)
    is_foreign = not (normalization or byte_level)
    if normalization and not added and specials == Specials():
        return Vocabulary(tuple(tokens), normalization)
    if normalization is None:
        steps = _normalizer_steps(fields["normalizer"]) if byte_level else []
        normalization = Normalization("Lowercase" in steps, "StripAccents" in steps)
    return Vocabulary(
        tuple(tokens),
        normalization,
        byte_level,
        file=content.decode(),
        specials=specials,
        added=frozenset(added),
        is_foreign=is_foreign,
    )


def _check_case(lowercase: bool, content: bytes, path: str) -> None:
    """Raise `UserError` if ``tokenizer_config.json``, which ``transformers`` follows for a BERT,
    contradicts what ``tokenizer.json`` does with capitals.
    """
    config = parse_json(content, dict[str, Any], f"tokenizer_config.json beside {path}")
    is_berts = str(config.get("tokenizer_class")).startswith("BertTokenizer")
    said = config.get("do_lower_case")
    if is_berts and said is (not lowercase):
        raise UserError(
            f"{path} has lowercase {json.dumps(lowercase)}, but tokenizer_config.json beside it "
            f"do_lower_case {json.dumps(said)}; correct the wrong one."
        )


def _open(content: bytes, path: str) -> Tokenizer:
    check_tokenizer(parse_json(content, dict[str, Any], path, "Fetch it again."), path)
    try:
        return Tokenizer.from_buffer(content)
    except BaseException as error:  # a Rust panic is no `Exception`
        if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
            raise
        reason = str(error).split("\n")[0][:200]
        raise UserError(f"{path} cannot be read by tokenizers: {reason}.") from None


def _specials(
    fields: Mapping[str, Any], ids: Mapping[str, int], files: Mapping[str, bytes], path: str
) -> Specials:
    """Return the special tokens; those around a text are the post-processor's."""
    template = _template(fields["post_processor"])
    usual = Specials()
    has_usual = all(token in ids for token in SPECIAL_TOKENS)
    if has_usual and template in (None, (usual.cls, usual.sep, usual.between)):
        return usual
    if template is None:
        raise UserError(
            f"{path}: its post-processor does not put one special token before a text and one "
            "after it; use another tokenizer."
        )
    named: dict[str, str | None] = {"unk": fields["model"].get("unk_token")}
    unk_id = fields["model"].get("unk_id")  # of a Unigram
    if unk_id is not None:
        named["unk"] = fields["model"]["vocab"][unk_id][0]
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        settings = parse_json(files.get(name, b"{}"), dict[str, Any], f"{name} beside {path}")
        for role in _USUAL_NAMES:
            token = settings.get(f"{role}_token")
            token = token.get("content") if isinstance(token, dict) else token
            if token is not None and not isinstance(token, str):
                shown = json.dumps(token)[:60]
                raise UserError(
                    f"{name} beside {path}: {role}_token is {shown}, not a token; correct it."
                )
            named[role] = token or named.get(role)
    roles: dict[str, str] = {}
    for role, usual_names in _USUAL_NAMES.items():
        names = [name for name in (named.get(role) or "", *usual_names) if name in ids]
        if not names and role != "unk":
            raise UserError(
                f"{path} has no {role} token: neither tokenizer_config.json names one, nor is "
                f"there {' or '.join(usual_names)}; use another tokenizer."
            )
        roles[role] = names[0] if names else ""
    cls, sep, between = template
    return Specials(cls=cls, sep=sep, between=between, **roles)


def _template(processor: Mapping[str, Any] | None) -> tuple[str, str, tuple[str, ...]] | None:
    """Return the special tokens before a text, after it, and between two; None for other forms."""
    match processor:
        case {"type": "Sequence", "processors": steps}:
            templates = [_template(step) for step in steps]
            return next((template for template in templates if template), None)
        case {"type": "BertProcessing", "cls": [cls, _], "sep": [sep, _]}:
            return cls, sep, (sep,)
        case {"type": "RobertaProcessing", "cls": [cls, _], "sep": [sep, _]}:
            return cls, sep, (sep, sep)
        case {"type": "TemplateProcessing", "single": single, "pair": pair}:
            names: list[list[str]] = []
            for pieces in (single, pair):
                # "" stands for a text.
                names.append([piece.get("SpecialToken", {"id": ""})["id"] for piece in pieces])
            match names:
                case [[cls, "", sep], [first, "", *between, "", last]] if (
                    cls and sep and first == cls and last == sep
                ):
                    return cls, sep, tuple(between)
    return None


def _byte_level(fields: Mapping[str, Any], tokens: list[str], others: Set[str]) -> ByteLevel | None:
    """Return the rules of a byte-level BPE that cuts text as GPT-2 does, with a normalisation that
    does not look across words, else None. Tokens among `others` do not represent text.
    """
    model = fields["model"]
    steps = _normalizer_steps(fields["normalizer"])
    changed = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback")
    if (
        model["type"] != "BPE"
        or any(model[name] for name in changed)
        or not {"NFC", "NFD", "Lowercase", "StripAccents"}.issuperset(steps)
        or not set(CHARACTERS).issubset(tokens)
    ):
        return None
    match fields["pre_tokenizer"]:
        case {"type": "ByteLevel", "use_regex": True, "add_prefix_space": adds_space}:
            merges = model["merges"]
            pieces = {left + right for left, right in merges} | set(CHARACTERS)
            rules = [merges, steps, adds_space]
            if model["ignore_merges"]:
                # A word that is a token is that token, whether or not it can be merged.
                rules.append("ignore_merges")
                for token in model["vocab"].keys() - others:
                    if is_byte_level(token) and not token.startswith("[unused"):
                        pieces.add(token)
            return ByteLevel(
                pieces=frozenset(pieces.intersection(tokens)),
                adds_space=adds_space,
                rules=json.dumps(rules),
            )
    return None


def _normalizer_steps(normalizer: Mapping[str, Any] | None) -> list[str]:
    if normalizer is None:
        return []
    if normalizer["type"] != "Sequence":
        return [normalizer["type"]]
    steps: list[str] = []
    for step in normalizer["normalizers"]:
        steps += _normalizer_steps(step)
    return steps
