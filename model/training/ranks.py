"""Join the processes that train together, one per GPU, as torchrun starts them."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from datetime import timedelta
from importlib import import_module
from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.rendezvous import rendezvous

from ...pipeline.config import check
from ...pipeline.errors import RunError, UserError
from .device import UNTESTED, find_device

# As in DistributedDataParallel: large enough for the bandwidth, and small enough to start early.
BUCKET_BYTES = 25 << 20


class Ranks(NamedTuple):
    """This process among those that train together (just one without torchrun), and its device."""

    rank: int
    num_ranks: int
    device: torch.device

    def rows(self, batch_size: int) -> range:
        """Return the indices of this rank's rows in a global batch."""
        # 8 rows on 3 ranks: 0 1 | 2 3 4 | 5 6 7.
        first = batch_size * self.rank // self.num_ranks
        end = batch_size * (self.rank + 1) // self.num_ranks
        return range(first, end)

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sum of `values` over all ranks, in place."""
        if self.num_ranks > 1:
            dist.all_reduce(values)
        return values

    def from_first(self, flag: bool) -> bool:
        """Return the first rank's `flag`."""
        value = float(flag and self.rank == 0)
        return self.sum(torch.tensor([value], device=self.device)).item() > 0

    def start_sum(self, values: torch.Tensor) -> Callable[[], object]:
        """Begin to replace `values` by their sum over all ranks; return a function that waits."""
        work = dist.all_reduce(values, async_op=True)
        assert work is not None
        return work.wait

    def agree(self, facts: Mapping[str, str]) -> None:
        """Raise `UserError` on all ranks unless all have the same `facts`."""
        if self.num_ranks == 1:
            return
        gathered: list[Any] = [None] * self.num_ranks
        dist.all_gather_object(gathered, (socket.gethostname(), dict(facts)))
        (first_host, first_facts), *others = gathered
        for rank, (host, rank_facts) in enumerate(others, 1):
            for name, first_value in first_facts.items():
                if rank_facts[name] == first_value:
                    continue
                here = f"{first_value} on rank 0 ({first_host})"
                there = f"{rank_facts[name]} on rank {rank} ({host})"
                raise UserError(
                    f"The processes were not started alike: {name} is {here}, but {there}. Run the "
                    "same command on all machines, on directories that all of them share; a remote "
                    "`output` works only with one torchrun on one machine."
                )

    @contextmanager
    def on_first(self, context: AbstractContextManager[object]) -> Iterator[None]:
        """Enter `context` on the first rank, and wait for that; raise its error on all ranks."""
        failure: Exception | None = None
        with ExitStack() as stack:
            # If the first rank alone raised its error, the others would wait for it at the next sum
            # until the time-out: so the error travels to all, and all raise it.
            if self.rank == 0:
                try:
                    stack.enter_context(context)
                except (UserError, RunError) as error:
                    failure = error
            first_failure = failure
            if self.num_ranks > 1:
                # Also the signal that the others may go on.
                failures: list[Any] = [None] * self.num_ranks
                dist.all_gather_object(failures, failure)
                first_failure = failures[0]
            if first_failure:
                raise first_failure
            yield

    def wait(self) -> None:
        """Wait until all ranks are here."""
        # On a GPU the sum is only queued; reading the result makes the CPU wait for it.
        self.sum(torch.zeros(1, device=self.device)).item()


@contextmanager
def join_ranks(device_name: str, batch_size: int) -> Iterator[Ranks]:
    """Join the processes that torchrun started, or run alone; each needs a row of a batch."""
    device = find_device(device_name)
    num_ranks = int(os.environ.get("WORLD_SIZE", "1"))
    must = f"{num_ranks} processes need at least one row each"
    check(batch_size >= num_ranks, "batch_size", batch_size, must)
    num_tasks = int(os.environ.get("SLURM_STEP_NUM_TASKS", "1"))
    if "RANK" not in os.environ and num_tasks > 1:
        raise UserError(
            f"srun has started {num_tasks} tasks, which would train a model each: start one task a "
            "node with torchrun, or set RANK, LOCAL_RANK and WORLD_SIZE as "
            "examples/slurm/train.sh does."
        )
    if num_ranks == 1:
        yield Ranks(0, 1, device)
        return
    if device.type in UNTESTED:
        raise UserError(f"`device` is {device.type}, which one process at a time can train on.")
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    # Imported at the first update, torch._dynamo would keep the group as a default argument. The
    # group would outlive destroy_process_group, and gloo's threads, which own tensors, would abort
    # one exit in five.
    import_module("torch._dynamo")
    # NCCL gathers objects through the current GPU, which is GPU 0 in every process by default.
    is_gpu = device.type == "cuda"
    with torch.cuda.device(device) if is_gpu else nullcontext():
        meet("nccl" if is_gpu else "gloo", num_ranks)
        try:
            yield Ranks(dist.get_rank(), num_ranks, device)
        finally:
            dist.destroy_process_group()


def meet(
    backend: str,
    num_ranks: int,
    patience: timedelta = timedelta(minutes=10),
    tell_after_s: float = 10.0,
) -> None:
    """Wait until all ranks are there; raise `RunError` if they are not within `patience`."""
    address = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    waited_for = f"{num_ranks} processes to meet at {address}"
    line = f"Rank {os.environ.get('RANK')} is waiting for {waited_for}."
    timer = threading.Timer(tell_after_s, lambda: print(line, file=sys.stderr))
    timer.daemon = True
    timer.start()
    # Python's handlers of signals would run only once the ranks have met.
    handlers: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            handlers[number] = signal.signal(number, signal.SIG_DFL)
    try:
        store, rank, _ = next(rendezvous("env://", timeout=patience))
        dist.init_process_group(
            backend,
            store=store,
            rank=rank,
            world_size=num_ranks,
            timeout=timedelta(hours=2),  # the first rank alone predicts the test files
        )
    except (dist.DistNetworkError, dist.DistStoreError) as error:
        reason = str(error).partition("\n")[0]
        raise RunError(f"Waited in vain for {waited_for} ({reason}).") from None
    finally:
        timer.cancel()
        for number, handler in handlers.items():
            signal.signal(number, handler)


class GradientSum:
    """Sums the gradients over all ranks, in buckets that are sent while the backward pass computes
    the next ones.

    The buckets are filled from the last parameters on, whose gradients are ready first, and sent in
    this order on all ranks. Parameters without a gradient in the first update are left out: they
    are unused.

    Not DistributedDataParallel, which refills its buckets after the first update, in the order
    in which gradients were ready: a run that resumes would sum its first gradients in other
    buckets, so in another order, and differ in the last bits from one that was not interrupted. It
    also takes the mean over ranks, where the loss is a sum of shares of the global batch.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], ranks: Ranks):
        self._ranks = ranks
        self._parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self._buckets: list[list[nn.Parameter]] = []
        self._bucket_index: dict[nn.Parameter, int] = {}
        self._num_missing: list[int] = []
        """Gradients that each bucket still waits for, in this backward pass."""
        self._sent: list[tuple[torch.Tensor, Callable[[], object]]] = []
        """Each sent bucket's gradients, flat, and a function that waits for their sum."""
        self._is_last = False
        if ranks.num_ranks > 1:
            for parameter in self._parameters:
                parameter.register_post_accumulate_grad_hook(self._ready)

    def start(self) -> None:
        """Send the gradients of the backward pass that follows, the last one of this update."""
        self._num_missing = [len(bucket) for bucket in self._buckets]
        self._is_last = True

    def finish(self) -> None:
        """Wait until all gradients are the sums over all ranks."""
        self._is_last = False
        if self._ranks.num_ranks == 1:
            return
        # Only after the first backward pass is it known which parameters have a gradient.
        if not self._buckets:
            self._fill_buckets()
        # In the first update these are all buckets, later none.
        while len(self._sent) < len(self._buckets):
            self._send()
        for bucket, (flat, wait) in zip(self._buckets, self._sent, strict=True):
            wait()
            sizes = [parameter.numel() for parameter in bucket]
            sums = flat.split(sizes)
            for parameter, gradient_sum in zip(bucket, sums, strict=True):
                assert parameter.grad is not None
                parameter.grad.copy_(gradient_sum.view_as(parameter))
        self._sent.clear()

    def _fill_buckets(self) -> None:
        # Bucket 1 travels while the gradients of bucket 2 are computed:
        #
        #     forward     embeddings   layer 1   layer 2   head
        #     backward                           <-------------- time
        #     buckets     [    3    ]  [   2   ] [    1       ]
        num_bytes = BUCKET_BYTES  # as if a bucket before were full, so that the first is begun
        for parameter in reversed(self._parameters):
            if parameter.grad is None:
                continue
            if num_bytes >= BUCKET_BYTES:
                self._buckets.append([])
                num_bytes = 0
            self._buckets[-1].append(parameter)
            self._bucket_index[parameter] = len(self._buckets) - 1
            num_bytes += parameter.nbytes

    def _ready(self, parameter: torch.Tensor) -> None:
        if not self._is_last or not self._buckets:
            return
        bucket_index = self._bucket_index[cast(nn.Parameter, parameter)]
        self._num_missing[bucket_index] -= 1
        # A full bucket waits for those before it: ranks that sent in different orders would sum
        # gradients of different parameters.
        while len(self._sent) < len(self._buckets) and self._num_missing[len(self._sent)] == 0:
            self._send()

    def _send(self) -> None:
        bucket = self._buckets[len(self._sent)]
        gradients = [cast(torch.Tensor, parameter.grad).flatten() for parameter in bucket]
        flat = torch.cat(gradients)  # one message for many small tensors
        wait = self._ranks.start_sum(flat)
        self._sent.append((flat, wait))
