"""Comparing what a head learns with what that of ``transformers`` does, from the same weights and rows."""

import torch
from torch import Tensor, nn


def check_learning(ours: nn.Module, loss: Tensor, theirs: nn.Module, expected: Tensor) -> None:
    """Assert that the losses are equal, and that the gradients of the same parameters are, to 1e-5."""
    torch.testing.assert_close(loss, expected, rtol=0, atol=1e-5)
    loss.backward()
    expected.backward()
    gradients = {name: parameter.grad for name, parameter in ours.named_parameters() if parameter.grad is not None}
    assert gradients.keys() == dict(theirs.named_parameters()).keys()
    for name, parameter in theirs.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=0, atol=1e-5)
