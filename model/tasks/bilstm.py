"""The BiLSTMs of the paper: on hidden states of a frozen encoder (section 5.3), and on top of one
that is fine-tuned (section 5.1).

Shapes: B rows, L padded length, W words of a row, S chosen layers, D hidden size, U units in each
direction, K classes.
"""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from ...pipeline.errors import UserError
from ..bert import BertModel, dropout
from ..config import ModelConfig
from .options import TaskOptions
from .task import IGNORED, TaskBatch, TaskModel

LSTM_SIZE = 768
CACHE_BYTES = 4 << 30


def chosen_layers(features: str, num_layers: int) -> list[int]:
    """Return the indices of the hidden states in a row of the paper's Table 7; 0 is the embeddings.

    >>> chosen_layers("concat-last-four", 12), chosen_layers("second-to-last", 12)
    ([9, 10, 11, 12], [11])
    """
    if features.endswith("last-four") and num_layers < 4:
        raise UserError(f"--features is {features}, but the encoder has only {num_layers} layers.")
    return {
        "embeddings": [0],
        "second-to-last": [num_layers - 1],
        "last": [num_layers],
        "weighted-sum-last-four": list(range(num_layers - 3, num_layers + 1)),
        "concat-last-four": list(range(num_layers - 3, num_layers + 1)),
        "weighted-sum-all": list(range(1, num_layers + 1)),
    }[features]


class BiLstm(nn.Module):
    """Two BiLSTM layers with dropout between them, on rows padded at their right.

    Each layer has an LSTM for either direction; the second reads every row turned round, so that
    neither meets padding before a row's end. PyTorch's own BiLSTM needs packed rows for that, hence
    the lengths on the host at every step, and takes two to five times as long on a CPU.
    """

    def __init__(self, input_size: int, lstm_size: int, rate: float):
        super().__init__()
        self.rate = rate
        sizes = (input_size, 2 * lstm_size)
        self.rightwards, self.leftwards = (
            nn.ModuleList(nn.LSTM(size, lstm_size, batch_first=True) for size in sizes)
            for _ in range(2)
        )

    def forward(self, values_BLD: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the outputs (B, L, 2 U) for rows of `lengths_B` values; those at the padding mean
        nothing.
        """
        positions_L = torch.arange(values_BLD.shape[1], device=values_BLD.device)
        turned_BL = (lengths_B[:, None] - 1 - positions_L).clamp(min=0)
        rows_B1 = torch.arange(len(lengths_B), device=values_BLD.device)[:, None]
        on_cpu = values_BLD.device.type == "cpu"
        if on_cpu:
            values_BLD = values_BLD.float()
        # oneDNN has no LSTM in bf16 for a CPU without AVX-512, and emulates it slowly on most
        # others.
        with torch.autocast(
            values_BLD.device.type,
            enabled=torch.is_autocast_enabled(values_BLD.device.type) and not on_cpu,
        ):
            for layer, (rightwards, leftwards) in enumerate(
                zip(self.rightwards, self.leftwards, strict=True)
            ):
                if layer:
                    values_BLD = dropout(values_BLD, self.rate, self.training)
                right_BLU = rightwards(values_BLD)[0]
                left_BLU = leftwards(values_BLD[rows_B1, turned_BL])[0][rows_B1, turned_BL]
                values_BLD = torch.cat([right_BLU, left_BLU], dim=2)
        return values_BLD


def bilstm_size(options: TaskOptions) -> int | None:
    """Return the units in each direction of the BiLSTM on top of the encoder; None for none."""
    return (options.lstm_size or LSTM_SIZE) if options.bilstm else None


class BiLstmTagger(TaskModel):
    """Two BiLSTM layers and a linear layer on the hidden states of each word's first token; the
    encoder is frozen.

    Weighted sums are ELMo's (arXiv 1802.05365). The states of a row are computed once, in the first
    epoch, and cached in memory up to `CACHE_BYTES`. Each row is computed alone: in a batch its last
    bits would depend on the other rows, and so on where a run was interrupted.
    """

    per_token = True

    def __init__(self, config: ModelConfig, num_classes: int, features: str, lstm_size: int):
        super().__init__()
        self.bert = BertModel(config).requires_grad_(False)
        self.layers = chosen_layers(features, config.num_hidden_layers)
        self.is_weighted = features.startswith("weighted")
        if self.is_weighted:
            self.layer_weights = nn.Parameter(torch.zeros(len(self.layers)))
            self.scale = nn.Parameter(torch.ones(()))
        self.rate = config.hidden_dropout_prob
        input_size = config.hidden_size * (1 if self.is_weighted else len(self.layers))
        self.lstm = BiLstm(input_size, lstm_size, self.rate)
        self.classifier = nn.Linear(2 * lstm_size, num_classes)
        self._cache: dict[bytes, Tensor] = {}
        self._cached_bytes = 0

    def forward(self, batch: TaskBatch) -> Tensor:
        """Return logits (B, L, K), 0 for tokens whose target is `IGNORED`."""
        assert batch.target is not None
        is_word_BL = batch.target != IGNORED
        rows = zip(batch.input_ids_BL, batch.attention_mask_BL, is_word_BL, strict=True)
        states = [
            self._states(ids_L[mask_L], word_L.nonzero().squeeze(1))
            for ids_L, mask_L, word_L in rows
        ]
        lengths_B = is_word_BL.sum(1)
        states_BWSD = pad_sequence(states, batch_first=True)
        if self.is_weighted:
            values_BWD = self.scale * torch.einsum(
                "s,bwsd->bwd", self.layer_weights.softmax(0), states_BWSD
            )
        else:
            values_BWD = states_BWSD.flatten(2)
        hidden_BWD = self.lstm(dropout(values_BWD, self.rate, self.training), lengths_B)
        logits_BWK = self.classifier(dropout(hidden_BWD, self.rate, self.training)).float()
        is_real_BW = torch.arange(logits_BWK.shape[1], device=lengths_B.device) < lengths_B[:, None]
        logits_BLK = logits_BWK.new_zeros(*is_word_BL.shape, logits_BWK.shape[2])
        return logits_BLK.index_put((is_word_BL,), logits_BWK[is_real_BW])

    def _states(self, ids_L: Tensor, positions_W: Tensor) -> Tensor:
        """Return the chosen hidden states (W, S, D) of a row's words."""
        key = ids_L.cpu().numpy().tobytes() + b"|" + positions_W.cpu().numpy().tobytes()
        if key in self._cache:
            return self._cache[key].to(ids_L.device)
        with torch.no_grad():
            all_states = self.bert.hidden_states(ids_L[None], all_layers=True)
            states_WSD = torch.stack(
                [all_states[layer][0, positions_W].float() for layer in self.layers], 1
            )
        # Dev rows are computed once per run: not worth caching.
        if self.training and self._cached_bytes + states_WSD.nbytes <= CACHE_BYTES:
            self._cache[key] = states_WSD.cpu()
            self._cached_bytes += states_WSD.nbytes
        return states_WSD
