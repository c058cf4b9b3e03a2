"""Named-entity recognition: columns, tags, metrics, rows with context, the model, the command."""

import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
import transformers
from clozeworks.model.encoders.heads import IGNORED
from clozeworks.model.finetuning.finetune import finetune
from clozeworks.model.finetuning.predict import predict
from clozeworks.model.tasks.batches import make_batch
from clozeworks.model.tasks.conll import has_columns, read_conll
from clozeworks.model.tasks.ner import EntityRecognition, TokenClassifier, ner_task
from clozeworks.model.tasks.options import TaskOptions, check_task
from clozeworks.model.tasks.sentence_rows import SentenceExample, context_windows, sentence_rows
from clozeworks.model.tasks.splits import find_splits, read_data
from clozeworks.model.tasks.tagged import Sentence, bio_tags, entities, entity_scores, split_words
from clozeworks.model.tasks.task import read_labelled
from clozeworks.model.tokenizer import TextTokenizer
from clozeworks.pipeline.errors import UserError
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures import conlleval
from tests.fixtures.checkpoint_fixture import make_checkpoint
from tests.fixtures.finetune_fixture import quick
from tests.fixtures.parity_fixture import check_learning, make_pair
from tests.fixtures.task_files import write, write_rows


def columns(sentences: list[list[tuple[str, str]]]) -> str:
    return "\n".join(
        "".join(f"{word}\t{tag}\n" for word, tag in sentence) for sentence in sentences
    )


def named(num_sentences: int, seed: int) -> str:
    """Return sentences in which b, and what follows it, is a person, and d often a place."""
    draw = random.Random(seed)
    sentences = []
    for _ in range(num_sentences):
        words = [
            (draw.choice(["the", "film", "was", "very"]), "O") for _ in range(draw.randint(2, 6))
        ]
        words[1:1] = draw.choice(
            [[("b", "B-per"), ("c", "I-per")], [("d", "B-loc")], [("b", "B-per")]]
        )
        sentences.append(words)
    return columns(sentences)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("model") / "checkpoint", num_hidden_layers=4)


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write(folder / "train.conll", named(120, 1))
    write(folder / "dev.conll", named(40, 2))
    return folder


TAGS = st.lists(
    st.sampled_from(["O", "O", *(f"{p}-{t}" for p in "BIES" for t in ("per", "loc"))]), max_size=12
)
BIO = st.lists(
    st.sampled_from(["O", "B-per", "I-per", "B-loc", "I-loc", "B-x-y", "I-x-y"]),
    min_size=1,
    max_size=12,
)


@given(TAGS)
def test_entities_are_those_of_conlleval_in_any_scheme_and_broken_sequences(tags):
    assert [
        (entity.type, entity.start, entity.end - 1) for entity in entities(tags)
    ] == conlleval.chunks(tags)


@given(TAGS)
def test_bio_tags_have_the_same_entities(tags):
    found = entities(tags)
    assert entities(bio_tags(found, len(tags))) == found
    assert all(tag[0] in "OBI" for tag in bio_tags(found, len(tags)))


@given(st.lists(st.tuples(BIO, st.randoms(use_true_random=False)), min_size=1, max_size=6))
def test_scores_are_those_of_conlleval(drawn):
    gold = [tags for tags, _ in drawn]
    predicted = [
        [tag if draw.random() < 0.7 else draw.choice(tags) for tag in tags] for tags, draw in drawn
    ]
    ours = entity_scores(map(entities, predicted), map(entities, gold))
    assert ours == pytest.approx(conlleval.scores(gold, predicted), abs=1e-12)


def test_four_columns_with_documents_and_two_without(tmp_path):
    first = "-DOCSTART- -X- -X- O\n\nEU NNP I-NP I-ORG\nsays VBZ I-VP O\n\nYes UH O O\n\n\n"
    text = first + "-DOCSTART- -X- -X- O\n\nBonn N N I-LOC\n"
    documents = list(read_conll(write(tmp_path / "eng.train", text), labelled=True))
    assert [[sentence.words for sentence in document] for document in documents] == [
        [("EU", "says"), ("Yes",)], [("Bonn",)],
    ]  # fmt: skip
    assert documents[0][0].tags == ("I-ORG", "O")
    assert documents[0][0].lines == ("EU NNP I-NP I-ORG", "says VBZ I-VP O")
    two = write(tmp_path / "two.conll", "\ufeffa b\tB-x \n\tO\n\t\nc\u00a0d\tO\r\n")
    documents = list(read_conll(two, labelled=True))
    assert [
        [(sentence.words, sentence.tags) for sentence in document] for document in documents
    ] == [[(("a b", ""), ("B-x", "O"))], [(("c\u00a0d",), ("O",))]]


@pytest.mark.parametrize(
    "text, message",
    [
        ("a O\n\nb X-per\n", "line 3: the tag is 'X-per', not one such as O, B-person or I-person"),
        ("a O\nb\n", "line 2: the number of columns is 1, not 2 as in the lines before it."),
        ("a NN O\nb O\n", "line 2: the number of columns is 2, not 3 as in the lines before it."),
        ("a\tO\nb\t\n", "line 2: the tag is ''"),
        ("a\nb\n", "line 1: the tag is ''"),
        ("a O\nb O\n", "contains no entity; the last column of each line must be a tag"),
        ("", "contains no entity"),
    ],
)
def test_bad_columns_are_named(tmp_path, text, message):
    path = write(tmp_path / "train.conll", text)
    with pytest.raises(UserError) as error:
        ner_task([path], TaskOptions())
    assert message in str(error.value)


def test_types_that_were_not_learned_and_other_mistakes_are_named(tmp_path, checkpoint, capsys):
    task = EntityRecognition(types=("loc", "per"))
    path = write(tmp_path / "dev.conll", "a B-per\nb B-org\n")
    examples = list(task.read(path, labelled=True))
    assert (
        f"{path}: 1 words are of classes that are not in the training data (B-org); they "
        "count as wrong."
    ) in capsys.readouterr().err
    features = task.encode(examples, TextTokenizer(checkpoint))
    (feature,) = features
    assert feature.target is not None
    assert feature.target.tolist() == [IGNORED, 3, IGNORED, IGNORED]
    perfect = np.full((4, 5), -9, dtype=np.float32)
    perfect[[1, 2], [3, 0]] = 9
    assert task.scores([perfect], features, examples)["recall"] == 0.5
    assert [example.sentence.tags for example in task.read(path, labelled=False)] == [None]
    with pytest.raises(UserError, match="does not exist"):
        list(task.read(tmp_path / "none", labelled=True))
    with pytest.raises(UserError, match=r"dev\.json, line 1 is not a JSON object"):
        list(task.read(write(tmp_path / "dev.json", "[]\n"), labelled=False))
    with pytest.raises(UserError, match=r"train\.csv is a \.csv file; give CoNLL columns"):
        ner_task([write(tmp_path / "train.csv", "text,label\n")], TaskOptions())
    with pytest.raises(UserError, match="`stride` is for classify, squad; ner does not take it"):
        check_task("ner", TaskOptions(stride=64))


def test_the_files_of_conll_2003_and_wnut_are_known_by_their_names(tmp_path):
    for name in ("train", "testa", "testb", "train~", "train.bak"):
        write(tmp_path / "2003" / f"eng.{name}", "")
    found = find_splits(tmp_path / "2003", ())
    assert {split: [path.name for path in paths] for split, paths in found.items()} == {
        "train": ["eng.train"], "dev": ["eng.testa"], "test": ["eng.testb"],
    }  # fmt: skip
    for name in ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"):
        write(tmp_path / "wnut" / name, "")
    assert {
        split: paths[0].name for split, paths in find_splits(tmp_path / "wnut", ()).items()
    } == {
        "train": "wnut17train.conll",
        "dev": "emerging.dev.conll",
        "test": "emerging.test.annotated",
    }


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 60), st.integers(1, 20))
def test_windows_are_full_and_each_token_counts_where_it_has_most_context(
    before, length, after, size
):
    first, last, num_tokens = before, before + length, before + length + after
    cut = context_windows(first, last, num_tokens, size)
    assert [token for window in cut for token in range(*window[2:])] == list(range(first, last))
    for start, end, read_start, read_end in cut:
        assert 0 <= start <= read_start <= read_end <= end <= num_tokens
        assert end - start == min(size, num_tokens)
        if length <= size and start > 0 and end < num_tokens:
            left, right = read_start - start, end - read_end
            assert abs(left - right) <= 1
        for token in range(read_start, read_end) if length > size else ():
            contexts = [min(token - w[0], w[1] - 1 - token) for w in cut if w[0] <= token < w[1]]
            assert min(token - start, end - 1 - token) == max(contexts)


def test_a_row_holds_the_document_around_its_sentence(checkpoint):
    tokenizer = TextTokenizer(checkpoint)
    document = [
        split_words("the film"),
        split_words("was very-good books"),
        split_words("bad dull ."),
    ]
    examples = [SentenceExample(document, number) for number in range(3)]
    whole = tokenizer.token_ids(["the film was very-good books bad dull ."])[0]
    for row in sentence_rows(examples, tokenizer, 32):
        assert row.row.input_ids.tolist() == [2, *whole, 3]
    rows = list(sentence_rows(examples, tokenizer, 9))
    # 6 tokens, as very-good is three, and books two; one of the next sentence fits in, too.
    assert rows[1].row.input_ids.tolist() == [2, *whole[2:9], 3]
    assert rows[1].words.tolist() == [0, 1, 2]
    assert rows[1].word_positions.tolist() == [1, 2, 5]


def test_words_of_any_kind_are_read_once_at_their_first_token(checkpoint):
    tokenizer = TextTokenizer(checkpoint)
    words = ("-" * 1000, "", "\u200b\x07", "a" * 1000, "...", "films", "[SEP]", "b")
    rows = list(sentence_rows([SentenceExample([Sentence(words, None)], 0)], tokenizer, 16))
    assert all(len(row.row.input_ids) <= 16 for row in rows)
    assert sorted(word for row in rows for word in row.words) == list(range(len(words)))
    firsts = [tokenizer.token_ids([word])[0] or [tokenizer.unknown] for word in words]
    for row in rows:
        assert row.row.input_ids[row.word_positions].tolist() == [
            firsts[word][0] for word in row.words
        ]


def test_targets_are_at_first_tokens_in_bio_whatever_the_scheme(checkpoint):
    task = EntityRecognition(types=("loc", "per"), max_length=16)
    sentence = Sentence(
        ("the", "films", "book", "b", "c"), ("O", "I-per", "B-per", "S-loc", "E-loc")
    )
    (feature,) = task.encode([SentenceExample([sentence], 0)], TextTokenizer(checkpoint))
    assert task.labels == ("O", "B-loc", "I-loc", "B-per", "I-per")
    assert feature.target is not None
    assert feature.target.tolist() == [IGNORED, 0, 3, IGNORED, 3, 1, 1, IGNORED]
    assert task.encode([task.parse_line("", "line 1")], TextTokenizer(checkpoint)) == []


def some_features(checkpoint: Path, task: EntityRecognition) -> list:
    lines = ["the film was b c", "d books", "very-good film films and b"]
    return task.encode([task.parse_line(line, "") for line in lines], TextTokenizer(checkpoint))


def test_logits_loss_and_gradients_equal_transformers(checkpoint):
    task = EntityRecognition(types=("loc", "per"))
    ours, theirs = make_pair(lambda config: TokenClassifier(config, 5), num_labels=5)
    batch = make_batch(some_features(checkpoint, task))
    expected = theirs(
        batch.input_ids_BL, batch.attention_mask_BL, batch.token_type_ids_BL, labels=batch.target
    )
    logits = ours(batch)
    real = batch.attention_mask_BL
    torch.testing.assert_close(logits[real], expected.logits[real], rtol=0, atol=1e-5)
    check_learning(ours, ours.loss(logits, batch), theirs, expected.loss)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, checkpoint, data) -> Path:
    output = tmp_path_factory.mktemp("run") / "ner"
    summary = finetune("ner", data, checkpoint, output, quick(epochs=4, learning_rates=(2e-3,)))
    assert summary["metric"] == "f1"
    assert summary["best"]["scores"]["f1"] > 0.9
    assert summary["baseline"] == {"f1": 0, "precision": 0, "recall": 0}
    return output


def answers_to(model: Path, lines: list[str], folder: Path) -> list[dict[str, Any]]:
    write(folder / "new.txt", "".join(f"{line}\n" for line in lines))
    assert predict(model, folder / "new.txt", folder / "out.jsonl", "cpu") == len(lines)
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_predictions_name_entities_with_words_and_probabilities(trained, tmp_path):
    first, empty, last = answers_to(
        trained, ["the b c was very", "", "film d was the film"], tmp_path
    )
    assert first["words"] == ["the", "b", "c", "was", "very"]
    assert first["tags"] == ["O", "B-per", "I-per", "O", "O"]
    (entity,) = first["entities"]
    assert 0.3 < entity.pop("probability") <= 1
    assert entity == {"type": "per", "text": "b c", "start": 1, "end": 3}
    assert empty == {"words": [], "tags": [], "entities": []}
    assert [entity["text"] for entity in last["entities"]] == ["d"]


def test_transformers_loads_the_model_and_gives_the_same_probabilities(trained, tmp_path):
    model, info = transformers.AutoModelForTokenClassification.from_pretrained(
        trained, output_loading_info=True
    )
    assert not any(info.values())  # nothing is missing or unused, so it prints nothing
    model.eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(trained)
    assert type(model).__name__ == "BertForTokenClassification"
    assert model.config.id2label[2] == "I-loc"
    with torch.inference_mode():
        theirs = model(**tokenizer("the d was films", return_tensors="pt")).logits[0].softmax(-1)
    (answer,) = answers_to(trained, ["the d was films"], tmp_path)
    assert answer["tags"] == [model.config.id2label[int(label)] for label in theirs[1:5].argmax(-1)]
    assert answer["entities"][0]["probability"] == pytest.approx(float(theirs[2].max()), abs=1e-5)


def test_a_text_file_with_columns_is_not_read_as_a_sentence_per_line(trained, data, tmp_path):
    for name in ("dev.conll", "dev.txt"):
        shutil.copy(data / "dev.conll", tmp_path / name)
        predict(trained, tmp_path / name, tmp_path / f"{name}.jsonl", "cpu")
    assert (tmp_path / "dev.txt.jsonl").read_bytes() == (tmp_path / "dev.conll.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\n-DOCSTART-\n\nthe O\n\nan odd tag\n", True),
        ("the DT I-per\nfilm\tNN\tO\n\nplain text", True),
        ("blood type O\nanother line\n", False),
        ("O\n", False),
        ("", False),
    ],
)
def test_columns_are_told_from_sentences(tmp_path, text: str, expected: bool):
    assert has_columns(write(tmp_path / "a.txt", text)) == expected


def test_tags_without_a_type_are_answered_with_the_line_that_names_it(tmp_path):
    path = write(tmp_path / "train.tsv", "IL-2\tB\ngene\tI\nL\tO\n")
    with pytest.raises(UserError, match=r"line 1: the tag is 'B', .* Name the type: sed") as error:
        ner_task([path], TaskOptions())
    program = str(error.value).split("'")[-2]
    named = subprocess.run(["sed", "-E", program, path], capture_output=True, text=True, check=True)
    assert named.stdout == "IL-2\tB-gene\ngene\tI-gene\nL\tO\n"


def test_bilou_is_iobes_by_other_letters():
    bilou = ["B-loc", "L-loc", "U-loc", "O", "U-per", "B-per", "I-per", "L-per", "I-per"]
    iobes = [tag.replace("L-", "E-").replace("U-", "S-") for tag in bilou]
    assert entities(bilou) == entities(iobes)
    assert len(entities(bilou)) == 5


def test_a_table_has_a_sentence_per_row(tmp_path):
    rows = [
        {"id": "0", "tokens": ["EU", "says"], "ner_tags": ["B-ORG", "O"]},
        {"id": "1", "tokens": ["Lon don"], "ner_tags": ["U-LOC"]},
    ]
    path = write_rows(tmp_path / "train.jsonl", rows)
    task = ner_task([path], TaskOptions())
    assert isinstance(task, EntityRecognition)
    assert task.types == ("LOC", "ORG")
    examples = list(task.read(path, labelled=True))
    assert [example.sentence.words for example in examples] == [("EU", "says"), ("Lon don",)]
    assert task.truth(examples[1]) == ["B-LOC"]
    (first, _) = task.read(path, labelled=False)
    assert first.sentence.tags is None


@pytest.mark.parametrize(
    "row, message",
    [
        ({"tokens": ["a"], "tags": [3]}, "line 1: tags is [3], not a list of texts"),
        ({"tokens": ["a"], "ner_tags": ["O", "O"]}, "line 1: 1 words have 2 tags"),
        ({"tokens": ["a"]}, "line 1: there is no column ner_tags, only tokens"),
        ({"tokens": ["a"], "tags": ["X"]}, "line 1: the tag is 'X', not one"),
        ({"body": "a"}, "line 1: there is no column tokens, only body"),
    ],
)
def test_mistakes_in_a_table_are_named(tmp_path, row, message):
    path = write(tmp_path / "train.jsonl", json.dumps(row) + "\n")
    with pytest.raises(UserError) as error:
        list(read_conll(path, labelled=True))
    assert message in str(error.value)


def test_the_official_form_is_what_conlleval_reads():
    task = EntityRecognition(types=("loc", "per"))
    document = [
        Sentence(("a", "b"), None, ("a NN I-per", "b NN O")),
        Sentence(("c",), None, ("c\tO",)),
    ]
    answers = [{"words": ["a", "b"], "tags": ["B-per", "O"]}, {"words": ["c"], "tags": ["B-loc"]}]
    files = task.official(
        answers, [SentenceExample(document, 0), SentenceExample(document, 1)], "test"
    )
    assert files == {"test.conll": b"a NN I-per B-per\nb NN O O\n\nc\tO\tB-loc\n"}


def test_broken_tags_in_an_answer_are_repaired():
    task = EntityRecognition(types=("loc", "per"), max_length=16)
    example = task.parse_line("a b c", "")
    logits = np.full((5, 5), -5, dtype=np.float32)
    logits[[1, 2, 3], [4, 2, 0]] = 5
    row = type("Row", (), {"example": 0, "words": np.arange(3), "word_positions": np.arange(1, 4)})
    feature = type("Feature", (), {"context": row})
    (answer,) = task.answers([logits], [feature], [example])  # pyright: ignore[reportArgumentType]
    assert answer["tags"] == ["B-per", "B-loc", "O"]


def test_documents_are_held_out_as_a_whole(tmp_path, checkpoint):
    documents = [f"-DOCSTART- O\n\nthe O\nb B-per\n\nfilm{number} O\n\n" for number in range(20)]
    path = write(tmp_path / "all.txt", "".join(documents))
    config = quick(epochs=0.5, learning_rates=(1e-3,))
    summary = finetune("ner", path, checkpoint, tmp_path / "run", config)
    assert (summary["train_examples"], summary["dev_examples"]) == (36, 4)
    assert summary["held_out"] is True


def test_a_set_of_the_hub_has_numbered_tags(tmp_path):
    tags = datasets.List(datasets.ClassLabel(names=["O", "B-x"]))
    features = datasets.Features(tokens=datasets.List(datasets.Value("string")), ner_tags=tags)
    rows = [{"tokens": ["a", str(number)], "ner_tags": [0, 1]} for number in range(20)]
    saved = datasets.Dataset.from_list(rows, features=features)
    datasets.DatasetDict({"train": saved}).save_to_disk(tmp_path / "set")
    data = read_data("ner", f"hf:{tmp_path / 'set'}", TaskOptions())
    examples = [*data.train, *data.dev[""]]
    assert [example.sentence.tags for example in examples] == [("O", "B-x")] * 20


@pytest.mark.parametrize(("tags", "name"), [("B-x O", "ner"), ("NOUN VERB", "pos")])
def test_an_empty_first_file_decides_nothing(tmp_path, tags, name):
    lines = "".join(f"a {tag}\n" for tag in tags.split())
    files = [write(tmp_path / "a.conll", ""), write(tmp_path / "b.conll", lines)]
    task = ner_task(files, TaskOptions())
    assert task.name == name
    assert len(read_labelled(task, files)) == 1


def test_rows_without_tags_are_left_out_and_counted(tmp_path, capsys):
    rows = [
        {"tokens": ["a", "b"], "tags": ["B-x", "O"]},
        {"tokens": ["a"], "tags": None},
        {"tokens": [], "tags": []},
    ]
    path = write_rows(tmp_path / "train.jsonl", rows)
    assert len(list(read_conll(path, labelled=True))) == 1
    told = capsys.readouterr().err
    assert f"Left out 1 of 3 rows (without tags); the first: {path}, line 2" in told
    assert f"Left out 1 of 3 rows (without words); the first: {path}, line 3" in told
    assert len(list(read_conll(path, labelled=False))) == 3
    # A row to predict has an answer even without words.
    task = EntityRecognition(types=("x",))
    examples = list(task.read(path, labelled=False))
    answers = task.answers([], [], examples)
    assert task.official(answers, examples, "test") == {"test.conll": b"a O\nb O\n\na O\n\n"}
