"""The GPU path, traced on a device that computes nothing (see `null_gpu`): a graph for each kind of
layer, none later, no waits.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.fixtures import null_gpu

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(null_gpu.missing() is not None, reason=str(null_gpu.missing())),
]


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> Callable[..., dict[str, Any]]:
    """Run a scenario of `traced_gpu` in a process that has the null GPU."""
    environment = null_gpu.build(tmp_path_factory.mktemp("null-gpu"))

    def run(*arguments: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "tests.fixtures.traced_gpu", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_a_run_compiles_in_its_first_update_and_never_waits_in_one(trace, tmp_path):
    # Rows of up to 24 and of 512 tokens: the layers of ModernBERT that attend within a window cut
    # long padded rows into blocks, which is a graph of its own.
    num_graphs = {
        "dropout+ranks": [3] * 12,
        "modernbert+padded": [5] * 11 + [6],
        "dropout": [3] * 12,
    }
    found = trace("runs", str(tmp_path), *num_graphs)
    for name, case in found.items():
        assert case["status"] == "finished" and case["num_breaks"] == 0
        # Two lengths, evaluations and checkpoints lie between.
        assert case["graphs"] == num_graphs[name]
        assert not any(case["waits"])
    # The first update prepares what is then captured: three micro-batches of one shape, and a step.
    assert not any(found["dropout+ranks"]["replays"])
    assert found["dropout"]["replays"] == [2, *[4] * 10, 1]
    # Evaluations of packed rows, of whose shapes there are few.
    in_evaluations = {
        name: case["all_replays"] - sum(case["replays"]) for name, case in found.items()
    }
    assert in_evaluations == {"dropout+ranks": 0, "modernbert+padded": 0, "dropout": 9}


def test_fine_tuning_never_waits_in_an_update(trace):
    found = trace("task")
    assert not any(found["waits"])
    assert set(found["graphs"][2:]) == {2} and found["num_later_graphs"] == 0
    assert found["replays"][0] == 0 and found["replays"][-1] == 3
    assert found["num_outputs"] == 120
    # In prediction the CPU waits once for each batch, and only after the next one has begun.
    counted = found["predicted"]
    num_batches = len(counted["before"])
    assert num_batches > 2 and counted["waits"] == num_batches
    assert counted["before"] == [0, *range(num_batches - 1)]
    assert counted["replays"] > num_batches / 3  # of eight widths
