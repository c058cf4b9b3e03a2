"""Tokenise documents by the dictionary of their chunks, against `tokenizers` on every sentence,
both on one core.

    python -m benchmarks.tokenizing VOCABULARY PARQUET...

VOCABULARY is a ``vocab.txt``; PARQUET files have a column ``sentences`` (documents) or ``text``
(read by line). The peer runs on an evenly spaced sample of the sentences (its time is linear), and
its ids are compared with ours. Times are CPU time, so other work on the machine does not count.
"""

import os
import sys
import time
from pathlib import Path

# Before anything starts a thread pool: one core for each side.
os.environ.update(TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1", OMP_NUM_THREADS="1")

import pyarrow as pa
from clozeworks.pipeline.vocabulary.tokenize import DictionaryTokenizer, bert_tokenizer
from clozeworks.pipeline.vocabulary.vocabulary import load_vocabulary

from .vocab import read_sentences

SAMPLED = 20  # the peer gets one sentence in so many


def main(vocabulary_path: str, *paths: str) -> None:
    pa.set_cpu_count(1)
    vocabulary = load_vocabulary({"vocab.txt": Path(vocabulary_path).read_bytes()}, vocabulary_path)
    ours = DictionaryTokenizer(vocabulary.tokens, vocabulary.normalization)
    peer = bert_tokenizer(vocabulary.tokens, vocabulary.normalization)
    rows, num_different = [], 0
    for name, path in [
        *((Path(path).name, path) for path in paths),
        ("the last, all known", paths[-1]),
    ]:
        sentences = read_sentences(path)
        begin = time.process_time()
        ids, offsets = ours.encode(sentences)
        seconds = time.process_time() - begin

        sampled = range(0, len(sentences), SAMPLED)
        texts = sentences.take(pa.array(sampled)).to_pylist()
        begin = time.process_time()
        encodings = peer.encode_batch_fast(texts, add_special_tokens=False)
        peer_seconds = time.process_time() - begin
        expected = [encoding.ids for encoding in encodings]
        got = [ids[offsets[i] : offsets[i + 1]].tolist() for i in sampled]
        num_different += sum(map(list.__ne__, expected, got))
        rows.append((name, len(ids), seconds, sum(map(len, expected)) / peer_seconds))

    print(f"{'':40}{'M tokens':>10}{'s':>8}{'M tokens/s':>12}{'tokenizers':>12}{'ratio':>8}")
    for name, num_tokens, seconds, peer_rate in rows:
        rate = num_tokens / seconds
        print(
            f"{name[:39]:40}{num_tokens / 1e6:10.1f}{seconds:8.2f}{rate / 1e6:12.2f}{peer_rate / 1e6:12.2f}"
            f"{rate / peer_rate:8.1f}"
        )
    print(f"sentences whose ids differ: {num_different}")


if __name__ == "__main__":
    main(*sys.argv[1:])
