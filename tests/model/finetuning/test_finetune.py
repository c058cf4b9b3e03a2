"""Fine-tuning end to end: what is learned and written, resume, determinism, prediction, and
mistakes.
"""

import csv
import io
import json
import os
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import transformers
from checkpoint_fixture import make_checkpoint
from clozeworks.cli.evaluate import evaluate
from clozeworks.cli.main import main
from clozeworks.cli.summary import figure
from clozeworks.model.finetuning import search
from clozeworks.model.finetuning.config import FinetuneConfig
from clozeworks.model.finetuning.evaluate import evaluate_task
from clozeworks.model.finetuning.finetune import finetune
from clozeworks.model.finetuning.page import render_results
from clozeworks.model.finetuning.predict import predict, write_answers
from clozeworks.model.tasks.tables import read_rows
from clozeworks.pipeline.errors import UserError
from degenerate import may_be_degenerate
from huggingface_hub import ModelCard
from safetensors.torch import load_file, save_file
from shared_data import DATA, needs_shared_data

GLUE_DATA = DATA / "glue"
QUICK: dict[str, Any] = {
    "max_length": 24,
    "batch_size": 8,
    "epochs": 4,
    "device": "cpu",
    "precision": "fp32",
}


def quick(**changes: Any) -> FinetuneConfig:
    return FinetuneConfig(**{**QUICK, **changes})


def sentences(num_rows: int, seed: int) -> list[tuple[str, str]]:
    """Return texts with their class: which of two words they hold."""
    draw = random.Random(seed)
    rows = []
    for index in range(num_rows):
        words = [
            draw.choice(["the", "film", "was", "very", "a", "book"])
            for _ in range(draw.randint(1, 9))
        ]
        words.insert(draw.randint(0, len(words)), ("bad", "good")[index % 2])
        rows.append((" ".join(words), str(index % 2)))
    return rows


def write_table(path: Path, rows: list[tuple[str, ...]], header: str = "sentence\tlabel") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([header, *("\t".join(row) for row in rows)]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("model") / "checkpoint")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_table(folder / "train.tsv", sentences(160, 1))
    write_table(folder / "dev.tsv", sentences(40, 2))
    return folder


@pytest.fixture(scope="module")
def trained(
    tmp_path_factory, checkpoint, data
) -> tuple[Path, dict[str, Any], list[dict[str, Any]]]:
    output, live = tmp_path_factory.mktemp("run") / "sst2", []
    config = quick(learning_rates=(1e-7, 2e-3), seeds=2)
    return output, finetune("sst2", data, checkpoint, output, config, live.append), live


def results(output: Path) -> list[dict[str, str]]:
    with (output / "results.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


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
    assert summary["degenerate_runs"] == sum(accuracy <= 0.5 for accuracy in accuracies)
    capsys.readouterr()
    evaluate_task(output, data / "train.tsv", "cpu")
    assert "train.tsv is a file that this model was trained on" in capsys.readouterr().err
    assert (summary["train_examples"], summary["dev_examples"], summary["held_out"]) == (
        160,
        40,
        False,
    )
    assert json.loads((output / "summary.json").read_text()) == summary
    assert evaluate_task(output, data, "cpu") == {
        "examples": 40,
        "accuracy": max(accuracies),
        "baseline_accuracy": 0.5,
    }


def test_the_card_has_the_figures_of_the_best_run(trained):
    output, summary, _ = trained
    data: Any = ModelCard.load(output / "README.md").data
    (result,) = data.eval_results
    assert (result.dataset_config, result.metric_value) == (
        "sst2",
        summary["best"]["scores"]["accuracy"],
    )


def test_progress_reports_stage_step_loss_and_speed(trained):
    _, _, live = trained
    assert {numbers["stage"] for numbers in live} == {
        f"run {index} of 4 (learning rate {rate}, seed {seed})"
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
    train = search.train_model
    calls = []

    def killed_at_the_second(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return train(*arguments)

    monkeypatch.setattr(search, "train_model", killed_at_the_second)
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
        ("16", 1), ("16", 2), ("8", 1), ("8", 2),
    ]  # fmt: skip
    assert {folder.name for folder in (output / "runs").iterdir()} == {
        f"learning-rate-0.001-seed-3-batch-size-{size}-epochs-{epochs}"
        for size in (8, 16)
        for epochs in (1, 2)
    }
    # Each is the run that has these values alone, and the best one is kept.
    alone = quick(batch_size=16, epochs=2, **rates)
    finetune("sst2", small_data, checkpoint, tmp_path / "alone", alone)
    assert results(tmp_path / "alone")[0]["accuracy"] == lines[1]["accuracy"]
    best = summary["best"]
    assert (best["batch_size"], best["epochs"]) in [(8, 1), (8, 2), (16, 1), (16, 2)]
    card = (output / "README.md").read_text()
    assert f"| batch size | {best['batch_size']} |" in card
    assert "batch size 16, epochs 2" in render_results(output)
    main(["results", str(output)])
    assert "accuracy" in capsys.readouterr().out
    # One value in a tuple is that value.
    assert quick(batch_size=(8,)) == quick(batch_size=8)


def read_whole(folder: Path) -> dict[str, bytes | str]:
    """Return the contents of the model and the results in an output directory, without the times of
    the runs.
    """
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
    train = search.train_model

    def watched(model, training, *rest):
        done.append((training.peak_rate, training.seed))
        assert not (tmp_path / "grown" / "summary.json").exists()
        return train(model, training, *rest)

    monkeypatch.setattr(search, "train_model", watched)
    for rates, seed, seeds in [((1e-4,), 1, 1), ((1e-4,), 0, 2), ((1e-3, 1e-4), 0, 3)]:
        config = quick(epochs=1, learning_rates=rates, seed=seed, seeds=seeds)
        summary = finetune("sst2", small_data, checkpoint, tmp_path / "grown", config)
        # As if it had been killed after it was recorded, or once while it saved.
        for name in ("checkpoint.pt", "checkpoint.partial"):
            (tmp_path / "grown" / "runs" / "learning-rate-0.0001-seed-1" / name).touch()
    assert done == [(1e-4, 1), (1e-4, 0), (1e-3, 0), (1e-3, 1), (1e-3, 2), (1e-4, 2)]
    assert summary == at_once
    assert summary["runs"] == 6
    assert read_whole(tmp_path / "grown") == read_whole(tmp_path / "at-once")
    # Fewer are there already, and all count.
    (tmp_path / "grown" / "summary.json").unlink()
    assert finetune("sst2", small_data, checkpoint, tmp_path / "grown", quick(**options)) == at_once
    assert len(done) == 6
    assert not list((tmp_path / "grown").rglob("checkpoint*"))
    assert not list((tmp_path / "grown").rglob("*.partial"))
    assert not list((tmp_path / "grown").glob("runs/*/model"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "file, time",
    [
        ("runs/learning-rate-0.002-seed-0/run.json", 1),
        ("model.safetensors", 1),
        ("task.json", 1),
        ("results.csv", 2),
        ("test/SST-2.tsv", 1),
        ("summary.json", 1),
    ],
)
def test_the_model_is_that_of_a_recorded_run_wherever_it_is_killed(
    checkpoint, small_data, tmp_path, monkeypatch, file, time
):
    config = quick(learning_rates=(1e-7, 2e-3))  # the second is better, and replaces the first
    finetune("sst2", small_data, checkpoint, tmp_path / "whole", config)
    output, replace, times = tmp_path / "killed", os.replace, []
    finetune("sst2", small_data, checkpoint, output, quick(learning_rates=(1e-7,)))

    def killed(path: str | Path, target: str | Path) -> None:
        times.extend([target] if Path(target) == output / file else [])
        if len(times) == time:
            raise KeyboardInterrupt
        replace(path, target)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(os, "replace", killed)
        finetune("sst2", small_data, checkpoint, output, config)
    assert not (output / "summary.json").exists()
    assert (output / "README.md").exists() == (file == "summary.json")  # written just before it
    # The predictions of the former best model are removed with it.
    assert (output / "test" / "SST-2.tsv").exists() == (
        "run.json" in file or file == "summary.json"
    )
    if file in ("model.safetensors", "task.json"):
        # The files of two models are never read together.
        with pytest.raises(UserError, match=r"task\.json is missing"):
            evaluate_task(output, small_data, "cpu")
    # Without the run that was killed: nothing of it may be left but what is recorded.
    summary = finetune("sst2", small_data, checkpoint, output, quick(learning_rates=(1e-7,)))
    assert summary["runs"] == (1 if "run.json" in file else 2)
    assert (
        evaluate_task(output, small_data, "cpu")["accuracy"]
        == summary["best"]["scores"]["accuracy"]
    )
    finetune("sst2", small_data, checkpoint, output, config)
    assert read_whole(output) == read_whole(tmp_path / "whole")
    assert not list(output.glob("runs/*/model"))


@pytest.mark.slow
def test_a_finished_search_takes_other_test_files_and_another_licence(
    checkpoint, data, tmp_path, monkeypatch
):
    folder, output, config = (
        tmp_path / "data",
        tmp_path / "run",
        {"epochs": 0.1, "learning_rates": (1e-3,)},
    )
    shutil.copytree(data, folder)
    finetune("sst2", folder, checkpoint, output, quick(**config))
    monkeypatch.setattr(search, "train_model", lambda *_: pytest.fail("trained again"))
    for size in (3, 5):
        write_table(folder / "test.tsv", [("good",)] * size, "sentence")
        finetune("sst2", folder, checkpoint, output, quick(**config))
        assert (output / "test" / "SST-2.tsv").read_text().count("\n") == size + 1
    finetune("sst2", folder, checkpoint, output, quick(**config, license="mit"))
    card = ModelCard.load(output / "README.md")
    assert card.data.get("license") == "mit" and "not recorded" not in card.text
    written = {path: path.stat().st_mtime_ns for path in output.rglob("*.*")}
    finetune("sst2", folder, checkpoint, output, quick(**config))
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*.*")} == written
    (folder / "test.tsv").unlink()
    finetune("sst2", folder, checkpoint, output, quick(**config))
    assert not (output / "test").exists()


def test_dev_is_measured_as_evaluate_does_whatever_the_training_is_computed_in(
    checkpoint, tmp_path
):
    lines = [f"{text},{index / 7}" for index, (text, _) in enumerate(sentences(40, 3))]
    for name in ("train", "dev"):
        (tmp_path / f"{name}.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    config = quick(epochs=1, learning_rates=(1e-3,), precision="bf16")
    scores = finetune("classify", tmp_path, checkpoint, tmp_path / "run", config)["best"]["scores"]
    measured = evaluate_task(tmp_path / "run", tmp_path, "cpu")
    assert measured["examples"] == 40
    assert {name: measured[name] for name in scores} == scores


def test_another_configuration_or_a_damaged_record_in_the_same_directory_is_refused(
    trained, checkpoint, data, tmp_path
):
    output = tmp_path / "copy"
    shutil.copytree(trained[0], output)
    config = quick(batch_size=16, epochs=1, learning_rates=(1e-7, 2e-3), seeds=2)
    with pytest.raises(
        UserError, match=r"other settings \(batch_size was 8, now 16; epochs was 4, now 1\)"
    ):
        finetune("sst2", data, checkpoint, output, config)
    (output / "summary.json").unlink()
    (output / "runs" / "learning-rate-1e-07-seed-0" / "run.json").write_text("{")
    with pytest.raises(UserError, match=r"seed-0/run\.json is damaged"):
        finetune("sst2", data, checkpoint, output, quick(learning_rates=(1e-7, 2e-3), seeds=2))
    finetune("sst2", data, checkpoint, output, quick(epochs=0.1, learning_rates=(1e-3,)),
             overwrite=True)  # fmt: skip
    assert len(results(output)) == 1
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious.txt").write_text("x")
    with pytest.raises(UserError, match=r"already contains other files \(precious\.txt, …\)"):
        finetune("sst2", data, checkpoint, tmp_path / "other", config)


def test_pairs_and_classes_of_the_users_own_from_one_file(checkpoint, tmp_path):
    rows = [(f"{a} b", f"{c} b", "same" if a == c else "other") for a in "bcde" for c in "bcde"] * 4
    table = write_table(tmp_path / "pairs.tsv", [*rows, ("unseen", "a", "same")], "q\ta\tkind")
    config = quick(epochs=0.2, learning_rates=(1e-3,), text="q", text_pair="a", label="kind")
    summary = finetune("classify", table, checkpoint, tmp_path / "run", config)
    assert summary["held_out"]
    assert summary["train_examples"] + summary["dev_examples"] == 65
    assert set(summary["best"]["scores"]) == {"accuracy", "macro_f1"}
    new = write_table(tmp_path / "new.tsv", [("b", "c"), ("d", "d")], "q\ta")
    assert predict(tmp_path / "run", new, tmp_path / "out.tsv", "cpu") == 2
    with (tmp_path / "out.tsv").open(newline="") as file:
        lines = list(csv.DictReader(file, delimiter="\t"))
    for line in lines:
        assert float(line["other"]) + float(line["same"]) == pytest.approx(1, abs=1e-5)
        assert line["label"] == max(("other", "same"), key=lambda name: float(line[name]))


@pytest.mark.slow
def test_regression_learns_a_score(checkpoint, tmp_path):
    rows = [(text, "a", str(4.5 if label == "1" else 0.5)) for text, label in sentences(160, 3)]
    write_table(tmp_path / "data" / "train.tsv", rows, "sentence1\tsentence2\tscore")
    write_table(tmp_path / "data" / "dev.tsv", rows[:40], "sentence1\tsentence2\tscore")
    config = quick(epochs=16, learning_rates=(2e-3,))
    summary = finetune("stsb", tmp_path / "data", checkpoint, tmp_path / "run", config)
    assert summary["best"]["scores"]["pearson"] > 0.8
    assert summary["baseline"] == {"spearman": 0, "pearson": 0}
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "run")
    assert model.config.num_labels == 1
    (tmp_path / "new.txt").write_text("very good\ta\nvery bad\ta\n")
    predict(tmp_path / "run", tmp_path / "new.txt", tmp_path / "out.jsonl", "cpu")
    good, bad = (
        json.loads(line)["score"] for line in (tmp_path / "out.jsonl").read_text().splitlines()
    )
    assert good > bad + 1


def test_both_dev_sets_of_mnli_are_measured(checkpoint, tmp_path):
    header, labels = "sentence1\tsentence2\tgold_label", ["neutral", "entailment", "contradiction"]
    sizes = {
        "train": 12,
        "dev_matched": 6,
        "dev_mismatched": 9,
        "test_matched": 4,
        "test_mismatched": 5,
    }
    for name, size in sizes.items():
        rows = [(f"a {index}", "b", labels[index % 3]) for index in range(size)]
        write_table(tmp_path / "data" / f"{name}.tsv", rows, header)
    config = quick(epochs=1, learning_rates=(1e-3,))
    summary = finetune("mnli", tmp_path / "data", checkpoint, tmp_path / "run", config)
    assert summary["baseline"] == pytest.approx({"accuracy": 1 / 3, "mismatched_accuracy": 1 / 3})
    assert results(tmp_path / "run")[0].keys() >= {"accuracy", "mismatched_accuracy"}
    measured = evaluate_task(tmp_path / "run", tmp_path / "data", "cpu")
    assert (measured["examples"], measured["mismatched_examples"]) == (6, 9)
    sizes = {
        path.name: path.read_text().count("\n") - 1
        for path in (tmp_path / "run" / "test").iterdir()
    }
    assert sizes == {"MNLI-m.tsv": 4, "MNLI-mm.tsv": 5}
    mismatched = tmp_path / "data" / "test_mismatched.tsv"
    predict(tmp_path / "run", mismatched, tmp_path / "server", "cpu", official=True)
    shutil.copy(mismatched, tmp_path / "data" / "ax_test.tsv")
    predict(
        tmp_path / "run",
        tmp_path / "data" / "ax_test.tsv",
        tmp_path / "server",
        "cpu",
        official=True,
    )
    assert sorted(path.name for path in (tmp_path / "server").iterdir()) == [
        "AX.tsv",
        "MNLI-mm.tsv",
    ]
    with pytest.raises(UserError, match=r"`official` writes files; give a folder"):
        predict(tmp_path / "run", mismatched, "-", "cpu", official=True)


def test_predict_reads_standard_input_and_answers_every_line(trained, monkeypatch, capsys):
    stdin = io.TextIOWrapper(io.BytesIO("good\n\n[SEP] bad \u2028 x\n".encode()))
    monkeypatch.setattr("sys.stdin", stdin)
    assert predict(trained[0], "-", "-", "cpu") == 3
    # Not `splitlines`, to which U+2028 is the end of a line too.
    lines = capsys.readouterr().out.split("\n")
    assert lines[0] == "text\tlabel\tnegative\tpositive"
    assert [line.split("\t")[0] for line in lines[1:]] == ["good", "", "[SEP] bad \u2028 x", ""]


def test_predictions_keep_the_order_of_their_lines(trained, tmp_path, monkeypatch):
    monkeypatch.setattr("clozeworks.model.finetuning.predict.EXAMPLES_AT_ONCE", 7)
    rows = sentences(30, 4)
    (tmp_path / "all.txt").write_text("".join(f"{text}\n" for text, _ in rows))
    predict(trained[0], tmp_path / "all.txt", tmp_path / "all.jsonl", "cpu")
    lines = (tmp_path / "all.jsonl").read_text().splitlines()
    together = [json.loads(line)["probabilities"]["positive"] for line in lines]
    for index in (0, 8, 29):
        (tmp_path / "one.txt").write_text(rows[index][0] + "\n")
        predict(trained[0], tmp_path / "one.txt", tmp_path / "one.jsonl", "cpu")
        alone = json.loads((tmp_path / "one.jsonl").read_text())["probabilities"]["positive"]
        assert together[index] == pytest.approx(alone, abs=1e-6)


def test_predictions_in_each_form_say_the_same(trained, tmp_path):
    (tmp_path / "new.txt").write_text("good\n... !\n" + "x" * 1000 + "\n")
    forms = {suffix: tmp_path / f"out.{suffix}" for suffix in ("tsv", "csv", "jsonl", "json")}
    for path in forms.values():
        assert predict(trained[0], tmp_path / "new.txt", path, "cpu") == 3
    expected = json.loads(forms["json"].read_text())
    assert [json.loads(line) for line in forms["jsonl"].read_text().splitlines()] == expected
    for suffix, delimiter in (("tsv", "\t"), ("csv", ",")):
        with forms[suffix].open(newline="") as file:
            rows = list(csv.DictReader(file, delimiter=delimiter))
        assert [row["label"] for row in rows] == [answer["label"] for answer in expected]
        assert float(rows[1]["positive"]) == pytest.approx(
            expected[1]["probabilities"]["positive"], rel=1e-5
        )


def test_a_table_of_predictions_is_one_that_finetune_reads(tmp_path):
    answers = [
        {
            "label": 'a "b"\t\nc',
            "start": None,
            "tags": ['"'],
            "probabilities": {"label": 0.25, 'a "b"\t\nc': 1.0},
        }
    ]
    for suffix, text in ((".tsv", 'a "b"  c'), (".csv", 'a "b"\t\nc')):
        path = tmp_path / f"out{suffix}"
        with path.open("w", newline="") as file:
            write_answers(file, answers, suffix)
        (row,) = read_rows(path)
        assert row.values == {
            "label": text,
            "start": "",
            "tags": '["\\""]',
            "p(label)": "0.25",
            text: "1",
        }


def test_a_table_of_the_users_own_has_predictions_of_its_test_file_but_no_official_form(
    checkpoint, tmp_path
):
    rows = sentences(24, 1)
    for name, header in (("train", "text\tlabel"), ("dev", "text\tlabel")):
        write_table(tmp_path / "data" / f"{name}.tsv", rows, header)
    write_table(tmp_path / "data" / "test.tsv", [(text,) for text, _ in rows[:5]], "text")
    finetune(
        "classify",
        tmp_path / "data",
        checkpoint,
        tmp_path / "run",
        quick(epochs=0.3, learning_rates=(1e-3,)),
    )
    lines = (tmp_path / "run" / "test" / "test.tsv").read_text().splitlines()
    assert lines[0] == "text\tlabel\t0\t1"
    assert len(lines) == 6
    with pytest.raises(
        UserError, match=r"classify has no official format for .*test\.tsv; leave out `official`"
    ):
        predict(
            tmp_path / "run",
            tmp_path / "data" / "test.tsv",
            tmp_path / "server",
            "cpu",
            official=True,
        )


@pytest.mark.slow
def test_a_data_set_of_the_hub_gives_the_weights_of_the_same_files(checkpoint, data, tmp_path):
    folder = tmp_path / "set"
    folder.mkdir()
    for split, name in (("train", "train"), ("validation", "dev")):
        lines = [line.split("\t") for line in (data / f"{name}.tsv").read_text().splitlines()[1:]]
        table = pa.table(
            {"sentence": [text for text, _ in lines], "label": [int(label) for _, label in lines]}
        )
        pq.write_table(table, folder / f"{split}-00000-of-00001.parquet")
    config = quick(epochs=0.3, learning_rates=(1e-3,))
    expected = finetune("sst2", data, checkpoint, tmp_path / "files", config)
    expected["train_digests"] = []  # which are those of files
    assert finetune("sst2", f"hf:{folder}", checkpoint, tmp_path / "hub", config) == expected
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("files", "hub"))
    assert all(torch.equal(weight, two[name]) for name, weight in one.items())
    assert finetune("sst2", f"hf:{folder}", checkpoint, tmp_path / "hub", config) == expected
    assert evaluate_task(tmp_path / "hub", f"hf:{folder}", "cpu") == evaluate_task(
        tmp_path / "files", data, "cpu"
    )
    assert predict(tmp_path / "hub", f"hf:{folder}:validation", tmp_path / "out.tsv", "cpu") == 40
    shutil.copy(
        folder / "validation-00000-of-00001.parquet", folder / "test-00000-of-00001.parquet"
    )
    assert (
        finetune("sst2", f"hf:{folder}", checkpoint, tmp_path / "hub", config)["best"]
        == expected["best"]
    )
    assert (tmp_path / "hub" / "test" / "SST-2.tsv").read_text().count("\n") == 41


def test_predict_names_bad_input_and_leaves_no_output(trained, checkpoint, tmp_path):
    pairs = write_table(tmp_path / "pairs.tsv", [("a", "b")], "sentence1\tsentence2")
    with pytest.raises(UserError, match=r"pairs.tsv, line 2: there is no column sentence"):
        predict(trained[0], pairs, tmp_path / "out.tsv", "cpu")
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.tsv"]
    with pytest.raises(UserError, match=r"contains no fine-tuned model: task.json is missing"):
        predict(checkpoint, pairs, tmp_path / "out.tsv", "cpu")
    with pytest.raises(UserError, match=r"none\.txt does not exist"):
        predict(trained[0], tmp_path / "none.txt", tmp_path / "out.tsv", "cpu")
    for path in (pairs, "s3://bucket/pairs.tsv"):
        with pytest.raises(
            UserError, match=rf"^`output` is DATA itself \({path}\); give another file\.$"
        ):
            predict(trained[0], path, path, "cpu")


def test_evaluate_names_data_and_models_that_do_not_belong_together(
    trained, checkpoint, data, tmp_path
):
    pairs = write_table(tmp_path / "pairs.tsv", [("a", "b", "1")], "sentence1\tsentence2\tlabel")
    for file, message in [
        (
            pairs,
            r"pairs\.tsv, line 2: there is no column sentence, only sentence1, sentence2, label",
        ),
        (write_table(tmp_path / "empty.tsv", []), r"empty\.tsv contains no rows"),
        (
            write_table(tmp_path / "bare.tsv", [("a",)], "sentence"),
            r"bare\.tsv, line 2: there is no column label",
        ),
        (
            write_table(tmp_path / "odd.tsv", [("a", "good"), ("a", "bad")]),
            r"odd\.tsv, line 2: the label 'good'",
        ),
    ]:
        with pytest.raises(UserError, match=message):
            evaluate_task(trained[0], file, "cpu")
    (tmp_path / "manifest.json").write_text("{}")
    line = (
        f"{tmp_path} holds pre-training data, but {trained[0]} is fine-tuned for sst2: "
        "give labelled examples."
    )
    with pytest.raises(UserError, match=f"^{re.escape(line)}$"):
        evaluate_task(trained[0], tmp_path, "cpu")
    with pytest.raises(UserError, match=r"dev\.tsv, .*labelled examples need a model that is fine"):
        evaluate.main([str(checkpoint), str(data / "dev.tsv")], standalone_mode=False)


@needs_shared_data
@pytest.mark.parametrize("task, folder", [("sst2", "SST-2"), ("mrpc", "MRPC")])
def test_slices_of_the_official_files_end_to_end(task, folder, checkpoint, tmp_path):
    for name in ("train", "dev", "test"):
        with (GLUE_DATA / folder / f"{name}.tsv").open("rb") as file:
            lines = [line for line, _ in zip(file, range(40), strict=False)]
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "data" / f"{name}.tsv").write_bytes(b"".join(lines))
    config = quick(epochs=1, learning_rates=(1e-3,))
    summary = finetune(task, tmp_path / "data", checkpoint, tmp_path / "run", config)
    assert (summary["train_examples"], summary["dev_examples"]) == (39, 39)
    assert (
        predict(tmp_path / "run", tmp_path / "data" / "test.tsv", tmp_path / "out.tsv", "cpu") == 39
    )
    written = (tmp_path / "run" / "test" / f"{folder}.tsv").read_bytes()
    assert written.startswith(b"index\tprediction\n0\t")
    assert written.count(b"\n") == 40
    predict(
        tmp_path / "run", tmp_path / "data" / "test.tsv", tmp_path / "server", "cpu", official=True
    )
    assert (tmp_path / "server" / f"{folder}.tsv").read_bytes() == written


def test_an_encoder_without_pooler_or_heads_and_the_head_of_another_task(
    checkpoint, data, tmp_path
):
    bare = tmp_path / "bare"
    shutil.copytree(checkpoint, bare)
    weights = load_file(bare / "model.safetensors")
    kept = {name.removeprefix("bert."): weight for name, weight in weights.items()
            if name.startswith("bert.") and "pooler" not in name}  # fmt: skip
    save_file(kept, bare / "model.safetensors")
    config = quick(epochs=0.1, learning_rates=(1e-3,))
    finetune("sst2", data, bare, tmp_path / "first", config)
    rows = [(text, ("x", "y", "z")[index % 3]) for index, (text, _) in enumerate(sentences(30, 5))]
    three = write_table(tmp_path / "three.tsv", rows)
    finetune("classify", three, tmp_path / "first", tmp_path / "second", config)
    assert load_file(tmp_path / "second" / "model.safetensors")["classifier.weight"].shape == (
        3,
        32,
    )


def test_checkpoints_that_do_not_fit_are_refused(checkpoint, data, tmp_path):
    def attempt(directory: Path, **options):
        config = quick(**{"epochs": 0.1, **options}, learning_rates=(1e-3,))
        finetune("sst2", data, directory, tmp_path / "run", config)

    with pytest.raises(
        UserError, match=r"`max_length` is 65, but the model in .* has 64 positions"
    ):
        attempt(checkpoint, max_length=65)
    with pytest.raises(UserError, match=r"`output` is the checkpoint itself"):
        finetune("sst2", data, checkpoint, checkpoint, quick(), overwrite=True)
    with pytest.raises(UserError, match=r"is not a model directory: config.json is missing"):
        attempt(data)
    with pytest.raises(UserError, match=r"/none does not exist\.$"):
        attempt(tmp_path / "none")
    hub = r"^a/b does not exist\. If it is .*: hf download a/b --local-dir a/b$"
    with pytest.raises(UserError, match=hub):
        attempt(Path("a/b"))
    with pytest.raises(UserError, match=r"has 36 tokens, but its model has 30"):
        attempt(make_checkpoint(tmp_path / "small", vocab_size=30))
    assert not (tmp_path / "run").exists()


def test_data_without_training_rows_is_refused(checkpoint, tmp_path):
    write_table(tmp_path / "dev.tsv", sentences(4, 1))
    with pytest.raises(UserError, match="contains no file with train in its name, only for dev"):
        finetune("sst2", tmp_path, checkpoint, tmp_path / "run", quick())
    write_table(tmp_path / "train.tsv", [])
    with pytest.raises(UserError, match=r"train.tsv contains no rows"):
        finetune("sst2", tmp_path, checkpoint, tmp_path / "run", quick())


@pytest.mark.parametrize(
    "content, message", [("", "contains no rows"), ("index\ttext\n0\ta\n", "no column sentence")]
)
def test_a_mistake_in_a_test_file_is_reported_before_training(
    checkpoint, tmp_path, content, message
):
    for name in ("train", "dev"):
        write_table(tmp_path / f"{name}.tsv", sentences(8, 1))
    (tmp_path / "test.tsv").write_text(content)
    with pytest.raises(UserError, match=f"test.tsv.* {message}"):
        finetune("sst2", tmp_path, checkpoint, tmp_path / "run", quick())
    assert not (tmp_path / "run").exists()


def test_the_closing_table_counts_in_whole_numbers(checkpoint, data, tmp_path, capsys):
    options = ["--epochs", "1", "--max-length", "24", "--learning-rates", "1e-7", "--seeds", "2"]
    with may_be_degenerate():
        main(
            [
                "finetune",
                "sst2",
                str(data),
                "--checkpoint",
                str(checkpoint),
                "--output",
                str(tmp_path / "a"),
                *options,
            ]
        )
    printed = dict(re.findall(r"^ *(\S.*?)  +(\S.*?) *$", capsys.readouterr().out, re.MULTILINE))
    assert re.fullmatch(
        r"2 \([012] degenerate: no better than a constant answer\)", printed["runs"]
    )
    assert re.fullmatch(r"median 0\.\d{3}, 0\.\d{3} to 0\.\d{3}", printed["dev accuracy"])
    assert re.fullmatch(
        r"0\.\d{3} \(0\.500 for a constant answer, \d\.\d{3} for TF-IDF\)", printed["accuracy"]
    )
    main(["evaluate", str(tmp_path / "a"), str(data)])
    assert re.search(r" examples +40 ", capsys.readouterr().out)
    assert figure(12345) == "12,345"


def test_the_closing_table_of_squad_2_shows_what_matters(checkpoint, tmp_path, capsys):
    answer = {"text": "good", "answer_start": 4}
    questions = [
        {
            "id": str(index),
            "question": "film ?",
            "answers": [answer] * (index % 2),
            "is_impossible": index % 2 == 0,
        }
        for index in range(8)
    ]
    article = {"title": "t", "paragraphs": [{"context": "was good .", "qas": questions}]}
    for name in ("train", "dev"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"version": "v2.0", "data": [article]}))
    output, options = tmp_path / "run", ["--epochs", "1", "--max-length", "24"]
    with may_be_degenerate():
        main(
            [
                "finetune",
                "squad",
                str(tmp_path),
                "--checkpoint",
                str(checkpoint),
                "--output",
                str(output),
                *options,
            ]
        )
    printed = dict(re.findall(r"^ +(\S.*?)  +(\S.*?) *$", capsys.readouterr().out, re.MULTILINE))
    shown = ["exact", "f1", "HasAns f1", "NoAns f1", "tau, tuned on dev"]
    assert list(printed) == ["task", "examples", "runs", "dev best f1", "best run", *shown]
    tau = json.loads((output / "task.json").read_text())["tau"]
    assert printed["tau, tuned on dev"] == figure(tau)
    assert json.loads((output / "summary.json").read_text())["best"]["tuned"] == {"tau": tau}


def test_a_loss_that_is_not_finite_stops_the_run(checkpoint, data, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(checkpoint, broken)
    weights = load_file(broken / "model.safetensors")
    weights["bert.embeddings.LayerNorm.weight"].fill_(3e38)
    save_file(weights, broken / "model.safetensors")
    with pytest.raises(
        UserError, match=r"The loss is nan at step 1 with learning rate 0.001; try a lower one"
    ):
        finetune("sst2", data, broken, tmp_path / "run", quick(learning_rates=(1e-3,)))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"learning_rates": ()}, "`learning_rates` is"),
        ({"learning_rates": (1e-5, 1e-5)}, "different numbers"),
        ({"epochs": 0}, "`epochs` is 0"),
        ({"micro_batch_size": 0}, "`micro_batch_size` is 0"),
        ({"checkpoint_every": 0}, "`checkpoint_every` is 0"),
        ({"max_length": 3}, "`max_length` is 3"),
        ({"dropout": 1.0}, "`dropout` is 1"),
        (
            {"max_question_length": 100_000},
            "`max_question_length` is 100000, but must be at most 65,536",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        FinetuneConfig(**options)


@pytest.mark.parametrize(("options", "code"), [([], 1), (["--random-weights"], None)])
def test_the_command_fails_if_no_run_is_better_than_a_constant_answer(
    checkpoint, data, tmp_path, options, code
):
    arguments = ["finetune", "sst2", str(data), "--checkpoint", str(checkpoint)]
    arguments += ["--output", str(tmp_path / "run"), "--max-length", "24", "--epochs", "0.05"]
    ended = None
    try:
        main([*arguments, "--learning-rates", "1e-9", *options])
    except SystemExit as error:
        ended = error.code
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["degenerate_runs"], ended) == (1, code)


def test_adam_is_corrected_from_a_rate_on():
    by_default = FinetuneConfig()
    assert by_default.corrects_bias(1e-4) and not by_default.corrects_bias(5e-5)
    assert FinetuneConfig(bias_correction=True).corrects_bias(5e-5)
    assert not FinetuneConfig(bias_correction=False).corrects_bias(3e-4)


def test_runs_like_a_constant_answer_are_named_with_their_rate_and_loss(
    checkpoint, data, tmp_path, capsys
):
    # Too small a rate to learn anything in one update.
    config = quick(epochs=0.05, learning_rates=(1e-9,))
    summary = finetune("sst2", data, checkpoint, tmp_path / "run", config)
    assert summary["degenerate_runs"] == 1
    assert re.search(
        r"1 of 1 runs are no better than a constant answer: learning rate 1e-09, seed 0 \(training "
        r"loss 0\.\d{3} to 0\.\d{3}\)\. If the loss does not fall, lower `learning_rates` or try "
        r"`bias_correction`\.",
        capsys.readouterr().err,
    )
