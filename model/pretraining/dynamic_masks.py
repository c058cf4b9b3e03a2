"""Masks drawn anew while training, from the original tokens that instances keep beside the stored ones."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ...pipeline.build.masking import apply_masks, choose_positions
from ...pipeline.vocab.vocabulary import Vocabulary
from .data import InstanceRows


@dataclass(frozen=True, kw_only=True)
class DynamicMasks:
    """How masks are drawn: as `pipeline.masking` does it for ``clozeworks build``, and just as exactly."""

    masking: Literal["token", "whole-word", "span"]
    mask_rate: float
    mask_split: tuple[int, int, int]
    max_length: int
    """Of the rows that the instances were built for."""
    vocabulary: Vocabulary

    def draw(self, rows: InstanceRows, rng: np.random.Generator) -> InstanceRows:
        """Return `rows` with other tokens to predict; the tokens themselves and the labels stay as they are."""
        ids = rows.unmasked_ids()
        positions = choose_positions(
            ids,
            rows.offsets,
            rows.segment_b_start.astype(np.int64),
            self.vocabulary.continues,
            masking=self.masking,
            mask_rate=self.mask_rate,
            max_length=self.max_length,
            rng=rng,
        )
        originals = apply_masks(
            ids,
            positions,
            mask_split=self.mask_split,
            mask_id=self.vocabulary.mask_id,
            ordinary_ids=np.flatnonzero(self.vocabulary.is_ordinary),
            rng=rng,
        )
        return replace(
            rows,
            input_ids=ids,
            masked_positions=positions.in_row(rows.offsets),
            masked_ids=originals,
            masked_offsets=np.append(0, np.cumsum(positions.counts)),
        )
