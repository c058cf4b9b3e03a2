"""BERT's optimiser and learning rate (google-research/bert ``optimization.py``)."""

import inspect
import math
from typing import Any

import torch
from torch import nn
from torch.optim import AdamW, Optimizer

WEIGHT_DECAY = 0.01
MAX_GRADIENT_NORM = 1.0
# From this step on, 0.9**step and 0.999**step are 0 in fp32, and adding 1 to the step no longer
# changes it.
NO_CORRECTION_STEP = 2.0**24


class _Optimizer(AdamW):
    """AdamW without PyTorch's wrappers, which import `torch._dynamo`, for two seconds, only to hide
    these methods from a compiler.
    """

    add_param_group: Any = inspect.unwrap(AdamW.add_param_group)
    load_state_dict: Any = inspect.unwrap(AdamW.load_state_dict)
    state_dict: Any = inspect.unwrap(AdamW.state_dict)
    step: Any = torch.no_grad()(inspect.unwrap(AdamW.step))
    zero_grad: Any = inspect.unwrap(AdamW.zero_grad)


def make_optimizer(
    model: nn.Module,
    *,
    bias_correction: bool = False,
    capturable: bool = False,
) -> AdamW:
    """Return Adam with decoupled weight decay (none on biases and LayerNorm), in PyTorch's fused
    kernel.

    BERT's Adam has no bias correction. PyTorch's always has one, but it fades as steps are counted;
    so without `bias_correction` the count starts so high that there is none. If it is to be
    `capturable` in CUDA graphs, the rate is a tensor beside the parameters.
    """
    decayed = []
    not_decayed = []
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        # google-research/bert excludes LayerNorm, layer_norm and bias by their names. Those, in any
        # model and under any name, are its vectors.
        if parameter.ndim > 1:
            decayed.append(parameter)
        else:
            not_decayed.append(parameter)
    groups = [
        {"params": decayed, "weight_decay": WEIGHT_DECAY},
        {"params": not_decayed, "weight_decay": 0.0},
    ]
    # The rate is set before each update.
    optimizer = _Optimizer(
        groups, lr=0.0, betas=(0.9, 0.999), eps=1e-6, fused=True, capturable=capturable
    )
    if capturable:
        rate = torch.zeros((), device=decayed[0].device)
        for group in optimizer.param_groups:
            group["lr"] = rate
    if not bias_correction:
        # The state that the first update would make, but for the count. The fused kernel reads the
        # count on the parameter's device.
        for parameter in [*decayed, *not_decayed]:
            optimizer.state[parameter] = {
                "step": torch.tensor(NO_CORRECTION_STEP, device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
    return optimizer


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    """Set the learning rate of all parameter groups."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate)
            return  # all groups have the same tensor
        group["lr"] = rate


def learning_rate(
    step: float,
    peak: float,
    warmup_steps: float,
    num_steps: float,
    decay_share: float | None = None,
) -> float:
    """Return the rate of the update with index `step`: warm-up from 0 to `peak`, then linear decay
    to 0. Seconds do as well as steps.

    The decay counts from step 0, as in google-research/bert, so the rate drops a little when the
    warm-up ends. With a `decay_share` the rate is constant after the warm-up, and decays over this
    share of the steps, the last ones, by the square root (Hägele et al. 2024, arXiv 2405.18392,
    section 3: "1-sqrt"), as ModernBERT's: fast at first.
    """
    if step < warmup_steps:
        return peak * step / warmup_steps
    if decay_share is None:
        return peak * (1 - step / num_steps)
    decay_steps = decay_share * num_steps
    decay_start = num_steps - decay_steps
    if step <= decay_start:
        return peak
    return peak * (1 - math.sqrt((step - decay_start) / decay_steps))
