"""Question answering: features, answers, parity with transformers, and training end to end."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from clozeworks.model.encoders.encoder import initialise
from clozeworks.model.finetuning.config import FinetuneConfig
from clozeworks.model.finetuning.finetune import finetune
from clozeworks.model.finetuning.predict import evaluate_task, predict
from clozeworks.model.tasks.batches import Feature, make_batch
from clozeworks.model.tasks.catalogue import restore_task
from clozeworks.model.tasks.squad import SpanClassifier, Squad
from clozeworks.model.tasks.squad_files import GoldAnswer, Question, read_questions
from clozeworks.model.tokenizer import TokenRow
from clozeworks.pipeline.errors import UserError

from tests.fixtures.finetune_fixture import quick
from tests.fixtures.parity_fixture import SMALL_BERT, check_learning, make_pair
from tests.fixtures.squad_fixture import STORY_WORDS, logits_of, qa, question, squad_json, window
from tests.fixtures.task_files import write


def quick_windows(**changes: Any) -> FinetuneConfig:
    return quick(**{"max_length": 48, "stride": 16, **changes})


def test_lost_answers_are_counted_and_named_and_not_trained_on(tokenizer, capsys):
    good = question("the film was good", "film")
    shifted = good._replace(
        where="a.json, question 2", answers=(GoldAnswer("film", 5), GoldAnswer("book", -3))
    )
    second_stands = good._replace(answers=(GoldAnswer("film", 5), GoldAnswer("good", 13)))
    blank = good._replace(passage="the \u0301 film", answers=(GoldAnswer("\u0301", 4),))
    task = Squad(version="1.1")
    features = task.encode([good, shifted, second_stands, blank], tokenizer)
    assert [feature.target is None for feature in features] == [False, True, False, True]
    assert capsys.readouterr().err == (
        "2 of 4 questions have no answer where answer_start says (the first: a.json, question "
        "2); they are not used for training.\n"
    )
    assert task.encode([good._replace(answers=None)], tokenizer)[0].target is None
    (none,) = Squad(version="2.0").encode([good._replace(answers=())], tokenizer)
    assert none.target is not None and none.target.tolist() == [0, 0]
    assert not capsys.readouterr().err


def test_training_leaves_lost_answers_out(checkpoint, tmp_path, capsys):
    for name in ("train", "dev"):
        write(
            tmp_path / "data" / f"{name}.json", squad_json(qa(), qa(2, start=5), qa(3, "good", 13))
        )
    config = quick_windows(epochs=1, learning_rates=(1e-3,), batch_size=1)
    summary = finetune("squad", tmp_path / "data", checkpoint, tmp_path / "run", config)
    assert (summary["train_examples"], summary["dev_examples"]) == (3, 3)
    assert capsys.readouterr().err.count("not used for training") == 2
    [metrics_file] = tmp_path.glob("run/runs/*/metrics.csv")
    metrics = metrics_file.read_text()
    assert "\n2,train," in metrics
    assert "\n3,train," not in metrics
    for name in ("train", "dev"):
        write(tmp_path / "data" / f"{name}.json", squad_json(qa(2, start=5)))
    with pytest.raises(UserError, match="None of the 1 training examples has a usable label or"):
        finetune("squad", tmp_path / "data", checkpoint, tmp_path / "again", config)


def test_a_question_that_fills_the_row_is_refused(tokenizer):
    example = question("the film was good", "film", text="very " * 50)
    with pytest.raises(UserError, match=r"1 has 50 tokens, which leaves no room .* rows of 40"):
        Squad(version="1.1", max_length=40).encode([example], tokenizer)
    shorter = Squad(version="1.1", max_length=40, max_question_length=36)
    assert shorter.encode([example], tokenizer)[0].length == 40


def two_questions() -> tuple[list[Feature], list[Question], list[np.ndarray]]:
    examples = [question("p q", "q")._replace(id="x"), question("p q")._replace(id="y")]
    features = [
        Feature(TokenRow(np.arange(5), 2), None, index, window(0, [1, 1])) for index in (0, 1)
    ]
    outputs = [
        logits_of((1, 1), (9, 9), (0, 0), (2, 2), (9, 9)),
        logits_of((1, 1), (9, 9), (0, 0), (1.5, 1.5), (9, 9)),
    ]
    return features, examples, outputs


def test_tau_is_tuned_on_dev_kept_and_used():
    features, examples, outputs = two_questions()
    task = Squad(version="2.0")
    assert task.scores(outputs, features, examples) == {
        "best_f1": 100.0, "best_f1_thresh": -2.0, "best_exact": 100.0, "best_exact_thresh": -2.0,
        "exact": 50.0, "f1": 50.0, "total": 2, "HasAns_exact": 100.0, "HasAns_f1": 100.0,
        "HasAns_total": 1, "NoAns_exact": 0.0, "NoAns_f1": 0.0, "NoAns_total": 1,
    }  # fmt: skip
    tuned = restore_task(json.loads(json.dumps(task.tuned(outputs, features, examples).settings())))
    assert isinstance(tuned, Squad)
    assert tuned.tau == 2.0
    scores = tuned.scores(outputs, features, examples)
    assert (scores["f1"], next(iter(scores))) == (100.0, "best_f1")
    assert [answer["answer"] for answer in task.answers(outputs, features, examples)] == ["q", "q"]
    assert [answer["answer"] for answer in tuned.answers(outputs, features, examples)] == ["q", ""]
    assert Squad(version="1.1").tuned(outputs, features, examples).tau == 0


def test_if_answering_never_pays_tau_answers_nothing():
    features, examples, outputs = two_questions()
    wrong = [examples[0]._replace(answers=(GoldAnswer("z", 0),)), examples[1]]
    task = Squad(version="2.0").tuned(outputs, features, wrong)
    scores = task.scores(outputs, features, wrong)
    assert scores["f1"] == scores["best_f1"] == 50.0
    assert [answer["answer"] for answer in task.answers(outputs, features, wrong)] == ["", ""]


def test_answers_and_the_official_files():
    features, examples, outputs = two_questions()
    task = Squad(version="2.0", tau=2.0)
    answers = task.answers(outputs, features, examples)
    first = answers[0]
    assert (first["id"], first["answer"], first["start"], first["null_odds"]) == ("x", "q", 2, -2.0)
    # q 4, p q and nothing 2 each, p 0, as scores.
    odds = np.exp([4.0, 2.0, 2.0, 0.0])
    shares = [each["probability"] for each in first["n_best"]]
    assert shares == pytest.approx((odds / odds.sum()).tolist())
    assert first["probability"] == shares[0]
    assert {each["text"] for each in first["n_best"]} == {"q", "p q", "", "p"}
    files = task.official(answers, examples, "test")
    assert json.loads(files["predictions.json"]) == {"x": "q", "y": ""}
    assert json.loads(files["null_odds.json"]) == {"x": -2.0, "y": -1.0}
    assert json.loads(files["nbest_predictions.json"])["x"] == first["n_best"]
    version_1 = Squad(version="1.1")
    answers = version_1.answers(outputs, features, examples)
    files = version_1.official(answers, examples, "test")
    assert files.keys() == {"predictions.json", "nbest_predictions.json"}
    assert [answer["answer"] for answer in answers] == ["q", "q"]
    assert "null_odds" not in answers[0]


def test_baselines_are_the_most_frequent_answer_and_none():
    train = [question("p q", "q"), question("p q r", "q"), question("p", "p")]
    dev = [question("p q", "q"), question("p q r", "p")]
    assert Squad(version="1.1").baseline(train, dev) == {"f1": 50.0, "exact_match": 50.0}
    scores = Squad(version="2.0").baseline(train, [*dev, question("p")])
    assert scores["best_f1"] == scores["f1"] == pytest.approx(100 / 3)


def test_logits_loss_and_gradients_equal_transformers():
    ours, theirs = make_pair(SpanClassifier)
    rng = np.random.default_rng(0)
    features = [
        Feature(TokenRow(rng.integers(1, 60, 17).astype(np.int32), 6), np.array(target), 0)
        for target in [(7, 9), (0, 0), (16, 16)]
    ]
    batch = make_batch(features)
    assert batch.target is not None
    expected = theirs(
        batch.input_ids_BL,
        batch.attention_mask_BL,
        batch.token_type_ids_BL,
        start_positions=batch.target[:, 0],
        end_positions=batch.target[:, 1],
    )
    logits = ours(batch)
    torch.testing.assert_close(logits[..., 0], expected.start_logits, rtol=0, atol=1e-5)
    torch.testing.assert_close(logits[..., 1], expected.end_logits, rtol=0, atol=1e-5)
    loss = ours.loss(logits, batch)
    assert loss.grad_fn is not None
    assert loss.grad_fn.name() == "NllLossBackward0"  # `NllLoss2D` is not deterministic on CUDA
    check_learning(ours, loss, theirs, expected.loss)


def test_padding_takes_no_part_in_the_loss():
    config = SMALL_BERT
    model = SpanClassifier(config).eval()
    initialise(model, config, torch.Generator().manual_seed(2))
    short, long = (
        Feature(TokenRow(np.arange(1, length, dtype=np.int32), 3), np.array([3, 4]), 0)
        for length in (7, 30)
    )
    losses = [
        model.loss(model(batch), batch).item()
        for batch in map(make_batch, ([short], [long], [short, long]))
    ]
    assert losses[2] == pytest.approx((losses[0] + losses[1]) / 2, abs=1e-6)


def stories(num: int, seed: int, version: str) -> dict[str, Any]:
    """Return questions whose answer is the one letter among words; in 2.0 some have none."""
    draw = random.Random(seed)
    paragraphs = []
    for number in range(num):
        words = draw.choices(STORY_WORDS, k=draw.randint(6, 60))
        answers = []
        if version == "1.1" or number % 3:
            index, letter = draw.randrange(len(words)), draw.choice("bcde")
            words.insert(index, letter)
            answers = [{"text": letter, "answer_start": len(" ".join([*words[:index], ""]))}]
        record = {"id": f"q{number}", "question": "the film is?", "answers": answers}
        if version == "2.0":
            record["is_impossible"] = not answers
        paragraphs.append({"context": " ".join(words), "qas": [record]})
    return {"version": version, "data": [{"title": "T", "paragraphs": paragraphs}]}


@pytest.fixture(scope="module", params=["1.1", "2.0"])
def trained(request, tmp_path_factory, checkpoint) -> tuple[str, Path, Path, Any]:
    folder = tmp_path_factory.mktemp("squad")
    for name, num, seed in [("train", 160, 1), ("dev", 40, 2), ("test", 20, 3)]:
        write(folder / "data" / f"{name}-v{request.param}.json", stories(num, seed, request.param))
    config = quick_windows(epochs=4, learning_rates=(2e-3,))
    summary = finetune("squad", folder / "data", checkpoint, folder / "run", config)
    return request.param, folder / "data", folder / "run", summary


@pytest.mark.slow
def test_it_learns_and_evaluates_as_in_training(trained):
    version, data, output, summary = trained
    best = summary["best"]["scores"]
    metric = {"1.1": "f1", "2.0": "best_f1"}[version]
    assert summary["metric"] == metric
    assert best[metric] > 80 > 2 * summary["baseline"][metric]
    measured = evaluate_task(output, data, "cpu")
    assert measured["examples"] == 40
    assert {name: measured[name] for name in best} == best
    if version == "2.0":
        assert measured["f1"] == pytest.approx(measured["best_f1"])


def test_transformers_gives_the_same_logits_and_the_answers_are_in_the_passage(trained, tmp_path):
    version, data, output, _ = trained
    model, info = transformers.AutoModelForQuestionAnswering.from_pretrained(
        output, output_loading_info=True
    )
    assert not any(info.values())  # nothing is missing or unused, so it prints nothing
    model.eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(output)
    assert type(model).__name__ == "BertForQuestionAnswering"
    questions = read_questions(data / f"test-v{version}.json", labelled=False).questions
    passages = {each.id: each for each in questions}
    assert predict(output, data / f"test-v{version}.json", tmp_path / "out.jsonl", "cpu") == 20
    num_compared = 0
    for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines():
        answer = json.loads(line)
        example = passages[answer["id"]]
        if answer["answer"]:
            assert example.passage.startswith(answer["answer"], answer["start"])
        encoded = tokenizer(example.text, example.passage, return_tensors="pt")
        if encoded["input_ids"].shape[1] > 48:
            continue
        with torch.inference_mode():
            logits = model(**encoded)
        starts, ends = logits.start_logits[0], logits.end_logits[0]
        # The best pair of the whole passage is the first that is no empty answer; a separator ends
        # the row.
        sums = (starts[:, None] + ends[None, :])[6:-1, 6:-1]
        allowed = torch.ones_like(sums).triu().tril(29).bool()
        best = next(each for each in answer["n_best"] if each["text"])
        assert best["start_logit"] + best["end_logit"] == pytest.approx(
            sums[allowed].max().item(), abs=1e-4
        )
        if version == "2.0":
            odds = (starts[0] + ends[0]).item() - best["start_logit"] - best["end_logit"]
            assert answer["null_odds"] == pytest.approx(odds, abs=1e-4)
        num_compared += 1
    assert num_compared > 5


def test_plain_text_and_bad_lines(trained, tmp_path):
    output = trained[2]
    write(tmp_path / "a.txt", "the film is?\tthe book was b very good\n")
    assert predict(output, tmp_path / "a.txt", tmp_path / "out.jsonl", "cpu") == 1
    answer = json.loads((tmp_path / "out.jsonl").read_text())
    assert (answer["id"], answer["answer"]) == (f"{tmp_path / 'a.txt'}, line 1", "b")
    write(tmp_path / "a.txt", "no tab\n")
    with pytest.raises(UserError, match="line 1: write a question and a passage, separated by one"):
        predict(output, tmp_path / "a.txt", tmp_path / "out.jsonl", "cpu")
