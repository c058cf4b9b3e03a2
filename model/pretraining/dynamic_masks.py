"""New masks during training, drawn from the original tokens that instances keep beside the masked ones."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ...pipeline.build.masking import apply_masks, choose_positions
from ...pipeline.vocab.vocabulary import Vocabulary
from .data import InstanceRows


@dataclass(frozen=True, kw_only=True)
class DynamicMasks:
    """Draws masks with the code of ``clozeworks build``, so that they have exactly the same statistics."""

    masking: Literal["token", "whole-word", "span"]
    mask_rate: float
    mask_split: tuple[int, int, int]
    max_length: int
    """``--max-length`` of the instances."""
    vocabulary: Vocabulary

    def draw(self, rows: InstanceRows, rng: np.random.Generator) -> InstanceRows:
        """Return `rows` with newly drawn tokens to predict; the text and the next-sentence labels stay."""
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
