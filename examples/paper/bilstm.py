"""The BiLSTM heads of the paper: on top of an encoder that is fine-tuned (the last row of Table 5),
and on the hidden states of a frozen one (the features of Table 7).

Each head is a task of Clozeworks with another `model`. Reading files, cutting rows, training and
scoring stay those of the task that it extends.

Shapes: B rows, L padded length, W words of a row, S chosen layers, D hidden size, U units in each
direction, K classes.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from clozeworks.model import (
    Classification,
    EncoderConfig,
    EntityRecognition,
    ModelConfig,
    SequenceClassifier,
    SpanClassifier,
    Squad,
    Task,
    TaskBatch,
    TaskModel,
)
from clozeworks.pipeline import UserError
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

FEATURES = (
    "embeddings",
    "second-to-last",
    "last",
    "weighted-sum-last-four",
    "concat-last-four",
    "weighted-sum-all",
)
"""The rows of Table 7."""
NO_WORD = -100
"""The target of a token that is not the first of a word."""
CACHE_BYTES = 4 << 30
ENCODER_ALONE = {"architectures": ["BertModel"]}
"""For ``config.json``: ``transformers`` knows the encoder of these models, but not their heads."""


def of_bert(config: EncoderConfig) -> ModelConfig:
    """Return the shape if it is a BERT's, as in the paper; raises `UserError` for another."""
    if not isinstance(config, ModelConfig):
        raise UserError(
            f"The BiLSTM heads are for BERT, but the checkpoint is a {config.title}; give a BERT."
        )
    return config


class BiLstm(nn.Module):
    """Two BiLSTM layers with dropout between them, on rows padded at their right.

    Each layer has an LSTM for either direction; the second reads every row turned round, so that
    neither meets padding before a row's end. PyTorch's own BiLSTM needs packed rows for that, hence
    the lengths on the host at every step, and takes two to five times as long on a CPU.
    """

    def __init__(self, input_size: int, lstm_size: int, dropout_rate: float):
        super().__init__()
        self.dropout_rate = dropout_rate
        input_sizes = (input_size, 2 * lstm_size)
        self.rightwards = nn.ModuleList(
            nn.LSTM(size, lstm_size, batch_first=True) for size in input_sizes
        )
        self.leftwards = nn.ModuleList(
            nn.LSTM(size, lstm_size, batch_first=True) for size in input_sizes
        )

    def forward(self, values_BLD: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the outputs (B, L, 2 U) for rows of `lengths_B` values; those at the padding mean
        nothing.
        """
        device = values_BLD.device
        #     row of length 3       a b c - -
        #     turned_BL             2 1 0 0 0
        #     read from the end     c b a a a     (the outputs C B A ...)
        #     turned once more      A B C C C     (so each output stands at its token again)
        positions_L = torch.arange(values_BLD.shape[1], device=device)
        turned_BL = (lengths_B[:, None] - 1 - positions_L).clamp(min=0)
        rows_B1 = torch.arange(len(lengths_B), device=device)[:, None]

        # oneDNN has no LSTM in bf16 for a CPU without AVX-512, and a slow one for most others.
        if device.type == "cpu":
            values_BLD = values_BLD.float()
        lowers_precision = torch.is_autocast_enabled(device.type) and device.type != "cpu"
        with torch.autocast(device.type, enabled=lowers_precision):
            for layer in range(2):
                if layer > 0:
                    values_BLD = F.dropout(values_BLD, self.dropout_rate, self.training)
                right_BLU, _ = self.rightwards[layer](values_BLD)
                from_end_BLD = values_BLD[rows_B1, turned_BL]
                from_end_BLU, _ = self.leftwards[layer](from_end_BLD)
                left_BLU = from_end_BLU[rows_B1, turned_BL]
                values_BLD = torch.cat([right_BLU, left_BLU], dim=2)
        return values_BLD


# On top of an encoder that is fine-tuned
# --------------------------------------------------------------------------------------------------


class BiLstmForSequenceClassification(SequenceClassifier):
    """BERT with a BiLSTM on all hidden states, and a linear layer on the last state of either
    direction.
    """

    def __init__(self, config: ModelConfig, num_outputs: int, lstm_size: int):
        super().__init__(config, num_outputs)
        # The LSTM takes its place; otherwise the optimiser would keep averages for it.
        self.encoder.get_submodule("pooler").requires_grad_(False)
        self.lstm = BiLstm(config.hidden_size, lstm_size, config.hidden_dropout_prob)
        self.classifier = nn.Linear(2 * lstm_size, num_outputs)

    def forward(self, batch: TaskBatch) -> Tensor:
        """Return logits (B, K)."""
        lengths_B = batch.attention_mask_BL.sum(1)
        # Not `states`, which moves [SEP] to the front of a left-to-right encoder's rows: the LSTM
        # reads the tokens in their order.
        encoder_inputs = batch[:4]  # the fields of a batch begin with the encoder's arguments
        states_BLD = self.encoder(*encoder_inputs)
        states_BLD = F.dropout(states_BLD, self.rate, self.training)
        hidden_BLU = self.lstm(states_BLD, lengths_B)
        right_BLU, left_BLU = hidden_BLU.chunk(2, dim=2)
        # Each direction has read the whole row at its end: the last token, and the first.
        rows_B = torch.arange(len(lengths_B), device=lengths_B.device)
        last_right_BU = right_BLU[rows_B, lengths_B - 1]
        last_left_BU = left_BLU[:, 0]
        return self.classify(torch.cat([last_right_BU, last_left_BU], dim=1))


class BiLstmForQuestionAnswering(SpanClassifier):
    """BERT with a BiLSTM on all hidden states, and a start and an end vector on its outputs."""

    def __init__(self, config: ModelConfig, lstm_size: int):
        super().__init__(config)
        self.rate = config.hidden_dropout_prob
        self.lstm = BiLstm(config.hidden_size, lstm_size, self.rate)
        self.qa_outputs = nn.Linear(2 * lstm_size, 2)

    def forward(self, batch: TaskBatch) -> Tensor:
        """Return each token's logits as the first and the last of the answer (B, L, 2)."""
        encoder_inputs = batch[:4]  # the fields of a batch begin with the encoder's arguments
        states_BLD = self.encoder(*encoder_inputs)
        states_BLD = F.dropout(states_BLD, self.rate, self.training)
        hidden_BLU = self.lstm(states_BLD, batch.attention_mask_BL.sum(1))
        return self.qa_outputs(F.dropout(hidden_BLU, self.rate, self.training))


@dataclass(frozen=True, kw_only=True)
class BiLstmClassification(Classification):
    """A task on texts or pairs, with a BiLSTM on top of the encoder."""

    lstm_size: int
    """Units in each direction."""
    in_transformers: ClassVar[bool] = False

    @property
    def variant(self) -> str:
        """The variant in ``results.csv``."""
        return "bilstm"

    def model(self, config: EncoderConfig) -> SequenceClassifier:
        """Return the encoder with a new BiLSTM and linear layer."""
        num_outputs = len(self.labels) or 1
        return BiLstmForSequenceClassification(of_bert(config), num_outputs, self.lstm_size)

    def settings(self) -> dict[str, Any]:
        """Return the content of ``task.json``."""
        return {**super().settings(), "lstm_size": self.lstm_size}

    def hf_settings(self) -> dict[str, Any]:
        """Return the classes and so on for ``config.json``."""
        return {**super().hf_settings(), **ENCODER_ALONE}


@dataclass(frozen=True, kw_only=True)
class BiLstmSquad(Squad):
    """SQuAD with a BiLSTM on top of the encoder."""

    lstm_size: int
    """Units in each direction."""
    in_transformers: ClassVar[bool] = False

    @property
    def variant(self) -> str:
        """The variant in ``results.csv``."""
        return f"{super().variant} bilstm"

    def model(self, config: EncoderConfig) -> SpanClassifier:
        """Return the encoder with a new BiLSTM and linear layer."""
        return BiLstmForQuestionAnswering(of_bert(config), self.lstm_size)

    def hf_settings(self) -> dict[str, Any]:
        """Return what ``config.json`` needs."""
        return {**super().hf_settings(), **ENCODER_ALONE}


def with_bilstm(task: Task, lstm_size: int) -> Task:
    """Return the task with a BiLSTM of `lstm_size` units each way on top of the encoder."""
    if isinstance(task, Squad):
        return BiLstmSquad(**vars(task), lstm_size=lstm_size)
    if isinstance(task, Classification):
        return BiLstmClassification(**vars(task), lstm_size=lstm_size)
    raise TypeError(f"There is no BiLSTM for {task.name}.")


# On the hidden states of a frozen encoder
# --------------------------------------------------------------------------------------------------


def chosen_layers(features: str, num_layers: int) -> list[int]:
    """Return the indices of the hidden states in a row of Table 7; 0 is the embeddings.

    >>> chosen_layers("concat-last-four", 12), chosen_layers("second-to-last", 12)
    ([9, 10, 11, 12], [11])
    """
    if features.endswith("last-four") and num_layers < 4:
        raise UserError(f"{features} needs four layers, but the encoder has {num_layers}.")
    last_four = list(range(num_layers - 3, num_layers + 1))
    return {
        "embeddings": [0],
        "second-to-last": [num_layers - 1],
        "last": [num_layers],
        "weighted-sum-last-four": last_four,
        "concat-last-four": last_four,
        "weighted-sum-all": list(range(1, num_layers + 1)),
    }[features]


class BiLstmTagger(TaskModel):
    """A BiLSTM and a linear layer on the hidden states of each word's first token; the encoder is
    frozen.

    Weighted sums are ELMo's (arXiv 1802.05365). The states of a row are computed once, in the first
    epoch, and cached in memory up to `CACHE_BYTES`. Each row is computed alone: in a batch its last
    bits would depend on the other rows, and so on where a run was interrupted.
    """

    per_token = True

    def __init__(self, config: ModelConfig, num_classes: int, features: str, lstm_size: int):
        super().__init__(config)
        self.encoder.requires_grad_(False)
        self.layers = chosen_layers(features, config.num_hidden_layers)
        self.is_weighted = features.startswith("weighted")
        input_size = config.hidden_size
        if self.is_weighted:
            # Before `softmax`: all layers begin with the same weight.
            self.layer_weights = nn.Parameter(torch.zeros(len(self.layers)))
            self.layer_scale = nn.Parameter(torch.ones(()))
        else:
            input_size *= len(self.layers)
        self.rate = config.hidden_dropout_prob
        self.lstm = BiLstm(input_size, lstm_size, self.rate)
        self.classifier = nn.Linear(2 * lstm_size, num_classes)
        self._cached_states: dict[bytes, Tensor] = {}
        self._cached_bytes = 0

    def train(self, mode: bool = True) -> Self:
        """Set the mode of the BiLSTM; dropout in the frozen encoder would disturb its features."""
        super().train(mode)
        self.encoder.eval()
        return self

    def forward(self, batch: TaskBatch) -> Tensor:
        """Return logits (B, L, K), 0 for tokens that are not the first of a word."""
        assert batch.target is not None
        is_word_BL = batch.target != NO_WORD
        # From rows of tokens to rows of words, by their first tokens:
        #
        #     tokens       CLS  Jim  ##my  sang  SEP        CLS  Bo  SEP   -    -
        #     is_word_BL    0    1    0     1     0          0    1   0    0    0
        #     words             Jim        sang                  Bo   -
        states = []
        for row in range(len(is_word_BL)):
            ids_L = batch.input_ids_BL[row, batch.attention_mask_BL[row]]
            positions_W = is_word_BL[row].nonzero().squeeze(1)
            states.append(self._word_states(ids_L, positions_W))
        states_BWSD = pad_sequence(states, batch_first=True)

        if self.is_weighted:
            weights_S = self.layer_weights.softmax(0)
            inputs_BWD = self.layer_scale * torch.einsum("s,bwsd->bwd", weights_S, states_BWSD)
        else:
            inputs_BWD = states_BWSD.flatten(2)  # one layer, or several side by side
        lengths_B = is_word_BL.sum(1)
        inputs_BWD = F.dropout(inputs_BWD, self.rate, self.training)
        hidden_BWU = self.lstm(inputs_BWD, lengths_B)
        hidden_BWU = F.dropout(hidden_BWU, self.rate, self.training)
        logits_BWK = self.classifier(hidden_BWU).float()

        # Back from a row of words to a row of tokens, where the task looks for its words.
        words_W = torch.arange(logits_BWK.shape[1], device=lengths_B.device)
        is_real_BW = words_W < lengths_B[:, None]
        logits_BLK = logits_BWK.new_zeros(*is_word_BL.shape, logits_BWK.shape[2])
        return logits_BLK.index_put((is_word_BL,), logits_BWK[is_real_BW])

    def _word_states(self, ids_L: Tensor, positions_W: Tensor) -> Tensor:
        """Return the chosen hidden states (W, S, D) of a row's words."""
        ids = ids_L.cpu().numpy()
        positions = positions_W.cpu().numpy()
        key = ids.tobytes() + b"|" + positions.tobytes()
        if key in self._cached_states:
            return self._cached_states[key].to(ids_L.device)
        with torch.no_grad():
            all_states = self.encoder.hidden_states(ids_L[None], all_layers=True)
        states = []
        for layer in self.layers:
            states_LD = all_states[layer][0]
            states.append(states_LD[positions_W].float())
        states_WSD = torch.stack(states, dim=1)
        # Dev rows are computed once per run: not worth caching.
        if self.training and self._cached_bytes + states_WSD.nbytes <= CACHE_BYTES:
            self._cached_states[key] = states_WSD.cpu()
            self._cached_bytes += states_WSD.nbytes
        return states_WSD


@dataclass(frozen=True, kw_only=True)
class FeatureTagging(EntityRecognition):
    """Named entities from the hidden states of a frozen encoder."""

    features: str
    """One of `FEATURES`."""
    lstm_size: int
    """Units in each direction."""
    in_transformers: ClassVar[bool] = False

    @property
    def variant(self) -> str:
        """The variant in ``results.csv``."""
        return self.features

    def model(self, config: EncoderConfig) -> TaskModel:
        """Return the frozen encoder with a new BiLSTM."""
        return BiLstmTagger(of_bert(config), len(self.labels), self.features, self.lstm_size)

    def hf_settings(self) -> dict[str, Any]:
        """Return the classes for ``config.json``."""
        return {**super().hf_settings(), **ENCODER_ALONE}


def on_features(task: Task, features: str, lstm_size: int) -> FeatureTagging:
    """Return the task of named entities on these `features` of a frozen encoder."""
    assert isinstance(task, EntityRecognition)
    return FeatureTagging(**vars(task), features=features, lstm_size=lstm_size)
