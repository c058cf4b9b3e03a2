"""Update the weights once: the step that pre-training and fine-tuning share.

A global batch is divided between the ranks, and each rank computes its part in micro-batches. Every
micro-batch's loss is already its share of the global batch's loss, so gradients only have to be
added up: neither the micro-batch size nor the number of ranks changes the result, except for
rounding. Dropout is seeded by (seed, step, rank, micro-batch), so a checkpoint needs no random
state.

With matrix products in fp16 the loss is scaled up so that small gradients do not vanish
(`torch.amp.GradScaler`); an update whose gradient overflows is skipped, and the scale halved.

Shapes: S sums that the caller wants over the global batch.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from ...pipeline.seeding import stable_hash
from .device import autocast, send
from .optim import MAX_GRADIENT_NORM, set_learning_rate
from .ranks import GradientSum, Ranks


class MicroBatch(Protocol):
    """Some rows as tensors."""

    def to(self, device: torch.device) -> Self:
        """Copy the tensors to `device`."""
        ...


class Loss(NamedTuple):
    """The loss of one micro-batch."""

    share: Tensor
    """Its part of the global batch's mean loss, scalar: the sum over all micro-batches and ranks is
    that mean.
    """
    sums_S: Tensor
    """Sums over its rows to report, in `device.sum_dtype`; added up over the global batch."""


class Update(NamedTuple):
    """The figures of one update, on the CPU."""

    step: int
    """Index of the update: the number of updates before it."""
    sums: list[float]
    """`Loss.sums_S`, added up over the global batch."""
    gradient_norm: float
    """Before clipping."""
    stop_asked: bool
    """Whether any rank was asked to stop; all ranks see the same."""
    seconds: float
    """The first rank's `seconds`; all ranks see the same."""
    loss_scale: float = 0.0
    """The current scale of fp16's loss; 0 without scaling."""

    @property
    def is_finite(self) -> bool:
        """Whether the global batch's sums and gradient are finite; the weights are spoiled if not.

        A gradient that overflows fp16 does no harm, because the update is skipped, unless no scale
        is small enough.
        """
        has_gradient = math.isfinite(self.gradient_norm) or self.loss_scale >= 1
        return math.isfinite(sum(self.sums)) and has_gradient


class Updater:
    """Updates a model's weights, and keeps each update's figures until `drain` asks for them."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        ranks: Ranks,
        *,
        dropout_seed: tuple[int | str, ...],
        dtype: torch.dtype = torch.float32,
    ):
        self.model = model
        self.optimizer = optimizer
        self._ranks = ranks
        self._dtype = dtype
        self._scaler = GradScaler(ranks.device.type, enabled=dtype == torch.float16)
        self._gradient_sum = GradientSum(model.parameters(), ranks)
        self._dropout_seed = dropout_seed
        self._pending: list[tuple[int, Tensor, Tensor]] = []

    def update(
        self,
        step: int,
        batches: Sequence[MicroBatch],
        compute_loss: Callable[[Any], Loss],
        rate: float,
        *,
        stop_asked: bool = False,
        seconds: float = 0.0,
    ) -> None:
        """Change the weights once, by the gradient of the batch that `batches` are a part of,
        without waiting for a GPU.
        """
        sums_S = self._backward(step, batches, compute_loss)
        self._gradient_sum.finish()
        self._scaler.unscale_(self.optimizer)  # does nothing unless products are in fp16
        # The whole global batch's gradient is clipped, so only after the sum; and the true one, so
        # only without the scale.
        gradient_norm = nn.utils.clip_grad_norm_(self.model.parameters(), MAX_GRADIENT_NORM)
        set_learning_rate(self.optimizer, rate)
        self._scaler.step(self.optimizer)  # in fp16 only if the gradient is finite
        self._scaler.update()
        self.optimizer.zero_grad()

        # Requests to stop and clocks differ between ranks; these two travel with the sums, so all
        # ranks decide alike.
        #
        #     rank 0     sums of its rows    1 if asked to stop    its seconds
        #     rank 1     sums of its rows    1 if asked to stop    0
        #     all see    sums of all rows    ranks asked to stop   rank 0's seconds
        first_rank_seconds = 0.0
        if self._ranks.rank == 0:
            first_rank_seconds = seconds
        shared = torch.tensor([stop_asked, first_rank_seconds], dtype=torch.float64)
        shared = send(shared, self._ranks.device)
        sums = self._ranks.sum(torch.cat([sums_S, shared]))
        # Tensors of the device: `drain` waits for their values.
        self._pending.append((step, sums, gradient_norm))

    def _backward(
        self, step: int, batches: Sequence[MicroBatch], compute_loss: Callable[[Any], Loss]
    ) -> Tensor:
        """Add up the micro-batches' gradients, and start to sum them over the ranks; return the
        sums (S,) of this rank.
        """
        rank, _, device = self._ranks
        micro_batch_sums: list[Tensor] = []
        for index, batch in enumerate(batches):
            torch.manual_seed(stable_hash(*self._dropout_seed, step, rank, index) >> 1)
            with autocast(device, self._dtype):
                loss = compute_loss(batch.to(device))
            if index + 1 == len(batches):
                # From now on each gradient is sent as soon as the backward pass has computed it.
                self._gradient_sum.start()
            # Adds to the gradients of the micro-batches before.
            self._scaler.scale(loss.share).backward()
            micro_batch_sums.append(loss.sums_S)
        assert micro_batch_sums, "each rank computes at least one micro-batch"
        return functools.reduce(torch.add, micro_batch_sums)

    def drain(self) -> list[Update]:
        """Return the figures of the updates since the last call, oldest first.

        A GPU is idle from then until it gets more work, so the loops call it only every few steps
        (see `device.drain_every`). A loss that is not finite is noticed that much later, but always
        before a checkpoint.
        """
        scale = 0.0
        if self._scaler.is_enabled():
            scale = self._scaler.get_scale()
        updates = []
        for step, sums, gradient_norm in self._pending:
            *values, num_stops, seconds = sums.tolist()
            update = Update(
                step=step,
                sums=values,
                gradient_norm=gradient_norm.item(),
                stop_asked=num_stops > 0,
                seconds=seconds,
                loss_scale=scale,
            )
            updates.append(update)
        self._pending.clear()
        return updates

    def state_dict(self) -> dict[str, Any]:
        """Return the optimiser's state, and with fp16 the loss scale."""
        state = self.optimizer.state_dict()
        if self._scaler.is_enabled():
            state["loss_scale"] = self._scaler.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned; other precisions leave the loss scale out."""
        optimizer_state = dict(state)
        loss_scale = optimizer_state.pop("loss_scale", None)
        self.optimizer.load_state_dict(optimizer_state)
        if loss_scale and self._scaler.is_enabled():
            self._scaler.load_state_dict(loss_scale)
