"""Render fine-tuning results as one self-contained HTML page without scripts: runs, learning
curves, classes, and the most confident mistakes on dev.

The template ``page.html`` lies beside this file. The page follows the reader's light or dark theme.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...pipeline.cards import render
from ...pipeline.errors import UserError
from ...pipeline.parsing import convert_values, decode_json
from ..mirror import local_copy
from ..tasks.squad_metrics import Metric, exact_match
from .records import (
    ADVICE,
    LOG,
    RECORD,
    SUMMARY,
    RunRecord,
    SearchSummary,
    best_of,
    describe_run,
    read_log,
    read_records,
    read_summary,
    run_name,
)
from .results import IDENTITY, ResultLine, read_results


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A plot over the steps, one line per run."""

    title: str
    lines: Mapping[str, str]
    """The points of each run as SVG has them: from 0 to 100 both ways, 0 at the top."""
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
class Search:
    """What the page shows of one output directory of `finetune`."""

    lines: Sequence[ResultLine]
    """One per metric."""
    summary: SearchSummary | None
    records: Sequence[RunRecord]
    best: RunRecord
    curves: Sequence[Curve]
    mistakes: Sequence[Mistake]
    num_examples: int


def render_results(folder: str | Path) -> str:
    """Return the page of all output directories of `finetune` below `folder`.

    Raises `UserError` if there are none.
    """
    root = local_copy(folder, IDENTITY, SUMMARY, RECORD, LOG, "dev.jsonl")
    lines: dict[str, list[ResultLine]] = {}
    for line in read_results(root):
        lines.setdefault(line.directory, []).append(line)
    searches = [_search(root / name, metrics) for name, metrics in lines.items()]
    return render(
        "model/finetuning/page.html",
        searches=searches,
        run_name=run_name,
        describe_run=describe_run,
    )


def _search(directory: Path, lines: Sequence[ResultLine]) -> Search:
    records = read_records(directory)
    summary = read_summary(directory)
    best = best_of(records)
    if summary:
        chosen = [each for each in records if run_name(each) == run_name(summary.best)]
        if not chosen:
            raise UserError(f"{directory} has no run {run_name(summary.best)}. {ADVICE}")
        best = chosen[0]
    answer_metric: Metric = "korquad" if "korquad" in lines[0].variant.split() else "squad"
    mistakes, num_examples = _mistakes(directory / "dev" / "dev.jsonl", answer_metric)
    return Search(
        lines=lines,
        summary=summary,
        records=records,
        best=best,
        curves=_curves(directory, records, best, lines[0].metric),
        mistakes=mistakes,
        num_examples=num_examples,
    )


def _curves(
    directory: Path, records: Sequence[RunRecord], best: RunRecord, metric: str
) -> list[Curve]:
    """Return the plots of the training loss and of the first metric on dev."""
    loss_title = "train loss"
    score_title = f"dev {metric}"
    points_by_title: dict[str, dict[str, list[tuple[int, float]]]] = {
        loss_title: {},
        score_title: {},
    }
    # The best one is drawn last, above the others.
    for record in sorted(records, key=lambda record: record is best):
        losses = []
        scores = []
        for line in read_log(directory, record, metric):
            if line.split == "train" and line.loss is not None:
                losses.append((line.step, line.loss))
            if line.split == "dev" and line.score is not None:
                scores.append((line.step, line.score))
        for title, points in ((loss_title, losses), (score_title, scores)):
            # One point makes no line; its figure is in the table of runs.
            if len(points) > 1:
                points_by_title[title][run_name(record)] = points
    return [_curve(title, runs) for title, runs in points_by_title.items() if runs]


def _curve(title: str, runs: Mapping[str, Sequence[tuple[int, float]]]) -> Curve:
    points = [point for run in runs.values() for point in run]
    steps = [step for step, _ in points]
    heights = [height for _, height in points]
    width = max(steps) - min(steps) or 1
    height = max(heights) - min(heights) or 1.0
    lines = {}
    for name, run in runs.items():
        places = []
        for step, value in run:
            x = 100 * (step - min(steps)) / width
            y = 100 * (max(heights) - value) / height
            places.append(f"{x:.2f},{y:.2f}")
        lines[name] = " ".join(places)
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
            raise UserError(f"{path}, line {num_examples} is damaged. {ADVICE}") from None
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
