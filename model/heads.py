"""The pre-training heads: masked-LM logits at chosen positions only, and next-sentence prediction.

Shapes: B rows, L padded length, T packed tokens, D hidden size, M predicted tokens, V vocabulary.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .bert import BertModel, DenseGelu
from .config import ModelConfig

IGNORED = -100
"""Label of what is not predicted or only pads a batch; the ``ignore_index`` of
`torch.nn.functional.cross_entropy`.
"""


class PretrainSums(NamedTuple):
    """Sums over a micro-batch, scalars; the caller divides by the counts of the whole global batch."""

    mlm_loss: Tensor
    nsp_loss: Tensor
    mlm_correct: Tensor
    nsp_correct: Tensor


class Transform(DenseGelu):
    """Linear layer, GELU, LayerNorm, before the decoder of the masked-LM head."""

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
        multiple = 64 if hidden_MD.device.type == "cuda" else 1
        return aligned_linear(self.transform(hidden_MD), embeddings_VD, self.bias, multiple)


def aligned_linear(values_MD: Tensor, weight_VD: Tensor, bias_V: Tensor, multiple: int) -> Tensor:
    """Return the linear layer's (M, V), computed with V padded to a multiple of `multiple`, but not
    the weights themselves.

    A GPU multiplies several times as fast where rows are aligned, which those of 30,522 logits are
    not.
    """
    num_added = -len(bias_V) % multiple
    if not num_added:
        return F.linear(values_MD, weight_VD, bias_V)
    padded = F.linear(
        values_MD, F.pad(weight_VD, (0, 0, 0, num_added)), F.pad(bias_V, (0, num_added))
    )
    return padded[:, : len(bias_V)]


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
        """Return the summed losses and the numbers of correct predictions; `IGNORED` labels count
        in neither.

        Rows are padded (B, L) as `BertModel.forward` takes them, or packed with `row_starts` as in
        `PackedRows`; token ids, their types and positions then have any shape of T tokens.
        `masked_index` are flat indices in B * L or T, `masked_ids` the tokens to predict, all
        int64. Without labels the next-sentence head is left out and its sums are 0.
        """
        if row_starts is None:
            hidden = first = self.bert(input_ids, token_type_ids, attention_mask_BL, token_index_T)
        else:
            assert position_ids is not None
            ids_T, types_T, positions_T = (
                part.flatten() for part in (input_ids, token_type_ids, position_ids)
            )
            hidden = self.bert.packed_states(ids_T, types_T, positions_T, row_starts, max_length)
            # Empty rows at the end have no first token; their label is `IGNORED`.
            first = hidden.index_select(0, row_starts[:-1].clamp(max=len(hidden) - 1))[:, None]
        masked_ids_M = masked_ids.flatten()
        logits_MV = self.mlm_logits(hidden, masked_index.flatten())
        # float(): under autocast the logits are bf16, and the CPU would sum up their softmax in
        # that.
        mlm_loss = F.cross_entropy(logits_MV.float(), masked_ids_M, reduction="sum")
        mlm_correct = _num_correct(logits_MV, masked_ids_M, exact=not self.training)
        if next_sentence_label_B is None:
            zero = torch.zeros_like(mlm_loss)
            return PretrainSums(mlm_loss, zero, mlm_correct, zero)
        logits_B2 = self.nsp_logits(first)
        nsp_loss = F.cross_entropy(logits_B2.float(), next_sentence_label_B, reduction="sum")
        nsp_correct = _num_correct(logits_B2, next_sentence_label_B, exact=not self.training)
        return PretrainSums(mlm_loss, nsp_loss, mlm_correct, nsp_correct)

    def mlm_logits(self, hidden: Tensor, masked_index_M: Tensor) -> Tensor:
        """Return logits over the vocabulary (M, V) at flat indices in `hidden`, (B, L, D) or (T,
        D).
        """
        hidden_MD = hidden.reshape(-1, hidden.shape[-1]).index_select(0, masked_index_M)
        return self.cls.predictions(hidden_MD, self.bert.embeddings.word_embeddings.weight)

    def nsp_logits(self, hidden_BLD: Tensor) -> Tensor:
        """Return logits (B, 2) of IsNext and NotNext."""
        return self.cls.seq_relationship(self.bert.pooler(hidden_BLD))


def _num_correct(logits: Tensor, labels: Tensor, *, exact: bool) -> Tensor:
    """Return how many labels have the largest logit; unless `exact`, also where another one is as
    large.

    That takes an eighth of the time of argmax on a CPU; an accuracy from it is about 0.1 points too
    high in bf16.
    """
    with torch.no_grad():
        if exact:
            return (logits.argmax(1) == labels).sum()
        chosen = logits.gather(1, labels[:, None].clamp(min=0)).squeeze(1)
        return ((chosen >= logits.amax(1)) & (labels != IGNORED)).sum()
