"""The update that both loops share: micro-batches and ranks change nothing, dropout is a function of its seed."""

import threading
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
import pytest
import torch
from clozeworks.model.bert import initialise
from clozeworks.model.config import ModelConfig, PretrainConfig
from clozeworks.model.finetuning import train
from clozeworks.model.finetuning.config import FinetuneConfig
from clozeworks.model.heads import BertForPreTraining
from clozeworks.model.pretraining import pretrain
from clozeworks.model.pretraining.setup import open_directories, set_up
from clozeworks.model.tasks.ner import BertForTokenClassification
from clozeworks.model.tasks.task import IGNORED, Feature, Recipe, TokenRow, make_batch, num_targets
from clozeworks.model.training.optim import make_optimizer
from clozeworks.model.training.ranks import Ranks
from clozeworks.model.training.update import Loss, Update, Updater
from instances_fixture import write_instances
from torch import nn

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


SHARED: dict[int, torch.Tensor] = {}
BARRIER = threading.Barrier(2, timeout=60)


@pytest.fixture(scope="module")
def instances(tmp_path_factory) -> str:
    return str(write_instances(tmp_path_factory.mktemp("instances")))


def pretraining(instances: str, ranks: Ranks, micro_batch_size: int) -> Work:
    config = PretrainConfig(steps=2, batch_size=12, device="cpu", micro_batch_size=micro_batch_size)
    setup = set_up(config, open_directories(config, [instances]), ranks)
    batch = pretrain._make_global_batch(setup, 0)
    model = BertForPreTraining(SHAPE)
    initialise(model, SHAPE, torch.Generator().manual_seed(0))
    return Work(model, batch.batches, lambda micro_batch: batch.loss(model, micro_batch))


def finetuning(_: str, ranks: Ranks, micro_batch_size: int) -> Work:
    config = FinetuneConfig(device="cpu", micro_batch_size=micro_batch_size)
    training = train.Training(tagged(), config, Recipe(FEATURES, 1.0, (1e-3,)), 1e-3, 0, ranks)
    model = BertForTokenClassification(SHAPE, 3)
    initialise(model, SHAPE, torch.Generator().manual_seed(0))
    batches = train._make_batches(training, np.arange(FEATURES))
    return Work(model, batches, lambda micro_batch: train._loss(model, micro_batch))


def tagged() -> list[Feature]:
    """Return features with a class for some of the tokens; every fourth has none at all."""
    rng = np.random.default_rng(1)
    features = []
    for example in range(FEATURES):
        row = rng.integers(5, SHAPE.vocab_size, rng.integers(3, 30)).astype(np.int32)
        known = (rng.random(len(row)) < 0.5) & (example % 4 > 0)
        target = np.where(known, rng.integers(0, 3, len(row)), IGNORED)
        features.append(Feature((TokenRow(row, len(row)),), target, example))
    return features


def one_update(work: Work, ranks: Ranks, **options: Any) -> Update:
    updater = Updater(work.model, make_optimizer(work.model), ranks, use_bf16=False, dropout_seed=(0,))
    updater.update(0, work.batches, work.loss, 1e-3, **options)
    (update,) = updater.drain()
    assert not updater.drain()
    return update


def on_two_ranks(instances: str, make: Callable[[str, Ranks, int], Work]) -> list[tuple[Work, Update]]:
    done: dict[int, tuple[Work, Update]] = {}

    def run(rank: int) -> None:
        ranks = ThreadRanks(rank, 2, CPU)
        work = make(instances, ranks, 3)
        done[rank] = work, one_update(work, ranks, stop_asked=rank == 1, seconds=5.0 + rank)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [done[rank] for rank in range(2)]


@pytest.mark.parametrize("make", [pretraining, finetuning])
def test_neither_micro_batches_nor_ranks_change_an_update(instances, make):
    # Targets are spread unevenly over rows, so a mean of the micro-batches' means would be another loss.
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
    assert sum(part.share for part in work.batches) == pytest.approx(1)
    batch = make_batch(features)
    assert batch.target is not None
    total = nn.functional.cross_entropy(work.model(batch).flatten(0, 1), batch.target.flatten(), reduction="sum")
    mean = total.item() / num_targets(features)
    assert one_update(work, ranks).sums == pytest.approx([mean], abs=1e-6)


class Value(NamedTuple):
    """A micro-batch that is one number."""

    value: torch.Tensor

    def to(self, device: torch.device) -> Self:
        """Copy the batch to `device`."""
        return self


def test_dropout_depends_on_seed_step_rank_and_micro_batch_alone():
    def drawn(seed: int, step: int, rank: int) -> list[float]:
        weight, draws = nn.Linear(1, 1), []

        def loss(batch: Value) -> Loss:
            draws.append(torch.rand(1).item())
            share = weight(batch.value).sum()
            return Loss(share, share.detach().double()[None])

        # A rank alone in its group, so that nothing is sent.
        updater = Updater(weight, make_optimizer(weight), Ranks(rank, 1, CPU), use_bf16=False, dropout_seed=(seed,))
        updater.update(step, [Value(torch.ones(1))] * 2, loss, 0.1)
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
    updater = Updater(weight, make_optimizer(weight), Ranks(0, 1, CPU), use_bf16=False, dropout_seed=(0,))
    updater.update(7, batches, loss, 0.1)
    (update,) = updater.drain()
    assert (update.step, update.is_finite) == (7, False)
