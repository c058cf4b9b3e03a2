"""The benchmark for one GPU runs small on the CPU, in a checkout that is not installed, with few
packages; and all of it on a GPU that computes nothing.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures import null_gpu

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
UNUSED = ("apache_beam", "chardet", "datasets", "rich", "tensorboard", "matplotlib")
WITHOUT = """
import importlib.util, sys
sys.modules.update(dict.fromkeys({missing!r}))
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: (
    None if name in ("clozeworks", *{missing!r}) else find_spec(name, *rest)
)
"""


def run(code: str, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", WITHOUT.format(missing=UNUSED) + code]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_with_few_packages_it_runs_on_a_cpu():
    code = (
        "from benchmarks import gpu\n"
        "gpu.main(['--seconds', '0.01']); gpu.end_after(0); gpu.time.sleep(60)"
    )
    done = run(code, os.environ | {"CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stdout.endswith("\nEnded: --minutes are over.\n")
    for line in (
        "losses with dropout: equal, by at most 0.0e+00; graphs: none on this device",
        "resumed in the middle: equal weights; losses differ by at most 0.0e+00",
        "two equal runs: equal with --deterministic, equal without",
        "bert tiny, 4 rows, dropout 0.1, launched: ",
    ):
        assert line in done.stdout
    assert "transformers" in done.stdout and "tokens/s in the second half" in done.stdout


@pytest.mark.skipif(null_gpu.missing() is not None, reason=str(null_gpu.missing()))
def test_all_of_it_runs_on_a_gpu(tmp_path):
    code = """
from tests.fixtures import null_gpu
null_gpu.install()
from benchmarks import gpu
from clozeworks.model.pretraining import batches, work
batches.check_packing = lambda *_: None
work.metrics = lambda totals: {"loss": 1.0, "mlm_loss": 1.0, "mlm_accuracy": 0.5}
gpu.CASES = gpu.SMALL_CASES
gpu.main(["--seconds", "0.01", "--small", "--no-compile"])
"""
    done = run(code, null_gpu.build(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "NVIDIA H100 80GB HBM3\n" in done.stdout
    assert "losses with dropout: equal, by at most 0.0e+00; graphs: 1 kept, 98.0%" in done.stdout
    assert "graphs: 0 kept, 0.0% replayed\n" in done.stdout
    assert "no longer captured as CUDA graphs" in done.stderr
    assert "bert tiny, 4 rows, dropout 0.1, captured: " in done.stdout
    assert "Updates as CUDA graphs: " in done.stderr
    assert "outputs and evaluations: sums differ by at most 0.0e+00" in done.stdout
    assert "bf16, captured " in done.stdout and "its weights there " in done.stdout
    assert "FAILED" not in done.stdout
