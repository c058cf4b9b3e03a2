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

UNUSED = ("apache_beam", "chardet", "datasets", "rich", "tensorboard", "matplotlib")
WITHOUT = f"""
import importlib.util, sys
sys.modules.update(dict.fromkeys({UNUSED!r}))
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: (
    None if name in {("clozeworks", *UNUSED)!r} else find_spec(name, *rest)
)
"""
# However busy the machine is, there is time left.
OPTIONS = ["--seconds=0.01", "--minutes=100000", "--small", "--no-compile"]
ON_NULL_GPU = """
from tests.fixtures import null_gpu
null_gpu.install()
from clozeworks.model.pretraining import batches, work
batches.check_packing = lambda *_: None
work.metrics = lambda totals: {"loss": 1.0, "mlm_loss": 1.0, "mlm_accuracy": 0.5}
"""


def run(code: str, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    program = f"{WITHOUT}{code}\nfrom benchmarks import gpu; gpu.main({OPTIONS})"
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "FAILED" not in done.stdout
    return done


def test_with_few_packages_it_runs_on_a_cpu():
    printed = run("", os.environ | {"CUDA_VISIBLE_DEVICES": ""}).stdout
    for line in (
        "losses with dropout: equal, by at most 0.0e+00; graphs: none on this device",
        "resumed in the middle: equal weights; losses differ by at most 0.0e+00",
        "two equal runs: equal with --deterministic, equal without",
        "bert tiny, 4 rows, dropout 0.1, launched: ",
    ):
        assert line in printed
    assert "transformers" in printed and "tokens/s in the second half" in printed


@pytest.mark.skipif(null_gpu.missing() is not None, reason=str(null_gpu.missing()))
def test_all_of_it_runs_on_a_gpu(tmp_path):
    done = run(ON_NULL_GPU, null_gpu.build(tmp_path))
    for line in (
        "NVIDIA H100 80GB HBM3\n",
        "losses with dropout: equal, by at most 0.0e+00; graphs: 1 kept, 98.0%",
        "graphs: 0 kept, 0.0% replayed\n",
        "bert tiny, 4 rows, dropout 0.1, captured: ",
        "outputs and evaluations: sums differ by at most 0.0e+00",
    ):
        assert line in done.stdout
    assert "no longer captured as CUDA graphs" in done.stderr
    assert "Updates as CUDA graphs: " in done.stderr
