"""Tokenise sentences by the dictionary of their chunks, beside other tokenizers, one thread each.

Our ids are compared with each peer's. CPU time, without start-up.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from clozeworks.pipeline.vocabulary.files import read_vocabulary

from .environments import run_script
from .inputs import Inputs
from .table import Row, peer_row

UNIT = "tokens/s"


def rows(inputs: Inputs) -> Iterator[Row]:
    sentences = inputs.sentences()
    path = inputs.work / "sentences.txt"
    path.write_text("\n".join(sentences.to_pylist()), "utf-8")
    yield from _rows(inputs, "WordPiece", inputs.wordpiece, ["kitoken", "flash-tokenizer"])
    yield from _rows(inputs, "byte-level BPE", inputs.bpe, ["kitoken", "tiktoken", "gigatoken"])


def _rows(inputs: Inputs, kind: str, vocabulary: Path, peers: list[str]) -> Iterator[Row]:
    ids = inputs.work / "ids.npz"
    cold, warm = encode(inputs.sentences(), vocabulary, ids)
    settings = {
        "tokenizers": "`encode_batch_fast`",
        "kitoken": "`encode`",
        "flash-tokenizer": "`encode` of each text",
        "tiktoken": "`encode_ordinary_batch`",
        "gigatoken": "`encode_files`",
    }
    for peer in ["tokenizers", *peers]:
        # Only gigatoken remembers words, and so is faster in a long text.
        step = 1 if peer == "gigatoken" else 10
        text = inputs.work / "sentences.txt"
        result = run_script(inputs.peers, "venv", "encode", peer, vocabulary, text, ids, step)
        what = f"tokenise {kind}"
        name = f"`{peer}`"
        yield peer_row(
            f"{what}, beside {name}", cold, name, settings[peer], result, UNIT, figure="cold"
        )
        if step == 1:
            what = f"{what}, all words known, beside {name}"
            yield peer_row(what, warm, name, settings[peer], result, UNIT, figure="warm")


def encode(sentences: pa.ChunkedArray, vocabulary: Path, path: Path) -> tuple[float, float]:
    """Write the ids; return the tokens a second when all words are new, and when all are known."""
    pa.set_cpu_count(1)
    tokenizer = read_vocabulary(str(vocabulary)).text_tokenizer()
    cold, warm = (rate_of(tokenizer, sentences.combine_chunks()) for _ in range(2))
    ids, offsets = tokenizer.encode(sentences.combine_chunks())
    np.savez(path, ids=ids, offsets=offsets)
    return cold, warm


def rate_of(tokenizer: Any, sentences: pa.Array) -> float:
    begin = time.process_time()
    ids, _ = tokenizer.encode(sentences)
    return len(ids) / (time.process_time() - begin)
