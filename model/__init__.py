"""The encoder, pre-training, fine-tuning and evaluation, in plain PyTorch, without Beam.

The names below are the public API (see docs/api.md). They load on first use, so importing this
package is cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..pipeline.errors import how_to_install

if TYPE_CHECKING:
    from .checkpoint import read_model
    from .config import PretrainConfig
    from .encoders.bert import BertForPreTraining, BertModel
    from .encoders.bert_config import ModelConfig
    from .encoders.config import EncoderConfig
    from .encoders.modernbert import ModernBertForMaskedLM
    from .encoders.modernbert_config import ModernBertConfig
    from .finetuning.config import FinetuneConfig
    from .finetuning.evaluate import evaluate_task
    from .finetuning.finetune import finetune
    from .finetuning.predict import predict
    from .notices import StopRequest
    from .pretraining.dataset import InstanceDataset, collate
    from .pretraining.evaluate import evaluate
    from .pretraining.pretrain import pretrain
    from .tasks.batches import Feature, TaskBatch
    from .tasks.classify import Classification, SequenceClassifier
    from .tasks.ner import EntityRecognition
    from .tasks.splits import make_task
    from .tasks.squad import SpanClassifier, Squad
    from .tasks.task import Task, TaskModel

__all__ = [
    "BertForPreTraining",
    "BertModel",
    "Classification",
    "EncoderConfig",
    "EntityRecognition",
    "Feature",
    "FinetuneConfig",
    "InstanceDataset",
    "ModelConfig",
    "ModernBertConfig",
    "ModernBertForMaskedLM",
    "PretrainConfig",
    "SequenceClassifier",
    "SpanClassifier",
    "Squad",
    "StopRequest",
    "Task",
    "TaskBatch",
    "TaskModel",
    "collate",
    "evaluate",
    "evaluate_task",
    "finetune",
    "make_task",
    "predict",
    "pretrain",
    "read_model",
]

_MODULES = {
    "BertForPreTraining": "encoders.bert",
    "BertModel": "encoders.bert",
    "Classification": "tasks.classify",
    "EncoderConfig": "encoders.config",
    "EntityRecognition": "tasks.ner",
    "Feature": "tasks.batches",
    "FinetuneConfig": "finetuning.config",
    "InstanceDataset": "pretraining.dataset",
    "ModelConfig": "encoders.bert_config",
    "ModernBertConfig": "encoders.modernbert_config",
    "ModernBertForMaskedLM": "encoders.modernbert",
    "PretrainConfig": "config",
    "SequenceClassifier": "tasks.classify",
    "SpanClassifier": "tasks.squad",
    "Squad": "tasks.squad",
    "StopRequest": "notices",
    "Task": "tasks.task",
    "TaskBatch": "tasks.batches",
    "TaskModel": "tasks.task",
    "collate": "pretraining.dataset",
    "evaluate": "pretraining.evaluate",
    "evaluate_task": "finetuning.evaluate",
    "finetune": "finetuning.finetune",
    "make_task": "tasks.splits",
    "predict": "finetuning.predict",
    "pretrain": "pretraining.pretrain",
    "read_model": "checkpoint",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    except ModuleNotFoundError as error:
        if install := how_to_install(error):
            error.msg = f"clozeworks.model.{name} needs {install}"
        raise


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
