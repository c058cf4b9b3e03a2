"""The update of both loops: micro-batches and ranks change nothing, dropout follows its seed."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import pytest
import torch
from clozeworks.model.config import PretrainConfig
from clozeworks.model.encoders.bert import BertForPreTraining
from clozeworks.model.encoders.bert_config import ModelConfig
from clozeworks.model.encoders.encoder import initialise
from clozeworks.model.encoders.heads import IGNORED
from clozeworks.model.finetuning.run import loss_of, micro_batches
from clozeworks.model.pretraining.plan import make_plan
from clozeworks.model.pretraining.setup import loss_of as pretrain_loss
from clozeworks.model.pretraining.setup import set_up
from clozeworks.model.tasks.batches import Feature, make_batch, num_targets
from clozeworks.model.tasks.ner import TokenClassifier
from clozeworks.model.tokenizer import TokenRow
from clozeworks.model.training import ranks as module_of_ranks
from clozeworks.model.training.optim import make_optimizer
from clozeworks.model.training.ranks import GradientSum, Ranks
from clozeworks.model.training.update import Loss, Update, Updater, clip_gradients
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tests.fixtures.instances_fixture import write_instances

CPU = torch.device("cpu")
SHAPE = ModelConfig.named("tiny", vocab_size=60, hidden_size=32, hidden_dropout_prob=0.0,
                          attention_probs_dropout_prob=0.0)  # fmt: skip
FEATURES = 9


class Work(NamedTuple):
    """A model and its loss on a rank's part of a global batch."""

    model: nn.Module
    batches: list[Any]
    loss: Callable[[Any], Loss]


class ThreadRanks(Ranks):
    """Ranks that are threads of one process."""

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Add up the tensors that all threads bring."""
        SHARED[self.rank] = values.clone()
        BARRIER.wait()
        values.copy_(SHARED[0] + SHARED[1])
        BARRIER.wait()
        return values

    def start_sum(self, values: torch.Tensor) -> Callable[[], object]:
        """Add them up at once: threads start sums in the same order, or meet other tensors."""
        STARTED.append((self.rank, values.numel()))
        self.sum(values)
        return lambda: None


STARTED: list[tuple[int, int]] = []
SHARED: dict[int, torch.Tensor] = {}
BARRIER = threading.Barrier(2, timeout=60)


@pytest.fixture(scope="module")
def instances(tmp_path_factory) -> str:
    return str(write_instances(tmp_path_factory.mktemp("instances")))


def pretraining(instances: str, ranks: Ranks, micro_batch_size: int) -> Work:
    config = PretrainConfig(
        steps=2, batch_size=12, objective="mlm", device="cpu", micro_batch_size=micro_batch_size
    )
    batch = set_up(make_plan(config, [instances]), ranks).global_batch(0)
    model = BertForPreTraining(SHAPE)
    initialise(model, SHAPE, torch.Generator().manual_seed(0))
    return Work(model, batch.batches, partial(pretrain_loss, model))


def finetuning(_: str, ranks: Ranks, micro_batch_size: int) -> Work:
    model = TokenClassifier(SHAPE, 3)
    initialise(model, SHAPE, torch.Generator().manual_seed(0))
    batches = micro_batches(list(tagged()), ranks, micro_batch_size, 4096)
    return Work(model, batches, partial(loss_of, model))


def tagged() -> list[Feature]:
    """Return features with a class for some of the tokens; every fourth has none at all."""
    rng = np.random.default_rng(1)
    features = []
    for example in range(FEATURES):
        row = rng.integers(5, SHAPE.vocab_size, rng.integers(3, 30)).astype(np.int32)
        known = (rng.random(len(row)) < 0.5) & (example % 4 > 0)
        target = np.where(known, rng.integers(0, 3, len(row)), IGNORED)
        features.append(Feature(TokenRow(row, len(row)), target, example))
    return features


def one_update(work: Work, ranks: Ranks, **options: Any) -> Update:
    updater = Updater(work.model, make_optimizer(work.model), ranks, work.loss, dropout_seed=(0,))
    updater.update(0, work.batches, 1e-3, **options)
    (update,) = updater.drain()
    assert not updater.drain()
    return update


def on_two_ranks(
    instances: str, make: Callable[[str, Ranks, int], Work]
) -> list[tuple[Work, Update]]:
    done: dict[int, tuple[Work, Update]] = {}

    def run(rank: int) -> None:
        ranks = ThreadRanks(rank, 2, CPU)
        work = make(instances, ranks, 3)
        done[rank] = work, one_update(work, ranks, stop_asked=rank == 1, seconds=5.0 + rank)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(run, range(2)))
    return [done[rank] for rank in range(2)]


@pytest.mark.parametrize("make", [pretraining, finetuning])
def test_neither_micro_batches_nor_ranks_change_an_update(instances, make):
    # Targets are spread unevenly over rows, so a mean of the micro-batches' means would be another
    # loss.
    alone = Ranks(0, 1, CPU)
    whole = make(instances, alone, 100)
    expected = one_update(whole, alone)
    assert len(whole.batches) == 1 and expected.is_finite
    assert (expected.stop_asked, expected.seconds) == (False, 0.0)
    parts = make(instances, alone, 3)
    assert len(parts.batches) > 2
    two = on_two_ranks(instances, make)
    for work, update in [(parts, one_update(parts, alone)), *two]:
        assert update.sums == pytest.approx(expected.sums, abs=1e-4)
        assert update.gradient_norm == pytest.approx(expected.gradient_norm, abs=1e-5)
        for weight, other in zip(whole.model.parameters(), work.model.parameters(), strict=True):
            torch.testing.assert_close(weight, other, rtol=0, atol=1e-5)
    # All ranks learn that one was asked to stop, and go by the first one's clock.
    assert [(update.stop_asked, update.seconds) for _, update in two] == [(True, 5.0)] * 2


def test_the_loss_is_the_mean_over_all_targets():
    ranks = Ranks(0, 1, CPU)
    work, features = finetuning("", ranks, 3), tagged()
    assert [len(part.input_ids_BL) for part in work.batches] == [3, 3, 3]
    shares = [part.share.item() for part in work.batches]
    assert sum(shares) == pytest.approx(1)
    batch = make_batch(features)
    assert batch.target is not None
    total = nn.functional.cross_entropy(
        work.model(batch).flatten(0, 1), batch.target.flatten(), reduction="sum"
    )
    mean = total.item() / num_targets(features)
    assert one_update(work, ranks).sums == pytest.approx([mean], abs=1e-6)


class Value(NamedTuple):
    """A micro-batch that is one number."""

    value: torch.Tensor

    def to(self, device: torch.device) -> Self:
        return self


def test_dropout_depends_on_seed_step_rank_and_micro_batch_alone():
    def drawn(seed: int, step: int, rank: int) -> list[float]:
        weight, draws = nn.Linear(1, 1), []

        def loss(batch: Value) -> Loss:
            draws.append(torch.rand(1).item())
            share = weight(batch.value).sum()
            return Loss(share, share.detach().double()[None])

        # A rank alone in its group, so that nothing is sent.
        ranks = Ranks(rank, 1, CPU)
        updater = Updater(weight, make_optimizer(weight), ranks, loss, dropout_seed=(seed,))
        updater.update(step, [Value(torch.ones(1))] * 2, 0.1)
        return draws

    first = drawn(0, 0, 0)
    assert drawn(0, 0, 0) == first
    others = [value for key in ((1, 0, 0), (0, 1, 0), (0, 0, 1)) for value in drawn(*key)]
    assert len({*first, *others}) == 8


def test_an_update_without_a_finite_loss_says_so():
    weight = nn.Linear(1, 1)

    def loss(batch: Value) -> Loss:
        share = weight(batch.value).sum()
        return Loss(share, share.detach().double()[None])

    batches = [Value(torch.tensor([value])) for value in (1.0, float("inf"), 2.0)]
    updater = Updater(weight, make_optimizer(weight), Ranks(0, 1, CPU), loss, dropout_seed=(0,))
    updater.update(7, batches, 0.1)
    (update,) = updater.drain()
    assert (update.step, update.is_finite) == (7, False)


class Waits(TorchDispatchMode):
    """Collects the operators that read a tensor's values on the host, and so wait for a GPU."""

    INDEXING = ("index", "index_put", "index_put_", "_index_put_impl_")
    WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "unique", "is_nonzero")

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        indices = args[1] if name in self.INDEXING else ()
        by_mask = any(getattr(index, "dtype", None) == torch.bool for index in indices)
        if by_mask or name in self.WAITING:
            self.found.append(name)
        return func(*args, **kwargs or {})


@pytest.mark.parametrize("make", [pretraining, finetuning])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_an_update_never_waits_for_the_device(instances, make, dtype):
    ranks = Ranks(0, 1, CPU)
    work = make(instances, ranks, 3)
    optimizer = make_optimizer(work.model)
    updater = Updater(work.model, optimizer, ranks, work.loss, dtype=dtype, dropout_seed=(0,))
    with Waits() as waits:
        for step in range(2):
            updater.update(step, work.batches, 1e-3)
        assert waits.found == []
        torch.zeros(1).item()
    assert waits.found  # it does see a wait
    assert all(update.is_finite for update in updater.drain())


def linear_updater(has_sums: bool = True) -> tuple[nn.Linear, Updater]:
    torch.manual_seed(0)
    layer = nn.Linear(4, 1)

    def loss(batch: Value) -> Loss:
        share = layer(batch.value).float().square().mean()
        return Loss(share, share.detach().double()[None] if has_sums else torch.zeros(1).double())

    half: Any = {"dtype": torch.float16, "dropout_seed": (0,)}
    return layer, Updater(layer, make_optimizer(layer), Ranks(0, 1, CPU), loss, **half)


def test_in_fp16_an_update_that_overflows_is_skipped_and_the_scale_halved():
    layer, updater = linear_updater()
    batches = [Value(torch.tensor([[1.0, 2.0, 3.0, 4.0]]))]
    before = layer.weight.clone()
    # 2**16 times its gradient is infinite in fp16.
    updater.update(0, [Value(torch.full((1, 4), 300.0))], 0.1)
    assert torch.equal(layer.weight, before)
    (skipped,) = updater.drain()
    assert skipped.is_finite and not np.isfinite(skipped.gradient_norm)
    assert skipped.loss_scale == 2**15
    for step in range(1, 9):
        updater.update(step, batches, 0.1)
    norms = [update.gradient_norm for update in updater.drain()]
    assert not torch.equal(layer.weight, before) and np.isfinite(norms[-1])
    # A scale that was resumed decides alike which updates are skipped.
    other, resumed = linear_updater()
    resumed.load_state_dict(deepcopy(updater.state_dict()))
    other.load_state_dict(layer.state_dict())
    for one in (updater, resumed):
        one.update(9, batches, 0.1)
    assert updater.drain() == resumed.drain() and torch.equal(layer.weight, other.weight)


def test_a_gradient_that_no_scale_makes_finite_is_reported():
    _, updater = linear_updater(has_sums=False)
    for step in range(18):
        updater.update(step, [Value(torch.full((1, 4), torch.nan))], 0.1)
    assert not any(update.is_finite for update in updater.drain())


def test_gradients_are_sent_while_the_backward_pass_runs(instances, monkeypatch):
    monkeypatch.setattr(module_of_ranks, "BUCKET_BYTES", 20_000)
    sent_early: list[int] = []
    finish: Any = GradientSum.finish
    monkeypatch.setattr(
        GradientSum, "finish", lambda self: sent_early.append(len(self._sent)) or finish(self)
    )
    alone = Ranks(0, 1, CPU)
    whole = pretraining(instances, alone, 100)
    updates(whole, alone, 3)
    done: dict[int, Work] = {}
    STARTED.clear()

    def run(rank: int) -> None:
        ranks = ThreadRanks(rank, 2, CPU)
        done[rank] = pretraining(instances, ranks, 3)
        updates(done[rank], ranks, 3)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(run, range(2)))
    for work in done.values():
        for weight, other in zip(whole.model.parameters(), work.model.parameters(), strict=True):
            torch.testing.assert_close(weight, other, rtol=0, atol=1e-5)
    # In the first update it is not known yet which gradients there are; later all are sent before
    # the pass ends.
    num_buckets = max(sent_early)
    assert num_buckets > 3 and sorted(sent_early) == [0] * 3 + [0] * 2 + [num_buckets] * 4
    sizes = [[size for rank, size in STARTED if rank == own] for own in range(2)]
    assert sizes[0] == sizes[1] and len(sizes[0]) == 3 * num_buckets


def updates(work: Work, ranks: Ranks, num_steps: int) -> None:
    updater = Updater(work.model, make_optimizer(work.model), ranks, work.loss, dropout_seed=(0,))
    for step in range(num_steps):
        updater.update(step, work.batches, 1e-3)


def test_the_norm_of_a_wide_gradient_is_exact():
    wide = nn.Linear(768, 4 * 768, bias=False)
    wide.weight.grad = torch.full_like(wide.weight, 0.1)
    exact = float(torch.tensor(0.1)) * (4 * 768 * 768) ** 0.5
    assert clip_gradients(wide).item() == pytest.approx(exact, rel=1e-6)
    assert wide.weight.grad.double().norm().item() == pytest.approx(1, rel=1e-6)
