"""A command of clozeworks as a process of its own, and what it took."""

import json
import os
import subprocess
import sys
import time
from typing import NamedTuple

# Before anything starts a thread pool, and for the commands too: one core for each process.
os.environ.update(TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1", OMP_NUM_THREADS="1")

CLOZEWORKS = [sys.executable, "-c", "from clozeworks.cli.main import main; main()"]
# Between the two stands a small process, for Linux counts the memory of the one that starts a process as its own.
MEASURE = [
    *(sys.executable, "-c"),
    "import json, resource, subprocess, sys\n"
    "status = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode\n"
    "usage = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
    "print(json.dumps([status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss]))",
]


class Usage(NamedTuple):
    """What a process took, with those that it started."""

    wall_s: float
    cpu_s: float
    peak_mb: float  # of the largest process


def run_command(*arguments: object) -> Usage:
    """Run a command of clozeworks, from its imports to its end, and measure it."""
    begin = time.monotonic()
    command = [*MEASURE, *CLOZEWORKS, *map(str, arguments)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    wall = time.monotonic() - begin
    status, cpu_s, peak_kb = json.loads(ended.stdout)
    if status:
        raise SystemExit(f"clozeworks {' '.join(map(str, arguments))} failed")
    return Usage(wall, cpu_s, peak_kb * 1024 / 1e6)
