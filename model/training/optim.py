"""BERT's optimiser and learning rate (google-research/bert ``optimization.py``)."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Muon, Optimizer

BETAS = (0.9, 0.999)
EPS = 1e-6
MAX_GRADIENT_NORM = 1.0
# From this step on, 0.9**step and 0.999**step are 0 in fp32, and adding 1 to the step no longer
# changes it.
NO_CORRECTION_STEP = 2.0**24
_LAYER = re.compile(r"(^|\.)layers?\.\d+\.")
"""In the names of an encoder's layers: ``bert.encoder.layer.0.`` or ``model.layers.0.``"""


def make_optimizer(
    model: nn.Module,
    weight_decay: float = 0.01,
    *,
    bias_correction: bool = False,
    without: Sequence[Tensor] = (),
) -> AdamW:
    """Return Adam with decoupled weight decay (none on biases and LayerNorm), in PyTorch's fused
    kernel.

    BERT's Adam has no bias correction. PyTorch's always has one, but it fades as steps are counted;
    so without `bias_correction` the count starts so high that there is none. Parameters in
    `without` are another optimiser's.
    """
    others = {id(parameter) for parameter in without}
    decayed = []
    not_decayed = []
    for parameter in model.parameters():
        if not parameter.requires_grad or id(parameter) in others:
            continue
        # google-research/bert excludes LayerNorm, layer_norm and bias by their names. Those, in any
        # model and under any name, are its vectors.
        if parameter.ndim > 1:
            decayed.append(parameter)
        else:
            not_decayed.append(parameter)
    groups = [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": not_decayed, "weight_decay": 0.0},
    ]
    # The rate is set before each update.
    optimizer = AdamW(groups, lr=0.0, betas=BETAS, eps=EPS, fused=True)
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


class MuonAndAdam(Optimizer):
    """Muon for the matrices of the layers, Adam for embeddings, heads, biases and norms.

    Muon (Jordan et al. 2024) makes each matrix's momentum orthogonal, by PyTorch's
    ``torch.optim.Muon``. Its update is scaled to the size of Adam's (Moonlight, arXiv 2502.16982,
    section 2.2), so that both share learning rate and weight decay. An experiment; see
    docs/pretraining.md.
    """

    def __init__(self, muon: Muon, adam: AdamW):
        # Not the base's constructor, which would make groups and state of its own.
        self.muon = muon
        self.adam = adam
        self.defaults: dict[str, Any] = {}

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The groups of both."""
        return [*self.muon.param_groups, *self.adam.param_groups]

    @property
    def state(self) -> dict[Tensor, dict[str, Any]]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The averages of both, by parameter."""
        return {**self.muon.state, **self.adam.state}

    def step(self, closure: Callable[[], float] | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Change the weights once."""
        self.muon.step()
        self.adam.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        self.muon.zero_grad(set_to_none)
        self.adam.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of both."""
        return {"muon": self.muon.state_dict(), "adam": self.adam.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the state of both."""
        self.muon.load_state_dict(state_dict["muon"])
        self.adam.load_state_dict(state_dict["adam"])


def make_muon(
    model: nn.Module, weight_decay: float = 0.01, *, bias_correction: bool = False
) -> MuonAndAdam:
    """Return Muon for the matrices of the model's layers, and `make_optimizer` for all else."""
    matrices = []
    for name, parameter in model.named_parameters():
        # Embeddings and heads are better off with Adam (torch.optim.Muon's documentation).
        if parameter.ndim == 2 and _LAYER.search(name) and parameter.requires_grad:
            matrices.append(parameter)
    muon = Muon(matrices, lr=0.0, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")
    for matrix in matrices:
        # As the first update would make it, so that a checkpoint has it from the start.
        muon.state[matrix] = {"momentum_buffer": torch.zeros_like(matrix)}
    adam = make_optimizer(model, weight_decay, bias_correction=bias_correction, without=matrices)
    return MuonAndAdam(muon, adam)


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    """Set the learning rate of all parameter groups."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def learning_rate(step: float, peak: float, warmup_steps: float, num_steps: float) -> float:
    """Return the rate of the update with index `step`: warm-up from 0 to `peak`, then linear decay
    to 0. Seconds do as well as steps.

    The decay counts from step 0, as in google-research/bert, so the rate drops a little when the
    warm-up ends.
    """
    if step < warmup_steps:
        return peak * step / warmup_steps
    return peak * (1 - step / num_steps)


def constant_rate(
    step: float, peak: float, warmup_steps: float, num_steps: float, decay_share: float
) -> float:
    """Return the rate of the update with index `step`: warm-up from 0, then constant, then decay to
    0 over the last `decay_share` of all steps. Seconds do as well as steps.

    It falls by the square root (Hägele et al. 2024, arXiv 2405.18392, section 3: "1-sqrt"), as
    ModernBERT's: fast at first.
    """
    if step < warmup_steps:
        return peak * step / warmup_steps
    decay_steps = decay_share * num_steps
    decay_start = num_steps - decay_steps
    if step <= decay_start:
        return peak
    return peak * (1 - math.sqrt((step - decay_start) / decay_steps))


def default_warmup(num_steps: int) -> int:
    """Return a tenth of the steps, at most 10,000: the paper's number for 1,000,000 steps."""
    return min(10_000, num_steps // 10)
