"""Choose the encoder's class by its configuration: the one place that knows how many there are."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from torch import Tensor, nn

from .bert import BertForPreTraining, BertModel
from .config import EncoderConfig
from .encoder import Encoder
from .heads import PretrainModel
from .modernbert import ModernBertForMaskedLM, ModernBertModel, PredictionHead


class _Classes(NamedTuple):
    encoder: Callable[..., Encoder]
    pretrain_model: type[PretrainModel]
    task_head: Callable[..., nn.Module]


_CLASSES = {
    "bert": _Classes(BertModel, BertForPreTraining, lambda config: nn.Identity()),
    "modernbert": _Classes(ModernBertModel, ModernBertForMaskedLM, PredictionHead),
}
"""By ``model_type``, as in `config.CONFIGS`."""


def make_encoder(config: EncoderConfig) -> Encoder:
    """Return the encoder that `config` describes; its weights are not initialised yet."""
    return _CLASSES[config.model_type].encoder(config)


def make_pretrain_model(config: EncoderConfig) -> PretrainModel:
    """Return the encoder with the heads of pre-training; weights are not initialised yet."""
    return _CLASSES[config.model_type].pretrain_model(config)


def make_task_head(config: EncoderConfig) -> nn.Module:
    """Return the layers between hidden states, pooled or not, and a task's last layer.

    BERT has none: what it does there is a part of its pooler.
    """
    return _CLASSES[config.model_type].task_head(config)


def current_names(config: EncoderConfig, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a checkpoint under the names of ``transformers`` today."""
    return _CLASSES[config.model_type].pretrain_model.current_names(weights)
