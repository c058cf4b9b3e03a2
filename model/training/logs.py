"""The records of a run (``metrics.csv``, ``speed.csv``, TensorBoard's files in ``logs/``), and its clock."""

import csv
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

METRICS = ("step", "split", "learning_rate", "mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy", "gradient_norm")
SPEED = ("step", "tokens_per_second", "padded_tokens_per_second", "data_wait", "mfu", "peak_memory_gb")


class RunLog:
    """Appends to the records of a run; what stands there from after `first_step` (-1: all) is cut off first.

    ``metrics.csv`` holds only what the computation determines, so that a resumed run writes the same file as an
    undisturbed one; what the clock determines goes to ``speed.csv``. `metrics` and `speed` are their columns.
    """

    def __init__(
        self, directory: Path, first_step: int, metrics: tuple[str, ...] = METRICS, speed: tuple[str, ...] = SPEED
    ):
        # Imported here: it takes a second, and only the first rank writes.
        from torch.utils.tensorboard import SummaryWriter

        self._files = []
        self._metrics = self._open(directory / "metrics.csv", metrics, first_step)
        self._speed = self._open(directory / "speed.csv", speed, first_step)
        self._board = SummaryWriter(str(directory / "logs"), purge_step=first_step + 1)

    def _open(self, path: Path, columns: tuple[str, ...], first_step: int) -> "csv.DictWriter[str]":
        kept = []
        if path.exists():
            with path.open(newline="", encoding="utf-8") as old:
                # The last line of a killed run may be cut off; its missing fields are None.
                complete = (row for row in csv.DictReader(old) if None not in row.values())
                kept = [row for row in complete if int(row["step"]) <= first_step]
        partial = path.with_suffix(".partial")
        file = partial.open("w", newline="", encoding="utf-8")
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept)
        file.flush()
        partial.replace(path)
        self._files.append(file)
        return writer

    def metrics(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Record losses and accuracies after `step` updates, on the ``train`` or ``validation`` split."""
        known = {name: repr(values[name]) for name in self._metrics.fieldnames if name in values}
        self._metrics.writerow({"step": step, "split": split, **known})
        self._board_scalars(step, split, known)

    def speed(self, step: int, values: Mapping[str, float]) -> None:
        """Record tokens per second, the share of the time spent waiting for data, and on a GPU its use and memory."""
        known = {name: f"{values[name]:.6g}" for name in self._speed.fieldnames if name in values}
        self._speed.writerow({"step": step, **known})
        self._board_scalars(step, "speed", known)

    def _board_scalars(self, step: int, group: str, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            self._board.add_scalar(f"{group}/{name}", float(value), step)

    def flush(self) -> None:
        """Bring everything to disk, before a checkpoint that counts on it."""
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())
        self._board.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.flush()
        self._board.close()
        for file in self._files:
            file.close()


class Clock:
    """Measures tokens per second and the share of the time spent waiting for data, since the last log line.

    With the `peak_flops` of all GPUs together, also the share of it that is made use of (``mfu``). `spent` are seconds
    of training that came before, in the earlier part of an interrupted run.
    """

    def __init__(self, peak_flops: float | None = None, spent: float = 0.0):
        self.peak_flops = peak_flops
        self.spent = spent
        self.started = time.perf_counter()
        self.num_steps = 0
        self.num_tokens = 0
        self.begin_interval()

    def begin_interval(self) -> None:
        """Measure the rates from now on."""
        self.interval_started, self.waited = time.perf_counter(), 0.0
        self.interval_tokens, self.interval_padded, self.interval_flops = 0, 0, 0.0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time of the block as waiting for data."""
        began = time.perf_counter()
        yield
        self.waited += time.perf_counter() - began

    def count(self, num_tokens: int, num_padded: int, flops: float) -> None:
        """Count one update of `flops` FLOPs on `num_tokens` real tokens, laid out in `num_padded`."""
        self.num_steps += 1
        self.num_tokens += num_tokens
        self.interval_tokens += num_tokens
        self.interval_padded += num_padded
        self.interval_flops += flops

    def seconds(self) -> float:
        """Return the seconds since the start."""
        return time.perf_counter() - self.started

    def elapsed(self) -> float:
        """Return the seconds of training, with those spent before the start."""
        return self.spent + self.seconds()

    def rates(self) -> dict[str, float]:
        """Return tokens per second (real, and with the padding), the share of the time spent waiting, and MFU."""
        seconds = time.perf_counter() - self.interval_started
        rates = {
            "tokens_per_second": self.interval_tokens / seconds,
            "padded_tokens_per_second": self.interval_padded / seconds,
            "data_wait": self.waited / seconds,
        }
        return rates | ({"mfu": self.interval_flops / seconds / self.peak_flops} if self.peak_flops else {})
