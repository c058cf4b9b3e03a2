"""The files of a vocabulary, as Hugging Face names them: written and read."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, structs
from tokenizers.normalizers import BertNormalizer
from tokenizers.processors import TemplateProcessing

from .. import storage
from ..errors import UserError
from ..parsing import parse_json
from ..storage.state import VOCABULARY_FILES, describe_absence, unfinished_stage
from .apostrophes import Replacement, rules_of
from .byte_level import CHARACTERS, byte_level_tokenizer
from .tokenize import Normalization, bert_tokenizer
from .vocabulary import (
    CLS,
    SEP,
    SPECIAL_TOKENS,
    ByteLevel,
    Vocabulary,
    checked_tokens,
    is_ordinary,
)

ADVICE = "Only BERT's WordPiece and ModernBERT's byte-level BPE are supported."
_TOLERATED_SHARE = 0.001
"""A vocabulary's own normalisation may change this share of its tokens: hand-made lists have
strays.
"""


class _BertSettings(Struct):
    """The values of BERT's tokenizer, which are also those of its absent fields; published models
    with others cut text otherwise, such as the Japanese ones (``word_tokenizer_type`` mecab).
    """

    tokenize_chinese_chars: bool = True
    do_basic_tokenize: bool = True
    do_word_tokenize: bool = True
    do_subword_tokenize: bool = True
    word_tokenizer_type: str = "basic"
    subword_tokenizer_type: str = "wordpiece"


class _TokenizerConfig(_BertSettings):
    do_lower_case: bool | None = None
    strip_accents: bool | None = None


def vocabulary_files(vocabulary: Vocabulary, max_length: int = 512) -> dict[str, bytes]:
    """Return the contents of ``vocab.txt`` (only of WordPiece), ``tokenizer.json`` and
    ``tokenizer_config.json``.

    ``transformers`` loads a directory with these files; without the last it would lower-case a
    cased vocabulary. ``tokenizer.json`` knows the special tokens and makes ``[CLS] A [SEP] B
    [SEP]``. `max_length` is the length of the model's rows in tokens.
    """
    # "[PAD]" is named in the field pad_token, and so on.
    names_of_specials = {f"{token[1:-1].lower()}_token": token for token in SPECIAL_TOKENS}
    if vocabulary.byte_level:
        config: dict[str, Any] = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            # As BertTokenizer has them; this class would leave the types out.
            "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
            "model_max_length": max_length,
            # transformers 4 takes this from here, and without it overrides tokenizer.json.
            "add_prefix_space": vocabulary.byte_level.adds_space,
            **names_of_specials,
        }
        return {
            "tokenizer.json": vocabulary.byte_level.tokenizer_json.encode(),
            "tokenizer_config.json": (json.dumps(config, indent=2) + "\n").encode(),
        }
    tokenizer = bert_tokenizer(vocabulary.tokens, vocabulary.normalization)
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.post_processor = _template(vocabulary.ids)
    config = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": vocabulary.normalization.lowercase,
        "strip_accents": vocabulary.normalization.strip_accents,
        "tokenize_chinese_chars": True,
        "model_max_length": max_length,
        **names_of_specials,
    }
    if not isinstance(tokenizer.normalizer, BertNormalizer):
        # transformers 5 makes a BertTokenizer from the vocabulary alone: only this class takes the
        # normaliser of tokenizer.json, in transformers 4 too.
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
        config["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    return {
        "vocab.txt": "".join(f"{token}\n" for token in vocabulary.tokens).encode(),
        "tokenizer.json": tokenizer.to_str(pretty=True).encode(),
        "tokenizer_config.json": (json.dumps(config, indent=2) + "\n").encode(),
    }


def _template(ids: Mapping[str, int]) -> TemplateProcessing:
    return TemplateProcessing(
        single=f"{CLS}:0 $A:0 {SEP}:0",
        pair=f"{CLS}:0 $A:0 {SEP}:0 $B:1 {SEP}:1",
        special_tokens=[(CLS, ids[CLS]), (SEP, ids[SEP])],
    )


def byte_level_vocabulary(
    tokens: Sequence[str], merges: Sequence[tuple[str, str]], normalization: Normalization
) -> Vocabulary:
    """Return the vocabulary of `learn_bpe`."""
    tokenizer = byte_level_tokenizer(tokens, merges, normalization, SPECIAL_TOKENS)
    tokenizer.post_processor = _template({token: i for i, token in enumerate(tokens)})
    content = tokenizer.to_str(pretty=True).encode()
    return load_vocabulary({"tokenizer.json": content}, "the vocabulary")


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


def vocabulary_of_instances(directory: str, fingerprint: str) -> Vocabulary:
    """Return the vocabulary in a directory of instances; raise `UserError` if it does not have the
    `fingerprint` that their manifest records.
    """
    vocabulary = read_vocabulary(directory)
    if vocabulary.fingerprint != fingerprint:
        raise UserError(
            f"The vocabulary in {directory} is not the one that its instances were built with: "
            "recreate it with `clozeworks build … --overwrite`."
        )
    return vocabulary


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
    file, or if it is neither WordPiece nor byte-level BPE with BERT's special tokens, or its
    tokenizer does not split text as BERT's does.
    """
    if "tokenizer.json" in files:
        return vocabulary_of_json(files["tokenizer.json"], _file_path(where, "tokenizer.json"))
    if "vocab.txt" not in files:
        raise UserError(
            f"{where} has no vocabulary: it contains neither tokenizer.json nor vocab.txt."
        )
    tokens = _parse_vocab_txt(files["vocab.txt"], _file_path(where, "vocab.txt"))
    config_path = _file_path(where, "tokenizer_config.json")
    config_content = files.get("tokenizer_config.json", b"{}")
    config = parse_json(config_content, _TokenizerConfig, config_path, ADVICE)
    for setting in structs.fields(_BertSettings):
        value = getattr(config, setting.name)
        if value != setting.default:
            shown, usual = json.dumps(value), json.dumps(setting.default)
            raise UserError(f"{config_path}: {setting.name} is {shown}, not {usual}. {ADVICE}")
    if config.do_lower_case is None:
        return Vocabulary(tokens, _infer_normalization(tokens))
    return Vocabulary(tokens, normalization_of(config.do_lower_case, config.strip_accents))


def _parse_vocab_txt(content: bytes, path: str) -> tuple[str, ...]:
    try:
        text = content.decode("utf-8-sig")  # Windows editors put a byte order mark first
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not valid UTF-8 (byte {error.start}); is it a vocabulary?"
        ) from error
    # Not splitlines(): a token may contain U+2028 and other characters that it takes for line ends.
    lines = text.removesuffix("\n").split("\n")
    return checked_tokens([line.removesuffix("\r") for line in lines], path)


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


# tokenizer.json: WordPiece that splits text as BERT does, or GPT-2's byte-level BPE.


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
