"""Several processes train as one, and fail as one."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from clozeworks.model.pretraining.pretrain import pretrain
from clozeworks.pipeline.errors import UserError
from pretrain_fixture import SHORT, assert_same_weights, interrupt_at, make_config, read_metrics


def free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


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
def test_several_processes_and_then_one_equal_one(instances, tmp_path, monkeypatch):
    changes = {"dropout": 0.0, "device": "cpu"}
    config = make_config(**changes)
    pretrain(config, [instances], tmp_path / "one")
    others = start_ranks(monkeypatch, 3, repr(SHORT | changes), instances, [tmp_path / "all"] * 3)
    assert (
        pretrain(config, [instances], tmp_path / "all", **interrupt_at(6))["status"]
        == "interrupted"
    )
    assert [(process.communicate(timeout=120)[1], process.returncode) for process in others] == [
        ("", 0)
    ] * 2
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
def test_a_run_that_only_the_first_rank_sees_finished_is_refused(instances, tmp_path, monkeypatch):
    changes = {"device": "cpu"}
    outputs = [tmp_path / "one machine", tmp_path / "another"]
    assert pretrain(make_config(**changes), [instances], outputs[0])["status"] == "finished"
    (second,) = start_ranks(monkeypatch, 2, repr(SHORT | changes), instances, outputs)
    with pytest.raises(UserError, match="were not started alike: `output`"):
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
