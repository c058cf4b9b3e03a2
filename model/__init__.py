"""The encoder, pre-training, fine-tuning and evaluation, in plain PyTorch, without Beam.

The names below are the public API (see docs/api.md). They load on first use, so importing this
package is cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checkpoint import read_model
    from .config import ModelConfig, PretrainConfig
    from .finetuning.config import FinetuneConfig
    from .finetuning.finetune import finetune
    from .finetuning.predict import evaluate_task, predict
    from .heads import BertForPreTraining
    from .pretraining.dataset import InstanceDataset, collate
    from .pretraining.evaluate import evaluate
    from .pretraining.pretrain import pretrain
    from .training.loop import StopRequest

__all__ = [
    "BertForPreTraining",
    "FinetuneConfig",
    "InstanceDataset",
    "ModelConfig",
    "PretrainConfig",
    "StopRequest",
    "collate",
    "evaluate",
    "evaluate_task",
    "finetune",
    "predict",
    "pretrain",
    "read_model",
]

_MODULES = {
    "BertForPreTraining": "heads",
    "FinetuneConfig": "finetuning.config",
    "InstanceDataset": "pretraining.dataset",
    "ModelConfig": "config",
    "PretrainConfig": "config",
    "StopRequest": "training.loop",
    "collate": "pretraining.dataset",
    "evaluate": "pretraining.evaluate",
    "evaluate_task": "finetuning.predict",
    "finetune": "finetuning.finetune",
    "predict": "finetuning.predict",
    "pretrain": "pretraining.pretrain",
    "read_model": "checkpoint",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
