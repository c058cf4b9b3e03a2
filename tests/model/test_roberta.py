"""RoBERTa's family: logits, losses and gradients of ``transformers``; what is read and refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from clozeworks.model.checkpoint import Checkpoint, ModelFiles, save_model
from clozeworks.model.encoders import heads
from clozeworks.model.encoders.bert import RobertaForMaskedLM
from clozeworks.model.encoders.bert_config import CamembertConfig, RobertaConfig, XlmRobertaConfig
from clozeworks.model.encoders.catalogue import CONFIGS, read_hf
from clozeworks.model.encoders.encoder import initialise, real_tokens
from clozeworks.model.encoders.heads import PretrainBatch
from clozeworks.model.tasks.batches import TaskBatch
from clozeworks.model.tasks.classify import SequenceClassifier
from clozeworks.model.tasks.ner import TokenClassifier
from clozeworks.model.tasks.squad import SpanClassifier
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.vocabulary.files import MODEL_TYPES, check_model_beside
from torch import Tensor

from tests.fixtures.parity_fixture import check_learning

SMALL: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 80, "max_position_embeddings": 26,
}  # fmt: skip
KINDS = (RobertaConfig, XlmRobertaConfig, CamembertConfig)
LENGTHS = [3, 24, 11, 1]


def shaken(model: Any, config: RobertaConfig) -> Any:
    """Return a model whose biases, too, differ from their first values."""
    initialise(model, config, torch.Generator().manual_seed(1))
    for weight in model.state_dict().values():
        weight.add_(torch.linspace(-0.05, 0.05, weight.numel()).view(weight.shape))
    return model.eval()


def peer_of(config: RobertaConfig, name: str, weights: dict[str, Tensor], **fields: Any) -> Any:
    values: dict[str, Any] = {**config.to_hf(), **fields, "attn_implementation": "eager"}
    peer_config = transformers.AutoConfig.for_model(**values)
    peer = getattr(transformers, f"{config.hf_prefix}{name}")(peer_config).eval()
    missing, unexpected = peer.load_state_dict(weights, strict=False)
    assert not unexpected and all("lm_head.decoder" in name for name in missing)
    return peer


def rows() -> tuple[Tensor, Tensor, Tensor]:
    """Return ids, mask and labels of rows padded with 1."""
    generator = torch.Generator().manual_seed(3)
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    ids = torch.randint(2, SMALL["vocab_size"], mask.shape, generator=generator)
    ids = torch.where(mask, ids, 1)
    chosen = (torch.arange(mask.numel()).view(mask.shape) % 3 == 0) & mask
    return ids, mask, torch.where(chosen, ids.roll(1, 0), -100)


def batch_of(ids: Tensor, mask: Tensor, labels: Tensor, packed: bool = False) -> PretrainBatch:
    index = (labels.reshape(-1) != -100).nonzero().squeeze(1)
    tokens = real_tokens(mask) if packed else None
    # Segments are ignored, as of pairs.
    types = (torch.arange(ids.shape[1]) > 1).long().expand_as(ids)
    return PretrainBatch(ids, types, mask, tokens, index, labels.reshape(-1)[index], None)


@pytest.mark.parametrize("config", [kind(**SMALL) for kind in KINDS])
@pytest.mark.parametrize("packed", [False, True])
def test_logits_losses_and_gradients_are_those_of_transformers(config, packed):
    ours = shaken(RobertaForMaskedLM(config), config)
    peer = peer_of(config, "ForMaskedLM", ours.state_dict())
    ids, mask, labels = rows()
    theirs = peer(input_ids=ids, attention_mask=mask.long(), labels=labels)
    every = real_tokens(mask)
    hidden = ours.encoder(ids, None, mask)
    torch.testing.assert_close(
        ours.mlm_logits(hidden, every), theirs.logits.flatten(0, 1)[every], rtol=0, atol=1e-5
    )
    batch = batch_of(ids, mask, labels, packed)
    check_learning(ours, ours.sums(batch).mlm_loss / len(batch.masked_ids), peer, theirs.loss)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda config: SequenceClassifier(config, 2), "ForSequenceClassification"),
        (lambda config: TokenClassifier(config, 2), "ForTokenClassification"),
        (SpanClassifier, "ForQuestionAnswering"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_heads_are_those_of_transformers(kind, make, name):
    config = kind(**SMALL)
    ours = shaken(make(config), config)
    assert f"{config.hf_prefix}{ours.hf_name}" == f"{config.hf_prefix}{name}"
    peer = peer_of(config, name, ours.state_dict(), num_labels=2)
    ids, mask, _ = rows()
    target = torch.arange(len(ids)) % 2
    arguments: dict[str, Any] = {"labels": target}
    if name == "ForTokenClassification":
        target = torch.where(mask, ids % 2, -100)
        arguments = {"labels": target}
    if name == "ForQuestionAnswering":
        target = torch.zeros(len(ids), 2, dtype=torch.long)
        arguments = {"start_positions": target[:, 0], "end_positions": target[:, 1]}
    theirs = peer(input_ids=ids, attention_mask=mask.long(), **arguments)
    batch = TaskBatch(ids, torch.zeros_like(ids), mask, real_tokens(mask), target)
    outputs = ours(batch)
    if name == "ForQuestionAnswering":
        expected = torch.stack([theirs.start_logits, theirs.end_logits], -1)
        torch.testing.assert_close(outputs[mask], expected[mask], rtol=0, atol=1e-5)
        return  # its loss counts padding there
    chosen = mask if ours.per_token else slice(None)
    torch.testing.assert_close(outputs[chosen], theirs.logits[chosen], rtol=0, atol=1e-5)
    check_learning(ours, ours.loss(outputs, batch), peer, theirs.loss)


@pytest.mark.parametrize("with_head", [False, True])
def test_what_transformers_writes_is_read_and_the_other_way_round(with_head, tmp_path: Path):
    config = XlmRobertaConfig(**SMALL)
    peer_config = transformers.AutoConfig.for_model(**config.to_hf())
    name = "ForMaskedLM" if with_head else "Model"
    peer = getattr(transformers, f"XLMRoberta{name}")(peer_config).eval()
    peer.save_pretrained(tmp_path / "theirs")
    checkpoint = Checkpoint.open(tmp_path / "theirs")
    assert checkpoint.shape == config
    ours = RobertaForMaskedLM(config)
    missing = checkpoint.load_into(ours, new=() if with_head else ("lm_head.",))
    assert bool(missing) is not with_head
    save_model(tmp_path / "ours", ModelFiles(ours.state_dict(), config.to_hf(), {}))
    again = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "ours")
    ids, mask, _ = rows()
    expected = again(input_ids=ids, attention_mask=mask.long()).logits
    logits = ours.eval()(ids, mask).logits
    torch.testing.assert_close(logits[mask], expected[mask], rtol=0, atol=1e-5)


def test_positions_are_copied_behind_those_of_the_padding():
    config = RobertaConfig(**SMALL)
    ours = RobertaForMaskedLM(config)
    longer = ours.with_positions(50)
    table, before = (
        model.roberta.embeddings.position_embeddings.weight for model in (longer, ours)
    )
    assert longer.config.num_positions == 50 and len(table) == 52
    torch.testing.assert_close(table[:26], torch.cat([before[:1], before[:1], before[2:]]))
    torch.testing.assert_close(table[26:50], before[2:26])


def test_another_padding_moves_the_positions():
    config = RobertaConfig(**SMALL)
    ours = shaken(RobertaForMaskedLM(config), config)
    moved_config = RobertaConfig(**SMALL, pad_token_id=0)
    moved = RobertaForMaskedLM(moved_config)
    moved.load_state_dict(ours.weights_for(moved_config))
    ids = torch.tensor([[5, 6, 7]])
    expected = ours.eval()(ids).logits
    torch.testing.assert_close(moved.eval()(ids).logits, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("training", [False, True])
def test_chunks_of_logits_give_the_same_loss_and_gradient(monkeypatch, training):
    config = RobertaConfig(**SMALL, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    whole = shaken(RobertaForMaskedLM(config), config).train(training)
    chunked = shaken(RobertaForMaskedLM(config), config).train(training)
    batch = batch_of(*rows())
    expected = whole.sums(batch)
    expected.mlm_loss.backward()
    monkeypatch.setattr(RobertaConfig, "predicts_in_chunks", True)
    monkeypatch.setattr(heads, "CHUNK_LOGITS", 4 * config.vocab_size)
    sums = chunked.sums(batch)
    torch.testing.assert_close(sums.mlm_loss, expected.mlm_loss, rtol=1e-6, atol=0)
    assert sums.mlm_correct == expected.mlm_correct
    sums.mlm_loss.backward()
    for mine, other in zip(chunked.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "kind",
    ["deberta-v2", "neobert", "ltgbert", "electra", "distilbert", "mpnet", "albert", ["bert"]],
)
def test_other_kinds_are_refused_with_those_that_are_taken(kind):
    with pytest.raises(UserError, match="BERT, ModernBERT, RoBERTa, XLM-RoBERTa, CamemBERT can"):
        read_hf({"model_type": kind})


def test_the_names_of_what_is_taken_are_the_catalogues():
    assert {name: kind.title for name, kind in CONFIGS.items()} == MODEL_TYPES


def test_build_refuses_the_vocabulary_of_another_model_at_once(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"model_type": "distilbert"}')
    with pytest.raises(UserError, match=r"config\.json describes a model of type 'distilbert'"):
        check_model_beside(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "camembert"}')
    check_model_beside(str(tmp_path))
