"""List short last words of sentences that look like abbreviations after which nothing ends."""

from collections import Counter

from ..manifests import DocumentsManifest
from ..storage.shards import open_shard, shard_paths
from ..storage.state import read_manifest


def abbreviated_ends(directory: str) -> list[tuple[str, int]]:
    """Return words of at most five letters whose full stop ends a sentence at least five times,
    more often than they stand elsewhere without one; with these times, the most first.
    """
    num_sentences_enough = 200_000  # of the first documents, which are in random order
    ends: Counter[str] = Counter()
    elsewhere: Counter[str] = Counter()
    manifest = read_manifest(directory, DocumentsManifest)
    num_sentences = 0
    for path in shard_paths(directory, manifest, "train"):
        with open_shard(path, "ingest") as file:
            for batch in file.iter_batches(1000, columns=["sentences"]):
                sentences = batch.column(0).flatten().to_pylist()
                num_sentences += len(sentences)
                for sentence in sentences:
                    *words, last = sentence.split() or [""]  # blank in a table of others
                    elsewhere.update(word.strip(",;:!?()'\"“”‘’«»") for word in words)
                    word = last.removesuffix(".")
                    letters = word.replace(".", "")  # of "t.ex"
                    if word != last and letters.isalpha() and len(letters) <= 5:
                        ends[word] += 1
                if num_sentences >= num_sentences_enough:
                    break
        if num_sentences >= num_sentences_enough:
            break
    often = [(word, times) for word, times in ends.most_common() if times >= 5]
    # The first few, which somebody reads through.
    return [(word, times) for word, times in often if times > elsewhere[word]][:20]
