"""Group the documents of a shard by their origin: only those of one group exchange segments.

The B of a NotNext pair comes from the same source and language as its A, as an IsNext's does;
otherwise a model could tell the label from the language alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from ..languages import UNKNOWN

MIN_ROWS = 16  # with fewer, the Bs that are exchanged differ so much in length that rows are cut
MAX_DOCUMENT_SHARE = (
    2 / 3
)  # beyond it, the other documents have too few segments to exchange with the largest one
_GOLDEN = 0.6180339887498949  # multiples of it spread evenly between 0 and 1


@dataclass(frozen=True)
class Origins:
    """The origin of each document: indices of `source_names` and `language_names`, int64
    [num_documents].
    """

    source: np.ndarray
    language: np.ndarray
    source_names: list[str]
    language_names: list[str]


def origins_of(documents: pa.Table) -> Origins:
    """Return the origins of documents, by their columns ``source`` and ``language``."""
    source, language = (
        documents[name].combine_chunks().dictionary_encode() for name in ("source", "language")
    )
    return Origins(
        source=source.indices.to_numpy().astype(np.int64),
        language=language.indices.to_numpy().astype(np.int64),
        source_names=source.dictionary.to_pylist(),
        language_names=language.dictionary.to_pylist(),
    )


def assume_languages(origins: Origins, lengths: np.ndarray) -> Origins:
    """Return origins in which a document of unknown language has the one of most other tokens of
    its source, if any.

    Otherwise two books without a language among a hundred English ones would be too few to exchange
    segments, and their pairs with English books would look like a change of language.
    """
    if UNKNOWN not in origins.language_names:
        return origins
    unknown, num_languages = origins.language_names.index(UNKNOWN), len(origins.language_names)
    size = len(origins.source_names) * num_languages
    tokens_SL = np.bincount(
        origins.source * num_languages + origins.language, lengths, size
    ).reshape(-1, num_languages)
    tokens_SL[:, unknown] = 0
    likely_S = np.where(tokens_SL.any(axis=1), tokens_SL.argmax(axis=1), unknown)
    return replace(
        origins,
        language=np.where(origins.language == unknown, likely_S[origins.source], origins.language),
    )


def document_weights(origins: Origins, weights: Mapping[tuple[str, str], float]) -> np.ndarray:
    """Return how often a pass reads each document, float [num_documents]: 1 unless `weights` has
    its origin.
    """
    table = [
        [weights.get((source, language), 1.0) for language in origins.language_names]
        for source in origins.source_names
    ]
    return np.array(table).reshape(len(table), len(origins.language_names))[
        origins.source, origins.language
    ]


def copies_in_pass(
    weights: np.ndarray, lengths: np.ndarray, duplicate: int, rng: np.random.Generator
) -> np.ndarray:
    """Return how often pass `duplicate` holds each document, int64 [num_documents], on average its
    weight.

    Over all passes a document is read (weight x passes) times, rounded down or up. Documents of
    similar length are rounded alternately, so that the tokens have the shares of the weights too;
    `rng` is the same for all passes.
    """
    phase = np.empty(len(weights))
    phase[np.lexsort((lengths, weights))] = (rng.random() + _GOLDEN * np.arange(len(weights))) % 1
    return (
        np.floor(weights * (duplicate + 1) + phase) - np.floor(weights * duplicate + phase)
    ).astype(np.int64)


def partner_groups(
    origins: Origins, lengths: np.ndarray, negatives: str, row_tokens: int
) -> np.ndarray:
    """Return a number for each document, int64 [num_documents]: equal for those that may exchange
    segments.

    `lengths` are the documents' tokens. Groups that hold less than `MIN_ROWS` rows of `row_tokens`,
    or mostly one document, are widened: from the source to the language, and from that to all.
    """
    everything = np.zeros(len(lengths), np.int64)
    if negatives == "any":
        return everything
    group = origins.language
    if negatives == "same-source":
        group = _widened(
            origins.language * len(origins.source_names) + origins.source,
            group,
            lengths,
            row_tokens,
        )
    return _widened(group, everything, lengths, row_tokens)


def _widened(
    group: np.ndarray, wider: np.ndarray, lengths: np.ndarray, row_tokens: int
) -> np.ndarray:
    """Unite the groups that are too small: those of one `wider` group with each other, or else with
    its largest.
    """
    names, group = np.unique(group, return_inverse=True)
    wider_of = np.zeros(len(names), np.int64)
    wider_of[group] = wider
    totals, small = _sizes(group, lengths, row_tokens)
    united = np.arange(len(names))
    for level in np.unique(wider_of[small]).tolist():
        ours = np.flatnonzero(small & (wider_of == level))
        others = np.flatnonzero(~small & (wider_of == level))
        united[ours] = ours[0]
        _, still_small = _sizes(united[group], lengths, row_tokens)
        if still_small[ours[0]] and len(others):
            united[ours] = others[totals[others].argmax()]
    return united[group]


def _sizes(
    group: np.ndarray, lengths: np.ndarray, row_tokens: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens of each group, and whether they are too few to exchange segments within it."""
    totals = np.bincount(group, lengths)
    largest = np.zeros(len(totals))
    np.maximum.at(largest, group, lengths)
    return totals, (totals > 0) & (
        (totals < MIN_ROWS * row_tokens) | (largest > MAX_DOCUMENT_SHARE * totals)
    )
