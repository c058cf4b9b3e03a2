"""Tokenise sentences by a peer, one thread, and compare its ids with ours.

    python encode.py PEER VOCABULARY SENTENCES IDS [STEP]

SENTENCES is a text with one a line, IDS our ids of them with their offsets. A peer without a cache
takes the same time for each sentence, so that every STEP-th is enough.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

# Before anything starts a thread pool.
os.environ.update(TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1", OMP_NUM_THREADS="1")

import numpy as np

Encode = Callable[[], Sequence[Sequence[int]]]


def tokenizers(vocabulary: Path, texts: list[str], _: Path) -> Encode:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(vocabulary / "tokenizer.json"))
    return lambda: [
        encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    ]


def kitoken(vocabulary: Path, texts: list[str], _: Path) -> Encode:
    from kitoken import Kitoken

    tokenizer = Kitoken.from_file(str(vocabulary / "tokenizer.json"))
    return lambda: [tokenizer.encode(text, False) for text in texts]


def flash_tokenizer(vocabulary: Path, texts: list[str], _: Path) -> Encode:
    from flash_tokenizer import BertTokenizerFlash

    tokenizer = BertTokenizerFlash(str(vocabulary / "vocab.txt"), do_lower_case=True)
    # [CLS] and [SEP] come with them, and a batch would be padded.
    most_tokens = 1 << 20
    return lambda: [
        tokenizer.tokenizer.encode(text, "longest", most_tokens)[1:-1] for text in texts
    ]


def tiktoken(vocabulary: Path, texts: list[str], _: Path) -> Encode:
    from tiktoken import Encoding

    model = json.loads((vocabulary / "tokenizer.json").read_text("utf-8"))["model"]
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    byte_of = {chr(byte): byte for byte in shown}
    others = (byte for byte in range(256) if byte not in shown)
    byte_of |= {chr(0x100 + place): byte for place, byte in enumerate(others)}
    ranks = {
        bytes(map(byte_of.__getitem__, token)): rank
        for token, rank in model["vocab"].items()
        if byte_of.keys() >= set(token)
    }
    pattern = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    encoding = Encoding("ours", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    spaced = [" " + text for text in texts]
    return lambda: encoding.encode_ordinary_batch(spaced, num_threads=1)


def gigatoken(vocabulary: Path, _: list[str], sentences: Path) -> Encode:
    import gigatoken

    tokenizer = gigatoken.Tokenizer(str(vocabulary / "tokenizer.json"))
    source = gigatoken.TextFileSource([str(sentences)], separator="\n")
    return lambda: tokenizer.encode_files(source, parallel=False)


PEERS = {
    "flash-tokenizer": flash_tokenizer,
    "gigatoken": gigatoken,
    "kitoken": kitoken,
    "tiktoken": tiktoken,
    "tokenizers": tokenizers,
}


def main(peer: str, vocabulary: str, sentences: str, ids: str, step: str = "1") -> None:
    texts = Path(sentences).read_text("utf-8").split("\n")[:: int(step)]
    encode = PEERS[peer](Path(vocabulary), texts, Path(sentences))
    seconds = []
    for _ in range(2):
        begin = time.process_time()
        encoded = encode()
        seconds.append(time.process_time() - begin)
    with np.load(ids) as archive:
        our_ids, offsets = archive["ids"], archive["offsets"]
    num_tokens = 0
    num_different = 0
    places = range(0, len(offsets) - 1, int(step))
    for place, theirs in zip(places, encoded, strict=True):
        num_tokens += len(theirs)
        start, stop = offsets[place : place + 2]
        num_different += list(theirs) != our_ids[start:stop].tolist()
    print(
        json.dumps(
            {
                "version": version(peer),
                "cold": num_tokens / seconds[0],
                "warm": num_tokens / seconds[1],
                "num_different": num_different,
                "num_sentences": len(texts),
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
