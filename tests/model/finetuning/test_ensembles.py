"""Several fine-tuned models as one, and fine-tuning in two steps."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_fixture import WORDS, make_checkpoint, write_reviews
from clozeworks.cli.main import main
from clozeworks.model.finetuning.config import FinetuneConfig
from clozeworks.model.finetuning.evaluate import evaluate_task
from clozeworks.model.finetuning.finetune import finetune
from clozeworks.model.finetuning.page import render_results
from clozeworks.model.finetuning.predict import predict
from clozeworks.model.finetuning.results import draw_results, read_results
from clozeworks.model.finetuning.task_model import make_model
from clozeworks.model.tasks.catalogue import read_task
from clozeworks.model.tasks.glue import GLUE
from clozeworks.model.tasks.multilabel import MultiLabel
from clozeworks.model.tasks.ner import EntityRecognition
from clozeworks.model.tasks.similarity import Similarity
from clozeworks.model.tasks.squad import Squad
from clozeworks.pipeline.errors import UserError
from safetensors.torch import load_file
from scipy.special import expit, softmax

QUICK: dict[str, Any] = {
    "max_length": 24,
    "batch_size": 8,
    "epochs": 0.5,
    "learning_rates": (5e-4,),
    "device": "cpu",
    "precision": "fp32",
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("bert") / "checkpoint")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_reviews(tmp_path_factory.mktemp("data") / "reviews")


@pytest.fixture(scope="module")
def models(tmp_path_factory, checkpoint, data) -> list[Path]:
    folder = tmp_path_factory.mktemp("models")
    outputs = [folder / f"seed-{seed}" for seed in range(3)]
    for seed, output in enumerate(outputs):
        finetune("sst2", data, checkpoint, output, FinetuneConfig(**QUICK, seed=seed))
    return outputs


def answers(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_probabilities_scores_and_logits_of_spans_are_averaged():
    logits = [np.array([0, np.log(3)]), np.array([0, -np.log(3)]), np.array([2.0, 2.0])]
    averaged = GLUE["sst2"].averaged(logits)
    assert softmax(averaged) == pytest.approx([0.5, 0.5])
    expected = np.mean([softmax(each) for each in logits], axis=0)
    assert softmax(averaged) == pytest.approx(expected)
    scores = [np.array([1.0]), np.array([2.0]), np.array([6.0])]
    assert GLUE["stsb"].averaged(scores) == pytest.approx([3.0])
    of_tokens = [np.array([[0.0, 1.0], [5.0, 0.0]]), np.array([[3.0, 1.0], [0.0, 0.0]])]
    mean = EntityRecognition(types=("x",)).averaged(of_tokens)
    assert softmax(mean, axis=1) == pytest.approx(
        np.mean([softmax(each, axis=1) for each in of_tokens], axis=0)
    )
    assert Squad(version="1.1").averaged(of_tokens) == pytest.approx(np.mean(of_tokens, axis=0))
    labels = MultiLabel(text=("text",), labels=("a", "b")).averaged(logits)
    assert expit(labels) == pytest.approx(np.mean([expit(each) for each in logits], axis=0))
    with pytest.raises(UserError, match="Models for similarity make no ensemble"):
        Similarity().averaged(logits)


@pytest.mark.slow
def test_an_ensemble_answers_by_the_mean_probability(models, data, tmp_path, capsys):
    first, *others = models
    alone = []
    for index, model in enumerate(models):
        predict(model, data / "dev.tsv", tmp_path / f"{index}.jsonl", "cpu")
        alone.append(answers(tmp_path / f"{index}.jsonl"))
    predict(first, data / "dev.tsv", tmp_path / "all.jsonl", "cpu", members=others)
    for *of_models, together in zip(*alone, answers(tmp_path / "all.jsonl"), strict=True):
        for label, probability in together["probabilities"].items():
            mean = np.mean([each["probabilities"][label] for each in of_models])
            assert probability == pytest.approx(mean, abs=1e-5)
    measured = evaluate_task(first, data, "cpu", members=others)
    for model in models:
        expected = evaluate_task(model, data, "cpu")["accuracy"]
        assert measured["members"][str(model)] == {"accuracy": expected}
    command = ["evaluate", *map(str, (first, data)), "--device", "cpu"]
    for other in others:
        command += ["--with", str(other)]
    main(command)
    shown = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert shown.count("accuracy") == 4
    assert f"{measured['accuracy']:.3f}" in shown


@pytest.mark.slow
def test_results_show_an_ensemble_beside_its_members(models, data, tmp_path, capsys):
    first, *others = models
    command = ["evaluate", *map(str, (first, data)), "--device", "cpu"]
    for other in others:
        command += ["--with", str(other)]
    for _ in range(2):  # writing it again replaces it
        main([*command, "--output", str(tmp_path / "all/together")])
        assert "written to" in capsys.readouterr().out
    measured = evaluate_task(first, data, "cpu", members=others)
    alone = [100 * scores["accuracy"] for scores in measured["members"].values()]
    (line,) = read_results(tmp_path)
    assert (line.task, line.metric, line.directory, line.runs) == (
        *("sst2", "accuracy", "all/together"),
        3,
    )
    assert line.ensemble == pytest.approx(100 * measured["accuracy"])
    assert (line.median, line.best) == pytest.approx((np.median(alone), max(alone)))
    capsys.readouterr()
    main(["results", str(tmp_path)])
    header, row = capsys.readouterr().out.splitlines()
    assert "ensemble" in header
    assert row.split()[-4:] == [f"{line.ensemble:.1f}", "all/together", "3", "models"]
    page = render_results(tmp_path)
    assert "3 models together" in page
    assert all(str(model) in page for model in models)
    assert draw_results([line]).startswith(b"\x89PNG")


@pytest.mark.slow
def test_results_of_one_model_or_in_a_directory_of_others_are_refused(models, data, tmp_path):
    with pytest.raises(UserError, match="`output` is for the results of an ensemble"):
        evaluate_task(models[0], data, "cpu", output=tmp_path)
    with pytest.raises(UserError, match=r"seed-1 already contains other files"):
        evaluate_task(models[0], data, "cpu", members=models[2:], output=models[1])


@pytest.mark.slow
def test_models_that_do_not_belong_together_are_refused(models, checkpoint, data, tmp_path):
    config = FinetuneConfig(**{**QUICK, "max_length": 16})
    shorter = tmp_path / "shorter"
    finetune("sst2", data, checkpoint, shorter, config)
    with pytest.raises(UserError, match=r"shorter was fine-tuned with max_length 16, .* with 24"):
        evaluate_task(models[0], data, "cpu", members=[shorter])
    reordered = make_checkpoint(tmp_path / "bert", WORDS[::-1])
    other = tmp_path / "other"
    finetune("sst2", data, reordered, other, FinetuneConfig(**QUICK))
    with pytest.raises(
        UserError, match=r"other has another vocabulary than .*seed-0: they make no"
    ):
        evaluate_task(models[0], data, "cpu", members=[other])


@pytest.mark.slow
def test_models_of_other_class_weights_belong_together(checkpoint, data, tmp_path):
    # Fewer examples of one class, so that the weights differ from 1.
    lines = (data / "train.tsv").read_text().splitlines()
    (tmp_path / "train.tsv").write_text("\n".join(["text\tlabel", *lines[1:-2]]) + "\n")
    outputs = [tmp_path / name for name in ("none", "balanced")]
    for output in outputs:
        config = FinetuneConfig(**QUICK, class_weights=output.name)
        finetune("classify", tmp_path / "train.tsv", checkpoint, output, config)
    plain, balanced = [read_task(output / "task.json").settings() for output in outputs]
    assert balanced["class_weights"] != plain.get("class_weights")
    measured = evaluate_task(outputs[0], tmp_path / "train.tsv", "cpu", members=outputs[1:])
    assert len(measured["members"]) == 2


@pytest.mark.slow
def test_the_head_is_kept_in_a_second_step_with_the_same_labels(models, data, tmp_path):
    config = FinetuneConfig(**QUICK, keep_head=True)
    kept = make_model(GLUE["sst2"], models[0], config, 0).state_dict()
    saved = load_file(models[0] / "model.safetensors")
    assert all(kept[name].equal(weight) for name, weight in saved.items())
    fresh = make_model(GLUE["sst2"], models[0], FinetuneConfig(**QUICK), 0).state_dict()
    assert not fresh["classifier.weight"].equal(saved["classifier.weight"])
    # The second data set may be one of the user's own, with the same names of classes.
    lines = (data / "train.tsv").read_text().splitlines()
    rows = [line.replace("\t1", "\tpositive").replace("\t0", "\tnegative") for line in lines]
    (tmp_path / "own").mkdir()
    (tmp_path / "own/train.tsv").write_text("\n".join(rows) + "\n")
    finetune("classify", tmp_path / "own", models[0], tmp_path / "second", config)
    with pytest.raises(
        UserError, match=r"`keep_head`: id2label of .*seed-0 is \{'0': 'negative'.*, not \{'0': 'un"
    ):
        finetune("cola", write_cola(tmp_path), models[0], tmp_path / "third", config)
    assert not (tmp_path / "third").exists()


def test_without_a_head_there_is_none_to_keep(checkpoint, data, tmp_path):
    config = FinetuneConfig(**QUICK, keep_head=True)
    with pytest.raises(UserError, match=r"architectures of .*checkpoint is .*BertForPreTraining"):
        finetune("sst2", data, checkpoint, tmp_path / "run", config)
    with pytest.raises(UserError, match="contradicts `random_weights`"):
        FinetuneConfig(keep_head=True, random_weights=True)


def write_cola(folder: Path) -> Path:
    (folder / "cola").mkdir()
    for split in ("train", "dev"):
        (folder / f"cola/{split}.tsv").write_text("g\t1\t\tthe film\ng\t0\t*\ta bad\n")
    return folder / "cola"
