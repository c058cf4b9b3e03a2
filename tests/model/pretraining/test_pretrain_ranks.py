"""Several processes train as one, and fail as one."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from clozeworks.model.config import PretrainConfig
from clozeworks.model.pretraining.pretrain import pretrain
from clozeworks.pipeline.errors import UserError

from tests.fixtures.pretrain_fixture import (
    SHORT,
    assert_same_weights,
    interrupt_at,
    make_config,
    read_metrics,
)
from tests.fixtures.process_fixture import TIME_LIMIT_S
from tests.fixtures.ranks_fixture import start_others


def start_ranks(
    monkeypatch, config: dict[str, Any], instances: str, outputs: list[Path]
) -> list["subprocess.Popen[str]"]:
    """Start the other ranks of a run, one for each output."""
    codes = [
        "from clozeworks.model.config import PretrainConfig\n"
        "from clozeworks.model.pretraining.pretrain import pretrain\n"
        f"pretrain(PretrainConfig(**{config!r}), [{instances!r}], {str(output)!r})\n"
        "from pathlib import Path\n"
        "threads = [path.read_text() for path in Path('/proc/self/task').glob('*/comm')]\n"
        # gloo's threads could abort the exit.
        "assert not any('gloo' in name for name in threads), threads"
        for output in outputs
    ]
    return start_others(monkeypatch, codes)


@pytest.mark.slow
def test_several_processes_and_then_one_equal_one(instances, tmp_path, monkeypatch, caplog):
    changes = {"dropout": 0.0, "device": "cpu"}
    config = make_config(**changes)
    text = pretrain(config, [instances], tmp_path / "one").get("text")
    others = start_ranks(monkeypatch, SHORT | changes, instances, [tmp_path / "all"] * 2)
    interrupted = pretrain(config, [instances], tmp_path / "all", **interrupt_at(6))
    assert (interrupted["status"], interrupted.get("text")) == ("interrupted", text)
    for process in others:
        assert process.communicate(timeout=TIME_LIMIT_S)[1] == "" and process.returncode == 0
    monkeypatch.delenv("WORLD_SIZE")
    config = make_config(**changes, micro_batch_size=5)
    assert pretrain(config, [instances], tmp_path / "all")["status"] == "finished"
    assert "began with 3 ranks and resumes with 1: its weights will differ in" in caplog.text
    assert "began with 12 rows in a micro-batch and resumes with 5" in caplog.text
    assert_same_weights(tmp_path / "one", tmp_path / "all", atol=1e-5)
    one, all_ranks = (read_metrics(tmp_path / name) for name in ("one", "all"))
    assert [row["step"] for row in one] == [row["step"] for row in all_ranks]
    for mine, other in zip(one, all_ranks, strict=True):
        assert float(mine["mlm_loss"]) == pytest.approx(float(other["mlm_loss"]), abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("is_finished", [False, True])
def test_ranks_without_a_shared_disk_are_refused(instances, tmp_path, monkeypatch, is_finished):
    changes = {"device": "cpu"}
    outputs = [tmp_path / "one machine", tmp_path / "another"]
    if is_finished:
        pretrain(make_config(**changes), [instances], outputs[0])
    (second,) = start_ranks(monkeypatch, SHORT | changes, instances, outputs[1:])
    with pytest.raises(UserError, match=r"`output` is \w+ on rank 0 \(.*\), but missing on rank 1"):
        pretrain(make_config(**changes), [instances], outputs[0])
    assert "were not started alike: `output`" in second.communicate(timeout=TIME_LIMIT_S)[1]


@pytest.mark.slow
def test_ranks_that_start_from_other_weights_are_refused(instances, tmp_path, monkeypatch):
    machines = [tmp_path / "one machine", tmp_path / "another"]
    for seed, machine in enumerate(machines):
        pretrain(make_config(device="cpu", seed=seed), [instances], machine / "model")
    config = {"checkpoint": "model", "steps": 2, "batch_size": 4, "device": "cpu"}
    code = (
        f"import os; os.chdir({str(machines[1])!r})\n"
        "from clozeworks.model.config import PretrainConfig\n"
        "from clozeworks.model.pretraining.pretrain import pretrain\n"
        f"pretrain(PretrainConfig(**{config!r}), [{instances!r}], {str(tmp_path / 'out')!r})\n"
    )
    (second,) = start_others(monkeypatch, [code])
    monkeypatch.chdir(machines[0])
    with pytest.raises(UserError, match="were not started alike: the model to start from"):
        pretrain(PretrainConfig(**config), [instances], tmp_path / "out")
    assert "the model to start from" in second.communicate(timeout=TIME_LIMIT_S)[1]


@pytest.mark.slow
def test_a_mistake_of_the_first_rank_is_one_of_all(instances, tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").touch()
    (second,) = start_ranks(monkeypatch, SHORT | {"device": "cpu"}, instances, [tmp_path / "out"])
    with pytest.raises(UserError, match="already contains other files"):
        pretrain(make_config(device="cpu"), [instances], tmp_path / "out")
    assert "UserError: " in second.communicate(timeout=TIME_LIMIT_S)[1].splitlines()[-1]
