"""Find machine-made articles: those of a template, which differ in names and numbers alone.

In a sentence all numbers, and all words but the most frequent ones of the language, are masked;
runs of masks count as one. What is left is the form of the sentence::

    Loinni is a village in Hadrani County, Kansas. The population was 2,144 in 2010.
    _ is a _ in _                                  the _ was _ in _

A document is machine-made if at least half of it stands in sentences whose forms are found in more
than twenty others (arXiv 2411.05527, 2604.25384). The documents are read twice, to count forms and
to judge; forms share 128 MB of counters by their hashes, as in a count-min sketch.
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from .. import storage
from ..manifests import DocumentsManifest
from ..ragged import begins_run, offsets_in, offsets_of, owners, places, sums
from ..storage.directory import write_file
from ..storage.shards import BATCH_ROWS, open_shard
from ..storage.state import MACHINE_MADE, read_manifest
from .overlap import BASE, powers, words_of

COUNTER_BITS = 25


class _Forms(NamedTuple):
    """Of sentences: the form's counter, 0 if too few words are left; words and masks; document."""

    counters: np.ndarray
    num_words: np.ndarray
    documents: np.ndarray


def find_machine_made(directory: str, num_others: int = 20) -> tuple[list[str], int]:
    """Write a list of machine-made documents; return their ids, and the number of all documents."""
    manifest = read_manifest(directory, DocumentsManifest)
    paths = [storage.join(directory, shard.name) for shard in manifest.shards]
    frequent = _frequent_words(paths, num_others)
    counts = np.zeros(1 << COUNTER_BITS, np.uint32)
    doc_ids = []
    # NumPy and Arrow release Python's lock while they compute.
    with ThreadPoolExecutor(min(os.cpu_count() or 1, 8)) as executor:
        for counters in executor.map(lambda path: _counters_in(path, frequent), paths):
            np.add.at(counts, counters, 1)
        is_shared = counts > num_others
        is_shared[0] = False
        for found in executor.map(lambda path: _find_in(path, frequent, is_shared), paths):
            doc_ids += found
    if doc_ids:
        with write_file(storage.join(directory, MACHINE_MADE)) as file:
            for doc_id in doc_ids:
                file.write(json.dumps({"doc_id": doc_id}).encode() + b"\n")
    return doc_ids, sum(shard.rows for shard in manifest.shards)


def _batches(path: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield documents of a shard that are of one language, with the language."""
    columns = ["doc_id", "language", "sentences"]
    with open_shard(path, "ingest") as file:
        for batch in file.iter_batches(BATCH_ROWS, columns=columns, use_threads=False):
            languages = batch["language"].to_numpy(zero_copy_only=False)
            for language in np.unique(languages):
                yield language, batch.filter(pa.array(languages == language))


def _sentence_words(sentences: pa.ListArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the hash of each word, uint64, and the first word of each sentence."""
    texts = sentences.flatten()
    offsets = pa.array(np.arange(len(texts) + 1, dtype=np.int32))
    words = words_of(pa.ListArray.from_arrays(offsets, texts))
    hashes = words.hashes(np.arange(len(words.starts) - 1), 1)
    return hashes, words.first_words


def _frequent_words(paths: list[str], num_others: int) -> Mapping[str, np.ndarray]:
    """Return the hashes of the most frequent words of each language."""
    most_words = 4_000_000  # of the first documents, which are in random order
    hashes_by_language: defaultdict[str, list[np.ndarray]] = defaultdict(list)
    for language, batch in (pair for path in paths for pair in _batches(path)):
        hashes, _ = _sentence_words(batch["sentences"])
        hashes_by_language[language].append(hashes)
        most_words -= len(hashes)
        if most_words < 0:
            break
    numbers = [[f"{number:0{width}}"] for width in (1, 2, 3, 4) for number in range(10**width)]
    number_hashes, _ = _sentence_words(pa.array(numbers))
    frequent: dict[str, np.ndarray] = defaultdict(lambda: np.empty(0, np.uint64))
    for language, hashes in hashes_by_language.items():
        words, times = np.unique(np.concatenate(hashes), return_counts=True)
        # A word that is rarer cannot stand in so many documents.
        is_word = ~np.isin(words, number_hashes) & (times > num_others)
        order = np.argsort(-times[is_word], kind="stable")
        # With 100 or 300 words, sentences of a template differ by words like "north", and fewer are
        # found (benchmarks/results/2026-11-30-machine-made.md).
        frequent[language] = words[is_word][order[:50]]
    return frequent


def _forms(sentences: pa.ListArray, frequent: np.ndarray) -> _Forms:
    hashes, first_words = _sentence_words(sentences)
    sentence_of_word = owners(np.diff(first_words, append=len(hashes)))
    is_kept = np.isin(hashes, frequent)
    # The second and later masks of a run are left out.
    stays = begins_run(sentence_of_word) | is_kept
    stays[1:] |= is_kept[:-1]
    parts = np.where(is_kept, hashes, np.uint64(1))[stays]  # no word has this hash: a mask
    num_parts = np.bincount(sentence_of_word[stays], minlength=len(first_words))
    terms = parts * powers(BASE, len(parts) + 1)[places(num_parts)]
    counters = sums(terms.view(np.int64), offsets_of(num_parts)) >> (64 - COUNTER_BITS)
    # Fewer words, as in "_ was in _", stand in any text.
    is_judged = np.bincount(sentence_of_word, is_kept, len(first_words)) >= 5
    return _Forms(
        counters=np.where(is_judged, counters % (1 << COUNTER_BITS), 0),
        num_words=num_parts,
        documents=owners(np.diff(offsets_in(sentences))),
    )


def _forms_in(
    path: str, frequent: Mapping[str, np.ndarray]
) -> Iterator[tuple[pa.RecordBatch, _Forms]]:
    for language, batch in _batches(path):
        yield batch, _forms(batch["sentences"], frequent[language])


def _counters_in(path: str, frequent: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the counters of the forms in a shard, once for each document with the form."""
    counters = [np.empty(0, np.int64)]
    for _, forms in _forms_in(path, frequent):
        pairs = np.unique((forms.documents << COUNTER_BITS) + forms.counters)
        counters.append(pairs % (1 << COUNTER_BITS))
    return np.concatenate(counters)


def _find_in(path: str, frequent: Mapping[str, np.ndarray], is_shared: np.ndarray) -> list[str]:
    """Return the ids of documents at least half of whose words have a form that is shared."""
    doc_ids = []
    for batch, forms in _forms_in(path, frequent):
        words_made = is_shared[forms.counters] * forms.num_words
        num_made = np.bincount(forms.documents, words_made, len(batch))
        num_words = np.bincount(forms.documents, forms.num_words, len(batch))
        chosen = (num_made > 0) & (num_made >= 0.5 * num_words)
        doc_ids += batch["doc_id"].filter(pa.array(chosen)).to_pylist()
    return doc_ids
