"""Tokenise lines by every tokeniser that reads the vocabulary, on one core.

    tokenizing.py FOLDER LINES

FOLDER holds ``tokenizer.json``, and ``vocab.txt`` if it is a WordPiece vocabulary; LINES is a text.
Prints by name and version the tokens a second of CPU time, first and with all words known, and
the share of lines whose ids are those of `tokenizers`.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

os.environ.update(TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1", OMP_NUM_THREADS="1")

STEP = 20
"""The slower ones get every twentieth line, as their time is linear."""

Encode = Callable[[list[str]], Sequence[Sequence[int]]]


def main(folder: str, path: str) -> None:
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    sample = lines[::STEP]
    makers: dict[str, Callable[[str], Encode]] = {"tokenizers": tokenizers, "kitoken": kitoken}
    if Path(folder, "vocab.txt").exists():
        makers["flash-tokenizer"] = flash_tokenizer
    else:
        makers["gigatoken"] = gigatoken
    expected: list[list[int]] = []
    measured = {}
    for name, make in makers.items():
        label = f"{name} {version(name)}"
        encode = make(folder)
        texts = lines if name == "gigatoken" else sample
        rates = [rate(encode, texts) for _ in range(2)]
        ids = [list(map(int, row)) for row in encode(sample)]
        expected = expected or ids
        same = sum(one == other for one, other in zip(ids, expected, strict=True))
        measured[label] = {"cold": rates[0], "known": rates[1], "same": same / len(ids)}
    print(json.dumps(measured))


def rate(encode: Encode, texts: list[str]) -> float:
    begin = time.process_time()
    rows = encode(texts)
    seconds = time.process_time() - begin
    return sum(map(len, rows)) / seconds


def tokenizers(folder: str) -> Encode:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    return lambda texts: [
        row.ids for row in tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    ]


def gigatoken(folder: str) -> Encode:
    from gigatoken import Tokenizer

    tokenizer = Tokenizer(f"{folder}/tokenizer.json")
    return lambda texts: tokenizer.encode_batch(texts, parallel=False)


def kitoken(folder: str) -> Encode:
    from kitoken import Kitoken

    tokenizer = Kitoken.from_file(f"{folder}/tokenizer.json")
    return lambda texts: tokenizer.encode_all(texts, False)


def flash_tokenizer(folder: str) -> Encode:
    from flash_tokenizer import BertTokenizerFlash

    # Without the attention masks that its Python makes, and without [CLS] and [SEP].
    tokenizer = BertTokenizerFlash(f"{folder}/vocab.txt", do_lower_case=True).tokenizer
    return lambda texts: [tokenizer.encode(text, "longest", 100_000)[1:-1] for text in texts]


if __name__ == "__main__":
    main(*sys.argv[1:])
