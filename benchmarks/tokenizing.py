"""Tokenise documents by the dictionary of their chunks, against `tokenizers`, both on one core.

    python -m benchmarks.tokenizing VOCABULARY PARQUET...

VOCABULARY is a directory, a ``vocab.txt`` or a ``tokenizer.json``, WordPiece or byte-level BPE;
PARQUET files have a column ``sentences`` (documents) or ``text`` (read by line). The peer tokenises
every sentence anew in linear time, so an evenly spaced sample is enough; its ids are compared with
ours. Times are CPU time, so other work on the machine does not count.
"""

import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

# Before anything starts a thread pool: one core for each side.
os.environ.update(TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1", OMP_NUM_THREADS="1")

import pyarrow as pa
from clozeworks.pipeline.vocabulary.files import read_vocabulary
from clozeworks.pipeline.vocabulary.normalization import bert_tokenizer
from clozeworks.pipeline.vocabulary.tokenize import DictionaryTokenizer
from tokenizers import Tokenizer

from .vocab import read_sentences

SAMPLE_STEP = 20  # the peer gets every twentieth sentence


class Measured(NamedTuple):
    """A file tokenised by both sides."""

    name: str
    num_tokens: int
    seconds: float
    peer_tokens_per_s: float
    num_different: int


def main(vocabulary_path: str, *paths: str) -> None:
    pa.set_cpu_count(1)
    vocabulary = read_vocabulary(vocabulary_path)
    ours = vocabulary.text_tokenizer()
    if not isinstance(ours, DictionaryTokenizer):
        raise SystemExit(f"{vocabulary_path}: tokenizers itself encodes it")
    if vocabulary.byte_level:
        peer = vocabulary.tokenizer()
        peer.encode_special_tokens = True
    else:
        peer = bert_tokenizer(vocabulary.tokens, vocabulary.normalization)
    rows = [measure(Path(path).name, path, ours, peer) for path in paths]
    # Once more, now that the dictionary holds every chunk of it.
    rows.append(measure("the last, all known", paths[-1], ours, peer))

    print(f"{'':40}{'M tokens':>10}{'s':>8}{'M tokens/s':>12}{'tokenizers':>12}{'ratio':>8}")
    for row in rows:
        rate = row.num_tokens / row.seconds
        print(
            f"{row.name[:39]:40}{row.num_tokens / 1e6:10.1f}{row.seconds:8.2f}"
            f"{rate / 1e6:12.2f}{row.peer_tokens_per_s / 1e6:12.2f}"
            f"{rate / row.peer_tokens_per_s:8.1f}"
        )
    print(f"sentences whose ids differ: {sum(row.num_different for row in rows)}")


def measure(name: str, path: str, ours: DictionaryTokenizer, peer: Tokenizer) -> Measured:
    """Tokenise all sentences of a file by ours and a sample by the peer."""
    sentences = read_sentences(path).combine_chunks()
    begin = time.process_time()
    ids, offsets = ours.encode(sentences)
    seconds = time.process_time() - begin

    sampled = range(0, len(sentences), SAMPLE_STEP)
    texts = sentences.take(pa.array(sampled)).to_pylist()
    begin = time.process_time()
    encodings = peer.encode_batch_fast(texts, add_special_tokens=False)
    peer_seconds = time.process_time() - begin

    num_different = 0
    for sentence, encoding in zip(sampled, encodings, strict=True):
        our_ids = ids[offsets[sentence] : offsets[sentence + 1]].tolist()
        num_different += our_ids != encoding.ids
    num_peer_tokens = sum(len(encoding.ids) for encoding in encodings)
    return Measured(
        name=name,
        num_tokens=len(ids),
        seconds=seconds,
        peer_tokens_per_s=num_peer_tokens / peer_seconds,
        num_different=num_different,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
