"""A WordPiece vocabulary and its files, in the names and layouts of Hugging Face."""

import json
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer
from tokenizers.normalizers import BertNormalizer
from tokenizers.processors import TemplateProcessing

from ..errors import UserError
from ..execution import storage
from ..execution.directory import unfinished_stage
from .tokenize import MAX_WORD_CHARACTERS, Normalization, bert_tokenizer

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

VOCABULARY_FILES = ("vocab.txt", "tokenizer.json", "tokenizer_config.json")

LANGUAGES_WITH_ACCENTS = frozenset(
    "ko ja vi th lo km my bo dz dv si hi mr ne sa bn as gu pa or ta te kn ml".split()  # noqa: SIM905
)
"""Languages that accent stripping would destroy: it decomposes by NFD and drops all nonspacing marks (Mn).

Korean syllables fall apart into jamo, Japanese kana lose the dakuten that distinguishes "ga" from "ka", and Vietnamese
loses vowels and tones; the vowel signs of Thai, Lao, Khmer, Burmese, Tibetan, Dhivehi and the Indic scripts are such
marks.
"""

_TOLERATED_SHARE = 0.001  # of tokens that the vocabulary's own normalisation would change: hand-made lists have strays
_NUM_EXAMPLES = 10


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

    @property
    def pad_id(self) -> int:
        """The id of [PAD]."""
        return self.ids[PAD]

    @property
    def unk_id(self) -> int:
        """The id of [UNK]."""
        return self.ids[UNK]

    @property
    def cls_id(self) -> int:
        """The id of [CLS]."""
        return self.ids[CLS]

    @property
    def sep_id(self) -> int:
        """The id of [SEP]."""
        return self.ids[SEP]

    @property
    def mask_id(self) -> int:
        """The id of [MASK]."""
        return self.ids[MASK]

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
        """A hash of the tokens and the normalisation, 32 hexadecimal digits: equal if every text gets the same ids."""
        content = json.dumps([self.tokens, self.normalization])
        return blake2b(content.encode(), digest_size=16).hexdigest()


def default_strip_accents(*, cased: bool, language: str) -> bool:
    """Return whether to strip accents: if text is lower-cased, as BERT does, but not in `LANGUAGES_WITH_ACCENTS`.

    >>> default_strip_accents(cased=False, language="en"), default_strip_accents(cased=False, language="ko-KR")
    (True, False)
    """
    return not cased and language.lower().replace("_", "-").split("-")[0] not in LANGUAGES_WITH_ACCENTS


def pretrained_tokenizer(vocabulary: Vocabulary) -> Tokenizer:
    """Return the tokeniser for a model's input: it knows the special tokens and makes ``[CLS] A [SEP] B [SEP]``."""
    tokenizer = bert_tokenizer(vocabulary.tokens, vocabulary.normalization)
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.post_processor = TemplateProcessing(
        single=f"{CLS}:0 $A:0 {SEP}:0",
        pair=f"{CLS}:0 $A:0 {SEP}:0 $B:1 {SEP}:1",
        special_tokens=[(CLS, vocabulary.cls_id), (SEP, vocabulary.sep_id)],
    )
    return tokenizer


def vocabulary_files(vocabulary: Vocabulary) -> dict[str, bytes]:
    """Return the contents of ``vocab.txt``, ``tokenizer.json`` and ``tokenizer_config.json``.

    ``transformers`` loads a directory with these files; without the last it would lower-case a cased vocabulary.
    """
    config = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": vocabulary.normalization.lowercase,
        "strip_accents": vocabulary.normalization.strip_accents,
        "tokenize_chinese_chars": True,
        "model_max_length": 512,
        **{f"{token[1:-1].lower()}_token": token for token in SPECIAL_TOKENS},
    }
    return {
        "vocab.txt": "".join(f"{token}\n" for token in vocabulary.tokens).encode(),
        "tokenizer.json": pretrained_tokenizer(vocabulary).to_str(pretty=True).encode(),
        "tokenizer_config.json": (json.dumps(config, indent=2) + "\n").encode(),
    }


def read_vocabulary(path: str) -> Vocabulary:
    """Return the vocabulary in a directory, or in a single ``vocab.txt`` or ``tokenizer.json``.

    Raise `UserError` if there is no usable one, or if `clozeworks vocab` has not finished.
    """
    if unfinished_stage(path) == "vocab":
        raise UserError(f"{path} is unfinished: rerun the `clozeworks vocab` command that writes it; it resumes.")
    present = [name for name in VOCABULARY_FILES if storage.exists(storage.join(path, name))]
    files = {name: storage.read_bytes(storage.join(path, name)) for name in present}
    if not present and path.endswith((".txt", ".json")) and storage.exists(path):
        files = {"vocab.txt" if path.endswith(".txt") else "tokenizer.json": storage.read_bytes(path)}
    return load_vocabulary(files, path)


def _file_path(where: str, name: str) -> str:
    """Return the path of a file for messages; `where` is its directory, or the file itself."""
    return where if where.endswith((".txt", ".json")) else storage.join(where, name)


def load_vocabulary(files: Mapping[str, bytes], where: str) -> Vocabulary:
    """Parse a vocabulary from the contents of its files by name; `where`, their directory, is used in messages.

    Uses ``tokenizer.json``, or else ``vocab.txt`` with the normalisation in ``tokenizer_config.json``. Without the
    latter, the normalisation follows from the tokens: if none has upper case or accents, text must lose them too. Raise
    `UserError` if there is neither file, or if it is not a WordPiece vocabulary with BERT's special tokens.
    """
    if "tokenizer.json" in files:
        return _from_tokenizer_json(files["tokenizer.json"], _file_path(where, "tokenizer.json"))
    if "vocab.txt" not in files:
        raise UserError(f"{where} has no vocabulary: it contains neither tokenizer.json nor vocab.txt.")
    tokens = _lines(files["vocab.txt"], _file_path(where, "vocab.txt"))
    _check_tokens(tokens, _file_path(where, "vocab.txt"))
    config = _parse_json(files.get("tokenizer_config.json", b"{}"), _file_path(where, "tokenizer_config.json"))
    lowercase = config.get("do_lower_case")
    if lowercase is None:
        return Vocabulary(tuple(tokens), _normalization_of(tokens))
    return Vocabulary(tuple(tokens), _normalization(lowercase, config.get("strip_accents")))


def fertility_report(words: pa.Table, vocabulary: Vocabulary) -> dict[str, Any]:
    """Measure a vocabulary on counted words (a table of schema `WORD_COUNTS`, with the vocabulary's normalisation).

    Return plain values: counts of words and tokens, `tokens_per_word` (the fertility), `unknown_share` (of [UNK] among
    the tokens), the number of ordinary tokens that never occur, the longest that do, and the rarest with their counts.
    """
    model = bert_tokenizer(vocabulary.tokens, vocabulary.normalization).model
    ids, num_pieces = array("i"), array("i")
    for word in words["word"].to_pylist():
        pieces = [token.id for token in model.tokenize(word)]
        ids.extend(pieces)
        num_pieces.append(len(pieces))
    word_counts = words["count"].to_numpy()
    token_counts = np.zeros(len(vocabulary), np.int64)
    np.add.at(token_counts, np.array(ids), np.repeat(word_counts, num_pieces))

    num_words, num_tokens = int(word_counts.sum()), int(token_counts.sum())
    ordinary = np.flatnonzero(vocabulary.is_ordinary)
    occurring = ordinary[token_counts[ordinary] > 0]
    longest = sorted(occurring.tolist(), key=lambda i: (-len(vocabulary.tokens[i].removeprefix("##")), i))
    # Ties go to the tokens learned last: words say more than the single characters that come first.
    rarest = occurring[np.lexsort((-occurring, token_counts[occurring]))]
    return {
        "num_words": num_words,
        "num_distinct_words": words.num_rows,
        "num_tokens": num_tokens,
        "tokens_per_word": num_tokens / max(1, num_words),
        "unknown_share": int(token_counts[vocabulary.unk_id]) / max(1, num_tokens),
        "num_tokens_absent": len(ordinary) - len(occurring),
        "longest_tokens": [vocabulary.tokens[i] for i in longest[:_NUM_EXAMPLES]],
        "rarest_tokens": [(vocabulary.tokens[i], int(token_counts[i])) for i in rarest[:_NUM_EXAMPLES]],
    }


def _is_ordinary(token: str) -> bool:
    return not (len(token) > 2 and token[0] == "[" and token[-1] == "]")


def _normalization(lowercase: bool, strip_accents: bool | None) -> Normalization:
    # By default BERT strips accents if it lower-cases.
    return Normalization(bool(lowercase), bool(lowercase if strip_accents is None else strip_accents))


def _normalization_of(tokens: Sequence[str]) -> Normalization:
    """Infer the normalisation a vocabulary was made for: the one that leaves (nearly) all its tokens unchanged."""
    lowercase = _share_changed(tokens, Normalization(lowercase=True, strip_accents=False)) < _TOLERATED_SHARE
    stripped = _share_changed(tokens, Normalization(lowercase=False, strip_accents=True)) < _TOLERATED_SHARE
    return Normalization(lowercase, lowercase and stripped)


def _share_changed(tokens: Sequence[str], normalization: Normalization) -> float:
    normalizer = BertNormalizer(clean_text=False, handle_chinese_chars=False, **normalization._asdict())
    texts = [token for token in tokens if not token.startswith("[")]
    return sum(normalizer.normalize_str(text) != text for text in texts) / max(1, len(texts))


def _lines(content: bytes, where: str) -> list[str]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{where} is not valid UTF-8 (byte {error.start}); is it a vocabulary?") from error
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def _check_tokens(tokens: Sequence[str], where: str) -> None:
    """Raise `UserError` unless all tokens are distinct and non-empty and include BERT's special tokens."""
    if "" in tokens:
        raise UserError(f"{where}: line {tokens.index('') + 1} is empty; each line must be a token.")
    duplicates = [token for token, count in Counter(tokens).items() if count > 1]
    if duplicates:
        lines = [str(i) for i, token in enumerate(tokens, start=1) if token == duplicates[0]]
        raise UserError(
            f"{where}: token {duplicates[0]!r} is on lines {' and '.join(lines)} ({len(duplicates)} tokens are "
            "repeated); remove all but one."
        )
    missing = [token for token in SPECIAL_TOKENS if token not in set(tokens)]
    if missing:
        raise UserError(f"{where} lacks {' '.join(missing)}; a BERT vocabulary needs {' '.join(SPECIAL_TOKENS)}.")
    if not any(map(_is_ordinary, tokens)):
        raise UserError(f"{where} has only special tokens, which cannot represent text.")


def _parse_json(content: bytes, where: str) -> dict[str, Any]:
    try:
        parsed = json.loads(content)
    except ValueError as error:
        raise UserError(f"{where} is not valid JSON: {error}.") from error
    if not isinstance(parsed, dict):
        raise UserError(f"{where} is not a JSON object.")
    return parsed


def _from_tokenizer_json(content: bytes, where: str) -> Vocabulary:
    tokenizer = _parse_json(content, where)
    _check_wordpiece(tokenizer, where)
    try:
        ids: dict[str, int] = dict(tokenizer["model"]["vocab"])
        for added in tokenizer.get("added_tokens") or []:
            ids.setdefault(added["content"], added["id"])
        tokens = sorted(ids, key=ids.__getitem__)
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{where}: model.vocab or added_tokens does not map tokens to ids.") from None
    if [ids[token] for token in tokens] != list(range(len(tokens))):
        raise UserError(
            f"{where}: the ids of its {len(tokens)} tokens must be 0 to {len(tokens) - 1}, each exactly once."
        )
    _check_tokens(tokens, where)
    normalizer = tokenizer["normalizer"]
    return Vocabulary(tuple(tokens), _normalization(normalizer.get("lowercase", True), normalizer.get("strip_accents")))


def _check_wordpiece(tokenizer: dict[str, Any], where: str) -> None:
    """Raise `UserError`, naming the first field that differs, unless `tokenizer` splits text as BERT does."""
    expected = {
        "model": {
            "type": "WordPiece",
            "unk_token": UNK,
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": MAX_WORD_CHARACTERS,
        },
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
    }
    for part, fields in expected.items():
        found = tokenizer[part] if isinstance(tokenizer.get(part), dict) else {}
        for name, value in fields.items():
            if found.get(name) != value:
                raise UserError(
                    f"{where}: {part}.{name} is {found.get(name)!r}, but only {value!r} (BERT's WordPiece) "
                    "is supported."
                )
