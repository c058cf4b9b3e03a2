"""Choose the encoder's class by its configuration: the one place that knows how many there are."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .bert import BertForPreTraining, BertModel
from .config import EncoderConfig
from .encoder import Encoder
from .heads import PretrainModel
from .modernbert import ModernBertForMaskedLM, ModernBertModel


@dataclass(frozen=True)
class _Classes:
    encoder: Any
    pretrain_model: Any


_CLASSES = {
    "bert": _Classes(BertModel, BertForPreTraining),
    "modernbert": _Classes(ModernBertModel, ModernBertForMaskedLM),
}
"""By ``model_type``, as in `config.CONFIGS`."""


def make_encoder(config: EncoderConfig) -> Encoder:
    """Return the encoder that `config` describes; its weights are not initialised yet."""
    return _CLASSES[config.model_type].encoder(config)


def make_pretrain_model(config: EncoderConfig) -> PretrainModel:
    """Return the encoder with the heads of pre-training; weights are not initialised yet."""
    return _CLASSES[config.model_type].pretrain_model(config)


def current_names(config: EncoderConfig, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a checkpoint under the names of ``transformers`` today."""
    return _CLASSES[config.model_type].pretrain_model.current_names(weights)
