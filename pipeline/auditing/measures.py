"""Measure instances from their rows alone, a slice at a time.

Every measure is a sum over rows, so memory is bounded by a slice. Arrays are flat: a slice of two
rows, with one [M]asked token each, is::

    ids          [C]  a  [M]  [S]  d  [S]  [C]  f   g  [S] [M] [S]
    offsets       0                         6                       12
    segment_b_start          4                      4                    (in the row)
    positions             2                                 10
    structural    T   F   F   T   F   T     T   F   F   T   F   T

Of packed instances each sequence is measured as a row without B; only their fill is that of rows.
"""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ..config import BuildConfig
from ..instances.masking import find_words, num_to_mask
from ..instances.table import lists_of
from ..schemas import SENTENCE_ENDS, SEQUENCE_STARTS, instances_schema
from ..seeding import rng_for
from ..storage.shards import checked
from ..vocabulary.vocabulary import Vocabulary

MAX_ROW_HASHES = 20_000_000
"""Repeated rows are found by 64-bit hashes; in a larger corpus only a share of them is kept."""

MIN_MASKED_SPANS = 4
"""In rows with fewer runs of masked tokens, masks often repeat by chance from pass to pass."""


@dataclass(frozen=True)
class InstanceRows:
    """Some rows of a shard as flat arrays, int64 unless stated otherwise."""

    ids: np.ndarray
    """[num_tokens]: the token ids as stored."""
    restored: np.ndarray
    """[num_tokens]: the ids with the original tokens at the masked positions."""
    offsets: np.ndarray
    """[num_rows + 1]: row i is ``ids[offsets[i]:offsets[i + 1]]``."""
    segment_b_start: np.ndarray
    """[num_rows]: B's first token in the row; the row's length if there is no B."""
    positions: np.ndarray
    """[num_masked]: indices of the masked tokens in `ids`."""
    mask_counts: np.ndarray
    """[num_rows]: masked tokens of each row."""
    label: np.ndarray
    """[num_rows], of any integer type: 1 is NotNext."""
    document_a: np.ndarray
    """[num_rows], of any integer type: A's document, a row of the shard of documents."""
    document_b: np.ndarray
    """As `document_a`, of B."""
    duplicate: np.ndarray
    """[num_rows], of any integer type: the pass over the documents."""
    structural: np.ndarray
    """bool [num_tokens]: where [CLS] and [SEP] belong."""
    num_misplaced: int
    """Positions and starts of B that are out of range, and positions that do not ascend."""
    num_stored: int
    """Rows as they are stored: fewer than here if they are packed."""
    num_stored_too_long: int = 0
    """Packed rows that are longer than the limit."""

    @property
    def lengths(self) -> np.ndarray:
        """Tokens per row, including special tokens."""
        return np.diff(self.offsets)

    @property
    def other_document(self) -> np.ndarray:
        """bool [num_rows]: A and B are from different documents."""
        return self.document_a != self.document_b

    @property
    def row_of_mask(self) -> np.ndarray:
        """[num_masked]: the row of each masked token."""
        return np.repeat(np.arange(len(self.label)), self.mask_counts)


def checked_instances(batch: pa.RecordBatch, vocab_size: int) -> pa.RecordBatch:
    """Return a batch of instances in their schema; raise `ValueError` naming a column that does not
    fit.
    """
    packed = SEQUENCE_STARTS in batch.schema.names
    rows = checked([batch], instances_schema(vocab_size, packed=packed))
    for name in ("input_ids", "masked_lm_ids"):
        highest = int(rows[name].flatten().to_numpy().max(initial=0))
        # Indexing the vocabulary by it would end the audit with an `IndexError`.
        if highest >= vocab_size:
            raise ValueError(
                f"column {name}: token id {highest} is beyond the vocabulary's {vocab_size} tokens"
            )
    num_positions = rows["masked_lm_positions"].value_lengths()
    num_originals = rows["masked_lm_ids"].value_lengths()
    if not num_positions.equals(num_originals):
        raise ValueError("masked_lm_positions and masked_lm_ids have different lengths")
    if packed:
        _check_sequences(rows)
    return rows


def _check_sequences(rows: pa.RecordBatch) -> None:
    """Raise `ValueError` unless every packed row is cut into sequences from its start on."""
    starts, bounds = _flatten(rows, SEQUENCE_STARTS)
    if not rows["documents"].value_lengths().equals(rows[SEQUENCE_STARTS].value_lengths()):
        raise ValueError("sequence_starts and documents have different lengths")
    if (np.diff(bounds) == 0).any() or starts[bounds[:-1]].any():
        raise ValueError("column sequence_starts: a row has no sequence at its start")
    _, offsets = _flatten(rows, "input_ids")
    row_ends = np.diff(offsets)
    # Each sequence ends where the next one starts, the last one of a row where the row ends.
    ends = np.append(starts[1:], 0)
    ends[bounds[1:] - 1] = row_ends
    if (ends <= starts).any():
        raise ValueError("column sequence_starts: they do not ascend, or lie outside of their row")
    positions, mask_offsets = _flatten(rows, "masked_lm_positions")
    num_masked = np.diff(mask_offsets)
    is_outside = positions >= np.repeat(row_ends, num_masked)
    flat = positions + np.repeat(offsets[:-1], num_masked)
    if is_outside.any() or (np.diff(flat) <= 0).any():
        raise ValueError("column masked_lm_positions: they do not ascend, or lie outside of a row")


def sequences_of(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return packed rows in the schema of others, a row for each sequence; others as they are."""
    if SEQUENCE_STARTS not in rows.schema.names:
        return rows
    # Row 0 has sequences of 3 and 4 tokens, and predicts the tokens 1, 4 and 5:
    #
    #     starts             0      3              ends            3  7
    #     positions          1      4  5           of sequences    0  1  1
    #     in the sequence    1      1  2           mask bounds     0  1  3
    starts_in_row, bounds = _flatten(rows, SEQUENCE_STARTS)
    documents, _ = _flatten(rows, "documents")
    ids, offsets = _flatten(rows, "input_ids")
    positions_in_row, mask_offsets = _flatten(rows, "masked_lm_positions")
    originals, _ = _flatten(rows, "masked_lm_ids")
    sequences_per_row = np.diff(bounds)
    starts = starts_in_row + np.repeat(offsets[:-1], sequences_per_row)
    sequence_offsets = np.append(starts, offsets[-1])
    positions = positions_in_row + np.repeat(offsets[:-1], np.diff(mask_offsets))
    mask_bounds = np.append(np.searchsorted(positions, starts), len(positions))
    in_sequence = positions - np.repeat(starts, np.diff(mask_bounds))
    lengths = np.diff(sequence_offsets)
    columns = {
        "input_ids": lists_of(sequence_offsets, ids),
        "segment_b_start": lengths,
        "masked_lm_positions": lists_of(mask_bounds, in_sequence),
        "masked_lm_ids": lists_of(mask_bounds, originals),
        "next_sentence_label": np.zeros(len(starts), np.uint8),
        "document_a": documents,
        "document_b": documents,
        "duplicate": np.repeat(rows["duplicate"].to_numpy(), sequences_per_row),
    }
    batch = pa.RecordBatch.from_pydict(columns)
    token_type = rows.schema.field("input_ids").type.value_type
    vocab_size = 2**16
    if token_type == pa.uint32():
        vocab_size += 1
    return checked([batch], instances_schema(vocab_size))


def read_rows(stored: pa.RecordBatch, max_length: int) -> InstanceRows:
    """Return the columns of a batch of `checked_instances`, built for `max_length`, as flat arrays.

    Positions out of range are read as the row's first token, a `segment_b_start` out of range as
    the row's length, so that the other measures can go on; `num_misplaced` counts them.
    """
    num_stored_too_long = 0
    if SEQUENCE_STARTS in stored.schema.names:
        _, stored_offsets = _flatten(stored, "input_ids")
        num_stored_too_long = int((np.diff(stored_offsets) > max_length).sum())
    rows = sequences_of(stored)
    ids, offsets = _flatten(rows, "input_ids")
    positions_in_row, mask_offsets = _flatten(rows, "masked_lm_positions")
    originals, _ = _flatten(rows, "masked_lm_ids")
    lengths = np.diff(offsets)
    mask_counts = np.diff(mask_offsets)
    if lengths.min(initial=3) < 3:
        raise ValueError("a row is shorter than [CLS] and [SEP] around a token")

    # The columns are unsigned: no position is below 0.
    is_outside = positions_in_row >= np.repeat(lengths, mask_counts)
    row_starts = np.repeat(offsets[:-1], mask_counts)
    positions = np.where(is_outside, 0, positions_in_row) + row_starts
    restored = ids.copy()
    restored[positions] = originals

    stored_start = rows["segment_b_start"].to_numpy().astype(np.int64)
    # Not below 2: [CLS] and the [SEP] after A stand before B.
    is_inside = (stored_start >= 2) & (stored_start <= lengths)
    segment_b_start = np.where(is_inside, stored_start, lengths)

    structural = np.zeros(len(ids), bool)
    structural[offsets[:-1]] = True  # [CLS]
    structural[offsets[:-1] + segment_b_start - 1] = True  # [SEP] after A
    structural[offsets[1:] - 1] = True  # [SEP] after B; without B the one after A
    # A row's positions follow those of the rows before it, so one comparison covers all rows.
    num_unordered = (np.diff(positions) <= 0).sum()
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
        num_misplaced=int(is_outside.sum() + (~is_inside).sum() + num_unordered),
        num_stored=len(stored),
        num_stored_too_long=num_stored_too_long,
    )


def _flatten(rows: pa.RecordBatch, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return a list column's values as int64 and its offsets from 0."""
    column = rows[name]
    # `flatten`, not `values`, which in a slice of a batch has the other rows' values too.
    values = column.flatten().to_numpy().astype(np.int64)
    offsets = column.offsets.to_numpy().astype(np.int64)
    return values, offsets - offsets[0]


def scripts_of(tokens: Sequence[str]) -> tuple[np.ndarray, int]:
    """Number the scripts of tokens in the order of their appearance.

    Return the script of each token, int64 [vocab_size], 0 for a token without letters, and one more
    than the highest number. Chinese characters and kana are one script, because Japanese mixes
    them.
    """
    numbers = {"": 0}
    script_of_token = np.zeros(len(tokens), np.int64)
    for token_id, token in enumerate(tokens):
        script = _script_of(token)
        script_of_token[token_id] = numbers.setdefault(script, len(numbers))
    return script_of_token, len(numbers)


def _script_of(token: str) -> str:
    """Return the script of a token's first letter; "" without letters."""
    if token.startswith("["):  # [MASK] is not Latin
        return ""
    for character in token:
        if character.isalpha():
            # Unicode's names begin with it: LATIN SMALL LETTER A, HANGUL SYLLABLE GA.
            script = unicodedata.name(character, "").split(" ")[0]
            if script in ("HIRAGANA", "KATAKANA"):
                return "CJK"
            return script
    return ""


class Measures:
    """The sums over all rows so far.

    `counts` are plain sums; `passes` counts rows and NotNext rows by (shard, duplicate); `by_label`
    holds histograms int64 [2, values] of a measure of the row by label, `scripts` one of the main
    scripts of A and B; `squares` holds the sums over rows that cluster-robust intervals need;
    `masked_tokens` and `random_tokens`, int64 [vocabulary], count the originals and the random
    tokens.
    """

    def __init__(self, vocabulary: Vocabulary, config: BuildConfig, hash_share: float) -> None:
        self.vocabulary = vocabulary
        self.config = config
        vocab_size = len(vocabulary)
        num_lengths = config.max_length + 1  # from 0 on

        self.counts: Counter[str] = Counter()
        self.passes: dict[tuple[str, int], list[int]] = {}
        self.by_label = {
            "row length": _no_counts(2, num_lengths),
            "length of A": _no_counts(2, num_lengths),
            "length of B": _no_counts(2, num_lengths),
            "B ending a sentence": _no_counts(2, 2),
        }
        self._script_of, self._num_scripts = scripts_of(vocabulary.readable)
        num_pairs = self._num_scripts**2
        self.scripts = _no_counts(2, num_pairs)

        self.squares = {
            "mask": np.zeros(3),
            "random": np.zeros(3),
            "keep": np.zeros(3),
        }
        self.masked_tokens = _no_counts(vocab_size)
        self.random_tokens = _no_counts(vocab_size)
        self.mask_positions = _no_counts(config.max_length)

        ends_sentence = [token in SENTENCE_ENDS for token in vocabulary.readable]
        self._ends_sentence = np.array(ends_sentence)

        self.row_hashes: list[np.ndarray] = []
        rng = rng_for(0, "row hashes")  # the same in each audit, so that its figures are the same
        self._hash_weights = rng.integers(1, 2**63, num_lengths, dtype=np.uint64)
        # Hashes up to this one are kept. As a float 2**64 - 1 would become 2**64, which uint64
        # cannot hold.
        self._highest_hash = np.uint64(hash_share * (2**64 - 2**12))

    def add(self, shard: str, rows: InstanceRows) -> None:
        """Count some rows of the named shard."""
        self._add_counts(rows)
        self._add_passes(shard, rows)
        self._add_labels(rows)
        self._add_scripts(rows)
        self._add_special_tokens(rows)
        self._add_masks(rows)
        self._add_words(rows)
        self._add_hashes(rows)

    def _add_counts(self, rows: InstanceRows) -> None:
        lengths = rows.lengths
        is_next = rows.label == 0
        not_next = rows.label == 1
        self.counts.update(
            rows=len(lengths),
            stored_rows=rows.num_stored,
            tokens=len(rows.ids),
            text_tokens=_num_true(~rows.structural),
            unknown_tokens=_num_true(rows.restored == self.vocabulary.unk_id),
            rows_too_long=_num_true(lengths > self.config.max_length) + rows.num_stored_too_long,
            misplaced=rows.num_misplaced,
            other_labels=_num_true(rows.label > 1),
            not_next=_num_true(not_next),
            not_next_same_document=_num_true(not_next & ~rows.other_document),
            is_next_other_document=_num_true(is_next & rows.other_document),
            without_b=_num_true(rows.segment_b_start == lengths),
        )

    def _add_passes(self, shard: str, rows: InstanceRows) -> None:
        for duplicate in np.unique(rows.duplicate).tolist():
            labels = rows.label[rows.duplicate == duplicate]
            # A pass may go on in the next slice of the shard.
            sums = self.passes.setdefault((shard, duplicate), [0, 0])
            sums[0] += len(labels)
            sums[1] += _num_true(labels == 1)

    def _add_labels(self, rows: InstanceRows) -> None:
        lengths = rows.lengths
        has_b = rows.segment_b_start < lengths
        last_tokens = rows.restored[rows.offsets[1:] - 2]  # before the last [SEP]
        values_by_name = {
            "row length": lengths,
            "length of A": rows.segment_b_start - 2,  # without [CLS] and [SEP]
            "length of B": np.where(has_b, lengths - rows.segment_b_start - 1, 0),
            "B ending a sentence": self._ends_sentence[last_tokens],
        }
        labels = np.minimum(rows.label, 1)
        for name, values in values_by_name.items():
            histogram = self.by_label[name]
            highest = histogram.shape[1] - 1  # rows that are too long count as the longest
            np.add.at(histogram, (labels, np.minimum(values, highest)), 1)

    def _add_scripts(self, rows: InstanceRows) -> None:
        """Count rows by label, and by the script that most tokens of A and of B are in."""
        num_rows = len(rows.label)
        num_tokens = len(rows.ids)
        num_scripts = self._num_scripts
        row = np.repeat(np.arange(num_rows), rows.lengths)
        b_starts = rows.offsets[:-1] + rows.segment_b_start
        in_b = np.arange(num_tokens) >= np.repeat(b_starts, rows.lengths)
        script = self._script_of[rows.restored]
        # One `bincount` counts the tokens of all (row, segment, script) at once. With two scripts
        # and "-", a token without letters (as [CLS] and [SEP] are, not drawn):
        #
        #     row 0:  A  a1 a2 -    B  b1 b2       key = (2 * row + in_b) * num_scripts + script
        #     row 1:  A  k1 -       B  k2 a3
        #
        #     counts         -  Latin  Hangul      main script
        #     row 0   A      1    2      0         Latin
        #             B      0    2      0         Latin
        #     row 1   A      1    0      1         Hangul
        #             B      0    1      1         Latin, the first of the most frequent
        segment = 2 * row + in_b
        keys = segment * num_scripts + script
        counts = np.bincount(keys, minlength=2 * num_rows * num_scripts)
        counts = counts.reshape(num_rows, 2, num_scripts)
        counts[:, :, 0] = 0  # Punctuation and numbers must not outvote a script.
        main_of_a, main_of_b = counts.argmax(axis=2).T
        pairs = main_of_a * num_scripts + main_of_b
        labels = np.minimum(rows.label, 1)
        np.add.at(self.scripts, (labels, pairs), 1)

    def _add_special_tokens(self, rows: InstanceRows) -> None:
        vocabulary = self.vocabulary
        is_special = ~vocabulary.is_ordinary
        is_special[vocabulary.unk_id] = False  # a word of the text, though not in the vocabulary
        first = rows.restored[rows.offsets[:-1]]
        last = rows.restored[rows.offsets[1:] - 1]
        before_b = rows.restored[rows.offsets[:-1] + rows.segment_b_start - 1]
        in_place = (
            (first == vocabulary.cls_id)
            & (last == vocabulary.sep_id)
            & (before_b == vocabulary.sep_id)
        )
        self.counts.update(
            rows_without_specials=_num_true(~in_place),
            specials_in_text=_num_true(is_special[rows.restored] & ~rows.structural),
            masked_specials=_num_true(rows.structural[rows.positions]),
        )

    def _add_masks(self, rows: InstanceRows) -> None:
        stored = rows.ids[rows.positions]
        originals = rows.restored[rows.positions]
        is_mask = stored == self.vocabulary.mask_id
        is_kept = stored == originals
        is_random = ~is_mask & ~is_kept
        random_tokens = stored[is_random]
        asked = num_to_mask(rows.lengths, self.config.mask_rate, self.config.max_length)
        self.counts.update(
            masked=len(stored),
            masks_asked=int(asked.sum()),
            random_not_ordinary=_num_true(~self.vocabulary.is_ordinary[random_tokens]),
        )
        row_of_mask = rows.row_of_mask
        masks = rows.mask_counts
        masks_by_kind = {"mask": is_mask, "random": is_random, "keep": is_kept}
        for kind, is_kind in masks_by_kind.items():
            # Of a row's n tokens of the kind and m masked tokens: with the sums of n * n, n * m and
            # m * m, `mask_checks` has the sum of (n - share * m) ** 2 for any share.
            of_kind = np.bincount(row_of_mask, is_kind, minlength=len(masks))
            self.squares[kind] += [of_kind @ of_kind, of_kind @ masks, masks @ masks]
            self.counts[f"masked_{kind}"] += _num_true(is_kind)
        vocab_size = len(self.vocabulary)
        self.masked_tokens += np.bincount(originals, minlength=vocab_size)
        self.random_tokens += np.bincount(random_tokens, minlength=vocab_size)
        num_positions = len(self.mask_positions)
        positions_in_row = rows.positions - rows.offsets[row_of_mask]
        # In rows that are too long, those beyond the limit count as the last.
        positions_in_row = np.minimum(positions_in_row, num_positions - 1)
        self.mask_positions += np.bincount(positions_in_row, minlength=num_positions)

    def _add_words(self, rows: InstanceRows) -> None:
        """Count partly masked words, and rows with the wrong number of masks."""
        words = find_words(
            rows.restored, rows.offsets, rows.segment_b_start, self.vocabulary.continues
        )
        # Masked tokens of each word, by the difference of running sums at its two ends:
        #
        #     token               0  1  2  3  4  5          masked: 2, 3
        #     num_masked_before   0  0  0  1  2  2  2       one more than tokens
        #     word from 1 to 3       ^     ^                1 - 0 = 1 of 2 tokens: split
        is_masked = np.zeros(len(rows.ids) + 1, np.int64)
        is_masked[rows.positions + 1] = 1
        num_masked_before = np.cumsum(is_masked)
        word_ends = words.start + words.length
        masked = num_masked_before[word_ends] - num_masked_before[words.start]
        asked = num_to_mask(rows.lengths, self.config.mask_rate, self.config.max_length)
        if self.config.masking == "token":
            follows_rule = rows.mask_counts == asked
        else:
            # Whole words fill the budget as far as they fit; a row with none that short masks its
            # shortest word.
            shortest = np.full(len(rows.label), np.iinfo(np.int64).max)
            np.minimum.at(shortest, words.row, words.length)
            most = np.maximum(asked, shortest)
            follows_rule = (rows.mask_counts >= 1) & (rows.mask_counts <= most)
        self.counts.update(
            words=len(words.row),
            split_words=_num_true((masked > 0) & (masked < words.length)),
            masked_words=_num_true(masked > 0),
            rows_breaking_count=_num_true(~follows_rule),
        )

    def _add_hashes(self, rows: InstanceRows) -> None:
        """Hash the rows with enough masked spans, and keep a share of the hashes.

        Equal rows have equal tokens and masks; a row's hash is the sum of its tokens' keys, each
        times a random weight of its position, modulo 2**64 (multilinear hashing; Carter and Wegman
        1979, "Universal classes of hash functions").
        """
        row_starts = rows.offsets[:-1]
        # A token's key, in 64 bits:
        #
        #     original, 32 bits | 2 * token as stored + 1, or + 2 if it is predicted
        #
        # Tokens alone would not do: a kept token looks like one that is not predicted.
        keys = rows.restored.astype(np.uint64) << np.uint64(32)
        keys += 2 * rows.ids.astype(np.uint64) + 1
        keys[rows.positions] += 1

        start_of_row = np.repeat(row_starts, rows.lengths)
        positions_in_row = np.arange(len(rows.ids)) - start_of_row
        last_weight = len(self._hash_weights) - 1
        weights = self._hash_weights[np.minimum(positions_in_row, last_weight)]
        # `reduceat` adds from each start to the next; it would be wrong for empty rows, which
        # `read_rows` refuses.
        products = keys * weights
        hashes = np.add.reduceat(products, row_starts)

        # Mix the bits, so that the smallest hashes, the share that is kept, are a fair sample. The
        # factor is that of Fibonacci hashing (Knuth, "The Art of Computer Programming", vol. 3,
        # 6.4): 2**64 divided by the golden ratio.
        hashes ^= hashes >> np.uint64(31)
        hashes *= np.uint64(0x9E3779B97F4A7C15)
        has_enough_spans = _num_masked_spans(rows) >= MIN_MASKED_SPANS
        hashes = hashes[has_enough_spans]
        self.row_hashes.append(hashes[hashes <= self._highest_hash])


def _no_counts(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.int64)


def _num_true(flags: np.ndarray) -> int:
    return int(flags.sum())


def _num_masked_spans(rows: InstanceRows) -> np.ndarray:
    """Return the number of runs of neighbouring masked tokens in each row, int64 [num_rows]."""
    # positions     2  3  4  9    12  13       rows of 12 tokens
    # row_of_mask   0  0  0  0     1   1
    # starts_span   T  F  F  T     T   F       a gap before it, or another row
    row_of_mask = rows.row_of_mask
    after_gap = np.diff(rows.positions, prepend=-2) != 1
    in_new_row = np.diff(row_of_mask, prepend=-1) != 0
    starts_span = after_gap | in_new_row
    return np.bincount(row_of_mask[starts_span], minlength=len(rows.label))
