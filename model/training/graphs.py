"""Capture what a GPU computes for a batch as a CUDA graph, and replay it for later batches of the
same shape: the GPU then never waits for Python. `Updater` does so with updates, and `Inference`
with what is computed without gradients.

The first batch of a shape is computed as usual, which also prepares kernels: so nothing is computed
that is not needed, and nothing has to be undone. The second one is captured. All graphs share one
pool of memory, as none is replayed beside another and nothing that they leave there is used later,
except for what `Graphs.run` copies.
"""

from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..notices import print_notice
from .device import autocast, pinned_attention, product_dtype, uncompiled


class CaptureError(RuntimeError):
    """What a GPU computes for a batch cannot be captured."""


class Recorder:
    """Captures the work that a function queues on a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)
        self._is_broken = False

    def prepare(self, function: Callable[[], Tensor]) -> Tensor:
        """Call a function before it is captured, on another stream, as CUDA wants it."""
        usual = torch.cuda.current_stream()
        self._stream.wait_stream(usual)
        with torch.cuda.stream(self._stream):
            result = function()
        usual.wait_stream(self._stream)
        return result

    def capture(self, function: Callable[[], None]) -> Callable[[], None]:
        """Return a function that queues the work of `function` again; nothing is computed yet."""
        graph = torch.cuda.CUDAGraph()
        usual = torch.cuda.current_stream()
        # What fails within leaves the generator of dropout unusable: another one takes its place,
        # which graphs of before do not read (see `renew`).
        generator = torch.cuda.default_generators[usual.device_index]
        fresh = generator.clone_state()
        raised = 0
        try:
            # Meanwhile other threads may pin memory for the next batches.
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                try:
                    function()
                except Exception as error:
                    raised = id(error)
                    raise
        except Exception as error:
            # If the capture cannot even be ended, PyTorch stays on its stream, and its allocator
            # would keep all free memory for it.
            torch.cuda.set_stream(usual)
            with suppress(AttributeError, RuntimeError):
                torch._C._cuda_endAllocateToPool(usual.device_index, self._pool)  # pyright: ignore
            generator.graphsafe_set_state(fresh)
            # Ending a capture that a wait has spoilt raises an error of its own.
            self._is_broken |= id(error) != raised
            raise
        return graph.replay

    def renew(self) -> None:
        """Begin with another pool of memory, when no graph of before is left: PyTorch captures
        nothing into one that no graph uses but in which a tensor still lies.
        """
        if self._is_broken:
            # The pool still counts the capture that was broken off, and would keep its memory.
            with suppress(AttributeError, RuntimeError):
                torch._C._cuda_releasePool(self._device.index or 0, self._pool)  # pyright: ignore
        self._is_broken = False
        self._pool = torch.cuda.graph_pool_handle()


def make_graphs(device: torch.device, dtype: torch.dtype, num_ranks: int = 1) -> "Graphs | None":
    """Return where batches are captured, None where they are not: on several ranks, with a loss
    scale, and on other devices than NVIDIA's.
    """
    is_cuda = device.type == "cuda" and torch.version.hip is None
    if not is_cuda or num_ranks > 1 or dtype == torch.float16:
        return None
    return Graphs(Recorder(device), device)


def widths_of(graphs: "Graphs | None", num_positions: int) -> tuple[int, ...]:
    """Return the widths that padded rows are filled to where batches are captured, so that there
    are few shapes: multiples of 16, and the model's positions. Elsewhere any width will do.
    """
    return () if graphs is None else (*range(16, num_positions, 16), num_positions)


@dataclass
class _Graph:
    batch: Any
    """On the device; each replay reads what was copied into it."""
    result: Tensor | None = None
    replay: Callable[[], None] = lambda: None
    last_run: int = 0


class Graphs:
    """Graphs by what they compute and by the shapes that it is computed for.

    At most `most_graphs` are kept; one that was not replayed in `unused_for` runs makes room for
    another. At most `most_seen` shapes are remembered: padded rows have another one in nearly every
    batch.
    """

    def __init__(
        self,
        recorder: Recorder,
        device: torch.device,
        *,
        most_graphs: int = 12,
        unused_for: int = 200,
        most_seen: int = 1000,
        beside: "list[Graphs] | None" = None,
    ) -> None:
        self.num_runs = 0
        self.num_replays = 0
        self._recorder = recorder
        self._device = device
        self._most_graphs = most_graphs
        self._unused_for = unused_for
        self._most_seen = most_seen
        self._graphs: dict[Hashable, _Graph] = {}
        self._seen: set[Hashable] = set()
        self._all = [] if beside is None else beside
        """These, and those that share the recorder with them."""
        self._all.append(self)

    def beside(self) -> "Graphs":
        """Return graphs of other work, in the same memory."""
        return Graphs(self._recorder, self._device, beside=self._all)

    @property
    def works(self) -> bool:
        """Whether batches are captured."""
        return self._most_graphs > 0

    def __len__(self) -> int:
        return len(self._graphs)

    def run(self, name: str, compute: Callable[[Any], Tensor], batch: Any) -> Tensor:
        """Return a copy of what `compute`, known as `name`, returns for a batch on the device.

        `batch` is a tuple; each tensor in it is an input, anything else is part of the shape.
        Raises `CaptureError` if the work cannot be captured, and `torch.OutOfMemoryError`; nothing
        has been computed then.
        """
        self.num_runs += 1
        key = (name, *map(_shape, batch))
        graph = self._graphs.get(key)
        if graph is None and self.works and key in self._seen and self._has_room():
            graph = self._capture(key, compute, batch)
        if len(self._seen) >= self._most_seen:
            self._seen.clear()
        self._seen.add(key)
        if graph is None:
            return self._recorder.prepare(lambda: compute(self._send(batch)))
        copied = zip(graph.batch, batch, strict=True)
        if getattr(batch, "piece", None) is not None:  # which has all tensors
            copied = [(graph.batch.piece, batch.piece)]
        for tensor, value in copied:
            if isinstance(value, Tensor):
                tensor.copy_(value, non_blocking=True)
        graph.replay()
        graph.last_run = self.num_runs
        self.num_replays += 1
        assert graph.result is not None
        return graph.result.clone()

    def drop(self, reason: str, *, is_short: bool) -> None:
        """Free all graphs and capture no more, or half as many if memory `is_short`; say why.

        To be called outside the handler of an error, whose frames keep its tensors in memory.
        """
        self._most_graphs = self._most_graphs // 2 if is_short else 0
        self._seen.clear()
        self.clear()
        torch.cuda.empty_cache()
        if self.works:
            print_notice(f"CUDA graphs are freed, and {self._most_graphs} kept at most ({reason}).")
        else:
            print_notice(
                f"Batches are no longer captured as CUDA graphs ({reason}): they take longer."
            )

    def figures(self) -> str:
        """Say how many graphs there are, and how much of the work was a replay."""
        share = self.num_replays / max(1, self.num_runs)
        return f"{len(self)} kept, {share:.1%} replayed"

    def clear(self) -> None:
        """Free all graphs, also those beside, which are captured again when they are needed."""
        for graphs in self._all:
            graphs._graphs.clear()
        self._recorder.renew()

    def _has_room(self) -> bool:
        if len(self._graphs) < self._most_graphs:
            return True
        oldest = min(self._graphs, key=lambda key: self._graphs[key].last_run)
        if self.num_runs - self._graphs[oldest].last_run <= self._unused_for:
            return False
        del self._graphs[oldest]
        return True

    def _send(self, batch: Any) -> Any:
        return batch.to(self._device) if batch else batch

    def _capture(self, key: Hashable, compute: Callable[[Any], Tensor], batch: Any) -> _Graph:
        graph = _Graph(self._send(batch))

        def function() -> None:
            graph.result = compute(graph.batch)

        try:
            graph.replay = self._recorder.capture(function)
        except Exception as error:  # of CUDA, or of a kernel
            cause = error.__context__ or error
            is_short = isinstance(cause, torch.OutOfMemoryError)
            reason = first_line(cause)
            del cause
        else:
            self._graphs[key] = graph
            return graph
        # Not in the handler, where it would hold on to that error.
        raise torch.OutOfMemoryError(reason) if is_short else CaptureError(reason)


class Inference:
    """Computes batches without gradients, with products in `dtype`, and by `graphs` if given."""

    def __init__(
        self, device: torch.device, dtype: torch.dtype, graphs: Graphs | None = None
    ) -> None:
        self.device = device
        self.graphs = graphs
        self._dtype = dtype

    def run(self, compute: Callable[[Any], Tensor], batch: Any, *, captures: bool = True) -> Tensor:
        """Return what `compute`, the same in all calls, returns for a batch, of whose shape there
        are others if it `captures`.
        """

        def computed(batch: Any) -> Tensor:
            with autocast(self.device, self._dtype), uncompiled(), pinned_attention():
                return compute(batch)

        if self.graphs is None or not captures:
            return computed(batch.to(self.device))
        if self.device.type == "cuda":
            batch = batch.pin()  # copies from other memory are waited for
        try:
            return self.graphs.run("inference", computed, batch)
        except (CaptureError, torch.OutOfMemoryError) as error:
            if not self.graphs.works:
                raise
            is_short = isinstance(error, torch.OutOfMemoryError)
            reason = first_line(error)
        self.graphs.drop(reason, is_short=is_short)
        return self.graphs.run("inference", computed, batch)


def make_inference(device: torch.device, precision: str = "auto") -> Inference:
    """Return what computes batches where nothing is trained."""
    dtype = product_dtype(precision, device)
    return Inference(device, dtype, make_graphs(device, dtype))


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, its kind if it has none."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _shape(value: object) -> Hashable:
    if isinstance(value, Tensor):
        return tuple(value.shape)
    return value
