"""Learn sentence vectors, which stand for texts in search, clustering and duplicate detection.

A vector is the mean of a text's last hidden states; two texts are as similar as the cosine of their
vectors. What is learned depends on the training files:

pairs with scores    the cosine approaches the score, scaled to 0…1 (Sentence-BERT, arXiv
                     1908.10084, section 3: "regression objective function")
pairs, or triples    a text's cosine with its own partner is the largest in the batch: the partners
                     of the others are the wrong answers, and so is each ``negative`` (SimCSE, arXiv
                     2104.08821, equation 5; "multiple negatives ranking")
documents            the same for neighbouring sentences (`neighbours`)
single texts         the same, each text being its own partner: dropout makes two vectors of it
                     (SimCSE without labels, equation 4)

The model directory is one of ``sentence-transformers`` too.

Shapes: N examples, R texts of each, B = N * R rows, L padded length, D hidden size, C candidates.
"""

import json
from collections.abc import Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...pipeline.errors import UserError
from ..encoders.config import EncoderConfig
from ..tokenizer import TextTokenizer
from .batches import Feature, TaskBatch
from .head import Answer, Outputs, Recipe, Scores, TaskModel
from .metrics import measure
from .neighbours import PLAIN_TEXT, read_pairs
from .options import Size, TaskOptions
from .tables import SUFFIXES, TableRow, UnusableRowError, listed, usable
from .task import Task

TEXT_COLUMNS = ("sentence1", "anchor", "text", "sentence")
PAIR_COLUMNS = ("sentence2", "positive", "text_pair")
NEGATIVE_COLUMN = "negative"
SCORE_COLUMNS = ("score", "label")
TEMPERATURE = 0.05
"""Divisor of the cosines in the contrastive loss, as in SimCSE."""
ANCHORS_AT_ONCE = 1024
"""Whose cosines with all candidates are in memory together."""


class TextGroup(NamedTuple):
    """Texts that are compared with each other."""

    texts: tuple[str, ...]
    """The text, its partner, and a wrong partner if there is one."""
    score: float | None
    """Of the pair, as in the file; None if partners have none."""


class SentenceEncoder(TaskModel):
    """An encoder whose last hidden states are averaged; there are no new weights."""

    hf_name = "Model"

    def __init__(self, config: EncoderConfig):
        super().__init__(config)
        for name in self.encoder.optional_modules:
            self.encoder.get_submodule(name).requires_grad_(False)  # unused

    def forward(self, batch: TaskBatch) -> Tensor:
        """Return the vectors (N, R, D) of each example's texts, not normalised."""
        states_BLD = self.encoder(*batch[:4])
        mask_BL1 = batch.attention_mask_BL[:, :, None]
        # Padding may have states of its own.
        sums_BD = (states_BLD * mask_BL1).sum(1)
        means_BD = sums_BD / mask_BL1.sum(1)
        return means_BD.unflatten(0, (batch.num_features, -1))

    def loss(self, outputs: Tensor, batch: TaskBatch) -> Tensor:
        """Return the mean squared error of the pairs' cosines, or the mean cross-entropy of each
        text's choice among the candidates.
        """
        assert batch.target is not None
        # At this temperature, bf16's three digits would be too few for a cosine.
        with torch.autocast(outputs.device.type, enabled=False):
            vectors_NRD = F.normalize(outputs.float(), dim=-1)
            anchors_ND = vectors_NRD[:, 0]
            if batch.target.is_floating_point():
                cosines_N = (anchors_ND * vectors_NRD[:, 1]).sum(-1)
                return F.mse_loss(cosines_N, batch.target)
            cosines_NC = anchors_ND @ _candidates(vectors_NRD).T
            cosines_NC = cosines_NC.masked_fill(_also_right(batch), -torch.inf)
            right_N = torch.arange(len(anchors_ND), device=anchors_ND.device)
            return F.cross_entropy(cosines_NC / TEMPERATURE, right_N)


def _candidates(values_NR: Tensor) -> Tensor:
    """Return what each text's partner is chosen from (C, ...): all partners, then all wrong ones.

    anchors      a0 a1
    candidates   p0 p1 n0 n1      a0 should choose p0, a1 p1
    """
    return values_NR[:, 1:].transpose(0, 1).flatten(0, 1)


def _also_right(batch: TaskBatch) -> Tensor:
    """Return where (N, C) a candidate is not a wrong answer: it is the same text as the right one
    or as the anchor itself, or the partner of the same text.
    """
    ids_NRL = batch.input_ids_BL.unflatten(0, (batch.num_features, -1))
    anchors_NL = ids_NRL[:, 0]
    partners_NL = ids_NRL[:, 1]
    candidates_CL = _candidates(ids_NRL)
    is_same_NC = (partners_NL[:, None] == candidates_CL).all(-1)
    # Where partners are anchors too: with (a, b) and (b, a), each meets itself as a candidate.
    is_same_NC |= (anchors_NL[:, None] == candidates_CL).all(-1)
    has_same_anchor_NN = (anchors_NL[:, None] == anchors_NL).all(-1)
    num_anchors = len(anchors_NL)
    is_same_NC[:, :num_anchors] |= has_same_anchor_NN
    # The right one itself stays.
    is_same_NC[:, :num_anchors].fill_diagonal_(False)
    return is_same_NC


@dataclass(frozen=True, kw_only=True)
class Similarity(Task[TextGroup]):
    """The task; a column is a tuple of alternative names, of which the first present is used."""

    has_new_weights = False
    suffixes = (*SUFFIXES, PLAIN_TEXT)
    pipeline = "sentence-similarity"
    name: str = "similarity"
    text: tuple[str, ...] = TEXT_COLUMNS
    text_pair: tuple[str, ...] = PAIR_COLUMNS
    label: tuple[str, ...] = SCORE_COLUMNS
    score_range: tuple[float, float] | None = None
    """Lowest and highest score of the training files; None if they have none."""
    max_length: Size = 128

    @property
    def whole_batches(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether the other examples of a batch are the wrong answers."""
        return self.score_range is None

    @property
    def recipe(self) -> Recipe:
        """Sentence-BERT's for STS-B, or SimCSE's without labels (one epoch of 64 texts)."""
        if self.score_range:
            return Recipe(batch_size=16, epochs=4.0, learning_rates=(2e-5,))
        return Recipe(batch_size=64, epochs=1.0, learning_rates=(3e-5,))

    def read(self, path: Path, labelled: bool) -> Iterator[TextGroup]:
        """Yield the examples in a table; raises `UserError` naming file and line.

        Scores are read if the table has them, so pairs without scores may be measured on pairs with
        scores. The first row says what there is. Rows for training or dev that lack some of it, or
        with an empty text or score, are left out and counted.
        """
        rows = read_pairs(path)
        first = next(rows, None)
        if first is None:
            return
        parts = self._columns(first).keys()
        is_scored = labelled and {"partner", "score"} <= parts
        parts -= {"negative" if is_scored else "score"}
        make = partial(self._example, parts=parts, labelled=labelled)
        yield from usable(chain([first], rows), make, labelled)

    def _columns(self, row: TableRow) -> dict[str, str]:
        """Return the columns of a row's texts and score, by what they are."""
        names_by_part = {
            "text": self.text,
            "partner": self.text_pair,
            "negative": (NEGATIVE_COLUMN,),
            "score": self.label,
        }
        columns = {}
        for part, names in names_by_part.items():
            column = row.first_column(names)
            if column:
                columns[part] = column
        return columns

    def _example(self, row: TableRow, parts: Set[str], labelled: bool) -> TextGroup:
        columns = self._columns(row)
        missing = sorted(parts - columns.keys())
        if missing:
            raise UnusableRowError(
                f"{row.where} has no {missing[0]}, unlike the first row.", f"without a {missing[0]}"
            )
        texts = [row.text(columns.get("text", self.text[0]))]
        if "partner" in parts:
            texts.append(row.text(columns["partner"]))
        else:
            texts *= 2  # dropout alone makes a difference
        score = None
        if "score" in parts:
            score = row.number(columns["score"])
        if "negative" in parts:
            texts.append(row.text(columns["negative"]))
        if labelled and not all(text.strip() for text in texts):
            raise UnusableRowError(f"{row.where}: a text is empty.", "with an empty text")
        return TextGroup(tuple(texts), score)

    def parse_line(self, line: str, where: str) -> TextGroup:
        """Return the pair on a line of plain text, separated by a tab."""
        texts = line.split("\t")
        if len(texts) != 2:
            raise UserError(f"{where}: write two texts, separated by a tab.")
        return TextGroup(tuple(texts), None)

    def dev_examples(self, examples: list[TextGroup]) -> list[TextGroup]:
        """Return the two halves of each text where it is its own partner, which any encoder would
        find.
        """
        are_single = all(example.texts[0] == example.texts[-1] for example in examples)
        if not are_single or examples[0].score is not None:
            return examples
        return [TextGroup(_halves(example.texts[0]), None) for example in examples]

    def group(self, example: TextGroup) -> str:
        """Return the first text."""
        return example.texts[0]

    def texts(self, example: TextGroup) -> dict[str, str]:
        """Return the text and its partners."""
        names = ("text", "text_pair", NEGATIVE_COLUMN)
        return dict(zip(names, example.texts, strict=False))

    def encode(self, examples: Sequence[TextGroup], tokenizer: TextTokenizer) -> list[Feature]:
        """Return one feature per example, with a row for each of its texts.

        Raises `UserError` for examples of files with different columns.
        """
        if len({(len(example.texts), example.score is None) for example in examples}) > 1:
            raise UserError(
                "Some files have a column negative, or scores, and others none: give files with "
                "the same columns."
            )
        all_tokens = iter(tokenizer.token_ids([text for group in examples for text in group.texts]))
        features = []
        for index, example in enumerate(examples):
            rows = [tokenizer.row(next(all_tokens), None, self.max_length) for _ in example.texts]
            features.append(Feature(tuple(rows), self._target(example), index))
        return features

    def _target(self, example: TextGroup) -> np.ndarray:
        """Return the score scaled to 0…1, or 0: the place of the right one among the partners."""
        if self.score_range is None:
            return np.array(0, dtype=np.int64)
        lowest, highest = self.score_range
        score = lowest if example.score is None else example.score
        return np.array((score - lowest) / (highest - lowest), dtype=np.float32)

    def model(self, config: EncoderConfig) -> SentenceEncoder:
        """Return the encoder."""
        if config.is_decoder:
            raise UserError(
                "A left-to-right model makes no sentence vectors; take one with the `objective` "
                "mlm or mlm+nsp."
            )
        return SentenceEncoder(config)

    def scores(
        self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[TextGroup]
    ) -> Scores:
        """Return the correlation of cosines and scores; of pairs without scores, how often (and how
        far in front, as the mean of 1 / rank) a text finds its partner among those of all.
        """
        vectors_NRD = torch.from_numpy(np.stack(outputs))
        vectors_NRD = F.normalize(vectors_NRD, dim=-1)
        if examples[0].score is not None:
            cosines_N = (vectors_NRD[:, 0] * vectors_NRD[:, 1]).sum(-1).numpy()
            return _correlations(cosines_N, examples)
        reciprocal_N = 1.0 / _ranks(vectors_NRD, examples)
        return {
            "recall_at_1": float((reciprocal_N == 1).mean()),
            "mrr": float(reciprocal_N.mean()),
        }

    def baseline(self, train: Sequence[TextGroup], examples: Sequence[TextGroup]) -> Scores:
        """Return the metrics of equal vectors: no correlation, and partners in any order."""
        if examples[0].score is not None:
            return _correlations(np.zeros(len(examples)), examples)
        num_candidates = len(examples) * (len(examples[0].texts) - 1)
        mean_reciprocal = float(np.mean(1 / np.arange(1, num_candidates + 1)))
        return {"recall_at_1": 1 / num_candidates, "mrr": mean_reciprocal}

    def truth(self, example: TextGroup) -> float | None:
        """Return the score."""
        return example.score

    def answers(
        self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[TextGroup]
    ) -> list[Answer]:
        """Return each pair's cosine."""
        answers = []
        for vectors_RD in outputs:
            unit_RD = vectors_RD / np.linalg.norm(vectors_RD, axis=-1, keepdims=True)
            answers.append({"score": float(unit_RD[0] @ unit_RD[1])})
        return answers

    def companion_files(self, config: EncoderConfig) -> dict[str, bytes]:
        """Return what ``sentence-transformers`` needs besides the model, in the form that all its
        versions read.
        """
        modules = [
            _module(0, "", "Transformer"),
            _module(1, "1_Pooling", "Pooling"),
        ]
        pooling = {
            "word_embedding_dimension": config.hidden_size,
            "pooling_mode_cls_token": False,
            "pooling_mode_mean_tokens": True,
            "pooling_mode_max_tokens": False,
            "pooling_mode_mean_sqrt_len_tokens": False,
        }
        contents = {
            "modules.json": modules,
            "sentence_bert_config.json": {
                "max_seq_length": self.max_length,
                "do_lower_case": False,  # the tokenizer's own matter
            },
            "config_sentence_transformers.json": {"similarity_fn_name": "cosine"},
            "1_Pooling/config.json": pooling,
        }
        return {
            name: (json.dumps(content, indent=2) + "\n").encode()
            for name, content in contents.items()
        }


def _halves(text: str) -> tuple[str, str]:
    """Cut a text between two words, or between two characters if it has no blank."""
    words = text.split()
    if len(words) == 1:
        return text[: len(text) // 2], text[len(text) // 2 :]
    return " ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])


def _module(index: int, path: str, kind: str) -> dict[str, object]:
    return {
        "idx": index,
        "name": str(index),
        "path": path,
        "type": f"sentence_transformers.models.{kind}",
    }


def _correlations(cosines_N: np.ndarray, examples: Sequence[TextGroup]) -> Scores:
    scores_N = np.array([example.score for example in examples])
    return {name: measure(name, cosines_N, scores_N) for name in ("spearman", "pearson")}


def _ranks(vectors_NRD: Tensor, examples: Sequence[TextGroup]) -> np.ndarray:
    """Return the rank (N,) of each text's partner among all candidates but the text itself, from 1;
    ties do not count as better.
    """
    texts_NR = _numbered([example.texts for example in examples])
    candidates_CD = _candidates(vectors_NRD)
    candidates_C = _candidates(texts_NR)
    ranks = []
    for first in range(0, len(vectors_NRD), ANCHORS_AT_ONCE):
        group_NRD = vectors_NRD[first : first + ANCHORS_AT_ONCE]
        cosines_NC = group_NRD[:, 0] @ candidates_CD.T
        own = torch.arange(first, first + len(group_NRD))
        own_N1 = cosines_NC.gather(1, own[:, None])
        # Where partners are anchors too, a text would be nearest to itself.
        is_other_NC = texts_NR[own, :1] != candidates_C
        ranks.append(1 + (is_other_NC & (cosines_NC > own_N1)).sum(1))
    return torch.cat(ranks).numpy()


def _numbered(texts: Sequence[Sequence[str]]) -> Tensor:
    """Return a number (N, R) for each text, the same for equal ones."""
    numbers: dict[str, int] = {}
    for group in texts:
        for text in group:
            numbers.setdefault(text, len(numbers))
    return torch.tensor([[numbers[text] for text in group] for group in texts])


def read_similarity(files: Sequence[Path], options: TaskOptions) -> Similarity:
    """Return the task that the training `files` define.

    Raises `UserError` for missing columns, and if all scores are equal.
    """
    columns: dict[str, tuple[str, ...]] = {}
    for name in ("text", "text_pair", "label"):
        given = getattr(options, name)
        if given:
            columns[name] = (given,)
    task = Similarity(**columns, **options.given("max_length"))
    rows = chain.from_iterable(map(read_pairs, files))
    first = next(rows, None)
    if first is None:
        raise UserError(f"{files[0]} contains no rows.")
    for name in ("text", *columns):
        names = getattr(task, name)
        if not first.first_column(names):
            raise UserError(
                f"{files[0]} has no column {' or '.join(names)}, only {listed(first.values)}; "
                "choose with `text`, `text_pair` and `label`."
            )
    score_column = first.first_column(task.label)
    if not first.first_column(task.text_pair) or not score_column:
        return task
    scores: list[float] = []
    for row in chain([first], rows):
        column = row.first_column(task.label)
        if column:
            with suppress(UnusableRowError):  # `read` counts them
                scores.append(row.number(column))
    if not scores:
        raise UserError(f"{files[0]}: {score_column} is empty in every row.")
    score_range = (min(scores), max(scores))
    if score_range[0] == score_range[1]:
        raise UserError(
            f"{files[0]}: every row has {score_range[0]:g} in {score_column}; for pairs that all "
            "belong together, remove this column."
        )
    return replace(task, score_range=score_range)
