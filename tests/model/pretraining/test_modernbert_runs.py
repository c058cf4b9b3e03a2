"""ModernBERT through every command, loaded by transformers; published ones as checkpoints."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from clozeworks.model.checkpoint import Checkpoint, read_model
from clozeworks.model.config import PretrainConfig
from clozeworks.model.encoders.modernbert_config import ModernBertConfig
from clozeworks.model.features.config import FeaturesConfig
from clozeworks.model.features.features import Extractor
from clozeworks.model.finetuning.config import FinetuneConfig
from clozeworks.model.finetuning.finetune import finetune
from clozeworks.model.pretraining.evaluate import evaluate
from clozeworks.model.pretraining.plan import make_plan
from clozeworks.model.pretraining.pretrain import pretrain
from clozeworks.model.pretraining.setup import initial_model
from clozeworks.model.training.optim import make_optimizer
from clozeworks.pipeline.errors import UserError
from safetensors.torch import load_file, save_file

from tests.fixtures.checkpoint_fixture import fill, make_checkpoint
from tests.fixtures.finetune_fixture import write_reviews

OPTIONS: dict[str, Any] = {"steps": 6, "batch_size": 12, "learning_rate": 2e-3}
SHAPE: dict[str, Any] = {
    "architecture": "modernbert", "model": "tiny", "num_layers": 4, "hidden_size": 32,
    "num_heads": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def run(instances, tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("run") / "run"
    pretrain(PretrainConfig(**OPTIONS, **SHAPE), [instances], output)
    return output


@pytest.fixture(scope="module")
def published(run, tmp_path_factory) -> Path:
    """A model as transformers saves one, with other weights and the tokenizer of `run`."""
    path = tmp_path_factory.mktemp("published")
    torch.manual_seed(3)
    values: dict[str, Any] = Checkpoint.open(run).shape.to_hf() | {"classifier_pooling": "mean"}
    config = transformers.ModernBertConfig(**values)
    transformers.ModernBertForMaskedLM(config).save_pretrained(path)
    transformers.AutoTokenizer.from_pretrained(run).save_pretrained(path)
    return path


def as_old_form(path: Path) -> None:
    """Write config.json as transformers did before version 5."""
    values = json.loads((path / "config.json").read_text())
    rope = values.pop("rope_parameters")
    del values["layer_types"]
    values["global_rope_theta"] = rope["full_attention"]["rope_theta"]
    values["local_rope_theta"] = rope["sliding_attention"]["rope_theta"]
    values["global_attn_every_n_layers"] = 3
    (path / "config.json").write_text(json.dumps(values))


@pytest.mark.slow
def test_the_run_is_a_hugging_face_model(run, instances):
    tokenizer = transformers.AutoTokenizer.from_pretrained(run)
    assert tokenizer.model_input_names == ["input_ids", "attention_mask"]
    loaded: Any = transformers.AutoModelForMaskedLM.from_pretrained(run, output_loading_info=True)
    peer, report = loaded
    assert type(peer) is transformers.ModernBertForMaskedLM
    assert not report["missing_keys"] and not report["unexpected_keys"]
    config = peer.config
    assert (config.pad_token_id, config.cls_token_id, config.sep_token_id) == (
        tokenizer.pad_token_id,
        tokenizer.cls_token_id,
        tokenizer.sep_token_id,
    )
    assert (config.bos_token_id, config.eos_token_id) == (config.cls_token_id, config.sep_token_id)
    encoding = tokenizer("w5 w6 [MASK] w7", return_tensors="pt")
    ours = read_model(run).eval()
    with torch.no_grad():
        expected = peer.eval()(**encoding).logits[0]
        states = ours.encoder(encoding["input_ids"])
        actual = ours.mlm_logits(states, torch.arange(states.shape[1]))
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)
    guesses = transformers.pipeline("fill-mask", model=str(run))("w5 [MASK] w7")
    assert [guess["token_str"] for guess in guesses] == [
        guess.token for guess in fill(run, "w5 [MASK] w7")[0]
    ]
    assert evaluate(run, instances)["mlm_loss"] > 0
    card = (run / "README.md").read_text()
    assert "A ModernBERT encoder pre-trained" in card and "\n- modernbert\n" in card


def test_vectors_are_not_decayed_and_matrices_are(run):
    model = read_model(run)
    decayed, not_decayed = make_optimizer(model).param_groups
    assert decayed["weight_decay"] > 0 and not_decayed["weight_decay"] == 0
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    vectors = {names[id(parameter)] for parameter in not_decayed["params"]}
    assert {"model.final_norm.weight", "model.layers.1.attn_norm.weight", "decoder.bias"} <= vectors
    assert vectors == {name for name in names.values() if "norm" in name or "bias" in name}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "hidden_size", "size"),
    [("bert", 768, 0.1 / 0.001**0.5), ("bert", 32, 1), ("modernbert", 32, 1)],
)
def test_only_the_first_update_of_a_bert_of_the_papers_width_is_larger(
    instances, tmp_path, architecture, hidden_size, size
):
    """Without bias correction Adam's first update is sqrt(10) times the rate."""
    fields: dict[str, Any] = OPTIONS | SHAPE | {"architecture": architecture, "objective": "mlm"}
    fields |= {"num_layers": 1, "hidden_size": hidden_size}
    fields |= {"steps": 1, "warmup_steps": 0, "learning_rate": 1e-3}
    config = PretrainConfig(**fields)
    before = initial_model(make_plan(config, [instances]).shape, config.seed).state_dict()
    pretrain(config, [instances], tmp_path / "run")
    after = read_model(tmp_path / "run").state_dict()
    embeddings = next(name for name in before if "embeddings" in name and name in after)
    changed = (after[embeddings] - before[embeddings]).abs().max().item()
    assert changed == pytest.approx(size * 1e-3, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["present", "before 5", "encoder alone"])
def test_a_published_model_is_taken_as_a_checkpoint(published, instances, tmp_path, form, capsys):
    model = tmp_path / "model"
    model.mkdir()
    for file in published.iterdir():
        (model / file.name).write_bytes(file.read_bytes())
    if form == "before 5":
        as_old_form(model)
    if form == "encoder alone":
        weights = load_file(model / "model.safetensors")
        encoder = {
            name.removeprefix("model."): weight
            for name, weight in weights.items()
            if name.startswith("model.")
        }
        save_file(encoder, model / "model.safetensors", {"format": "pt"})
    peer = transformers.AutoModel.from_pretrained(model).eval()
    ids = torch.tensor([[2, 9, 8, 7, 3]])
    extractor = Extractor(Checkpoint.open(model), FeaturesConfig())
    with torch.no_grad():
        torch.testing.assert_close(
            extractor.encoder(ids), peer(ids).last_hidden_state, rtol=0, atol=1e-5
        )
    config = replace(PretrainConfig(**OPTIONS), steps=1, checkpoint=str(model))
    pretrain(config, [instances], tmp_path / "adapted")
    lacks = f"{model} has no masked-LM head; they start from random weights.\n"
    assert capsys.readouterr().err.endswith(lacks if form == "encoder alone" else "")
    shape = Checkpoint.open(tmp_path / "adapted").shape
    assert isinstance(shape, ModernBertConfig) and shape.classifier_pooling == "mean"
    if form != "encoder alone":
        assert evaluate(model, instances)["mlm_loss"] > 0
        assert len(fill(model, "w5 [MASK]")[0]) == 5


@pytest.mark.slow
def test_a_fine_tuned_modernbert_is_a_hugging_face_model(tmp_path):
    bert = make_checkpoint(tmp_path / "bert")
    size = Checkpoint.open(bert).shape.vocab_size
    fields: dict[str, Any] = ModernBertConfig.vocabulary_fields(size, 0, 2, 3)
    fields |= {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    fields |= {"intermediate_size": 64, "max_position_embeddings": 64}
    shape = ModernBertConfig(**fields)
    transformers.ModernBertForMaskedLM(
        transformers.ModernBertConfig(**shape.to_hf())
    ).save_pretrained(bert)
    data = write_reviews(tmp_path / "reviews")
    config = FinetuneConfig(epochs=1.0, learning_rates=(1e-3,), max_length=32)
    finetune("classify", str(data), str(bert), tmp_path / "task", config)
    loaded: Any = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "task", output_loading_info=True
    )
    peer, report = loaded
    assert type(peer) is transformers.ModernBertForSequenceClassification
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert "A ModernBERT encoder fine-tuned" in (tmp_path / "task" / "README.md").read_text()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": "mlm+nsp"}, "^`objective` is mlm.nsp, but a ModernBERT is .* on mlm; leave"),
        ({"objective": "ltr"}, "^`objective` is ltr, but a ModernBERT is .* on mlm; leave"),
    ],
)
def test_what_an_encoder_cannot_do_is_refused_in_a_line(instances, tmp_path, changes, message):
    config = PretrainConfig(**OPTIONS | SHAPE | changes)
    with pytest.raises(UserError, match=message):
        pretrain(config, [instances], tmp_path / "run")
    assert not (tmp_path / "run").exists() or "checkpoints" not in {
        path.name for path in (tmp_path / "run").iterdir()
    }


def test_a_checkpoint_decides_the_architecture(run, instances, tmp_path):
    config = PretrainConfig(**OPTIONS, checkpoint=str(run), architecture="bert")
    with pytest.raises(UserError, match=f"`architecture` is bert, but the model in {run} is a Mod"):
        pretrain(config, [instances], tmp_path / "other")


@pytest.mark.parametrize(("max_length", "theta"), [(24, 10_000.0), (1100, 160_000.0)])
def test_the_base_frequency_follows_the_length_of_the_rows(max_length, theta):
    shape = ModernBertConfig.named("tiny", max_position_embeddings=max(512, max_length))
    assert (shape.global_rope_theta, shape.local_rope_theta) == (theta, 10_000.0)
    short = ModernBertConfig.named("tiny", max_position_embeddings=500)
    assert short.with_positions(max_length).global_rope_theta == theta
