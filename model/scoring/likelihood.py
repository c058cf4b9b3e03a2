"""Score sentences by their pseudo-log-likelihood: each token is masked once, and the logarithms of
its probabilities given the rest are added up (arXiv 1910.14659).

A token of a word of several tokens is easy to guess from the others, so such words would score too
high. Therefore the tokens of the same word to its right are masked too (PLL-word-l2r, arXiv
2305.10588):

    tokens      [CLS] the sou ##ven ##ir [SEP]
    rows        [CLS] [M] sou ##ven ##ir [SEP]      -> the
                [CLS] the [M] [M]   [M]  [SEP]      -> sou
                [CLS] the sou [M]   [M]  [SEP]      -> ##ven
                [CLS] the sou ##ven [M]  [SEP]      -> ##ir

A left-to-right encoder needs a single row: a token's probability given those before it.

Shapes: R rows, L tokens of a row, V tokens in the vocabulary.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...pipeline.errors import UserError
from ..checkpoint import Checkpoint
from ..encoders.heads import PretrainModel
from ..training.device import find_device

SENTENCES_AT_ONCE = 1000
TOKENS_AT_ONCE = (2048, 65536)
"""On a CPU, and on a GPU."""


class _MaskedRow(NamedTuple):
    """A row of which one token is predicted."""

    sentence: int
    ids_L: np.ndarray
    position: int
    """Of the predicted token."""
    token_id: int


class SentenceScorer:
    """Scores sentences with the model in a directory.

    Raises `UserError` without a model, or without [MASK] in its vocabulary.
    """

    def __init__(self, run: str | Path, device: str = "auto") -> None:
        self._run = run
        self._device = find_device(device)
        checkpoint = Checkpoint.open(run)
        self._model: PretrainModel = checkpoint.pretrain_model().eval().to(self._device)
        self._tokenizer = checkpoint.tokenizer()
        # "[MASK]" in a sentence is text.
        self._tokenizer.encode_special_tokens = True
        mask_id = self._tokenizer.token_to_id("[MASK]")
        if mask_id is None:
            raise UserError(f"The vocabulary in {run} has no [MASK].")
        self._mask_id: int = mask_id

    def scores(
        self, sentences: Sequence[str], progress: Callable[[int], None] | None = None
    ) -> np.ndarray:
        """Return the natural logarithm of each sentence's pseudo-likelihood, float64 (N,); 0 for a
        sentence without tokens.

        `progress` is called with the number of sentences scored so far. Raises `UserError` for a
        sentence that is longer than the model reads.
        """
        scores_N = np.zeros(len(sentences))
        for first in range(0, len(sentences), SENTENCES_AT_ONCE):
            some = sentences[first : first + SENTENCES_AT_ONCE]
            self._score(self._rows(some), scores_N[first : first + len(some)])
            if progress:
                progress(first + len(some))
        return scores_N

    def _rows(self, sentences: Sequence[str]) -> Iterator[_MaskedRow]:
        limit = self._model.config.max_position_embeddings
        for sentence, encoding in enumerate(self._tokenizer.encode_batch(list(sentences))):
            ids_L = np.array(encoding.ids, dtype=np.int64)
            if len(ids_L) > limit:
                raise UserError(
                    f"A sentence has {len(ids_L)} tokens, but the model in {self._run} reads at "
                    f"most {limit}: {sentences[sentence][:60]!r} …"
                )
            words = encoding.word_ids
            for position, word in enumerate(words):
                if word is None:  # a special token
                    continue
                row_L = ids_L
                if not self._model.config.is_decoder:
                    row_L = ids_L.copy()
                    end = position
                    while words[end] == word:
                        end += 1
                    row_L[position:end] = self._mask_id
                yield _MaskedRow(sentence, row_L, position, int(ids_L[position]))

    def _score(self, rows: Iterable[_MaskedRow], scores_N: np.ndarray) -> None:
        """Add the tokens' log-probabilities to the scores of their sentences."""
        # Rows of one length need no padding. Equal ones are computed once: where the sentences of a
        # pair differ in one word, the rows that mask it are equal.
        rows_by_length: dict[int, dict[bytes, list[_MaskedRow]]] = defaultdict(dict)
        for row in rows:
            equal_rows = rows_by_length[len(row.ids_L)].setdefault(row.ids_L.tobytes(), [])
            equal_rows.append(row)
        most_tokens = TOKENS_AT_ONCE[self._device.type == "cuda"]
        for length, groups_by_ids in rows_by_length.items():
            groups = list(groups_by_ids.values())
            rows_at_once = max(1, most_tokens // length)
            for first in range(0, len(groups), rows_at_once):
                self._add_scores(groups[first : first + rows_at_once], scores_N)

    def _add_scores(self, groups: Sequence[list[_MaskedRow]], scores_N: np.ndarray) -> None:
        """Do the work of `_score` for groups of equal rows, all of one length."""
        length = len(groups[0][0].ids_L)
        ids_RL = torch.from_numpy(np.stack([group[0].ids_L for group in groups]))
        sentences: list[int] = []
        index: list[int] = []
        token_ids: list[int] = []
        for number, group in enumerate(groups):
            for row in group:
                # A left-to-right model predicts a token from the one before.
                position = row.position - int(self._model.config.is_decoder)
                sentences.append(row.sentence)
                index.append(number * length + position)
                token_ids.append(row.token_id)
        np.add.at(scores_N, sentences, self._log_probabilities(ids_RL, index, token_ids))

    @torch.inference_mode()
    def _log_probabilities(
        self, ids_RL: Tensor, index: list[int], token_ids: list[int]
    ) -> np.ndarray:
        """Return the logarithms of the probabilities of tokens at flat indices in R * L."""
        hidden_RLD = self._model.encoder(ids_RL.to(self._device))
        index_M = torch.tensor(index, device=self._device)
        logits_MV = self._model.mlm_logits(hidden_RLD, index_M)
        log_probabilities_MV = logits_MV.float().log_softmax(-1)
        token_ids_M1 = torch.tensor(token_ids, device=self._device)[:, None]
        chosen_M = log_probabilities_MV.gather(1, token_ids_M1).squeeze(1)
        return chosen_M.cpu().numpy()
