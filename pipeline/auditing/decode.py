"""Decode instances into readable form: tokens with their roles in the row."""

from collections.abc import Callable, Generator, Iterator, Sequence, Set
from contextlib import closing
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from .. import storage
from ..errors import UserError
from ..instances.rows import Rows, sequences
from ..manifests import DocumentsManifest, InstancesManifest
from ..schemas import DOCUMENTS
from ..storage.shards import checked, open_shard, read_columns
from ..storage.stage import read_manifest
from ..vocabulary.files import read_vocabulary
from ..vocabulary.vocabulary import Vocabulary
from .measures import read_batch

T = TypeVar("T")
BATCH_ROWS = 16

Role = Literal["special", "a", "b", "mask", "random", "kept"]


class Token(NamedTuple):
    """A token of a row: the `text` of its piece, its `role`, and the `original` before masking."""

    text: str
    role: Role
    segment: Literal["a", "b"]
    original: str


def label_names(pairing: str) -> tuple[str, str]:
    """Return the meanings of labels 0 and 1."""
    if pairing == "sop":
        return "in order", "swapped"
    if pairing == "none":
        return "one segment", "–"
    return "IsNext", "NotNext"


class Instance(NamedTuple):
    """A row with its tokens as people read them; of packed rows one of their documents."""

    tokens: list[Token]
    label: int
    document_a: int
    document_b: int
    duplicate: int

    @property
    def num_masked(self) -> int:
        """Tokens to predict."""
        return sum(token.role in ("mask", "random", "kept") for token in self.tokens)


def decode_rows(rows: Rows, vocabulary: Vocabulary) -> Iterator[Instance]:
    """Yield each of `rows`, which have their documents and pass, as text."""
    assert rows.document_a is not None and rows.document_b is not None
    assert rows.duplicate is not None
    rows_of_tokens = _tokens_of_rows(rows, vocabulary)
    columns = (rows.next_sentence_label, rows.document_a, rows.document_b, rows.duplicate)
    for tokens, *values in zip(rows_of_tokens, *map(np.ndarray.tolist, columns), strict=True):
        yield Instance(tokens, *values)


def _tokens_of_rows(rows: Rows, vocabulary: Vocabulary) -> Iterator[list[Token]]:
    originals = rows.unmasked_ids()
    is_predicted = np.zeros(len(originals), bool)
    is_predicted[rows.masked_index] = True
    columns = (rows.input_ids, originals, is_predicted)
    for row, b_start in enumerate(rows.segment_b_start.tolist()):
        tokens_of_row = slice(rows.offsets[row], rows.offsets[row + 1])
        values = zip(*(column[tokens_of_row].tolist() for column in columns), strict=True)
        tokens = []
        for position, (token_id, original, predicted) in enumerate(values):
            segment = "b" if position >= b_start else "a"
            role = segment
            if predicted:
                role = _role_of_masked(token_id, original, vocabulary)
            elif token_id in (vocabulary.cls_id, vocabulary.sep_id):
                role = "special"
            text = vocabulary.readable[token_id]
            tokens.append(Token(text, role, segment, vocabulary.readable[original]))
        yield tokens


def _role_of_masked(token_id: int, original: int, vocabulary: Vocabulary) -> Role:
    if token_id == vocabulary.mask_id:
        return "mask"
    if token_id == original:
        return "kept"
    return "random"


class Example(NamedTuple):
    """A row of instances, and the documents of A and B."""

    instance: Instance
    title_a: str
    """The title, or else the id, of A's document; empty if unknown."""
    title_b: str


def first_examples(directory: str, num_rows: int, documents: str | None) -> list[Example]:
    """Return the first rows of the first training shard, with titles if the directory of
    `documents` is known.
    """
    manifest = read_manifest(directory, InstancesManifest)
    vocabulary = read_vocabulary(directory)
    shard = next(shard.name for shard in manifest.shards if shard.split == "train")
    path = storage.join(directory, shard)
    instances = list(_first([path], partial(_instances, vocabulary=vocabulary), num_rows))
    titles: dict[int, str] = {}
    if documents:
        # `document_a` and `document_b` are rows of the shard of documents with the same name.
        wanted = {instance.document_a for instance in instances}
        wanted |= {instance.document_b for instance in instances}
        titles = _titles(storage.join(documents, shard), wanted)
    examples = []
    for instance in instances:
        title_a = titles.get(instance.document_a, "")
        title_b = titles.get(instance.document_b, "")
        examples.append(Example(instance, title_a, title_b))
    return examples


def _titles(path: str, wanted: Set[int]) -> dict[int, str]:
    """Return the titles of some rows of a shard of documents, their ids if they have none."""
    titles: dict[int, str] = {}
    start = 0
    for batch in read_columns(path, "doc_id", "title"):
        stop = start + len(batch)
        for row in wanted:
            if start <= row < stop:
                title = batch["title"][row - start].as_py()
                doc_id = batch["doc_id"][row - start].as_py()
                titles[row] = title or doc_id
        start = stop
    return titles


def first_documents(
    directory: str, manifest: DocumentsManifest, split: str, num_rows: int
) -> Iterator[dict[str, Any]]:
    """Yield the first documents of a split as plain Python values; shards are shuffled, so this is
    a random sample.

    Raise `UserError` if the manifest lists no such split or a shard is damaged.
    """
    paths = _shards_of(directory, manifest, split)
    return _first(paths, _documents, num_rows)


def first_instances(
    directory: str,
    manifest: InstancesManifest,
    split: str,
    num_rows: int,
    vocabulary: Vocabulary,
) -> Iterator[Instance]:
    """Yield the first rows of a split, of packed rows each document; else as `first_documents`."""
    paths = _shards_of(directory, manifest, split)
    return _first(paths, partial(_instances, vocabulary=vocabulary), num_rows)


def _first(
    paths: Sequence[str], read: Callable[[str], Generator[T, None, None]], num_rows: int
) -> Iterator[T]:
    """Yield the first rows of some shards; one is opened once those before it are used up."""
    num_left = num_rows
    for path in paths:
        # Closed where it is left: threads of a reader that outlives the interpreter end the process
        # with an abort, after all output.
        with closing(read(path)) as rows:
            for row in rows:
                yield row
                num_left -= 1
                if num_left == 0:
                    return


def _shards_of(
    directory: str, manifest: DocumentsManifest | InstancesManifest, split: str
) -> list[str]:
    paths = [
        storage.join(directory, shard.name) for shard in manifest.shards if shard.split == split
    ]
    if not paths:
        splits = sorted({shard.split for shard in manifest.shards})
        listed = " and ".join(splits) or "none"
        raise UserError(f"{directory} has no split {split!r}; it has {listed}.")
    return paths


def _documents(path: str) -> Generator[dict[str, Any], None, None]:
    with open_shard(path, "ingest") as file:
        for batch in file.iter_batches(BATCH_ROWS, use_threads=False):
            yield from checked([batch], DOCUMENTS).to_pylist()


def _instances(path: str, vocabulary: Vocabulary) -> Generator[Instance, None, None]:
    with open_shard(path, "build") as file:
        for batch in file.iter_batches(BATCH_ROWS, use_threads=False):
            rows = read_batch(batch, len(vocabulary))
            yield from decode_rows(sequences(rows), vocabulary)
