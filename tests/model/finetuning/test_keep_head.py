"""Fine-tuning in two steps: the head of the first is kept."""

from pathlib import Path
from typing import Any

import pytest
from clozeworks.model.checkpoint import Checkpoint
from clozeworks.model.finetuning.config import FinetuneConfig
from clozeworks.model.finetuning.finetune import finetune
from clozeworks.model.finetuning.task_model import make_model
from clozeworks.model.tasks.glue import GLUE
from clozeworks.pipeline.errors import UserError
from safetensors.torch import load_file

from tests.fixtures.checkpoint_fixture import write_reviews

QUICK: dict[str, Any] = {
    "max_length": 24,
    "batch_size": 8,
    "epochs": 0.5,
    "learning_rates": (5e-4,),
    "device": "cpu",
    "precision": "fp32",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_reviews(tmp_path_factory.mktemp("data") / "reviews")


@pytest.fixture(scope="module")
def model(tmp_path_factory, checkpoint, data) -> Path:
    output = tmp_path_factory.mktemp("models") / "seed-0"
    finetune("sst2", data, checkpoint, output, FinetuneConfig(**QUICK))
    return output


@pytest.mark.slow
def test_the_head_is_kept_in_a_second_step_with_the_same_labels(model, data, tmp_path):
    config = FinetuneConfig(**QUICK, keep_head=True)
    kept = make_model(GLUE["sst2"], Checkpoint.open(model), config, 0).state_dict()
    saved = load_file(model / "model.safetensors")
    assert all(kept[name].equal(weight) for name, weight in saved.items())
    fresh = make_model(
        GLUE["sst2"], Checkpoint.open(model), FinetuneConfig(**QUICK), 0
    ).state_dict()
    assert not fresh["classifier.weight"].equal(saved["classifier.weight"])
    # The second data set may be one of the user's own, with the same names of classes.
    lines = (data / "train.tsv").read_text().splitlines()
    rows = [line.replace("\t1", "\tpositive").replace("\t0", "\tnegative") for line in lines]
    (tmp_path / "own").mkdir()
    (tmp_path / "own/train.tsv").write_text("\n".join(rows) + "\n")
    finetune("classify", tmp_path / "own", model, tmp_path / "second", config)
    with pytest.raises(
        UserError, match=r"`keep_head`: id2label of .*seed-0 is \{'0': 'negative'.*, not \{'0': 'un"
    ):
        finetune("cola", write_cola(tmp_path), model, tmp_path / "third", config)
    assert not (tmp_path / "third").exists()


def test_without_a_head_there_is_none_to_keep(checkpoint, data, tmp_path):
    config = FinetuneConfig(**QUICK, keep_head=True)
    with pytest.raises(UserError, match=r"architectures of .*checkpoint is .*BertForPreTraining"):
        finetune("sst2", data, checkpoint, tmp_path / "run", config)
    with pytest.raises(UserError, match="contradicts `random_weights`"):
        FinetuneConfig(keep_head=True, random_weights=True)


def write_cola(folder: Path) -> Path:
    (folder / "cola").mkdir()
    for split in ("train", "dev"):
        (folder / f"cola/{split}.tsv").write_text("g\t1\t\tthe film\ng\t0\t*\ta bad\n")
    return folder / "cola"
