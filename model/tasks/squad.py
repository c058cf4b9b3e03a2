"""SQuAD 1.1, 2.0 and KorQuAD: the answer to a question is a span of a passage, or none (sections
4.2 and 4.3 of the paper).

A row holds the question and a window of the passage; the answer is the span of tokens between two
positions in it, or [CLS] twice if this window has none::

    [CLS] who sang ? [SEP] the cat sang . [SEP]
      0    1   2   3   4    5   6   7   8   9         answer "the cat": 5, 6

Shapes: N windows, L padded length, P tokens of a passage.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from ...pipeline.errors import UserError
from ..encoders.attention import dropout
from ..encoders.config import EncoderConfig
from ..encoders.encoder import linear
from ..notices import print_notice
from ..tokenizer import TextTokenizer, TokenRow
from .batches import Feature, TaskBatch
from .example_tables import notice_once
from .metrics import softmax
from .options import Size, TaskOptions
from .squad_files import TABLES, Question, read_questions
from .squad_metrics import Metric, Version, best_threshold, question_scores, squad_scores
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
from .task import Answer, Answers, Features, Outputs, Recipe, Scores, Task, TaskModel

Examples = Sequence[Question]


class SpanClassifier(TaskModel):
    """An encoder with a start and an end vector; keys and logits as in ``transformers``."""

    per_token = True
    uses_pooler = False
    hf_name = "ForQuestionAnswering"

    def __init__(self, config: EncoderConfig):
        super().__init__(config)
        # Unused. Without a gradient they take no room in the optimiser.
        for name in self.encoder.optional_modules:
            self.encoder.get_submodule(name).requires_grad_(False)
        self.head = self.encoder.task_head()
        vectors = linear(config.hidden_size, 2, config.classifier_sigma)
        self.add_module(self.encoder.span_layer, vectors)
        self.rate = config.span_rate

    def forward(self, batch: TaskBatch) -> Tensor:
        """Return each token's logits as the first and last of the answer (N, L, 2)."""
        values_NLD = dropout(self.head(self.states(batch)), self.rate, self.training)
        return self.get_submodule(self.encoder.span_layer)(values_NLD)

    def loss(self, outputs: Tensor, batch: TaskBatch) -> Tensor:
        """Return the mean cross-entropy of the first and last token over the row's real tokens."""
        assert batch.target is not None
        is_padding_NL1 = ~batch.attention_mask_BL[:, :, None]
        logits_NL2 = outputs.float().masked_fill(is_padding_NL1, -np.inf)
        # A choice among L tokens, made twice. `cross_entropy` would take (N, L, 2), too, but on
        # CUDA it is deterministic for matrices only.
        shares_N2L = logits_NL2.log_softmax(1).transpose(1, 2)
        rows = shares_N2L.flatten(0, 1)
        return F.nll_loss(rows, batch.target.flatten())


@dataclass(frozen=True, kw_only=True)
class Squad(Task[Question]):
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
    """For 2.0: the margin by which an answer must outscore "no answer" (section 4.3)."""
    suffixes = (".json", *TABLES)
    tables = TABLES
    pipeline = "question-answering"
    cut = "questions", "max_question_length"
    tuned_settings = ("tau",)
    depends_on_texts_alone = False  # on the passage, too

    @property
    def variant(self) -> str:
        if self.metric == "squad":
            return self.version
        return f"{self.version} {self.metric}"

    @property
    def recipe(self) -> Recipe:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The paper's."""
        if self.version == "1.1":
            return Recipe(batch_size=32, epochs=3.0, learning_rates=(5e-5,))
        return Recipe(batch_size=48, epochs=2.0, learning_rates=(5e-5,))

    def read(self, path: Path, labelled: bool) -> Iterator[Question]:
        """Yield the questions of a file, of 1.1 those with an answer if they are `labelled`."""
        version, questions, _ = read_questions(path, labelled)
        if labelled and version not in (self.version, None):
            raise UserError(f"{path} is SQuAD {version}, but SQuAD {self.version} is trained.")
        if not labelled or self.version == "2.0":
            yield from questions
            return
        answered = [question for question in questions if question.answers]
        num_unanswered = len(questions) - len(answered)
        if num_unanswered:
            first = next(question.where for question in questions if not question.answers)
            finding = f"{num_unanswered:,} of {len(questions):,} questions have no answers, which "
            finding += f"only SQuAD 2.0 allows; the first: {first}."
            if not answered:
                raise UserError(finding)
            notice_once(f"{path}: left out, as {finding}")
        yield from answered

    def parse_line(self, line: str, where: str) -> Question:
        texts = line.split("\t")
        if len(texts) != 2:
            raise UserError(f"{where}: write a question and a passage, separated by one tab.")
        return Question(where, where, *texts, group=texts[1], answers=None)

    def group(self, example: Question) -> str:
        return example.group

    def texts(self, example: Question) -> dict[str, str]:
        return {"question": example.text}

    def encode(self, examples: Examples, tokenizer: TextTokenizer) -> list[Feature]:
        """Return one feature per window; without a target if an answer is not found."""
        # A passage has about five questions; it is tokenised once.
        texts = list(dict.fromkeys(example.passage for example in examples))
        passages = dict(zip(texts, tokenizer.token_ids_and_offsets(texts), strict=True))
        questions = tokenizer.token_ids([example.text for example in examples])
        features: list[Feature] = []
        unlocated: list[Question] = []
        for index, (example, question) in enumerate(zip(examples, questions, strict=True)):
            passage, offsets_P2 = passages[example.passage]
            span = None
            answer = example.located_answer
            if answer:
                start = answer.answer_start
                span = token_span(offsets_P2, start, start + len(answer.text))
            # A question without an answer has [CLS] as its target; one whose answer is not found
            # has no target, as [CLS] would teach that there is no answer.
            has_target = example.answers is not None
            if example.answers and span is None:
                unlocated.append(example)
                has_target = False
            for row, window in self._windows(example, question, passage, offsets_P2, tokenizer):
                target = window_target(span, window) if has_target else None
                features.append(Feature(row, target, index, window))
        if unlocated:
            print_notice(
                f"{len(unlocated):,} of {len(examples):,} questions have no answer where "
                f"answer_start says (the first: {unlocated[0].where}); they are not used for "
                "training."
            )
        return features

    def _windows(
        self,
        example: Question,
        question: list[int],
        passage: list[int],
        offsets_P2: np.ndarray,
        tokenizer: TextTokenizer,
    ) -> Iterator[tuple[TokenRow, PassageWindow]]:
        """Yield the rows of a question and its passage, both given as token ids."""
        # A passage of 10 tokens in rows of 12, the stride being 3, with a question of 3 tokens:
        #
        #     [CLS] q q q [SEP] 0 1 2 3 4 5 [SEP]        room = 12 - 3 - 3 = 6
        #     [CLS] q q q [SEP] 3 4 5 6 7 8 [SEP]        row_start = 5
        #     [CLS] q q q [SEP] 6 7 8 9 [SEP]
        cut_question = question[: self.max_question_length]
        num_cut = len(question) - len(cut_question)
        room = self.max_length - len(cut_question) - tokenizer.num_pair_specials
        if room < 1:
            raise UserError(
                f"{example.where} has {len(question)} tokens, which leaves no room for the passage "
                f"in rows of {self.max_length}; raise `max_length`."
            )
        window_P = most_context(len(passage), room, self.stride)
        for number, (start, end) in enumerate(window_spans(len(passage), room, self.stride)):
            row = tokenizer.row(cut_question, passage[start:end], self.max_length)
            window = PassageWindow(
                first_token=start,
                row_start=row.segment_b_start,
                offsets_P2=offsets_P2[start:end],
                may_start_P=window_P[start:end] == number,
            )
            # The passage is in other windows, so only what the question lost is cut.
            yield row._replace(num_cut=num_cut), window

    def model(self, config: EncoderConfig) -> SpanClassifier:
        return SpanClassifier(config)

    def _predictions(
        self, outputs: Outputs, features: Features, examples: Examples
    ) -> list[Prediction]:
        # By question: a feature is one window, and knows only the number of its question.
        windows: list[list[tuple[PassageWindow, np.ndarray]]] = [[] for _ in examples]
        for feature, logits_L2 in zip(features, outputs, strict=True):
            windows[feature.example].append((feature.context, logits_L2))
        return [
            predict_answer(example_windows, example.passage, self.max_answer_length)
            for example, example_windows in zip(examples, windows, strict=True)
        ]

    def _answer(self, prediction: Prediction) -> str:
        """Return the answer's text, "" for none."""
        # Section 4.3 answers if best > null + tau, which is null - best < -tau. At equality the
        # official script answers too.
        if self.version == "1.1" or prediction.null_odds <= -self.tau:
            return prediction.text
        return ""

    def tuned(self, outputs: Outputs, features: Features, examples: Examples) -> "Squad":
        """Return the task with the tau that maximises F1; SQuAD 1.1 has none."""
        if self.version == "1.1":
            return self
        scores = self.scores(outputs, features, examples)
        threshold = scores["best_f1_thresh"]
        num_without_answer = sum(not example.answers for example in examples)
        if scores["best_f1"] == 100 * num_without_answer / len(examples):
            # No threshold beats answering nothing, for which the official script reports 0. That
            # would answer some questions; this one is below all odds.
            predictions = self._predictions(outputs, features, examples)
            lowest = min(prediction.null_odds for prediction in predictions)
            threshold = float(np.nextafter(lowest, -np.inf))
        return replace(self, tau=-threshold)

    def scores(self, outputs: Outputs, features: Features, examples: Examples) -> Scores:
        """Return the official metrics in percent; of 2.0 at the task's tau, and the best."""
        golds = list(map(self.truth, examples))
        predictions = self._predictions(outputs, features, examples)
        answers = [self._answer(prediction) for prediction in predictions]
        scores = squad_scores(answers, golds, self.version, self.metric)
        if self.version == "1.1":
            return scores
        texts = [prediction.text for prediction in predictions]
        odds = [prediction.null_odds for prediction in predictions]
        exact, f1 = question_scores(texts, golds, self.version, self.metric)
        best_f1, best_f1_threshold = best_threshold(texts, f1, odds, golds)
        best_exact, best_exact_threshold = best_threshold(texts, exact, odds, golds)
        return {
            "best_f1": best_f1,
            "best_f1_thresh": best_f1_threshold,
            "best_exact": best_exact,
            "best_exact_thresh": best_exact_threshold,
            **scores,
        }

    def baseline(self, train: Examples, examples: Examples) -> Scores:
        """Return the metrics of `train`'s most frequent answer; for 2.0 of answering nothing."""
        golds = list(map(self.truth, examples))
        constant = ""
        if self.version == "1.1":
            first_answers = [question.answers[0].text for question in train if question.answers]
            constant, _ = Counter(first_answers).most_common(1)[0]
        scores = squad_scores([constant] * len(golds), golds, self.version, self.metric)
        if self.version == "1.1":
            return scores
        exact, f1 = scores["exact"], scores["f1"]
        return {"best_f1": f1, "best_exact": exact, "exact": exact, "f1": f1}

    def answers(self, outputs: Outputs, features: Features, examples: Examples) -> list[Answer]:
        """Return each answer (or ""), its start and probability, the n best, null odds of 2.0."""
        predictions = self._predictions(outputs, features, examples)
        answers = []
        for example, prediction in zip(examples, predictions, strict=True):
            text = self._answer(prediction)
            start = None
            if text:
                start = prediction.spans[0].start
            # The answer is the best span or "", so it is among them, but need not be the first:
            # tau may prefer the other.
            n_best = self._n_best(prediction)
            probability = next(each["probability"] for each in n_best if each["text"] == text)
            answer: Answer = {"id": example.id, "answer": text, "start": start}
            answer["probability"] = probability
            if self.version == "2.0":
                answer["null_odds"] = prediction.null_odds
            answer["n_best"] = n_best
            answers.append(answer)
        return answers

    def _n_best(self, prediction: Prediction) -> list[dict[str, str | float]]:
        """Return the distinct answers, including "" for 2.0, with the softmax of their scores."""
        spans = list(prediction.spans)
        # In 1.1 only a passage without tokens has no answer.
        if self.version == "2.0" or not spans:
            null_score = sum(prediction.null_logits)
            spans.append(Span(null_score, 0, "", *prediction.null_logits))
            spans.sort(key=lambda span: -span.score)
        probabilities = softmax(np.array([span.score for span in spans])).tolist()
        return [
            {
                "text": span.text,
                "probability": probability,
                "start_logit": span.start_logit,
                "end_logit": span.end_logit,
            }
            for span, probability in zip(spans, probabilities, strict=True)
        ]

    def truth(self, example: Question) -> list[str]:
        return [answer.text for answer in example.answers or ()]

    def official(self, answers: Answers, examples: Examples, split: str) -> dict[str, bytes]:
        """Return the files of google-research's script: predictions, n best, null odds of 2.0."""
        fields = {"predictions.json": "answer", "nbest_predictions.json": "n_best"}
        if self.version == "2.0":
            fields["null_odds.json"] = "null_odds"
        files: dict[str, bytes] = {}
        for name, field in fields.items():
            by_question = {answer["id"]: answer[field] for answer in answers}
            files[name] = json.dumps(by_question, indent=4).encode() + b"\n"
        return files


def squad_task(files: Sequence[Path], options: TaskOptions) -> Squad:
    """Return the task of the training `files`."""
    contents = [read_questions(file, labelled=True) for file in files]
    given = options.given("max_length", "stride")
    if all(content.is_korquad for content in contents):
        given["metric"] = "korquad"
    # A file without a version has no question marked as impossible, and fits either.
    has_silence = any(content.version == "2.0" for content in contents)
    return Squad(version="2.0" if has_silence else "1.1", **given)
