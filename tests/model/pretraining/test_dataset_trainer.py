"""`transformers.Trainer` on `InstanceDataset` has the losses and weights of `pretrain`."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from clozeworks.model.config import PretrainConfig
from clozeworks.model.pretraining.dataset import InstanceDataset, collate
from clozeworks.model.pretraining.plan import make_plan
from clozeworks.model.pretraining.pretrain import pretrain
from clozeworks.model.pretraining.setup import initial_model
from clozeworks.pipeline.parsing import read_csv
from torch.optim.lr_scheduler import LambdaLR

pytestmark = pytest.mark.slow

pytest.importorskip("accelerate", reason="transformers.Trainer needs accelerate")
STEPS, WARMUP, ROWS = 6, 2, 8
SHAPE: dict[str, Any] = {"num_layers": 2, "hidden_size": 32, "num_heads": 2}
CONFIG = PretrainConfig(
    **SHAPE, steps=STEPS, batch_size=ROWS, warmup_steps=WARMUP, learning_rate=1e-3, dropout=0.0,
    seed=1,
)  # fmt: skip


@pytest.fixture(scope="module")
def our_losses(instances: str, tmp_path_factory) -> list[float]:
    run = tmp_path_factory.mktemp("ours") / "run"
    pretrain(CONFIG, [instances], run)
    rows = read_csv((run / "metrics.csv").read_bytes(), run, "")
    return [
        float(row["mlm_loss"]) + float(row["nsp_loss"]) for row in rows if row["split"] == "train"
    ]


def trainer(
    instances: str, output: Path, first_batch: int = 0, **more: Any
) -> transformers.Trainer:
    ours = initial_model(make_plan(CONFIG, [instances]).shape, CONFIG.seed)
    shape: dict[str, Any] = {**asdict(ours.config), "attn_implementation": "eager"}
    theirs = transformers.BertForPreTraining(transformers.BertConfig(**shape))
    theirs.load_state_dict(ours.state_dict(), strict=False)
    dataset = InstanceDataset(instances, batch_size=ROWS, seed=CONFIG.seed)
    dataset.load_state_dict(dataset.state_dict(num_batches=first_batch))
    arguments = transformers.TrainingArguments(
        str(output), max_steps=STEPS, per_device_train_batch_size=ROWS,
        learning_rate=1e-3, weight_decay=0.01, adam_epsilon=1e-6, logging_steps=1,
        save_steps=3, use_cpu=True, report_to=[], disable_tqdm=True, **more,
    )  # fmt: skip
    trained = transformers.Trainer(theirs, arguments, train_dataset=dataset, data_collator=collate)
    # As in docs/api.md.
    optimizer = trained.create_optimizer()
    trained.lr_scheduler = LambdaLR(
        optimizer, lambda step: step / WARMUP if step < WARMUP else 1 - step / STEPS
    )
    return trained


def losses(trained: transformers.Trainer) -> list[float]:
    return [line["loss"] for line in trained.state.log_history if "loss" in line]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_losses_are_those_of_pretrain(instances, our_losses, num_workers: int, tmp_path):
    theirs = trainer(instances, tmp_path, dataloader_num_workers=num_workers)
    theirs.train()
    assert len(our_losses) == STEPS
    assert losses(theirs) == pytest.approx(our_losses, abs=1e-5)


def test_a_resumed_training_has_the_losses_of_an_undisturbed_one(instances, our_losses, tmp_path):
    whole = trainer(instances, tmp_path)
    whole.train()
    resumed = trainer(instances, tmp_path, first_batch=3, ignore_data_skip=True)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert losses(resumed)[-3:] == losses(whole)[-3:]
    assert resumed.model and whole.model
    torch.testing.assert_close(resumed.model.state_dict(), whole.model.state_dict(), rtol=0, atol=0)
