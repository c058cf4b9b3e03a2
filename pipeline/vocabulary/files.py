"""The files of a vocabulary, as Hugging Face names them: written and read."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, structs
from tokenizers.normalizers import BertNormalizer

from .. import storage
from ..errors import UserError
from ..parsing import parse_json
from ..storage.state import VOCABULARY_FILES, describe_absence, folders_with, unfinished_stage
from .byte_level import SHOWN_SPACE, byte_level_tokenizer
from .normalization import Normalization, normalization_of
from .tokenizer_file import vocabulary_of_json
from .vocabulary import SPECIAL_TOKENS, Vocabulary, template_of

_ADVICE = "Only BERT's WordPiece is read from a vocab.txt; give a tokenizer.json."


class _TokenizerConfig(Struct):
    """BERT's settings; with others, as Japanese models have them, text is cut otherwise."""

    do_lower_case: bool | None = None
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool = True
    do_basic_tokenize: bool = True
    do_word_tokenize: bool = True
    do_subword_tokenize: bool = True
    word_tokenizer_type: str = "basic"
    subword_tokenizer_type: str = "wordpiece"
    auto_map: Any = None


def vocabulary_files(vocabulary: Vocabulary, max_length: int = 512) -> dict[str, bytes]:
    """Return the contents of ``vocab.txt`` (only of WordPiece), ``tokenizer.json`` and
    ``tokenizer_config.json``, which ``transformers`` loads; without the last it would lower-case a
    cased vocabulary. `max_length` is the length of the model's rows in tokens.
    """
    # "[PAD]" is named in the field pad_token, and so on.
    specials = zip(("pad", "unk", "cls", "sep", "mask"), vocabulary.specials[:5], strict=True)
    names_of_specials = {f"{role}_token": token for role, token in specials if token}
    # As BertTokenizer has them; PreTrainedTokenizerFast would leave the types out.
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    if vocabulary.file:
        config: dict[str, Any] = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            "model_input_names": inputs,
            "model_max_length": max_length,
        }
        if vocabulary.byte_level:
            # transformers 4 takes this from here, and without it overrides tokenizer.json.
            config["add_prefix_space"] = vocabulary.byte_level.adds_space
        return {
            "tokenizer.json": vocabulary.file.encode(),
            "tokenizer_config.json": _as_json({**config, **names_of_specials}),
        }
    tokenizer = vocabulary.tokenizer()
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
        config["model_input_names"] = inputs
    return {
        "vocab.txt": "".join(f"{token}\n" for token in vocabulary.tokens).encode(),
        "tokenizer.json": tokenizer.to_str(pretty=True).encode(),
        "tokenizer_config.json": _as_json(config),
    }


def _as_json(config: dict[str, Any]) -> bytes:
    return (json.dumps(config, indent=2) + "\n").encode()


def byte_level_vocabulary(
    tokens: Sequence[str], merges: Sequence[tuple[str, str]], normalization: Normalization
) -> Vocabulary:
    """Return the vocabulary of `learn_pieces` of bytes."""
    tokenizer = byte_level_tokenizer(tokens, merges, normalization, SPECIAL_TOKENS)
    tokenizer.post_processor = template_of({token: i for i, token in enumerate(tokens)})
    content = tokenizer.to_str(pretty=True).encode()
    return load_vocabulary({"tokenizer.json": content}, "the vocabulary")


def read_vocabulary(path: str) -> Vocabulary:
    """Return the vocabulary in a directory, or in a single ``vocab.txt`` or ``tokenizer.json``.

    Raise `UserError` if there is no usable one, or if `clozeworks vocab` has not finished.
    """
    path = os.fspath(path)
    if unfinished_stage(path) == "vocab":
        raise UserError(
            f"{path} is unfinished: rerun the `clozeworks vocab` command that writes it; "
            "it resumes."
        )
    files = read_files(path)
    for suffix, usual_name in ((".txt", "vocab.txt"), (".json", "tokenizer.json")):
        if not files and path.endswith(suffix) and storage.exists(path):
            files = {usual_name: storage.read_bytes(path)}
    if not files:
        fault = describe_absence(path)
        # Without a fault the directory exists, and `load_vocabulary` says what it lacks.
        if fault:
            raise UserError(
                f"{fault}: give a directory with a vocabulary, a vocab.txt or a tokenizer.json."
            )
        if folders := folders_with(path, *VOCABULARY_FILES):
            raise UserError(f"{path} has no vocabulary: give {' or '.join(folders)}.")
    return load_vocabulary(files, path)


def vocabulary_of_instances(directory: str, fingerprint: str) -> Vocabulary:
    """Return the vocabulary of instances; raise `UserError` unless it has this `fingerprint`."""
    vocabulary = read_vocabulary(directory)
    if vocabulary.fingerprint != fingerprint:
        raise UserError(
            f"The vocabulary in {directory} is not the one that its instances were built with: "
            "recreate it with `clozeworks build … --overwrite`."
        )
    return vocabulary


def verify_vocabulary(directory: str, fingerprint: str) -> None:
    """Raise `UserError` unless a directory has the vocabulary of this `fingerprint`."""
    vocabulary = read_vocabulary(directory)
    vocab_txt = vocabulary_files(vocabulary).get("vocab.txt")
    if vocabulary.fingerprint != fingerprint or read_files(directory).get("vocab.txt") != vocab_txt:
        raise UserError(
            f"The vocabulary in {directory} is not the one that its manifest records: recreate it "
            "with `clozeworks vocab … --overwrite`."
        )


def read_files(directory: str) -> dict[str, bytes]:
    """Return the contents of a directory's vocabulary files (see `VOCABULARY_FILES`) by name."""
    contents = {}
    for name in (*VOCABULARY_FILES, "special_tokens_map.json"):
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

    Raise `UserError` if there is neither tokenizer.json nor vocab.txt, or if it cannot be used.
    """
    if "tokenizer.json" in files:
        path = _file_path(where, "tokenizer.json")
        vocabulary = vocabulary_of_json(files, path)
    elif "vocab.txt" in files:
        path = _file_path(where, "vocab.txt")
        tokens = _parse_vocab_txt(files["vocab.txt"], path)
        config_path = _file_path(where, "tokenizer_config.json")
        config = files.get("tokenizer_config.json", b"{}")
        vocabulary = Vocabulary(tokens, _normalization(tokens, config, config_path))
    else:
        raise UserError(
            f"{where} has no vocabulary: it contains neither tokenizer.json nor vocab.txt."
        )
    if not vocabulary.is_ordinary.any():
        raise UserError(f"{path} has only special tokens, which cannot represent text.")
    return vocabulary


def _parse_vocab_txt(content: bytes, path: str) -> tuple[str, ...]:
    try:
        text = content.decode("utf-8-sig")  # Windows editors put a byte order mark first
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not valid UTF-8 (byte {error.start}); is it a vocabulary?"
        ) from error
    line_of_token: dict[str, int] = {}
    # Not splitlines(): a token may contain U+2028 and other characters that it takes for line ends.
    for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1):
        token = line.removesuffix("\r")
        if token == "":
            raise UserError(f"{path}: line {number} is empty; each line must be a token.")
        if token in line_of_token:
            lines = f"lines {line_of_token[token]} and {number}"
            raise UserError(f"{path}: token {token!r} is on {lines}; remove one.")
        line_of_token[token] = number
    tokens = tuple(line_of_token)
    _check_form(tokens, path)
    missing = [token for token in SPECIAL_TOKENS if token not in line_of_token]
    if missing:
        raise UserError(
            f"{path} lacks {' '.join(missing)}; a BERT vocabulary needs {' '.join(SPECIAL_TOKENS)}."
        )
    return tokens


def _check_form(tokens: Sequence[str], path: str) -> None:
    """Raise `UserError` if the tokens are written in another way than WordPiece's."""
    form = ""
    if all(re.fullmatch(r"\S+ [0-9]+", token) for token in tokens):
        form = "each line is a token and its count, as PhoBERT and BERTweet have them (with @@)"
    elif not any(token.startswith("##") for token in tokens):
        if any(token.startswith(SHOWN_SPACE) for token in tokens):
            form = f"words begin with {SHOWN_SPACE} and no token with ##, as SentencePiece has them"
        elif any(token.endswith("@@") for token in tokens):
            form = "tokens that go on end with @@ and none begins with ##"
    if form:
        raise UserError(f"{path}: {form}. {_ADVICE}")


def unusual_class(directory: str) -> str:
    """Return a notice if only a ``vocab.txt`` is there, for another tokenizer than BERT's."""
    files = read_files(directory)
    if "tokenizer.json" in files or "vocab.txt" not in files:
        return ""
    path = _file_path(directory, "tokenizer_config.json")
    config = parse_json(files.get("tokenizer_config.json", b"{}"), dict[str, Any], path, _ADVICE)
    name = config.get("tokenizer_class")
    # Those of BERT's relatives read a vocab.txt as BERT's does.
    usual = {f"{kind}Tokenizer" for kind in ("Bert", "DistilBert", "Electra", "MobileBert")}
    if name is None or str(name).removesuffix("Fast") in usual:
        return ""
    return (
        f"{path} names {json.dumps(name)[:60]}, but vocab.txt is read as BERT's: if that tokenizer "
        "cuts text in another way, give its tokenizer.json"
    )


def _normalization(tokens: Sequence[str], content: bytes, path: str) -> Normalization:
    """Return the normalisation that is configured, or else the one that keeps the tokens."""
    config = parse_json(content, _TokenizerConfig, path, _ADVICE)
    for setting in structs.fields(_TokenizerConfig):
        value = getattr(config, setting.name)
        if setting.default is not None and value != setting.default:
            shown, usual = json.dumps(value), json.dumps(setting.default)
            raise UserError(f"{path}: {setting.name} is {shown}, not {usual}. {_ADVICE}")
    if config.auto_map:
        raise UserError(f"{path}: auto_map names code, which is never run. {_ADVICE}")
    if config.do_lower_case is not None:
        return normalization_of(config.do_lower_case, config.strip_accents)
    texts = [token for token in tokens if not token.startswith("[")]

    def leaves_tokens_unchanged(**options: bool) -> bool:
        normalizer = BertNormalizer(clean_text=False, handle_chinese_chars=False, **options)
        num_changed = sum(normalizer.normalize_str(text) != text for text in texts)
        # Hand-made lists have strays: one in a thousand.
        return num_changed < 0.001 * max(1, len(texts))

    lowercase = leaves_tokens_unchanged(lowercase=True, strip_accents=False)
    has_no_accents = lowercase and leaves_tokens_unchanged(lowercase=False, strip_accents=True)
    return Normalization(lowercase, has_no_accents)


MODEL_TYPES = {
    "bert": "BERT",
    "modernbert": "ModernBERT",
    "roberta": "RoBERTa",
    "xlm-roberta": "XLM-RoBERTa",
    "camembert": "CamemBERT",
}
"""The kinds of published models that are trained, by the ``model_type`` in ``config.json``."""


def check_model_type(fields: Mapping[str, Any], path: object) -> str:
    """Return the kind of model in a ``config.json``; raise `UserError` unless in `MODEL_TYPES`."""
    # Files of 2018 do not say; they are BERT's.
    kind = fields.get("model_type", "bert")
    if not isinstance(kind, str) or kind not in MODEL_TYPES:
        raise UserError(
            f"{path} describes a model of type {kind!r}, which cannot be trained here; those of "
            f"{', '.join(MODEL_TYPES.values())} can (docs/models.md)."
        )
    return kind


def check_model_beside(vocabulary: str) -> None:
    """Raise `UserError` if the model beside a vocabulary cannot be trained."""
    path = storage.join(vocabulary, "config.json")
    if storage.exists(path):
        check_model_type(parse_json(storage.read_bytes(path), dict[str, Any], path), path)
