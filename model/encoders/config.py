"""The shape of an encoder, whichever it is."""

from collections.abc import Mapping
from typing import Any

from ...pipeline.errors import UserError
from .bert_config import ModelConfig
from .modernbert_config import ModernBertConfig

EncoderConfig = ModelConfig | ModernBertConfig
CONFIGS: Mapping[str, type[EncoderConfig]] = {
    config.model_type: config for config in (ModelConfig, ModernBertConfig)
}
"""By ``model_type``, which is also what `PretrainConfig` calls them."""


def read_hf(values: dict[str, Any], path: object = "config.json") -> EncoderConfig:
    """Return the shape in a ``config.json``; raises `UserError` for another kind of model, and for
    a field that does not fit.
    """
    # Files of 2018 do not say; they are BERT's.
    kind = values.get("model_type", "bert")
    if kind not in CONFIGS:
        raise UserError(f"The model is {kind!r}; only BERT and ModernBERT are read.")
    return CONFIGS[kind].from_hf(values, path)
