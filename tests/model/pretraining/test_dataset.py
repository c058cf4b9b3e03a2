"""The data set for other training loops: order, exact resume, losses of `transformers`."""

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from clozeworks.model.encoders.bert import BertForPreTraining
from clozeworks.model.encoders.encoder import initialise
from clozeworks.model.pretraining.data import open_instances, read_split
from clozeworks.model.pretraining.dataset import InstanceDataset, collate
from clozeworks.model.pretraining.evaluate import evaluation_batches, metrics, sum_losses
from clozeworks.model.pretraining.sequence import RowSequence
from clozeworks.model.training.graphs import make_inference
from clozeworks.pipeline.errors import UserError
from torch import Tensor
from torch.utils.data import DataLoader, get_worker_info

from tests.fixtures.instances_fixture import as_lists
from tests.fixtures.parity_fixture import SMALL_BERT


def loader(dataset: InstanceDataset, num_workers: int = 0) -> DataLoader:
    return DataLoader(
        dataset, batch_size=dataset.batch_size, collate_fn=collate, num_workers=num_workers
    )


def batches(
    dataset: InstanceDataset, num_batches: int | None = None, num_workers: int = 0
) -> list[dict[str, Tensor]]:
    return list(islice(loader(dataset, num_workers), num_batches))


def same(ours: list[dict[str, Tensor]], theirs: list[dict[str, Tensor]]) -> bool:
    return [{name: values.tolist() for name, values in batch.items()} for batch in ours] == [
        {name: values.tolist() for name, values in batch.items()} for batch in theirs
    ]


def plain(row: Any) -> tuple:
    """Return a row as `as_lists` does."""
    predicted = row["labels"] != -100
    ids = torch.where(predicted, row["labels"], row["input_ids"]).tolist()
    starts = row["token_type_ids"].nonzero()[0].item()
    positions = predicted.nonzero().squeeze(1).tolist()
    return (*ids, -1, *positions, -1, row["next_sentence_label"], starts)


def test_rows_come_in_the_order_of_pretrain_epoch_after_epoch(instances):
    dataset = InstanceDataset(instances, batch_size=8, seed=3)
    num_rows = 2 * dataset.rows_per_epoch + 5
    expected = as_lists(RowSequence(open_instances(instances), 3).rows(0, num_rows))
    assert [plain(row) for row in islice(dataset, num_rows)] == expected
    assert (
        len(list(InstanceDataset(instances, batch_size=8, epochs=2))) == 2 * dataset.rows_per_epoch
    )


def test_the_number_of_workers_does_not_change_the_batches(instances):
    alone = batches(InstanceDataset(instances, batch_size=8, epochs=1))
    assert len(alone) == 11  # the last one is partial
    assert same(batches(InstanceDataset(instances, batch_size=8, epochs=1), num_workers=2), alone)


def test_ranks_share_each_batch(instances):
    whole = islice(InstanceDataset(instances, batch_size=8), 32)
    parts = [
        list(islice(InstanceDataset(instances, batch_size=4, rank=rank, num_ranks=2), 16))
        for rank in range(2)
    ]
    assert [plain(row) for row in whole] == [
        plain(row) for pair in zip(*parts, strict=True) for row in pair
    ]


@pytest.mark.slow
def test_a_loader_with_two_workers_resumes_inside_an_epoch(instances):
    first = InstanceDataset(instances, batch_size=8, seed=1)
    expected = batches(first, 16)  # an epoch is 10.25 batches
    assert same(batches(first, 5, num_workers=2), expected[:5])
    state = json.loads(json.dumps(first.state_dict(num_batches=5)))
    resumed = InstanceDataset(instances, batch_size=8, seed=1)
    resumed.load_state_dict(state)
    assert same(batches(resumed, 11, num_workers=2), expected[5:])
    resumed.load_state_dict(resumed.state_dict(num_batches=8))
    assert same(batches(resumed, 3), expected[13:])


class StateOfWorker:
    """What torchdata's ``StatefulDataLoader`` does in each worker: save and load its state."""

    def __init__(self, states: list[dict[str, Any]] | None = None):
        self.states = states

    def collate(self, rows: list[Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
        worker: Any = get_worker_info()
        return collate(rows), worker.dataset.state_dict()

    def start(self, worker_id: int) -> None:
        worker: Any = get_worker_info()
        if self.states:
            worker.dataset.load_state_dict(self.states[worker_id])


@pytest.mark.slow
def test_each_worker_saves_and_loads_its_own_state(instances):
    def loaded(states: list[dict[str, Any]] | None, num_batches: int) -> list[Any]:
        dataset, worker = InstanceDataset(instances, batch_size=8, seed=2), StateOfWorker(states)
        options = {"collate_fn": worker.collate, "worker_init_fn": worker.start}
        return list(islice(DataLoader(dataset, 8, num_workers=2, **options), num_batches))

    expected = batches(InstanceDataset(instances, batch_size=8, seed=2), 14)
    used = loaded(None, 6)
    assert same([batch for batch, _ in used], expected[:6])
    resumed = loaded([state for _, state in used[-2:]], 8)
    assert same([batch for batch, _ in resumed], expected[6:])


def test_one_process_resumes_after_any_row(instances):
    dataset = InstanceDataset(instances, batch_size=8)
    expected = [plain(row) for row in islice(dataset, 40)]
    rows = iter(dataset)
    assert [plain(next(rows)) for _ in range(13)] == expected[:13]
    resumed = InstanceDataset(instances, batch_size=8)
    resumed.load_state_dict(dataset.state_dict())
    assert resumed.state_dict() == dataset.state_dict()
    assert [plain(row) for row in islice(resumed, 27)] == expected[13:]


def test_a_state_of_another_order_is_refused(instances):
    state = InstanceDataset(instances, batch_size=8).state_dict()
    with pytest.raises(UserError, match="The state has seed 0, but the data set has 1"):
        InstanceDataset(instances, batch_size=8, seed=1).load_state_dict(state)
    with pytest.raises(UserError, match="`rank` is 2, but must be at least 0 and less than"):
        InstanceDataset(instances, batch_size=8, rank=2, num_ranks=2)
    with pytest.raises(UserError, match="`batch_size` is 0, but must be at least 1"):
        InstanceDataset(instances, batch_size=0)


def test_losses_of_transformers_on_collated_rows_are_those_of_our_evaluation(
    instances: str, tmp_path: Path
):
    config = SMALL_BERT
    ours = BertForPreTraining(config)
    initialise(ours, config, torch.Generator().manual_seed(0))
    shape: dict[str, Any] = {**config.to_hf(), "attn_implementation": "eager"}
    theirs = transformers.BertForPreTraining(transformers.BertConfig(**shape)).eval()
    theirs.load_state_dict(ours.state_dict(), strict=False)
    held_out = read_split(open_instances(instances, "validation"))
    evaluated = evaluation_batches(held_out, "mlm+nsp", 4096)
    expected = metrics(sum_losses(ours, evaluated, make_inference(torch.device("cpu"))))
    (batch,) = batches(InstanceDataset(instances, "validation", batch_size=16, epochs=1))
    with torch.no_grad():
        outputs = theirs(**batch)
        of_ours = ours.eval()(**batch)
    torch.testing.assert_close(outputs.loss.item(), expected["loss"], rtol=0, atol=1e-5)
    # Ours takes the same batch, by the same names.
    torch.testing.assert_close(of_ours.loss, outputs.loss, rtol=0, atol=1e-5)
    is_real = batch["attention_mask"].bool()
    torch.testing.assert_close(
        of_ours.logits[is_real], outputs.prediction_logits[is_real], rtol=0, atol=1e-5
    )
    torch.testing.assert_close(
        of_ours.seq_relationship_logits, outputs.seq_relationship_logits, rtol=0, atol=1e-5
    )
    with pytest.raises(TypeError, match="unexpected keyword argument 'input_id'"):
        ours(**batch, input_id=batch["input_ids"])
