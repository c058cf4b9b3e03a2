"""Trace a model into an ONNX graph of dynamic batch and length, with the names of inputs and
outputs that ``optimum``, sentence-transformers and transformers.js look for.

Shapes: B rows, L tokens of the longest row, N examples, C choices of each, E = 3 * hidden size.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...pipeline.errors import UserError
from ..encoders.attention import PaddedRows
from ..encoders.heads import PretrainModel
from ..tasks.batches import TaskBatch
from ..tasks.choice import ChoiceModel
from ..tasks.head import TaskModel
from ..tasks.squad import SpanClassifier

OPSET = 18


class TracedRows(PaddedRows):
    """`PaddedRows` without the choices that depend on the number of tokens: a graph has one path
    for all lengths.
    """

    def attend(
        self, qkv_TE: Tensor, num_heads: int, rate: float, window: int | None = None
    ) -> Tensor:
        """Return the values that each token gathers (B * L, D); see `PaddedRows.attend`."""
        qkv_BL3HK = qkv_TE.view(self.num_rows, self.max_length, 3, num_heads, -1)
        q_BHLK, k_BHLK, v_BHLK = qkv_BL3HK.permute(2, 0, 3, 1, 4).unbind(0)
        mask = self.key_mask_B11L
        assert mask is not None
        if window is not None:
            positions_L = torch.arange(self.max_length, device=qkv_TE.device)
            distance_LL = (positions_L[:, None] - positions_L).abs()
            # Padding sees itself: a softmax over nothing is NaN.
            mask = (mask & (distance_LL <= window)) | (distance_LL == 0)
        context_BHLK = F.scaled_dot_product_attention(q_BHLK, k_BHLK, v_BHLK, attn_mask=mask)
        return context_BHLK.transpose(1, 2).reshape(self.num_rows * self.max_length, -1)


class Form(NamedTuple):
    """How programs call a kind of model."""

    outputs: tuple[str, ...]
    num_choices: int = 0
    """Of multiple choice, whose inputs are (N, C, L), not (B, L)."""


class Traceable(nn.Module):
    """A model as ONNX programs call it: token ids and masks to logits, or to hidden states."""

    def __init__(self, model: PretrainModel | TaskModel):
        super().__init__()
        if model.encoder.config.is_decoder:
            raise UserError(
                "A left-to-right model has no ONNX form: no program outside computes one."
            )
        self.model = model.eval()
        self.form = _form(model)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs, all int64."""
        return _input_names(self.model)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor | tuple[Tensor, ...]:
        """Return what `Form.outputs` names."""
        ids_BL = input_ids.flatten(0, -2)
        mask_BL = attention_mask.flatten(0, -2).bool()
        types_BL = torch.zeros_like(ids_BL)
        if token_type_ids is not None:
            types_BL = token_type_ids.flatten(0, -2)
        model = self.model
        if isinstance(model, PretrainModel):
            return model.token_logits(model.encoder(ids_BL, types_BL, mask_BL))
        no_index: Tensor = None  # pyright: ignore[reportAssignmentType]  # all tokens are computed
        outputs = model(TaskBatch(ids_BL, types_BL, mask_BL, no_index, None))
        if isinstance(model, SpanClassifier):
            return outputs[..., 0], outputs[..., 1]
        return outputs


def _form(model: PretrainModel | TaskModel) -> Form:
    if isinstance(model, SpanClassifier):
        return Form(("start_logits", "end_logits"))
    if isinstance(model, ChoiceModel):
        return Form(("logits",), model.num_choices)
    return Form(("logits",))


def _input_names(model: PretrainModel | TaskModel) -> tuple[str, ...]:
    names = ("input_ids", "attention_mask")
    if model.encoder.config.model_type == "modernbert":
        return names  # it has no segments
    return (*names, "token_type_ids")


def example_rows(traceable: Traceable, lengths: Sequence[int], seed: int = 0) -> dict[str, Tensor]:
    """Return rows of random tokens of these lengths, padded, as the inputs of a graph."""
    lengths_B1 = torch.tensor(lengths)[:, None]
    columns_L = torch.arange(max(lengths))
    is_real = columns_L < lengths_B1
    # The second half of a row is its segment B.
    types = columns_L >= lengths_B1 // 2
    num_choices = traceable.form.num_choices
    if num_choices:
        is_real = is_real[:, None].expand(-1, num_choices, -1)
        types = types[:, None].expand(-1, num_choices, -1)
    vocab_size = traceable.model.encoder.config.vocab_size
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(vocab_size, is_real.shape, generator=generator)
    rows = {
        "input_ids": ids.where(is_real, 0),
        "attention_mask": is_real.long(),
        "token_type_ids": (types & is_real).long(),
    }
    return {name: rows[name] for name in traceable.inputs}


def write_graph(traceable: Traceable, path: Path) -> None:
    """Write the graph of a model, in fp32."""
    encoder = traceable.model.encoder
    batch = torch.export.Dim("batch")
    length = torch.export.Dim("length")
    axes = {0: batch, 1: length}
    if traceable.form.num_choices:
        axes = {0: batch, 2: length}
    layout = encoder.padded_layout
    encoder.padded_layout = TracedRows
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of PyTorch's own exporter
            program = torch.onnx.export(
                traceable,
                tuple(example_rows(traceable, (7, 11)).values()),
                dynamo=True,
                verbose=False,
                opset_version=OPSET,
                input_names=list(traceable.inputs),
                output_names=list(traceable.form.outputs),
                dynamic_shapes=tuple(axes for _ in traceable.inputs),
            )
    finally:
        encoder.padded_layout = layout
    assert program is not None
    program.save(path)
