"""Average the predictions of several models of one task, as the paper's ensembles do (Table 2).

    python examples/paper/average.py seed-0.jsonl seed-1.jsonl --output together.jsonl

The files are what `clozeworks predict` writes as JSON Lines for the same examples. Probabilities of
classes and scores are averaged; of questions, the probabilities of each answer over the n best of
all models, where an answer that a model does not list has none from it.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import click

Prediction = dict[str, Any]
ANSWERS = {"label", "labels", "probabilities", "score", "answer", "start", "probability", "n_best"}
"""Fields of a prediction that may differ between models."""


def averaged(predictions: Sequence[Prediction]) -> Prediction:
    """Return the prediction of all models together from each model's for the same example."""
    first = predictions[0]
    if "n_best" in first:
        shares = _mean_of_answers([each["n_best"] for each in predictions])
        # Of equal answers the one that the first models prefer.
        answer = max(shares, key=lambda text: shares[text])
        merged = {**first, "answer": answer, "probability": shares[answer]}
        del merged["start"]  # another model may have found the answer elsewhere
        merged["n_best"] = [{"text": text, "probability": share} for text, share in shares.items()]
        return merged
    if "score" in first:
        return {**first, "score": fmean(each["score"] for each in predictions)}
    if "probabilities" not in first:
        raise click.ClickException("Only classes, scores and answers to questions are averaged.")
    names = list(first["probabilities"])
    shares = {name: fmean(each["probabilities"][name] for each in predictions) for name in names}
    if "labels" in first:
        labels = [name for name in names if shares[name] > 0.5]
        return {**first, "labels": labels, "probabilities": shares}
    label: str | int = max(names, key=lambda name: shares[name])
    if isinstance(first["label"], int):  # the number of an ending
        label = int(label)
    return {**first, "label": label, "probabilities": shares}


def _mean_of_answers(lists: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, float]:
    """Return the mean probability of each text, the highest first."""
    sums: dict[str, float] = defaultdict(float)
    for answers in lists:
        for answer in answers:
            sums[answer["text"]] += answer["probability"]
    means = {text: total / len(lists) for text, total in sums.items()}
    return dict(sorted(means.items(), key=lambda item: -item[1]))


def _read(path: Path) -> list[Prediction]:
    # Not splitlines(), which takes U+2028 and other characters of a text for line ends.
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def _same(predictions: Sequence[Prediction]) -> bool:
    """Return whether these are predictions for one example."""
    inputs = [
        {name: value for name, value in each.items() if name not in ANSWERS and name != "null_odds"}
        for each in predictions
    ]
    return all(each == inputs[0] for each in inputs)


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--output", required=True, type=click.Path(path_type=Path))
def main(files: tuple[Path, ...], output: Path) -> None:
    """Average the predictions in FILES."""
    of_models = [_read(path) for path in files]
    if len({len(predictions) for predictions in of_models}) > 1:
        raise click.ClickException("The files have different numbers of predictions.")
    lines: list[str] = []
    for number, predictions in enumerate(zip(*of_models, strict=True), 1):
        if not _same(predictions):
            raise click.ClickException(f"Line {number} is of different examples.")
        lines.append(json.dumps(averaged(predictions), ensure_ascii=False) + "\n")
    output.write_text("".join(lines), encoding="utf-8")
    click.echo(f"{len(lines):,} predictions of {len(files)} models averaged: {output}")


if __name__ == "__main__":
    main()
