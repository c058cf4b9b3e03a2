"""A run that was killed or stopped resumes to the same bits, and another one is refused."""

import json
import random
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from clozeworks.model.pretraining import work
from clozeworks.model.pretraining.evaluate import evaluate
from clozeworks.model.pretraining.pretrain import pretrain
from clozeworks.model.pretraining.setup import PretrainState
from clozeworks.model.training.logs import Clock
from clozeworks.model.training.run import read_state
from clozeworks.pipeline.errors import UserError

from tests.fixtures.instances_fixture import write_instances
from tests.fixtures.pretrain_fixture import (
    KilledError,
    after_updates,
    assert_same_weights,
    interrupt_at,
    kill_at,
    make_config,
    weights,
)

DRAWN: dict[str, Any] = {"dynamic_masking": "whole-word", "mask_split": (60, 20, 20)}


@pytest.mark.slow
@pytest.mark.parametrize(("step", "changes"), [(1, {}), (5, DRAWN), (11, {})])
def test_a_killed_run_resumes_to_the_same_bits(instances, tmp_path, step, changes):
    config = make_config(**changes)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    expected = pretrain(config, [instances], whole)
    with pytest.raises(KilledError):
        pretrain(config, [instances], broken, kill_at(step))
    steps = []
    assert pretrain(config, [instances], broken, after_updates(steps.append)) == expected
    assert steps[0]["step"] == {1: 1, 5: 1, 11: 11}[step]  # at 5 the checkpoint was still to come
    assert_same_weights(whole, broken)
    for name in ("metrics.csv", "summary.json", "run.json", "config.json"):
        assert (whole / name).read_bytes() == (broken / name).read_bytes(), name
    states = [
        run / "checkpoints" / "step-0000012" / "training_state" / "optimizer.pt"
        for run in (whole, broken)
    ]
    one, two = (torch.load(path, weights_only=True)["state"] for path in states)
    assert all(torch.equal(one[i][name], two[i][name]) for i in one for name in one[i])
    assert {path.name for path in (whole / "checkpoints").iterdir()} == {"step-0000012", "best"}


@pytest.mark.slow
def test_three_phases_killed_in_each_come_to_the_same_bits(instances, tmp_path):
    """Killed before and after each border, with a checkpoint on one of them."""
    others = [
        str(write_instances(tmp_path / f"rows-{length}", max_length=length, seed=length))
        for length in (40, 32)
    ]
    config = make_config(
        phase_shares=(0.4, 0.4, 0.2),
        mask_rate=((0.3,), (0.3, 0.15), (0.05,)),
        dynamic_masking="token",
        checkpoint_every=2,
        schedule="constant-with-decay",
        decay_share=0.2,
    )
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    expected = pretrain(config, [instances, *others], whole)
    for step in (3, 5, 9, 10, 11):
        with pytest.raises(KilledError):
            pretrain(config, [instances, *others], broken, kill_at(step))
    assert pretrain(config, [instances, *others], broken) == expected
    for name in ("model.safetensors", "metrics.csv", "summary.json", "run.json", "config.json"):
        assert (whole / name).read_bytes() == (broken / name).read_bytes(), name
    assert json.loads((whole / "run.json").read_text())["mask_rate"] == [[0.3], [0.3, 0.15], [0.05]]


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
    # Or before it deleted the one before.
    shutil.copytree(tmp_path / "checkpoints/step-0000003", tmp_path / "checkpoints/step-0000002")
    steps = []
    assert pretrain(make_config(steps=3), [instances], tmp_path, steps.append) == first
    assert not steps
    assert [path.name for path in tmp_path.glob("checkpoints/step-*")] == ["step-0000003"]
    assert (tmp_path / "model.safetensors").read_bytes() == model


def test_a_finished_run_is_left_as_it_is(instances, tmp_path):
    config = make_config(steps=2)
    first = pretrain(config, [instances], tmp_path)
    assert first["status"] == "finished"
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert pretrain(config, [instances], tmp_path) == {**first, "status": "already finished"}
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_options_can_be_changed_until_there_is_something_to_lose(instances, tmp_path):
    with pytest.raises(UserError, match="cannot be split over 3 attention heads"):
        pretrain(make_config(num_heads=3), [instances], tmp_path)
    assert pretrain(make_config(steps=2), [instances], tmp_path)["status"] == "finished"


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
    assert "The run began with 2 threads and resumes with 2 on 1 core" in capsys.readouterr().err


def test_a_checkpoint_is_written_every_so_many_minutes(instances, tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    steps = []
    original: Any = work.save_checkpoint

    def watch(output: Path, step: int, *values: Any) -> Path:
        steps.append(step)
        return original(output, step, *values)

    def minute_per_step(numbers: dict) -> None:
        now[0] += 60

    monkeypatch.setattr(work, "save_checkpoint", watch)
    config = make_config(checkpoint_every=None, checkpoint_minutes=3.5, evaluate_every=100)
    pretrain(config, [instances], tmp_path, after_updates(minute_per_step))
    assert steps == [4, 8, 12]
    assert [path.name for path in (tmp_path / "checkpoints").glob("step-*")] == ["step-0000012"]


@pytest.mark.slow
def test_a_run_of_hours_counts_the_time_before_an_interruption(instances, tmp_path, monkeypatch):
    monkeypatch.setattr(Clock, "seconds", lambda clock: float(clock.num_steps))
    config = make_config(steps=None, hours=20 / 3600)
    live = []
    assert pretrain(config, [instances], tmp_path, **interrupt_at(8))["step"] == 9
    summary = pretrain(config, [instances], tmp_path, after_updates(live.append))
    # The clock is read before each step, so that the first part has 8 seconds, and the second ends
    # after its 13th step.
    assert (summary["status"], summary["step"]) == ("finished", 9 + 13)
    rates = [numbers["learning_rate"] for numbers in live]
    assert len(live) == 13 and rates == sorted(rates, reverse=True) and rates[-1] == 0
    assert rates[0] == pytest.approx(2e-3 * (1 - 8 / 20))
    assert live[0]["steps"] == 10 + 12


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
    progress = checkpoint / "training_state" / "state.json"
    recorded = json.loads(progress.read_text())
    for name in ("num_rows", "num_tokens", "seconds"):
        progress.write_text(json.dumps({**recorded, name: recorded[name] + 1}))
        with pytest.raises(UserError, match=r"state\.json is damaged\. Delete .*step-0000004 "):
            pretrain(make_config(), [instances], tmp_path)
    older = {name: value for name, value in recorded.items() if name != "digest"}
    progress.write_text(json.dumps(older))
    read_state(checkpoint, PretrainState)
    state = torch.load(path, weights_only=True)
    averages = state["state"]

    def with_average(average: torch.Tensor) -> dict[str, Any]:
        return {**state, "state": {**averages, 3: {**averages[3], "exp_avg": average}}}

    of_another_shape = with_average(torch.zeros(7, 7))
    not_finite = with_average(torch.full_like(averages[3]["exp_avg"], float("nan")))
    fewer = {**state, "param_groups": state["param_groups"][:1]}
    for wrong in (of_another_shape, not_finite, fewer):
        torch.save(wrong, path)
        recorded["sha256"]["training_state/optimizer.pt"] = sha256(path.read_bytes()).hexdigest()
        progress.write_text(json.dumps(recorded))
        with pytest.raises(UserError, match=r"to another model\. Delete .*step-0000004 "):
            pretrain(make_config(), [instances], tmp_path)
