"""Model directories: round trips with transformers, old names, and damage."""

import json
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
import transformers
from clozeworks.model.checkpoint import Checkpoint, ModelFiles, read_model, save_model
from clozeworks.model.encoders.bert import BertForPreTraining, BertModel
from clozeworks.model.encoders.bert_config import ACTIVATIONS, ModelConfig
from clozeworks.model.encoders.encoder import initialise
from clozeworks.model.pretraining.setup import PretrainState
from clozeworks.model.tokenizer import TextTokenizer
from clozeworks.model.training import run
from clozeworks.pipeline.errors import RunError, UserError
from safetensors.torch import load_file, save_file

CONFIG = ModelConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24
)


@pytest.fixture
def model() -> BertForPreTraining:
    model = BertForPreTraining(CONFIG)
    initialise(model, CONFIG, torch.Generator().manual_seed(4))
    return model


@pytest.fixture
def saved(model, tmp_path):
    save_model(
        tmp_path / "model",
        ModelFiles(model.state_dict(), CONFIG.to_hf(), {"vocab.txt": b"[PAD]\n"}),
    )
    return tmp_path / "model"


def same(one: torch.nn.Module, two: torch.nn.Module) -> bool:
    mine, other = one.state_dict(), two.state_dict()
    return mine.keys() == other.keys() and all(
        torch.equal(mine[name], other[name]) for name in mine
    )


def test_round_trip(model, saved):
    assert {path.name for path in saved.iterdir()} == {
        "model.safetensors",
        "config.json",
        "vocab.txt",
    }
    assert Checkpoint.open(saved).shape == CONFIG
    assert same(read_model(saved), model)


@pytest.mark.slow
@pytest.mark.parametrize("safe", [True, False])
def test_reads_what_transformers_saves(tmp_path, safe):
    values: dict[str, Any] = CONFIG.to_hf()
    peer = transformers.BertForPreTraining(transformers.BertConfig(**values)).eval()
    peer.save_pretrained(tmp_path)
    if not safe:
        torch.save(peer.state_dict(), tmp_path / "pytorch_model.bin")
        (tmp_path / "model.safetensors").unlink()
    ours = read_model(tmp_path).eval()
    ids = torch.arange(12).view(2, 6)
    with torch.no_grad():
        logits = ours.mlm_logits(ours.encoder(ids), torch.arange(12)).view(2, 6, 50)
        torch.testing.assert_close(logits, peer(ids).prediction_logits, rtol=0, atol=1e-5)


def test_reads_the_names_of_2018_and_models_without_heads(model, saved):
    weights = load_file(saved / "model.safetensors")
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma"): weight
        for name, weight in weights.items()
    }
    old = {name.replace("LayerNorm.bias", "LayerNorm.beta"): weight for name, weight in old.items()}
    old["bert.embeddings.position_ids"] = torch.arange(512)[None]
    old["bert.embeddings.token_type_ids"] = torch.zeros(1, 512, dtype=torch.int64)
    old["cls.predictions.decoder.bias"] = old.pop("cls.predictions.bias")
    save_file(old, saved / "model.safetensors")
    assert same(read_model(saved), model)
    bare = {
        name.removeprefix("bert."): weight
        for name, weight in weights.items()
        if name.startswith("bert.")
    }
    save_file(bare, saved / "model.safetensors")
    assert Checkpoint.open(saved).weights().keys() == {
        name for name in weights if name.startswith("bert.")
    }
    missing = Checkpoint.open(saved).load_into(BertForPreTraining(CONFIG), new=("cls.",))
    assert missing == [name for name in model.state_dict() if name.startswith("cls.")]


def test_reads_weights_in_several_files(model, saved):
    peer = transformers.BertForPreTraining.from_pretrained(saved)
    (saved / "model.safetensors").unlink()
    peer.save_pretrained(saved, max_shard_size="5KB")
    shards = sorted(saved.glob("model-*.safetensors"))
    assert len(shards) > 1 and same(read_model(saved), model)
    digest = Checkpoint.open(saved).digest()
    shards[0].unlink()
    with pytest.raises(UserError, match=f"{shards[0].name} is missing, which"):
        read_model(saved)
    shards[0].write_bytes(b"")
    with pytest.raises(UserError, match=f"{shards[0].name} is damaged"):
        read_model(saved)
    assert Checkpoint.open(saved).digest() != digest


@pytest.mark.parametrize("name", ["config.json", "vocab.txt", "model.safetensors"])
def test_the_digest_is_of_all_that_decides_what_a_model_computes(saved, name):
    (saved / "vocab.txt").write_text("[PAD]\n")
    digest = Checkpoint.open(saved).digest()
    (saved / "README.md").write_text("# Another card")
    assert Checkpoint.open(saved).digest() == digest
    opened = Checkpoint.open(saved)
    with (saved / name).open("a") as file:
        file.write("\n")
    assert opened.digest() != digest


def test_an_output_matrix_of_its_own_is_refused_where_it_is_used(saved):
    peer = transformers.BertForPreTraining(
        transformers.BertConfig(**CONFIG.to_hf(), tie_word_embeddings=False)
    )
    peer.save_pretrained(saved)
    with pytest.raises(UserError, match=r"output matrix of its own \(cls.predictions.decoder"):
        read_model(saved)
    assert Checkpoint.open(saved).load_into(torch.nn.ModuleDict({"bert": BertModel(CONFIG)})) == []


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_is_that_of_transformers(tmp_path, name):
    shape = replace(CONFIG, hidden_act=name)
    peer = transformers.BertForPreTraining(transformers.BertConfig(**shape.to_hf())).eval()
    peer.save_pretrained(tmp_path)
    ids = torch.arange(12).view(2, 6)
    with torch.no_grad():
        hidden = read_model(tmp_path).eval().encoder(ids)
        torch.testing.assert_close(hidden, peer.bert(ids).last_hidden_state, rtol=0, atol=1e-6)


@pytest.mark.parametrize("content", ["{", '{"normalizer": ' + '{"normalizers": [' * 50_000])
def test_a_damaged_tokenizer_is_named(tmp_path, content):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(UserError, match=r"tokenizer\.json is damaged"):
        TextTokenizer(tmp_path)


def test_mistakes_are_named(saved, tmp_path):
    with pytest.raises(UserError, match=r"config\.json is missing"):
        Checkpoint.open(tmp_path)
    config = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps(config | {"hidden_size": 32}))
    with pytest.raises(UserError, match=r"has shape \(50, 16\), but this model needs \(50, 32\)"):
        read_model(saved)
    (saved / "config.json").write_text("{")
    with pytest.raises(UserError, match=r"config\.json is damaged"):
        Checkpoint.open(saved)
    (saved / "config.json").write_text(json.dumps(config))
    weights = load_file(saved / "model.safetensors")
    del weights["bert.pooler.dense.bias"]
    save_file(weights, saved / "model.safetensors")
    with pytest.raises(UserError, match=r"lacks bert\.pooler\.dense\.bias"):
        Checkpoint.open(saved).load_into(BertForPreTraining(CONFIG))
    opened = Checkpoint.open(saved)
    content = (saved / "model.safetensors").read_bytes()
    (saved / "model.safetensors").write_bytes(content[:300])
    with pytest.raises(UserError, match=r"model\.safetensors is damaged"):
        opened.weights()
    (saved / "model.safetensors").unlink()
    with pytest.raises(UserError, match="has no weights"):
        opened.weights()


def test_weights_inside_another_dictionary_are_named(saved):
    (saved / "model.safetensors").unlink()
    torch.save({"state_dict": BertForPreTraining(CONFIG).state_dict()}, saved / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"^state_dict in \S+ is not a tensor: pytorch_model\.bin"):
        Checkpoint.open(saved).weights()


class Payload:
    def __reduce__(self) -> Any:
        return os.mkdir, (os.environ["PAYLOAD"],)


def test_code_in_an_old_checkpoint_is_not_run(saved, tmp_path, monkeypatch):
    monkeypatch.setenv("PAYLOAD", str(tmp_path / "ran"))
    opened = Checkpoint.open(saved)
    (saved / "model.safetensors").unlink()
    torch.save({"bert.pooler.dense.bias": Payload()}, saved / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"pytorch_model\.bin is damaged"):
        opened.weights()
    assert not (tmp_path / "ran").exists()


def test_weights_in_eight_bits_are_refused(saved):
    weights = load_file(saved / "model.safetensors")
    weights["bert.pooler.dense.bias"] = weights["bert.pooler.dense.bias"].to(torch.float8_e4m3fn)
    save_file(weights, saved / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"is stored as torch\.float8_e4m3fn"):
        Checkpoint.open(saved).weights()


def save(output, model, step: int) -> None:
    tokenizer: dict[str, bytes] = dict.fromkeys(run.VOCABULARY_FILES, b"")
    files = ModelFiles(model.state_dict(), CONFIG.to_hf(), tokenizer)
    state = asdict(PretrainState(step))
    checkpoint = run.save_checkpoint(output, step, files, {"rate": step}, state)
    run.link_files(run.MODEL_FILES, checkpoint, output)


def test_the_latest_checkpoint_alone_is_kept_and_is_the_run_itself(model, tmp_path):
    for step in (9, 10, 9_999_999, 10_000_000):
        with torch.no_grad():
            model.cls.predictions.bias.fill_(step)
        save(tmp_path, model, step)
        assert len(list((tmp_path / "checkpoints").iterdir())) == 1
    (latest,) = run.checkpoints_of(tmp_path)
    assert latest.name == "step-10000000"
    optimizer, state = run.read_state(latest, PretrainState)
    assert (optimizer, state.step) == ({"rate": 10_000_000}, 10_000_000)
    assert same(read_model(tmp_path), model)
    assert same(read_model(latest), model)


@contextmanager
def full_disk(num_bytes: int) -> Iterator[None]:
    """Let no file grow beyond this size within the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.99])
@pytest.mark.parametrize("save_again", ["checkpoint", "archive", "best"])
def test_a_full_disk_leaves_the_last_checkpoint(model, tmp_path, capfd, save_again, share):
    save(tmp_path, model, 1)
    (weights,) = tmp_path.glob("checkpoints/*/model.safetensors")
    # The larger file is the optimiser's, in which the disk fills up, or else the weights.
    size = weights.stat().st_size
    state = {"averages": torch.ones(size // 2)}
    files = ModelFiles(model.state_dict(), CONFIG.to_hf(), {})
    with full_disk(int(size * (1 + share))), pytest.raises(RunError) as raised:
        if save_again == "checkpoint":
            run.save_checkpoint(tmp_path, 2, files, state, {})
        elif save_again == "archive":
            run.save_archive(tmp_path, files, 2, state)
        else:
            larger = {**files.weights, "one more": state["averages"]}
            run.save_best(tmp_path, files._replace(weights=larger), {"loss": 1.0})
    assert str(raised.value) == (
        f"Cannot write to {tmp_path}: File too large. Fix this and rerun; it resumes."
    )
    assert capfd.readouterr() == ("", "")
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-0000001"]
    assert same(read_model(tmp_path), model)


def test_a_half_written_checkpoint_is_not_seen_and_a_damaged_one_named(model, tmp_path):
    save(tmp_path, model, 1)
    (tmp_path / ".work" / "tmp" / "checkpoints-step-0000002.0").mkdir(parents=True)
    (latest,) = run.checkpoints_of(tmp_path)
    assert latest.name == "step-0000001"
    (latest / "training_state" / "optimizer.pt").write_bytes(b"PK")
    with pytest.raises(UserError, match=r"optimizer\.pt is damaged: .*\. Delete .*step-0000001 to"):
        run.read_state(latest, PretrainState)


def test_the_best_model_is_replaced_whole(model, tmp_path):
    for loss in (3.0, 2.0):
        files = ModelFiles(model.state_dict(), CONFIG.to_hf(), {})
        run.save_best(tmp_path, files, {"loss": loss})
    best = tmp_path / "checkpoints" / "best"
    assert json.loads((best / "metrics.json").read_text()) == {"loss": 2.0}
    assert same(read_model(best), model)
    assert [path.name for path in best.parent.iterdir()] == ["best"]
