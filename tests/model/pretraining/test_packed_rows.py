"""Packed instances in the trainer: each document sees itself alone, whatever the layout."""

import pickle
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import torch.nn.functional as F
import transformers
from clozeworks.model.config import SHAPE_OPTIONS, PretrainConfig
from clozeworks.model.encoders.bert import BertForPreTraining
from clozeworks.model.encoders.bert_config import ModelConfig
from clozeworks.model.encoders.encoder import initialise
from clozeworks.model.encoders.heads import PretrainBatch
from clozeworks.model.pretraining import batches
from clozeworks.model.pretraining.batches import make_batches, pack_batches
from clozeworks.model.pretraining.data import mask_anew, open_instances, read_split
from clozeworks.model.pretraining.dataset import InstanceDataset, collate
from clozeworks.model.pretraining.evaluate import batch_sums
from clozeworks.model.pretraining.pretrain import pretrain
from clozeworks.pipeline.config import BuildConfig
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.instances.rows import Rows, select, sequences
from clozeworks.pipeline.schemas import instances_schema
from clozeworks.pipeline.vocabulary.files import read_vocabulary
from torch import Tensor, nn
from transformers.masking_utils import flash_attention_mask

from tests.fixtures.instances_fixture import CLS, MASK, SEP, replace_shard, write_tokenizer
from tests.fixtures.manifest_fixture import write_manifest
from tests.fixtures.pretrain_fixture import KilledError, kill_at, weights

pytestmark = pytest.mark.usefixtures("packed_on_cpu")

MAX_LENGTH = 600
VOCAB_SIZE = 60


def make_sequence(rng: np.random.Generator, length: int) -> tuple[list[int], list[int], list[int]]:
    """Return the ids of a document that counts upwards, its masked positions and their ids."""
    first = int(rng.integers(VOCAB_SIZE))
    ids = [CLS, *((5 + (first + i) % (VOCAB_SIZE - 5)) for i in range(length - 2)), SEP]
    positions = sorted(rng.permutation(np.arange(1, length - 1))[: max(1, length // 7)].tolist())
    originals = [ids[position] for position in positions]
    for position in positions:
        ids[position] = MASK
    return ids, positions, originals


def make_row(rng: np.random.Generator, number: int, duplicate: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "input_ids": [], "sequence_starts": [], "documents": [], "masked_lm_positions": [],
        "masked_lm_ids": [], "duplicate": duplicate,
    }  # fmt: skip
    while True:
        length = int(rng.integers(3, 250))
        start = len(row["input_ids"])
        if start + length > MAX_LENGTH:
            return row
        ids, positions, originals = make_sequence(rng, length)
        row["input_ids"] += ids
        row["sequence_starts"].append(start)
        row["documents"].append(number)
        row["masked_lm_positions"] += [start + position for position in positions]
        row["masked_lm_ids"] += originals


def write_packed(path: Path, num_rows: int = 24) -> str:
    """Write packed instances by hand, after pipeline/schemas.py."""
    path.mkdir(parents=True, exist_ok=True)
    write_tokenizer(path, VOCAB_SIZE)
    rng = np.random.default_rng(0)
    sizes = {
        "train-00000-of-00001.parquet": [num_rows, num_rows],
        "validation-00000-of-00001.parquet": [6],
    }
    schema = instances_schema(VOCAB_SIZE, packed=True)
    for name, groups in sizes.items():
        with pq.ParquetWriter(path / name, schema) as writer:
            for duplicate, size in enumerate(groups):
                rows = [make_row(rng, number, duplicate) for number in range(size)]
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    write_manifest(
        path,
        "build",
        {name: sum(groups) for name, groups in sizes.items()},
        config={"max_length": MAX_LENGTH, "pairing": "none"},
        tokenizer={"fingerprint": "test", "size": VOCAB_SIZE},
    )
    return str(path)


@pytest.fixture(scope="module")
def instances(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_packed(tmp_path_factory.mktemp("packed"))


@pytest.fixture(scope="module")
def stored(instances: str) -> list[dict[str, Any]]:
    return pq.read_table(Path(instances) / "train-00000-of-00001.parquet").to_pylist()


@pytest.fixture
def rows(instances: str) -> Rows:
    return read_split(open_instances(instances))


def as_sequences(rows: Rows) -> list[tuple[list[int], list[int], list[int]]]:
    """Return ids, masked positions and masked ids of each row."""
    ids = np.split(rows.input_ids, rows.offsets[1:-1])
    positions = np.split(rows.masked_positions, rows.masked_offsets[1:-1])
    originals = np.split(rows.masked_ids, rows.masked_offsets[1:-1])
    return [
        (i.tolist(), p.tolist(), o.tolist())
        for i, p, o in zip(ids, positions, originals, strict=True)
    ]


def expected_sequences(stored: list[dict[str, Any]]) -> list[tuple[list[int], ...]]:
    found = []
    for row in stored:
        bounds = [*row["sequence_starts"], len(row["input_ids"])]
        masks = list(zip(row["masked_lm_positions"], row["masked_lm_ids"], strict=True))
        for start, stop in pairwise(bounds):
            own = [(at - start, token) for at, token in masks if start <= at < stop]
            positions, originals = map(list, zip(*own, strict=True))
            found.append((row["input_ids"][start:stop], positions, originals))
    return found


def test_rows_are_taken_apart_into_their_documents(rows: Rows, stored: list[dict]):
    assert as_sequences(sequences(rows)) == expected_sequences(stored)
    chosen = [5, 0, 17]
    taken = sequences(select(rows, np.array(chosen)))
    assert as_sequences(taken) == expected_sequences([stored[index] for index in chosen])


def test_new_masks_keep_the_documents_apart(rows: Rows, instances: str):
    config = BuildConfig(max_length=MAX_LENGTH, pairing="none")
    rates = np.linspace(0.1, 0.4, len(rows))
    masked = mask_anew(rows, read_vocabulary(instances), config, np.random.default_rng(0), rates)
    assert masked.unmasked_ids().tolist() == rows.unmasked_ids().tolist()
    apart = sequences(masked)
    assert rows.num_sequences is not None
    wanted = np.maximum(1, np.rint(np.repeat(rates, rows.num_sequences) * apart.lengths))
    assert apart.num_masked.tolist() == np.minimum(wanted, apart.lengths - 2).tolist()
    assert not np.isin(masked.masked_ids, [CLS, SEP]).any()


SHAPE = ModelConfig(
    vocab_size=VOCAB_SIZE, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size=48, max_position_embeddings=MAX_LENGTH, hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)  # fmt: skip


def loss_sums(model: BertForPreTraining, parts: list[PretrainBatch]) -> torch.Tensor:
    with torch.no_grad():
        return sum(batch_sums(batch, model.sums(batch)) for batch in parts)  # pyright: ignore[reportReturnType]


def test_padded_packed_and_single_documents_have_one_loss(rows: Rows, monkeypatch):
    monkeypatch.setattr(batches, "TOKEN_BLOCK", 128)
    rows = select(rows, np.arange(6))
    model = BertForPreTraining(SHAPE)
    initialise(model, SHAPE, torch.Generator().manual_seed(0))
    model.eval()
    apart = sequences(rows)
    single = []
    for number in range(len(apart)):
        single += make_batches(select(apart, np.array([number])), 1, "mlm")
    expected = loss_sums(model, single)
    padded = make_batches(rows, 2, "mlm")
    packed = pack_batches(rows, 2, MAX_LENGTH, "mlm")
    # Short documents are computed together, but no batch is larger than two whole rows.
    assert len(padded) < len(single)
    assert all(batch.input_ids.numel() <= 2 * MAX_LENGTH for batch in padded)
    assert {len(batch.row_starts) % 64 for batch in packed if batch.row_starts is not None} == {1}
    for parts in (padded, packed):
        torch.testing.assert_close(loss_sums(model, parts), expected, rtol=1e-5, atol=1e-4)


def test_the_data_set_tells_where_documents_start(instances: str, stored: list[dict]):
    dataset = InstanceDataset(instances, batch_size=4, epochs=1)
    starts_of = {tuple(row["input_ids"]): row["sequence_starts"] for row in stored}
    items = list(dataset)
    for item in items:
        assert "position_ids" in item
        starts = (item["position_ids"] == 0).nonzero().flatten().tolist()
        assert starts == starts_of[tuple(item["input_ids"].tolist())]
    # A loader may hand rows from one process to another, one by one.
    for item in items[:2]:
        copy = pickle.loads(pickle.dumps(item))
        assert copy.keys() == item.keys()
        assert all(copy[name].tolist() == item[name].tolist() for name in item)


def varlen_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: None, **arguments: Any
) -> tuple[Tensor, None]:
    """Attend as FlashAttention does: within each of the ranges in a single row without a mask."""
    assert mask is None and query.shape[0] == 1
    bounds = arguments["cu_seq_lens_q"]
    assert bounds.dtype == torch.int32 and torch.equal(bounds, arguments["cu_seq_lens_k"])
    assert arguments["max_length_q"] == arguments["max_length_k"] == int(bounds.diff().max())
    window = arguments.get("sliding_window")
    outputs = []
    for start, stop in pairwise(bounds.tolist()):
        near = None
        if window is not None:  # FlashAttention's is exclusive
            at = torch.arange(stop - start)
            near = (at[:, None] - at).abs() < window
        q, k, v = (tensor[:, :, start:stop] for tensor in (query, key, value))
        scale = arguments["scaling"]
        outputs.append(F.scaled_dot_product_attention(q, k, v, near, scale=scale))
    return torch.cat(outputs, 2).transpose(1, 2), None


def their_model(kind: str, attention: str) -> Any:
    shape: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE, "hidden_size": 32, "num_hidden_layers": 3,
        "num_attention_heads": 2, "intermediate_size": 48, "max_position_embeddings": MAX_LENGTH,
        "pad_token_id": 0, "attn_implementation": attention,
    }  # fmt: skip
    torch.manual_seed(0)
    if kind == "bert":
        return transformers.BertForPreTraining(transformers.BertConfig(**shape)).eval()
    shape["local_attention"] = 16
    return transformers.ModernBertForMaskedLM(transformers.ModernBertConfig(**shape)).eval()


@pytest.fixture
def flash_attention() -> str:
    name = "varlen_for_tests"
    transformers.AttentionInterface.register(name, varlen_attention)
    transformers.AttentionMaskInterface.register(name, flash_attention_mask)
    return name


def logits_of(outputs: Any) -> Tensor:
    return outputs.prediction_logits if "prediction_logits" in outputs else outputs.logits


@pytest.mark.parametrize("flatten", [False, True])
@pytest.mark.parametrize("kind", ["bert", "modernbert"])
def test_no_document_sees_another_in_a_model_of_transformers(
    instances: str, flash_attention: str, kind: str, flatten: bool
):
    model = their_model(kind, flash_attention if flatten else "sdpa")
    alone = their_model(kind, "sdpa")
    items = list(islice(InstanceDataset(instances, batch_size=4), 4))
    window = None if kind == "bert" else 16
    batch = collate(items, local_attention=window, flatten=flatten)
    with torch.no_grad():
        logits = logits_of(model(**batch))
        is_real = torch.ones_like(batch["input_ids"], dtype=torch.bool)
        if not flatten:
            lengths = torch.tensor([len(item["input_ids"]) for item in items])
            is_real = torch.arange(is_real.shape[1]) < lengths[:, None]
        assert torch.isfinite(logits).all()
        found = logits[is_real]
        # Each document as the model reads it in a row of its own.
        position_ids = torch.cat([item["position_ids"] for item in items])
        starts = [*(position_ids == 0).nonzero().flatten().tolist(), len(position_ids)]
        ids = torch.cat([item["input_ids"] for item in items])
        labels = torch.cat([item["labels"] for item in items])
        for start, stop in pairwise(starts):
            expected = logits_of(alone(input_ids=ids[None, start:stop]))[0]
            torch.testing.assert_close(found[start:stop], expected, rtol=0, atol=1e-5)
        assert torch.equal(batch["labels"][is_real], labels)
        # What another document says changes nothing.
        changed = batch["input_ids"].clone()
        changed[0, : starts[1]] = 5
        others = logits_of(model(**{**batch, "input_ids": changed}))[is_real][starts[1] :]
        assert torch.equal(others, found[starts[1] :])


SHORT: dict[str, Any] = {
    "model": "tiny", "num_layers": 2, "hidden_size": 32, "num_heads": 2, "steps": 6,
    "batch_size": 4, "learning_rate": 2e-3, "checkpoint_every": 2, "evaluate_every": 3,
    "objective": "mlm", "dynamic_masking": "token", "mask_rate": (0.3, 0.15),
    "schedule": "constant-with-decay", "decay_share": 0.5,
}  # fmt: skip


def same_weights(one: Path, two: Path) -> bool:
    mine, other = weights(one), weights(two)
    return all(torch.equal(mine[name], other[name]) for name in mine)


@pytest.mark.slow
def test_a_killed_run_on_packed_rows_resumes_to_the_same_bits(instances: str, tmp_path: Path):
    config = PretrainConfig(**SHORT)
    expected = pretrain(config, [instances], tmp_path / "whole")
    with pytest.raises(KilledError):
        pretrain(config, [instances], tmp_path / "broken", kill_at(5))
    assert pretrain(config, [instances], tmp_path / "broken") == expected
    assert same_weights(tmp_path / "whole", tmp_path / "broken")
    assert expected["rows"] == 24
    assert expected["final"]["mlm_loss"] < expected["initial"]["mlm_loss"]


@pytest.mark.slow
def test_a_run_is_prolonged_from_an_archived_model_with_its_averages(
    instances: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    steady = replace(PretrainConfig(**SHORT, archive_every=3), decay_share=0.0)
    pretrain(steady, [instances], tmp_path / "steady")
    archived = tmp_path / "steady" / "archive" / "step-3"
    shape = dict.fromkeys(SHAPE_OPTIONS)
    changes: dict[str, Any] = {"decay_share": 1.0, "warmup_steps": 0, "steps": 2, **shape}
    end = replace(steady, checkpoint=str(archived), **changes)
    capsys.readouterr()
    pretrain(end, [instances], tmp_path / "end")
    told = capsys.readouterr()
    assert f"The optimiser continues from {archived}/training_state" in told.out + told.err
    assert not same_weights(archived, tmp_path / "end")
    # Without the averages, the same steps lead elsewhere.
    (archived / "training_state" / "optimizer.pt").unlink()
    pretrain(end, [instances], tmp_path / "fresh")
    assert not same_weights(tmp_path / "end", tmp_path / "fresh")


@pytest.mark.parametrize("column", ["sequence_starts", "masked_lm_positions"])
def test_numbers_that_do_not_ascend_within_a_row_are_named(tmp_path: Path, column: str):
    path = Path(write_packed(tmp_path / "damaged", num_rows=3))
    shard = path / "train-00000-of-00001.parquet"
    table = pq.read_table(shard)
    rows = table.to_pylist()
    rows[1][column].reverse()
    replace_shard(shard, pa.Table.from_pylist(rows, schema=table.schema))
    with pytest.raises(UserError, match=f"column {column}: "):
        read_split(open_instances(str(path)))
