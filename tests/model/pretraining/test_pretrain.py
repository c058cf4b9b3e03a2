"""The training loop: exact resume, accumulation, ranks, left-to-right, mistakes, and the export."""

import csv
import json
import os
import random
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from clozeworks.model.checkpoint import read_model
from clozeworks.model.config import PretrainConfig
from clozeworks.model.encoders.bert import BertForPreTraining
from clozeworks.model.pretraining import work
from clozeworks.model.pretraining.batches import make_batches
from clozeworks.model.pretraining.data import open_instances, read_split
from clozeworks.model.pretraining.evaluate import evaluate
from clozeworks.model.pretraining.global_batches import GlobalBatches
from clozeworks.model.pretraining.pretrain import pretrain
from clozeworks.model.training.logs import Clock
from clozeworks.model.training.stop import StopRequest
from clozeworks.pipeline.errors import UserError
from huggingface_hub import ModelCard
from instances_fixture import write_instances
from safetensors.torch import load_file, save_file
from torch._dynamo.utils import counters

SHORT: dict[str, Any] = {
    "model": "tiny",
    "num_layers": 2,
    "hidden_size": 32,
    "num_heads": 2,
    "steps": 12,
    "batch_size": 12,
    "learning_rate": 2e-3,
    "checkpoint_every": 5,
    "evaluate_every": 4,
}


def make_config(**changes: Any) -> PretrainConfig:
    return PretrainConfig(**SHORT | changes)


@pytest.fixture(scope="module")
def instances(tmp_path_factory) -> str:
    return str(write_instances(tmp_path_factory.mktemp("instances")))


@pytest.fixture(scope="module")
def easy_instances(tmp_path_factory) -> str:
    sizes = {"vocab_size": 20, "rows_per_group": 150, "validation_rows": 60}
    return str(write_instances(tmp_path_factory.mktemp("easy"), **sizes))


class KilledError(Exception):
    pass


def kill_at(step: int):
    def progress(numbers: dict) -> None:
        if numbers["step"] == step:
            raise KilledError

    return progress


def interrupt_at(step: int) -> dict[str, Any]:
    """Return the arguments of `pretrain` for a run that is asked to stop after this step."""
    stop = StopRequest()

    def progress(numbers: dict) -> None:
        if numbers["step"] == step:
            stop.request()

    return {"progress": progress, "stop": stop}


def read_metrics(run: Path) -> list[dict[str, str]]:
    with (run / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model.safetensors")


def assert_same_weights(one: Path, two: Path, atol: float = 0.0) -> None:
    mine, other = weights(one), weights(two)
    assert mine.keys() == other.keys()
    for name in mine:
        torch.testing.assert_close(mine[name], other[name], rtol=0, atol=atol)


DRAWN: dict[str, Any] = {
    "dynamic_masking": "whole-word",
    "mask_split": (60, 20, 20),
    "duplicates_per_epoch": 1,
}


@pytest.mark.slow
@pytest.mark.parametrize(("step", "changes"), [(1, {}), (5, DRAWN), (11, {})])
def test_a_killed_run_resumes_to_the_same_bits(instances, tmp_path, step, changes):
    config = make_config(**changes)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    expected = pretrain(config, [instances], whole)
    with pytest.raises(KilledError):
        pretrain(config, [instances], broken, kill_at(step))
    steps = []
    assert (
        pretrain(config, [instances], broken, lambda numbers: steps.append(numbers["step"]))
        == expected
    )
    assert steps[0] == {1: 1, 5: 1, 11: 11}[step]  # at 5 the checkpoint was still to come
    assert_same_weights(whole, broken)
    for name in ("metrics.csv", "summary.json", "run.json", "config.json", "loss.png"):
        assert (whole / name).read_bytes() == (broken / name).read_bytes(), name
    states = [
        run / "checkpoints" / "step-0000012" / "training_state" / "optimizer.pt"
        for run in (whole, broken)
    ]
    one, two = (torch.load(path, weights_only=True)["state"] for path in states)
    assert all(torch.equal(one[i][name], two[i][name]) for i in one for name in one[i])
    assert {path.name for path in (whole / "checkpoints").iterdir()} == {"step-0000012", "best"}


@pytest.mark.slow
def test_models_are_archived_by_step_also_across_a_kill(instances, tmp_path):
    config = make_config(archive_every=4)
    pretrain(config, [instances], tmp_path / "whole")
    with pytest.raises(KilledError):
        pretrain(config, [instances], tmp_path / "broken", kill_at(10))
    pretrain(config, [instances], tmp_path / "broken")
    archive = tmp_path / "broken" / "archive"
    assert {path.name for path in archive.iterdir()} == {"step-4", "step-8", "step-12"}
    for name in ("step-4", "step-8", "step-12"):
        assert_same_weights(tmp_path / "whole" / "archive" / name, archive / name)
    assert_same_weights(archive / "step-12", tmp_path / "whole")
    assert not torch.equal(
        *(weights(archive / name)["cls.predictions.bias"] for name in ("step-4", "step-12"))
    )
    assert evaluate(archive / "step-8", instances, "validation", "cpu")["mlm_loss"] > 0
    shutil.rmtree(archive.parent / "checkpoints")
    (archive.parent / "summary.json").unlink()
    with pytest.raises(UserError, match=r"other settings \(seed was 0, now 1\)"):
        pretrain(make_config(archive_every=4, seed=1), [instances], archive.parent)
    # Whether models are archived changes nothing else.
    assert pretrain(make_config(), [instances], tmp_path / "whole")["status"] == "already finished"


def test_a_run_killed_after_its_last_checkpoint_is_only_finished(instances, tmp_path):
    first = pretrain(make_config(steps=3), [instances], tmp_path)
    model = (tmp_path / "model.safetensors").read_bytes()
    for name in ("summary.json", "model.safetensors"):
        (tmp_path / name).unlink()
    steps = []
    assert pretrain(make_config(steps=3), [instances], tmp_path, steps.append) == first
    assert not steps
    assert (tmp_path / "model.safetensors").read_bytes() == model


def test_a_finished_run_is_left_as_it_is(instances, tmp_path):
    config = make_config(steps=2)
    first = pretrain(config, [instances], tmp_path)
    assert first["status"] == "finished"
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert pretrain(config, [instances], tmp_path) == {**first, "status": "already finished"}
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.slow
def test_another_run_in_the_same_directory_is_refused_by_name(instances, tmp_path):
    config = make_config(steps=2)
    pretrain(config, [instances], tmp_path / "run")
    changed = make_config(steps=3)
    with pytest.raises(
        UserError,
        match=r"other settings \(steps was 2, now 3\)\. Choose another.* `checkpoint` .*run with",
    ):
        pretrain(changed, [instances], tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text("[")
    with pytest.raises(
        UserError, match=r"run/run.json is damaged.* Choose another `output`, or .* `overwrite`"
    ):
        pretrain(changed, [instances], tmp_path / "run")
    assert pretrain(changed, [instances], tmp_path / "run", overwrite=True)["step"] == 3
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("")
    for overwrite in (False, True):
        with pytest.raises(UserError, match=r"already contains other files \(thesis\.tex, …\)"):
            pretrain(config, [instances], tmp_path / "full", overwrite=overwrite)


@pytest.mark.slow
def test_a_compiled_run_has_few_graphs_and_the_same_result(instances, tmp_path, monkeypatch):
    compile_parts = BertForPreTraining.compile_parts

    def compile_without_code(model: BertForPreTraining) -> None:
        compile_parts(model, backend="eager", fullgraph=True)

    monkeypatch.setattr(BertForPreTraining, "compile_parts", compile_without_code)
    monkeypatch.setenv("CXX", sys.executable)
    torch._dynamo.reset()
    for choice in (True, False):
        pretrain(
            make_config(dropout=0.0, micro_batch_size=5, compile=choice),
            [instances],
            tmp_path / str(choice),
        )
    # Few for each of embeddings, layers and head: with a mask and without, and of a single row.
    assert counters["stats"]["unique_graphs"] <= 8
    assert_same_weights(tmp_path / "True", tmp_path / "False", atol=1e-5)
    pretrain(make_config(steps=1, compile=True), [instances], tmp_path / "dropout")


def test_compiling_without_a_compiler_is_refused(instances, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", str(tmp_path / "c++"))
    with pytest.raises(UserError, match=r"`compile` needs a C\+\+ compiler; install g\+\+"):
        pretrain(make_config(steps=1, compile=True), [instances], tmp_path / "run")
    assert pretrain(make_config(steps=1), [instances], tmp_path / "run")["status"] == "finished"


@pytest.mark.slow
def test_bf16_is_close_to_fp32(instances, tmp_path):
    summaries = {}
    for precision in ("bf16", "fp32"):
        config = make_config(precision=precision, dropout=0.0)
        summaries[precision] = pretrain(config, [instances], tmp_path / precision)
    assert summaries["bf16"]["final"]["loss"] == pytest.approx(
        summaries["fp32"]["final"]["loss"], rel=0.01
    )
    assert {weight.dtype for weight in weights(tmp_path / "bf16").values()} == {torch.float32}
    one, two = weights(tmp_path / "bf16"), weights(tmp_path / "fp32")
    assert not torch.equal(one["bert.pooler.dense.weight"], two["bert.pooler.dense.weight"])


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("can't allocate memory")]
)
@pytest.mark.parametrize("in_training", [True, False])
def test_a_batch_that_does_not_fit_says_what_to_lower(
    instances, tmp_path, monkeypatch, error, in_training
):
    def full(model: BertForPreTraining, *_: object) -> None:
        if model.training == in_training:
            raise error
        return sums(model, *_)

    sums: Any = BertForPreTraining.sums
    monkeypatch.setattr(BertForPreTraining, "sums", full)
    with pytest.raises(
        UserError, match="does not fit into the memory of this device; lower `micro_batch_size`"
    ):
        pretrain(make_config(), [instances], tmp_path)


def test_a_run_resumes_with_the_threads_that_it_began_with(
    instances, tmp_path, monkeypatch, capsys
):
    monkeypatch.delenv("OMP_NUM_THREADS")
    numbers = []

    def note(figures: dict[str, Any]) -> None:
        numbers.append(torch.get_num_threads())

    config = make_config(device="cpu")
    offered = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        pretrain(config, [instances], tmp_path, **interrupt_at(6))
        torch.set_num_threads(1)
        pretrain(config, [instances], tmp_path, note)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(offered)
    assert set(numbers) == {2}
    assert "The run began with 2 threads and goes on with them" in capsys.readouterr().err


def start_ranks(
    monkeypatch, number: int, config: str, instances: str, outputs: list[Path]
) -> list[subprocess.Popen]:
    """Start all ranks but the first, each with its output, and set this process's environment to be
    the first.
    """
    ranks = {"WORLD_SIZE": str(number), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    others = []
    for rank in range(1, number):
        code = (
            "from clozeworks.model.config import PretrainConfig\n"
            "from clozeworks.model.pretraining.pretrain import pretrain\n"
            f"pretrain(PretrainConfig(**{config}), [{instances!r}], {str(outputs[rank])!r})\n"
            "from pathlib import Path\n"
            "threads = [path.read_text() for path in Path('/proc/self/task').glob('*/comm')]\n"
            # gloo's threads could abort the exit.
            "assert not any('gloo' in name for name in threads), threads"
        )
        environment = os.environ | ranks | {"RANK": str(rank)}
        others.append(
            subprocess.Popen(
                [sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE, text=True
            )
        )
    for name, value in (ranks | {"RANK": "0"}).items():
        monkeypatch.setenv(name, value)
    return others


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 4])
def test_several_processes_and_then_one_equal_one(instances, tmp_path, monkeypatch, number):
    changes = {"dropout": 0.0, "device": "cpu"}
    config = make_config(**changes)
    pretrain(config, [instances], tmp_path / "one")
    others = start_ranks(
        monkeypatch, number, repr(SHORT | changes), instances, [tmp_path / "all"] * number
    )
    assert (
        pretrain(config, [instances], tmp_path / "all", **interrupt_at(6))["status"]
        == "interrupted"
    )
    assert [(process.communicate(timeout=120)[1], process.returncode) for process in others] == [
        ("", 0)
    ] * (number - 1)
    monkeypatch.delenv("WORLD_SIZE")
    assert pretrain(config, [instances], tmp_path / "all")["status"] == "finished"
    assert_same_weights(tmp_path / "one", tmp_path / "all", atol=1e-5)
    one, all_ranks = (read_metrics(tmp_path / name) for name in ("one", "all"))
    assert [row["step"] for row in one] == [row["step"] for row in all_ranks]
    for mine, other in zip(one, all_ranks, strict=True):
        assert float(mine["mlm_loss"]) == pytest.approx(float(other["mlm_loss"]), abs=1e-4)


@pytest.mark.slow
def test_ranks_without_a_shared_disk_are_refused(instances, tmp_path, monkeypatch):
    changes = {"device": "cpu"}
    outputs = [tmp_path / "one machine", tmp_path / "another"]
    (second,) = start_ranks(monkeypatch, 2, repr(SHORT | changes), instances, outputs)
    with pytest.raises(
        UserError,
        match=r"were not started alike: `output` is \w+ on rank 0 \(.*\), but missing on rank 1",
    ):
        pretrain(make_config(**changes), [instances], outputs[0])
    assert "were not started alike: `output`" in second.communicate(timeout=120)[1]


@pytest.mark.slow
def test_a_mistake_of_the_first_rank_is_one_of_all(instances, tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").touch()
    (second,) = start_ranks(
        monkeypatch, 2, repr(SHORT | {"device": "cpu"}), instances, [tmp_path / "out"] * 2
    )
    with pytest.raises(UserError, match="already contains other files"):
        pretrain(make_config(device="cpu"), [instances], tmp_path / "out")
    assert "UserError: " in second.communicate(timeout=120)[1].splitlines()[-1]


@pytest.mark.slow
def test_each_phase_is_evaluated_on_its_own_rows(instances, tmp_path, monkeypatch):
    longer = str(write_instances(tmp_path / "longer", max_length=40, seed=5, validation_rows=9))
    seen: list[tuple[int, int]] = []
    original: Any = work.PretrainWork.evaluate_phase

    def watch(updates: Any, phase: int) -> Any:
        seen.append((updates.step, phase))
        return original(updates, phase)

    monkeypatch.setattr(work.PretrainWork, "evaluate_phase", watch)
    config = make_config(phase_shares=(0.5, 0.5), evaluate_every=3)
    summary = pretrain(config, [instances, longer], tmp_path / "run")
    # The first is on the rows of the last, so that before and after compare.
    assert seen == [(0, 1), (3, 0), (6, 0), (9, 1), (12, 1)]
    # The best is one of the last phase, whatever the losses on other rows were.
    losses = {int(row["step"]): float(row["mlm_loss"]) for row in read_metrics(tmp_path / "run")
              if row["split"] == "validation"}  # fmt: skip
    assert (
        summary["best"]["step"] in (9, 12)
        and summary["best"]["mlm_loss"] == losses[summary["best"]["step"]]
    )
    measured = evaluate(tmp_path / "run", longer, "validation", "cpu")
    assert measured["mlm_loss"] == pytest.approx(summary["final"]["mlm_loss"], rel=1e-5)


def test_a_checkpoint_is_written_every_so_many_minutes(instances, tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    steps = []
    original: Any = work.save_checkpoint

    def watch(output: Path, model: Any, optimizer: Any, state: dict[str, Any]) -> None:
        steps.append(state["step"])
        original(output, model, optimizer, state)

    def minute_per_step(numbers: dict) -> None:
        now[0] += 60

    monkeypatch.setattr(work, "save_checkpoint", watch)
    config = make_config(checkpoint_every=None, checkpoint_minutes=3.5, evaluate_every=100)
    pretrain(config, [instances], tmp_path, minute_per_step)
    assert steps == [4, 8, 12]
    assert [path.name for path in (tmp_path / "checkpoints").glob("step-*")] == ["step-0000012"]


def free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def test_a_request_to_stop_saves_and_leaves(instances, tmp_path):
    config = make_config()
    stopped = pretrain(config, [instances], tmp_path / "run", **interrupt_at(3))
    assert (stopped["status"], stopped["step"]) == ("interrupted", 4)
    pretrain(config, [instances], tmp_path / "run")
    pretrain(config, [instances], tmp_path / "whole")
    assert_same_weights(tmp_path / "run", tmp_path / "whole")


@pytest.mark.slow
def test_a_run_of_hours_counts_the_time_before_an_interruption(instances, tmp_path, monkeypatch):
    monkeypatch.setattr(Clock, "seconds", lambda clock: float(clock.num_steps))
    config = make_config(steps=None, hours=20 / 3600)
    live = []
    assert pretrain(config, [instances], tmp_path, **interrupt_at(8))["step"] == 9
    summary = pretrain(config, [instances], tmp_path, live.append)
    # The clock is read before each step, so that the first part has 8 seconds, and the second ends
    # after its 13th step.
    assert (summary["status"], summary["step"]) == ("finished", 9 + 13)
    rates = [numbers["learning_rate"] for numbers in live]
    assert len(live) == 13 and rates == sorted(rates, reverse=True) and rates[-1] == 0
    assert rates[0] == pytest.approx(2e-3 * (1 - 8 / 20))
    assert live[0]["steps"] == 10 + 12


@pytest.mark.slow
def test_a_budget_of_tokens_is_met_within_the_lengths_of_rows(easy_instances, tmp_path):
    config = make_config(steps=None, tokens=20_000, evaluate_every=1000, checkpoint_every=1000)
    summary = pretrain(config, [easy_instances], tmp_path)
    assert summary["tokens"] == pytest.approx(20_000, rel=0.03)


def test_options_can_be_changed_until_there_is_something_to_lose(instances, tmp_path):
    with pytest.raises(UserError, match="cannot be split over 3 attention heads"):
        pretrain(make_config(num_heads=3), [instances], tmp_path)
    assert pretrain(make_config(steps=2), [instances], tmp_path)["status"] == "finished"


@pytest.mark.slow
def test_it_learns(easy_instances, tmp_path):
    config = make_config(steps=160, evaluate_every=80, checkpoint_every=100, dropout=0.0)
    live = []
    summary = pretrain(config, [easy_instances], tmp_path, live.append)
    assert summary["final"]["mlm_loss"] < 0.8 * summary["initial"]["mlm_loss"]
    assert summary["best"]["step"] == 160
    assert summary["rows"] == 160 * 12 < summary["tokens"] / 5
    expected = {
        "step",
        "steps",
        "mlm_loss",
        "nsp_loss",
        "mlm_accuracy",
        "nsp_accuracy",
        "learning_rate",
    }
    assert expected <= live[-1].keys() and live[-1]["tokens_per_second"] > 0
    rows = read_metrics(tmp_path)
    assert [int(row["step"]) for row in rows if row["split"] == "validation"] == [0, 80, 160]
    assert list((tmp_path / "logs").glob("events*"))


def test_each_line_of_the_metrics_can_be_read_at_once(instances, tmp_path):
    seen = []

    def look(numbers: dict) -> None:
        assert "loss" not in numbers  # it would be the sum of two without saying so
        seen.append([int(row["step"]) for row in read_metrics(tmp_path) if row["split"] == "train"])

    pretrain(make_config(evaluate_every=100, checkpoint_every=100), [instances], tmp_path, look)
    assert seen == [list(range(1, step)) for step in range(1, 13)]


@pytest.mark.slow
def test_the_run_is_a_hugging_face_model(instances, tmp_path):
    pretrain(make_config(), [instances], tmp_path)
    loaded: Any = transformers.BertForPreTraining.from_pretrained(
        tmp_path, output_loading_info=True
    )
    peer, report = loaded
    assert not report["missing_keys"] and not report["unexpected_keys"]
    rows = read_split(open_instances(instances, "validation"))
    (batch,) = make_batches(rows, len(rows))
    assert batch.attention_mask_BL is not None and batch.token_index_T is not None
    arguments = {
        "token_type_ids": batch.token_type_ids,
        "attention_mask": batch.attention_mask_BL.long(),
    }
    ours = read_model(tmp_path).eval()
    with torch.no_grad():
        logits = ours.mlm_logits(ours.encoder(*batch[:4]), batch.token_index_T)
        theirs = peer.eval()(batch.input_ids, **arguments)
    expected = theirs.prediction_logits.flatten(0, 1)[batch.token_index_T]
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer("w9 [MASK]")["input_ids"] == [2, 9, 4, 3]
    masked = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
    bare = transformers.AutoModel.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        again = masked(batch.input_ids, **arguments).logits
        hidden = bare(batch.input_ids, **arguments).last_hidden_state
        torch.testing.assert_close(
            ours.encoder(*batch[:4])[batch.attention_mask_BL], hidden[batch.attention_mask_BL]
        )
    torch.testing.assert_close(again, theirs.prediction_logits, rtol=0, atol=1e-5)


def test_the_model_card_states_data_recipe_and_figures(instances, tmp_path):
    summary = pretrain(
        make_config(steps=2, dynamic_masking="token", phase_shares=(0.5, 0.5)),
        [instances, instances],
        tmp_path,
    )
    card = ModelCard.load(tmp_path / "README.md")
    named = ("library_name", "pipeline_tag", "tags", "license", "language", "datasets")
    metadata = {name: value for name, value in card.data.to_dict().items() if name in named}
    assert metadata == {
        "library_name": "transformers",
        "pipeline_tag": "fill-mask",
        "tags": ["bert"],
    }
    lines = card.text.splitlines()
    rows = [line for line in lines if line.startswith("| training rows | ")]
    assert rows == [f"| training rows | {open_instances(instances).num_rows} |"] * 2
    assert f"| parameters | {summary['parameters']:,} |" in lines
    assert f"| tokens seen | {summary['tokens']:,} |" in lines
    assert {
        "| learning rate | 0.002 |",
        "| warm-up | 0 steps |",
        "| dynamic masking | token |",
    } <= set(lines)
    # Few held-out rows make no figures; test_card.py has the card of enough.
    assert any(line.startswith("| rows | too little to judge: ") for line in lines)


@pytest.mark.slow
def test_left_to_right_learns_without_masks_or_next_sentences(easy_instances, tmp_path):
    config = make_config(steps=80, objective="ltr", dropout=0.0)
    summary = pretrain(config, [easy_instances], tmp_path)
    assert summary["final"]["mlm_loss"] < 0.8 * summary["initial"]["mlm_loss"]
    assert "nsp_loss" not in summary["final"]
    assert json.loads((tmp_path / "config.json").read_text())["is_decoder"] is True


@pytest.mark.slow
def test_two_phases_go_through_two_directories(instances, tmp_path, monkeypatch):
    longer = str(write_instances(tmp_path / "longer", max_length=40, seed=5))
    config = make_config(phase_shares=(0.75, 0.25), objective="mlm")
    seen = {}
    original = GlobalBatches.make

    def watch(batches, step):
        seen[step] = batches.setup.first_row(step)
        return original(batches, step)

    monkeypatch.setattr(GlobalBatches, "make", watch)
    pretrain(config, [instances, longer], tmp_path / "run")
    assert [sequence.directory.max_length for sequence, _ in seen.values()] == [24] * 9 + [40] * 3
    assert [first for _, first in seen.values()] == [*range(0, 108, 12), 0, 12, 24]


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
    with pytest.raises(UserError, match="shape cannot be changed"):
        PretrainConfig(**config, num_layers=3)


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


def test_an_output_that_cannot_be_made_is_named(instances, tmp_path):
    (tmp_path / "file").write_text("")
    for output in (tmp_path / "file", tmp_path / "file" / "run", Path("/proc/nowhere")):
        with pytest.raises(UserError, match=r"is a file, but|Cannot write to"):
            pretrain(make_config(steps=1), [instances], output)
    assert (tmp_path / "file").read_text() == ""


@pytest.mark.slow
def test_a_continued_run_resumes_without_the_model_it_began_from(instances, tmp_path):
    pretrain(make_config(), [instances], tmp_path / "first")
    config = PretrainConfig(
        **{
            name: value
            for name, value in SHORT.items()
            if name not in ("num_layers", "hidden_size", "num_heads")
        },
        checkpoint=str(tmp_path / "first"),
    )
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
    options = {
        name: value
        for name, value in SHORT.items()
        if name not in ("num_layers", "hidden_size", "num_heads")
    }
    config = PretrainConfig(
        **options | {"steps": 1, "learning_rate": 1e-9}, checkpoint=str(tmp_path / "first")
    )
    pretrain(config, [instances], tmp_path / "second")
    assert capsys.readouterr().err.endswith(
        f"{tmp_path}/first has no masked-LM head and no next-sentence head; "
        "they start from random weights.\n"
    )
    kept = load_file(tmp_path / "second" / "model.safetensors")
    for name, weight in encoder.items():
        torch.testing.assert_close(kept[f"bert.{name}"], weight, rtol=0, atol=1e-7)
    assert kept["cls.seq_relationship.weight"].std() > 0


@pytest.mark.parametrize("name", ["model.safetensors", "training_state/optimizer.pt"])
def test_a_flipped_bit_in_a_checkpoint_is_found_when_it_resumes(instances, tmp_path, name):
    pretrain(make_config(), [instances], tmp_path, **interrupt_at(3))
    (checkpoint,) = (tmp_path / "checkpoints").glob("step-*")
    content = (checkpoint / name).read_bytes()
    draw = random.Random(4)
    for _ in range(20):
        flipped = bytearray(content)
        flipped[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        (checkpoint / name).write_bytes(flipped)
        with pytest.raises(UserError, match=r"Delete .*step-0000004|Use another checkpoint"):
            pretrain(make_config(), [instances], tmp_path)
    (checkpoint / name).write_bytes(content)
    assert pretrain(make_config(), [instances], tmp_path)["status"] == "finished"


def test_the_state_of_another_model_is_refused(instances, tmp_path):
    pretrain(make_config(), [instances], tmp_path, **interrupt_at(3))
    (checkpoint,) = (tmp_path / "checkpoints").glob("step-*")
    path = checkpoint / "training_state" / "optimizer.pt"
    recorded = json.loads((checkpoint / "training_state" / "state.json").read_text())
    del recorded["sha256"]  # as in checkpoints from before there were digests
    (checkpoint / "training_state" / "state.json").write_text(json.dumps(recorded))
    state = torch.load(path, weights_only=True)
    averages = state["state"]

    def with_average(average: torch.Tensor) -> dict[str, Any]:
        return {**state, "state": {**averages, 3: {**averages[3], "exp_avg": average}}}

    of_another_shape = with_average(torch.zeros(7, 7))
    not_finite = with_average(torch.full_like(averages[3]["exp_avg"], float("nan")))
    fewer = {**state, "param_groups": state["param_groups"][:1]}
    for wrong in (of_another_shape, not_finite, fewer):
        torch.save(wrong, path)
        with pytest.raises(
            UserError,
            match=r"training_state is damaged or belongs to another model\. Delete .*step-0000004 ",
        ):
            pretrain(make_config(), [instances], tmp_path)


def test_a_loss_that_is_not_finite_names_shard_and_rows(instances, tmp_path):
    config = make_config(learning_rate=1e30, warmup_steps=0)
    with pytest.raises(
        UserError,
        match=r"not finite at step \d+, on a batch of the rows train-0000\d-of-\d+.parquet row \d+",
    ):
        pretrain(config, [instances], tmp_path)
    assert not (tmp_path / "summary.json").exists()


def test_mistakes_in_the_options_are_named(instances, monkeypatch):
    with pytest.raises(UserError, match="`batch_size` is 0"):
        PretrainConfig(batch_size=0)
    with pytest.raises(UserError, match="`warmup_steps` is 20"):
        PretrainConfig(warmup_steps=20, steps=10)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="`device` is cuda"):
        pretrain(PretrainConfig(device="cuda"), [instances], "nowhere")


@pytest.mark.slow
def test_training_loads_no_beam_and_says_nothing(instances, tmp_path):
    code = (
        "import sys\n"
        "from clozeworks.model.config import PretrainConfig\n"
        "from clozeworks.model.pretraining.pretrain import pretrain\n"
        f"config = PretrainConfig(**{SHORT | {'steps': 2}!r})\n"
        f"pretrain(config, [{instances!r}], {str(tmp_path)!r})\n"
        "sys.exit('apache_beam' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
