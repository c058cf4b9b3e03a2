"""Reading a damaged or hostile file gives a value or one `UserError`, nothing else."""

import json
import random
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from clozeworks.model.checkpoint import Checkpoint, load_tensors, read_model
from clozeworks.model.features.config import FeaturesConfig
from clozeworks.model.features.features import extract_features
from clozeworks.model.finetuning.results import RunSummary, read_summary
from clozeworks.model.pretraining.setup import PretrainState, Summary
from clozeworks.model.tasks.catalogue import read_task
from clozeworks.model.training import run
from clozeworks.model.training.logs import METRICS, RunLog
from clozeworks.model.training.run import read_summary as read_run_summary
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.parsing import parse_json
from clozeworks.pipeline.storage.state import claimed, read_any_manifest
from torture.mutations import WHOLE, changed

from tests.fixtures.checkpoint_fixture import make_checkpoint
from tests.fixtures.manifest_fixture import make_manifest

NUM_FLIPS = 24


def mutated(content: bytes) -> Iterator[bytes]:
    """Yield damaged forms of a file: cut off, bytes changed, JSON values of other kinds."""
    rng = random.Random(0)
    yield from WHOLE
    yield from (content[: len(content) * part // 8] for part in range(1, 8))
    for _ in range(NUM_FLIPS):
        flipped = bytearray(content)
        for _ in range(rng.choice((1, 4))):
            flipped[rng.randrange(len(flipped))] = rng.randrange(256)
        yield bytes(flipped)
    try:
        value = json.loads(content)
    except ValueError:
        return
    yield from (json.dumps(other).encode() for other in changed(value, rng))


def torture(path: Path, read: Callable[[], Any]) -> None:
    """Read the file at `path` in all damaged forms."""
    whole = path.read_bytes()
    read()
    num_refused = 0
    for content in mutated(whole):
        path.write_bytes(content)
        try:
            read()
        except UserError as error:
            num_refused += 1
            assert "\n" not in str(error)
    assert num_refused > 8
    path.write_bytes(whole)


def write(path: Path, values: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values))
    return path


@pytest.mark.parametrize("stage", ["ingest", "vocab", "build"])
def test_manifests(stage: str, tmp_path: Path):
    shard = {"name": "train-00000-of-00001.parquet", "split": "train", "rows": 3, "bytes": 9}
    path = write(tmp_path / "manifest.json", make_manifest(stage, [shard]))
    torture(path, lambda: read_any_manifest(str(tmp_path)))


@pytest.mark.parametrize("name", ["run.json", "finetune.json"])
def test_identities(name: str, tmp_path: Path):
    identity = {"seed": 0, "layers": [-1], "data": "abc"}
    path = write(tmp_path / name, identity)

    def read() -> None:
        with claimed(str(tmp_path), identity, name, ()):
            pass

    torture(path, read)


def test_summaries_and_records(tmp_path: Path):
    scores = {"accuracy": 0.5, "total": 9}
    run = {"learning_rate": 1e-5, "batch_size": 8, "epochs": 3.0, "seed": 0, "step": 9}
    best = {**run, "tuned": {"tau": 0.5}, "scores": scores}
    counts = (
        "runs", "degenerate_runs", "train_examples", "dev_examples", "train_examples_cut",
        "dev_examples_cut",
    )  # fmt: skip
    spread = {"metric": "accuracy", "baseline": scores, "word_baseline": {}, "dev_classes": {}}
    spread |= dict.fromkeys(("median", "lowest", "highest"), 0.5) | dict.fromkeys(counts, 1)
    search = {"status": "finished", "task": "sst2", "best": best, **spread}
    search |= {"held_out": True, "test_digest": "", "train_digests": []}
    torture(
        write(tmp_path / "search" / "summary.json", search),
        lambda: read_summary(tmp_path / "search"),
    )
    numbers = dict.fromkeys(("step", "parameters", "tokens", "rows", "validation_rows"), 3)
    losses = {"initial": {"loss": 3.0}, "final": {"loss": 2.0}, "best": {"step": 3, "loss": 2.0}}
    path = write(tmp_path / "run" / "summary.json", {"status": "finished", **numbers, **losses})
    torture(path, lambda: read_run_summary(tmp_path / "run", Summary))
    names = {"task": "sst2", "variant": "", "checkpoint": "c", "seconds": 1.5}
    rest = {"dev_classes": {}}
    path = write(tmp_path / "run.json", names | best | rest)
    torture(path, lambda: parse_json(path.read_bytes(), RunSummary, path))


def test_logs(tmp_path: Path):
    path = tmp_path / "metrics.csv"
    lines = (
        ",".join(METRICS),
        "0,validation,,3.5,0.1,0.7,0.5,",
        "5,train,0.001,3.25,0.2,0.69,0.5,1.5",
        "9,tra",
    )

    def read() -> None:
        path.write_bytes(path.read_bytes())
        with RunLog(tmp_path, 9):
            pass

    path.write_text("\n".join(lines))
    damaged = [
        path.read_bytes().replace(b"3.25", value)
        for value in (b"nan", b"x", b"1e999", b"1,2", b"\xff")
    ]
    for content in [*damaged, path.read_bytes().replace(b"\n5,", b"\n-5,"), b"a,b\n1,2\n"]:
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"metrics\.csv is damaged"):
            read()
    path.write_text("\n".join(lines))
    read()
    assert path.read_text() == "\n".join(lines[:3]) + "\n"  # a killed run's last line is cut off


def test_models(tmp_path: Path):
    model = make_checkpoint(tmp_path / "model")
    torture(model / "config.json", lambda: Checkpoint.open(model))
    torture(model / "model.safetensors", lambda: read_model(model))
    torture(
        write(model / "task.json", {"task": "sst2", "max_length": 24}),
        lambda: read_task(model / "task.json"),
    )


def test_training_states(tmp_path: Path):
    folder = tmp_path / run.STATE
    folder.mkdir()
    torch.save(
        {"state": {0: {"exp_avg": torch.ones(3)}}, "param_groups": [{"lr": 0.1}]},
        folder / "optimizer.pt",
    )
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    names = ("model.safetensors", f"{run.STATE}/optimizer.pt")
    digests = {name: sha256((tmp_path / name).read_bytes()).hexdigest() for name in names}
    state = {"step": 3, "sha256": digests, "sums": [0.0, 1.0], "final": None}
    state |= {"initial": {"loss": 3.0}, "best": {"step": 3, "loss": 2.0}}
    write(folder / "state.json", state)
    for name in ("state.json", "optimizer.pt"):
        torture(folder / name, lambda: run.read_state(tmp_path, PretrainState))
    torture(folder / "optimizer.pt", lambda: load_tensors(folder / "optimizer.pt", "Delete it."))


def test_features(tmp_path: Path):
    checkpoint, texts = make_checkpoint(tmp_path / "model"), tmp_path / "texts.txt"
    texts.write_text("the film was good\nthe book was bad\n")
    config, output = FeaturesConfig(device="cpu"), tmp_path / "features.parquet"

    def read() -> None:
        extract_features(checkpoint, texts, output, config)

    read()
    whole = output.read_bytes()
    for content in (b"", b"PAR1", whole[:100], whole[:-50], whole[:-9] + b"\xff" + whole[-8:]):
        output.write_bytes(content)
        with pytest.raises(UserError, match=r"features\.parquet"):
            read()
