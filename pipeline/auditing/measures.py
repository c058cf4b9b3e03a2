"""Measure instances from their rows alone, a slice at a time.

Every measure is a sum over rows, so memory is bounded by a slice. Arrays are flat (see
`instances.rows`): a slice of two rows, with one masked token [M] each, is::

    input_ids    [C]  a  [M]  [S]  d  [S]  [C]  f   g  [S] [M] [S]
    offsets       0                         6                       12
    segment_b_start          4                      4                    (in the row)
    masked_index          2                                 10
    structural    T   F   F   T   F   T     T   F   F   T   F   T

Each sequence of packed instances is measured as a row without B; only their fill is that of rows.
"""

import math
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from ..config import BuildConfig
from ..instances.masking import find_words, num_to_mask
from ..instances.rows import Rows, are_misdivided, are_outside, check_rows, rows_of, sequences
from ..ragged import offsets_of, owners
from ..schemas import SEQUENCE_STARTS, instances_schema
from ..storage.shards import checked
from ..text.sentence_ends import SENTENCE_ENDS
from ..vocabulary.vocabulary import Vocabulary

CELLS = (8, 8, 2, 2)
"""Eighths of a row in A, then in B, and whether A, then B, ends a sentence."""


def read_batch(batch: pa.RecordBatch, vocab_size: int) -> Rows:
    """Return a batch of a shard as rows; raise `ValueError` naming a column that does not fit."""
    packed = SEQUENCE_STARTS in batch.schema.names
    rows = rows_of(checked([batch], instances_schema(vocab_size, packed=packed)))
    check_rows(rows, vocab_size)
    return rows


class Measures:
    """The sums over all rows so far.

    Histograms by label are int64 [2, values]. `lengths_and_ends` has two, by `CELLS`: of every
    other row, and of the rest. `tokens`, int64 [vocabulary], are those before masking.
    """

    def __init__(self, vocabulary: Vocabulary, config: BuildConfig) -> None:
        self.vocabulary = vocabulary
        self.config = config
        self.counts: Counter[str] = Counter()
        # Rows and NotNext rows by shard and pass.
        self.passes: dict[tuple[str, int], list[int]] = {}
        zeros = partial(np.zeros, dtype=np.int64)
        by_length = (2, config.max_length + 1)  # from 0 on, without [CLS] and [SEP] in A and B
        self.row_lengths = zeros(by_length)
        self.lengths_a = zeros(by_length)
        self.lengths_b = zeros(by_length)
        self.ends_of_b = zeros((2, 2))  # whether it ends like a sentence
        self.lengths_and_ends = zeros((2, 2, math.prod(CELLS)))
        self.mask_positions = zeros(config.max_length)
        self.tokens = zeros(len(vocabulary))
        ends_sentence = [token in SENTENCE_ENDS for token in vocabulary.readable]
        self._ends_sentence = np.array(ends_sentence, np.int64)

    def add(self, shard: str, stored: Rows) -> Rows:
        """Count some rows of a shard, and return them as they were counted: one for each sequence.

        Positions out of range are read as the row's first token, a `segment_b_start` as the row's
        length, so that the other measures can go on; ``misplaced`` counts them.
        """
        rows = sequences(stored)
        if rows.lengths.min(initial=3) < 3:
            raise ValueError("a row is shorter than [CLS] and [SEP] around a token")
        is_outside = are_outside(rows)
        is_inside = ~are_misdivided(rows)
        rows = replace(
            rows,
            masked_positions=np.where(is_outside, 0, rows.masked_positions),
            segment_b_start=np.where(is_inside, rows.segment_b_start, rows.lengths),
        )
        # A row's positions follow those of the rows before it, so one comparison covers all rows.
        num_unordered = _num_true(np.diff(rows.masked_index) <= 0)
        self.counts.update(
            rows=len(rows),
            stored_rows=len(stored),  # fewer if they are packed
            rows_too_long=_num_true(stored.lengths > self.config.max_length),
            misplaced=_num_true(is_outside) + _num_true(~is_inside) + num_unordered,
        )
        restored = rows.unmasked_ids()  # [num_tokens], with the originals at masked positions
        self._add_labels(shard, rows, restored)
        self._add_tokens(rows, restored)
        asked = num_to_mask(rows.lengths, self.config.mask_rate, self.config.max_length)
        if self.vocabulary.is_added.any():
            # Added tokens are not masked; a row of hardly anything else has fewer masks.
            is_added = self.vocabulary.is_added[restored]
            num_added = np.add.reduceat(is_added, rows.offsets[:-1], dtype=np.int64)
            num_specials = 2 + (rows.segment_b_start < rows.lengths)
            asked = np.minimum(asked, rows.lengths - num_specials - num_added)
        self._add_masks(rows, restored, asked)
        self._add_words(rows, restored, asked)
        return rows

    def _add_labels(self, shard: str, rows: Rows, restored: np.ndarray) -> None:
        assert rows.duplicate is not None
        for duplicate in np.unique(rows.duplicate).tolist():
            labels_of_pass = rows.next_sentence_label[rows.duplicate == duplicate]
            # A pass may go on in the next slice of the shard.
            sums = self.passes.setdefault((shard, duplicate), [0, 0])
            sums[0] += len(labels_of_pass)
            sums[1] += _num_true(labels_of_pass == 1)

        labels = rows.next_sentence_label
        lengths = rows.lengths
        has_b = rows.segment_b_start < lengths
        length_a = rows.segment_b_start - 2
        length_b = np.where(has_b, lengths - rows.segment_b_start - 1, 0)
        # The tokens before [SEP].
        ends_of_a = self._ends_sentence[restored[rows.offsets[:-1] + length_a]]
        ends_of_b = self._ends_sentence[restored[rows.offsets[1:] - 2]]
        _count_by_label(self.row_lengths, labels, lengths)
        _count_by_label(self.lengths_a, labels, length_a)
        _count_by_label(self.lengths_b, labels, length_b)
        _count_by_label(self.ends_of_b, labels, ends_of_b)
        eighths_a = length_a * 8 // self.config.max_length
        eighths_b = length_b * 8 // self.config.max_length
        of_row = (eighths_a, eighths_b, ends_of_a, ends_of_b)
        cells = np.ravel_multi_index(of_row, CELLS, mode="clip")
        for half in range(2):
            _count_by_label(self.lengths_and_ends[half], labels[half::2], cells[half::2])

        is_next = labels == 0
        not_next = labels == 1
        is_other_document = rows.document_a != rows.document_b
        self.counts.update(
            other_labels=_num_true(labels > 1),
            not_next=_num_true(not_next),
            not_next_same_document=_num_true(not_next & ~is_other_document),
            is_next_other_document=_num_true(is_next & is_other_document),
            without_b=_num_true(~has_b),
        )

    def _add_tokens(self, rows: Rows, restored: np.ndarray) -> None:
        vocabulary = self.vocabulary
        # The places of [CLS], [SEP] after A and [SEP] after B; without B the last two are one.
        starts = rows.offsets[:-1]
        ends_of_a = starts + rows.segment_b_start - 1
        ends = rows.offsets[1:] - 1
        structural = np.zeros(len(restored), bool)
        structural[starts] = True
        structural[ends_of_a] = True
        structural[ends] = True
        in_place = restored[starts] == vocabulary.cls_id
        in_place &= restored[ends_of_a] == vocabulary.sep_id
        in_place &= restored[ends] == vocabulary.sep_id
        is_special = ~vocabulary.is_ordinary
        is_special &= ~vocabulary.is_added
        if vocabulary.unk_id is not None:  # a word of the text, though not in the vocabulary
            is_special[vocabulary.unk_id] = False
        self.tokens += np.bincount(restored, minlength=len(vocabulary))
        self.counts.update(
            tokens=len(rows.input_ids),
            text_tokens=_num_true(~structural),
            unknown_tokens=_num_true(restored == vocabulary.unk_id),
            rows_without_specials=_num_true(~in_place),
            specials_in_text=_num_true(is_special[restored] & ~structural),
            masked_specials=_num_true(structural[rows.masked_index]),
        )

    def _add_masks(self, rows: Rows, restored: np.ndarray, asked: np.ndarray) -> None:
        stored = rows.input_ids[rows.masked_index]
        originals = restored[rows.masked_index]
        is_mask = stored == self.vocabulary.mask_id
        is_kept = stored == originals
        is_random = ~is_mask & ~is_kept
        self.counts.update(
            masked=len(stored),
            masks_asked=int(asked.sum()),
            random_not_ordinary=_num_true(~self.vocabulary.is_ordinary[stored[is_random]]),
            masked_mask=_num_true(is_mask),
            masked_random=_num_true(is_random),
            masked_keep=_num_true(is_kept),
        )
        num_positions = len(self.mask_positions)
        # In rows that are too long, those beyond the limit count as the last.
        positions_in_row = np.minimum(rows.masked_positions, num_positions - 1)
        self.mask_positions += np.bincount(positions_in_row, minlength=num_positions)

    def _add_words(self, rows: Rows, restored: np.ndarray, asked: np.ndarray) -> None:
        """Count partly masked words, and rows with the wrong number of masks."""
        words = find_words(restored, rows.offsets, rows.segment_b_start, self.vocabulary.continues)
        # Masked tokens of each word, by the difference of running sums at its two ends:
        #
        #     token               0  1  2  3  4  5          masked: 2, 3
        #     num_masked_before   0  0  0  1  2  2  2       one more than tokens
        #     word from 1 to 3       ^     ^                1 - 0 = 1 of 2 tokens: split
        is_masked = np.zeros(len(rows.input_ids), bool)
        is_masked[rows.masked_index] = True
        num_masked_before = offsets_of(is_masked)
        word_ends = words.start + words.length
        masked = num_masked_before[word_ends] - num_masked_before[words.start]
        if self.config.masking == "token":
            follows_rule = rows.num_masked == asked
        else:
            # Whole words fill the budget as far as they fit; a row with none that short masks its
            # shortest word.
            shortest = np.full(len(rows), np.iinfo(np.int64).max)
            row_of_word = owners(np.diff(words.offsets))
            np.minimum.at(shortest, row_of_word, words.length)
            most = np.maximum(asked, shortest)
            follows_rule = (rows.num_masked >= 1) & (rows.num_masked <= most)
        self.counts.update(
            words=len(words.start),
            split_words=_num_true((masked > 0) & (masked < words.length)),
            rows_breaking_count=_num_true(~follows_rule),
        )


def _count_by_label(histogram: np.ndarray, labels: np.ndarray, values: np.ndarray) -> None:
    """Count the rows by label, 0 or any other, and by value; values too large count as the last."""
    labels = np.minimum(labels, 1)
    values = np.minimum(values, histogram.shape[1] - 1)
    np.add.at(histogram, (labels, values), 1)


def _num_true(flags: np.ndarray) -> int:
    return int(flags.sum())
