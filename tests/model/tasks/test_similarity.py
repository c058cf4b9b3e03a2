"""Sentence vectors: the forms of the data, the losses, and the folder that is written."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import torch.nn.functional as F
import transformers
from clozeworks.model.checkpoint import Checkpoint, save_model
from clozeworks.model.encoders.catalogue import make_pretrain_model
from clozeworks.model.encoders.config import EncoderConfig
from clozeworks.model.encoders.encoder import initialise
from clozeworks.model.encoders.modernbert_config import ModernBertConfig
from clozeworks.model.features.config import FeaturesConfig
from clozeworks.model.features.features import extract_features
from clozeworks.model.finetuning.config import FinetuneConfig
from clozeworks.model.finetuning.evaluate import evaluate_task
from clozeworks.model.finetuning.finetune import finetune
from clozeworks.model.finetuning.predict import predict
from clozeworks.model.finetuning.task_model import make_model
from clozeworks.model.tasks.batches import make_batch
from clozeworks.model.tasks.metrics import measure
from clozeworks.model.tasks.options import TaskOptions
from clozeworks.model.tasks.similarity import (
    SentenceEncoder,
    Similarity,
    TextGroup,
    read_similarity,
)
from clozeworks.model.tasks.splits import read_data, read_labelled
from clozeworks.model.tokenizer import TextTokenizer, tokenizer_files, with_settings
from clozeworks.pipeline.errors import UserError

from tests.fixtures.checkpoint_fixture import make_checkpoint
from tests.fixtures.shared_data import DATA, needs_shared_data
from tests.fixtures.task_files import write_lines

QUICK: dict[str, Any] = {"max_length": 16, "device": "cpu", "precision": "fp32"}
PAIRS = ("sentence1\tsentence2\tscore", "the film\ta film\t5", "the book\tbad bad\t0", "a\tb\t2.5")
SPECIAL_IDS = ("pad_token_id", "cls_token_id", "sep_token_id")
GOOD = "the film was very good"
BAD = "a book is dull"


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("bert") / "checkpoint")


@pytest.fixture(scope="module")
def modernbert(tmp_path_factory, bert) -> Path:
    config = ModernBertConfig(
        vocab_size=64,
        **dict.fromkeys(SPECIAL_IDS, 0),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=64,
    )
    return save(tmp_path_factory.mktemp("modernbert") / "checkpoint", config, bert)


def save(folder: Path, config: EncoderConfig, tokenizer: Path) -> Path:
    model = make_pretrain_model(config)
    initialise(model, config, torch.Generator().manual_seed(5))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": "[PAD]",
        **config.tokenizer_settings,
    }
    files = with_settings(tokenizer_files(tokenizer), settings)
    save_model(folder, model.state_dict(), config.to_hf(), files)
    return folder


def read(path: Path, **options: Any) -> tuple[Similarity, list[TextGroup]]:
    task = read_similarity([path], TaskOptions(**options))
    return task, list(task.read(path, labelled=True))


def test_the_columns_say_what_is_learned(tmp_path):
    task, examples = read(write_lines(tmp_path / "train.tsv", *PAIRS))
    assert task.score_range == (0, 5)
    assert examples[2] == TextGroup(("a", "b"), 2.5)
    assert not task.whole_batches

    pairs = write_lines(tmp_path / "pairs.tsv", "anchor\tpositive", "the film\ta film")
    task, examples = read(pairs)
    assert (task.score_range, examples) == (None, [TextGroup(("the film", "a film"), None)])
    assert task.whole_batches

    triples = write_lines(tmp_path / "triples.tsv", "anchor\tpositive\tnegative", "a\tb\tc")
    assert read(triples)[1] == [TextGroup(("a", "b", "c"), None)]

    texts = write_lines(tmp_path / "texts.jsonl", json.dumps({"text": "the film"}))
    assert read(texts)[1] == [TextGroup(("the film", "the film"), None)]

    own = write_lines(tmp_path / "own.csv", "question,answer,text", "who,he,x")
    chosen = read(own, text="question", text_pair="answer")
    assert chosen[1] == [TextGroup(("who", "he"), None)]


@pytest.mark.parametrize(
    "lines, message",
    [
        (
            ("a\tb", "1\t2"),
            "has no column sentence1 or anchor or text or sentence, only a, b; choose with `text`",
        ),
        ((PAIRS[0], "a\tb\thigh"), "line 2: the score in score is 'high', not a number"),
        ((PAIRS[0], "a\tb\t1", "c\td\t1"), "every row has 1 in score"),
        ((PAIRS[0], "a\tb\t", "c\td\t"), "score is empty in every row"),
    ],
)
def test_bad_rows_are_named(tmp_path, lines, message):
    path = write_lines(tmp_path / "train.tsv", *lines)
    with pytest.raises(UserError) as error:
        read(path)
    assert message in str(error.value)


def test_rows_without_a_text_or_a_score_are_left_out_and_counted(tmp_path, capsys):
    lines = (*PAIRS, "\tb\t1", "c\td\t", "c\td\t")
    task, examples = read(write_lines(tmp_path / "train.tsv", *lines))
    assert len(examples) == 3
    told = capsys.readouterr().err
    assert "Left out 1 of 6 rows (with an empty text); the first: " in told
    assert "train.tsv, line 5: a text is empty." in told
    assert "Left out 2 of 6 rows (without a label); the first: " in told
    # Each row to predict needs an answer.
    assert len(list(task.read(tmp_path / "train.tsv", labelled=False))) == 6


@pytest.mark.parametrize("score_range", [None, (0.0, 5.0)])
def test_the_help_names_the_defaults(score_range):
    recipe = Similarity(score_range=score_range).recipe
    values = {
        "batch_size": f"{recipe.batch_size}",
        "epochs": f"{recipe.epochs:g}",
        "learning_rates": f"{recipe.learning_rates[0]:.0e}".replace("e-0", "e-"),
    }
    helps = {field.name: field.metadata["help"] for field in fields(FinetuneConfig)}
    for name, value in values.items():
        form = f"({value} with scores)" if score_range else f"similarity {value} ("
        assert form in helps[name]


def test_the_first_row_says_which_columns_there_are(tmp_path, capsys):
    pair = {"anchor": "the film", "positive": "a film"}
    triple = {**pair, "negative": "bad"}
    triples = write_lines(tmp_path / "triples.jsonl", *map(json.dumps, (triple, pair, triple)))
    assert read(triples)[1] == [TextGroup(("the film", "a film", "bad"), None)] * 2
    told = capsys.readouterr().err
    assert "Left out 1 of 3 rows (without a negative); the first: " in told
    assert "triples.jsonl, line 2 has no negative, unlike the first row." in told
    # Each row to predict needs an answer.
    with pytest.raises(UserError, match="line 2 has no negative"):
        list(Similarity().read(triples, labelled=False))

    rows = ({**pair, "score": 1}, pair, {**pair, "label": 3})
    scored = write_lines(tmp_path / "scored.jsonl", *map(json.dumps, rows))
    task, examples = read(scored)
    assert task.score_range == (1, 3)
    assert [example.score for example in examples] == [1, 3]
    assert "Left out 1 of 3 rows (without a score)" in capsys.readouterr().err

    pairs = write_lines(tmp_path / "pairs.jsonl", *map(json.dumps, (pair, triple)))
    assert read(pairs)[1] == [TextGroup(("the film", "a film"), None)] * 2


@pytest.mark.parametrize("kinds", [("pairs", "triples"), ("pairs", "scored")])
def test_files_with_other_columns_are_not_mixed(bert, tmp_path, kinds):
    rows = {
        "pairs": ("anchor\tpositive", "the film\ta film"),
        "triples": ("anchor\tpositive\tnegative", "the film\ta film\tbad"),
        "scored": PAIRS,
    }
    files = [write_lines(tmp_path / f"train-{kind}.tsv", *rows[kind]) for kind in kinds]
    task = read_similarity(files, TaskOptions())
    with pytest.raises(UserError, match="give files with the same columns"):
        task.encode(read_labelled(task, files), TextTokenizer(bert))


@needs_shared_data
@pytest.mark.parametrize(
    "folder, num_train", [(DATA / "glue/STS-B", 5749), (DATA / "korean/korsts-train.tsv", 5749)]
)
@pytest.mark.slow
def test_sts_b_and_korsts_as_they_are(folder, num_train):
    data = read_data("similarity", folder, TaskOptions())
    assert data.task.score_range == (0, 5)  # pyright: ignore[reportAttributeAccessIssue]
    assert len(data.train) + data.held_out * len(data.dev[""]) == num_train
    assert all(0 <= example.score <= 5 for example in data.dev[""])


def model_and_batch(checkpoint: Path, task: Similarity, examples: list[TextGroup]) -> Any:
    tokenizer = TextTokenizer(checkpoint)
    features = task.encode(examples, tokenizer)
    model = make_model(task, Checkpoint.open(checkpoint), FinetuneConfig(dropout=0.0), 0)
    return model.eval(), make_batch(features)


def test_vectors_are_the_mean_of_the_real_tokens_states(bert):
    texts = [GOOD, "bad"]
    model, batch = model_and_batch(bert, Similarity(), [TextGroup(tuple(texts), None)])
    vectors = model(batch).detach()[0]
    theirs = transformers.AutoModel.from_pretrained(bert)
    tokenizer = transformers.AutoTokenizer.from_pretrained(bert)
    for text, vector in zip(texts, vectors, strict=True):
        states = theirs(**tokenizer(text, return_tensors="pt")).last_hidden_state
        torch.testing.assert_close(vector, states[0].mean(0).detach(), atol=1e-5, rtol=1e-4)


def test_the_loss_of_scores_is_the_squared_error_of_the_cosine(bert):
    task = Similarity(score_range=(1.0, 3.0))
    examples = [TextGroup((GOOD, BAD), 2.0), TextGroup((GOOD, "bad"), 3.0)]
    model, batch = model_and_batch(bert, task, examples)
    outputs = model(batch)
    cosines = F.cosine_similarity(outputs[:, 0], outputs[:, 1])
    expected = ((cosines - torch.tensor([0.5, 1.0])) ** 2).mean()
    torch.testing.assert_close(model.loss(outputs, batch), expected)


def test_the_contrastive_loss_takes_the_other_partners_and_all_negatives_as_wrong(bert):
    examples = [TextGroup((GOOD, BAD, "bad"), None), TextGroup(("film", "a film", "b"), None)]
    model, batch = model_and_batch(bert, Similarity(), examples)
    outputs = model(batch).detach()
    unit = F.normalize(outputs, dim=-1).numpy()
    losses = []
    for index in range(2):
        candidates = [unit[index, 1], unit[1 - index, 1], unit[0, 2], unit[1, 2]]
        logits = np.array([unit[index, 0] @ candidate for candidate in candidates]) / 0.05
        losses.append(np.log(np.exp(logits).sum()) - logits[0])
    assert model.loss(outputs, batch).item() == pytest.approx(np.mean(losses), rel=1e-5)


def test_a_right_answer_is_never_a_wrong_one_too(bert):
    # Both have the same partner; the third has the first one's text.
    examples = [
        TextGroup((GOOD, BAD), None),
        TextGroup(("film", BAD), None),
        TextGroup((GOOD, "bad"), None),
    ]
    model, batch = model_and_batch(bert, Similarity(), examples)
    unit = F.normalize(model(batch), dim=-1)
    cosines = (unit[:, 0] @ unit[:, 1].T) / 0.05
    kept = [[0], [1, 2], [1, 2]]
    losses = []
    for index, candidates in enumerate(kept):
        logits = cosines[index, candidates]
        losses.append(logits.logsumexp(0) - cosines[index, index])
    torch.testing.assert_close(model.loss(model(batch), batch), torch.stack(losses).mean())


def test_an_anchor_is_not_a_wrong_answer_to_itself(bert):
    # The first one is the second one's partner; the third one is its own negative.
    examples = [
        TextGroup((GOOD, BAD, "b"), None),
        TextGroup(("film", GOOD, "a"), None),
        TextGroup(("bad", "a film", "bad"), None),
    ]
    model, batch = model_and_batch(bert, Similarity(), examples)
    unit = F.normalize(model(batch), dim=-1)
    candidates = torch.cat([unit[:, 1], unit[:, 2]])
    cosines = (unit[:, 0] @ candidates.T) / 0.05
    kept = [[0, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4]]
    losses = []
    for index, right_or_wrong in enumerate(kept):
        logits = cosines[index, right_or_wrong]
        losses.append(logits.logsumexp(0) - cosines[index, index])
    torch.testing.assert_close(model.loss(model(batch), batch), torch.stack(losses).mean())


def test_scores_of_pairs_with_and_without_scores():
    task = Similarity()
    draw = np.random.default_rng(0)
    outputs = [draw.normal(size=(2, 5)).astype(np.float32) for _ in range(20)]
    cosines = np.array(
        [one @ two / np.linalg.norm(one) / np.linalg.norm(two) for one, two in outputs]
    )
    scored = [TextGroup(("a", "b"), float(score)) for score in draw.normal(size=20)]
    gold = np.array([example.score for example in scored])
    assert task.scores(outputs, [], scored) == {
        "spearman": pytest.approx(measure("spearman", cosines, gold), abs=1e-6),
        "pearson": pytest.approx(measure("pearson", cosines, gold), abs=1e-6),
    }
    unit = np.stack(outputs) / np.linalg.norm(np.stack(outputs), axis=-1, keepdims=True)
    similarity = unit[:, 0] @ unit[:, 1].T
    ranks = [1 + sum(row > row[index]) for index, row in enumerate(similarity)]
    assert task.scores(outputs, [], [TextGroup(("a", "b"), None)] * 20) == {
        "recall_at_1": pytest.approx(np.mean(np.array(ranks) == 1)),
        "mrr": pytest.approx(np.mean(1 / np.array(ranks))),
    }


def test_a_text_is_no_candidate_for_itself():
    # Each is the other's partner, and nearer to itself.
    one, two = np.array([[1.0, 0.0], [0.6, 0.8]], dtype=np.float32)
    examples = [TextGroup(("a", "b"), None), TextGroup(("b", "a"), None)]
    outputs = [np.stack([one, two]), np.stack([two, one])]
    assert Similarity().scores(outputs, [], examples) == {"recall_at_1": 1.0, "mrr": 1.0}
    third = TextGroup(("a", "c"), None)
    ranked = Similarity().scores([*outputs, np.stack([one, -one])], [], [*examples, third])
    assert ranked["mrr"] == pytest.approx((1 + 1 + 1 / 2) / 3)


def write_topics(folder: Path) -> Path:
    """Write pairs about two topics: of the same one they are similar, of two not."""
    good = ["the film was good", "very good film", "a good film", "good film good"]
    dull = ["the book is dull", "very dull book", "a dull book", "dull book dull"]
    lines = ["sentence1\tsentence2\tscore"]
    for first in good + dull:
        for second in good + dull:
            is_same = (first in good) == (second in good)
            lines.append(f"{first}\t{second}\t{4 if is_same else 0}")
    write_lines(folder / "dev.tsv", *lines)
    write_lines(folder / "train.tsv", *lines)
    return folder


@pytest.fixture(scope="module", params=["bert", "modernbert"])
def trained(request, tmp_path_factory) -> Path:
    checkpoint = request.getfixturevalue(request.param)
    folder = tmp_path_factory.mktemp("trained")
    config = FinetuneConfig(**QUICK, epochs=3, learning_rates=(2e-3,))
    finetune("similarity", write_topics(folder / "data"), checkpoint, folder / "model", config)
    return folder / "model"


@pytest.mark.slow
def test_what_is_learned_is_recorded_with_what_the_encoder_knew(trained):
    summary = json.loads((trained / "summary.json").read_text())
    assert summary["metric"] == "spearman"
    best = summary["best"]["scores"]["spearman"]
    assert best > max(0.8, summary["untrained"]["spearman"])
    measured = evaluate_task(trained, trained.parent / "data", "cpu")
    assert measured["spearman"] == best
    metrics = (next(trained.glob("runs/*")) / "metrics.csv").read_text().splitlines()
    steps = [line.split(",")[0] for line in metrics if ",dev," in line]
    assert steps == ["0", "4", "8", "12"]  # 64 pairs in batches of 16


@pytest.mark.slow
def test_predictions_are_cosines(trained, tmp_path):
    pairs = write_lines(tmp_path / "new.txt", "a good film\tgood film good", "good film\tdull book")
    predict(trained, pairs, tmp_path / "out.jsonl", "cpu")
    alike, unlike = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert alike["text_pair"] == "good film good"
    assert 1 >= alike["score"] > unlike["score"]


@pytest.mark.slow
def test_sentence_transformers_loads_it_and_features_writes_the_same_vectors(trained, tmp_path):
    exported = Path(trained)
    texts = [GOOD, BAD, "bad , good ! film"]
    data = write_lines(tmp_path / "texts.txt", *texts)
    config = FeaturesConfig(per="text", combine="sum", device="cpu")
    extract_features(exported, data, tmp_path / "vectors.parquet", config)
    ours = np.array(pq.read_table(tmp_path / "vectors.parquet")["vector"].to_pylist())
    # What sentence-transformers does, by its files.
    assert json.loads((exported / "1_Pooling" / "config.json").read_text())[
        "pooling_mode_mean_tokens"
    ]
    encoder = transformers.AutoModel.from_pretrained(exported)
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    for text, vector in zip(texts, ours, strict=True):
        states = encoder(**tokenizer(text, return_tensors="pt")).last_hidden_state
        np.testing.assert_allclose(vector, states[0].mean(0).detach().numpy(), atol=1e-4)
    library = pytest.importorskip("sentence_transformers")
    theirs = library.SentenceTransformer(str(exported), device="cpu").encode(texts)
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.slow
def test_pairs_are_learned_from_each_other_and_texts_from_themselves(bert, tmp_path):
    data = write_topics(tmp_path / "data")
    good = ["the film was good", "very good film", "a good film"]
    write_lines(data / "train.tsv", "anchor\tpositive", *(f"{a}\t{b}" for a in good for b in good))
    config = FinetuneConfig(**QUICK, batch_size=4, learning_rates=(1e-3,))
    summary = finetune("similarity", data, bert, tmp_path / "pairs", config)
    assert summary["metric"] == "spearman"
    write_lines(data / "train.tsv", "text", *good, "a dull book")
    summary = finetune("similarity", data, bert, tmp_path / "texts", config)
    assert summary["train_examples"] == 4
    (data / "dev.tsv").unlink()
    summary = finetune("similarity", data, bert, tmp_path / "alone", config)
    assert summary["metric"] == "recall_at_1"
    assert summary["dev_examples"] == 1


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        (("a good film", "a good film"), ("a", "good film")),
        (("好看的电影", "好看的电影"), ("好看", "的电影")),
        (("a good film", "a dull book"), ("a good film", "a dull book")),
    ],
)
def test_single_texts_are_measured_by_their_halves(texts, wanted):
    assert Similarity().dev_examples([TextGroup(texts, None)]) == [TextGroup(wanted, None)]


def test_a_batch_whose_examples_are_compared_is_not_divided(bert, tmp_path):
    data = write_topics(tmp_path / "data")
    write_lines(data / "train.tsv", "anchor\tpositive", "a film\tthe film", "a book\tthe book")
    config = FinetuneConfig(**QUICK, micro_batch_size=1)
    with pytest.raises(UserError, match="so `micro_batch_size` cannot divide it"):
        finetune("similarity", data, bert, tmp_path / "model", config)


def test_a_left_to_right_model_is_refused(tmp_path):
    checkpoint = make_checkpoint(tmp_path / "ltr", is_decoder=True)
    with pytest.raises(UserError, match="left-to-right"):
        model_and_batch(checkpoint, Similarity(), [TextGroup(("a", "b"), None)])


def test_the_model_has_no_weights_of_its_own(bert):
    model, _ = model_and_batch(bert, Similarity(), [TextGroup(("a", "b"), None)])
    assert isinstance(model, SentenceEncoder)
    assert all(name.startswith("bert.") for name in model.state_dict())


def test_neighbouring_sentences_are_pairs(tmp_path: Path):
    text = tmp_path / "lines.txt"
    text.write_text("One.\nTwo.\nThree.\n\nFour.\nFive.\n\n\nSix.\n")
    task = read_similarity([text], TaskOptions())
    expected = [("One.", "Two."), ("Four.", "Five.")]
    assert [example.texts for example in task.read(text, labelled=True)] == expected
    documents = tmp_path / "train-00000-of-00001.parquet"
    sentences = [["One.", "Two.", "Three."], ["Six."], ["Four.", "Five."]]
    columns = {"doc_id": ["a", "b", "c"], "sentences": sentences}
    pq.write_table(pa.table(columns), documents)
    task = read_similarity([documents], TaskOptions())
    assert [example.texts for example in task.read(documents, labelled=True)] == expected
    assert task.score_range is None
