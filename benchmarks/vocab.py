"""Learn vocabularies of 30,522: word counts and our trainer, against `BertWordPieceTokenizer` and
`ByteLevelBPETokenizer`, all on one core.

    python -m benchmarks.vocab PARQUET [HELD_OUT_PARQUET]

PARQUET files have a column ``sentences`` (documents) or ``text`` (read by line). A fifth of the
first file is learned from, then all of it. The fertility of the two WordPiece vocabularies (tokens
per word) is measured on the held-out file, or else on the same. Times are CPU time, so other work
on the machine does not count.

    python -m benchmarks.vocab --words 10000000 [--seed 0]

instead learns from that many distinct made-up words, with counts by Zipf's law, and prints time and
memory.
"""

import argparse
import hashlib
import os
import resource
import time
from collections.abc import Callable

# Before anything starts a thread pool: one core for each side.
os.environ.update(TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1", OMP_NUM_THREADS="1")

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from clozeworks.pipeline.vocabulary.byte_level import ByteLevelSplitter, byte_level_tokenizer
from clozeworks.pipeline.vocabulary.fertility import fertility_report
from clozeworks.pipeline.vocabulary.normalization import Normalization
from clozeworks.pipeline.vocabulary.tokenize import Speller, count_words
from clozeworks.pipeline.vocabulary.vocabulary import Vocabulary
from clozeworks.pipeline.vocabulary.wordpiece import learn_pieces
from tokenizers import BertWordPieceTokenizer, ByteLevelBPETokenizer
from tokenizers import __version__ as tokenizers_version

from .peers import print_figure

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


def learn_wordpiece_here(sentences: pa.ChunkedArray) -> list[str]:
    table = count_words(sentences.chunks, Speller(UNCASED))
    tokens, _, _ = learn_pieces(
        table["word"], table["count"].to_numpy(), size=SIZE, min_frequency=MIN_FREQUENCY
    )
    return tokens


def learn_bpe_here(sentences: pa.ChunkedArray) -> list[str]:
    splitter = ByteLevelSplitter(byte_level_tokenizer([], [], UNCASED, []))
    table = count_words(sentences.chunks, splitter)
    tokens, _, _ = learn_pieces(
        table["word"],
        table["count"].to_numpy(),
        size=SIZE,
        min_frequency=MIN_FREQUENCY,
        of_bytes=True,
    )
    return tokens


def learn_there(
    sentences: pa.ChunkedArray, peer: BertWordPieceTokenizer | ByteLevelBPETokenizer
) -> list[str]:
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
    everything = read_sentences(path)
    held_out = count_words(read_sentences(held_out_path or path).chunks, Speller(UNCASED))
    for sentences in (everything.slice(0, len(everything) // 5), everything):
        lengths = pc.call_function("binary_length", [sentences])
        megabytes = pc.call_function("sum", [lengths]).as_py() / 1e6
        wordpiece, seconds = timed(learn_wordpiece_here, sentences)
        theirs, peer_seconds = timed(
            lambda texts: learn_there(texts, BertWordPieceTokenizer(lowercase=True)), sentences
        )
        ours, peers = (
            fertility_report(held_out, Vocabulary(tuple(tokens), UNCASED)).tokens_per_word
            for tokens in (wordpiece, theirs)
        )
        print_seconds(
            f"WordPiece from {megabytes:.0f} MB, {ours:.4f} and {peers:.4f} tokens a word",
            seconds,
            "BertWordPieceTokenizer",
            peer_seconds,
        )
        _, seconds = timed(learn_bpe_here, sentences)
        _, peer_seconds = timed(
            lambda texts: learn_there(texts, ByteLevelBPETokenizer(lowercase=True)), sentences
        )
        print_seconds(
            f"byte-level BPE from {megabytes:.0f} MB",
            seconds,
            "ByteLevelBPETokenizer",
            peer_seconds,
        )


def timed(
    learn: Callable[[pa.ChunkedArray], list[str]], sentences: pa.ChunkedArray
) -> tuple[list[str], float]:
    """Return the tokens that are learned, and the seconds of CPU time."""
    begin = time.process_time()
    tokens = learn(sentences)
    return tokens, time.process_time() - begin


def print_seconds(what: str, seconds: float, peer: str, peer_seconds: float) -> None:
    print_figure(
        f"learn {SIZE:,} tokens of {what}",
        f"{seconds:.1f} s",
        f"`tokenizers` {tokenizers_version}, `{peer}`, one thread",
        f"{peer_seconds:.1f} s",
        peer_seconds / seconds,
    )


def learn_made_up(num_words: int, seed: int) -> None:
    words, counts = make_words(num_words, seed)
    before = peak_mb()
    begin = time.process_time()
    tokens, _, report = learn_pieces(words, counts, size=SIZE, min_frequency=MIN_FREQUENCY)
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
