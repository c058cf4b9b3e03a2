"""Parts of speech: the forms of the data, accuracy, and a whole run."""

import json

import numpy as np
import pytest
from clozeworks.model.tasks.catalogue import restore_task
from clozeworks.model.tasks.ner import WordClasses, ner_task, pos_task
from clozeworks.model.tasks.options import TaskOptions
from clozeworks.model.tasks.splits import read_data
from clozeworks.model.tokenizer import TextTokenizer
from clozeworks.pipeline.errors import UserError

from tests.fixtures.checkpoint_fixture import make_checkpoint
from tests.fixtures.task_files import write

# In the form of Universal Dependencies: comments, a contraction, a word that the text leaves out.
CONLLU = """# newdoc id = 1
# text = Don't read it.
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\tVB\t_\t3\taux\t_\t_
2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_
3\tread\tread\tVERB\tVB\t_\t0\troot\t_\t_
4\tit\tit\tPRON\tPRP\t_\t3\tobj\t_\tSpaceAfter=No
5\t.\t.\tPUNCT\t.\t_\t3\tpunct\t_\t_

1\tFilms\tfilm\tNOUN\tNNS\t_\t0\troot\t_\t_
1.1\tbore\tbore\tVERB\tVBP\t_\t_\t_\t0:root\t_

# newdoc id = 2
1\tBooks\tbook\tNOUN\tNNS\t_\t0\troot\t_\t_

"""


def test_conllu_columns_and_tables_have_the_same_words_and_tags(tmp_path):
    conllu = write(tmp_path / "train.conllu", CONLLU)
    task = pos_task([conllu], TaskOptions())
    assert task.labels == ("AUX", "NOUN", "PART", "PRON", "PUNCT", "VERB")
    examples = list(task.read(conllu, labelled=True))
    assert [len(example.document) for example in examples] == [2, 2, 1]
    assert examples[0].sentence.words == ("Do", "n't", "read", "it", ".")
    assert task.truth(examples[0]) == ["AUX", "PART", "VERB", "PRON", "PUNCT"]
    assert restore_task(json.loads(json.dumps(task.settings()))) == task

    sentences = [(example.sentence.words, example.sentence.tags or ()) for example in examples]
    columns = ""
    rows = ""
    for words, tags in sentences:
        columns += "".join(map("{} {}\n".format, words, tags)) + "\n"
        rows += json.dumps({"tokens": words, "upos": tags}) + "\n"
    for path in (write(tmp_path / "train.conll", columns), write(tmp_path / "train.jsonl", rows)):
        read = [example.sentence for example in task.read(path, labelled=True)]
        assert [(sentence.words, sentence.tags) for sentence in read] == sentences
        assert ner_task([path], TaskOptions()) == task  # none of the tags has an entity's form
    with pytest.raises(UserError, match=r"line 1: the number of columns is 2, not 10 as in"):
        pos_task([write(tmp_path / "bad.conllu", "1\tDo\n")], TaskOptions())
    with pytest.raises(UserError, match="contains fewer than two different tags"):
        pos_task([write(tmp_path / "one.conll", "a X\n")], TaskOptions())


def test_universal_dependencies_have_a_text_beside_each_file(tmp_path):
    for split in ("train", "dev"):
        write(tmp_path / f"ud/en_ewt-ud-{split}.CONLLU", CONLLU)
        write(tmp_path / f"ud/en_ewt-ud-{split}.txt", "Don't read it. Films\n")
    data = read_data("ner", tmp_path / "ud", TaskOptions())
    assert isinstance(data.task, WordClasses)
    assert [len(data.train), len(data.dev[""])] == [3, 3]


def test_unknown_tags_are_counted_and_wrong(tmp_path, capsys):
    checkpoint = make_checkpoint(tmp_path / "bert")
    task = WordClasses(labels=("NOUN", "VERB"))
    path = write(tmp_path / "dev.conll", "film NOUN\nbad ADJ\nis VERB\nvery ADV\n")
    examples = list(task.read(path, labelled=True))
    assert (
        f"{path}: 2 words are of classes that are not in the training data (ADJ, ADV); "
        "they count as wrong."
    ) in capsys.readouterr().err
    features = task.encode(examples, TextTokenizer(checkpoint))
    logits = np.zeros((6, 2), dtype=np.float32)
    logits[3, 1] = np.log(3)
    assert task.scores([logits], features, examples) == {"accuracy": 0.5}
    (answer,) = task.answers([logits], features, examples)
    assert answer["tags"] == ["NOUN", "NOUN", "VERB", "NOUN"]
    assert answer["tag_probabilities"] == pytest.approx([0.5, 0.5, 0.75, 0.5])
    assert task.official([answer], examples, "dev") == {
        "dev.conll": b"film NOUN NOUN\nbad ADJ NOUN\nis VERB VERB\nvery ADV NOUN\n"
    }
    assert task.baseline(examples, examples) == {"accuracy": 0.25}
