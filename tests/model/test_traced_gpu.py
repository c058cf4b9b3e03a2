"""The GPU path, traced on a device that computes nothing (see `null_gpu`): a graph for each kind of
layer, none later, no waits, few bytes.
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


def without_weights(graph: dict[str, Any], num_tokens: int) -> list[tuple[str, list[int]]]:
    """Return the formats and shapes of a graph's results that have a row for each token."""
    return [result for result in graph["results"] if result[1][:1] == [num_tokens]]


def half_formats(results: list[tuple[str, list[int]]]) -> set[str]:
    """Return the formats of all but single numbers for each token, such as a variance."""
    return {number_format for number_format, shape in results if shape[1:] != [1]}


@pytest.mark.parametrize(
    "kind, dropout, num_graphs, most_bytes",
    [
        # Bytes that generated kernels read and write for each token of a layer, forward and
        # backward, divided by the hidden size; see benchmarks/results/2026-11-23-gpu-traced.md.
        ("bert", "0.1", 3, (36, 69)),
        ("modernbert", "0.0", 5, (53, 87)),
    ],
)
def test_a_kind_of_layer_has_one_graph_for_all_batches(
    kind, dropout, num_graphs, most_bytes, trace
):
    found = trace("updates", kind, dropout)
    # Embeddings, layers, the head with its loss; ModernBERT's first layer has one LayerNorm less,
    # and others attend within a window.
    assert found["num_graphs"] == num_graphs
    assert (found["num_later_graphs"], found["num_breaks"], found["num_waits"]) == (0, 0, 0)
    assert found["num_drained"] == 6

    graphs = found["graphs"]
    assert len(graphs) == 2 * num_graphs
    assert not any("rng_state" in name for graph in graphs for name in graph["inputs"])
    assert not any("fp64" in kernel for kernel in found["kernels"])
    size = found["num_tokens"] * found["hidden_size"]
    # The embeddings, then the layers; last the head.
    for forward, backward in list(zip(graphs[::2], graphs[1::2], strict=True))[1:-1]:
        assert not forward["is_backward"] and backward["is_backward"]
        assert forward["elementwise_bytes"] <= most_bytes[0] * size
        assert backward["elementwise_bytes"] <= most_bytes[1] * size
        saved = without_weights(forward, found["num_tokens"])
        if kind == "bert":
            assert half_formats(saved) == {"torch.bfloat16", "torch.bool"}


def test_a_run_compiles_in_its_first_update_and_never_waits_in_one(trace, tmp_path):
    # Rows of up to 24 and of 512 tokens: the layers of ModernBERT that attend within a window cut
    # long padded rows into blocks, which is a graph of its own.
    num_graphs = {
        "dropout+ranks+recompute": [3] * 12,
        "padded": [3] * 12,
        "modernbert+dropout+ranks+recompute": [4] * 12,
        "modernbert+padded": [5] * 11 + [6],
    }
    found = trace("runs", str(tmp_path), *num_graphs)
    for name, case in found.items():
        assert case["status"] == "finished" and case["num_breaks"] == 0
        # Two lengths, evaluations and checkpoints lie between.
        assert case["graphs"] == num_graphs[name]
        assert not any(case["waits"])
        waits_for_results_alone(case["features"])


@pytest.mark.parametrize(
    "kind, names, num_graphs",
    [
        ("bert", ["classes", "weighted classes", "answers", "entities"], 2),
        # One for rows within a window, and one for longer ones.
        ("modernbert", ["answers"], 4),
    ],
)
def test_fine_tuning_never_waits_in_an_update(kind, names, num_graphs, trace):
    found = trace("tasks", kind, *names)
    assert list(found) == names
    for task in found.values():
        assert not any(task["waits"])
        assert set(task["graphs"][2:]) == {num_graphs} and task["num_later_graphs"] == 0
        assert task["num_outputs"] == 120
        waits_for_results_alone(task["predicted"])


def waits_for_results_alone(counted: dict[str, Any]) -> None:
    """Assert that the CPU waited once for each batch, and only after the next one had begun."""
    num_batches = len(counted["before"])
    assert num_batches > 2 and counted["waits"] == num_batches
    assert counted["before"] == [0, *range(num_batches - 1)]
