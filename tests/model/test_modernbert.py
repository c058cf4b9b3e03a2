"""Parity of ModernBERT with transformers: forward, losses and gradients, in every layout."""

from typing import Any

import pytest
import torch
import transformers
from clozeworks.model.encoders.catalogue import make_pretrain_model
from clozeworks.model.encoders.config import ModernBertConfig
from clozeworks.model.encoders.encoder import initialise, real_tokens
from clozeworks.model.encoders.modernbert import ModernBertForMaskedLM

SHAPE = ModernBertConfig(
    vocab_size=97,
    hidden_size=48,
    num_hidden_layers=5,
    num_attention_heads=4,
    intermediate_size=40,
    max_position_embeddings=512,
    local_attention=16,
    global_rope_theta=30_000.0,
    local_rope_theta=5_000.0,
    pad_token_id=0,
    cls_token_id=2,
    sep_token_id=3,
)
SHORT = [[7, 7, 7], [3, 9, 8, 1]]
"""Rows that a window of 8 tokens on either side covers, or nearly."""
LONGER = [[40, 40], [3, 60, 11, 1], [33]]
LONG = [[300, 300], [150, 3, 421, 1], [257]]
"""Rows long enough to be cut into blocks, the last one a token longer than two blocks."""


def make_models(
    shape: ModernBertConfig = SHAPE, attention: str = "eager"
) -> tuple[ModernBertForMaskedLM, Any]:
    ours = make_pretrain_model(shape)
    assert isinstance(ours, ModernBertForMaskedLM)
    initialise(ours, shape, torch.Generator().manual_seed(1))
    values: dict[str, Any] = shape.to_hf() | {"attn_implementation": attention}
    peer: Any = transformers.ModernBertForMaskedLM(transformers.ModernBertConfig(**values))
    weights = ours.state_dict()
    for name, weight in weights.items():
        # Biases and norms too must differ from their initial value to be compared; and weights be
        # large enough that tokens attend to some more than to others.
        if weight.ndim > 1:
            weight.mul_(4)
        weight.add_(torch.linspace(-0.05, 0.05, weight.numel()).view(weight.shape))
        assert peer.state_dict()[name].shape == weight.shape
    missing = peer.load_state_dict(weights, strict=False)
    assert missing.missing_keys == ["decoder.weight"] and not missing.unexpected_keys
    return ours.eval(), peer.eval()


def make_batch(lengths: list[int], vocab_size: int = SHAPE.vocab_size) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(sum(lengths))
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    ids = torch.randint(4, vocab_size, mask.shape, generator=generator) * mask
    is_predicted = (torch.arange(mask.numel()).view(mask.shape) % 3 == 0) & mask
    labels = torch.where(is_predicted, ids.roll(1, 0), -100)
    labels = labels.where(labels != 0, -100)
    return {"input_ids": ids, "mask": mask, "labels": labels}


def run_ours(model: ModernBertForMaskedLM, batch: dict[str, torch.Tensor], layout: str):
    """Return the mean loss, and the states (T, D) of the real tokens."""
    ids, mask = batch["input_ids"], batch["mask"]
    tokens = real_tokens(mask)
    labels = batch["labels"].reshape(-1)
    types = torch.zeros_like(ids)
    index = (labels != -100).nonzero().squeeze(1)
    if layout == "packed":
        starts = torch.cat([torch.zeros(1), mask.sum(1).cumsum(0)]).int()
        positions = torch.arange(mask.shape[1]).expand(mask.shape)[mask]
        packed_index = torch.searchsorted(tokens, index)
        arguments = (ids[mask], types[mask], None, None, packed_index, labels[index], None)
        sums = model(*arguments, positions, starts, mask.shape[1])
        states = model.model.packed_states(ids[mask], types[mask], positions, starts, mask.shape[1])
        return sums.mlm_loss / len(index), states
    token_index = tokens if layout == "unpadded" else None
    rows = (ids, types, mask, token_index)
    sums = model(*rows, index, labels[index], None)
    states = model.model(*rows)
    return sums.mlm_loss / len(index), states.reshape(-1, states.shape[-1])[tokens]


@pytest.mark.parametrize("lengths", [*SHORT, *LONGER, *LONG])
@pytest.mark.parametrize("layout", ["padded", "unpadded", "packed"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_equals_transformers(lengths, layout, attention):
    ours, peer = make_models(attention=attention)
    batch = make_batch(lengths)
    theirs = peer(
        input_ids=batch["input_ids"], attention_mask=batch["mask"].long(), labels=batch["labels"]
    )
    loss, states = run_ours(ours, batch, layout)
    torch.testing.assert_close(loss, theirs.loss, rtol=0, atol=1e-5)
    every = torch.arange(len(states))
    expected = theirs.logits[batch["mask"]]
    torch.testing.assert_close(ours.mlm_logits(states, every), expected, rtol=0, atol=1e-5)

    loss.backward()
    theirs.loss.backward()
    wanted = {name: parameter.grad for name, parameter in peer.named_parameters()}
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(
            parameter.grad, wanted[name], rtol=0, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
        )
