"""Learn a vocabulary of 30,522: word counts and our trainer, against `BertWordPieceTokenizer`, both on one core.

    python -m benchmarks.vocab PARQUET [HELD_OUT_PARQUET]

PARQUET files have a column ``sentences`` (documents) or ``text`` (whose lines are taken). The fertility of the two
vocabularies (tokens per word) is measured on the held-out file, or else on the same.
Seconds are of the processor's time, so that other work on the machine does not count.
"""

import hashlib
import os
import sys
import time

# Before anything starts a thread pool: one core for each side.
os.environ.update(TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1", OMP_NUM_THREADS="1")

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from clozeworks.pipeline.tokenize import Normalization, count_words
from clozeworks.pipeline.vocabulary import Vocabulary, fertility_report
from clozeworks.pipeline.wordpiece import learn_wordpiece
from tokenizers import BertWordPieceTokenizer

SIZE, MIN_FREQUENCY = 30_522, 2
UNCASED = Normalization(lowercase=True, strip_accents=True)


def read_sentences(path: str) -> pa.ChunkedArray:
    if "sentences" in pq.read_schema(path).names:
        return pc.call_function("list_flatten", [pq.read_table(path, columns=["sentences"])["sentences"]])
    text = pq.read_table(path, columns=["text"])["text"]
    lines = pc.call_function("split_pattern", [text], pc.SplitPatternOptions("\n"))
    return pc.call_function("list_flatten", [lines])


def learn_ours(sentences: pa.ChunkedArray) -> list[str]:
    begin = time.process_time()
    table = count_words(sentences, UNCASED)
    counted = time.process_time()
    tokens, report = learn_wordpiece(table["word"], table["count"].to_numpy(), size=SIZE, min_frequency=MIN_FREQUENCY)
    print(
        f"{table.num_rows} distinct words counted in {counted - begin:.1f} s, {report.num_merges} merges learned in "
        f"{time.process_time() - counted:.1f} s"
    )
    return tokens


def learn_theirs(sentences: pa.ChunkedArray) -> list[str]:
    peer = BertWordPieceTokenizer(lowercase=True)
    peer.train_from_iterator(
        (text for batch in sentences.chunks for text in batch.to_pylist()),
        vocab_size=SIZE,
        min_frequency=MIN_FREQUENCY,
        show_progress=False,
    )
    ids = peer.get_vocab()
    return sorted(ids, key=ids.__getitem__)


def main(path: str, held_out_path: str | None = None) -> None:
    pa.set_cpu_count(1)
    sentences = read_sentences(path)
    held_out = count_words(read_sentences(held_out_path or path), UNCASED)
    rows = []
    for name, learn in [("clozeworks", learn_ours), ("clozeworks, again", learn_ours), ("tokenizers", learn_theirs)]:
        begin = time.process_time()
        tokens = learn(sentences)
        seconds = time.process_time() - begin
        fertility = fertility_report(held_out, Vocabulary(tuple(tokens), UNCASED))["tokens_per_word"]
        rows.append((name, seconds, fertility, hashlib.md5("\n".join(tokens).encode()).hexdigest()[:12]))

    _, peer_seconds, peer_fertility, _ = rows[-1]
    print(f"{'':20}{'s':>8}{'times as fast':>15}{'fertility':>12}{'difference':>12}  md5 of the tokens")
    for name, seconds, fertility, digest in rows:
        ratio, difference = peer_seconds / seconds, fertility / peer_fertility - 1
        print(f"{name:20}{seconds:8.1f}{ratio:15.1f}{fertility:12.4f}{difference:12.2%}  {digest}")


if __name__ == "__main__":
    main(*sys.argv[1:])
