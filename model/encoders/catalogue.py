"""The encoders by the ``model_type`` in ``config.json``: the one place that knows how many, but for
the names in `vocabulary.files`, which import no torch.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ...pipeline.vocabulary.files import check_model_type
from .bert import BertForPreTraining, RobertaForMaskedLM
from .bert_config import CamembertConfig, ModelConfig, RobertaConfig, XlmRobertaConfig
from .config import EncoderConfig
from .encoder import Encoder
from .heads import PretrainModel
from .modernbert import ModernBertForMaskedLM
from .modernbert_config import ModernBertConfig

_MODELS: Mapping[type[EncoderConfig], type[PretrainModel]] = {
    ModelConfig: BertForPreTraining,
    ModernBertConfig: ModernBertForMaskedLM,
    RobertaConfig: RobertaForMaskedLM,
    XlmRobertaConfig: RobertaForMaskedLM,
    CamembertConfig: RobertaForMaskedLM,
}
CONFIGS = {config.model_type: config for config in _MODELS}
"""The classes of their shapes; by the names that `PretrainConfig`, too, calls them by."""


def read_hf(values: dict[str, Any], path: object = "config.json") -> EncoderConfig:
    """Return the shape in a ``config.json``; raises `UserError` for what is not built here."""
    kind = check_model_type(values, path)
    return CONFIGS[kind].from_hf(values, path)


def make_encoder(config: EncoderConfig) -> Encoder:
    """Return the encoder that `config` describes; its weights are not initialised yet."""
    return _MODELS[type(config)].encoder_class(config)


def make_pretrain_model(config: EncoderConfig) -> PretrainModel:
    """Return the encoder with the heads of pre-training; weights are not initialised yet."""
    return _MODELS[type(config)](config)


def current_names(config: EncoderConfig, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a checkpoint under the names of ``transformers`` today."""
    return _MODELS[type(config)].current_names(weights)
