"""A probe during pre-training: how far a task can be read off the frozen encoder by a linear model.

The features are the mean of an example's last hidden states, over its tokens. Ridge regression on
them predicts the score, or each class (1 if it is the example's, else 0); its penalty is chosen by
leave-one-out error in closed form. So the probe has no step size and no randomness of its own, and
changes nothing in the training.

Shapes: N examples, B rows, L padded length, D hidden size, K classes (1 for a score).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from ...pipeline.errors import UserError
from ...pipeline.seeding import rng_for
from ..bert import BertModel
from ..checkpoint import read_config
from ..config import PretrainConfig
from ..finetuning.predict import infer
from ..tasks.catalogue import find_entry
from ..tasks.classification import Classification
from ..tasks.options import TaskOptions
from ..tasks.splits import read_data
from ..tasks.task import Feature, Scores, TaskBatch, TaskModel
from ..tokenizer import TextTokenizer

MAX_TRAIN, MAX_DEV = 2000, 1000
MAX_LENGTH = 128
PENALTIES = tuple(10.0**power for power in range(-1, 6))


class MeanStates(TaskModel):
    """An encoder whose output is the mean of the last hidden states (B, D)."""

    def __init__(self, bert: BertModel):
        super().__init__()
        self.bert = bert

    def forward(self, batch: TaskBatch) -> Tensor:
        """Return the means over the real tokens, with [CLS] and [SEP]."""
        mask_BL1 = batch.attention_mask_BL[:, :, None]
        return (self.bert(*batch[:4]) * mask_BL1).sum(1) / mask_BL1.sum(1)


@dataclass(frozen=True)
class Probe:
    """A task with some of its examples."""

    task: Classification
    train: list[Feature]
    dev: list[Feature]
    dev_examples: list[Any]
    constant: Scores
    """The metrics of always giving the most frequent answer."""

    def scores(self, bert: BertModel) -> Scores:
        """Return the task's metrics on the dev examples by their names."""
        # Imported here because it takes a second.
        from sklearn.linear_model import RidgeCV
        from sklearn.preprocessing import StandardScaler

        model = MeanStates(bert)
        train_ND, dev_ND = (
            np.stack(infer(model, part)).astype(np.float64) for part in (self.train, self.dev)
        )
        targets_N = np.array([feature.target for feature in self.train])
        targets_NK = (
            np.eye(len(self.task.labels))[targets_N] if self.task.labels else targets_N[:, None]
        )
        scaler = StandardScaler().fit(train_ND)
        ridge = RidgeCV(PENALTIES).fit(scaler.transform(train_ND), targets_NK)
        predicted_NK = ridge.predict(scaler.transform(dev_ND)).reshape(len(dev_ND), -1)
        return self.task.scores(list(predicted_NK), self.dev, self.dev_examples)


def read_probe(config: PretrainConfig, vocabulary: str) -> Probe:
    """Return the probe that ``--probe`` names, encoded with the vocabulary in the directory
    `vocabulary`.

    At most `MAX_TRAIN` and `MAX_DEV` examples are used, the same for each run. Raises `UserError`
    for other tasks than GLUE's and classify, and for bad data.
    """
    assert config.probe is not None
    name, path = config.probe
    positions = (
        read_config(config.checkpoint).max_position_embeddings if config.checkpoint else MAX_LENGTH
    )
    options = TaskOptions(max_length=min(MAX_LENGTH, positions))
    if not issubclass(find_entry(name, options).kind, Classification):
        raise UserError(f"--probe takes a task of GLUE, or classify, not {name}.")
    data = read_data(name, path, options)
    assert isinstance(data.task, Classification)
    tokenizer = TextTokenizer(vocabulary)
    train, dev = _some(data.train, MAX_TRAIN), _some(data.dev[""], MAX_DEV)
    encoded = (data.task.encode(examples, tokenizer) for examples in (train, dev))
    return Probe(data.task, *encoded, dev_examples=dev, constant=data.task.baseline(train, dev))


def _some(examples: Sequence[Any], most: int) -> list[Any]:
    chosen = np.sort(rng_for(0, "probe").permutation(len(examples))[:most])
    return [examples[index] for index in chosen]
