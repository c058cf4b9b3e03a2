"""A command in its own process, and its cost."""

import json
import os
import subprocess
import sys
import time
from typing import NamedTuple

# Before anything starts a thread pool, and for the commands too: one core for each process.
os.environ.update(TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1", OMP_NUM_THREADS="1")

CLOZEWORKS = [sys.executable, "-c", "from clozeworks.cli.main import main; main()"]
# A small process in between: Linux counts the memory of a parent towards the child it starts.
MEASURE = [
    *(sys.executable, "-c"),
    "import json, resource, subprocess, sys\n"
    "status = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode\n"
    "usage = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
    "print(json.dumps([status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss]))",
]


class Usage(NamedTuple):
    """The cost of a process and its children."""

    wall_s: float
    cpu_s: float
    peak_mb: float  # of the largest process


def run_command(*arguments: object) -> Usage:
    """Run a clozeworks command, imports included, and measure it."""
    return run_measured([*CLOZEWORKS, *map(str, arguments)])


def run_measured(command: list[str], *, fine: tuple[int, ...] = (0,)) -> Usage:
    """Run a command to its end and measure it; end with its name unless its status is `fine`."""
    begin = time.monotonic()
    ended = subprocess.run([*MEASURE, *command], stdout=subprocess.PIPE, check=True)
    wall = time.monotonic() - begin
    status, cpu_s, peak_kb = json.loads(ended.stdout)
    if status not in fine:
        raise SystemExit(f"{' '.join(command)} failed")
    return Usage(wall, cpu_s, peak_kb * 1024 / 1e6)
