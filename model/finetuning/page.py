"""Render fine-tuning results as one self-contained HTML page without scripts: runs, learning
curves, classes, and the most confident mistakes on dev.

The template ``page.html`` lies beside this file. The page follows the reader's light or dark theme.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, FileSystemLoader
from msgspec import Struct

from ...pipeline.errors import UserError
from ...pipeline.parsing import (
    Finite,
    convert,
    convert_values,
    decode_json,
    parse_json,
    read_csv,
)
from ..mirror import local_copy
from ..tasks.squad_metrics import Metric, exact_match
from .records import (
    SUMMARY,
    RunRecord,
    SearchSummary,
    best_of,
    describe_run,
    read_summary,
    run_name,
    run_order,
)
from .results import IDENTITY, RESULTS, ResultLine, read_results

NUM_MISTAKES = 20
MAX_CLASSES = 100
_ADVICE = "Delete it, or rerun `clozeworks finetune`."


@dataclass(frozen=True, kw_only=True)
class RunLine:
    """A row of the table of runs."""

    name: str
    """Its hyperparameters in words."""
    scores: Mapping[str, float]
    seconds: float
    is_best: bool


@dataclass(frozen=True, kw_only=True)
class CurveLine:
    """A run's line in a plot."""

    name: str
    points: str
    """As SVG has them: from 0 to 100 both ways, 0 at the top."""
    is_best: bool


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A plot over the steps, one line per run."""

    title: str
    lines: Sequence[CurveLine]
    lowest: float
    highest: float
    first_step: int
    last_step: int


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """A wrong answer to a dev example."""

    confidence: float | None
    """The probability of the answer; None if there is none, as of entities that were missed."""
    given: str
    truth: str
    texts: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class SearchView:
    """What the page shows of one output directory of `finetune`."""

    title: str
    directory: str
    checkpoint: str
    finished: bool
    metrics: Sequence[str]
    runs: Sequence[RunLine]
    baselines: Mapping[str, Mapping[str, float]]
    curves: Sequence[Curve]
    classes: Mapping[str, Mapping[str, float]]
    confusion: Sequence[tuple[str, Sequence[tuple[int, float]]]]
    """Of each class its name, and for each answer the number and the share of its examples."""
    mistakes: Sequence[Mistake]
    num_mistakes: int
    num_examples: int


def render_results(folder: str | Path) -> str:
    """Return the page of all output directories of `finetune` below `folder`.

    Raises `UserError` if there are none.
    """
    names = (RESULTS, SUMMARY, IDENTITY, "run.json", "metrics.csv", "dev.jsonl")
    root = local_copy(folder, *names)
    lines: dict[str, list[ResultLine]] = {}
    for line in read_results(root):
        lines.setdefault(line.directory, []).append(line)
    searches = [_search(root / name, metrics) for name, metrics in lines.items()]
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html").render(searches=searches)


def _search(directory: Path, lines: Sequence[ResultLine]) -> SearchView:
    first = lines[0]
    summary = read_summary(directory)
    metrics = [line.metric for line in lines]
    records = _records(directory)
    for record in records:
        missing = [metric for metric in metrics if metric not in record.scores]
        if missing:
            raise UserError(
                f"{directory}: {RESULTS} has {missing[0]}, but {run_name(record)} does not. "
                f"{_ADVICE}"
            )
    best = best_of(records)
    if summary:
        chosen = [each for each in records if run_name(each) == run_name(summary.best)]
        if not chosen:
            raise UserError(f"{directory} has no run {run_name(summary.best)}. {_ADVICE}")
        best = chosen[0]
    answer_metric: Metric = "korquad" if "korquad" in first.variant.split() else "squad"
    mistakes, num_examples = _mistakes(directory / "dev" / "dev.jsonl", answer_metric)
    report = best.dev_classes
    classes = report.classes
    if len(classes) > MAX_CLASSES:
        classes = {}
    confusion = []
    for name, counts in zip(classes, report.confusion, strict=False):
        total = max(1, sum(counts))
        confusion.append((name, [(count, count / total) for count in counts]))
    return SearchView(
        title=f"{first.task} {first.variant}".strip(),
        directory=first.directory,
        checkpoint=first.checkpoint,
        finished=first.finished,
        metrics=metrics,
        runs=[_run_line(record, record is best) for record in records],
        baselines=_baselines(summary),
        curves=_curves(directory, records, best, metrics[0]),
        classes=classes,
        confusion=confusion,
        mistakes=mistakes[:NUM_MISTAKES],
        num_mistakes=len(mistakes),
        num_examples=num_examples,
    )


def _records(directory: Path) -> list[RunRecord]:
    """Return the runs' records, the best learning rates' seeds together."""
    paths = sorted(directory.glob("runs/*/run.json"))
    if not paths:
        raise UserError(f"{directory} has {RESULTS}, but no runs/; copy the whole directory.")
    records = [parse_json(path.read_bytes(), RunRecord, path, _ADVICE) for path in paths]
    return sorted(records, key=run_order)


def _run_line(record: RunRecord, is_best: bool) -> RunLine:
    return RunLine(
        name=describe_run(record),
        scores=record.scores,
        seconds=record.seconds,
        is_best=is_best,
    )


def _baselines(summary: SearchSummary | None) -> dict[str, Mapping[str, float]]:
    if summary is None:
        return {}
    return {
        "the encoder before": summary.untrained,
        "a constant answer": summary.baseline,
        "TF-IDF": summary.word_baseline,
    }


def _curves(
    directory: Path, records: Sequence[RunRecord], best: RunRecord, metric: str
) -> list[Curve]:
    """Return the plots of the training loss and of the first metric on dev."""
    values: dict[str, dict[str, list[tuple[int, float]]]] = {"train loss": {}, f"dev {metric}": {}}
    best_name = run_name(best)
    for record in records:
        name = run_name(record)
        path = directory / "runs" / name / "metrics.csv"
        if not path.exists():
            continue
        for row in _logged(path, metric):
            value = row.loss if row.split == "train" else row.score
            title = "train loss" if row.split == "train" else f"dev {metric}"
            if value is not None:
                values[title].setdefault(name, []).append((row.step, value))
    curves = []
    for title, runs in values.items():
        # One point makes no line; its figure is in the table of runs.
        lines = {name: points for name, points in runs.items() if len(points) > 1}
        if lines:
            curves.append(_curve(title, lines, best_name))
    return curves


class _Logged(Struct):
    """A line of ``metrics.csv``."""

    step: int
    split: Literal["train", "dev"]
    loss: Finite | None = None
    score: Finite | None = None


def _logged(path: Path, metric: str) -> list[_Logged]:
    lines = []
    for row in read_csv(path.read_bytes(), path, _ADVICE):
        line = {**row, "score": row.get(metric)}
        # A cell is empty where a line has no such figure.
        lines.append({name: value for name, value in line.items() if value})
    return convert(lines, list[_Logged], path, _ADVICE, strict=False)


def _curve(title: str, runs: Mapping[str, Sequence[tuple[int, float]]], best: str) -> Curve:
    points = [point for run in runs.values() for point in run]
    steps = [step for step, _ in points]
    heights = [height for _, height in points]
    width = max(steps) - min(steps) or 1
    height = max(heights) - min(heights) or 1.0
    lines = []
    # The best one is drawn last, above the others.
    for name in sorted(runs, key=lambda name: name == best):
        places = []
        for step, value in runs[name]:
            x = 100 * (step - min(steps)) / width
            y = 100 * (max(heights) - value) / height
            places.append(f"{x:.2f},{y:.2f}")
        lines.append(CurveLine(name=name, points=" ".join(places), is_best=name == best))
    return Curve(
        title=title,
        lines=lines,
        lowest=min(heights),
        highest=max(heights),
        first_step=min(steps),
        last_step=max(steps),
    )


def _mistakes(path: Path, answer_metric: Metric) -> tuple[list[Mistake], int]:
    """Return the wrong answers, the most confident first, and the number of examples; answers to
    questions are compared as `answer_metric` does.
    """
    if not path.exists():
        return [], 0
    mistakes = []
    num_examples = 0
    # Not splitlines(), which takes U+2028 and other characters of a text for line ends.
    for line in path.read_bytes().removesuffix(b"\n").split(b"\n"):
        num_examples += 1
        try:
            mistake = _mistake(decode_json(line, dict[str, Any]), answer_metric)
            if mistake:
                mistakes.append(convert_values(vars(mistake), Mistake))
        # A task of the user's own may write other fields, but a line of ours that lacks one, or
        # has one of another type, is damaged.
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise UserError(f"{path}, line {num_examples} is damaged. {_ADVICE}") from None
    return sorted(mistakes, key=lambda mistake: -(mistake.confidence or 0)), num_examples


def _mistake(row: dict[str, Any], answer_metric: Metric) -> Mistake | None:
    """Return the mistake in an answer, if it is one; scores have none."""
    truth = row["truth"]
    if "answer" in row:
        # No answer is the empty one.
        if any(exact_match(row["answer"], gold, answer_metric) for gold in truth or [""]):
            return None
        return Mistake(
            confidence=row["probability"],
            given=row["answer"] or "no answer",
            truth=" / ".join(dict.fromkeys(truth)) or "no answer",
            texts=[row["id"]],
        )
    if "entities" in row:
        return _wrong_entities(row)
    if "tag_probabilities" in row:
        return _wrong_tags(row)
    if "labels" in row:
        return _wrong_labels(row)
    if "probabilities" not in row or row["label"] == truth:
        return None
    return Mistake(
        confidence=row["probabilities"][str(row["label"])],
        given=str(row["label"]),
        truth=str(truth),
        texts=list(_texts(row)),
    )


def _wrong_entities(row: dict[str, Any]) -> Mistake | None:
    """Return the mistake in a sentence's entities, as confident as the most confident wrong one."""
    truth = row["truth"]
    if row["tags"] == truth:
        return None
    wrong = [entity for entity in row["entities"] if not _is_entity(entity, truth)]
    return Mistake(
        confidence=max((entity["probability"] for entity in wrong), default=None),
        given=_tagged(row["words"], row["tags"]),
        truth=_tagged(row["words"], truth),
        texts=[" ".join(row["words"])],
    )


def _is_entity(entity: Mapping[str, Any], tags: Sequence[str]) -> bool:
    """Return whether these BIO tags have the entity, with the same ends."""
    start, end, kind = entity["start"], entity["end"], entity["type"]
    expected = [f"B-{kind}"] + [f"I-{kind}"] * (end - start - 1)
    continues = tags[end : end + 1] == [f"I-{kind}"]
    return tags[start:end] == expected and not continues


def _wrong_tags(row: dict[str, Any]) -> Mistake | None:
    """Return the words with a wrong part of speech, as confident as the most confident of them."""
    words = zip(row["words"], row["tags"], row["truth"], row["tag_probabilities"], strict=True)
    wrong = [each for each in words if each[1] != each[2]]
    if not wrong:
        return None
    return Mistake(
        confidence=max(probability for *_, probability in wrong),
        given=" ".join(f"{word} ({tag})" for word, tag, _, _ in wrong),
        truth=" ".join(f"{word} ({truth})" for word, _, truth, _ in wrong),
        texts=[" ".join(row["words"])],
    )


def _wrong_labels(row: dict[str, Any]) -> Mistake | None:
    """Return the mistake in any number of labels, as confident as the most confident wrong one."""
    wrong = set(row["labels"]) ^ set(row["truth"])
    if not wrong:
        return None
    probabilities = [row["probabilities"][label] for label in wrong]
    return Mistake(
        confidence=max(max(share, 1 - share) for share in probabilities),
        given=", ".join(row["labels"]) or "no label",
        truth=", ".join(row["truth"]) or "no label",
        texts=list(_texts(row)),
    )


def _texts(row: Mapping[str, Any]) -> Iterable[str]:
    for name, value in row.items():
        if name not in ("label", "labels", "probabilities", "truth"):
            yield str(value)


def _tagged(words: Sequence[str], tags: Sequence[str]) -> str:
    """Return the words that have a tag, each with it."""
    tagged = [f"{word} ({tag})" for word, tag in zip(words, tags, strict=True) if tag != "O"]
    return " ".join(tagged) or "no entity"
