"""``clozeworks merge``: the mean of archived models, as `transformers` reads it."""

import pytest
import torch
import transformers
from clozeworks.cli.main import main
from clozeworks.model.checkpoint import ModelFiles, save_model
from clozeworks.model.encoders.bert import BertForPreTraining
from clozeworks.model.encoders.encoder import initialise
from clozeworks.model.pretraining.merge import merge
from clozeworks.model.tokenizer import tokenizer_files
from clozeworks.pipeline.errors import UserError

from tests.fixtures.instances_fixture import write_instances
from tests.fixtures.parity_fixture import SMALL_BERT

STEPS = (2, 50, 100)  # as text, 100 would come before 2


@pytest.fixture
def run(tmp_path):
    """Return a folder with archived models, and the path of instances."""
    instances = str(write_instances(tmp_path / "instances", validation_rows=9))
    for step in STEPS:
        model = BertForPreTraining(SMALL_BERT)
        initialise(model, SMALL_BERT, torch.Generator().manual_seed(step))
        folder = tmp_path / "run" / "archive" / f"step-{step}"
        files = ModelFiles(model.state_dict(), SMALL_BERT.to_hf(), tokenizer_files(instances))
        save_model(folder, files)
    return str(tmp_path / "run"), instances


def test_the_mean_is_that_of_the_last_models(run, tmp_path, capsys):
    path, instances = run
    main(["merge", path, instances, "--last", "2", "--output", str(tmp_path / "merged")])
    mean = transformers.BertForPreTraining.from_pretrained(tmp_path / "merged").state_dict()
    own = [
        transformers.BertForPreTraining.from_pretrained(f"{path}/archive/step-{step}").state_dict()
        for step in STEPS[1:]
    ]
    for name, weight in mean.items():
        torch.testing.assert_close(weight, (own[0][name] + own[1][name]) / 2)
    main(["evaluate", str(tmp_path / "merged"), instances])
    main(["evaluate", f"{path}/archive/step-100", instances])
    merged, *evaluated = capsys.readouterr().out.split("stage")[1:]
    for name, table in zip(("mean", "last model alone"), evaluated, strict=True):
        loss = next(line.split()[1] for line in table.splitlines() if line.split()[:1] == ["loss"])
        assert f"loss, {name} {loss}" in " ".join(merged.split())
    main(["export", str(tmp_path / "merged"), "--output", str(tmp_path / "hub")])


def test_what_cannot_be_merged_is_said(run, tmp_path):
    path, instances = run
    with pytest.raises(UserError, match=r"`last` is 4, but .*archive holds 3 models"):
        merge(path, instances, 4, tmp_path / "merged")
    with pytest.raises(UserError, match="run is not empty"):
        merge(path, instances, 2, path)
    with pytest.raises(UserError, match=r"nowhere does not exist: give a run"):
        merge(tmp_path / "nowhere", instances, 2, tmp_path / "merged")
    with pytest.raises(UserError, match="holds 0 models"):
        merge(f"{path}/archive/step-2", instances, 2, tmp_path / "merged")
