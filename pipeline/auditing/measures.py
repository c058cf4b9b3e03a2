"""Measure instances from their rows alone, a slice at a time: every measure is a sum, so memory is
that of a slice.
"""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ..config import BuildConfig
from ..instances.masking import find_words, num_to_mask
from ..schemas import SENTENCE_ENDS, instances_schema
from ..seeding import rng_for
from ..storage.shards import checked
from ..vocabulary.vocabulary import Vocabulary

# Repeated rows are found by 64-bit hashes; for a larger corpus only a share of the hashes is kept.
MAX_ROW_HASHES = 20_000_000
# In rows with fewer runs of masked tokens, masks often repeat by chance from pass to pass.
MIN_MASKED_SPANS = 4


@dataclass(frozen=True)
class InstanceRows:
    """Some rows of a shard, flat: `ids` as stored, `restored` with the original tokens at the
    masked positions.

    `positions` are flat indices; `structural` (bool [num_tokens]) marks where [CLS] and [SEP]
    belong.
    """

    ids: np.ndarray
    restored: np.ndarray
    offsets: np.ndarray
    segment_b_start: np.ndarray
    positions: np.ndarray
    mask_counts: np.ndarray
    label: np.ndarray
    document_a: np.ndarray
    document_b: np.ndarray
    duplicate: np.ndarray
    structural: np.ndarray
    num_misplaced: int

    @property
    def lengths(self) -> np.ndarray:
        """Tokens per row, including special tokens."""
        return np.diff(self.offsets)

    @property
    def other_document(self) -> np.ndarray:
        """Whether B comes from another document than A, bool [num_rows]."""
        return self.document_a != self.document_b


def checked_instances(batch: pa.RecordBatch, vocab_size: int) -> pa.RecordBatch:
    """Return a batch of instances in their schema; raise `ValueError` naming the column that does
    not fit.
    """
    rows = checked([batch], instances_schema(vocab_size))
    for name in ("input_ids", "masked_lm_ids"):
        highest = int(rows[name].flatten().to_numpy().max(initial=0))
        if highest >= vocab_size:
            raise ValueError(
                f"column {name}: token id {highest} is beyond the vocabulary's {vocab_size} tokens"
            )
    if (
        not rows["masked_lm_positions"]
        .value_lengths()
        .equals(rows["masked_lm_ids"].value_lengths())
    ):
        raise ValueError("masked_lm_positions and masked_lm_ids have different lengths")
    return rows


def read_rows(rows: pa.RecordBatch) -> InstanceRows:
    """Return the columns of a batch of `checked_instances` as flat arrays.

    Positions out of range are read as the row's first token, a `segment_b_start` out of range as
    the row's length; `num_misplaced` counts both, and the positions that do not ascend.
    """
    ids, offsets = _flat(rows, "input_ids")
    in_row, mask_offsets = _flat(rows, "masked_lm_positions")
    originals, _ = _flat(rows, "masked_lm_ids")
    lengths, mask_counts = np.diff(offsets), np.diff(mask_offsets)
    if lengths.min(initial=3) < 3:
        raise ValueError("a row is shorter than [CLS] and [SEP] around a token")
    misplaced = in_row >= np.repeat(lengths, mask_counts)
    positions = np.where(misplaced, 0, in_row) + np.repeat(offsets[:-1], mask_counts)
    restored = ids.copy()
    restored[positions] = originals
    stored_start = rows["segment_b_start"].to_numpy().astype(np.int64)
    segment_b_start = np.where(
        (stored_start >= 2) & (stored_start <= lengths), stored_start, lengths
    )
    structural = np.zeros(len(ids), bool)
    structural[offsets[:-1]] = structural[offsets[:-1] + segment_b_start - 1] = structural[
        offsets[1:] - 1
    ] = True
    return InstanceRows(
        ids=ids,
        restored=restored,
        offsets=offsets,
        segment_b_start=segment_b_start,
        positions=positions,
        mask_counts=mask_counts,
        label=rows["next_sentence_label"].to_numpy(),
        document_a=rows["document_a"].to_numpy(),
        document_b=rows["document_b"].to_numpy(),
        duplicate=rows["duplicate"].to_numpy(),
        structural=structural,
        num_misplaced=int(
            misplaced.sum()
            + (segment_b_start != stored_start).sum()
            + (np.diff(positions) <= 0).sum()
        ),
    )


def _flat(rows: pa.RecordBatch, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return a list column's values as int64 and its offsets from 0."""
    offsets = rows[name].offsets.to_numpy().astype(np.int64)
    return rows[name].flatten().to_numpy().astype(np.int64), offsets - offsets[0]


def scripts_of(tokens: Sequence[str]) -> tuple[np.ndarray, int]:
    """Return the script of each token, int64 [vocab_size] from 1 on, 0 without letters, and one
    more than the highest.

    Chinese characters and kana are one script, because Japanese mixes them.
    """
    numbers = {"": 0}
    found = []
    for token in tokens:
        letters = () if token.startswith("[") else filter(str.isalpha, token)
        script = next((unicodedata.name(letter, "").split(" ")[0] for letter in letters), "")
        script = "CJK" if script in ("HIRAGANA", "KATAKANA") else script
        found.append(numbers.setdefault(script, len(numbers)))
    return np.array(found), len(numbers)


class Measures:
    """The sums over all rows so far.

    `counts` are plain sums; `passes` counts rows and NotNext rows by (shard, duplicate); `by_label`
    holds histograms int64 [2, values] of a measure of the row by label, `scripts` one of the main
    scripts of A and B; `squares` holds the sums over rows that cluster-robust intervals need;
    `masked_tokens` and `random_tokens`, int64 [vocabulary], count the originals and the random
    tokens.
    """

    def __init__(self, vocabulary: Vocabulary, config: BuildConfig, hash_share: float) -> None:
        self.vocabulary, self.config, self._hash_share = vocabulary, config, hash_share
        self.counts: Counter[str] = Counter()
        self.passes: dict[tuple[str, int], list[int]] = {}
        width = config.max_length + 1
        self.by_label = {
            name: np.zeros((2, width), np.int64)
            for name in ("row length", "length of A", "length of B")
        }
        self.by_label["B ending a sentence"] = np.zeros((2, 2), np.int64)
        self._script_of, self._num_scripts = scripts_of(vocabulary.tokens)
        self.scripts = np.zeros((2, self._num_scripts**2), np.int64)
        self.squares = {name: np.zeros(3) for name in ("mask", "random", "keep")}
        self.masked_tokens = np.zeros(len(vocabulary), np.int64)
        self.random_tokens = np.zeros(len(vocabulary), np.int64)
        self.mask_positions = np.zeros(config.max_length, np.int64)
        self.row_hashes: list[np.ndarray] = []
        self._ends_sentence = np.array([token in SENTENCE_ENDS for token in vocabulary.tokens])
        self._hash_weights = rng_for(0, "row hashes").integers(1, 2**63, width, dtype=np.uint64)

    def add(self, shard: str, rows: InstanceRows) -> None:
        """Count some rows of the named shard."""
        self._add_counts(shard, rows)
        self._add_labels(rows)
        self._add_scripts(rows)
        self._add_special_tokens(rows)
        self._add_masks(rows)
        self._add_words(rows)
        self._add_hashes(rows)

    def _add_counts(self, shard: str, rows: InstanceRows) -> None:
        lengths = rows.lengths
        self.counts.update(
            rows=len(lengths),
            tokens=len(rows.ids),
            text_tokens=int((~rows.structural).sum()),
            unknown_tokens=int((rows.restored == self.vocabulary.unk_id).sum()),
            rows_too_long=int((lengths > self.config.max_length).sum()),
            misplaced=rows.num_misplaced,
            other_labels=int((rows.label > 1).sum()),
            not_next=int((rows.label == 1).sum()),
            not_next_same_document=int((~rows.other_document & (rows.label == 1)).sum()),
            is_next_other_document=int((rows.other_document & (rows.label == 0)).sum()),
            without_b=int((rows.segment_b_start == lengths).sum()),
        )
        for duplicate in np.unique(rows.duplicate).tolist():
            own = rows.label[rows.duplicate == duplicate]
            seen = self.passes.setdefault((shard, duplicate), [0, 0])
            seen[0] += len(own)
            seen[1] += int((own == 1).sum())

    def _add_labels(self, rows: InstanceRows) -> None:
        lengths = rows.lengths
        has_b = rows.segment_b_start < lengths
        values = {
            "row length": lengths,
            "length of A": rows.segment_b_start - 2,
            "length of B": np.where(has_b, lengths - rows.segment_b_start - 1, 0),
            "B ending a sentence": self._ends_sentence[rows.restored[rows.offsets[1:] - 2]],
        }
        for name, value in values.items():
            histogram = self.by_label[name]
            np.add.at(
                histogram, (np.minimum(rows.label, 1), np.minimum(value, histogram.shape[1] - 1)), 1
            )

    def _add_scripts(self, rows: InstanceRows) -> None:
        starts_b = np.repeat(rows.offsets[:-1] + rows.segment_b_start, rows.lengths)
        segment = 2 * np.repeat(np.arange(len(rows.label)), rows.lengths) + (
            np.arange(len(rows.ids)) >= starts_b
        )
        keys = segment * self._num_scripts + self._script_of[rows.restored]
        counts = np.bincount(keys, minlength=2 * len(rows.label) * self._num_scripts).reshape(
            -1, self._num_scripts
        )
        counts[:, 0] = 0  # tokens without letters
        a, b = counts.argmax(axis=1).reshape(-1, 2).T
        np.add.at(self.scripts, (np.minimum(rows.label, 1), a * self._num_scripts + b), 1)

    def _add_special_tokens(self, rows: InstanceRows) -> None:
        vocabulary, ids, starts = self.vocabulary, rows.restored, rows.offsets[:-1]
        is_special = ~vocabulary.is_ordinary
        is_special[vocabulary.unk_id] = False
        in_place = (ids[starts] == vocabulary.cls_id) & (
            ids[rows.offsets[1:] - 1] == vocabulary.sep_id
        )
        in_place &= ids[starts + rows.segment_b_start - 1] == vocabulary.sep_id
        self.counts.update(
            rows_without_specials=int((~in_place).sum()),
            specials_in_text=int((is_special[ids] & ~rows.structural).sum()),
            masked_specials=int(rows.structural[rows.positions].sum()),
        )

    def _add_masks(self, rows: InstanceRows) -> None:
        stored, originals = rows.ids[rows.positions], rows.restored[rows.positions]
        is_mask, is_kept = stored == self.vocabulary.mask_id, stored == originals
        is_random = ~is_mask & ~is_kept
        self.counts.update(
            masked=len(stored),
            masks_asked=int(
                num_to_mask(rows.lengths, self.config.mask_rate, self.config.max_length).sum()
            ),
            random_not_ordinary=int((~self.vocabulary.is_ordinary[stored[is_random]]).sum()),
        )
        row = np.repeat(np.arange(len(rows.label)), rows.mask_counts)
        for name, chosen in (("mask", is_mask), ("random", is_random), ("keep", is_kept)):
            own = np.bincount(row, chosen, minlength=len(rows.label))
            self.squares[name] += [
                own @ own,
                own @ rows.mask_counts,
                rows.mask_counts @ rows.mask_counts,
            ]
            self.counts[f"masked_{name}"] += int(chosen.sum())
        self.masked_tokens += np.bincount(originals, minlength=len(self.vocabulary))
        self.random_tokens += np.bincount(stored[is_random], minlength=len(self.vocabulary))
        in_row = rows.positions - np.repeat(rows.offsets[:-1], rows.mask_counts)
        width = len(self.mask_positions)
        self.mask_positions += np.bincount(np.minimum(in_row, width - 1), minlength=width)

    def _add_words(self, rows: InstanceRows) -> None:
        """Count partly masked words, and rows with the wrong number of masks."""
        words = find_words(
            rows.restored, rows.offsets, rows.segment_b_start, self.vocabulary.continues
        )
        masked_before = np.zeros(len(rows.ids) + 1, np.int64)
        masked_before[rows.positions + 1] = 1
        masked_before = np.cumsum(masked_before)
        masked = masked_before[words.start + words.length] - masked_before[words.start]
        wanted = num_to_mask(rows.lengths, self.config.mask_rate, self.config.max_length)
        if self.config.masking == "token":
            keeps_rule = rows.mask_counts == wanted
        else:
            shortest = np.full(len(rows.label), np.iinfo(np.int64).max)
            np.minimum.at(shortest, words.row, words.length)
            keeps_rule = (rows.mask_counts >= 1) & (
                rows.mask_counts <= np.maximum(wanted, shortest)
            )
        self.counts.update(
            words=len(words.row),
            split_words=int(((masked > 0) & (masked < words.length)).sum()),
            masked_words=int((masked > 0).sum()),
            rows_breaking_count=int((~keeps_rule).sum()),
        )

    def _add_hashes(self, rows: InstanceRows) -> None:
        in_row = np.arange(len(rows.ids)) - np.repeat(rows.offsets[:-1], rows.lengths)
        weights = self._hash_weights[np.minimum(in_row, len(self._hash_weights) - 1)]
        # Hash each token as stored, its original, and whether it is predicted.
        keys = (
            (rows.restored.astype(np.uint64) << np.uint64(32)) + 2 * rows.ids.astype(np.uint64) + 1
        )
        keys[rows.positions] += 1
        hashes = np.add.reduceat(keys * weights, rows.offsets[:-1])
        hashes ^= hashes >> np.uint64(31)
        hashes *= np.uint64(0x9E3779B97F4A7C15)
        row = np.repeat(np.arange(len(hashes)), rows.mask_counts)
        starts_span = (np.diff(rows.positions, prepend=-2) != 1) | (np.diff(row, prepend=-1) != 0)
        hashes = hashes[np.bincount(row[starts_span], minlength=len(hashes)) >= MIN_MASKED_SPANS]
        self.row_hashes.append(hashes[hashes <= np.uint64(self._hash_share * (2**64 - 2**12))])
