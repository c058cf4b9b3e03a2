"""Runs that start from another model."""

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from clozeworks.model.checkpoint import read_model
from clozeworks.model.config import SHAPE_OPTIONS, PretrainConfig
from clozeworks.model.pretraining.data import open_instances, read_split
from clozeworks.model.pretraining.evaluate import evaluate
from clozeworks.model.pretraining.pretrain import pretrain
from clozeworks.pipeline.errors import UserError
from safetensors.torch import load_file, save_file

from tests.fixtures.instances_fixture import SPECIALS, write_instances
from tests.fixtures.pretrain_fixture import (
    SHORT,
    assert_same_weights,
    interrupt_at,
    make_config,
    weights,
)

WITHOUT_SHAPE = {name: value for name, value in SHORT.items() if name not in SHAPE_OPTIONS}
"""For runs whose checkpoint sets it."""


@pytest.mark.slow
def test_continues_from_the_weights_of_another_model(instances, tmp_path):
    pretrain(make_config(), [instances], tmp_path / "first")
    config: dict[str, Any] = {
        "steps": 1,
        "batch_size": 4,
        "warmup_steps": 1,
        "checkpoint": str(tmp_path / "first"),
    }
    summary = pretrain(PretrainConfig(**config), [instances], tmp_path / "second")
    # The first update has learning rate 0, so that the weights are still those of the first run.
    assert_same_weights(tmp_path / "first", tmp_path / "second")
    assert summary["initial"]["mlm_loss"] == pytest.approx(summary["final"]["mlm_loss"])
    other = str(write_instances(tmp_path / "other", vocab_size=70))
    with pytest.raises(UserError, match="different vocabular"):
        pretrain(PretrainConfig(**config), [other], tmp_path / "third")
    with pytest.raises(UserError, match="different vocabular"):
        pretrain(make_config(), [instances, other], tmp_path / "third")
    with pytest.raises(UserError, match="`num_layers` is 3, but `checkpoint` sets the shape"):
        PretrainConfig(**config, num_layers=3)
    with pytest.raises(UserError, match="`model` is base, but `checkpoint` sets the shape"):
        PretrainConfig(**config, model="base")


def test_what_a_run_forgets_is_measured_on_other_instances(instances, tmp_path, capsys):
    general = str(write_instances(tmp_path / "general", seed=5))
    pretrain(make_config(steps=2), [instances], tmp_path / "first")
    also: dict[str, Any] = {"checkpoint": str(tmp_path / "first"), "also": general}
    options = {"steps": 4, "batch_size": 4, "learning_rate": 0.1, "dynamic_masking": "token"}
    config = PretrainConfig(**also, **options, objective="mlm")
    pretrain(config, [instances], tmp_path / "second", **interrupt_at(2))
    measured = pretrain(config, [instances], tmp_path / "second").get("also")
    assert measured and measured["path"] == general
    for model, when in (("first", "initial"), ("second", "final")):
        values = evaluate(tmp_path / model, general)
        assert measured[when]["mlm_loss"] == pytest.approx(values["mlm_loss"], rel=1e-5)
    assert measured["initial"]["mlm_loss"] != measured["final"]["mlm_loss"]
    ids = read_split(open_instances(general, "validation")).unmasked_ids()
    sizes = [len(f"w{token}") for token in ids if token >= len(SPECIALS)]
    assert measured["text"]["tokens_per_word"] == 1
    assert measured["text"]["characters_per_token"] == sum(sizes) / len(sizes)
    # Two sets do not compare.
    pretrain(config, [instances], tmp_path / "third", **interrupt_at(2))
    changed = replace(config, also=instances)
    assert "also" not in pretrain(changed, [instances], tmp_path / "third")
    assert f"{instances} was not measured before the first step" in capsys.readouterr().err
    other = str(write_instances(tmp_path / "other", vocab_size=70))
    with pytest.raises(UserError, match="different vocabularies"):
        pretrain(PretrainConfig(also=other, **options), [instances], tmp_path / "fourth")


def test_rows_longer_than_the_model_extend_it(instances, tmp_path, capsys):
    pretrain(make_config(steps=2), [instances], tmp_path / "short")
    longer = str(write_instances(tmp_path / "longer", max_length=600))
    options: dict[str, Any] = {
        "steps": 1,
        "batch_size": 4,
        "warmup_steps": 1,
        "checkpoint": str(tmp_path / "short"),
    }
    with pytest.raises(UserError, match=r"up to 600 tokens, but the model in .* has 512 positions"):
        evaluate(tmp_path / "short", longer)
    pretrain(PretrainConfig(**options), [longer], tmp_path / "long")
    assert "from 512 to 600 positions" in capsys.readouterr().err
    # The first learning rate is 0.
    before = weights(tmp_path / "short")
    after = weights(tmp_path / "long")
    name = "bert.embeddings.position_embeddings.weight"
    assert torch.equal(after[name], torch.cat([before[name], before[name][:88]]))
    assert all(torch.equal(before[other], after[other]) for other in before if other != name)
    assert (
        json.loads((tmp_path / "long" / "config.json").read_text())["max_position_embeddings"]
        == 600
    )


def test_a_run_does_not_continue_from_itself(instances, tmp_path):
    pretrain(make_config(steps=1), [instances], tmp_path)
    for checkpoint in (tmp_path, tmp_path / "checkpoints" / "best"):
        with pytest.raises(UserError, match="is inside `output`"):
            pretrain(
                PretrainConfig(checkpoint=str(checkpoint)), [instances], tmp_path, overwrite=True
            )
    assert read_model(tmp_path)


@pytest.mark.slow
def test_a_continued_run_resumes_without_the_model_it_began_from(instances, tmp_path):
    pretrain(make_config(), [instances], tmp_path / "first")
    config = PretrainConfig(**WITHOUT_SHAPE, checkpoint=str(tmp_path / "first"))
    pretrain(config, [instances], tmp_path / "whole")
    assert (
        pretrain(config, [instances], tmp_path / "broken", **interrupt_at(7))["status"]
        == "interrupted"
    )
    (tmp_path / "first" / "model.safetensors").unlink()
    assert pretrain(config, [instances], tmp_path / "broken")["status"] == "finished"
    assert_same_weights(tmp_path / "whole", tmp_path / "broken")


@pytest.mark.slow
def test_an_encoder_without_heads_gets_new_ones(instances, tmp_path, capsys):
    pretrain(make_config(), [instances], tmp_path / "first")
    weights = load_file(tmp_path / "first" / "model.safetensors")
    encoder = {
        name.removeprefix("bert."): weight
        for name, weight in weights.items()
        if not name.startswith("cls.")
    }
    save_file(encoder, tmp_path / "first" / "model.safetensors")
    options = WITHOUT_SHAPE | {"steps": 1, "learning_rate": 1e-9}
    config = PretrainConfig(**options, checkpoint=str(tmp_path / "first"))
    pretrain(config, [instances], tmp_path / "second")
    assert capsys.readouterr().err.endswith(
        f"{tmp_path}/first has no masked-LM head and no next-sentence head; "
        "they start from random weights.\n"
    )
    kept = load_file(tmp_path / "second" / "model.safetensors")
    for name, weight in encoder.items():
        torch.testing.assert_close(kept[f"bert.{name}"], weight, rtol=0, atol=1e-7)
    assert kept["cls.seq_relationship.weight"].std() > 0


def test_a_model_that_is_refused_leaves_the_run_that_it_would_replace(instances, tmp_path):
    pretrain(make_config(steps=2), [instances], tmp_path / "run")
    files = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    pretrain(make_config(steps=1), [instances], tmp_path / "bad")
    path = tmp_path / "bad" / "model.safetensors"
    tensors = load_file(path)
    tensors["cls.predictions.bias"][0] = torch.nan
    save_file(tensors, path)
    config = PretrainConfig(steps=1, batch_size=4, checkpoint=str(tmp_path / "bad"))
    with pytest.raises(UserError, match="not finite"):
        pretrain(config, [instances], tmp_path / "run", overwrite=True)
    assert all(path.read_bytes() == content for path, content in files.items())
