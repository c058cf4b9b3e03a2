"""The probe: what it measures, that it resumes, and that training does not notice it."""

import csv
from pathlib import Path
from typing import Any

import pytest
import torch
from clozeworks.cli.main import main
from clozeworks.model.bert import BertModel, initialise
from clozeworks.model.config import ModelConfig, PretrainConfig
from clozeworks.model.pretraining.pretrain import pretrain
from clozeworks.model.pretraining.probe import Probe, read_probe
from clozeworks.pipeline.errors import UserError
from instances_fixture import write_instances
from safetensors.torch import load_file

SHAPE: dict[str, Any] = {
    "num_layers": 1,
    "hidden_size": 32,
    "num_heads": 2,
    "batch_size": 8,
    "device": "cpu",
}


@pytest.fixture(scope="module")
def instances(tmp_path_factory) -> str:
    return str(write_instances(tmp_path_factory.mktemp("data") / "instances"))


@pytest.fixture(scope="module")
def reviews(tmp_path_factory) -> str:
    """Texts of three words; the label says whether w7 is among them, the score how often."""
    folder = tmp_path_factory.mktemp("reviews")
    texts = [f"w{5 + i % 3} w{8 + i % 11} w{5 + i % 7}" for i in range(120)]
    lines = [f"{text}\t{'yes' if 'w7' in text.split() else 'no'}" for text in texts]
    (folder / "train.tsv").write_text("\n".join(["text\tlabel", *lines[:80], ""]))
    (folder / "dev.tsv").write_text("\n".join(["text\tlabel", *lines[80:], ""]))
    scores = folder / "scores"
    scores.mkdir()
    counted = [f"{text}\t{text.split().count('w7') + 0.5}" for text in texts]
    (scores / "train.tsv").write_text("\n".join(["text\tlabel", *counted[:80], ""]))
    (scores / "dev.tsv").write_text("\n".join(["text\tlabel", *counted[80:], ""]))
    return str(folder)


def make_probe(data: str, instances: str, task: str = "classify") -> Probe:
    return read_probe(PretrainConfig(**SHAPE, probe=(task, data)), instances)


def encoder() -> BertModel:
    config = ModelConfig(
        vocab_size=60,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=48,
    )
    bert = BertModel(config)
    initialise(bert, config, torch.Generator().manual_seed(0))
    return bert


def test_classes_and_scores_that_an_encoder_shows_are_read_off(reviews, instances):
    probe, bert = make_probe(reviews, instances), encoder()
    assert probe.constant["accuracy"] < 0.7
    assert probe.scores(bert)["accuracy"] == 1.0
    assert probe.scores(bert) == probe.scores(bert)
    assert make_probe(f"{reviews}/scores", instances).scores(bert)["pearson"] > 0.99
    with torch.no_grad():
        bert.embeddings.word_embeddings.weight.zero_()
    assert probe.scores(bert)["accuracy"] < 0.7


def metrics(run: Path) -> list[dict[str, str]]:
    with (run / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_training_does_not_notice_it_and_it_resumes(reviews, instances, tmp_path):
    common: dict[str, Any] = {**SHAPE, "steps": 6, "evaluate_every": 2, "checkpoint_every": 3}
    config = PretrainConfig(**common, probe=("classify", reviews))
    plain, whole, broken = (tmp_path / name for name in ("plain", "whole", "broken"))
    pretrain(PretrainConfig(**common), [instances], plain)
    summary = pretrain(config, [instances], whole)

    def stop(figures: dict[str, Any]) -> None:
        if figures["step"] == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain(config, [instances], broken, stop)
    shown = []
    assert (
        pretrain(config, [instances], broken, lambda figures: shown.append(figures["probe"]))
        == summary
    )
    assert (whole / "metrics.csv").read_bytes() == (broken / "metrics.csv").read_bytes()
    one, two = (load_file(run / "model.safetensors") for run in (plain, whole))
    torch.testing.assert_close(one, two, rtol=0, atol=0)

    probed = [
        float(row["probe_accuracy"]) for row in metrics(whole) if row["split"] == "validation"
    ]
    assert len(probed) == 4
    assert (summary["probe"]["initial"]["accuracy"], summary["probe"]["final"]["accuracy"]) == (
        probed[0],
        probed[-1],
    )
    assert shown == [probed[1], *[probed[2]] * 2]
    without = [
        {name: row[name] for name in row if not name.startswith("probe")} for row in metrics(whole)
    ]
    assert without == metrics(plain)


def test_it_is_an_option_of_two_values_also_in_a_recipe(reviews, instances, tmp_path, capsys):
    shape = "num-layers = 1\nhidden-size = 16\nnum-heads = 2\nbatch-size = 8\nsteps = 1\nlearning-rate = 1e-9"
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        f'[[stage]]\ncommand = "pretrain"\narguments = ["{instances}"]\noutput = "{tmp_path}/run"\n{shape}\n'
        f'probe = ["classify", "{reviews}"]\n'
    )
    main(["run", str(recipe), "--dry-run"])
    assert f"--probe classify {reviews}" in capsys.readouterr().out


def test_other_tasks_are_refused(instances, tmp_path):
    with pytest.raises(UserError, match=r"^--probe takes a task of GLUE, or classify, not ner\.$"):
        read_probe(PretrainConfig(**SHAPE, probe=("ner", str(tmp_path))), instances)


def test_a_run_keeps_to_its_probe(reviews, instances, tmp_path):
    pretrain(PretrainConfig(**SHAPE, steps=1, probe=("classify", reviews)), [instances], tmp_path)
    with pytest.raises(UserError, match="probe"):
        pretrain(
            PretrainConfig(**SHAPE, steps=1, probe=("classify", f"{reviews}/scores")),
            [instances],
            tmp_path,
        )
