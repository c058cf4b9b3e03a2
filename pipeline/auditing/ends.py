"""List short last words of sentences that look like abbreviations after which nothing ends."""

from collections import Counter
from itertools import chain, islice

from ..manifests import DocumentsManifest
from ..storage.shards import shard_paths
from ..storage.state import read_manifest
from ..vocabulary.counts import sentences_of


def abbreviated_ends(directory: str) -> list[tuple[str, int]]:
    """Return short words that end sentences more often than they stand elsewhere, and how often."""
    ends = Counter()
    elsewhere = Counter()
    manifest = read_manifest(directory, DocumentsManifest)
    arrays = chain.from_iterable(map(sentences_of, shard_paths(directory, manifest, "train")))
    sentences = chain.from_iterable(array.to_pylist() for array in arrays)
    for sentence in islice(sentences, 200_000):  # of the first documents, in random order
        *words, last = sentence.split() or [""]  # blank in a table of others
        elsewhere.update(word.strip(",;:!?()'\"“”‘’«»") for word in words)
        word = last.removesuffix(".")
        letters = word.replace(".", "")  # of "t.ex"
        if word != last and letters.isalpha() and len(letters) <= 5:
            ends[word] += 1
    often = [(word, times) for word, times in ends.most_common() if times >= 5]
    # The first few, which somebody reads through.
    return [(word, times) for word, times in often if times > elsewhere[word]][:20]
