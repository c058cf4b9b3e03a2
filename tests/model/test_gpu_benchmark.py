"""The benchmark for one GPU runs small on the CPU, in a checkout that is not installed, with few
packages; and all of it on a GPU that computes nothing.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures import null_gpu
from tests.fixtures.instances_fixture import write_instances

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
UNUSED = ("apache_beam", "datasets", "rich", "scipy", "sklearn")
RUN_NEEDS = ("pyarrow", "safetensors", "tensorboard", "tokenizers", "transformers")
SMALL = ["--dropouts", "0.1", "--seconds", "0.01", "--run-minutes", "0.02"]
WITHOUT = """
import importlib.util, sys
sys.modules.update(dict.fromkeys({missing!r}))
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: (
    None if name in ("clozeworks", *{missing!r}) else find_spec(name, *rest)
)
from benchmarks import gpu
"""


def run(
    missing: tuple[str, ...], code: str, environment: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    environment = environment or os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", WITHOUT.format(missing=missing) + code]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def cases(output: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines() if line.startswith("tiny  ")]


def test_with_few_packages_it_measures_the_rows_that_it_carries():
    options = ["tiny", *SMALL]
    parts = ["run", *SMALL]
    code = f"gpu.main({options!r}); gpu.main({parts!r}); gpu.stop_after(0); gpu.time.sleep(60)"
    done = run((*UNUSED, *RUN_NEEDS), code)
    # The profiler writes lines of its own there.
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stdout.endswith("\nStopped: --minutes are over.\n")
    assert done.stdout.count("Rows: rows.npz\n") == 2
    measured = cases(done.stdout)
    assert [line[:5] for line in measured] == [
        ["tiny", length, "0.1", "clozeworks", "eager"] for length in ("128", "512")
    ]
    assert all(float(line[5].replace(",", "")) > 0 for line in measured)
    assert "3 updates:\n" in done.stdout and "aten::addmm" in done.stdout
    assert "`pretrain` needs pyarrow, safetensors, tokenizers; its parts" in done.stdout
    assert "of its time: evaluation" in done.stdout


def test_it_measures_given_instances_and_a_run_on_them(tmp_path):
    given = [
        str(write_instances(tmp_path / str(n), rows_per_group=70, max_length=n)) for n in (16, 24)
    ]
    options = ["tiny", *given, *SMALL, "--lengths", "16,24"]
    trained = ["run", *given, *SMALL, "--lengths", "16"]
    other = ["tiny", *given, *SMALL]
    # A peer may raise any error, which ends only its own case.
    broken = "def broken(*_): raise ImportError('no kernel')\ngpu.peer_loss = broken\n"
    code = f"{broken}gpu.main({options!r}); gpu.main({trained!r}); gpu.main({other!r})"
    done = run(UNUSED, code)
    assert done.returncode == 1 and "no rows of up to 128 tokens" in done.stderr
    assert f"Rows: {', '.join(given)}\n" in done.stdout
    assert [line[1:4] for line in cases(done.stdout)] == [
        [length, "0.1", "clozeworks"] for length in ("16", "24")
    ]
    assert "tiny, transformers, eager: failed with the error above\n" in done.stdout
    assert "ImportError: no kernel" in done.stderr
    assert "`pretrain` of tiny," in done.stdout and "of its time: evaluation" in done.stdout


@pytest.mark.skipif(null_gpu.missing() is not None, reason=str(null_gpu.missing()))
def test_all_of_it_runs_on_a_gpu(tmp_path):
    environment = null_gpu.build(tmp_path)
    sizes = ["tiny", *SMALL]
    parts = ["run", *SMALL]
    code = f"""
from tests.fixtures import null_gpu
null_gpu.install()
from clozeworks.model.pretraining import batches
batches.check_packing = lambda *_: None
gpu.main({sizes!r})
gpu.TRAINED = "tiny"
gpu.main({parts!r})
"""
    done = run((*UNUSED, *RUN_NEEDS), code, environment)
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert "NVIDIA H100 80GB HBM3, 85.9 GB, compute capability 9.0\npeak 989" in done.stdout
    assert [line[4:6] for line in cases(done.stdout)] == [["compiled,", "packed"]] * 2
    assert "of its time: evaluation" in done.stdout
