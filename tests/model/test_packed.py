"""Packed rows: the losses and gradients of padded ones, few shapes, what a GPU alone computes."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from clozeworks.model.encoders import bert
from clozeworks.model.encoders.attention import PackedRows
from clozeworks.model.encoders.bert import BertForPreTraining, segment_embeddings
from clozeworks.model.encoders.bert_config import ModelConfig
from clozeworks.model.encoders.encoder import initialise
from clozeworks.model.encoders.heads import IGNORED, PretrainBatch, PretrainModel
from clozeworks.model.pretraining import batches
from clozeworks.model.pretraining.batches import (
    check_packing,
    make_batches,
    pack_batches,
    packs_rows,
)
from clozeworks.model.pretraining.data import open_instances
from clozeworks.model.pretraining.evaluate import batch_sums
from clozeworks.model.pretraining.sequence import RowSequence
from clozeworks.model.training.device import autocast
from clozeworks.pipeline.instances.rows import Rows
from torch import Tensor, nn
from torch._dynamo.utils import counters

from tests.fixtures.instances_fixture import write_instances

CPU = torch.device("cpu")
SHAPE = ModelConfig(
    vocab_size=60, hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=80,
    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)  # fmt: skip
pytestmark = pytest.mark.usefixtures("packed_on_cpu")


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> Rows:
    path = write_instances(tmp_path_factory.mktemp("instances"), rows_per_group=80, max_length=40)
    return RowSequence(open_instances(str(path)), seed=3).rows(0, 150)


@pytest.fixture(scope="module")
def few_rows(tmp_path_factory) -> Rows:
    path = write_instances(tmp_path_factory.mktemp("instances"), rows_per_group=80, max_length=40)
    return RowSequence(open_instances(str(path)), seed=3).rows(0, 50)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch) -> None:
    """Pad less, because the CPU's attention takes time and memory with the square of the tokens."""
    monkeypatch.setattr(batches, "TOKEN_BLOCK", 128)
    monkeypatch.setattr(bert, "TOKEN_BLOCK", 128)


@pytest.fixture
def half_stream(monkeypatch) -> Iterator[None]:
    """Compute on the CPU as on a GPU: hidden states in the number format of the matrix products."""
    monkeypatch.setattr(bert, "HALF_STREAM_DEVICES", ("cpu", "cuda"))
    yield


def make_model(seed: int = 0, **changes: Any) -> BertForPreTraining:
    config = replace(SHAPE, **changes)
    model = BertForPreTraining(config)
    initialise(model, config, torch.Generator().manual_seed(seed))
    with torch.no_grad():  # larger than at first, so that rows differ
        for parameter in model.parameters():
            parameter.mul_(2)
    return model


def loss_and_gradients(
    model: PretrainModel, parts: list[PretrainBatch]
) -> tuple[Tensor, list[Tensor]]:
    """Return the sums of `batch_sums` over all parts, and the gradients of their loss."""
    model.zero_grad()
    totals = torch.zeros(6, dtype=torch.float64)
    for batch in parts:
        sums = model.sums(batch)
        (sums.mlm_loss + sums.nsp_loss).backward()
        totals += batch_sums(batch, sums)
    return totals, [
        torch.zeros(0) if p.grad is None else p.grad.clone() for p in model.parameters()
    ]


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["mlm+nsp", "mlm", "ltr"])
def test_packed_rows_have_the_losses_and_gradients_of_padded_ones(rows, objective):
    model = make_model(is_decoder=objective == "ltr")
    padded = make_batches(rows, 32, objective)
    packed = pack_batches(rows, 60, 40, objective)
    starts = [batch.row_starts for batch in packed if batch.row_starts is not None]
    assert [len(each) for each in starts] == [60 + 7 + 1] * 3
    expected, found = loss_and_gradients(model, padded), loss_and_gradients(model, packed)
    torch.testing.assert_close(found[0], expected[0], rtol=1e-6, atol=1e-6)
    for mine, other in zip(found[1], expected[1], strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_a_packed_batch_holds_the_rows_and_padding_that_counts_nothing(few_rows):
    (batch,) = pack_batches(few_rows, 50, 40)
    num_tokens, starts = int(few_rows.lengths.sum()), batch.row_starts
    assert starts is not None and batch.position_ids is not None
    assert batch.next_sentence_label_B is not None
    assert batch.input_ids.shape == (-(-num_tokens // 128), 128)
    assert batch.masked_ids.shape[1] == 256
    np.testing.assert_array_equal(starts[:51], few_rows.offsets)
    # The padding is rows too, none of them too long for the kernel; the last ones are empty.
    assert starts[-1] == batch.input_ids.numel()
    assert starts.diff().min() >= 0 and starts.diff().max() <= 40
    np.testing.assert_array_equal(batch.input_ids.flatten()[:num_tokens], few_rows.input_ids)
    assert not batch.input_ids.flatten()[num_tokens:].any()
    first_of_rows = batch.position_ids.flatten()[starts[:-1][starts[:-1] < starts[-1]].long()]
    assert not first_of_rows.any() and batch.position_ids.max() < 40
    np.testing.assert_array_equal(batch.next_sentence_label_B[:50], few_rows.next_sentence_label)
    assert (batch.next_sentence_label_B[50:] == IGNORED).all()
    real = batch.masked_ids.flatten() != IGNORED
    np.testing.assert_array_equal(batch.masked_ids.flatten()[real], few_rows.masked_ids)
    totals, _ = loss_and_gradients(make_model(), [batch])
    assert totals[4:].tolist() == [few_rows.num_masked.sum(), 50]


def test_the_operator_takes_these_arguments_forward_and_backward():
    # A meta tensor has a shape but no values, so the operator runs without a GPU.
    qkv = torch.empty(2048, 3 * 768, device="meta", dtype=torch.bfloat16, requires_grad=True)
    starts = torch.empty(40, dtype=torch.int32, device="meta")
    context = PackedRows(starts, 128, False).attend(qkv, 12, 0.1)
    assert (context.shape, context.dtype) == ((2048, 768), torch.bfloat16)
    (gradient,) = torch.autograd.grad(context.float().sum(), qkv)
    assert gradient.shape == qkv.shape


def test_a_device_is_checked_before_rows_are_packed(monkeypatch, capsys):
    for is_decoder in (False, True):
        check_packing(replace(SHAPE, is_decoder=is_decoder), CPU, torch.float32)
    attend = PackedRows.attend

    # The others are queries, keys and values, the number of heads, the dropout rate and the window.
    def across_rows(layout: PackedRows, *others: Any) -> Tensor:
        return attend(layout._replace(row_starts=layout.row_starts[[0, -1]]), *others)

    def undefined(layout: PackedRows, *others: Any) -> Tensor:
        return attend(layout, *others) * torch.nan

    def unscaled(layout: PackedRows, qkv: Tensor, heads: int, rate: float, *window: Any) -> Tensor:
        return attend(layout, qkv, heads, rate, *window) * (1 - rate)

    def without_dropout(layout: PackedRows, qkv: Tensor, heads: int, _: float, *window: Any):
        return attend(layout, qkv, heads, 0.0, *window)

    reasons = dict.fromkeys((across_rows, undefined), "gradients differ")
    reasons |= dict.fromkeys((unscaled, without_dropout), "mean")
    for wrong, reason in reasons.items():
        monkeypatch.setattr(PackedRows, "attend", wrong)
        with pytest.raises(AssertionError, match=reason):
            check_packing(SHAPE, CPU, torch.float32)

    def missing(*_: object) -> None:
        raise NotImplementedError("no kernel for this GPU\nand much more")

    monkeypatch.setattr(batches, "check_packing", missing)
    assert not packs_rows(SHAPE, torch.device("cuda"), torch.bfloat16)
    assert capsys.readouterr().err == (
        "Rows are padded, because attention to packed rows does not work here (no kernel for this "
        "GPU).\n"
    )
    assert not packs_rows(SHAPE, CPU, torch.bfloat16)
    assert not packs_rows(SHAPE, torch.device("cuda"), torch.float32)
    assert capsys.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.usefixtures("half_stream")
def test_between_layers_the_states_are_bf16_and_layer_norm_sees_fp32(few_rows):
    model, seen = make_model(), []
    for layer in model.bert.parts:
        layer.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].dtype))
    (batch,) = pack_batches(few_rows, 50, 40)
    with autocast(CPU, torch.bfloat16):
        sums = model.sums(batch)
    layer = [torch.float32, torch.float32, torch.bfloat16]
    # The embeddings, three layers, and the head's LayerNorm.
    assert seen == [torch.float32, torch.bfloat16, *layer * 3, torch.bfloat16]
    exact = model.sums(batch)
    assert sums.mlm_loss.item() == pytest.approx(exact.mlm_loss.item(), rel=0.01)
    (sums.mlm_loss + sums.nsp_loss).backward()
    assert {p.grad.dtype for p in model.parameters() if p.grad is not None} == {torch.float32}


@pytest.mark.usefixtures("half_stream")
def test_segment_embeddings_are_those_of_the_table():
    types, weight = torch.tensor([0, 1, 2, 1, 0, 0]), torch.randn(3, 5, requires_grad=True)
    found, expected = segment_embeddings(types, weight), nn.functional.embedding(types, weight)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(part.sin().sum(), weight)[0] for part in (found, expected)]
    torch.testing.assert_close(*gradients)


@pytest.mark.slow
def test_one_graph_serves_micro_batches_of_both_lengths(tmp_path):
    torch._dynamo.reset()
    counters.clear()
    dropout: Any = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    model = make_model(num_hidden_layers=1, hidden_size=16, **dropout)
    model.compile_parts(backend="eager", fullgraph=True)
    made = []
    for length, num_rows in ((128, 12), (512, 4)):
        path = write_instances(tmp_path / str(length), max_length=length)
        sequence = RowSequence(open_instances(str(path)), seed=0)
        rows_of_batches = (sequence.rows(n, n + num_rows) for n in range(0, 300, 40))
        made.append([pack_batches(rows, num_rows, length)[0] for rows in rows_of_batches])
    short, long = made
    assert len({batch.input_ids.shape for batch in short + long}) > 2
    for batch in (short[0], long[0]):
        loss_and_gradients(model, [batch])
    # Embeddings, layers, and the head with its loss.
    assert counters["stats"]["unique_graphs"] == 3
    with torch._dynamo.config.patch(error_on_recompile=True):
        for batch in short + long:
            loss_and_gradients(model, [batch])
    assert len(short + long) == 16 and not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] == 3


@pytest.mark.slow
def test_the_operator_is_traced_once_for_all_lengths():
    def attend(qkv: Tensor, row_starts: Tensor, max_length: int) -> Tensor:
        return PackedRows(row_starts, max_length, False).attend(qkv, 12, 0.1)

    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(attend, backend="aot_eager", dynamic=True, fullgraph=True)
    for num_tokens, num_rows, max_length in ((2048, 40, 128), (4096, 20, 512)):
        qkv = torch.empty(num_tokens, 3 * 768, device="meta", dtype=torch.bfloat16)
        qkv.requires_grad_()
        starts = torch.empty(num_rows, dtype=torch.int32, device="meta")
        compiled(qkv, starts, max_length).float().sum().backward()
        assert qkv.grad is not None and qkv.grad.shape == qkv.shape
    assert counters["stats"]["unique_graphs"] == 1
