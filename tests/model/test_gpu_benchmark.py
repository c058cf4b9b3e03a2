"""The benchmark for one GPU runs small on the CPU, in a checkout that is not installed, with few
packages.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from instances_fixture import write_instances

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
UNUSED = ("apache_beam", "datasets", "rich", "scipy", "sklearn")
SMALL = "--models tiny --dropouts 0.1 --seconds 0.01"
WITHOUT = """
import importlib.util, sys
sys.modules.update(dict.fromkeys({missing!r}))
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: (
    None if name == "clozeworks" else find_spec(name, *rest)
)
from benchmarks import gpu
"""


def run(missing: tuple[str, ...], code: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", WITHOUT.format(missing=missing) + code]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def cases(output: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines() if line.startswith("tiny")]


def test_with_torch_and_transformers_alone_it_measures_the_rows_that_it_carries():
    missing = (*UNUSED, "msgspec", "pyarrow", "tensorboard")
    late = f"{SMALL} --run-minutes 9"
    runs = f"gpu.main({SMALL.split()!r}); gpu.main({late.split()!r})"
    code = f"{runs}; gpu.stop_after(0); gpu.time.sleep(60)"
    done = run(missing, code)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.endswith("\nStopped: --minutes are over.\n")
    assert done.stdout.count("Rows: rows.npz\n") == 2
    assert (
        done.stdout.count("`pretrain` is left out: it needs msgspec, pyarrow, tensorboard.\n") == 2
    )
    lines = cases(done.stdout)
    expected = [
        ["tiny", n, "0.1", trainer]
        for trainer in ("clozeworks", "transformers")
        for n in ("128", "512")
    ]
    assert [line[:4] for line in lines] == 2 * expected
    assert all(float(line[4].replace(",", "")) > 0 for line in lines[:4])
    assert all(line[4:] == ["left", "out:", "no", "time"] for line in lines[4:])


def test_it_measures_given_instances_and_a_run_on_them(tmp_path):
    given = [
        str(write_instances(tmp_path / str(n), rows_per_group=70, max_length=n)) for n in (16, 24)
    ]
    options = [*given, *SMALL.split(), "--run-minutes", "0.01"]
    broken = "gpu.peer_loss = lambda *_: gpu.torch.ones(2) @ gpu.torch.ones(3)\n"
    done = run(
        UNUSED, f"{broken}gpu.main({options!r}); gpu.main({[*options, '--lengths', '128']!r})"
    )
    assert done.returncode == 2 and "no rows of up to 128 tokens" in done.stderr
    assert f"Rows: {', '.join(given)}\n" in done.stdout
    assert [line[1:4] for line in cases(done.stdout)[:2]] == [
        [n, "0.1", "clozeworks"] for n in ("16", "24")
    ]
    assert (
        "tiny, transformers: failed with the error above\n" in done.stdout
        and "RuntimeError" in done.stderr
    )
    assert "`pretrain` of tiny," in done.stdout and "of its time: evaluation" in done.stdout
