"""Learn vocabularies of 30,522 tokens, beside the trainers of `tokenizers` and gigatoken, one
thread each, from a fifth of the text and from all of it. CPU time, without start-up.
"""

import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import tokenizers
from clozeworks.pipeline.vocabulary.byte_level import ByteLevelSplitter, byte_level_tokenizer
from clozeworks.pipeline.vocabulary.fertility import fertility_report
from clozeworks.pipeline.vocabulary.normalization import Normalization
from clozeworks.pipeline.vocabulary.tokenize import Speller, count_words
from clozeworks.pipeline.vocabulary.vocabulary import Vocabulary
from clozeworks.pipeline.vocabulary.wordpiece import learn_pieces
from tokenizers import BertWordPieceTokenizer, ByteLevelBPETokenizer

from .environments import run_script
from .inputs import Inputs
from .table import Row, peer_row

SIZE = 30_522
MIN_FREQUENCY = 2
UNCASED = Normalization(lowercase=True, strip_accents=True)
CASED = Normalization(lowercase=False, strip_accents=False)


def rows(inputs: Inputs) -> Iterator[Row]:
    pa.set_cpu_count(1)
    everything = inputs.sentences()
    held_out = count_words(everything.chunks, Speller(UNCASED))
    there = f"`tokenizers` {tokenizers.__version__},"
    for sentences in (everything.slice(0, len(everything) // 5), everything):
        megabytes = sum(chunk.nbytes for chunk in sentences.chunks) / 1e6
        ours, seconds = timed(lambda texts: learn_here(texts, of_bytes=False), sentences)
        theirs, peer_seconds = timed(
            lambda texts: learn_there(texts, BertWordPieceTokenizer(lowercase=True)), sentences
        )
        fertilities = [
            fertility_report(held_out, Vocabulary(tuple(tokens), UNCASED)).tokens_per_word
            for tokens in (ours, theirs)
        ]
        note = "{:.3f} tokens a word (theirs {:.3f})".format(*fertilities)
        peer = f"{there} `BertWordPieceTokenizer`"
        what = f"learn {SIZE:,} tokens of WordPiece from {megabytes:.0f} MB"
        yield Row(what, seconds, peer, peer_seconds, "s", note)
        _, seconds = timed(lambda texts: learn_here(texts, of_bytes=True), sentences)
        _, peer_seconds = timed(
            lambda texts: learn_there(texts, ByteLevelBPETokenizer()), sentences
        )
        what = f"learn {SIZE:,} tokens of byte-level BPE from {megabytes:.0f} MB"
        yield Row(what, seconds, f"{there} `ByteLevelBPETokenizer`", peer_seconds, "s")
        path = inputs.work / "to-learn.txt"
        path.write_text("\n".join(sentences.to_pylist()), "utf-8")
        result = run_script(inputs.peers, "venv", "learn", path, SIZE)
        what += ", beside gigatoken"
        yield peer_row(what, seconds, "gigatoken", "`train_bpe`", result, "s")


def learn_here(sentences: pa.ChunkedArray, *, of_bytes: bool) -> list[str]:
    speller = Speller(UNCASED)
    if of_bytes:
        speller = ByteLevelSplitter(byte_level_tokenizer([], [], CASED, []))
    table = count_words(sentences.chunks, speller)
    tokens, _, _ = learn_pieces(
        table["word"],
        table["count"].to_numpy(),
        size=SIZE,
        min_frequency=MIN_FREQUENCY,
        of_bytes=of_bytes,
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


def timed(
    learn: Callable[[pa.ChunkedArray], list[str]], sentences: pa.ChunkedArray
) -> tuple[list[str], float]:
    """Return the tokens that are learned, and the seconds of CPU time."""
    begin = time.process_time()
    tokens = learn(sentences)
    return tokens, time.process_time() - begin
