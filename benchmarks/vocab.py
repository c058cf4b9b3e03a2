"""Learn a vocabulary of 30,522: word counts and our trainer, against `BertWordPieceTokenizer`, both
on one core.

    python -m benchmarks.vocab PARQUET [HELD_OUT_PARQUET]

PARQUET files have a column ``sentences`` (documents) or ``text`` (read by line). The fertility of
the two vocabularies (tokens per word) is measured on the held-out file, or else on the same. Times
are CPU time, so other work on the machine does not count.

    python -m benchmarks.vocab --words 10000000 [--seed 0]

instead learns from that many distinct made-up words, with counts by Zipf's law, and prints time and
memory.
"""

import argparse
import hashlib
import os
import resource
import time

# Before anything starts a thread pool: one core for each side.
os.environ.update(TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1", OMP_NUM_THREADS="1")

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from clozeworks.pipeline.vocabulary.fertility import fertility_report
from clozeworks.pipeline.vocabulary.tokenize import Normalization, Speller, count_words
from clozeworks.pipeline.vocabulary.vocabulary import Vocabulary
from clozeworks.pipeline.vocabulary.wordpiece import learn_wordpiece
from tokenizers import BertWordPieceTokenizer

SIZE, MIN_FREQUENCY = 30_522, 2
UNCASED = Normalization(lowercase=True, strip_accents=True)


def read_sentences(path: str) -> pa.ChunkedArray:
    if "sentences" in pq.read_schema(path).names:
        return pc.call_function(
            "list_flatten", [pq.read_table(path, columns=["sentences"])["sentences"]]
        )
    text = pq.read_table(path, columns=["text"])["text"]
    lines = pc.call_function("split_pattern", [text], pc.SplitPatternOptions("\n"))
    return pc.call_function("list_flatten", [lines])


def learn_ours(sentences: pa.ChunkedArray) -> list[str]:
    begin = time.process_time()
    table = count_words(sentences.chunks, Speller(UNCASED))
    counted = time.process_time()
    tokens, report = learn_wordpiece(
        table["word"], table["count"].to_numpy(), size=SIZE, min_frequency=MIN_FREQUENCY
    )
    print(
        f"{table.num_rows} distinct words counted in {counted - begin:.1f} s, "
        f"{report.num_merges} merges learned in {time.process_time() - counted:.1f} s"
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
    held_out = count_words(read_sentences(held_out_path or path).chunks, Speller(UNCASED))
    rows = []
    for name, learn in [
        ("clozeworks", learn_ours),
        ("clozeworks, again", learn_ours),
        ("tokenizers", learn_theirs),
    ]:
        begin = time.process_time()
        tokens = learn(sentences)
        seconds = time.process_time() - begin
        fertility = fertility_report(held_out, Vocabulary(tuple(tokens), UNCASED)).tokens_per_word
        rows.append(
            (name, seconds, fertility, hashlib.md5("\n".join(tokens).encode()).hexdigest()[:12])
        )

    _, peer_seconds, peer_fertility, _ = rows[-1]
    print(
        f"{'':20}{'s':>8}{'times as fast':>15}{'fertility':>12}{'difference':>12}"
        "  md5 of the tokens"
    )
    for name, seconds, fertility, digest in rows:
        ratio, difference = peer_seconds / seconds, fertility / peer_fertility - 1
        print(f"{name:20}{seconds:8.1f}{ratio:15.1f}{fertility:12.4f}{difference:12.2%}  {digest}")


def learn_made_up(num_words: int, seed: int) -> None:
    words, counts = make_words(num_words, seed)
    before = peak_mb()
    begin = time.process_time()
    tokens, report = learn_wordpiece(words, counts, size=SIZE, min_frequency=MIN_FREQUENCY)
    seconds = time.process_time() - begin
    digest = hashlib.md5("\n".join(tokens).encode()).hexdigest()[:12]
    left_out = f"the {report.num_words_rare:,} rarest left out"
    print(
        f"{num_words:,} distinct words ({left_out}): "
        f"{len(tokens):,} tokens in {seconds:.1f} s, md5 {digest}"
    )
    print(f"peak of the process {peak_mb():,.0f} MB, {before:,.0f} MB before the learning")


def make_words(num_words: int, seed: int) -> tuple[pa.ChunkedArray, np.ndarray]:
    """Return distinct words of 3 to 14 Latin letters of uneven frequency, and their counts, highest
    first.
    """
    rng = np.random.default_rng(seed)
    shares = 1 / np.arange(1, 27)
    distinct: list[pa.Array] = []
    while sum(map(len, distinct)) < num_words:
        lengths = rng.integers(3, 15, min(2 * num_words, 1 << 20))
        letters = rng.choice(
            np.frombuffer(b"etaoinshrdlcumwfgypbvkjxqz", np.uint8),
            lengths.sum(),
            p=shares / shares.sum(),
        )
        offsets = np.append(0, np.cumsum(lengths)).astype(np.int32)
        made = pa.StringArray.from_buffers(
            len(lengths), pa.py_buffer(offsets), pa.py_buffer(letters)
        )
        distinct = [pc.call_function("unique", [pa.chunked_array([*distinct, made])])]
    counts = np.maximum(20 * num_words // np.arange(1, num_words + 1), 1)
    counts[num_words // 2 :] = 1  # in real text half of the words occur once
    return pa.chunked_array([distinct[0][:num_words]]), counts


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", nargs="?", metavar="PARQUET")
    parser.add_argument("held_out", nargs="?", metavar="HELD_OUT_PARQUET")
    parser.add_argument("--words", type=int)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.words:
        learn_made_up(arguments.words, arguments.seed)
    elif arguments.path:
        main(arguments.path, arguments.held_out)
    else:
        parser.error("give a PARQUET, or --words")
