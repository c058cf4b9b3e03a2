"""The encoder, pre-training, fine-tuning and evaluation, in plain PyTorch, without Beam.

The names below are the public API (see docs/api.md). They load on first use, so importing this
package is cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..pipeline.errors import how_to_install

if TYPE_CHECKING:
    from .checkpoint import read_model as read_model
    from .config import PretrainConfig as PretrainConfig
    from .encoders.bert import BertForPreTraining as BertForPreTraining
    from .encoders.bert import BertModel as BertModel
    from .encoders.bert_config import ModelConfig as ModelConfig
    from .encoders.config import EncoderConfig as EncoderConfig
    from .encoders.modernbert import ModernBertForMaskedLM as ModernBertForMaskedLM
    from .encoders.modernbert_config import ModernBertConfig as ModernBertConfig
    from .finetuning.config import FinetuneConfig as FinetuneConfig
    from .finetuning.evaluate import evaluate_task as evaluate_task
    from .finetuning.finetune import finetune as finetune
    from .finetuning.predict import predict as predict
    from .notices import StopRequest as StopRequest
    from .pretraining.dataset import InstanceDataset as InstanceDataset
    from .pretraining.dataset import collate as collate
    from .pretraining.evaluate import evaluate as evaluate
    from .pretraining.pretrain import pretrain as pretrain
    from .tasks.batches import Feature as Feature
    from .tasks.batches import TaskBatch as TaskBatch
    from .tasks.classify import Classification as Classification
    from .tasks.classify import SequenceClassifier as SequenceClassifier
    from .tasks.ner import EntityRecognition as EntityRecognition
    from .tasks.splits import make_task as make_task
    from .tasks.squad import SpanClassifier as SpanClassifier
    from .tasks.squad import Squad as Squad
    from .tasks.task import Task as Task
    from .tasks.task import TaskModel as TaskModel

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
if not TYPE_CHECKING:  # which sees the names above
    __all__ = list(_MODULES)


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
    return sorted({*globals(), *_MODULES})
