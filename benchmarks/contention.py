"""Pre-training alone and beside busy processes, with several numbers of threads and ways to wait.

    python -m benchmarks.contention INSTANCES [--model mini] [--rows 32] [--seconds 5] [--rounds 1]
        [--setting "threads=2 OMP_WAIT_POLICY=PASSIVE"]...

Each setting is a process of its own: OpenMP reads the environment once. A process trains for some
seconds alone, then beside one and beside two loops that do nothing but spin. Settings alternate,
and of several rounds the median counts. `threads=` is OMP_NUM_THREADS; without it and without any
other variable, the process is what `clozeworks pretrain` would be on this machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

BUSY = [sys.executable, "-S", "-c", "while True: pass"]
WARM_UP_S = 2.0


class Rate(NamedTuple):
    """What a training did for some seconds."""

    tokens_per_second: float
    cores: float
    """CPU seconds per second, of all its threads."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("instances")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--others", default="0,1,2", help="numbers of busy processes")
    parser.add_argument("--setting", action="append", default=[])
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments)))
        return
    settings = arguments.setting or ["default"]
    rates: dict[str, list[list[Rate]]] = {setting: [] for setting in settings}
    for _ in range(arguments.rounds):
        for setting in settings:
            rates[setting].append(run_setting(setting))
            print(setting, rates[setting][-1], file=sys.stderr, flush=True)
    title = f"{arguments.model}, {arguments.rows} rows an update: tokens/s (cores)"
    columns = [f"beside {number}" for number in arguments.others.split(",")]
    table = Table("setting", *columns, title=title)
    for setting, rounds in rates.items():
        table.add_row(setting, *(median(column) for column in zip(*rounds, strict=True)))
    Console().print(table)


def run_setting(setting: str) -> list[Rate]:
    environment = dict(os.environ)
    if setting != "default":
        for pair in setting.split():
            name, _, value = pair.partition("=")
            environment["OMP_NUM_THREADS" if name == "threads" else name] = value
    command = [sys.executable, "-m", "benchmarks.contention", *sys.argv[1:], "--measure"]
    ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return [Rate(*rate) for rate in json.loads(ended.stdout)]


def median(rates: tuple[Rate, ...]) -> str:
    speed = statistics.median(rate.tokens_per_second for rate in rates)
    cores = statistics.median(rate.cores for rate in rates)
    return f"{speed:,.0f} ({cores:.2f})"


def measure(arguments: argparse.Namespace) -> list[Rate]:
    """Train with this process's environment; return the rate beside each number of busy
    processes."""
    import torch
    from clozeworks.model.config import PretrainConfig
    from clozeworks.model.pretraining.plan import make_plan
    from clozeworks.model.pretraining.setup import start
    from clozeworks.model.training.device import pinned_attention, trim_memory
    from clozeworks.model.training.ranks import Ranks
    from clozeworks.model.training.threads import prefetch

    config = PretrainConfig(
        model=arguments.model,
        batch_size=arguments.rows,
        dropout=arguments.dropout,
        objective="mlm",
        device="cpu",
    )
    device = torch.device("cpu")
    plan = make_plan(config, [arguments.instances])
    setup, _, updater, _ = start(plan, Ranks(0, 1, device), None)
    steps = count()
    batches = prefetch(setup.global_batch, count())

    def train(seconds: float) -> Rate:
        num_tokens = 0
        cpu_start = time.process_time()
        start = time.perf_counter()
        while (elapsed := time.perf_counter() - start) < seconds:
            step = next(steps)
            batch = next(batches)
            updater.update(step, batch.batches, 1e-4)
            updater.drain()
            trim_memory(device, step)
            num_tokens += int(batch.lengths.sum())
        return Rate(num_tokens / elapsed, (time.process_time() - cpu_start) / elapsed)

    with pinned_attention():
        train(WARM_UP_S)
        rates = []
        for number in arguments.others.split(","):
            with busy_processes(int(number)):
                rates.append(train(arguments.seconds))
    batches.close()
    return rates


@contextmanager
def busy_processes(number: int) -> Iterator[None]:
    processes = [subprocess.Popen(BUSY) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
