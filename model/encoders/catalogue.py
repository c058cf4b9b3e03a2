"""The encoders by the ``model_type`` in ``config.json``: the one place that knows how many, but for
the names in `vocabulary.files`, which import no torch.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch import Tensor

from ...pipeline.vocabulary.files import check_model_type
from .bert import BertForPreTraining, BertModel
from .bert_config import CamembertConfig, ModelConfig, RobertaConfig, XlmRobertaConfig
from .config import EncoderConfig
from .encoder import Encoder
from .heads import PretrainModel
from .modernbert import ModernBertForMaskedLM, ModernBertModel
from .modernbert_config import ModernBertConfig
from .roberta import RobertaForMaskedLM, RobertaModel


class _Kind(NamedTuple):
    config: type[EncoderConfig]
    encoder: Callable[..., Encoder]
    pretrain_model: type[PretrainModel]


_KINDS = (
    _Kind(ModelConfig, BertModel, BertForPreTraining),
    _Kind(ModernBertConfig, ModernBertModel, ModernBertForMaskedLM),
    _Kind(RobertaConfig, RobertaModel, RobertaForMaskedLM),
    _Kind(XlmRobertaConfig, RobertaModel, RobertaForMaskedLM),
    _Kind(CamembertConfig, RobertaModel, RobertaForMaskedLM),
)
_KIND_BY_TYPE = {kind.config.model_type: kind for kind in _KINDS}
CONFIGS: Mapping[str, type[EncoderConfig]] = {
    name: kind.config for name, kind in _KIND_BY_TYPE.items()
}
"""The classes of their shapes; by the names that `PretrainConfig`, too, calls them by."""


def read_hf(values: dict[str, Any], path: object = "config.json") -> EncoderConfig:
    """Return the shape in a ``config.json``; raises `UserError` for what is not built here."""
    kind = check_model_type(values, path)
    return CONFIGS[kind].from_hf(values, path)


def make_encoder(config: EncoderConfig) -> Encoder:
    """Return the encoder that `config` describes; its weights are not initialised yet."""
    return _KIND_BY_TYPE[config.model_type].encoder(config)


def make_pretrain_model(config: EncoderConfig) -> PretrainModel:
    """Return the encoder with the heads of pre-training; weights are not initialised yet."""
    return _KIND_BY_TYPE[config.model_type].pretrain_model(config)


def current_names(config: EncoderConfig, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a checkpoint under the names of ``transformers`` today."""
    return _KIND_BY_TYPE[config.model_type].pretrain_model.current_names(weights)
