"""Error analysis: dev predictions with the truth, figures of each class, and the page."""

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from clozeworks.cli.results import results
from clozeworks.model.finetuning.config import FinetuneConfig
from clozeworks.model.finetuning.finetune import finetune
from clozeworks.model.finetuning.page import render_results
from clozeworks.model.tasks.metrics import label_report
from clozeworks.pipeline.errors import UserError

from tests.fixtures.shared_data import DATA, needs_shared_data

QUICK: dict[str, Any] = {
    "max_length": 24,
    "batch_size": 8,
    "epochs": 2,
    "learning_rates": (2e-3,),
    "device": "cpu",
    "precision": "fp32",
}
REVIEWS = [
    "the film was good",
    "a good book",
    "very bad",
    "a bad <b>film</b>",
    "dull book",
    "is dull",
]
LABELS = ["good", "good", "bad", "bad", "dull", "dull"]


def write_reviews(folder: Path) -> Path:
    folder.mkdir()
    rows = [f"{text}\t{label}" for text, label in zip(REVIEWS, LABELS, strict=True)]
    for name, copies in (("train", 4), ("dev", 2)):
        (folder / f"{name}.tsv").write_text("\n".join(["text\tlabel", *rows * copies]) + "\n")
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory, checkpoint) -> Path:
    folder = tmp_path_factory.mktemp("searches")
    data = write_reviews(folder / "data")
    # Long enough for two lines of the training loss, one every ten updates.
    config = FinetuneConfig(**{**QUICK, "epochs": 8}, seeds=2, select="macro-f1")
    finetune("classify", data, checkpoint, folder / "runs" / "reviews", config)
    return folder / "runs"


def test_figures_of_classes_follow_from_the_confusion_matrix():
    names = ("a", "b", "c")
    truths = list("aaabbbbcc")
    answers = list("aabbbbacb")
    report = label_report(names, truths, answers)
    matrix = np.array([[2, 1, 0], [1, 3, 0], [0, 1, 1]])
    assert report.confusion == matrix.tolist()
    for index, name in enumerate(names):
        right = matrix[index, index]
        precision = right / matrix[:, index].sum()
        recall = right / matrix[index].sum()
        assert report.classes[name] == pytest.approx(
            {
                "precision": precision,
                "recall": recall,
                "f1": 2 * precision * recall / (precision + recall),
                "count": matrix[index].sum(),
            }
        )


def test_many_classes_have_no_matrix():
    names = [f"class {number}" for number in range(101)]
    report = label_report(names, names, names)
    assert len(report.classes) == 101
    assert report.confusion == []


def test_dev_predictions_have_text_and_truth(trained):
    output = trained / "reviews"
    rows = [json.loads(line) for line in (output / "dev" / "dev.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows] == REVIEWS * 2
    assert [row["truth"] for row in rows] == LABELS * 2
    summary = json.loads((output / "summary.json").read_text())
    right = np.mean([row["label"] == row["truth"] for row in rows])
    assert summary["best"]["scores"]["accuracy"] == pytest.approx(right)
    report = summary["dev_classes"]
    assert sum(map(sum, report["confusion"])) == 12
    assert {name: figures["count"] for name, figures in report["classes"].items()} == {
        "bad": 4,
        "dull": 4,
        "good": 4,
    }
    f1 = [figures["f1"] for figures in report["classes"].values()]
    assert summary["metric"] == "macro_f1"  # as `select` says
    assert summary["highest"] == pytest.approx(np.mean(f1))


def test_an_unknown_metric_is_answered_by_those_that_there_are(checkpoint, tmp_path):
    data = write_reviews(tmp_path / "data")
    config = FinetuneConfig(**QUICK, select="f1")
    with pytest.raises(UserError, match="`select` is f1; choose one of accuracy, macro_f1"):
        finetune("classify", data, checkpoint, tmp_path / "run", config)


class Elements(HTMLParser):
    """Counts a page's elements and keeps its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            assert name not in ("src", "href"), value  # self-contained

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_has_runs_curves_classes_and_mistakes(trained, tmp_path):
    output = trained / "reviews"
    path = output / "dev" / "dev.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    # As texts of the web have them: line ends of Unicode, which end no line of a file.
    rows[0]["text"] = "the\u2028film\u2029was\x85good"
    # Whatever was learned: the fourth example is a mistake.
    wrong = {**rows[3], "label": "good", "probabilities": {"bad": 0.1, "dull": 0, "good": 0.9}}
    lines = [json.dumps({**row, "label": row["truth"]}, ensure_ascii=False) for row in rows]
    lines[3] = json.dumps(wrong)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    page = Elements(render_results(trained))
    assert "script" not in page.tags
    assert "b" in page.tags
    assert "a bad <b>film</b>" in page.text  # escaped
    assert "1 of 12 examples are answered wrongly" in page.text
    assert "0.900 good\ninstead of bad" in page.text
    assert page.tags.count("svg") == 2
    assert page.tags.count("polyline") == 4  # two runs in each
    assert "a constant answer" in page.text
    command = [str(trained), "--html", str(tmp_path / "page.html"), "--json"]
    assert CliRunner().invoke(results, command).exit_code == 0
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


def page_of(trained: Path, folder: Path, rows: list[dict[str, Any]], variant: str = "") -> str:
    """Return the text of the page if the dev answers were these, of a task of this variant."""
    shutil.copytree(trained, folder)
    output = folder / "reviews"
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    (output / "dev" / "dev.jsonl").write_text(lines)
    for path in output.glob("runs/*/run.json"):
        path.write_text(json.dumps({**json.loads(path.read_bytes()), "variant": variant}))
    return Elements(render_results(folder)).text


def test_answers_to_questions_are_compared_as_their_metric_does(trained, tmp_path):
    rows = [
        {"id": "1", "answer": "the Panthers.", "probability": 0.9, "truth": ["panthers", "x"]},
        {"id": "2", "answer": "", "probability": 0.8, "truth": []},
        {"id": "3", "answer": "Broncos", "probability": 0.7, "truth": []},
    ]
    english = page_of(trained, tmp_path / "english", rows, "2.0")
    assert "1 of 3 examples are answered wrongly" in english
    assert "0.700 Broncos\ninstead of no answer" in english
    # There, articles count.
    korean = page_of(trained, tmp_path / "korean", rows, "2.0 korquad")
    assert "2 of 3 examples are answered wrongly" in korean


LINES = ("", "{", "[]", "3", "{}", '{"truth": 1, "label": "a", "probabilities": {}}', "[" * 10**5)
TABLES = (
    "step,split\n1\n",
    "step,split,loss\nx,train,1\n",
    "step,loss\n1,2\n",
    "split,step\na,1\n",
)


@pytest.mark.parametrize("content", [*LINES, b"\xff", '{"answer": 3, "truth": []}'])
def test_damaged_dev_answers_are_one_line(trained, tmp_path, content: str | bytes):
    shutil.copytree(trained, tmp_path / "runs")
    path = tmp_path / "runs/reviews/dev/dev.jsonl"
    first = path.read_bytes().splitlines()[0]
    content = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(first + b"\n" + content + b"\n")
    with pytest.raises(UserError, match=r"dev\.jsonl, line 2 is damaged\. Delete it, or rerun"):
        render_results(tmp_path / "runs")


@pytest.mark.parametrize("content", [*TABLES, "step,split,loss\n1,train,nan\n"])
def test_damaged_metrics_are_one_line(trained, tmp_path, content: str):
    shutil.copytree(trained, tmp_path / "runs")
    path = next((tmp_path / "runs/reviews/runs").glob("*/metrics.csv"))
    path.write_text(content)
    with pytest.raises(UserError, match=r"metrics\.csv is damaged or was not written"):
        render_results(tmp_path / "runs")


def test_missed_entities_have_no_confidence_and_come_last(trained, tmp_path):
    def row(tags: str, truth: str, *entities: tuple[int, int, float]) -> dict[str, Any]:
        return {
            "words": ["Ann", "Lee", "left", "Rome"],
            "tags": tags.split(),
            "entities": [
                {"type": "x", "start": start, "end": end, "probability": probability}
                for start, end, probability in entities
            ],
            "truth": truth.split(),
        }

    rows = [
        row("O O O O", "B-x I-x O O"),
        row("B-x I-x O O", "B-x I-x O B-x", (0, 2, 0.99)),  # what is found is right
        row("B-x O O B-x", "B-x I-x O B-x", (0, 1, 0.6), (3, 4, 0.98)),
        row("B-x I-x O O", "B-x I-x O O", (0, 2, 0.9)),
    ]
    text = page_of(trained, tmp_path / "ner", rows)
    assert "3 of 4 examples are answered wrongly" in text
    first = text.index("0.600 Ann (B-x) Rome (B-x)\ninstead of Ann (B-x) Lee (I-x) Rome (B-x)")
    assert first < text.index("no entity\ninstead of Ann (B-x) Lee (I-x)")
    assert first < text.index("Ann (B-x) Lee (I-x)\ninstead of Ann (B-x) Lee (I-x) Rome (B-x)")
    assert not re.search(r"[01]\.\d{3} (no entity|Ann .*Lee .*\ninstead)", text)


def test_a_single_point_is_no_curve(checkpoint, tmp_path):
    data = write_reviews(tmp_path / "data")
    config = FinetuneConfig(**{**QUICK, "epochs": 1})
    finetune("classify", data, checkpoint, tmp_path / "runs", config)
    page = Elements(render_results(tmp_path / "runs"))
    assert "learning rate 0.002, seed 0" in page.text
    assert "svg" not in page.tags


@needs_shared_data
@pytest.mark.slow
def test_entities_and_questions_are_shown_too(checkpoint, tmp_path):
    lines = (DATA / "ner" / "wnut17" / "wnut17train.conll").read_text().splitlines()
    (tmp_path / "ner").mkdir()
    for name, start in (("train", 0), ("dev", 900)):
        chosen = "\n".join(lines[start : start + 900])
        (tmp_path / "ner" / f"{name}.conll").write_text(chosen + "\n")
    finetune(
        "ner", tmp_path / "ner", checkpoint, tmp_path / "runs" / "ner", FinetuneConfig(**QUICK)
    )
    source = DATA / "squad" / "train-subset-10articles-v2.0.json"
    content = json.loads(source.read_text())
    for article in content["data"]:
        article["paragraphs"] = article["paragraphs"][:1]
    (tmp_path / "squad.json").write_text(json.dumps(content))
    config = FinetuneConfig(**{**QUICK, "max_length": 64, "stride": 16, "max_question_length": 24})
    finetune("squad", tmp_path / "squad.json", checkpoint, tmp_path / "runs" / "squad", config)
    page = Elements(render_results(tmp_path / "runs"))
    assert "squad 2.0" in page.text
    report = json.loads((tmp_path / "runs" / "ner" / "summary.json").read_text())["dev_classes"]
    assert "person" in report["classes"]
    assert page.text.count("The most confident mistakes on dev") == 2
