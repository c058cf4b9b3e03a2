"""SQuAD 1.1, 2.0 and KorQuAD: the answer to a question is a span of a passage, or none (sections
4.2 and 4.3 of the paper).

Shapes: N windows, L padded length, D hidden size.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch.nn.functional as F
from scipy.special import softmax
from torch import Tensor, nn

from ...pipeline.errors import UserError
from ..bert import BertModel
from ..config import ModelConfig
from ..tokenizer import TextTokenizer
from ..training.ranks import print_notice
from .options import TaskOptions
from .squad_files import GoldAnswer, Question, Version, read_questions
from .squad_metrics import Metric, best_threshold, question_scores, squad1_scores, squad2_scores
from .squad_windows import (
    PassageWindow,
    Prediction,
    Span,
    most_context,
    predict_answer,
    token_span,
    window_spans,
    window_target,
)
from .task import (
    Answer,
    Feature,
    Outputs,
    Recipe,
    Scores,
    Size,
    Task,
    TaskBatch,
    TaskModel,
)


class BertForQuestionAnswering(TaskModel):
    """BERT with a start and an end vector; keys and logits as in ``transformers``."""

    per_token = True

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.bert = BertModel(config)
        self.bert.pooler.requires_grad_(False)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)

    def forward(self, batch: TaskBatch) -> Tensor:
        """Return each token's logits as the first and the last of the answer (N, L, 2)."""
        return self.qa_outputs(self.states(batch))

    def loss(self, outputs: Tensor, batch: TaskBatch) -> Tensor:
        """Return the mean cross-entropy of the first and last token over all real tokens of the
        row.
        """
        assert batch.target is not None
        logits_NL2 = outputs.float().masked_fill(~batch.attention_mask_BL[:, :, None], -np.inf)
        return F.cross_entropy(logits_NL2, batch.target)


@dataclass(frozen=True, kw_only=True)
class Squad(Task):
    """Either version of SQuAD."""

    name: str = "squad"
    version: Version
    metric: Metric = "squad"
    max_length: Size = 384
    stride: Size = 128
    """Tokens from the start of a window to the start of the next."""
    max_question_length: Size = 64
    max_answer_length: Size = 30
    tau: float = 0.0
    """For 2.0: the margin by which the best answer must score above "no answer" to be given
    (section 4.3).
    """
    cut = "questions", "max_question_length"
    tuned_settings = ("tau",)

    @property
    def variant(self) -> str:
        """The version, and ``korquad`` if that is the metric."""
        return self.version if self.metric == "squad" else f"{self.version} {self.metric}"

    @property
    def recipe(self) -> Recipe:
        """The paper's."""
        return Recipe(32, 3.0, (5e-5,)) if self.version == "1.1" else Recipe(48, 2.0, (5e-5,))

    def read(self, path: Path, labelled: bool) -> Iterator[Question]:
        """Yield the questions of a file; raises `UserError` naming it, also for a labelled file of
        another version.
        """
        version, questions, _ = read_questions(path, labelled)
        if labelled and version not in (self.version, None):
            raise UserError(
                f"{path} is SQuAD {version}, but the training file is SQuAD {self.version}."
            )
        for question in questions:
            if labelled and self.version == "1.1" and not question.answers:
                raise UserError(f"{question.where} has no answers; only SQuAD 2.0 allows that.")
            yield question

    def parse_line(self, line: str, where: str) -> Question:
        """Return the question on a line of plain text: question, tab, passage."""
        texts = line.split("\t")
        if len(texts) != 2:
            raise UserError(f"{where}: write a question and a passage, separated by one tab.")
        return Question(where, where, *texts, group=texts[1], answers=None)

    def group(self, example: Question) -> str:
        """Return the title of the article, or the passage in a file with few articles."""
        return example.group

    def encode(self, examples: Sequence[Question], tokenizer: TextTokenizer) -> list[Feature]:
        """Return one feature per window, without a target (and counted in a notice) if no answer is
        at its ``answer_start``.
        """
        texts = dict.fromkeys(example.passage for example in examples)
        passages = dict(zip(texts, tokenizer.token_ids_and_offsets(list(texts)), strict=True))
        questions = tokenizer.token_ids([example.text for example in examples])
        features, unlocated = [], []
        for index, (example, question) in enumerate(zip(examples, questions, strict=True)):
            kept = question[: self.max_question_length]
            room = self.max_length - len(kept) - 3
            if room < 1:
                found = f"{len(question)} tokens, which leaves no room for the passage in rows of {self.max_length}"
                raise UserError(
                    f"{example.where} has {found}; raise `max_length` or lower `max_question_length`."
                )
            ids, offsets_P2 = passages[example.passage]
            answer = example.located_answer
            span = answer and token_span(
                offsets_P2, answer.answer_start, answer.answer_start + len(answer.text)
            )
            is_unlocated = bool(example.answers) and span is None
            if is_unlocated:
                unlocated.append(example)
            owner_P = most_context(len(ids), room, self.stride)
            for number, (start, end) in enumerate(window_spans(len(ids), room, self.stride)):
                row = tokenizer.row(kept, ids[start:end], self.max_length)
                row = row._replace(num_cut=len(question) - len(kept))
                window = PassageWindow(
                    start, row.segment_b_start, offsets_P2[start:end], owner_P[start:end] == number
                )
                target = (
                    None if example.answers is None or is_unlocated else window_target(span, window)
                )
                features.append(Feature((row,), target, index, window))
        if unlocated:
            found = f"{len(unlocated):,} of {len(examples):,} questions have no answer where answer_start says"
            print_notice(f"{found} ({_first_answer(unlocated)}); they are not used for training.")
        return features

    def model(self, config: ModelConfig) -> BertForQuestionAnswering:
        """Return the encoder with a new linear layer."""
        return BertForQuestionAnswering(config)

    def _predictions(
        self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[Question]
    ) -> list[Prediction]:
        windows: list[list[tuple[PassageWindow, np.ndarray]]] = [[] for _ in examples]
        for feature, logits_L2 in zip(features, outputs, strict=True):
            windows[feature.example].append((feature.context, logits_L2))
        passages = (example.passage for example in examples)
        return [
            predict_answer(*each, self.max_answer_length)
            for each in zip(windows, passages, strict=True)
        ]

    def _answer(self, prediction: Prediction, tau: float | None = None) -> str:
        """Return the answer's text, "" for none, at `tau` or by default the task's own."""
        threshold = -(self.tau if tau is None else tau)
        return prediction.text if self.version == "1.1" or prediction.null_odds <= threshold else ""

    def tuned(
        self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[Question]
    ) -> "Squad":
        """Return the task with the tau that maximises F1; SQuAD 1.1 has none."""
        if self.version == "1.1":
            return self
        predictions, golds = self._predictions(outputs, features, examples), _golds(examples)
        texts, odds = [each.text for each in predictions], [each.null_odds for each in predictions]
        score, threshold = best_threshold(
            texts, question_scores(texts, golds, self.metric)[1], odds, golds
        )
        if score == 100 * golds.count([]) / len(golds):
            # No threshold beats answering nothing, for which the official script reports 0.
            threshold = float(np.nextafter(min(odds), -np.inf))
        return replace(self, tau=-threshold)

    def scores(
        self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[Question]
    ) -> Scores:
        """Return the official metrics in percent; for 2.0 at the task's tau, at tau 0, and at the
        best threshold.
        """
        predictions, golds = self._predictions(outputs, features, examples), _golds(examples)
        texts = [each.text for each in predictions]
        if self.version == "1.1":
            return squad1_scores(texts, golds, self.metric)
        odds = [each.null_odds for each in predictions]
        exact, f1 = question_scores(texts, golds, self.metric)
        best_f1, best_f1_threshold = best_threshold(texts, f1, odds, golds)
        best_exact, best_exact_threshold = best_threshold(texts, exact, odds, golds)
        at_0 = squad2_scores([self._answer(each, 0.0) for each in predictions], golds, self.metric)
        return {
            "best_f1": best_f1,
            "best_f1_thresh": best_f1_threshold,
            "best_exact": best_exact,
            "best_exact_thresh": best_exact_threshold,
            **squad2_scores([self._answer(each) for each in predictions], golds, self.metric),
            "exact_at_tau_0": at_0["exact"],
            "f1_at_tau_0": at_0["f1"],
        }

    def baseline(self, train: Sequence[Question], examples: Sequence[Question]) -> Scores:
        """Return the metrics of the most frequent answer in `train`; for 2.0 of answering nothing."""
        golds = _golds(examples)
        if self.version == "1.1":
            counts = Counter(
                answer.text for question in train for answer in (question.answers or ())[:1]
            )
            return squad1_scores([counts.most_common(1)[0][0]] * len(golds), golds, self.metric)
        scores = squad2_scores([""] * len(golds), golds, self.metric)
        return {
            "best_f1": scores["f1"],
            "best_exact": scores["exact"],
            "exact": scores["exact"],
            "f1": scores["f1"],
        }

    def answers(
        self, outputs: Outputs, features: Sequence[Feature], examples: Sequence[Question]
    ) -> list[Answer]:
        """Return each question's answer (or ""), its first character, probability, the n best, and
        for 2.0 the null odds.
        """
        answers = []
        for example, prediction in zip(
            examples, self._predictions(outputs, features, examples), strict=True
        ):
            text, n_best = self._answer(prediction), self._n_best(prediction)
            start = prediction.spans[0].start if text else None
            probability = next(each["probability"] for each in n_best if each["text"] == text)
            answer = {"id": example.id, "answer": text, "start": start, "probability": probability}
            null_odds = {"null_odds": prediction.null_odds} if self.version == "2.0" else {}
            answers.append({**answer, **null_odds, "n_best": n_best})
        return answers

    def _n_best(self, prediction: Prediction) -> list[dict[str, Any]]:
        """Return the distinct answers, including "" for 2.0, with the softmax of their scores."""
        spans = list(prediction.spans)
        if self.version == "2.0" or not spans:
            spans.append(Span(sum(prediction.null_logits), 0, "", *prediction.null_logits))
            spans.sort(key=lambda span: -span.score)
        return [
            {
                "text": span.text,
                "probability": share,
                "start_logit": span.start_logit,
                "end_logit": span.end_logit,
            }
            for span, share in zip(
                spans, softmax([span.score for span in spans]).tolist(), strict=True
            )
        ]

    def official(
        self, answers: Sequence[Answer], examples: Sequence[Question], split: str
    ) -> dict[str, bytes]:
        """Return predictions, n best, and for 2.0 null odds by question, as google-research's
        script writes them.
        """
        files = {
            "predictions.json": "answer",
            "nbest_predictions.json": "n_best",
            "null_odds.json": "null_odds",
        }
        if self.version == "1.1":
            del files["null_odds.json"]
        return {
            name: json.dumps({answer["id"]: answer[field] for answer in answers}, indent=4).encode()
            + b"\n"
            for name, field in files.items()
        }


def read_squad(files: Sequence[Path], options: TaskOptions) -> Squad:
    """Return the task of the training `files`; raises `UserError` for mixed versions and misplaced
    answers.
    """
    contents = {file: read_questions(file, labelled=True) for file in files}
    versions: dict[Version, Path] = {
        content.version or "1.1": file for file, content in contents.items()
    }
    if len(versions) > 1:
        raise UserError(
            f"{versions['1.1']} is SQuAD 1.1, but {versions['2.0']} is 2.0; give one of them."
        )
    answered = [
        question
        for content in contents.values()
        for question in content.questions
        if question.answers
    ]
    if answered and not any(question.located_answer for question in answered):
        found = f"No answer is where answer_start says ({_first_answer(answered)})"
        raise UserError(
            f"{found}; answer_start must be the index of its first character in the passage."
        )
    given = options.given(
        "max_length", "stride", "max_question_length", "max_answer_length", "metric"
    )
    metric: Metric = (
        "korquad" if all(content.is_korquad for content in contents.values()) else "squad"
    )
    return Squad(**{"version": next(iter(versions)), "metric": metric, **given})


def _golds(examples: Sequence[Question]) -> list[list[str]]:
    return [[answer.text for answer in example.answers or ()] for example in examples]


def _first_answer(questions: Sequence[Question]) -> str:
    first = (questions[0].answers or (GoldAnswer("", 0),))[0]
    return f"the first: {questions[0].where}, {first.text!r} at character {first.answer_start}"
