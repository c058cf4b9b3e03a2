"""Fine-tuning on data and checkpoints of all kinds, and what it says of them."""

import csv
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from clozeworks.cli.main import main
from clozeworks.cli.output import figure
from clozeworks.model.finetuning.config import FinetuneConfig
from clozeworks.model.finetuning.finetune import finetune
from clozeworks.model.finetuning.predict import evaluate_task, predict
from clozeworks.pipeline.errors import UserError
from safetensors.torch import load_file, save_file

from tests.fixtures.checkpoint_fixture import make_checkpoint
from tests.fixtures.degenerate import may_be_degenerate
from tests.fixtures.finetune_fixture import quick, results, sentences, write_table
from tests.fixtures.shared_data import DATA

GLUE_DATA = DATA / "glue"
IDENTITIES = ("task.json", "finetune.json")


def test_pairs_and_classes_of_the_users_own_from_one_file(checkpoint, tmp_path):
    rows = [(f"{a} b", f"{c} b", "same" if a == c else "other") for a in "bcde" for c in "bcde"] * 4
    table = write_table(tmp_path / "pairs.tsv", [*rows, ("unseen", "a", "same")], "q\ta\tkind")
    config = quick(epochs=0.2, learning_rates=(1e-3,), text="q,a", label="kind")
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


def test_the_metric_and_the_weights_of_classes_reach_every_run(checkpoint, tmp_path):
    rows = [(f"a {index}", "b" if index % 5 else "c") for index in range(60)]
    table = write_table(tmp_path / "a.tsv", rows, "text\tlabel")
    config = quick(epochs=0.5, learning_rates=(1e-3,), dropout=0.0, evaluate_every=1)
    finetune("classify", table, checkpoint, tmp_path / "plain", config)
    chosen = {"metric": "macro_f1", "class_weights": "balanced"}
    config = replace(config, **chosen)
    summary = finetune("classify", table, checkpoint, tmp_path / "run", config)
    assert summary["metric"] == next(iter(summary["best"]["scores"])) == "macro_f1"
    settings = [json.loads((tmp_path / "run" / name).read_text()) for name in IDENTITIES]
    assert all(chosen.items() <= each.items() for each in settings)
    losses = []
    for name in ("plain", "run"):
        (path,) = (tmp_path / name).glob("runs/*/metrics.csv")
        with path.open(newline="") as file:
            losses.append([row["loss"] for row in csv.DictReader(file) if row["loss"]])
    assert losses[0] != losses[1]


def test_what_to_do_about_degenerate_runs_is_said_each_time(checkpoint, tmp_path, capsys):
    table = write_table(tmp_path / "data.tsv", sentences(20, 3))
    for _ in range(2):
        config = quick(epochs=0.1, learning_rates=(1e-9,))
        summary = finetune("sst2", table, checkpoint, tmp_path / "run", config)
        assert summary["degenerate_runs"] == summary["runs"] == 1
        told = capsys.readouterr().err
        assert "1 of 1 runs are within one standard error of a constant answer. " in told
        assert "does not fall, lower --learning-rates; if it falls, give more --epochs." in told


def test_both_dev_sets_of_mnli_are_measured(checkpoint, tmp_path):
    header, labels = "sentence1\tsentence2\tgold_label", ["neutral", "entailment", "contradiction"]
    sizes = {
        "train": 12, "dev_matched": 6, "dev_mismatched": 9, "test_matched": 4, "test_mismatched": 5,
    }  # fmt: skip
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


def test_a_model_that_is_refused_leaves_the_run_that_it_would_replace(checkpoint, data, tmp_path):
    config = quick(epochs=0.1, learning_rates=(1e-3,))
    finetune("sst2", data, checkpoint, tmp_path / "run", config)
    files = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    shutil.copytree(checkpoint, tmp_path / "bad")
    tensors = load_file(tmp_path / "bad" / "model.safetensors")
    next(iter(tensors.values()))[0] = torch.nan
    save_file(tensors, tmp_path / "bad" / "model.safetensors")
    with pytest.raises(UserError, match="not finite"):
        finetune("sst2", data, tmp_path / "bad", tmp_path / "run", config, overwrite=True)
    assert all(path.read_bytes() == content for path, content in files.items())


def test_checkpoints_that_do_not_fit_are_refused(checkpoint, data, tmp_path):
    def attempt(directory: Path, **options):
        config = quick(**{"epochs": 0.1, **options}, learning_rates=(1e-3,))
        finetune("sst2", data, directory, tmp_path / "run", config)

    with pytest.raises(UserError, match=r"`max_length` is 65, but the model in .* has 64"):
        attempt(checkpoint, max_length=65)
    with pytest.raises(UserError, match="is inside `output`"):
        finetune("sst2", data, checkpoint, checkpoint.parent, quick(), overwrite=True)
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
    arguments = ["finetune", "sst2", str(data), "--checkpoint", str(checkpoint), "--epochs=1"]
    arguments += ["--output", str(tmp_path / "a"), "--max-length=24", "--learning-rates=1e-7"]
    with may_be_degenerate():
        main([*arguments, "--seeds=2"])
    printed = dict(re.findall(r"^ *(\S.*?)  +(\S.*?) *$", capsys.readouterr().out, re.MULTILINE))
    assert re.fullmatch(r"2 \([012] degenerate: as good as a constant answer\)", printed["runs"])
    assert re.fullmatch(r"median 0\.\d{3}, 0\.\d{3} to 0\.\d{3}", printed["dev accuracy"])
    assert re.fullmatch(
        r"0\.\d{3} \(0\.500 for a constant answer, \d\.\d{3} for TF-IDF\)", printed["accuracy"]
    )
    main(["evaluate", str(tmp_path / "a"), str(data)])
    assert re.search(r" examples +40 ", capsys.readouterr().out)
    assert figure(12345) == "12,345"


def test_the_closing_table_of_squad_2_shows_what_matters(checkpoint, tmp_path, capsys):
    answer = {"text": "good", "answer_start": 4}
    answers = [
        {"answers": [], "is_impossible": True},
        {"answers": [answer], "is_impossible": False},
    ]
    questions = [{"id": str(n), "question": "film ?", **answers[n % 2]} for n in range(8)]
    article = {"title": "t", "paragraphs": [{"context": "was good .", "qas": questions}]}
    for name in ("train", "dev"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"version": "v2.0", "data": [article]}))
    output = tmp_path / "run"
    arguments = ["finetune", "squad", str(tmp_path), "--checkpoint", str(checkpoint)]
    with may_be_degenerate():
        main([*arguments, f"--output={output}", "--epochs=1", "--max-length=24"])
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
    with pytest.raises(UserError, match=r"is not finite at step 1 with learning rate 0.001; try a"):
        finetune("sst2", data, broken, tmp_path / "run", quick(learning_rates=(1e-3,)))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"learning_rates": ()}, "`learning_rates` is"),
        ({"learning_rates": (1e-5, 1e-5)}, "different numbers"),
        ({"epochs": 0}, "`epochs` is 0"),
        ({"micro_batch_size": 0}, "`micro_batch_size` is 0"),
        ({"max_length": 3}, "`max_length` is 3"),
        ({"dropout": 1.0}, "`dropout` is 1"),
        ({"stride": 100_000}, "`stride` is 100000: expected int <= 65536"),
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
