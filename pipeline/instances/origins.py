"""Group the documents of a shard by their origin: only those of one group exchange segments.

The B of a NotNext pair comes from the same source and language as its A, as an IsNext's does;
otherwise a model could tell the label from the language alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from ..languages import UNKNOWN


@dataclass(frozen=True)
class Origins:
    """The source and language of each document: indices of the names, int64 [num_documents]."""

    source: np.ndarray
    language: np.ndarray
    source_names: list[str]
    language_names: list[str]


def origins_of(documents: pa.Table) -> Origins:
    """Return the origins of documents, by their columns ``source`` and ``language``."""
    source = documents["source"].combine_chunks().dictionary_encode()
    language = documents["language"].combine_chunks().dictionary_encode()
    return Origins(
        source=source.indices.to_numpy().astype(np.int64),
        language=language.indices.to_numpy().astype(np.int64),
        source_names=source.dictionary.to_pylist(),
        language_names=language.dictionary.to_pylist(),
    )


def assume_languages(origins: Origins, lengths: np.ndarray) -> Origins:
    """Give documents of unknown language the most frequent language of their source, by tokens.

    Otherwise two books without a language among a hundred English ones would be too few to exchange
    segments, and their pairs with English books would look like a change of language.
    """
    if UNKNOWN not in origins.language_names:
        return origins
    unknown = origins.language_names.index(UNKNOWN)
    num_sources = len(origins.source_names)
    num_languages = len(origins.language_names)
    # Tokens by source (S) and language (L): number the cells of the table, sum, then fold.
    cell = origins.source * num_languages + origins.language
    tokens = np.bincount(cell, lengths, num_sources * num_languages)
    tokens_SL = tokens.reshape(num_sources, num_languages)
    tokens_SL[:, unknown] = 0
    most_frequent_S = tokens_SL.argmax(axis=1)
    is_any_known_S = tokens_SL.any(axis=1)
    likely_S = np.where(is_any_known_S, most_frequent_S, unknown)
    is_unknown = origins.language == unknown
    language = np.where(is_unknown, likely_S[origins.source], origins.language)
    return replace(origins, language=language)


def document_weights(origins: Origins, weights: Mapping[tuple[str, str], float]) -> np.ndarray:
    """Return how often a pass reads each document, float: once, unless `weights` has its origin."""
    weight_of_document = np.ones(len(origins.source))
    for (source, language), weight in weights.items():
        if source in origins.source_names and language in origins.language_names:
            is_chosen = origins.source == origins.source_names.index(source)
            is_chosen &= origins.language == origins.language_names.index(language)
            weight_of_document[is_chosen] = weight
    return weight_of_document


def copies_in_pass(
    weights: np.ndarray, lengths: np.ndarray, duplicate: int, rng: np.random.Generator
) -> np.ndarray:
    """Return how often pass `duplicate` holds each document, int64 [num_documents].

    On average that is its weight: over all passes a document is read (weight x passes) times,
    rounded down or up. Documents of similar length are rounded alternately, so that the tokens have
    the shares of the weights too; `rng` is the same for all passes.
    """
    # Number the documents by weight, then length: neighbours in this order get phases far apart,
    # and so are rounded differently.
    by_weight_and_length = np.lexsort((lengths, weights))
    rank = np.empty(len(weights), np.int64)
    rank[by_weight_and_length] = np.arange(len(weights))
    # Multiples of the golden ratio's fractional part spread evenly from 0 to 1 (Weyl's sequence).
    phase = (rng.random() + 0.6180339887498949 * rank) % 1
    # A pass holds a document whenever ``weight x passes so far + phase`` steps over an integer. A
    # weight of 0.4:
    #
    #   duplicate           0     1     2     3     4
    #   weight x passes     0.4   0.8   1.2   1.6   2.0      after it
    #   copies, phase 0     0     0     1     0     1
    #   copies, phase 0.5   0     1     0     1     0
    copies_before = np.floor(weights * duplicate + phase)
    copies_after = np.floor(weights * (duplicate + 1) + phase)
    return (copies_after - copies_before).astype(np.int64)


def partner_groups(
    origins: Origins, lengths: np.ndarray, negatives: str, row_tokens: int
) -> np.ndarray:
    """Return a group for each document, int64 [num_documents]: those of one may exchange segments.

    `lengths` are the documents' tokens. Groups that hold few rows of `row_tokens`, or mostly one
    document, are widened: from the source to the language, and from that to all.
    """
    everything = np.zeros(len(lengths), np.int64)
    if negatives == "any":
        return everything
    group = origins.language
    if negatives == "same-source":
        num_sources = len(origins.source_names)
        language_and_source = origins.language * num_sources + origins.source
        group = _widened(language_and_source, origins.language, lengths, row_tokens)
    return _widened(group, everything, lengths, row_tokens)


def _widened(
    group: np.ndarray, wider: np.ndarray, lengths: np.ndarray, row_tokens: int
) -> np.ndarray:
    """Unite the groups of one `wider` group that are too small with each other, or else with its
    largest; return the group of each document. Suffix G marks arrays by group.
    """
    # Number the groups 0, 1, 2, …
    names_G, group = np.unique(group, return_inverse=True)
    wider_G = np.zeros(len(names_G), np.int64)
    wider_G[group] = wider
    totals_G, is_small_G = _sizes(group, lengths, row_tokens)
    # Small groups join each other first, so that a large one stays pure:
    #
    #   wider      en                           ko
    #   groups     enwiki (large)  a   b        kowiki (large)  c
    #   first      enwiki          a + b        kowiki          c
    #   then       enwiki + a + b               kowiki + c          if still too small
    united_G = np.arange(len(names_G))
    for wider_group in np.unique(wider_G[is_small_G]).tolist():
        is_inside_G = wider_G == wider_group
        small = np.flatnonzero(is_small_G & is_inside_G)
        large = np.flatnonzero(~is_small_G & is_inside_G)
        union = small[0]
        united_G[small] = union
        _, is_still_small_G = _sizes(united_G[group], lengths, row_tokens)
        if is_still_small_G[union] and len(large):
            largest = large[totals_G[large].argmax()]
            united_G[small] = largest
    return united_G[group]


def _sizes(
    group: np.ndarray, lengths: np.ndarray, row_tokens: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return each group's tokens, and whether they are too few to exchange segments within it."""
    totals_G = np.bincount(group, lengths)
    longest_G = np.zeros(len(totals_G))
    np.maximum.at(longest_G, group, lengths)
    # In fewer, the Bs that are exchanged differ so much in length that rows are cut.
    has_few_rows_G = totals_G < 16 * row_tokens
    # The others have too few segments to exchange with such a document.
    is_mostly_one_G = longest_G > 2 / 3 * totals_G
    # Groups without tokens have nothing to exchange; they need no partners.
    is_small_G = (totals_G > 0) & (has_few_rows_G | is_mostly_one_G)
    return totals_G, is_small_G
