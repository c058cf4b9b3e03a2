"""The benchmarks for one GPU run small on the CPU, and on a GPU that computes nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from clozeworks.model.encoders.catalogue import make_pretrain_model
from clozeworks.model.pretraining.batches import make_batches

from benchmarks import card, gpu
from benchmarks.rows import carried_rows
from tests.fixtures import null_gpu
from tests.fixtures.instances_fixture import write_instances

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
UNUSED = ("apache_beam", "chardet", "datasets")
WITHOUT = f"""
import importlib.util, sys
sys.modules.update(dict.fromkeys({UNUSED!r}))
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: (
    None if name in {("clozeworks", *UNUSED)!r} else find_spec(name, *rest)
)
"""
ON_NULL_GPU = """
from tests.fixtures import null_gpu
null_gpu.install()
from clozeworks.model.pretraining import batches, work
batches.check_packing = lambda *_: None
work.metrics = lambda totals: {"loss": 1.0, "mlm_loss": 1.0, "mlm_accuracy": 0.5}
"""


def run(program: str, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """Run a program; however busy the machine is, there is time left."""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "FAILED" not in done.stdout
    return done


def test_with_few_packages_trainings_run_on_a_cpu(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(WITHOUT)  # of all processes
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(tmp_path)}
    write_instances(tmp_path / "rows", max_length=128, rows_per_group=40)
    # What comes before is `benchmarks.gpu`, as below.
    options = [str(tmp_path / "rows"), f"--output={tmp_path}", "--small", "--minutes=1000000"]
    run(f"from benchmarks import card; card.main({[*options, '--from=bert']})", environment)
    steps = [line.split(",")[0] for line in (tmp_path / "steps.txt").read_text().splitlines()]
    names = ["bert", "record", "blimp"]
    assert steps == [f"{name}: done" for name in names]
    printed = {name: (tmp_path / f"{name}.txt").read_text() for name in names}
    assert "NOT THAT OF docs/records.md" in printed["record"]
    assert printed["record"].count("mlm loss  ") == 1
    assert "| 0 |" in printed["blimp"]


def test_a_step_that_takes_too_long_is_ended_with_its_processes(tmp_path):
    waiting = "import subprocess; subprocess.run(['sleep', '1000000'])"
    step = card.Step("waits", 1, [[sys.executable, "-c", waiting]])
    assert card.run_step(step, tmp_path, 0) == "ENDED, its time is over"
    step = card.Step("fails", 1, [["sh", "-c", "echo found; exit 3"], ["false"]])
    assert card.run_step(step, tmp_path, 1e6) == "FAILED with 3"
    assert "found\n" in (tmp_path / "fails.txt").read_text()


def test_the_flattened_peer_has_our_loss_with_our_weights():
    rows = carried_rows()
    case = gpu.Case("bert", "tiny", 4, 0.0)
    _, chosen = gpu.batches_of(case, rows, 1)
    peer, (update,) = gpu.flat_peer(case, rows, chosen)
    ours = make_pretrain_model(case.config(rows.vocab_size))
    ours.load_state_dict(peer.state_dict(), strict=False)
    (batch,) = make_batches(chosen, 4, "mlm")
    with torch.no_grad():
        expected = ours.sums(batch).mlm_loss / chosen.num_masked.sum()
        found = peer(**update).loss
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0.0)


@pytest.mark.skipif(null_gpu.missing() is not None, reason=str(null_gpu.missing()))
def test_all_of_it_runs_on_a_gpu(tmp_path):
    options = ["--seconds=0.01", "--minutes=100000", "--small", "--no-compile"]
    program = f"{WITHOUT}{ON_NULL_GPU}\nfrom benchmarks import gpu; gpu.main({options})"
    done = run(program, null_gpu.build(tmp_path))
    for line in (
        "NVIDIA H100 80GB HBM3\n",
        "losses differ by at most 0.0e+00; graphs: 1 kept, 98",  # weights cannot be compared there
        "graphs: 0 kept, 0.0% replayed\n",
        "bert tiny, 4 rows, dropout 0.1, captured: ",
        "bert tiny, 4 rows, dropout 0.1, transformers, flattened: ",
        "outputs and evaluations: sums differ by at most 0.0e+00",
    ):
        assert line in done.stdout
    assert "no longer captured as CUDA graphs" in done.stderr
    assert "Updates as CUDA graphs: " in done.stderr


@pytest.mark.skipif(null_gpu.missing() is not None, reason=str(null_gpu.missing()))
def test_checkouts_take_turns_on_a_gpu_that_computes_nothing():
    options = [str(ROOT), f"{ROOT}/.", "--rounds=1", "--updates=8"]
    printed = run(f"from benchmarks import null; null.main({options})", dict(os.environ)).stdout
    assert printed.count("{'fine-tuning': ") == 2
    assert f" of the first, {ROOT}/.\n" in printed
