"""ONNX graphs compute what PyTorch computes, for every kind of model, batch and length."""

from pathlib import Path

import pytest
import torch
from clozeworks.model.encoders.bert_config import ModelConfig
from clozeworks.model.encoders.catalogue import make_pretrain_model
from clozeworks.model.encoders.encoder import initialise
from clozeworks.model.encoders.modernbert_config import ModernBertConfig
from clozeworks.model.onnx.export import TOLERANCE, _difference
from clozeworks.model.onnx.graph import Traceable, write_graph
from clozeworks.model.onnx.session import Session
from clozeworks.model.tasks.choice import ChoiceModel
from clozeworks.model.tasks.label_head import SequenceClassifier
from clozeworks.model.tasks.squad import SpanClassifier
from clozeworks.model.tasks.tagging import TokenClassifier
from clozeworks.pipeline.errors import UserError

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
BERT = ModelConfig(
    vocab_size=99,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=48,
    max_position_embeddings=256,
    initializer_range=0.1,
)
MODERNBERT = ModernBertConfig(
    vocab_size=99,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=48,
    max_position_embeddings=256,
    local_attention=8,  # shorter than the rows, so that a window that is ignored shows
    initializer_range=0.1,
    classifier_pooling="mean",
    pad_token_id=0,
    cls_token_id=1,
    sep_token_id=2,
)
MODELS = {
    "masked words": make_pretrain_model,
    "classes": lambda config: SequenceClassifier(config, 3),
    "tags": lambda config: TokenClassifier(config, 5),
    "spans": SpanClassifier,
    "choices": lambda config: ChoiceModel(config, 4),
}


# An export takes seconds, so the heads are divided between the encoders.
ON_BERT = ("masked words", "classes", "spans", "choices")
ON_MODERNBERT = ("masked words", "classes", "tags", "choices")
PAIRS = [
    *(pytest.param(BERT, kind, id=f"bert-{kind}") for kind in ON_BERT),
    *(pytest.param(MODERNBERT, kind, id=f"modernbert-{kind}") for kind in ON_MODERNBERT),
]


@pytest.mark.slow
@pytest.mark.parametrize(("config", "kind"), PAIRS)
def test_a_graph_equals_pytorch(config, kind: str, tmp_path: Path):
    model = MODELS[kind](config)
    initialise(model, config, torch.Generator().manual_seed(3))
    traceable = Traceable(model)
    write_graph(traceable, tmp_path / "model.onnx")
    session = Session(traceable, tmp_path / "model.onnx")
    assert _difference(session) < TOLERANCE
    # Other weights are found out, so the measure can fail.
    with torch.no_grad():
        next(model.parameters()).normal_()
    assert _difference(session) > TOLERANCE


def test_a_left_to_right_model_is_refused():
    config = ModelConfig(**{**vars(BERT), "is_decoder": True})
    with pytest.raises(UserError, match="left-to-right model has no ONNX form"):
        Traceable(make_pretrain_model(config))
