"""Update the weights once: the step that pre-training and fine-tuning share.

A global batch is divided between the ranks, and each rank computes its part in micro-batches. Every
micro-batch's loss is already its share of the global batch's loss, so gradients only have to be
added up: without dropout, neither the micro-batch size nor the number of ranks changes the result,
except for rounding. Dropout is seeded by (seed, step, rank, micro-batch), so a checkpoint needs no
random state; but with other micro-batches or ranks other masks are drawn, and the weights differ.

With matrix products in fp16 the loss is scaled up so that small gradients do not vanish
(`torch.amp.GradScaler`); an update whose gradient overflows is skipped, and the scale halved.

Shapes: S sums that the caller wants over the global batch.
"""

import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self, cast

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from ...pipeline.seeding import stable_hash
from .device import autocast, default_generator, drain_every, send, sum_dtype
from .graphs import CaptureError, Graphs, Inference, first_line, make_graphs
from .optim import MAX_GRADIENT_NORM, NO_CORRECTION_STEP, make_optimizer, set_learning_rate
from .ranks import GradientSum, Ranks


class _MicroBatch(Protocol):
    """Some rows as tensors."""

    def to(self, device: torch.device) -> Self:
        """Copy the tensors to `device`."""
        ...


class Loss(NamedTuple):
    """The loss of one micro-batch."""

    share: Tensor
    """Its part of the batch's mean loss, scalar: summed over micro-batches and ranks."""
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


class _Pending(NamedTuple):
    """An update that was launched."""

    step: int
    figures: Tensor
    """The sums and the norm of the gradient, on the device: whoever reads them waits for it."""
    asked: tuple[float, float] | None = None
    """Whether to stop, and the seconds; with several ranks they are behind the sums."""


class Updater:
    """Updates a model's weights, and keeps each update's figures until `drain` asks for them.

    `loss` computes a micro-batch's. With `graphs`, whose optimiser `make_optimizer` has made
    capturable, updates are captured and replayed.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        ranks: Ranks,
        loss: Callable[[Any], Loss],
        *,
        dropout_seed: tuple[int | str, ...],
        dtype: torch.dtype = torch.float32,
        graphs: Graphs | None = None,
    ):
        self.model = model
        self.optimizer = optimizer
        self.graphs = graphs
        self._ranks = ranks
        self._loss = loss
        self._dtype = dtype
        self._scaler = GradScaler(ranks.device.type, enabled=dtype == torch.float16)
        self._gradient_sum = GradientSum(model.parameters(), ranks)
        self._dropout_seed = dropout_seed
        self._generator = default_generator(ranks.device)
        self._rate = 0.0
        self._gradients: dict[nn.Parameter, Tensor] = {}
        """Where graphs add up the gradients of several micro-batches; zeros between updates."""
        self._pending: list[_Pending] = []
        self._drain_every = 10 if ranks.device.type == "cuda" else 1
        self._drained_at = time.perf_counter()
        self._inference: Inference | None = None

    def update(
        self,
        step: int,
        batches: Sequence[_MicroBatch],
        rate: float,
        *,
        stop_asked: bool = False,
        seconds: float = 0.0,
    ) -> None:
        """Change the weights once, by the whole batch, without waiting for a GPU."""
        assert batches, "each rank computes at least one micro-batch"
        self._rate = rate
        set_learning_rate(self.optimizer, rate)
        if self.graphs is None:
            figures = self._compute(step, batches)
        else:
            figures = self._replay(step, batches, self.graphs)
        if self._ranks.num_ranks == 1:
            self._pending.append(_Pending(step, figures, (float(stop_asked), seconds)))
            return

        # Requests to stop and clocks differ between ranks; these two travel with the sums, so all
        # ranks decide alike.
        #
        #     rank 0     sums of its rows    1 if asked to stop    its seconds
        #     rank 1     sums of its rows    1 if asked to stop    0
        #     all see    sums of all rows    ranks asked to stop   rank 0's seconds
        first_rank_seconds = 0.0
        if self._ranks.rank == 0:
            first_rank_seconds = seconds
        shared = torch.tensor([stop_asked, first_rank_seconds], dtype=figures.dtype)
        shared = send(shared, self._ranks.device)
        sums = self._ranks.sum(torch.cat([figures[:-1], shared]))
        self._pending.append(_Pending(step, torch.cat([sums, figures[-1:]])))

    def _compute(self, step: int, batches: Sequence[_MicroBatch]) -> Tensor:
        """Update; return the figures (S + 1,): the sums of this rank, the norm of the gradient."""
        sums = []
        for index, batch in enumerate(batches):
            self._seed_dropout(step, index)
            if index + 1 == len(batches):
                # From now on each gradient is sent as soon as the backward pass has computed it.
                self._gradient_sum.start()
            sums.append(self._add_gradient(batch.to(self._ranks.device)))
        return torch.cat([functools.reduce(torch.add, sums), self._step()])

    def _replay(self, step: int, batches: Sequence[_MicroBatch], graphs: Graphs) -> Tensor:
        """Update by graphs; without them if they cannot be captured, or memory is short."""
        try:
            # One micro-batch is a graph with all of the update: its gradients take no memory of
            # their own. Of several, each adds its gradients in a graph, and another one steps.
            if len(batches) == 1:
                self._seed_dropout(step, 0)
                return graphs.run("update", self._update, batches[0])
            for parameter in self._gradients:
                parameter.grad = self._gradients[parameter]
            sums = []
            for index, batch in enumerate(batches):
                self._seed_dropout(step, index)
                sums.append(graphs.run("gradient", self._add_gradient, batch))
            norm_1 = graphs.run("step", lambda _: self._step(keeps_gradients=True), ())
            for parameter in self.model.parameters():
                if parameter.grad is not None:
                    self._gradients[parameter] = parameter.grad
                    parameter.grad = None
            return torch.cat([functools.reduce(torch.add, sums), norm_1])
        except (CaptureError, torch.OutOfMemoryError) as error:
            if not graphs.works:
                raise
            is_short = isinstance(error, torch.OutOfMemoryError)
            reason = first_line(error)
        # No weight was changed yet: the optimiser's own step takes no memory.
        self._gradients.clear()
        self.optimizer.zero_grad()
        graphs.drop(reason, is_short=is_short)
        return self._compute(step, batches)

    def _seed_dropout(self, step: int, micro_batch: int) -> None:
        # A graph reads the seed when it is replayed.
        seed = stable_hash(*self._dropout_seed, step, self._ranks.rank, micro_batch)
        self._generator.manual_seed(seed >> 1)

    def _add_gradient(self, batch: Any) -> Tensor:
        """Add a micro-batch's gradients to those of the micro-batches before; return its sums."""
        with autocast(self._ranks.device, self._dtype):
            loss = self._loss(batch)
        self._scaler.scale(loss.share).backward()
        return loss.sums_S

    def _step(self, *, keeps_gradients: bool = False) -> Tensor:
        """Change the weights by the gradients, and clear these; return their norm (1,)."""
        self._gradient_sum.finish()
        self._scaler.unscale_(self.optimizer)  # does nothing unless products are in fp16
        # The whole global batch's gradient is clipped, so only after the sum; and the true one, so
        # only without the scale.
        norm = clip_gradients(self.model)
        self._scaler.step(self.optimizer)  # in fp16 only if the gradient is finite
        self._scaler.update()
        self.optimizer.zero_grad(set_to_none=not keeps_gradients)
        return norm[None]

    def _update(self, batch: Any) -> Tensor:
        return torch.cat([self._add_gradient(batch), self._step()])

    @property
    def is_full(self) -> bool:
        """Whether it is time to `drain`: on a CPU after each update."""
        return len(self._pending) >= self._drain_every

    def drain(self) -> list[Update]:
        """Return the figures of the updates since the last call, oldest first.

        A GPU is idle from then until it gets more work, so the loops call it only if something is
        due, or if it `is_full`. A loss that is not finite is noticed that much later, but always
        before a checkpoint.
        """
        updates: list[Update] = []
        if not self._pending:
            return updates
        scale = 0.0
        if self._scaler.is_enabled():
            scale = self._scaler.get_scale()
        # One copy for all of them: a GPU waits during each.
        figures = torch.stack([pending.figures for pending in self._pending]).tolist()
        for pending, (*sums, gradient_norm) in zip(self._pending, figures, strict=True):
            if pending.asked is None:
                *sums, num_stops, seconds = sums
            else:
                num_stops, seconds = pending.asked
            update = Update(
                step=pending.step,
                sums=sums,
                gradient_norm=gradient_norm,
                stop_asked=num_stops > 0,
                seconds=seconds,
                loss_scale=scale,
            )
            updates.append(update)
        self._pending.clear()
        drained_at = time.perf_counter()
        # Several ranks, whose clocks differ, have to look at the same updates.
        if self._ranks.device.type == "cuda" and self._ranks.num_ranks == 1:
            self._drain_every = drain_every((drained_at - self._drained_at) / len(updates))
        self._drained_at = drained_at
        return updates

    def inference(self, dtype: torch.dtype) -> Inference:
        """Return what computes batches between updates, the same every time."""
        if self._inference is None:
            graphs = None
            if self.graphs is not None:
                graphs = self.graphs.beside()
            self._inference = Inference(self._ranks.device, dtype, graphs)
        return self._inference

    def state_dict(self) -> dict[str, Any]:
        """Return the optimiser's state, and with fp16 the loss scale."""
        state = self.optimizer.state_dict()
        if self.graphs is not None:
            # Checkpoints of all devices are alike: in a graph the rate is a tensor.
            for group in state["param_groups"]:
                group.update(lr=self._rate, capturable=False)
        if self._scaler.is_enabled():
            state["loss_scale"] = self._scaler.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned; other precisions leave the loss scale out."""
        optimizer_state = dict(state)
        loss_scale = optimizer_state.pop("loss_scale", None)
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.load_state_dict(optimizer_state)
        if self.graphs is not None:
            self.graphs.clear()  # they know the tensors of before
            for group in self.optimizer.param_groups:
                group.update(lr=rate, capturable=True)
        if loss_scale and self._scaler.is_enabled():
            self._scaler.load_state_dict(loss_scale)

    def restore(self, state: Mapping[str, Any]) -> bool:
        """Load a state; return whether it is one of this model, finite and of the right shapes."""
        try:
            self.load_state_dict(state)
            for parameter, averages in self.optimizer.state.items():
                for average in averages.values():
                    is_count = average.shape == ()  # the number of steps
                    if not is_count and average.shape != parameter.shape:
                        return False
                    if not average.isfinite().all():
                        return False
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            return False
        return True

    def start_over(self, model: nn.Module, seed: tuple[int | str, ...], *, corrects: bool) -> None:
        """Begin another training with the weights of `model` in the tensors that graphs know."""
        self._dropout_seed = seed
        self.model.load_state_dict(model.state_dict())
        for state in self.optimizer.state.values():
            state["step"].fill_(0.0 if corrects else NO_CORRECTION_STEP)
            state["exp_avg"].zero_()
            state["exp_avg_sq"].zero_()


def make_updater(
    model: nn.Module,
    ranks: Ranks,
    loss: Callable[[Any], Loss],
    *,
    corrects: bool,
    dtype: torch.dtype,
    dropout_seed: tuple[int | str, ...],
) -> Updater:
    """Return an updater with its optimiser, and with graphs where updates are captured."""
    graphs = make_graphs(ranks.device, dtype, ranks.num_ranks)
    optimizer = make_optimizer(model, bias_correction=corrects, capturable=graphs is not None)
    return Updater(
        model, optimizer, ranks, loss, dropout_seed=dropout_seed, dtype=dtype, graphs=graphs
    )


def clip_gradients(model: nn.Module) -> Tensor:
    """Scale the gradients down to `MAX_GRADIENT_NORM` at most; return their norm before.

    It is summed in `sum_dtype`, on a CPU from the norms of single rows: in fp32, that of a whole
    large matrix is up to 1e-3 too low there, and a copy in double takes four times as long.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.grad is not None]
    gradients = [cast(Tensor, parameter.grad) for parameter in parameters]
    dtype = sum_dtype(gradients[0].device)
    if gradients[0].is_cuda:
        # In a few kernels.
        norms = torch._foreach_norm(gradients, 2, dtype)  # pyright: ignore[reportPrivateImportUsage]
    else:
        norms = [torch.linalg.vector_norm(gradient, dim=-1).flatten() for gradient in gradients]
        norms = [torch.cat(norms).to(dtype)]
    norm = torch.linalg.vector_norm(torch.stack(norms))
    nn.utils.clip_grads_with_norm_(parameters, MAX_GRADIENT_NORM, norm.float())
    return norm
