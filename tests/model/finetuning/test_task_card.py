"""The card of a fine-tuned model: the Hub's metadata, the data, the recipe and the scores."""

from typing import Any, cast

import pytest
from clozeworks.model.encoders.bert_config import ModelConfig
from clozeworks.model.encoders.config import EncoderConfig
from clozeworks.model.finetuning.finetune import task_card
from clozeworks.model.finetuning.results import FinetuneSummary
from clozeworks.model.tasks.catalogue import GLUE
from clozeworks.model.tasks.classify import Classification
from clozeworks.model.tasks.task import Task
from huggingface_hub import ModelCard

BEST = {
    **{"learning_rate": 3e-5, "batch_size": 32, "epochs": 3.0, "seed": 2, "tuned": {}},
    "scores": {"f1": 0.88, "matthews": 0.5, "total": 11873},
}
SUMMARY: Any = {
    **{"status": "finished", "task": "mrpc", "metric": "f1", "best": BEST, "runs": 4},
    **dict.fromkeys(("median", "lowest", "highest"), 0.8),
    **dict.fromkeys(("degenerate_runs", "train_examples_cut", "dev_examples_cut"), 0),
    **{"baseline": {"f1": 0.8122}, "word_baseline": {}, "held_out": False},
    **{"train_examples": 3667, "dev_examples": 408},
}


def card_of(
    task: Task = GLUE["mrpc"],
    data: str = "glue/MRPC",
    held_out: bool = False,
    shape: EncoderConfig | None = None,
    scores: dict[str, float] | None = None,
) -> ModelCard:
    summary = {**SUMMARY, "held_out": held_out}
    if scores:
        summary["best"] = {**SUMMARY["best"], "scores": scores}
    card = task_card(
        task=task, data=data, checkpoint="run", languages=["en"],
        summary=cast(FinetuneSummary, summary), shape=shape or ModelConfig(),
    )  # fmt: skip
    return ModelCard(card)


def test_the_metadata_are_those_of_the_hub():
    card = card_of()
    data = card.data.to_dict()
    assert {name: data[name] for name in ("language", "pipeline_tag", "datasets")} == {
        "language": ["en"],
        "pipeline_tag": "text-classification",
        "datasets": ["nyu-mll/glue"],
    }
    assert "licences of the data are not recorded" in card.text


@pytest.mark.parametrize(
    "line",
    [
        "# A BERT encoder fine-tuned on mrpc by Clozeworks",
        "| encoder | run |",
        "| training examples | 3,667 |",
        "| dev examples | 408, validation |",
        "| best of 4 on dev | learning rate 3e-05, batch size 32, epochs 3, seed 2 |",
        "| f1 | 0.88 (0.8122 for a constant answer) |",
        "| total | 11,873 |",
    ],
)
def test_data_recipe_and_figures_are_stated(line: str):
    assert line in card_of().text.splitlines()


def test_a_task_that_no_pipeline_runs_is_predicted():
    task = Classification(name="classify", text=("text",), labels=("a", "b"))
    assert 'pipeline("text-classification"' in card_of(task).text

    class Own(Classification):
        in_transformers = False

    own = card_of(Own(**vars(task)))
    assert "$ clozeworks predict . FILE" in own.text and "import pipeline" not in own.text
    # The Hub still finds it by its task.
    assert own.data.get("pipeline_tag") == "text-classification"


def test_of_many_scores_the_first_eight_are_shown():
    card = card_of(scores={f"score {number}": 0.5 for number in range(13)})
    lines = [line for line in card.text.splitlines() if line.startswith("| score")]
    assert lines == [f"| score {number} | 0.5 |" for number in range(8)]


def test_a_model_that_reads_from_left_to_right_says_so():
    line = "| attention | left to right |"
    assert line in card_of(shape=ModelConfig(is_decoder=True)).text.splitlines()
    assert "| attention |" not in card_of().text


def test_a_table_of_ones_own_is_named_by_its_file_and_its_licence_is_asked_for():
    task = Classification(name="classify", text=("text",), labels=("a", "b"))
    card = card_of(task, "my data/reviews.csv", held_out=True)
    assert card.data.get("datasets") is None
    assert "| data | reviews.csv |" in card.text
    assert "| dev examples | 408, train (held-out part) |" in card.text
    assert "The licences of the data are not recorded" in card.text
    assert card_of(task, "hf:owner/set:part").data.get("datasets") == ["owner/set"]
