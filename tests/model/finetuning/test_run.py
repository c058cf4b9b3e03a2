"""The loop of fine-tuning: exact resume, accumulation, ranks, frozen parameters, logs."""

import csv
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from clozeworks.model.checkpoint import Checkpoint
from clozeworks.model.encoders.heads import IGNORED
from clozeworks.model.finetuning.config import FinetuneConfig
from clozeworks.model.finetuning.finetune import finetune
from clozeworks.model.finetuning.model import make_model
from clozeworks.model.finetuning.results import Hyperparameters
from clozeworks.model.finetuning.run import (
    FinetuneWork,
    batch_rows,
    few_widths,
    micro_batches,
    train_run,
    training_dtype,
)
from clozeworks.model.finetuning.setup import FinetuneSetup
from clozeworks.model.notices import StopRequest
from clozeworks.model.tasks.batches import Feature, num_targets
from clozeworks.model.tasks.catalogue import GLUE
from clozeworks.model.tasks.splits import TaskSplits
from clozeworks.model.tasks.task import TaskModel
from clozeworks.model.tokenizer import TokenRow
from clozeworks.model.training.ranks import Ranks
from clozeworks.pipeline.errors import UserError
from safetensors.torch import load_file

from tests.fixtures.checkpoint_fixture import SPECIALS, WORDS
from tests.fixtures.pretrain_fixture import KilledError
from tests.fixtures.process_fixture import TIME_LIMIT_S
from tests.fixtures.ranks_fixture import start_others

RUN = Hyperparameters(learning_rate=1e-3, batch_size=8, epochs=2.0, seed=3)
ALONE = Ranks(0, 1, torch.device("cpu"))
VOCAB_SIZE = len(SPECIALS + WORDS)


def sentences(num_features: int) -> list[Feature]:
    rng = np.random.default_rng(0)
    rows = [
        rng.integers(5, VOCAB_SIZE, rng.integers(3, 30)).astype(np.int32)
        for _ in range(num_features)
    ]
    # The class is whether a certain token is there.
    targets = [np.array(int((row == 7).any()), dtype=np.int64) for row in rows]
    return [
        Feature(TokenRow(row, len(row)), target, i)
        for i, (row, target) in enumerate(zip(rows, targets, strict=True))
    ]


def make_work(
    checkpoint: Path,
    features: list[Feature],
    directory: Path | None = None,
    scores: list[float] | None = None,
    **options: Any,
) -> FinetuneWork:
    """Return a run on `features`; `scores` are its measurements on dev, if any."""
    if directory:
        directory.mkdir(exist_ok=True)
    opened = Checkpoint.open(checkpoint)
    config = FinetuneConfig(**{"device": "cpu", "precision": "fp32", "dropout": 0.0, **options})
    setup = FinetuneSetup(
        splits=TaskSplits(GLUE["sst2"], [], {}, {}, False),
        checkpoint=opened,
        config=config,
        train=features,
        dev={"": []} if scores else {},
    )
    work = FinetuneWork(
        setup=setup,
        run=RUN,
        model=make_model(setup.task, opened, config, seed=1),
        ranks=ALONE,
        directory=directory,
    )
    remaining = iter([*(scores or []), 0.0])
    work.measure = lambda: {"accuracy": next(remaining), "f1": 0.5}
    return work


def assert_same_weights(one: TaskModel, other: TaskModel, atol: float = 0.0) -> None:
    weights = other.state_dict()
    for name, weight in one.state_dict().items():
        torch.testing.assert_close(weight, weights[name], rtol=0, atol=atol)


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_batch_that_fits_into_the_budget_of_tokens_is_computed_at_once(checkpoint):
    features = sentences(32)
    assert len(micro_batches(features, ALONE, asked=None, most_tokens=4096)) == 1
    parts = micro_batches(features, ALONE, asked=None, most_tokens=100)
    assert all(part.input_ids_BL.numel() <= 100 for part in parts)
    assert sum(len(part.input_ids_BL) for part in parts) == 32


def test_ranks_without_a_row_count_nothing(checkpoint):
    features = sentences(3)
    ranks = [Ranks(rank, 4, torch.device("cpu")) for rank in range(4)]
    parts = [micro_batches(features, each, asked=None, most_tokens=4096) for each in ranks]
    third = torch.tensor(1 / 3)
    assert [[part.share for part in own] for own in parts] == [[third]] * 3 + [[None]]
    nothing = features[0]._replace(target=np.array([IGNORED] * 4))
    whole, none = micro_batches([features[0], nothing], ALONE, asked=1, most_tokens=4096)
    assert whole.share == 1 and none.share is None


@pytest.mark.slow
def test_two_processes_equal_one(checkpoint, tmp_path, monkeypatch):
    data = write_data(tmp_path)
    options: dict[str, Any] = {
        "batch_size": 8, "epochs": 2, "learning_rates": (1e-3,), "dropout": 0.0, "device": "cpu",
        "micro_batch_size": 3, "max_length": 24,
    }  # fmt: skip
    config = FinetuneConfig(**options)
    one = finetune("sst2", data, checkpoint, tmp_path / "one", config)
    code = (
        "from clozeworks.model.finetuning.finetune import finetune\n"
        "from clozeworks.model.finetuning.config import FinetuneConfig\n"
        f"finetune('sst2', {str(data)!r}, {str(checkpoint)!r}, {str(tmp_path / 'two')!r},"
        f" FinetuneConfig(**{options!r}))"
    )
    (second,) = start_others(monkeypatch, [code])
    two = finetune("sst2", data, checkpoint, tmp_path / "two", config)
    _, errors = second.communicate(timeout=TIME_LIMIT_S)
    assert second.returncode == 0, errors
    assert two["best"]["scores"] == one["best"]["scores"]
    weights = load_file(tmp_path / "two" / "model.safetensors")
    for name, weight in load_file(tmp_path / "one" / "model.safetensors").items():
        torch.testing.assert_close(weight, weights[name], rtol=0, atol=1e-5)
    names = [next((tmp_path / run / "runs").glob("*/metrics.csv")) for run in ("one", "two")]
    rows = [read_csv(name) for name in names]
    assert rows[0][-1] == rows[1][-1]
    assert rows[0][-1]["split"] == "dev"
    assert float(rows[0][-1]["accuracy"]) == one["best"]["scores"]["accuracy"]
    for mine, other in zip(*rows, strict=True):
        assert mine["step"] == other["step"]
        if mine["split"] == "train":
            assert float(mine["loss"]) == pytest.approx(float(other["loss"]), abs=1e-4)


@pytest.mark.slow
def test_processes_that_do_not_start_alike_are_refused(checkpoint, tmp_path, monkeypatch):
    data = write_data(tmp_path)
    code = (
        "from clozeworks.model.finetuning.finetune import finetune\n"
        "from clozeworks.model.finetuning.config import FinetuneConfig\n"
        f"finetune('sst2', {str(data)!r}, {str(checkpoint)!r}, {str(tmp_path / 'one')!r},"
        " FinetuneConfig(device='cpu', max_length=20))"
    )
    (second,) = start_others(monkeypatch, [code])
    with pytest.raises(UserError, match="not started alike: the configuration and the data is"):
        finetune(
            "sst2", data, checkpoint, tmp_path / "one", FinetuneConfig(device="cpu", max_length=24)
        )
    assert "were not started alike: " in second.communicate(timeout=TIME_LIMIT_S)[1]


def write_data(folder: Path, labels: Sequence[str] = "01") -> Path:
    """Write SST-2, or with other labels; it fills 12 steps of 8 in 2 epochs, the last not full."""
    (folder / "data").mkdir()
    for name, size in (("train", 43), ("dev", 10)):
        lines = [
            f"the film was {('bad', 'good')[i % 2]} {' very' * (i % 7)}\t{labels[i % 2]}"
            for i in range(size)
        ]
        (folder / "data" / f"{name}.tsv").write_text("\n".join(["sentence\tlabel", *lines]) + "\n")
    return folder / "data"


@pytest.mark.slow
@pytest.mark.parametrize(("task", "labels"), [("sst2", "01"), ("classify", ["2000.25", "2010.5"])])
def test_killed_runs_resume_to_the_same_bits(task, labels, checkpoint, tmp_path, monkeypatch):
    data = write_data(tmp_path, labels)
    options: dict[str, Any] = {
        "batch_size": 8, "epochs": 2, "learning_rates": (1e-3, 2e-3), "device": "cpu",
        "max_length": 24,
    }  # fmt: skip
    if task == "classify":
        options["text"] = "sentence"
    config = FinetuneConfig(**options)
    whole = finetune(task, data, checkpoint, tmp_path / "whole", config)
    output = tmp_path / "killed"

    def kill(live: dict[str, Any]) -> None:
        if live["stage"].startswith("run 2") and live["step"] == 10:
            raise KilledError

    monkeypatch.setattr("clozeworks.model.finetuning.run.CHECKPOINT_MINUTES", 0)
    with pytest.raises(KilledError):
        finetune(task, data, checkpoint, output, config, kill)
    monkeypatch.undo()
    second = output / "runs" / "learning-rate-0.002-batch-size-8-epochs-2-seed-0"
    # In the second epoch, with the best weights of the first.
    assert [path.name for path in second.glob("checkpoints/*")] == ["step-0000009"]
    live: list[dict[str, Any]] = []
    assert finetune(task, data, checkpoint, output, config, live.append) == whole
    assert [numbers["step"] for numbers in live] == [10, 12]
    assert not list(output.rglob("step-*"))
    for name in (
        "model.safetensors",
        *(
            f"{path.parent.relative_to(output)}/metrics.csv"
            for path in output.glob("runs/*/run.json")
        ),
    ):
        assert (output / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_a_request_to_stop_saves_and_leaves(checkpoint, tmp_path):
    features = sentences(60)
    whole = make_work(checkpoint, features, tmp_path / "whole", [0.75, 0.5], dropout=0.1)
    assert whole.train()
    work = make_work(checkpoint, features, tmp_path / "run", [0.75, 0.5], dropout=0.1)

    def stop(live: dict[str, Any]) -> None:
        if live["step"] == 10:
            work.stop.request()

    work.show = stop
    assert not work.train()
    saved = tmp_path / "run" / "checkpoints" / "step-0000011"
    resumed = make_work(checkpoint, features, tmp_path / "run", [0.5], dropout=0.1)
    steps: list[int] = []
    resumed.show = lambda live: steps.append(live["step"])
    resumed.resume(saved)
    assert resumed.train()
    assert steps == [16]
    # Both are as they were after the first epoch, when dev was better.
    assert resumed.state.best_step == whole.state.best_step == 8
    assert_same_weights(whole.model, resumed.model)
    metrics = [(tmp_path / name / "metrics.csv").read_bytes() for name in ("run", "whole")]
    assert metrics[0] == metrics[1]
    (saved / "training_state" / "optimizer.pt").write_bytes(b"cut off")
    with pytest.raises(UserError, match=r"optimizer\.pt is damaged: .*\. Delete .*step-0000011 to"):
        resumed.resume(saved)


def test_a_run_that_is_asked_to_stop_in_its_last_update_is_finished(
    checkpoint, tmp_path, monkeypatch
):
    rate = FinetuneWork.rate

    def requesting_rate(work: FinetuneWork) -> float:
        if work.step == 15:
            work.stop.request()
        return rate(work)

    monkeypatch.setattr(FinetuneWork, "rate", requesting_rate)
    first = make_work(checkpoint, sentences(60), tmp_path)
    assert first.train()
    # The next run of the search stops.
    second = make_work(checkpoint, sentences(60), tmp_path)
    second.stop = first.stop
    assert not second.train()


def test_dev_is_measured_after_each_epoch_and_the_best_weights_are_kept(checkpoint, tmp_path):
    features = sentences(60)  # 8 steps an epoch
    work = make_work(checkpoint, features, tmp_path, [0.75, 0.5])
    assert work.train()
    assert (work.step, work.state.best_step, work.state.best_score) == (16, 8, 0.75)
    rows = read_csv(tmp_path / "metrics.csv")
    assert [(row["step"], row["split"], row["accuracy"]) for row in rows] == [
        ("8", "dev", "0.75"), ("10", "train", ""), ("16", "train", ""), ("16", "dev", "0.5"),
    ]  # fmt: skip
    # They are those of a run that stops there.
    other = make_work(checkpoint, features, tmp_path / "other", [1.0])
    measure = other.measure

    def stop_at_8() -> dict[str, float]:
        other.stop.request()
        return measure()

    other.measure = stop_at_8
    assert not other.train()
    assert other.best_weights is not None
    for name, weight in work.model.state_dict().items():
        assert torch.equal(weight, other.best_weights[name]), name


def test_a_run_that_takes_over_an_updater_keeps_no_second_model(checkpoint, tmp_path, monkeypatch):
    setup = make_work(checkpoint, sentences(16)).setup
    vars(setup)["identity"] = {}  # there are no files
    setup.updaters.append(make_work(checkpoint, sentences(16)).updater)
    alive: list[bool] = []

    def make(*settings: Any) -> TaskModel:
        model = make_model(*settings)
        one = weakref.ref(model)
        monkeypatch.setattr(FinetuneWork, "train", lambda work: alive.append(one() is not None))
        return model

    monkeypatch.setattr("clozeworks.model.finetuning.run.make_model", make)
    train_run(setup, RUN, ALONE, tmp_path, lambda figures: None, StopRequest())
    assert alive == [False]


def test_of_equal_measurements_the_last_is_the_best(checkpoint):
    work = make_work(checkpoint, sentences(60), None, [0.5, 0.5])
    assert work.train()
    assert work.state.best_step == 16


def test_the_log_holds_losses_rates_and_speed(checkpoint, tmp_path):
    make_work(checkpoint, sentences(60), tmp_path).train()
    metrics, speed = read_csv(tmp_path / "metrics.csv"), read_csv(tmp_path / "speed.csv")
    assert [row["step"] for row in metrics] == ["10", "16"] == [row["step"] for row in speed]
    # Warm-up of 2 of 16 steps, then a line to 0; the rate is that of the update before.
    assert [float(row["learning_rate"]) for row in metrics] == pytest.approx(
        [1e-3 * 7 / 16, 1e-3 / 16]
    )
    assert all(float(row["loss"]) > 0 and float(row["gradient_norm"]) > 0 for row in metrics)
    assert all(
        float(row["examples_per_second"]) > 0 and 0 <= float(row["data_wait"]) <= 1 for row in speed
    )
    assert list((tmp_path / "logs").iterdir())


def test_frozen_parameters_stay_as_they_are(checkpoint):
    work = make_work(checkpoint, sentences(16), dropout=0.5)
    model = work.model
    model.encoder.requires_grad_(False)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    work.train()
    changed = {
        name for name, weight in model.state_dict().items() if not torch.equal(weight, before[name])
    }
    assert changed == {"classifier.weight", "classifier.bias"}


def test_auto_is_bf16_on_a_cpu_where_it_is_faster():
    cases = [("auto", 256, True), ("auto", 128, True), ("auto", 256, False), ("fp32", 256, True)]
    dtypes = [
        training_dtype(precision, ALONE.device, hidden_size, has_amx=has_amx)
        for precision, hidden_size, has_amx in cases
    ]
    assert dtypes == [torch.bfloat16, torch.float32, torch.float32, torch.float32]


def test_batches_in_bf16_have_few_widths_on_a_cpu(checkpoint):
    work = make_work(checkpoint, sentences(40), precision="bf16")
    (batch,) = work.make_batch(0).batches
    assert batch.token_index_T is None
    assert batch.input_ids_BL.shape[1] in few_widths(64)


def test_bf16_is_close_to_fp32(checkpoint):
    losses: dict[str, list[float]] = {"fp32": [], "bf16": []}
    for precision, found in losses.items():
        work = make_work(checkpoint, sentences(40), precision=precision)
        work.show = lambda live, found=found: found.append(live["loss"])
        work.train()
    assert losses["bf16"] == pytest.approx(losses["fp32"], abs=0.03)
    assert losses["bf16"] != losses["fp32"]


def test_scores_are_counted_and_ignored_tokens_are_not():
    row = sentences(1)[0]
    assert num_targets([row, row._replace(target=np.array(-100.0, dtype=np.float32))]) == 2
    assert num_targets([row._replace(target=np.array([1, IGNORED, 0, IGNORED]))]) == 2
    assert num_targets([row._replace(target=np.array([3, 4])), row._replace(target=None)]) == 2


def test_batches_hold_every_row_once_an_epoch_and_little_padding():
    lengths = np.random.default_rng(0).integers(5, 60, 333)
    batches = batch_rows(lengths, 16, seed=3)
    epochs = [[next(batches) for _ in range(21)] for _ in range(2)]
    for epoch in epochs:
        assert sorted(np.concatenate(epoch)) == list(range(333))
        assert sorted(len(rows) for rows in epoch) == [13] + [16] * 20
        padded = sum(len(rows) * lengths[rows].max() for rows in epoch)
        assert padded < 1.15 * lengths.sum()
    assert not np.array_equal(np.concatenate(epochs[0]), np.concatenate(epochs[1]))
    again = batch_rows(lengths, 16, seed=3)
    assert all(np.array_equal(rows, next(again)) for rows in epochs[0])
    assert not np.array_equal(next(batch_rows(lengths, 16, seed=4)), epochs[0][0])


def test_random_weights_take_only_the_checkpoints_shape(checkpoint):
    trained = make_model(GLUE["sst2"], Checkpoint.open(checkpoint), FinetuneConfig(), seed=1)
    random = make_model(
        GLUE["sst2"], Checkpoint.open(checkpoint), FinetuneConfig(random_weights=True), seed=1
    )
    assert torch.equal(
        random.state_dict()["classifier.weight"], trained.state_dict()["classifier.weight"]
    )
    weights = random.encoder.state_dict()
    layers = trained.encoder.get_submodule("encoder")
    for name, weight in layers.state_dict().items():
        assert weights[f"encoder.{name}"].shape == weight.shape
        if "LayerNorm" not in name and name.endswith("weight"):
            assert not torch.equal(weights[f"encoder.{name}"], weight)
