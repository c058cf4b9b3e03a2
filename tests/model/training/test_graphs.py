"""Updates as graphs: a recorder that calls what it recorded stands in for a GPU's, so that shapes,
seeds, gradients and fall-backs are those of a GPU, and values those of a CPU.
"""

import weakref
from collections.abc import Callable
from copy import deepcopy
from typing import NamedTuple, Self

import numpy as np
import pytest
import torch
from clozeworks.model.encoders.bert_config import ModelConfig
from clozeworks.model.encoders.heads import IGNORED
from clozeworks.model.finetuning.model import infer
from clozeworks.model.finetuning.run import micro_batches
from clozeworks.model.tasks.batches import Feature, filled
from clozeworks.model.tasks.catalogue import GLUE
from clozeworks.model.tokenizer import TokenRow
from clozeworks.model.training import graphs as graphs_module
from clozeworks.model.training.graphs import Graphs, Inference, Recorder
from clozeworks.model.training.optim import make_optimizer
from clozeworks.model.training.ranks import Ranks
from clozeworks.model.training.update import Loss, Update, Updater
from torch import Tensor, nn

CPU = torch.device("cpu")
NUM_STEPS = 12


class Calling(Recorder):
    """Records functions, and calls them again; the one with the number `failing` fails midway."""

    def __init__(self, failing: int = 0, spoil: Callable[[], None] = lambda: None) -> None:
        self.num_prepared = 0
        self.num_captured = 0
        self.num_renewed = 0
        self.failing = failing
        self.spoil = spoil

    def prepare(self, function: Callable[[], Tensor]) -> Tensor:
        self.num_prepared += 1
        return function()

    def capture(self, function: Callable[[], None]) -> Callable[[], None]:
        self.num_captured += 1
        if self.num_captured == self.failing:
            self.spoil()
            raise RuntimeError("operation not permitted when stream is capturing\nmore")
        return function

    def renew(self) -> None:
        self.num_renewed += 1


class Rows(NamedTuple):
    """A micro-batch: numbers, and how many the global batch has."""

    values_BD: Tensor
    total: Tensor
    power: int = 1

    def to(self, device: torch.device) -> Self:
        return self._replace(values_BD=self.values_BD.to(device), total=self.total.clone())


class Model(nn.Module):
    """Two layers with dropout between, and one that nothing uses."""

    def __init__(self, dropout: float = 0.3) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Linear(4, 8)
        self.dropout = nn.Dropout(dropout)
        self.second = nn.Linear(8, 2)
        self.unused = nn.Linear(4, 4)

    def forward(self, rows: Rows) -> Loss:
        hidden = self.dropout(self.first(rows.values_BD).tanh())
        squares = self.second(hidden).square().sum()
        sums = torch.stack([squares.detach().double(), torch.tensor(float(len(rows.values_BD)))])
        return Loss(squares / rows.total, sums)


def batches_of(step: int, several: bool) -> list[Rows]:
    """Return one to three micro-batches, of two sizes."""
    generator = torch.Generator().manual_seed(step)
    sizes = [3, 5, 3] if several else [(3, 5)[step % 2]]
    count = torch.tensor(float(sum(sizes) + step % 3))
    return [Rows(torch.randn(size, 4, generator=generator), count) for size in sizes]


def make_updater(graphs: Graphs | None, *, corrects: bool = True) -> Updater:
    model = Model()
    optimizer = make_optimizer(model, bias_correction=corrects, capturable=graphs is not None)
    return Updater(model, optimizer, Ranks(0, 1, CPU), model, dropout_seed=(3,), graphs=graphs)


# Rates are exact in fp32, as which a graph reads them.
def train(updater: Updater, steps: range, kinds: str) -> list[Update]:
    for step in steps:
        several = kinds[step % len(kinds)] == "m"
        updater.update(step, batches_of(step, several), (step + 1) / 64, seconds=float(step))
    return updater.drain()


def assert_equal(one: Updater, other: Updater) -> None:
    for name, weight in one.model.state_dict().items():
        assert torch.equal(weight, other.model.state_dict()[name]), name


# One micro-batch, several, and both by turns; "o" is one and "m" several.
@pytest.mark.parametrize("kinds", ["o", "m", "om", "oom"])
@pytest.mark.parametrize("corrects", [False, True])
def test_replayed_updates_are_those_of_today(kinds: str, corrects: bool):
    plain = make_updater(None, corrects=corrects)
    recorder = Calling()
    captured = make_updater(Graphs(recorder, CPU), corrects=corrects)
    expected = train(plain, range(NUM_STEPS), kinds)
    found = train(captured, range(NUM_STEPS), kinds)
    assert found == expected
    assert_equal(captured, plain)
    assert captured.graphs is not None and captured.graphs.num_replays > NUM_STEPS // 2
    # What each shape computes once before is an update, too: none was made up.
    assert recorder.num_prepared + captured.graphs.num_replays == captured.graphs.num_runs
    # What has no gradient is left alone, by weight decay, too.
    assert torch.equal(captured.model.get_parameter("unused.weight"), Model().unused.weight)


@pytest.mark.parametrize("kinds", ["o", "m"])
def test_a_resumed_run_is_the_undisturbed_one_and_checkpoints_are_alike(kinds: str):
    whole = make_updater(Graphs(Calling(), CPU))
    train(whole, range(NUM_STEPS), kinds)
    first = make_updater(Graphs(Calling(), CPU))
    train(first, range(5), kinds)
    plain = make_updater(None)
    train(plain, range(5), kinds)
    state = first.state_dict()
    assert state["param_groups"] == plain.state_dict()["param_groups"]
    for resumed in (make_updater(Graphs(Calling(), CPU)), first):  # first's graphs are stale
        resumed.model.load_state_dict(plain.model.state_dict())
        resumed.load_state_dict(deepcopy(plain.state_dict()))
        train(resumed, range(5, NUM_STEPS), kinds)
        assert_equal(resumed, whole)


@pytest.mark.parametrize(("kinds", "failing"), [("o", 1), ("o", 2), ("m", 1), ("m", 2), ("m", 3)])
def test_an_error_in_capturing_costs_a_line_and_no_bit(kinds: str, failing: int, capsys):
    plain = make_updater(None)
    expected = train(plain, range(NUM_STEPS), kinds)
    recorder = Calling(failing)
    captured = make_updater(Graphs(recorder, CPU))

    def spoil() -> None:  # as a backward pass that was recorded, and not computed
        for parameter in captured.model.parameters():
            parameter.grad = torch.full_like(parameter, torch.nan)

    recorder.spoil = spoil
    found = train(captured, range(NUM_STEPS), kinds)
    assert found == expected
    assert_equal(captured, plain)
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        "Batches are no longer captured as CUDA graphs (operation not permitted when stream is "
        "capturing): they take longer."
    )
    assert captured.graphs is not None and len(captured.graphs) == 0


def test_without_memory_for_graphs_and_updates_the_graphs_go(capsys):
    plain = make_updater(None)
    captured = make_updater(Graphs(Calling(), CPU))
    full = False

    def scarce(rows: Rows) -> Loss:
        assert captured.graphs is not None
        loss = captured.model(rows)
        if full and len(captured.graphs):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried")
        return loss

    captured._loss = scarce
    for updater in (plain, captured):
        train(updater, range(6), "m")
        full = True
        updater.update(6, [*batches_of(6, True), Rows(torch.ones(7, 4), torch.tensor(7.0))], 0.125)
        full = False
        train(updater, range(7, NUM_STEPS), "m")
    assert_equal(captured, plain)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("CUDA graphs are freed, and 6 kept at most (CUDA out of memory.")
    assert captured.graphs is not None and len(captured.graphs)  # one shortage is not the end


def test_what_fails_beside_frees_all_graphs_since_their_generator_and_pool_are_left():
    recorder = Calling(failing=3)
    updater = make_updater(Graphs(recorder, CPU))
    train(updater, range(6), "o")
    assert updater.graphs is not None and len(updater.graphs) == 2
    inference = updater.inference(torch.float32)
    for batch in batches_of(0, several=False) * 2:
        inference.run(lambda rows: rows.values_BD.sum()[None], batch)
    assert recorder.num_captured == 3 and recorder.num_renewed == 1
    assert len(updater.graphs) == 0 and updater.graphs.works
    train(updater, range(6, NUM_STEPS), "o")
    assert len(updater.graphs) == 2


@pytest.mark.parametrize("failing", [1, 2])  # while it is launched, and while it is captured
@pytest.mark.parametrize("trains", [False, True])
def test_nothing_of_a_failed_attempt_is_in_memory_when_it_is_repeated(failing: int, trains: bool):
    recorder = Calling()
    recorder.capture = lambda function: function() or (lambda: None)  # pyright: ignore
    updater = make_updater(Graphs(recorder, CPU))
    kept: list[weakref.ref[Tensor]] = []

    def loss(rows: Rows) -> Loss:
        assert len(kept) < failing or kept[failing - 1]() is None
        hidden = updater.model.get_submodule("first")(rows.values_BD)
        kept.append(weakref.ref(hidden))
        if len(kept) == failing:
            raise torch.OutOfMemoryError
        return Loss(hidden.sum(), hidden.detach().double().sum()[None])

    updater._loss = loss
    inference = Inference(CPU, torch.float32, updater.graphs)
    for batch in batches_of(0, several=False) * 2:
        if trains:
            updater.update(0, [batch], 0.125)
        else:
            inference.run(lambda rows: loss(rows).sums_S, batch)
    assert len(kept) == 3


def test_few_graphs_are_kept_those_in_use():
    recorder = Calling()
    graphs = Graphs(recorder, CPU, most_graphs=2, unused_for=6)

    def run(size: int) -> None:
        result = graphs.run("sum", lambda rows: rows.values_BD.sum()[None], Rows(
            torch.ones(size, 1), torch.tensor(1.0)))  # fmt: skip
        assert result.tolist() == [size]

    for size in (1, 1, 2, 2, 3, 3, 3, 1, 2):
        run(size)
    assert recorder.num_captured == 2 and len(graphs) == 2  # all are in use
    for size in (1, 1, 1, 1, 1, 1, 3, 1):
        run(size)
    assert recorder.num_captured == 3 and len(graphs) == 2  # 2 was not
    assert graphs.figures() == "2 kept, 70.6% replayed"


def test_micro_batches_with_other_numbers_of_targets_share_a_graph():
    rng = np.random.default_rng(0)
    graphs = Graphs(Calling(), CPU)
    for _ in range(4):
        targets = np.where(rng.random((6, 16)) < 0.5, 1, IGNORED)
        features = [Feature(TokenRow(np.arange(16), 16), target, 0) for target in targets]
        for batch in micro_batches(features, Ranks(0, 1, CPU), 3, 4096, widths=(16,)):
            assert batch.share is not None
            graphs.run("share", lambda batch: batch.share[None], batch)
    assert graphs.figures() == "1 kept, 87.5% replayed"


def test_rows_are_filled_to_few_widths_whatever_number_of_positions_a_model_has():
    widths = graphs_module.widths_of(Graphs(Calling(), CPU), 510)
    assert [filled(length, widths) for length in (1, 16, 17, 496, 497, 510)] == [
        16, 16, 32, 496, 510, 510
    ]  # fmt: skip
    assert filled(17, graphs_module.widths_of(None, 510)) == 17


def test_shapes_that_come_once_are_forgotten():
    graphs = Graphs(Calling(), CPU, most_seen=5)
    for size in (*range(1, 21), 20, 20):
        graphs.run("total", lambda rows: rows.total[None], Rows(torch.ones(size), torch.ones(())))
    assert len(graphs._seen) <= 5 and graphs.num_replays == 2


def test_what_is_no_tensor_is_part_of_the_shape():
    graphs = Graphs(Calling(), CPU)
    for power in (1, 2, 1, 2, 1, 2):
        rows = Rows(torch.full((2, 1), 3.0), torch.tensor(1.0), power)
        result = graphs.run("sum", lambda rows: (rows.values_BD**rows.power).sum()[None], rows)
        assert result.tolist() == [2 * 3**power]
    assert len(graphs) == 2


def test_a_second_training_uses_the_graphs_of_the_first():
    shared = make_updater(Graphs(Calling(), CPU))
    train(shared, range(6), "o")
    for corrects in (True, False):
        alone = make_updater(None, corrects=corrects)
        alone._dropout_seed = (8,)
        shared.start_over(Model(), (8,), corrects=corrects)
        assert shared.graphs is not None
        before = shared.graphs.num_runs - shared.graphs.num_replays
        assert train(shared, range(6), "o") == train(alone, range(6), "o")
        assert shared.graphs.num_runs - shared.graphs.num_replays == before  # none was prepared
        for name in ("first.weight", "second.bias"):
            one, other = shared.model.get_parameter(name), alone.model.get_parameter(name)
            assert torch.equal(one, other)


@pytest.mark.parametrize("failing", [0, 1])
def test_outputs_by_graphs_are_those_of_today(failing: int, capsys):
    # The encoder has few positions: rows are not filled beyond them.
    config = ModelConfig.named("tiny", vocab_size=50, max_position_embeddings=40)
    model = GLUE["sst2"].model(config).eval()
    lengths = np.random.default_rng(0).integers(3, 41, 90).tolist()
    features = [Feature(TokenRow(np.arange(length), length), None, 0) for length in lengths]
    graphs = Graphs(Calling(failing), CPU)
    for _ in range(2):
        expected = infer(model, features, graphs_module.make_inference(CPU), 100)
        found = infer(model, features, Inference(CPU, torch.float32, graphs), 100)
        np.testing.assert_allclose(found, expected, atol=1e-6)
        model.load_state_dict(GLUE["sst2"].model(config).state_dict())  # as between two runs
    # Launched are the first batch of each of five widths, and the last one of all.
    num_launched = graphs.num_runs - graphs.num_replays
    assert num_launched == graphs.num_runs if failing else num_launched <= 6 < graphs.num_runs / 5
    assert len(capsys.readouterr().err.splitlines()) == failing


def test_only_a_gpu_of_nvidia_alone_captures():
    for device, dtype, num_ranks in (
        ("cpu", torch.bfloat16, 1),
        ("mps", torch.float32, 1),
        ("cuda", torch.bfloat16, 2),
        ("cuda", torch.float16, 1),
    ):
        assert graphs_module.make_graphs(torch.device(device), dtype, num_ranks) is None
