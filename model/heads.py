"""Compute the pre-training losses: masked-LM logits at chosen positions only, and next sentence.

Shapes: B rows, L padded length, T packed tokens, D hidden size, M predicted tokens, V vocabulary.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .bert import BertModel, DenseGelu
from .config import ModelConfig

IGNORED = -100
"""Label of what is not predicted or only pads a batch, as PyTorch's cross-entropy has it."""


class PretrainSums(NamedTuple):
    """Sums over a micro-batch, scalars; the caller divides by the counts of the global batch."""

    mlm_loss: Tensor
    nsp_loss: Tensor
    mlm_correct: Tensor
    nsp_correct: Tensor


class Transform(DenseGelu):
    """Linear layer, GELU and LayerNorm, before the masked-LM head's logits."""

    def __init__(self, config: ModelConfig):
        super().__init__(config, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden_TD: Tensor) -> Tensor:
        """Return (M, D)."""
        return self.LayerNorm(super().forward(hidden_TD))


class MaskedLMHead(nn.Module):
    """Logits over the vocabulary through the tied embedding matrix."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.transform = Transform(config)

    def forward(self, hidden_MD: Tensor, embeddings_VD: Tensor) -> Tensor:
        """Return logits (M, V)."""
        transformed_MD = self.transform(hidden_MD)
        if hidden_MD.device.type == "cuda":
            return aligned_linear(transformed_MD, embeddings_VD, self.bias, multiple=64)
        return F.linear(transformed_MD, embeddings_VD, self.bias)


def aligned_linear(values_MD: Tensor, weight_VD: Tensor, bias_V: Tensor, multiple: int) -> Tensor:
    """Return the linear layer's outputs (M, V), computed with V padded to a multiple."""
    # A GPU multiplies several times as fast if rows are aligned; rows of 30,522 logits are not. The
    # weights themselves keep their size, as checkpoints have it:
    #
    #     weight   | 30,522 rows | 38 of zeros |      -30,522 % 64 = 38
    #     logits   | 30,522      | cut off     |
    vocab_size = len(bias_V)
    num_added = -vocab_size % multiple
    if not num_added:
        return F.linear(values_MD, weight_VD, bias_V)
    # F.pad takes the last dimension's two ends first: D stays, V grows at its end.
    padded_weight = F.pad(weight_VD, (0, 0, 0, num_added))
    padded_bias = F.pad(bias_V, (0, num_added))
    padded_logits = F.linear(values_MD, padded_weight, padded_bias)
    return padded_logits[:, :vocab_size]


class PretrainHeads(nn.Module):
    """Both heads, under the keys of ``transformers``."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.predictions = MaskedLMHead(config)
        self.seq_relationship = nn.Linear(config.hidden_size, 2)


class BertForPreTraining(nn.Module):
    """BERT with its masked-LM and next-sentence heads."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.bert = BertModel(config)
        self.cls = PretrainHeads(config)

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor,
        attention_mask_BL: Tensor | None,
        token_index_T: Tensor | None,
        masked_index: Tensor,
        masked_ids: Tensor,
        next_sentence_label_B: Tensor | None,
        position_ids: Tensor | None = None,
        row_starts: Tensor | None = None,
        max_length: int = 0,
    ) -> PretrainSums:
        """Return the summed losses and the numbers of correct predictions.

        `IGNORED` labels count in neither. Rows are padded (B, L) as `BertModel.forward` takes them,
        or packed with `row_starts` as in `PackedRows`; token ids, their types and positions then
        have any shape of T tokens. `masked_index` are flat indices in B * L or T, `masked_ids` the
        tokens to predict, all int64. Without labels the next-sentence head is left out and its sums
        are 0.
        """
        if row_starts is None:
            hidden = self.bert(input_ids, token_type_ids, attention_mask_BL, token_index_T)
            first_tokens = hidden
        else:
            assert position_ids is not None
            hidden = self.bert.packed_states(
                input_ids.flatten(),
                token_type_ids.flatten(),
                position_ids.flatten(),
                row_starts,
                max_length,
            )
            # Empty rows at the end have no first token; they read the last one of all, which does
            # not count, as their label is `IGNORED`:
            #
            #     tokens          a0 a1 b0 b1 b2       T = 5
            #     row_starts      0 2 5 5              rows a, b and an empty one, then T
            #     first_index_B   0 2 4
            first_index_B = row_starts[:-1].clamp(max=len(hidden) - 1)
            first_tokens = hidden.index_select(0, first_index_B)[:, None]

        masked_ids_M = masked_ids.flatten()
        logits_MV = self.mlm_logits(hidden, masked_index.flatten())
        mlm_loss = _summed_loss(logits_MV, masked_ids_M)
        mlm_correct = count_correct(logits_MV, masked_ids_M, exact=not self.training)
        if next_sentence_label_B is None:
            # A tensor on the device, as the sums of all micro-batches are added up there.
            zero = torch.zeros_like(mlm_loss)
            return PretrainSums(mlm_loss, zero, mlm_correct, zero)
        logits_B2 = self.nsp_logits(first_tokens)
        nsp_loss = _summed_loss(logits_B2, next_sentence_label_B)
        nsp_correct = count_correct(logits_B2, next_sentence_label_B, exact=not self.training)
        return PretrainSums(mlm_loss, nsp_loss, mlm_correct, nsp_correct)

    def mlm_logits(self, hidden: Tensor, masked_index_M: Tensor) -> Tensor:
        """Return logits (M, V) at flat indices in `hidden`, which is (B, L, D) or (T, D)."""
        # Chosen before the product with the vocabulary: 15% of the tokens, so 15% of its cost.
        flat = hidden.reshape(-1, hidden.shape[-1])
        hidden_MD = flat.index_select(0, masked_index_M)
        return self.cls.predictions(hidden_MD, self.bert.embeddings.word_embeddings.weight)

    def nsp_logits(self, hidden_BLD: Tensor) -> Tensor:
        """Return logits (B, 2) of IsNext and NotNext."""
        return self.cls.seq_relationship(self.bert.pooler(hidden_BLD))


def _summed_loss(logits: Tensor, labels: Tensor) -> Tensor:
    # float(): under autocast the logits are bf16, and the CPU would sum up their softmax in that.
    return F.cross_entropy(logits.float(), labels, reduction="sum")


def count_correct(logits: Tensor, labels: Tensor, *, exact: bool) -> Tensor:
    """Return how many labels have the largest logit; unless `exact`, also if another is as large.

    In bf16 an accuracy that is not exact is about 0.1 points too high.
    """
    with torch.no_grad():
        if exact:
            return (logits.argmax(1) == labels).sum()
        # Ties are not told apart: that takes an eighth of the time of argmax on a CPU.
        # `IGNORED` is no index; clamped, it reads some logit, which does not count.
        is_label = labels != IGNORED
        index = labels.clamp(min=0)[:, None]
        label_logits = logits.gather(1, index).squeeze(1)
        has_largest_logit = label_logits >= logits.amax(1)
        return (has_largest_logit & is_label).sum()
