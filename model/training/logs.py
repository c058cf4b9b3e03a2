"""Log a training run (``metrics.csv``, ``speed.csv``, TensorBoard in ``logs/``), and time it."""

import csv
import importlib.util
import math
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Self, TextIO

from ...pipeline.errors import UserError
from ...pipeline.parsing import read_csv

METRICS = (
    "step",
    "split",
    "learning_rate",
    "mlm_loss",
    "mlm_accuracy",
    "nsp_loss",
    "nsp_accuracy",
    "gradient_norm",
)
SPEED = (
    "step",
    "tokens_per_second",
    "padded_tokens_per_second",
    "data_wait",
    "mfu",
    "peak_memory_gb",
)

ProgressCallback = Callable[[dict[str, Any]], None]
"""Called now and then during training with figures by name: ``step``, ``steps``, ``loss`` …"""


class RunLog:
    """Appends to the logs of a run, after deleting a killed run's lines beyond `last_step` (-1:
    all lines).

    ``metrics.csv`` contains only results of the computation, so a resumed run writes the same file
    as an undisturbed one; figures that depend on the clock go to ``speed.csv``.
    """

    def __init__(
        self,
        directory: Path,
        last_step: int,
        metrics: tuple[str, ...] = METRICS,
        speed: tuple[str, ...] = SPEED,
    ):
        self._directory = directory
        self._files: dict[str, TextIO] = {}
        self._metrics = self._open("metrics.csv", metrics, last_step)
        self._speed = self._open("speed.csv", speed, last_step)
        self._board = None
        # TensorBoard gets the figures of both files too.
        if importlib.util.find_spec("tensorboard"):
            self._board = _EventFile(directory / "logs", last_step + 1)

    def _open(self, name: str, columns: Sequence[str], last_step: int) -> "csv.DictWriter[str]":
        path = self._directory / name
        rows = [row for row in read_log(path) if int(row["step"]) <= last_step]
        # With the columns that were added.
        columns = tuple(dict.fromkeys(chain(columns, *rows[:1])))
        # Rewritten under another name, so that a kill in the middle loses no line.
        partial = path.with_suffix(".partial")
        # Buffered by line, so that each line can be read at once.
        file = partial.open("w", buffering=1, newline="", encoding="utf-8")
        writer = csv.DictWriter(
            file, columns, restval="", extrasaction="ignore", lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(rows)
        # `file` stays open: further lines go to the renamed file.
        partial.replace(path)
        self._files[name] = file
        return writer

    def metrics(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Log losses and accuracies after `step` updates on ``train`` or ``validation``."""
        # `repr` has all digits, so that a resumed run writes the same bytes.
        texts = {name: repr(value) for name, value in values.items()}
        self._write(self._metrics, {"step": step, "split": split}, split, texts)

    def add_columns(self, names: Iterable[str]) -> None:
        """Add columns to ``metrics.csv``, empty in earlier rows."""
        columns = [*self._metrics.fieldnames, *names]
        if len(set(columns)) > len(self._metrics.fieldnames):
            self._files["metrics.csv"].close()
            self._metrics = self._open("metrics.csv", columns, sys.maxsize)

    def speed(self, step: int, values: Mapping[str, float]) -> None:
        """Log tokens per second and so on."""
        texts = {name: f"{value:.6g}" for name, value in values.items()}
        self._write(self._speed, {"step": step}, "speed", texts)

    def _write(
        self,
        writer: "csv.DictWriter[str]",
        key: dict[str, Any],
        group: str,
        values: Mapping[str, str],
    ) -> None:
        # In the order of the columns; callers may give more figures than the file has columns.
        logged = {}
        for name in writer.fieldnames:
            if name in values and name not in key:
                logged[name] = values[name]
        writer.writerow(key | logged)
        if self._board:
            numbers = {f"{group}/{name}": float(value) for name, value in logged.items()}
            self._board.add_scalars(numbers, key["step"])

    def flush(self) -> None:
        """Write everything to disk: a resumed run keeps the lines up to its checkpoint."""
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        with ExitStack() as closing:  # all of them, even if one fails
            for file in self._files.values():
                closing.callback(file.close)
            if self._board:
                closing.callback(self._board.file.close)
            self.flush()


def read_log(path: Path) -> list[dict[str, str]]:
    """Return the complete rows of a killed run's log; raise `UserError` if it is damaged."""
    if not path.exists():
        return []
    advice = "Delete it; the run resumes with a new one."
    content = path.read_bytes()
    # A kill may have cut the last line.
    complete_lines = content[: content.rfind(b"\n") + 1]
    rows = read_csv(complete_lines, path, advice)
    try:
        for row in rows:  # which some run has written
            is_damaged = int(row["step"]) < 0
            for name, value in row.items():
                # The norm of a gradient that overflows fp16 is infinite; its update was skipped.
                if name not in ("split", "gradient_norm") and value:
                    is_damaged |= not math.isfinite(float(value))
            if is_damaged:
                raise ValueError
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{path} is damaged. {advice}") from None
    return rows


class Clock:
    """Measures a training's speed and time, after the seconds `spent` before an interruption."""

    def __init__(self, peak_flops: float | None = None, spent: float = 0.0):
        self.peak_flops = peak_flops
        self.spent = spent
        self.restart()

    def restart(self) -> None:
        """Start from now, and forget what was measured before."""
        self.started = time.perf_counter()
        self.num_steps = 0
        self.num_tokens = 0
        self.evaluation_s = 0.0
        self.start_interval()

    def start_interval(self) -> None:
        """Measure the rates from now on."""
        self._interval_started = time.perf_counter()
        self._waited_s = 0.0
        self._rows = 0
        self._tokens = 0
        self._padded = 0
        self._flops = 0.0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time of the block as waiting for data."""
        started = time.perf_counter()
        yield
        self._waited_s += time.perf_counter() - started

    def count(
        self, *, num_rows: int, num_tokens: int, num_padded: int = 0, flops: float = 0.0
    ) -> None:
        """Count one update: rows, real tokens, tokens with padding, and FLOPs, over all ranks."""
        self.num_steps += 1
        self.num_tokens += num_tokens
        self._rows += num_rows
        self._tokens += num_tokens
        self._padded += num_padded
        self._flops += flops

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Count the time of the block as evaluation: neither as training time nor in the rates."""
        started = time.perf_counter()
        yield
        taken = time.perf_counter() - started
        self.evaluation_s += taken
        # As if the training had begun that much later.
        self.started += taken
        self._interval_started += taken

    def seconds(self) -> float:
        """Return the seconds of training since the start, without evaluation."""
        return time.perf_counter() - self.started

    def elapsed(self) -> float:
        """Return the seconds of training, including those before an interruption."""
        return self.spent + self.seconds()

    def totals(self) -> dict[str, float]:
        """Return seconds, steps, tokens per second, and seconds of evaluation since the start."""
        seconds = self.seconds()
        return {
            "seconds": seconds,
            "steps": self.num_steps,
            "tokens_per_second": self.num_tokens / seconds,
            "evaluation_s": self.evaluation_s,
        }

    def rates(self) -> dict[str, float]:
        """Return rows and tokens per second, the share of waiting, and on a known GPU ``mfu``."""
        seconds = time.perf_counter() - self._interval_started
        rates = {
            "examples_per_second": self._rows / seconds,
            "tokens_per_second": self._tokens / seconds,
            "padded_tokens_per_second": self._padded / seconds,
            "data_wait": self._waited_s / seconds,
        }
        if self.peak_flops:
            rates["mfu"] = self._flops / seconds / self.peak_flops
        return rates


class _EventFile:
    """A new file for TensorBoard in `folder`, which hides what older files there have from
    `first_step` on.

    Not ``torch.utils.tensorboard``: its thread prints a traceback if the disk is full, where the
    caller of this one gets the error.
    """

    def __init__(self, folder: Path, first_step: int):
        # Imported here because it takes half a second, and only the first rank writes logs.
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._events: Any = event_pb2  # protocol buffers have no types
        self._summaries: Any = summary_pb2
        folder.mkdir(parents=True, exist_ok=True)
        # TensorBoard finds files by this prefix, and reads them in the order of the first number.
        prefix = f"events.out.tfevents.{int(time.time()):010d}"
        name = f"{prefix}.{socket.gethostname()}.{os.getpid()}.{time.time_ns()}"
        # Without a buffer, which would try again, and print its error, when it is deleted.
        self.file = (folder / name).open("wb", buffering=0)
        self._records = RecordWriter(self.file)
        # Every reader expects the version first.
        self._add(step=first_step, file_version="brain.Event:2")
        # A resumed run computes the steps after its checkpoint again. At a start, TensorBoard drops
        # the points of older files from this step on, so that no curve runs back over itself.
        log = self._events.SessionLog
        self._add(step=first_step, session_log=log(status=log.START))

    def add_scalars(self, values: Mapping[str, float], step: int) -> None:
        """Add a point to each of these curves."""
        points = [
            self._summaries.Summary.Value(tag=tag, simple_value=values[tag]) for tag in values
        ]
        self._add(step=step, summary=self._summaries.Summary(value=points))

    def _add(self, **fields: Any) -> None:
        event = self._events.Event(wall_time=time.time(), **fields)
        self._records.write(event.SerializeToString())
