"""Parity of the encoder and its heads with transformers: forward, losses and gradients."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from clozeworks.model.encoders.attention import dropout
from clozeworks.model.encoders.bert import BertForPreTraining
from clozeworks.model.encoders.bert_config import ModelConfig
from clozeworks.model.encoders.config import SIZES
from clozeworks.model.encoders.encoder import initialise, real_tokens
from clozeworks.model.encoders.heads import IGNORED, PretrainBatch, count_correct, tied_logits
from clozeworks.model.training.device import update_flops
from clozeworks.pipeline.errors import UserError
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tests.fixtures.parity_fixture import check_learning

SMALL = {
    "vocab_size": 97, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "intermediate_size": 80,
}  # fmt: skip
OTHER = SMALL | {
    "hidden_size": 40, "num_attention_heads": 2, "hidden_act": "gelu_new", "num_hidden_layers": 1,
}  # fmt: skip
LENGTHS = [[17, 17, 17], [3, 24, 11, 1], [9]]


def make_models(
    shape: dict, **changes
) -> tuple[BertForPreTraining, transformers.BertForPreTraining]:
    config = ModelConfig(**shape, max_position_embeddings=24, **changes)
    ours = BertForPreTraining(config)
    initialise(ours, config, torch.Generator().manual_seed(1))
    shared: dict[str, Any] = config.to_hf() | {"attn_implementation": "eager"}
    peer = transformers.BertForPreTraining(transformers.BertConfig(**shared))
    weights = ours.state_dict()
    # Biases too must differ from their initial value to be compared.
    for name, weight in weights.items():
        weight.add_(torch.linspace(-0.05, 0.05, weight.numel()).view(weight.shape))
        assert peer.state_dict()[name].shape == weight.shape
    peer.load_state_dict(weights, strict=False)
    return ours.eval(), peer.eval()


def make_batch(lengths: list[int], vocab_size: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(sum(lengths))
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    ids = torch.randint(1, vocab_size, mask.shape, generator=generator) * mask
    types = ((torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None] // 2) & mask).long()
    labels = torch.where(
        (torch.arange(mask.numel()).view(mask.shape) % 3 == 0) & mask, ids.roll(1, 0), -100
    )
    labels = labels.where(labels != 0, -100)
    nsp = torch.arange(len(lengths)) % 2
    return {"input_ids": ids, "token_type_ids": types, "mask": mask, "labels": labels, "nsp": nsp}


def run_ours(model: BertForPreTraining, batch: dict[str, torch.Tensor], packed: bool):
    index = (batch["labels"].reshape(-1) != -100).nonzero().squeeze(1)
    tokens = real_tokens(batch["mask"]) if packed else None
    args = (batch["input_ids"], batch["token_type_ids"], batch["mask"], tokens)
    labels = batch["labels"].reshape(-1)[index]
    sums = model.sums(PretrainBatch(*args, index, labels, batch["nsp"]))
    return sums.mlm_loss / len(index) + sums.nsp_loss / len(batch["nsp"]), sums


@pytest.mark.parametrize("shape", [SMALL, OTHER])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("packed", [False, True])
def test_equals_transformers(shape, lengths, packed):
    ours, peer = make_models(shape)
    batch = make_batch(lengths, shape["vocab_size"])
    theirs = peer(
        input_ids=batch["input_ids"],
        token_type_ids=batch["token_type_ids"],
        attention_mask=batch["mask"].long(),
        labels=batch["labels"],
        next_sentence_label=batch["nsp"],
    )
    loss, sums = run_ours(ours, batch, packed)
    hidden = ours.bert(batch["input_ids"], batch["token_type_ids"], batch["mask"])
    every = real_tokens(batch["mask"])
    expected = theirs.prediction_logits.reshape(-1, shape["vocab_size"])[every]
    torch.testing.assert_close(ours.mlm_logits(hidden, every), expected, rtol=0, atol=1e-5)
    pairs = theirs.seq_relationship_logits
    torch.testing.assert_close(ours.nsp_logits(hidden), pairs, rtol=0, atol=1e-5)
    right = (theirs.prediction_logits.argmax(-1) == batch["labels"])[batch["labels"] != -100].sum()
    assert sums.mlm_correct == run_ours(ours.eval(), batch, packed)[1].mlm_correct == right
    check_learning(ours, loss, peer, theirs.loss)


def test_left_to_right_equals_a_transformers_decoder_and_sees_no_future():
    ours, peer = make_models(SMALL, is_decoder=True)
    batch = make_batch([5, 12, 9], 97)
    args = (batch["input_ids"], batch["token_type_ids"], batch["mask"])
    theirs = peer(args[0], token_type_ids=args[1], attention_mask=args[2].long())
    positions = real_tokens(batch["mask"])
    expected = theirs.prediction_logits.reshape(-1, 97)[positions]
    actual = ours.mlm_logits(ours.bert(*args), positions)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)
    changed = batch["input_ids"].clone()
    changed[:, -1] = 7
    torch.testing.assert_close(ours.bert(changed, *args[1:])[:, :-1], ours.bert(*args)[:, :-1])


def test_dropout_on_the_cpu_attends_by_products_as_the_fused_kernel_does(monkeypatch):
    # A tiny dropout rate takes the training path on the CPU, and drops nothing.
    for is_decoder in (False, True):
        ours, _ = make_models(
            SMALL, attention_probs_dropout_prob=1e-9, hidden_dropout_prob=0.0, is_decoder=is_decoder
        )
        batch = make_batch([3, 24, 11], 97)
        expected, _ = run_ours(ours, batch, packed=True)
        actual, _ = run_ours(ours.train(), batch, packed=True)
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-6)


def test_short_rows_in_bf16_train_by_products_close_to_the_fused_kernel(monkeypatch):
    ours, _ = make_models(SMALL)
    batch = make_batch([3, 24, 12], 97)  # 39 tokens, of which 40 are computed
    fused = F.scaled_dot_product_attention
    calls: list[torch.dtype] = []

    def counted(query: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        calls.append(query.dtype)
        return fused(query, *args, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", counted)

    def gradients(dtype: torch.dtype) -> list[torch.Tensor]:
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            loss, _ = run_ours(ours, batch, packed=True)
        return list(torch.autograd.grad(loss, [p for p in ours.parameters() if p.ndim > 1]))

    expected = gradients(torch.float32)
    assert calls == [torch.float32] * 3  # a layer each
    for in_fp32, in_bf16 in zip(expected, gradients(torch.bfloat16), strict=True):
        assert (in_bf16 - in_fp32).norm() <= 0.02 * in_fp32.norm()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        run_ours(ours, batch, packed=True)
    assert calls[3:] == [torch.bfloat16] * 3  # nothing to gain in the forward pass alone


def test_hidden_states_of_all_layers_equal_transformers():
    ours, peer = make_models(SMALL)
    batch = make_batch([4, 20], 97)
    ids, types, mask = batch["input_ids"], batch["token_type_ids"], batch["mask"]
    named = {"token_type_ids": types, "attention_mask": mask}
    theirs = peer.bert(ids, **named, output_hidden_states=True)
    mine = ours.bert.hidden_states(ids, types, mask, real_tokens(mask), all_layers=True)
    assert len(mine) == len(theirs.hidden_states) == 4
    for actual, expected in zip(mine, theirs.hidden_states, strict=True):
        torch.testing.assert_close(actual[mask], expected[mask], rtol=0, atol=1e-5)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_drops_the_share_asked_for_and_scales_the_rest(rate):
    torch.manual_seed(3)
    values = torch.ones(1003, 301, requires_grad=True)
    dropped = dropout(values, rate, training=True)
    kept = dropped != 0
    num_values, share = kept.numel(), 1 - kept.float().mean().item()
    assert abs(share - rate) < 5 * np.sqrt(rate * (1 - rate) / num_values)
    torch.testing.assert_close(
        dropped[kept], torch.full((int(kept.sum()),), 1 / (1 - rate)), rtol=1e-4, atol=0
    )
    # Neighbours share a 64-bit draw; they must be independent all the same.
    both = (kept[:, :-1] & kept[:, 1:]).float().mean().item()
    assert abs(both - (1 - rate) ** 2) < 0.005
    dropped.sum().backward()
    torch.testing.assert_close(values.grad, dropped.detach())
    assert dropout(values, rate, training=False) is values


@pytest.mark.parametrize("rate", [0.999995, 1.0])
def test_the_highest_dropout_rates_leave_finite_numbers(rate):
    values = torch.ones(1000, requires_grad=True)
    dropped = dropout(values, rate, training=True)
    dropped.sum().backward()
    assert dropped.isfinite().all() and values.grad is not None and values.grad.isfinite().all()


def test_initial_weights_are_truncated_normal():
    config = ModelConfig.named("tiny", vocab_size=2000, initializer_range=0.02)
    model = BertForPreTraining(config)
    initialise(model, config, torch.Generator().manual_seed(0))
    words = model.bert.embeddings.word_embeddings.weight
    assert words.abs().max() <= 0.04
    # A normal distribution cut off at 2 sigma has 0.8796 of its standard deviation.
    assert words.std().item() == pytest.approx(0.02 * 0.8796, rel=0.01)
    assert not model.state_dict()["bert.encoder.layer.0.output.dense.bias"].any()
    assert (model.bert.embeddings.LayerNorm.weight == 1).all()


def test_named_sizes_have_the_published_numbers_of_parameters():
    # google-research/bert states 4.4, 11.3, 29.1, 41.7, 110.1 and 340 (335.1 without the heads)
    # million.
    published = {
        "tiny": 4.4, "mini": 11.2, "small": 28.8, "medium": 41.4, "base": 109.5, "large": 335.1,
    }  # fmt: skip
    assert published.keys() == SIZES.keys()
    for size, millions in published.items():
        with torch.device("meta"):
            bert = BertForPreTraining(ModelConfig.named(size)).bert
        assert sum(p.numel() for p in bert.parameters()) / 1e6 == pytest.approx(millions, abs=0.06)


def test_shapes_that_cannot_be_built_are_refused():
    with pytest.raises(UserError, match="hidden size of 100 cannot be split over 3 attention"):
        ModelConfig(hidden_size=100, num_attention_heads=3)
    with pytest.raises(UserError, match="`pad_token_id` is 100, but the vocabulary has 100 tokens"):
        ModelConfig(vocab_size=100, pad_token_id=100)


@pytest.mark.parametrize(
    "field, value, limit",
    [
        ("vocab_size", 0, "int >= 1"),
        ("type_vocab_size", -2, "int >= 1"),
        ("pad_token_id", -1, "int >= 0"),
        ("layer_norm_eps", -1e-12, "float >= 0.0"),
        ("attention_probs_dropout_prob", 1.5, "float <= 1.0"),
    ],
)
def test_a_number_out_of_range_is_refused(field, value, limit):
    with pytest.raises(UserError, match=f"^`{field}` is {value}: expected {limit}\\.$"):
        ModelConfig(**{field: value})
    wrong = rf"{field}: expected {limit}\)\. Use another checkpoint"
    with pytest.raises(UserError, match=rf"^config\.json is damaged .*{wrong}\.$"):
        ModelConfig.from_hf({field: value})


def test_a_published_model_of_another_activation_is_not_called_damaged():
    told = r"^config\.json: `hidden_act` is relu, but must be one of gelu.*\. Use another"
    with pytest.raises(UserError, match=told):
        ModelConfig.from_hf({"hidden_act": "relu"})


def test_aligned_logits_and_their_gradients_are_those_of_the_linear_layer():
    generator = torch.Generator().manual_seed(3)
    shapes = [(5, 8), (97, 8), (97,)]
    inputs = [torch.randn(shape, generator=generator, requires_grad=True) for shape in shapes]
    found, expected = tied_logits(*inputs, multiple=64), torch.nn.functional.linear(*inputs)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(part.sin().sum(), inputs) for part in (found, expected)]
    for mine, other in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, other)


def test_under_autocast_the_losses_are_those_of_the_logits_in_fp32():
    ours, _ = make_models(SMALL)
    batch = make_batch([12, 20], SMALL["vocab_size"])
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        hidden = ours.bert(batch["input_ids"], batch["token_type_ids"], batch["mask"])
        index = (batch["labels"].reshape(-1) != -100).nonzero().squeeze(1)
        labels, nsp = batch["labels"].reshape(-1)[index], batch["nsp"]
        logits = [ours.mlm_logits(hidden, index), ours.nsp_logits(hidden)]
        rows = (batch["input_ids"], batch["token_type_ids"], batch["mask"], None)
        sums = ours.sums(PretrainBatch(*rows, index, labels, nsp))
    assert {part.dtype for part in logits} == {torch.bfloat16}
    for loss, part, targets in zip(
        (sums.mlm_loss, sums.nsp_loss), logits, (labels, nsp), strict=True
    ):
        exact = -part.double().log_softmax(-1).gather(1, targets[:, None]).sum()
        assert loss.item() == pytest.approx(exact.item(), rel=1e-5)


def test_flops_are_those_of_the_forward_pass_three_times():
    config, lengths = ModelConfig.named("tiny", vocab_size=97), [9, 9, 9]
    model = BertForPreTraining(config).eval()
    batch = make_batch(lengths, config.vocab_size)
    index = torch.tensor([2, 11, 12, 20])
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        hidden = model.bert(batch["input_ids"], batch["token_type_ids"])
        model.mlm_logits(hidden, index)
        model.bert.pooler(hidden)
    assert update_flops(config, np.array(lengths), len(index)) == 3 * counter.get_total_flops()


def test_of_equal_logits_one_is_the_prediction():
    logits = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 3.0]])
    labels = torch.tensor([0, 1, IGNORED])
    assert [int(count_correct(logits, labels, exact=exact)) for exact in (True, False)] == [1, 2]
