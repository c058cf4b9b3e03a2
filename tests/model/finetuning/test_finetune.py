"""Fine-tuning end to end: what is learned and written, resume, and determinism."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from clozeworks.cli.main import main
from clozeworks.model.finetuning.finetune import finetune
from clozeworks.model.finetuning.predict import evaluate_task, predict
from clozeworks.model.finetuning.run import FinetuneWork
from clozeworks.pipeline.errors import UserError
from safetensors.torch import load_file
from scipy.stats import binomtest

from tests.fixtures.finetune_fixture import quick, results, sentences, write_table


@pytest.mark.slow
def test_the_best_of_all_runs_is_kept(trained, data, capsys):
    output, summary, _ = trained
    lines = results(output)
    assert [(line["learning_rate"], line["seed"]) for line in lines] == [
        ("0.002", "0"), ("0.002", "1"), ("1e-07", "0"), ("1e-07", "1"),
    ]  # fmt: skip
    accuracies = [float(line["accuracy"]) for line in lines]
    assert summary["metric"] == "accuracy"
    assert summary["highest"] == summary["best"]["scores"]["accuracy"] == max(accuracies) > 0.9
    assert summary["best"]["learning_rate"] == 2e-3
    assert summary["best"]["seed"] == (0 if accuracies[0] >= accuracies[1] else 1)
    # Over the seeds at the best rate: those of another would say how bad that rate is.
    assert summary["lowest"] == min(accuracies[:2])
    assert summary["median"] == pytest.approx(sum(accuracies[:2]) / 2)
    assert summary["baseline"] == {"accuracy": 0.5}
    assert summary["word_baseline"]["accuracy"] > 0.9
    assert summary["degenerate_runs"] == sum(
        accuracy <= 0.5 + (0.25 / 40) ** 0.5 for accuracy in accuracies
    )
    capsys.readouterr()
    evaluate_task(output, data / "train.tsv", "cpu")
    assert "train.tsv is a file that this model was trained on" in capsys.readouterr().err
    assert (summary["train_examples"], summary["dev_examples"], summary["held_out"]) == (
        160,
        40,
        False,
    )
    assert json.loads((output / "summary.json").read_text()) == summary
    num_right = round(40 * max(accuracies))
    proportion = binomtest(num_right, 40).proportion_ci(method="wilson")
    assert evaluate_task(output, data, "cpu") == {
        "examples": 40,
        "accuracy": max(accuracies),
        "baseline_accuracy": 0.5,
        "accuracy_low": pytest.approx(proportion.low),
        "accuracy_high": pytest.approx(proportion.high),
    }


def test_the_card_has_the_figures_of_the_best_run(trained):
    output, summary, _ = trained
    accuracy = summary["best"]["scores"]["accuracy"]
    assert f"| accuracy | {accuracy:.4g} (" in (output / "README.md").read_text()


def test_progress_reports_stage_step_loss_and_speed(trained):
    _, _, live = trained
    assert {numbers["stage"] for numbers in live} == {
        f"run {index} of 4 (learning rate {rate}, batch size 8, epochs 4, seed {seed})"
        for index, (rate, seed) in enumerate(
            [("1e-07", 0), ("1e-07", 1), ("0.002", 0), ("0.002", 1)], 1
        )
    }
    last = live[-1]
    assert last["step"] == last["steps"] == 80
    assert last["examples_per_second"] > 0
    assert last["loss"] < live[0]["loss"]


@pytest.mark.slow
def test_transformers_loads_the_model_and_gives_the_same_logits(trained, tmp_path):
    output, _, _ = trained
    model = transformers.AutoModelForSequenceClassification.from_pretrained(output).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(output)
    assert type(model).__name__ == "BertForSequenceClassification"
    assert model.config.id2label == {0: "negative", 1: "positive"}
    texts = ["the film was very good", "a bad book", "good"]
    (tmp_path / "new.txt").write_text("\n".join(texts) + "\n")
    assert predict(output, tmp_path / "new.txt", tmp_path / "out.jsonl", "cpu") == 3
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    with torch.inference_mode():
        theirs = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits.softmax(-1)
    ours = torch.tensor(
        [[answer["probabilities"][name] for name in ("negative", "positive")] for answer in answers]
    )
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
    assert [answer["label"] for answer in answers] == ["positive", "negative", "positive"]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_weights_and_finished_runs_are_skipped(
    checkpoint, data, tmp_path, monkeypatch
):
    config = quick(epochs=0.5, learning_rates=(1e-3, 2e-3))
    whole = finetune("sst2", data, checkpoint, tmp_path / "whole", config)
    train = FinetuneWork.train
    calls = []

    def killed_at_the_second(work):
        calls.append(work)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return train(work)

    monkeypatch.setattr(FinetuneWork, "train", killed_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        finetune("sst2", data, checkpoint, tmp_path / "resumed", config)
    assert finetune("sst2", data, checkpoint, tmp_path / "resumed", config) == whole
    assert len(calls) == 3
    assert finetune("sst2", data, checkpoint, tmp_path / "resumed", config) == whole
    assert len(calls) == 3
    assert len(results(tmp_path / "resumed")) == 2
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "resumed"))
    assert all(torch.equal(weight, b[name]) for name, weight in a.items())
    untrained = load_file(checkpoint / "model.safetensors")
    dense = [name for name in a if "dense" in name and name in untrained]
    assert dense
    assert not any(torch.equal(a[name], untrained[name]) for name in dense)


@pytest.mark.slow
def test_batch_sizes_and_epochs_are_searched_too(checkpoint, small_data, tmp_path, capsys):
    rates = {"learning_rates": (1e-3,), "seed": 3}
    output = tmp_path / "run"
    config = quick(batch_size=(8, 16), epochs=(1, 2), **rates)
    summary = finetune("sst2", small_data, checkpoint, output, config)
    assert summary["runs"] == 4
    lines = results(output)
    assert [(line["batch_size"], float(line["epochs"])) for line in lines] == [
        ("8", 1), ("8", 2), ("16", 1), ("16", 2),
    ]  # fmt: skip
    assert {folder.name for folder in (output / "runs").iterdir()} == {
        f"learning-rate-0.001-batch-size-{size}-epochs-{epochs}-seed-3"
        for size in (8, 16)
        for epochs in (1, 2)
    }
    # Each is the run that has these values alone, and the best one is kept.
    alone = quick(batch_size=16, epochs=2, **rates)
    finetune("sst2", small_data, checkpoint, tmp_path / "alone", alone)
    assert results(tmp_path / "alone")[0]["accuracy"] == lines[3]["accuracy"]
    best = summary["best"]
    assert (best["batch_size"], best["epochs"]) in [(8, 1), (8, 2), (16, 1), (16, 2)]
    card = (output / "README.md").read_text()
    assert f"batch size {best['batch_size']}, epochs {best['epochs']:g}, seed" in card
    main(["results", str(output)])
    assert "accuracy" in capsys.readouterr().out


def read_whole(folder: Path) -> dict[str, bytes | str]:
    """Return the model and the results in an output directory, without the times of the runs."""
    names = ("model.safetensors", "config.json", "task.json", "summary.json", "test/SST-2.tsv")
    whole: dict[str, bytes | str] = {name: (folder / name).read_bytes() for name in names}
    return whole | {
        "results.csv": re.sub(
            r",[\d.]+$", "", (folder / "results.csv").read_text(), flags=re.MULTILINE
        )
    }


@pytest.fixture(scope="module")
def small_data(data, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    shutil.copy(data / "dev.tsv", folder)
    write_table(folder / "train.tsv", sentences(40, 1))
    write_table(folder / "test.tsv", [(text,) for text, _ in sentences(6, 6)], "sentence")
    return folder


@pytest.mark.slow
def test_more_seeds_and_learning_rates_add_the_further_runs_only(
    checkpoint, small_data, tmp_path, monkeypatch
):
    # None of them learns much, so that all are alike and the best may be the first or the last to
    # be done.
    options = {"epochs": 1, "learning_rates": (1e-3, 1e-4)}
    at_once = finetune(
        "sst2", small_data, checkpoint, tmp_path / "at-once", quick(**options, seeds=3)
    )
    done = []
    train = FinetuneWork.train

    def watched(work):
        done.append((work.run.learning_rate, work.run.seed))
        assert not (tmp_path / "grown" / "summary.json").exists()
        return train(work)

    monkeypatch.setattr(FinetuneWork, "train", watched)
    for rates, seed, seeds in [((1e-4,), 1, 1), ((1e-4,), 0, 2), ((1e-3, 1e-4), 0, 3)]:
        config = quick(epochs=1, learning_rates=rates, seed=seed, seeds=seeds)
        summary = finetune("sst2", small_data, checkpoint, tmp_path / "grown", config)
    assert done == [(1e-4, 1), (1e-4, 0), (1e-3, 0), (1e-3, 1), (1e-3, 2), (1e-4, 2)]
    assert summary == at_once
    assert summary["runs"] == 6
    assert read_whole(tmp_path / "grown") == read_whole(tmp_path / "at-once")
    # Fewer are there already, and all count.
    (tmp_path / "grown" / "summary.json").unlink()
    assert finetune("sst2", small_data, checkpoint, tmp_path / "grown", quick(**options)) == at_once
    assert len(done) == 6
    # One model is kept, which takes no space twice.
    (model,) = (tmp_path / "grown").glob("runs/*/checkpoints/*/model.safetensors")
    assert model.samefile(tmp_path / "grown" / "model.safetensors")


TWO_RATES = quick(learning_rates=(1e-7, 2e-3))  # the second is better, and replaces the first


@pytest.fixture(scope="module")
def undisturbed(checkpoint, small_data, tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("undisturbed") / "run"
    finetune("sst2", small_data, checkpoint, output, TWO_RATES)
    return output


@pytest.mark.slow
@pytest.mark.parametrize(
    "file",
    [
        "runs/learning-rate-0.002-batch-size-8-epochs-4-seed-0/summary.json",
        "model.safetensors",
        "task.json",
        "results.csv",
        "test/SST-2.tsv",
        "summary.json",
    ],
)
def test_the_model_is_that_of_a_recorded_run_wherever_it_is_killed(
    undisturbed, checkpoint, small_data, tmp_path, monkeypatch, file
):
    output, replace = tmp_path / "killed", os.replace
    finetune("sst2", small_data, checkpoint, output, quick(learning_rates=(1e-7,)))

    def killed(path: str | Path, target: str | Path) -> None:
        if Path(target) == output / file:
            raise KeyboardInterrupt
        replace(path, target)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(os, "replace", killed)
        finetune("sst2", small_data, checkpoint, output, TWO_RATES)
    assert not (output / "summary.json").exists()
    assert (output / "README.md").exists() == (file == "summary.json")  # written just before it
    # The predictions of the former best model are removed with it.
    assert (output / "test" / "SST-2.tsv").exists() == (file.endswith("summary.json"))
    if file in ("model.safetensors", "task.json"):
        # The files of two models are never read together.
        with pytest.raises(UserError, match=r"has no task\.json"):
            evaluate_task(output, small_data, "cpu")
    # Without the run that was killed: nothing of it may be left but what is recorded.
    summary = finetune("sst2", small_data, checkpoint, output, quick(learning_rates=(1e-7,)))
    assert summary["runs"] == (1 if "runs/" in file else 2)
    assert (
        evaluate_task(output, small_data, "cpu")["accuracy"]
        == summary["best"]["scores"]["accuracy"]
    )
    finetune("sst2", small_data, checkpoint, output, TWO_RATES)
    assert read_whole(output) == read_whole(undisturbed)
    assert len(list(output.glob("runs/*/checkpoints/*"))) == 1


@pytest.mark.slow
def test_a_finished_search_takes_other_test_files(checkpoint, data, tmp_path, monkeypatch):
    folder, output, config = (
        tmp_path / "data",
        tmp_path / "run",
        {"epochs": 0.1, "learning_rates": (1e-3,)},
    )
    shutil.copytree(data, folder)
    finetune("sst2", folder, checkpoint, output, quick(**config))
    monkeypatch.setattr(FinetuneWork, "train", lambda _: pytest.fail("trained again"))
    for size in (3, 5):
        write_table(folder / "test.tsv", [("good",)] * size, "sentence")
        finetune("sst2", folder, checkpoint, output, quick(**config))
        assert (output / "test" / "SST-2.tsv").read_text().count("\n") == size + 1
    written = {path: path.stat().st_mtime_ns for path in output.rglob("*.*")}
    finetune("sst2", folder, checkpoint, output, quick(**config))
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*.*")} == written
    (folder / "test.tsv").unlink()
    finetune("sst2", folder, checkpoint, output, quick(**config))
    assert not (output / "test").exists()


def test_dev_answers_have_text_and_truth(checkpoint, tmp_path):
    texts = ["the film was good", "a good book", "very bad", "a bad film", "dull book", "is dull"]
    labels = ["good", "good", "bad", "bad", "dull", "dull"]
    for name, copies in (("train", 4), ("dev", 2)):
        rows = list(zip(texts, labels, strict=True)) * copies
        write_table(tmp_path / "data" / f"{name}.tsv", rows, "text\tlabel")
    output = tmp_path / "run"
    options = {"epochs": 2, "learning_rates": (2e-3,)}
    config = quick(**options)
    summary = finetune("classify", tmp_path / "data", checkpoint, output, config)
    lines = (output / "dev" / "dev.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["text"] for row in rows] == texts * 2
    assert [row["truth"] for row in rows] == labels * 2
    right = sum(row["label"] == row["truth"] for row in rows)
    assert summary["best"]["scores"]["accuracy"] == pytest.approx(right / 12)
    report = summary["dev_classes"]
    assert sum(map(sum, report["confusion"])) == 12
    assert {figures["count"] for figures in report["classes"].values()} == {4}
    f1 = [figures["f1"] for figures in report["classes"].values()]
    assert summary["best"]["scores"]["macro_f1"] == pytest.approx(sum(f1) / 3)


def test_another_configuration_or_a_damaged_record_in_the_same_directory_is_refused(
    trained, checkpoint, data, tmp_path
):
    output = tmp_path / "copy"
    shutil.copytree(trained[0], output)
    config = quick(max_length=16, dropout=0.2, learning_rates=(1e-7, 2e-3), seeds=2)
    with pytest.raises(UserError, match=r"length was 24, now 16; dropout was 0\.1, now 0\.2\)"):
        finetune("sst2", data, checkpoint, output, config)
    (output / "summary.json").unlink()
    next(output.glob("runs/*1e-07*seed-0/summary.json")).write_text("{")
    with pytest.raises(UserError, match=r"seed-0/summary\.json is damaged"):
        finetune("sst2", data, checkpoint, output, quick(learning_rates=(1e-7, 2e-3), seeds=2))
    finetune("sst2", data, checkpoint, output, quick(epochs=0.1, learning_rates=(1e-3,)),
             overwrite=True)  # fmt: skip
    assert len(results(output)) == 1
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious.txt").write_text("x")
    with pytest.raises(UserError, match=r"already contains other files \(precious\.txt, …\)"):
        finetune("sst2", data, checkpoint, tmp_path / "other", config)
