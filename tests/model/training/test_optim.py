"""The optimiser against google-research's formulas, written out in NumPy."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from clozeworks.model.training.optim import learning_rate, make_optimizer, set_learning_rate
from torch import nn


def make_model() -> nn.ModuleDict:
    torch.manual_seed(0)
    return nn.ModuleDict({"dense": nn.Linear(5, 7), "LayerNorm": nn.LayerNorm(7)})


def reference_step(weight, gradient, m, v, rate, decay):
    """AdamWeightDecayOptimizer.apply_gradients of google-research/bert."""
    m = 0.9 * m + 0.1 * gradient
    v = 0.999 * v + 0.001 * gradient**2
    update = m / (np.sqrt(v) + 1e-6) + decay * weight
    return weight - rate * update, m, v


def test_equals_the_adam_of_google_research():
    model = make_model()
    optimizer = make_optimizer(model)
    weights = {name: p.detach().numpy().astype(np.float64) for name, p in model.named_parameters()}
    averages = {name: (np.zeros_like(w), np.zeros_like(w)) for name, w in weights.items()}
    rng = np.random.default_rng(1)
    for step in range(30):
        rate = 0.01 * (step + 1)
        for name, parameter in model.named_parameters():
            gradient = rng.normal(size=parameter.shape).astype(np.float32)
            parameter.grad = torch.from_numpy(gradient)
            decay = 0.01 if name == "dense.weight" else 0.0
            m, v = averages[name]
            weights[name], m, v = reference_step(weights[name], gradient, m, v, rate, decay)
            averages[name] = m, v
        set_learning_rate(optimizer, rate)
        optimizer.step()
    for name, parameter in model.named_parameters():
        np.testing.assert_allclose(
            parameter.detach().numpy(), weights[name], atol=2e-5, err_msg=name
        )


@pytest.mark.slow
def test_an_update_does_not_import_the_compiler():
    program = """
import sys, torch
from clozeworks.model.training.optim import make_optimizer
layer = torch.nn.Linear(2, 2)
optimizer = make_optimizer(layer)
layer(torch.ones(2)).sum().backward()
optimizer.step()
optimizer.zero_grad()
optimizer.load_state_dict(optimizer.state_dict())
sys.exit("torch._dynamo" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_biases_of_an_lstm_do_not_decay():
    model = nn.LSTM(5, 7, bidirectional=True)
    free = make_optimizer(model).param_groups[1]["params"]
    biases = [parameter for name, parameter in model.named_parameters() if "bias" in name]
    assert list(map(id, free)) == list(map(id, biases))


def test_bias_correction_is_that_of_pytorch():
    ours, theirs = make_model(), make_model()
    peer = torch.optim.AdamW(
        theirs.parameters(), lr=0.1, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0
    )
    optimizer = make_optimizer(ours, bias_correction=True)
    optimizer.param_groups[0]["weight_decay"] = 0.0
    set_learning_rate(optimizer, 0.1)
    for _ in range(5):
        for model in (ours, theirs):
            sum(p.square().sum() for p in model.parameters()).backward()  # pyright: ignore[reportAttributeAccessIssue]
        optimizer.step()
        peer.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other)


def test_learning_rate_rises_and_falls_along_lines_from_step_0():
    assert [learning_rate(step, 1.0, 4, 10) for step in range(4)] == [0, 0.25, 0.5, 0.75]
    assert [learning_rate(step, 1.0, 4, 10) for step in (4, 5, 9, 10)] == pytest.approx(
        [0.6, 0.5, 0.1, 0]
    )
    assert learning_rate(0, 2.0, 0, 10) == 2.0


def test_a_constant_rate_falls_by_the_square_root_at_the_end():
    rates = [learning_rate(step, 2.0, 4, 20, 0.25) for step in range(21)]
    assert rates[:5] == [0, 0.5, 1.0, 1.5, 2.0]
    assert rates[4:16] == [2.0] * 12
    falling = [2 * (1 - (step / 5) ** 0.5) for step in range(6)]
    assert rates[15:] == pytest.approx(falling)
    assert learning_rate(20, 2.0, 0, 20, 0.0) == 2.0  # never
    assert learning_rate(5, 2.0, 0, 20, 1.0) == 1.0  # from the start
