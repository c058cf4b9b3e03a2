"""Compute the pre-training losses: masked-LM logits at chosen positions only, and next sentence.

Shapes: B rows, L padded length, T packed tokens, D hidden size, M predicted tokens, V vocabulary.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from . import transfer
from .attention import computed_length, extended
from .config import EncoderConfig
from .encoder import Encoder

IGNORED = -100
"""Label of what is not predicted or only pads a batch, as PyTorch's cross-entropy has it."""
HEADS = ("cls.", "classifier.", "head.", "decoder.", "lm_head.", "qa_outputs.")
"""How the names of weights begin in checkpoints that belong to no encoder."""
CHUNK_LOGITS = 2**26
"""Logits computed at a time where `EncoderConfig.predicts_in_chunks`; 256 MB in fp32."""


class PretrainBatch(NamedTuple):
    """Rows, padded or packed, and what to predict in them; what is `IGNORED` counts nowhere."""

    input_ids: Tensor
    """int64 (B, L), or packed (T,), also in blocks (G, N)."""
    token_type_ids: Tensor
    attention_mask_BL: Tensor | None
    token_index_T: Tensor | None
    """As `Encoder.forward` takes them."""
    masked_index: Tensor
    """Flat indices in B * L or T, int64, of any shape."""
    masked_ids: Tensor
    """The tokens to predict there, int64, of the same shape."""
    next_sentence_label_B: Tensor | None
    """int64; None leaves the next-sentence head out."""
    position_ids: Tensor | None = None
    row_starts: Tensor | None = None
    """As in `PackedRows`."""
    max_length: int = 0
    counts: Tensor | None = None
    """float32 (2,): predicted tokens and rows, by which an update divides its losses."""
    piece: Tensor | None = None
    """See `transfer`."""

    def pin(self) -> "PretrainBatch":
        """Copy the batch to pinned memory, ahead of `to`."""
        return transfer.pin(self)

    def to(self, device: torch.device) -> "PretrainBatch":
        """Copy the batch to `device`, without waiting for a GPU."""
        return transfer.send(self, device)


class PretrainSums(NamedTuple):
    """Sums over a micro-batch, scalars; the caller divides by the counts of the global batch."""

    mlm_loss: Tensor
    nsp_loss: Tensor
    mlm_correct: Tensor
    nsp_correct: Tensor


class PretrainOutput(NamedTuple):
    """Logits, of next sentences if the model has them; a mean loss if there were labels."""

    loss: Tensor | None
    logits: Tensor
    """(B, L, V)."""
    seq_relationship_logits: Tensor | None
    """(B, 2)."""


def tied_logits(
    values_MD: Tensor, embeddings_VD: Tensor, bias_V: Tensor, multiple: int | None = None
) -> Tensor:
    """Return logits (M, V) through the embedding matrix, computed with V padded to a `multiple`:
    by default of 64 on a GPU, elsewhere to none.
    """
    # A GPU multiplies several times as fast if rows are aligned; rows of 30,522 logits are not. The
    # weights themselves keep their size, as checkpoints have it:
    #
    #     weight   | 30,522 rows | 38 of zeros |      -30,522 % 64 = 38
    #     logits   | 30,522      | cut off     |
    if multiple is None:
        multiple = 64 if values_MD.device.type == "cuda" else 1
    vocab_size = len(bias_V)
    num_added = -vocab_size % multiple
    if not num_added:
        return F.linear(values_MD, embeddings_VD, bias_V)
    # F.pad takes the last dimension's two ends first: D stays, V grows at its end.
    padded_weight = F.pad(embeddings_VD, (0, 0, 0, num_added))
    padded_bias = F.pad(bias_V, (0, num_added))
    padded_logits = F.linear(values_MD, padded_weight, padded_bias)
    return padded_logits[:, :vocab_size]


class PretrainModel(nn.Module, ABC):
    """An encoder with the heads of pre-training; parameter names as in ``transformers``."""

    encoder_class: ClassVar[type[Encoder]]
    vocabulary_weights: ClassVar[tuple[str, str]]
    """Names of the weights with one row per token: the embeddings, and the bias of the logits."""
    untied_weight: ClassVar[str]
    """Name of the output matrix in a checkpoint where it is not the word embeddings."""
    heads: ClassVar[Mapping[str, str]]
    """Parts that a checkpoint may lack: their names in messages, by their weights' prefix."""
    positions_weight: ClassVar[str | None] = None
    """Name of the table of positions, if there is one."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.config = config
        self.add_module(self.encoder_class.prefix, self.encoder_class(config))

    @property
    def encoder(self) -> Encoder:
        return getattr(self, self.encoder_class.prefix)

    @abstractmethod
    def token_logits(self, hidden_MD: Tensor) -> Tensor:
        """Return logits over the vocabulary (M, V)."""

    def nsp_logits(self, hidden_BLD: Tensor) -> Tensor:
        """Return logits (B, 2) of IsNext and NotNext; only BERT has a head for them."""
        raise NotImplementedError(f"A {self.config.title} has no next-sentence head.")

    @classmethod
    def current_names(cls, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the weights of a checkpoint under the names of ``transformers`` today."""
        # In the file, of a BERT                today
        # bert.embeddings.LayerNorm.gamma       bert.embeddings.LayerNorm.weight
        # encoder.layer.0.output.dense.bias     bert.encoder.layer.0.output.dense.bias
        # cls.predictions.decoder.weight        left out if it is the word embeddings again
        # cls.predictions.decoder.bias          cls.predictions.bias, if that is missing
        # bert.embeddings.position_ids          left out: 0, 1, 2, …
        # bert.embeddings.token_type_ids        left out: 0, 0, 0, …
        prefix = f"{cls.encoder_class.prefix}."
        encoder_alone = not any(name.startswith(prefix) for name in weights)
        renamed: dict[str, Tensor] = {}
        for name, weight in weights.items():
            if name.endswith(("position_ids", "token_type_ids")):
                continue
            name = name.replace("LayerNorm.gamma", "LayerNorm.weight")
            name = name.replace("LayerNorm.beta", "LayerNorm.bias")
            if encoder_alone and not name.startswith(HEADS):
                name = f"{prefix}{name}"
            renamed[name] = weight
        words, bias = cls.vocabulary_weights
        output_bias = renamed.pop(cls.untied_weight.replace(".weight", ".bias"), None)
        if output_bias is not None:
            renamed.setdefault(bias, output_bias)
        output = renamed.get(cls.untied_weight)
        if output is not None and words in renamed and torch.equal(output, renamed[words]):
            del renamed[cls.untied_weight]
        return renamed

    def with_positions(self, num_positions: int) -> Self:
        """Return the model for rows of up to `num_positions` tokens, more than now."""
        longer = type(self)(self.config.with_positions(num_positions))
        longer.load_state_dict(self.weights_for(longer.config))
        return longer

    def weights_for(self, config: EncoderConfig) -> dict[str, Tensor]:
        """Return the weights with further positions, copies of the first, as in Longformer."""
        weights = self.state_dict()
        if self.positions_weight:
            table_PD = weights[self.positions_weight]
            used_PD = table_PD[self.config.first_position :]
            # 4 positions that become 10: 0 1 2 3  0 1 2 3  0 1.
            copied = torch.arange(config.num_positions) % len(used_PD)
            # Padding, whose states nobody reads, has the rows before.
            padding_PD = table_PD[:1].expand(config.first_position, -1)
            weights[self.positions_weight] = torch.cat([padding_PD, used_PD[copied]])
        return weights

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        next_sentence_label: Tensor | None = None,
    ) -> PretrainOutput:
        """Return what a model of ``transformers`` returns for the same arguments, int64 (B, L), and
        (B,) for `next_sentence_label`; ``collate`` makes them of rows that are not packed.
        """
        states_BLD = self.encoder(input_ids, token_type_ids, attention_mask)
        logits_MV = self.token_logits(states_BLD.flatten(0, 1))
        logits = logits_MV.view(*input_ids.shape, -1)
        next_sentence_logits = None
        if "mlm+nsp" in self.config.objectives:
            next_sentence_logits = self.nsp_logits(states_BLD)
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits_MV.float(), labels.flatten())
            if next_sentence_label is not None and next_sentence_logits is not None:
                loss = loss + F.cross_entropy(next_sentence_logits.float(), next_sentence_label)
        return PretrainOutput(loss, logits, next_sentence_logits)

    def sums(self, batch: PretrainBatch) -> PretrainSums:
        """Return the sums; without labels those of sentences are 0."""
        if batch.row_starts is None:
            hidden = self.encoder(
                batch.input_ids,
                batch.token_type_ids,
                batch.attention_mask_BL,
                batch.token_index_T,
            )
            first_tokens = hidden
        else:
            assert batch.position_ids is not None
            hidden = self.encoder.packed_states(
                batch.input_ids,
                batch.token_type_ids,
                batch.position_ids,
                batch.row_starts,
                batch.max_length,
            )
            # Empty rows at the end have no first token; they read the last one of all, which does
            # not count, as their label is `IGNORED`:
            #
            #     tokens          a0 a1 b0 b1 b2       T = 5
            #     row_starts      0 2 5 5              rows a, b and an empty one, then T
            #     first_index_B   0 2 4
            first_index_B = batch.row_starts[:-1].clamp(max=len(hidden) - 1)
            first_tokens = hidden.index_select(0, first_index_B)[:, None]

        hidden_MD = _chosen(hidden, batch.masked_index.flatten())
        length = computed_length(hidden_MD)
        ids_M = extended(batch.masked_ids.flatten(), length, IGNORED)
        mlm_loss, mlm_correct = self.mlm_sums(extended(hidden_MD, length), ids_M)
        label_B = batch.next_sentence_label_B
        if label_B is None:
            # A tensor on the device, as the sums of all micro-batches are added up there.
            zero = torch.zeros_like(mlm_loss)
            return PretrainSums(mlm_loss, zero, mlm_correct, zero)
        logits_B2 = self.nsp_logits(first_tokens)
        nsp_loss = _summed_loss(logits_B2, label_B)
        nsp_correct = count_correct(logits_B2, label_B, exact=not self.training)
        return PretrainSums(mlm_loss, nsp_loss, mlm_correct, nsp_correct)

    def mlm_logits(self, hidden: Tensor, masked_index_M: Tensor) -> Tensor:
        """Return logits (M, V) at flat indices in `hidden`, which is (B, L, D) or (T, D)."""
        return self.token_logits(_chosen(hidden, masked_index_M))

    def mlm_sums(self, hidden_MD: Tensor, masked_ids_M: Tensor) -> tuple[Tensor, Tensor]:
        """Return the summed masked-LM loss and the number of correct predictions."""
        if not self.config.predicts_in_chunks:
            return self._sums_of_chunk(hidden_MD, masked_ids_M)
        size = max(1, CHUNK_LOGITS // self.config.vocab_size)
        chunks = zip(hidden_MD.split(size), masked_ids_M.split(size), strict=True)
        # Only a chunk's hidden states are kept for the backward pass, not its logits. Nothing in it
        # is random, and a state that is looked at cannot be captured in a CUDA graph.
        sums = [
            checkpoint(self._sums_of_chunk, *chunk, use_reentrant=False, preserve_rng_state=False)
            for chunk in chunks
        ]
        losses, num_correct = zip(*sums, strict=True)
        return torch.stack(losses).sum(), torch.stack(num_correct).sum()

    def _sums_of_chunk(self, hidden_MD: Tensor, masked_ids_M: Tensor) -> tuple[Tensor, Tensor]:
        logits_MV = self.token_logits(hidden_MD)
        loss = _summed_loss(logits_MV, masked_ids_M)
        return loss, count_correct(logits_MV, masked_ids_M, exact=not self.training)

    def compile_parts(self, **options: Any) -> None:
        """Compile the encoder's parts and the masked-LM loss; see `Encoder.compile_parts`."""
        self.encoder.compile_parts(**options)
        # With its loss, so that no logits are written in fp32: each would take 4 * V bytes.
        self._sums_of_chunk = torch.compile(self._sums_of_chunk, dynamic=True, **options)


def _chosen(hidden: Tensor, index_M: Tensor) -> Tensor:
    """Return the states (M, D) at flat indices in `hidden`, (B, L, D) or (T, D)."""
    # Chosen before the product with the vocabulary: 15% of the tokens, so 15% of its cost.
    return hidden.reshape(-1, hidden.shape[-1]).index_select(0, index_M)


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
        # `IGNORED` is not an index; clamped, it reads some logit, which does not count.
        is_label = labels != IGNORED
        index = labels.clamp(min=0)[:, None]
        label_logits = logits.gather(1, index).squeeze(1)
        has_largest_logit = label_logits >= logits.amax(1)
        return (has_largest_logit & is_label).sum()
