"""The benchmark for one GPU runs small on the CPU, without Beam and datasets."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
WITHOUT = (
    "import sys; sys.modules.update(dict.fromkeys(('apache_beam', 'datasets'))); from benchmarks.gpu import main; "
)
SMALL = "--models tiny --lengths 16,24 --dropouts 0.1 --vocab-size 60 --seconds 0.01 --run-minutes 0.01"


def test_it_measures_both_trainers_and_a_run():
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", f"{WITHOUT}main({SMALL.split()!r})"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("tiny")]
    assert [line[:4] for line in lines] == [
        ["tiny", length, "0.1", trainer] for trainer in ("clozeworks", "transformers") for length in ("16", "24")
    ]
    assert all(float(line[4].replace(",", "")) > 0 for line in lines)
    assert "`pretrain` of tiny for" in done.stdout and "evaluation" in done.stdout
