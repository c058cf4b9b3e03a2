"""The encoders by the ``model_type`` in ``config.json``: the one place that knows how many."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn

from ...pipeline.errors import UserError
from .bert import BertForPreTraining, BertModel
from .bert_config import ModelConfig
from .config import EncoderConfig
from .encoder import Encoder
from .heads import PretrainModel
from .modernbert import ModernBertForMaskedLM, ModernBertModel, PredictionHead
from .modernbert_config import ModernBertConfig


class _Kind(NamedTuple):
    config: type[EncoderConfig]
    encoder: Callable[..., Encoder]
    pretrain_model: type[PretrainModel]
    task_head: Callable[..., nn.Module]


_KINDS = (
    _Kind(ModelConfig, BertModel, BertForPreTraining, lambda config: nn.Identity()),
    _Kind(ModernBertConfig, ModernBertModel, ModernBertForMaskedLM, PredictionHead),
)
_KIND_BY_TYPE = {kind.config.model_type: kind for kind in _KINDS}
CONFIGS: Mapping[str, type[EncoderConfig]] = {
    name: kind.config for name, kind in _KIND_BY_TYPE.items()
}
"""The classes of their shapes; by the names that `PretrainConfig`, too, calls them by."""


def read_hf(values: dict[str, Any], path: object = "config.json") -> EncoderConfig:
    """Return the shape in a ``config.json``; raises `UserError` for another kind of model, and for
    a field that does not fit.
    """
    # Files of 2018 do not say; they are BERT's.
    kind = values.get("model_type", "bert")
    if kind not in CONFIGS:
        raise UserError(f"The model is {kind!r}; only BERT and ModernBERT are read.")
    return CONFIGS[kind].from_hf(values, path)


def make_encoder(config: EncoderConfig) -> Encoder:
    """Return the encoder that `config` describes; its weights are not initialised yet."""
    return _KIND_BY_TYPE[config.model_type].encoder(config)


def make_pretrain_model(config: EncoderConfig) -> PretrainModel:
    """Return the encoder with the heads of pre-training; weights are not initialised yet."""
    return _KIND_BY_TYPE[config.model_type].pretrain_model(config)


def make_task_head(config: EncoderConfig) -> nn.Module:
    """Return the layers between hidden states, pooled or not, and a task's last layer.

    BERT has none: what it does there is a part of its pooler.
    """
    return _KIND_BY_TYPE[config.model_type].task_head(config)


def current_names(config: EncoderConfig, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a checkpoint under the names of ``transformers`` today."""
    return _KIND_BY_TYPE[config.model_type].pretrain_model.current_names(weights)
