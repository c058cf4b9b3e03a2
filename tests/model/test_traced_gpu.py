"""The GPU path, traced on `null_gpu`: a graph for each kind of layer, none later, no waits."""

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

    def run(*arguments: object) -> dict[str, Any]:
        command = [sys.executable, "-m", "tests.fixtures.traced_gpu", *map(str, arguments)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


# Rows of up to 24 and of 512 tokens: the layers of ModernBERT that attend within a window cut long
# padded rows into blocks, which is a graph of its own.
@pytest.mark.parametrize(
    ("architecture", "graphs"), [("bert", [3] * 12), ("modernbert", [5] * 11 + [6])]
)
def test_a_run_compiles_in_its_first_update_and_never_waits_in_one(
    trace, tmp_path, architecture, graphs
):
    found = trace(architecture, tmp_path)
    assert (found["status"], found["num_breaks"]) == ("finished", 0)
    # Two lengths, evaluations and checkpoints lie between.
    assert [update["graphs"] for update in found["updates"]] == graphs
    assert not any(update["waits"] for update in found["updates"])
    assert found["num_replays"] > 0  # nothing waited while it was captured, either


def test_fine_tuning_never_waits_in_an_update_and_prediction_once_a_batch(trace):
    found = trace("task")
    assert not any(update["waits"] for update in found["updates"])
    # A micro-batch is a single copy; all updates but the last of an epoch have two.
    assert {update["copies"] for update in found["updates"][-8:]} == {1, 2}
    *batches, end = found["predicted"]
    # Nothing is compiled.
    assert {call["graphs"] for call in (*found["updates"], *batches)} == {0}
    # It waits for a batch only after the next one has begun.
    before = [call["before"] - batches[0]["before"] for call in (*batches, end)]
    num_batches = len(batches)
    assert num_batches > 2 and before == [0, *range(num_batches - 1), num_batches]
    assert found["num_outputs"] == 120


@pytest.mark.parametrize("failing", ["wait", "memory"])
def test_dropout_follows_the_seed_after_an_evaluation_whose_capture_failed(trace, failing):
    found = trace(failing)
    # As many random numbers in each update, replayed or not: its masks follow its seed.
    assert found["offsets"] == found["offsets"][:1] * 10
    assert found["replays"] == 9  # but the first
    assert found["reserved"] < 1 << 27  # what the failed capture took is given back
