"""Define a task: read its files, encode examples as tensors, compute a loss, score predictions.

The trainer, prediction and evaluation see a task only through `Task`. An example becomes one
feature, or several if it is longer than a row (windows). A feature is one row of tokens, or one row
per choice (multiple choice).

Shapes: N features, B rows (N times the choices), L padded length, T real tokens, D hidden size.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from msgspec import Meta
from torch import Tensor, nn

from ..encoders.attention import dropout
from ..encoders.catalogue import make_encoder, make_task_head
from ..encoders.config import EncoderConfig
from ..encoders.encoder import Encoder, real_tokens, with_sigma
from ..encoders.heads import IGNORED
from ..tokenizer import TextTokenizer, TokenRow
from ..training.ranks import print_notice
from ..training.transfers import send
from .class_report import ClassReport
from .options import MAX_TASK_SIZE

Outputs = Sequence[np.ndarray]
"""The head's outputs for each feature, float32, without padding."""
Scores = dict[str, float]
"""Metrics by name; the first one chooses between runs."""
Answer = dict[str, Any]
"""A prediction as `predict` writes it: a label, and ``probabilities`` if there are classes."""
Size = Annotated[int, Meta(ge=1, le=MAX_TASK_SIZE)]
"""A number of tokens or units in a task's settings."""


class Feature(NamedTuple):
    """The model's input for an example or a part of it."""

    rows: tuple[TokenRow, ...]
    """One row, or one per choice."""
    target: np.ndarray | None
    """int64: the index of the class, shape (); of the first and last token of an answer, (2,); or
    of the class of each token, (L,), `IGNORED` if it has none. float32: a score, shape (). None if
    there is no usable label.
    """
    example: int
    """Index of the example among those encoded together."""
    context: Any = None
    """The task's own data for decoding the outputs, such as the positions of words."""

    @property
    def length(self) -> int:
        """Tokens of the longest row."""
        return max(len(row.input_ids) for row in self.rows)


class TaskBatch(NamedTuple):
    """Padded rows as `Encoder.forward` takes them, and the targets of their features."""

    input_ids_BL: Tensor
    token_type_ids_BL: Tensor
    attention_mask_BL: Tensor
    token_index_T: Tensor
    target: Tensor | None
    """As in `Feature`, with a leading dimension N; None without labels."""
    share: float = 1.0
    """Of the targets of the update that this batch is a part of."""
    num_features: int = 0
    """N; each has B / N rows."""

    def to(self, device: torch.device) -> "TaskBatch":
        """Copy the batch to `device`, without waiting for a GPU."""
        return self.map(lambda tensor: send(tensor, device))

    def map(self, change: Callable[[Tensor], Tensor]) -> "TaskBatch":
        """Return the batch with each tensor changed."""
        return TaskBatch._make(
            change(value) if isinstance(value, Tensor) else value for value in self
        )


class Recipe(NamedTuple):
    """The default hyperparameters of a task."""

    batch_size: int
    epochs: float
    learning_rates: tuple[float, ...]


class TaskModel(nn.Module, ABC):
    """An encoder with the head of a task."""

    per_token: bool = False
    """Whether the head classifies tokens: outputs are then (N, L, ...)."""
    uses_pooler: bool = True
    """Whether the head reads the encoder's pooler; if not, ``transformers`` has none there."""
    hf_name: str = ""
    """How the name of its class in ``transformers`` ends; empty if it has none."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        # Under the name that it has in `transformers`: that is how the weights' names begin.
        encoder = make_encoder(config)
        self.add_module(encoder.prefix, encoder)

    @property
    def encoder(self) -> Encoder:
        """The encoder."""
        (encoder,) = (child for child in self.children() if isinstance(child, Encoder))
        return encoder

    @property
    def pretrained_parts(self) -> dict[str, nn.Module]:
        """What a checkpoint may hold, by name: the encoder."""
        return {self.encoder.prefix: self.encoder}

    @abstractmethod
    def forward(self, batch: TaskBatch) -> Tensor:
        """Return the head's outputs, (N, ...)."""

    def states(self, batch: TaskBatch) -> Tensor:
        """Return the last hidden states (B, L, D); the first of each row represents the whole row.

        That is [CLS]; in a left-to-right model [CLS] and the final [SEP] are swapped.
        """
        states_BLD = self.encoder(*batch[:4])
        if not self.encoder.config.is_decoder:
            return states_BLD
        # There [CLS] sees only itself and the final [SEP] sees everything:
        #
        #     [CLS] the film [SEP]   becomes   [SEP] the film [CLS]
        #
        # Written into a clone: the second assignment reads what the first would have overwritten.
        last_B = batch.attention_mask_BL.sum(1) - 1
        rows_B = torch.arange(len(last_B), device=last_B.device)
        swapped_BLD = states_BLD.clone()
        swapped_BLD[:, 0] = states_BLD[rows_B, last_B]
        swapped_BLD[rows_B, last_B] = states_BLD[:, 0]
        return swapped_BLD

    def loss(self, outputs: Tensor, batch: TaskBatch) -> Tensor:
        """Return the mean cross-entropy over the targets that `num_targets` counts, a scalar."""
        assert batch.target is not None
        # (N, K) of examples stays; (N, L, K) of tokens becomes (N * L, K).
        logits = outputs.flatten(0, -2)
        return F.cross_entropy(logits, batch.target.flatten(), ignore_index=IGNORED)


class LinearHead(TaskModel):
    """An encoder, its own layers before a head, if any, and one linear layer; parameter names as in
    ``transformers``.
    """

    def __init__(self, config: EncoderConfig, num_outputs: int):
        super().__init__(config)
        self.head = make_task_head(config)
        classifier = nn.Linear(config.hidden_size, num_outputs)
        self.classifier = with_sigma(classifier, config.classifier_sigma)
        self.rate = config.classifier_rate

    @property
    def pretrained_parts(self) -> dict[str, nn.Module]:
        """The encoder, and the layers that it shares with the masked-LM head."""
        return {**super().pretrained_parts, "head": self.head}

    def pooled(self, batch: TaskBatch) -> Tensor:
        """Return one vector for each row (B, D)."""
        return self.encoder.pool(self.states(batch), batch.attention_mask_BL)

    def classify(self, values: Tensor) -> Tensor:
        """Apply the encoder's own layers, dropout and the linear layer to `values` (..., D)."""
        return self.classifier(dropout(self.head(values), self.rate, self.training))


class Task(ABC):
    """A task, as a frozen dataclass of its settings; examples are of the task's own type.

    A subclass of one of the tasks whose `model` returns another model gives it another head:
    `finetune`, `predict` and `evaluate_task` take such an object instead of a name.
    """

    name: str
    """On the command line."""
    max_length: int
    """Of a row, in tokens."""
    cut: ClassVar[tuple[str, str]] = "examples", "max_length"
    """Name of the texts that are cut if too long, and the field with the limit."""
    tuned_settings: ClassVar[tuple[str, ...]] = ()
    """The fields that `tuned` changes."""
    has_new_weights: ClassVar[bool] = True
    """Whether the model has a head, which must be trained before it can answer."""
    depends_on_texts_alone: ClassVar[bool] = True
    """Whether `texts`, if there are any, are all that the answer depends on."""
    whole_batches: bool = False
    """Whether the loss compares the examples of a batch, so that it cannot be divided."""

    @property
    def variant(self) -> str:
        """Label that sets its results apart within the task, such as SQuAD's version; or ""."""
        return ""

    @property
    def recipe(self) -> Recipe:
        """The default hyperparameters; unless overridden, the paper's for GLUE (section 4.1)."""
        return Recipe(batch_size=32, epochs=3.0, learning_rates=(5e-5, 4e-5, 3e-5, 2e-5))

    @abstractmethod
    def read(self, path: Path, labelled: bool) -> Iterator[Any]:
        """Yield the examples in a file; raises `UserError` naming file and line."""

    @abstractmethod
    def parse_line(self, line: str, where: str) -> Any:
        """Return the unlabelled example on a line of plain text, which errors call `where`."""

    def check_dev(self, examples: Sequence[Any]) -> None:  # noqa: B027
        """Raise `UserError` if dev examples cannot tell a good model from a bad one."""

    @abstractmethod
    def group(self, example: Any) -> str:
        """Return a key; examples with the same key stay on the same side of a train/dev split."""

    @abstractmethod
    def encode(self, examples: Sequence[Any], tokenizer: TextTokenizer) -> list[Feature]:
        """Return the features of the examples, in order."""

    @abstractmethod
    def model(self, config: EncoderConfig) -> TaskModel:
        """Return an encoder with this task's head; no weights are loaded yet."""

    def tuned(
        self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[Any]
    ) -> "Task":
        """Return the task with its threshold tuned on the dev examples after training, if any."""
        return self

    @abstractmethod
    def scores(
        self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[Any]
    ) -> Scores:
        """Return the official metrics."""

    @abstractmethod
    def baseline(self, train: Sequence[Any], examples: Sequence[Any]) -> Scores:
        """Return the metrics on `examples` of always giving the most frequent answer in `train`."""

    def word_baseline(self, train: Sequence[Any], examples: Sequence[Any]) -> Scores:
        """Return the metrics on `examples` of a model of words alone, fitted to `train`.

        They are empty if the task has no such model.
        """
        return {}

    def texts(self, example: Any) -> dict[str, str]:
        """Return the texts of an example by name, which `predict` writes before its answer.

        They are empty if the answer has them.
        """
        return {}

    def stratum(self, example: Any) -> Any:
        """Return the class of an example, of which both sides of a train/dev split get a share."""
        return None

    @abstractmethod
    def answers(
        self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[Any]
    ) -> list[Answer]:
        """Return the answer for each example."""

    def truth(self, example: Any) -> Any:
        """Return the right answer to an example, as JSON has it; None if it has none."""
        return None

    def class_report(self, answers: Sequence[Answer], examples: Sequence[Any]) -> ClassReport:
        """Return the figures of each class; empty if the task has none."""
        return {"classes": {}, "confusion": []}

    def official(
        self, answers: Sequence[Answer], examples: Sequence[Any], split: str
    ) -> dict[str, bytes]:
        """Return the files, by name, that the task's server or script expects; empty if none does.

        `split` is the split of the examples as in `splits.find_splits`: ``test``,
        ``test_mismatched``, ...
        """
        return {}

    def companion_files(self, config: EncoderConfig) -> dict[str, bytes]:
        """Return files by name that other libraries than ``transformers`` need with the model."""
        return {}

    def settings(self) -> dict[str, Any]:
        """Return the content of ``task.json``: `catalogue.restore_task` recreates the task."""
        # A subclass is a dataclass, which the type checker cannot know.
        settings = asdict(cast(Any, self))
        name = settings.pop("name")
        # Other files may have another one.
        settings.pop("encoding", None)
        given = {field: value for field, value in settings.items() if value is not None}
        return {"task": name, **given}

    def hf_settings(self) -> dict[str, Any]:
        """Return what ``transformers`` needs in ``config.json`` besides encoder and class."""
        return {}


def hf_labels(names: Sequence[str]) -> dict[str, Any]:
    """Return the names of the classes as ``config.json`` stores them."""
    return {
        "id2label": {str(index): name for index, name in enumerate(names)},
        "label2id": {name: index for index, name in enumerate(names)},
    }


def num_cut(features: Sequence[Feature]) -> int:
    """Return how many of the examples encoded together are cut."""
    cut = set[int]()
    for feature in features:
        if any(row.num_cut for row in feature.rows):
            cut.add(feature.example)
    return len(cut)


def report_cut(task: Task, where: str, num_cut: int, num_examples: int) -> None:
    """Print how many of the examples in `where` (a file or a split) are cut, if any are."""
    if num_cut:
        what, option = task.cut
        print_notice(
            f"{where}: {num_cut:,} of {num_examples:,} {what} cut at `{option}` "
            f"{getattr(task, option)}; fine-tune with a higher one to keep more."
        )


def prefixed(prefix: str, scores: Scores) -> Scores:
    """Return scores by the names that they have for the dev set with this prefix."""
    return {f"{prefix}{name}": value for name, value in scores.items()}


def num_targets(features: Sequence[Feature]) -> int:
    """Return the number of targets: one per feature, two per answer (its ends), or one per token
    with a class.

    Losses are means over targets, so the trainer weighs each micro-batch by its share of them.
    """
    total = 0
    for feature in features:
        if feature.target is None:
            continue
        if feature.target.dtype.kind == "i":
            total += int((feature.target != IGNORED).sum())
        else:
            total += feature.target.size
    return total


def make_batch(features: Sequence[Feature]) -> TaskBatch:
    """Pad the features' rows to the longest row, and the targets to the longest target."""
    # A row of 4 tokens, whose segment B begins at 2, in a batch with one of 6:
    #
    #     input_ids      2 7 8 3 0 0
    #     mask           1 1 1 1 0 0
    #     types          0 0 1 1 0 0
    rows = [row for feature in features for row in feature.rows]
    lengths_B1 = np.array([len(row.input_ids) for row in rows])[:, None]
    b_starts_B1 = np.array([row.segment_b_start for row in rows])[:, None]
    columns_L = np.arange(lengths_B1.max())
    mask_BL = columns_L < lengths_B1
    types_BL = (columns_L >= b_starts_B1) & mask_BL
    input_ids_BL = np.zeros(mask_BL.shape, dtype=np.int64)
    # The mask selects row after row, so the rows' tokens fill it in order.
    input_ids_BL[mask_BL] = np.concatenate([row.input_ids for row in rows])
    mask = torch.from_numpy(mask_BL)
    return TaskBatch(
        input_ids_BL=torch.from_numpy(input_ids_BL),
        token_type_ids_BL=torch.from_numpy(types_BL).long(),
        attention_mask_BL=mask,
        token_index_T=real_tokens(mask),
        target=_pad_targets(features),
        num_features=len(features),
    )


def _pad_targets(features: Sequence[Feature]) -> Tensor | None:
    targets = [
        torch.from_numpy(feature.target) for feature in features if feature.target is not None
    ]
    if not targets:
        return None
    # All targets of a task have the same number of dimensions; targets of tokens differ in length.
    if targets[0].ndim == 0:
        return torch.stack(targets)
    return nn.utils.rnn.pad_sequence(targets, batch_first=True, padding_value=IGNORED)
