"""Predictions of several models averaged by examples/paper."""

import json
from pathlib import Path
from typing import Any

import average
import pytest
from click.testing import CliRunner
from clozeworks.model import FinetuneConfig, finetune, predict

from tests.fixtures.checkpoint_fixture import make_checkpoint
from tests.fixtures.finetune_fixture import write_reviews


def test_classes_scores_and_several_labels_are_averaged():
    of_models: list[dict[str, Any]] = [
        {"text": "t", "label": "a", "probabilities": {"a": 0.6, "b": 0.4}},
        {"text": "t", "label": "b", "probabilities": {"a": 0.1, "b": 0.9}},
    ]
    together = average.averaged(of_models)
    assert together["label"] == "b"
    assert together["probabilities"] == pytest.approx({"a": 0.35, "b": 0.65})
    assert average.averaged([{"score": 1.0}, {"score": 2.0}, {"score": 6.0}]) == {"score": 3.0}
    labels: list[dict[str, Any]] = [
        {"labels": ["a"], "probabilities": {"a": 0.9, "b": 0.1}},
        {"labels": ["a", "b"], "probabilities": {"a": 0.8, "b": 1.0}},
    ]
    assert average.averaged(labels)["labels"] == ["a", "b"]


def test_answers_are_averaged_by_their_text():
    def prediction(*shares: tuple[str, float]) -> dict[str, Any]:
        n_best = [{"text": text, "probability": share} for text, share in shares]
        return {"id": "1", "answer": shares[0][0], "start": 4, "n_best": n_best}

    together = average.averaged(
        [prediction(("Rome", 0.6), ("Paris", 0.4)), prediction(("Paris", 0.7), ("", 0.3))]
    )
    assert together["answer"] == "Paris"
    assert together["probability"] == pytest.approx(0.55)
    assert [each["text"] for each in together["n_best"]] == ["Paris", "Rome", ""]


@pytest.mark.slow
def test_files_of_two_models_are_averaged(tmp_path: Path):
    checkpoint = make_checkpoint(tmp_path / "checkpoint")
    data = write_reviews(tmp_path / "reviews")
    files = []
    for seed in range(2):
        config = FinetuneConfig(
            epochs=0.5, learning_rates=(5e-4,), max_length=24, seed=seed, device="cpu"
        )
        finetune("sst2", data, checkpoint, tmp_path / f"seed-{seed}", config)
        files.append(tmp_path / f"seed-{seed}.jsonl")
        predict(tmp_path / f"seed-{seed}", data / "dev.tsv", files[-1], "cpu")
    output = tmp_path / "together.jsonl"
    arguments = [*map(str, files), "--output", str(output)]
    result = CliRunner().invoke(average.main, arguments)
    assert result.exit_code == 0, result.output
    alone = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
    together = [json.loads(line) for line in output.read_text().splitlines()]
    for first, second, mean in zip(*alone, together, strict=True):
        expected = (first["probabilities"]["positive"] + second["probabilities"]["positive"]) / 2
        assert mean["probabilities"]["positive"] == pytest.approx(expected)
    files[1].write_text("".join(reversed(files[1].read_text().splitlines(keepends=True))))
    result = CliRunner().invoke(average.main, arguments)
    assert result.exit_code == 1
    assert "is of different examples" in result.output
