"""Classify texts and pairs, or score them: one class, any number of classes, or a score for each
row of a table. The classes follow from the user's own table.

Shapes: N examples, B rows, K classes (1 for regression).
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...pipeline.errors import UserError
from ..encoders.config import EncoderConfig
from ..notices import print_notice
from ..tokenizer import TextTokenizer
from .batches import Feature, Scale, TaskBatch
from .example_tables import (
    SUFFIXES,
    MissingColumnError,
    TableRow,
    UnusableRowError,
    class_name,
    listed,
    read_rows,
    shown,
    usable,
)
from .metrics import label_report, measure, softmax
from .options import METRICS, ClassReport, Size, TaskOptions
from .squad_windows import window_spans
from .task import Answer, Answers, Features, LinearHead, Outputs, Scores, Task, hf_labels

TEXT_COLUMNS = ("text", "sentence")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


class TextExample(NamedTuple):
    """One text or pair."""

    text: str
    text_pair: str | None
    target: Any
    """Index of the class, tuple of several, or score; None without a label."""
    owner: str | None = None
    """Value of the `group_column`."""


Examples = Sequence[TextExample]


@dataclass(frozen=True, kw_only=True)
class GlueForm:
    """What a task of GLUE has beside a table of one's own."""

    metrics: tuple[str, ...] = ("accuracy",)
    headerless: tuple[str, ...] = ()
    """Columns of a TSV without a header line."""
    server_files: Mapping[str, str]
    """Names of the files for GLUE's server, by split."""
    server_words: bool = False
    """The server expects the names of the classes instead of their indices."""


class SequenceClassifier(LinearHead):
    """An encoder with a linear layer on each pooled row; keys and logits as in ``transformers``."""

    hf_name = "ForSequenceClassification"
    class_weights_K: Tensor | None = None
    """How much each class counts in the loss; None if all count 1."""

    def forward(self, batch: TaskBatch) -> Tensor:
        """Return logits (B, K)."""
        return self.classify(self.pooled(batch))

    def classify(self, values: Tensor) -> Tensor:
        """See `LinearHead`; scores are computed in fp32: bf16 near 200,000 has steps of 1,024."""
        if self.num_outputs > 1:
            return super().classify(values)
        with torch.autocast(values.device.type, enabled=False):
            return super().classify(values.float())

    @torch.no_grad()
    def fold(self, scale: Scale) -> None:
        """Make the last layer, which gives standardised scores, give them in their own unit."""
        *_, last = self.classifier.modules()
        assert isinstance(last, nn.Linear)
        last.weight.copy_(last.weight.cpu().double() * scale.spread)
        last.bias.copy_(last.bias.cpu().double() * scale.spread + scale.mean)

    def loss(self, outputs: Tensor, batch: TaskBatch) -> Tensor:
        """Return the mean cross-entropy, binary for targets (B, K); of scores the squared error."""
        assert batch.target is not None
        weights_K = self.class_weights_K
        if batch.target.ndim > 1:
            logits_BK = outputs.float()
            return F.binary_cross_entropy_with_logits(logits_BK, batch.target, pos_weight=weights_K)
        if outputs.shape[1] == 1:
            return F.mse_loss(outputs.squeeze(1), batch.target.float())
        if weights_K is None:
            return super().loss(outputs, batch)
        # Not `reduction="mean"`, which divides by the weights of the batch: a rare example would
        # count less in a batch that has several.
        losses_B = F.cross_entropy(outputs.float(), batch.target, weights_K, reduction="none")
        return losses_B.mean()


@dataclass(frozen=True, kw_only=True)
class Classification(Task[TextExample]):
    """A class, several classes, or a score, for each row of a table. A column is a tuple of
    alternative names, as published forms differ; the first one present is used.
    """

    name: str
    text: tuple[str, ...]
    text_pair: tuple[str, ...] = ()
    label: tuple[str, ...] = ("label",)
    labels: tuple[str, ...] = ()
    """Names of the classes, in order; none if labels are scores."""
    has_lists: bool = False
    """Whether each row has a list of labels: an independent yes or no for each class."""
    max_length: Size = 128
    stride: Size | None = None
    """Tokens from the start of a text's window to the start of the next; None cuts long texts."""
    metric: str | None = None
    """Chooses between runs of a user's own table, before the metrics that are always measured."""
    class_weights: Literal["balanced"] | None = None
    """Whether rare classes count as much in the loss as frequent ones."""
    group_column: str | None = None
    """Column whose equal values stay on one side of a train/dev split; `predict` needs none."""
    id_column: str | None = None
    """Column, such as PhraseId, that `predict` keeps as it does ``id``."""
    glue: GlueForm | None = None
    tables = SUFFIXES

    def __post_init__(self) -> None:
        if self.class_weights and not self.labels:
            raise UserError("`class_weights` is for classes; these labels are scores.")
        if self.metric is None:
            return
        if self.glue:
            raise UserError(f"`metric` is for tables of your own; {self.name} has those of GLUE.")
        suitable = [name for name, labels in METRICS.items() if self._row_has in labels]
        if self.metric not in suitable:
            raise UserError(
                f"`metric` is {self.metric!r}; for rows with {self._row_has} it is one of "
                f"{', '.join(suitable)}."
            )

    @property
    def _row_has(self) -> str:
        if self.has_lists:
            return "classes"
        return "a class" if self.labels else "a score"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics that are measured; the first one chooses between runs."""
        if self.glue:
            return self.glue.metrics
        usual = {
            "a class": ("accuracy", "macro_f1"),
            "classes": ("micro_f1", "macro_f1"),
            "a score": ("spearman", "pearson", "rmse", "r2"),
        }[self._row_has]
        return tuple(dict.fromkeys([self.metric or usual[0], *usual]))

    def settings(self) -> dict[str, Any]:
        settings = super().settings()
        settings.pop("glue", None)
        settings.pop("group_column", None)
        return settings

    def hf_settings(self) -> dict[str, Any]:
        kind = "single_label_classification" if self.labels else "regression"
        if self.has_lists:
            kind = "multi_label_classification"
        return {"problem_type": kind, **hf_labels(self.labels or ("LABEL_0",))}

    def read(self, path: Path, labelled: bool) -> Iterator[TextExample]:
        rows = read_rows(path, self.glue.headerless if self.glue else ())
        try:
            yield from usable(rows, partial(self._example, labelled=labelled), labelled)
        except MissingColumnError as fault:
            raise UserError(f"{fault} {self._columns_read(labelled)}") from None

    def _columns_read(self, labelled: bool) -> str:
        """Return what to do about a file that lacks a column."""
        groups = (self.text, self.text_pair, self.label if labelled else ())
        columns = " and ".join(" or ".join(names) for names in groups if names)
        if labelled:
            return (
                f"{self.name} reads the columns {columns}; rename yours, or train classify, which "
                "takes their names as `text` and `label`."
            )
        return f"The training had {columns}; name this table's with `text`."

    def _example(self, row: TableRow, labelled: bool) -> TextExample:
        text = row.text(*self.text)
        text_pair = None
        if self.text_pair:
            text_pair = row.text(*self.text_pair)
        if not labelled:
            return TextExample(text, text_pair, None)
        is_empty = not text.strip() and not (text_pair or "").strip()
        # GLUE's files are taken as they are.
        if is_empty and not self.glue:
            raise UnusableRowError(row.where, "the text is empty", f"without {self.text[0]}")
        if self.has_lists:
            labels = row.labels(*self.label)
            target = tuple(sorted({self._class_index(label, row) for label in labels}))
        elif self.labels:
            target = self._class_index(row.label(*self.label), row)
        else:
            label = row.label(*self.label)
            if not _NUMBER.fullmatch(label):
                raise UserError(f"{row.where}: the score is {shown(label)}, not a number.")
            # fp32, in which models answer, ends at 3e38.
            if abs(float(label)) > 1e30:
                raise UserError(f"{row.where}: the score is {shown(label)}, but 1e30 is the limit.")
            target = float(label)
        owner = None
        if self.group_column:
            owner = class_name(row.value(self.group_column))
            if not owner:
                reason = f"without {self.group_column}"
                raise UnusableRowError(row.where, f"{self.group_column} is empty", reason)
        return TextExample(text, text_pair, target, owner)

    def _class_index(self, label: str, row: TableRow) -> int:
        """Return the index of the class named `label`; raises `UnusableRowError` if unknown."""
        if label in self.labels:
            return self.labels.index(label)
        # Published forms of GLUE give classes by name or by index.
        if self.glue and label.isdecimal() and int(label) < len(self.labels):
            return int(label)
        raise UnusableRowError(
            row.where,
            f"the label {shown(label)} is not one of {listed(self.labels)}",
            "of a class that is not in the training data",
        )

    def parse_line(self, line: str, where: str) -> TextExample:
        """Return the example on a line of plain text; a tab separates the texts of a pair."""
        if not self.text_pair:
            return TextExample(line, None, None)
        texts = line.split("\t")
        if len(texts) != 2:
            raise UserError(f"{where}: write two texts, separated by a tab.")
        return TextExample(texts[0], texts[1], None)

    def group(self, example: TextExample) -> str:
        return example.text if example.owner is None else example.owner

    def stratum(self, example: TextExample) -> float | None:
        """Return the index of the class; scores and sets of labels have none."""
        return example.target if self.labels and not self.has_lists else None

    def texts(self, example: TextExample) -> dict[str, str]:
        if example.text_pair is None:
            return {"text": example.text}
        return {"text": example.text, "text_pair": example.text_pair}

    def truth(self, example: TextExample) -> Any:
        if example.target is None or not self.labels:
            return example.target
        if self.has_lists:
            return [self.labels[index] for index in example.target]
        return self.labels[int(example.target)]

    def encode(self, examples: Examples, tokenizer: TextTokenizer) -> list[Feature]:
        """Return one feature per example, or per window of a long text."""
        tokens_a = tokenizer.token_ids([example.text for example in examples])
        tokens_b: Sequence[list[int] | None] = [None] * len(examples)
        if self.text_pair:
            tokens_b = tokenizer.token_ids([example.text_pair or "" for example in examples])
        features = []
        for index, example in enumerate(examples):
            target = None
            if example.target is not None:
                target = self._target(example)
            windows = [tokens_a[index]]
            if self.stride is not None:
                room = self.max_length - 2  # without [CLS] and [SEP]
                spans = window_spans(len(tokens_a[index]), room, self.stride)
                windows = [tokens_a[index][start:end] for start, end in spans]
            for window in windows:
                row = tokenizer.row(window, tokens_b[index], self.max_length)
                features.append(Feature(row, target, index))
        return features

    def _target(self, example: TextExample) -> np.ndarray:
        """Return the target of a `Feature`."""
        if self.has_lists:
            return np.isin(np.arange(len(self.labels)), example.target).astype(np.float32)
        return np.array(example.target, dtype=np.int64 if self.labels else np.float64)

    def _targets(self, examples: Examples) -> np.ndarray:
        """Return indices of classes (N,), whether it is each class (N, K), or scores (N,)."""
        targets = np.stack([self._target(example) for example in examples])
        return targets > 0 if self.has_lists else targets

    def model(self, config: EncoderConfig) -> SequenceClassifier:
        return SequenceClassifier(config, len(self.labels) or 1)

    def weigh_classes(self, model: nn.Module, features: Features) -> None:
        """Set how much each class counts in the loss of `model`, by their numbers in `features`.

        A class counts in inverse proportion to its number, 1 on average over the features; of
        several labels, the yes of each counts as much as all its no.
        """
        if self.class_weights is None:
            return
        if not isinstance(model, SequenceClassifier):
            raise UserError(
                f"`class_weights` needs a SequenceClassifier; {type(model).__name__} is none."
            )
        targets = np.stack([feature.target for feature in features if feature.target is not None])
        if self.has_lists:
            counts_K = targets.sum(0)
            weights_K = np.maximum(1, len(targets) - counts_K) / np.maximum(1, counts_K)
        else:
            counts_K = np.bincount(targets, minlength=len(self.labels))
            weights_K = len(targets) / (len(self.labels) * np.maximum(1, counts_K))
        device = next(model.parameters()).device
        model.class_weights_K = torch.tensor(weights_K, dtype=torch.float32, device=device)

    def answers(self, outputs: Outputs, features: Features, examples: Examples) -> list[Answer]:
        logits_NK = example_logits(outputs, features)
        if not self.labels:
            return [{"score": float(logits_K[0])} for logits_K in logits_NK]
        to_probabilities = softmax
        if self.has_lists:
            from scipy.special import expit

            to_probabilities = expit
        answers: list[Answer] = []
        for logits_K in logits_NK:
            # In float64, so that the probabilities in the file sum to 1.
            probabilities_K = to_probabilities(logits_K.astype(np.float64)).tolist()
            probabilities = dict(zip(self.labels, probabilities_K, strict=True))
            if self.has_lists:
                chosen = [label for label, share in probabilities.items() if share > 0.5]
                answers.append({"labels": chosen, "probabilities": probabilities})
            else:
                label = self.labels[logits_K.argmax()]
                answers.append({"label": label, "probabilities": probabilities})
        return answers

    def scores(self, outputs: Outputs, features: Features, examples: Examples) -> Scores:
        logits_NK = example_logits(outputs, features)
        predictions = logits_NK[:, 0]
        if self.has_lists:
            predictions = logits_NK > 0
        elif self.labels:
            predictions = logits_NK.argmax(1)
        return self._measured(predictions, examples)

    def baseline(self, train: Examples, examples: Examples) -> Scores:
        """Return each metric on `examples` of the constant answer that is best for `train` by it:
        the most frequent class, the most frequent labels, the mean score.
        """
        targets = self._targets(train)
        constants: dict[str, Any] = {}
        if self.has_lists:
            counts_K = targets.sum(0)
            ranked_K = np.argsort(-counts_K, kind="stable")
            # The F1 of the j most frequent labels, for each j: twice the right ones, by the number
            # of those given and of the true ones.
            num_given_K = len(train) * np.arange(1, len(counts_K) + 1)
            micro_f1_K = 2 * counts_K[ranked_K].cumsum() / (num_given_K + counts_K.sum())
            best = ranked_K[: micro_f1_K.argmax() + 1]
            constants = dict.fromkeys(self.metrics, np.isin(np.arange(len(counts_K)), best))
            constants["macro_f1"] = True  # a label that is never given has an F1 of 0
        elif self.labels:
            constants = dict.fromkeys(self.metrics, np.bincount(targets).argmax())
            if "f1" in constants:  # of class 1, however rare it is
                constants["f1"] = 1
        else:
            constants = dict.fromkeys(self.metrics, targets.mean())
        truths = self._targets(examples)
        return {
            name: measure(name, np.broadcast_to(constant, truths.shape), truths)
            for name, constant in constants.items()
        }

    def word_baseline(
        self, train: Examples, examples: Examples, most_texts: int = 20_000
    ) -> Scores:
        """Return the metrics of logistic regression on TF-IDF, fitted to at most `most_texts`."""
        if not self.labels or self.text_pair or self.has_lists:
            return {}
        # A file may be sorted by class, so the examples are taken from all over it.
        some = train[:: math.ceil(len(train) / most_texts)]
        classes = [example.target for example in some]
        if len(set(classes)) < 2:
            return {}
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline

        # A punctuation mark is a word too, as in BERT's tokens; so is a single letter, which is
        # left out by default.
        words = TfidfVectorizer(sublinear_tf=True, token_pattern=r"\w+|[^\w\s]")
        regression = LogisticRegression(C=10, max_iter=1000, class_weight=self.class_weights)
        model = make_pipeline(words, regression)
        model.fit([example.text for example in some], classes)
        predictions = model.predict([example.text for example in examples])
        return self._measured(predictions, examples)

    def _measured(self, predictions: np.ndarray, examples: Examples) -> Scores:
        """Return the metrics of predictions that have the form of targets."""
        targets = self._targets(examples)
        return {name: measure(name, predictions, targets) for name in self.metrics}

    def class_report(self, answers: Answers, examples: Examples) -> ClassReport:
        """Return the figures of each class and, of single labels, which is taken for which."""
        if not self.labels:
            return ClassReport()
        if self.has_lists:
            given_NK = [[label in answer["labels"] for label in self.labels] for answer in answers]
            return label_report(self.labels, self._targets(examples), np.array(given_NK))
        truths = [self.truth(example) for example in examples]
        given = [answer["label"] for answer in answers]
        return label_report(self.labels, truths, given)

    def official(self, answers: Answers, examples: Examples, split: str) -> dict[str, bytes]:
        """Return the file for GLUE's server if `split` is a test split of GLUE, else nothing."""
        if self.glue is None or split not in self.glue.server_files:
            return {}
        lines = ["index\tprediction"]
        for index, answer in enumerate(answers):
            if not self.labels:
                score = min(max(answer["score"], 0.0), 5.0)  # the range of STS-B
                value = f"{score:.3f}"
            elif self.glue.server_words:
                value = answer["label"]
            else:
                value = str(self.labels.index(answer["label"]))
            lines.append(f"{index}\t{value}")
        content = "\n".join(lines) + "\n"
        return {self.glue.server_files[split]: content.encode()}


def example_logits(outputs: Outputs, features: Features) -> np.ndarray:
    """Return the logits (N, K) of the examples; of a long text, the mean over its windows."""
    windows: dict[int, list[np.ndarray]] = {}
    for feature, logits_K in zip(features, outputs, strict=True):
        windows.setdefault(feature.example, []).append(logits_K)
    if len(windows) == len(features):  # one each
        return np.stack(outputs)
    means = [np.mean(logits, axis=0) for logits in windows.values()]
    return np.stack(means)


def classify_task(files: Sequence[Path], options: TaskOptions) -> Classification:
    """Return the task of a user's own table: labels are classes if they are words or whole numbers,
    scores if some have fractions; lists are any number of classes for each text.
    """
    rows = list(chain.from_iterable(map(read_rows, files)))
    if not rows:
        raise UserError(f"{files[0]} contains no rows.")
    # A row may lack a column, which `usable` counts.
    column_names = dict.fromkeys(chain.from_iterable(row.values for row in rows))
    default = next((name for name in TEXT_COLUMNS if name in column_names), TEXT_COLUMNS[0])
    columns = (options.text or default).split(",")
    if len(columns) > 2:
        raise UserError(f"`text` is {options.text}; give one column, or both of a pair.")
    label = options.label or "label"
    for name in filter(None, (*columns, label, options.group)):
        if name not in column_names:
            raise UserError(
                f"{rows[0].where}: there is no column {shown(name)}, only {listed(column_names)}; "
                "choose with `text`, `label` and `group`."
            )
    if options.stride and len(columns) > 1:
        raise UserError("`stride` makes windows of single texts, not of pairs; leave it out.")
    values = (row.values.get(label) for row in rows)
    has_lists = isinstance(next((value for value in values if value is not None), None), list)
    names_by_row: list[list[str]] = []
    for row in rows:
        with suppress(UnusableRowError):  # `usable` counts them
            names_by_row.append(row.labels(label) if has_lists else [row.label(label)])
    labels = _classes(names_by_row, has_lists, f"{files[0]}: {label}")
    if labels and not has_lists and not options.metric:
        counts = Counter(chain.from_iterable(names_by_row)).most_common()
        (largest, most_rows), (smallest, fewest_rows) = counts[0], counts[-1]
        if most_rows > 3 * fewest_rows:
            print_notice(
                f"The classes are unbalanced ({most_rows:,} rows are {shown(largest)}, "
                f"{fewest_rows:,} {shown(smallest)}): read macro F1 instead of accuracy. `metric` "
                "macro_f1 chooses by it, `class_weights` balanced weighs the loss."
            )
    return Classification(
        name="classify",
        text=tuple(columns[:1]),
        text_pair=tuple(columns[1:]),
        label=(label,),
        labels=labels,
        has_lists=has_lists,
        group_column=options.group,
        id_column=_id_column(rows, column_names),
        **options.given("max_length", "stride", "metric", "class_weights"),
    )


def _id_column(rows: Sequence[TableRow], names: Iterable[str]) -> str | None:
    """Return the first column that is called an id, such as PhraseId, and has one for each row."""
    for name in names:
        is_id = re.fullmatch(r"(.*[\W_])?(?i:id)|.*[a-z]I[Dd]", name)
        if not is_id or name == "id":
            continue
        ids = {str(row.values.get(name)) for row in rows}
        if len(ids) == len(rows):
            return name
    return None


def _classes(names_by_row: Sequence[list[str]], has_lists: bool, where: str) -> tuple[str, ...]:
    """Return the names of the classes, in order; none if the labels are scores."""
    names = set(chain.from_iterable(names_by_row))
    are_numbers = all(map(_NUMBER.fullmatch, names))
    if has_lists:
        most = 5000  # more are a mistake: the words of a text instead of its labels
        labels = sorted(names)
        # The numbers of a vector would be taken for the classes' names.
        lengths = set(map(len, names_by_row))
        if len(lengths) == 1 and max(lengths) > 1 and names <= {"0", "1", "False", "True"}:
            raise UserError(
                f"{where} holds vectors of 0 and 1; give the names of each text's classes instead: "
                '["joy", "love"].'
            )
    elif names and are_numbers and not all(float(name).is_integer() for name in names):
        print_notice(f"{where} holds numbers with fractions: they are scores (a regression).")
        return ()
    else:
        # A class needs more than one example: this is a column of texts or of ids.
        most = max(2, len(names_by_row) // 2)
        labels = sorted(names, key=Decimal if are_numbers else None)  # 10 comes after 9
    if not 2 <= len(labels) <= most:
        raise UserError(
            f"{where} holds {len(labels):,} different labels in {len(names_by_row):,} rows, and "
            f"training needs 2 to {most:,}; is it the column of the label?"
        )
    print_notice(f"{where} holds {len(labels):,} classes: {listed(labels)}.")
    return tuple(labels)
