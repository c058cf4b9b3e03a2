"""Tokenise documents by the dictionary of their chunks, beside every tokeniser that reads the same
vocabulary, each on one core.

    python -m benchmarks.tokenizing VOCABULARY PARQUET...

VOCABULARY is a directory from `vocab`, WordPiece or byte-level BPE; PARQUET files have a column
``sentences`` (documents) or ``text`` (read by line). Sentences are read once while their words are
new, and once more when all are known; the slower peers get a sample. Times are CPU time.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

# Before anything starts a thread pool: one core for each side.
os.environ.update(TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1", OMP_NUM_THREADS="1")

import pyarrow as pa
from clozeworks.pipeline.vocabulary.files import read_vocabulary
from clozeworks.pipeline.vocabulary.tokenize import DictionaryTokenizer

from .peers import print_figure, run_peer
from .vocab import read_sentences


def main(folder: str, *paths: str) -> None:
    pa.set_cpu_count(1)
    vocabulary = read_vocabulary(folder)
    ours = vocabulary.text_tokenizer()
    if not isinstance(ours, DictionaryTokenizer):
        raise SystemExit(f"{folder}: tokenizers itself encodes it")
    parts = [read_sentences(path) for path in paths]
    sentences = pa.chunked_array(
        [chunk for part in parts for chunk in part.chunks]
    ).combine_chunks()
    cold, known = (rate(ours, sentences) for _ in range(2))
    with tempfile.TemporaryDirectory() as work:
        lines = Path(work, "lines.txt")
        texts = [" ".join(text.split()) for text in sentences.to_pylist()]
        lines.write_text("\n".join(texts), encoding="utf-8")
        peers = run_peer("tokenizers", "tokenizing", folder, lines)
    kind = "byte-level BPE" if vocabulary.byte_level else "WordPiece"
    for name, found in peers.items():
        same = "" if found["same"] == 1 else f", {1 - found['same']:.2%} of the lines otherwise"
        for state, own in (("cold", cold), ("known", known)):
            print_figure(
                f"tokenise {kind}, {'new words' if state == 'cold' else 'words known'}",
                f"{own / 1e6:.1f} M tokens/s",
                f"{name}, one thread{same}",
                f"{found[state] / 1e6:.2f}",
                own / found[state],
            )


def rate(tokenizer: DictionaryTokenizer, sentences: pa.Array) -> float:
    """Return tokens a second of CPU time."""
    begin = time.process_time()
    ids, _ = tokenizer.encode(sentences)
    return len(ids) / (time.process_time() - begin)


if __name__ == "__main__":
    main(*sys.argv[1:])
