"""Words of one's own: their places, what `transformers` makes of them, and what costs most."""

import json
from itertools import pairwise
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pytest
from clozeworks.cli.main import commands, main
from clozeworks.model.pretraining.new_vocabulary import old_pieces
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.vocabulary.byte_level import CHARACTERS
from clozeworks.pipeline.vocabulary.files import load_vocabulary, read_vocabulary, vocabulary_files
from clozeworks.pipeline.vocabulary.normalization import Normalization
from clozeworks.pipeline.vocabulary.own_words import add_words, suggest_words
from clozeworks.pipeline.vocabulary.vocabulary import SPECIAL_TOKENS, Vocabulary
from tokenizers import Tokenizer, models, processors

from tests.fixtures.byte_level_fixture import write_published_tokenizer
from tests.fixtures.documents_fixture import TRAIN, VALIDATION, write_documents

PIECES = ("[unused0]", "[unused1]", "ate", "a", "##b", "##a", "##t", "##e", "t")
BASE = Vocabulary((*SPECIAL_TOKENS, *PIECES), Normalization(True, True))


@pytest.fixture
def base(tmp_path: Path) -> str:
    (tmp_path / "base").mkdir()
    for name, content in vocabulary_files(BASE).items():
        (tmp_path / "base" / name).write_bytes(content)
    return str(tmp_path / "base")


def test_words_take_unused_places_first_then_new_rows(base: str, tmp_path: Path, capsys):
    from transformers import AutoTokenizer

    (tmp_path / "words.txt").write_text("Abate\n\nate\nabba\nabate\ntab\n")
    output = tmp_path / "vocab"
    command = ["words", base, f"--add={tmp_path}/words.txt", f"--output={output}"]
    main(command)
    after = read_vocabulary(str(output))
    assert after.tokens == (*SPECIAL_TOKENS, "abate", "abba", *PIECES[2:], "tab")
    theirs = AutoTokenizer.from_pretrained(output)
    assert theirs.tokenize("abate abba ab") == ["abate", "abba", "a", "##b"]
    pieces = [BASE.ids[piece] for piece in ("a", "##b", "##a", "##t", "##e")]
    assert old_pieces(BASE, after)[after.ids["abate"]] == pieces
    with pytest.raises(SystemExit):
        main(command)  # it exists
    (tmp_path / "words.txt").write_bytes(b"caf\xe9\n")
    with pytest.raises(SystemExit):
        main([*command, "--overwrite"])
    (output / "manifest.json").write_text("{}")
    (tmp_path / "words.txt").write_text("tab\n")
    with pytest.raises(SystemExit):
        main([*command, "--overwrite"])  # it is a finished stage
    messages = capsys.readouterr().err.splitlines()
    assert "give --overwrite to replace its tokenizer" in messages[0]
    assert "words.txt cannot be read as text" in messages[1]
    assert "is what its manifest.json records: choose another --output" in messages[2]


@pytest.mark.parametrize(
    "typed", ["", "--add=W", "--output=V", "D --output=V", "D --add=W --output=V"]
)
def test_it_either_finds_or_adds_words(typed: str, base: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("W").write_text("tab\n")
    with pytest.raises(click.UsageError, match="either DOCUMENTS, or --add FILE with --output"):
        commands.main(["words", base, *typed.split()], standalone_mode=False)
    assert not Path("V").exists()


def test_what_is_not_a_word_is_named():
    with pytest.raises(UserError, match=r"`add` 'a-b': to this vocabulary it is 3 words \(a - b\)"):
        add_words(BASE, ["a-b"])


def test_the_costliest_words_come_first(base: str, tmp_path: Path, capsys):
    texts = [("enwiki", "en", ["abate ab ab ab ate ate ate ate ate"])] * 2
    documents = write_documents(tmp_path / "documents", {TRAIN: texts, VALIDATION: texts})
    found = suggest_words(str(documents), base, 5).words
    # 2 x (5 - 1) is more than 6 x (2 - 1), and "ate" is one piece.
    assert list(found.items()) == [("abate", (2, 5)), ("ab", (6, 2))]
    main(["words", base, str(documents), "-n", "1"])
    assert capsys.readouterr().out == "abate\t2\t5\n"


OWN = ["covid", "antthe", "가나"]


@pytest.fixture
def published(tmp_path: Path) -> Path:
    return write_published_tokenizer(tmp_path / "published")


def test_words_of_a_byte_level_model_are_tokens_behind_a_space_and_without(
    published: Path, tmp_path: Path
):
    from transformers import AutoTokenizer

    (tmp_path / "words.txt").write_text("\n".join(OWN))
    folder = tmp_path / "vocab"
    main(["words", str(published), f"--add={tmp_path}/words.txt", f"--output={folder}"])
    before, after = read_vocabulary(str(published)), read_vocabulary(str(folder))
    # Three unused rows, then new ones, up to a multiple of 64.
    assert after.tokens[: len(before) - 3] == before.tokens[:-3]
    assert after.tokens[len(before) - 3 : len(before)] == ("Ġcovid", "covid", "Ġantthe")
    assert len(before) < len(after) == len(before) // 64 * 64 + 64
    assert after.specials == before.specials and after.byte_level is not None
    ordinary = set(np.array(after.tokens)[after.is_ordinary])
    assert ordinary == {*np.array(before.tokens)[before.is_ordinary]} | {
        f"{space}{''.join(CHARACTERS[byte] for byte in word.encode())}"
        for word in OWN
        for space in ("", "Ġ")
    }

    shapes = ["{}", "the {} a", "({})", "a\n{}\na", "\t{}.", "'{}'", "{}, {}"]
    texts = [shape.replace("{}", word) for word in OWN for shape in shapes]
    # Inside of a longer word they are not found; all other text is cut as before.
    others = [shape.format(word) for word in OWN for shape in ("{}s", "a{}", "pre{}post")]
    others += ["the ant's 10.", "", "가", "the\u3000ants", *random_texts(200)]
    theirs = AutoTokenizer.from_pretrained(folder)
    expected = theirs([*texts, *others], add_special_tokens=False)["input_ids"]
    starts = np.ones(len(expected), bool)
    for vocabulary, first in ((after, 0), (before, len(texts))):
        ids, offsets = vocabulary.text_tokenizer().encode(pa.array(texts + others), starts)
        found = [ids[start:stop].tolist() for start, stop in pairwise(offsets)]
        assert found[first:] == expected[first:]
    whole = Tokenizer.from_file(str(folder / "tokenizer.json"))
    encodings = whole.encode_batch(texts + others, add_special_tokens=False)
    assert [encoding.ids for encoding in encodings] == expected
    assert [len(ids) for ids in expected[:2]] == [1, 3]
    assert [whole.decode(ids) for ids in expected] == texts + others
    assert old_pieces(before, after)[after.ids["Ġcovid"]] == [
        before.ids[token] for token in ("Ġ", *"covid")
    ]
    # Once more, into what is unused now.
    again = add_words(after, ["covid", "ants"])
    assert len(again) == len(after) and set(again.tokens) - set(after.tokens) == {"ants", "Ġants"}


def random_texts(number: int) -> list[str]:
    rng = np.random.default_rng(0)
    pieces = ["the", " (", "an", "t", "'t", "10", ".", "\n", "covi", "x", "가", "é", "("]
    return ["".join(rng.choice(pieces, 8)) for _ in range(number)]


def test_the_saving_that_is_foretold_is_measured(published: Path, tmp_path: Path):
    texts = [("enwiki", "en", ["covid the covid (covid) an ant, 10 ants"])] * 2
    documents = write_documents(tmp_path / "documents", {TRAIN: texts, VALIDATION: texts})
    before = suggest_words(documents, str(published), 2)
    assert [*before.words] == ["covid", "ants"]
    (tmp_path / "words.txt").write_text("\n".join(before.words))
    main(["words", str(published), f"--add={tmp_path}/words.txt", f"--output={tmp_path}/vocab"])
    after = suggest_words(documents, str(tmp_path / "vocab"), 2)
    assert before.num_tokens - after.num_tokens == before.num_saved > 0


def test_words_that_a_byte_level_model_cannot_take_are_named(published: Path):
    base = read_vocabulary(str(published))
    with pytest.raises(UserError, match=r"'covid-19': to this vocabulary it is 3 words"):
        add_words(base, ["covid-19"])
    fields = json.loads((published / "tokenizer.json").read_text())
    fields["model"]["merges"].remove(["Ġ", "the"])
    fields["model"]["merges"].append(["Ġth", "e"])
    fields["model"]["vocab"]["Ġth"] = fields["model"]["vocab"].pop("Ġ'")
    fields["model"]["merges"].remove(["Ġ", "'"])
    changed = load_vocabulary({"tokenizer.json": json.dumps(fields).encode()}, "changed")
    with pytest.raises(UserError, match="do not make 'Ġthe' of its text"):
        add_words(changed, ["covid"])


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (models.Unigram([(token, 0.0) for token in SPECIAL_TOKENS] + [("a", 0.0)], 1), "a Unigram"),
        (models.BPE(BASE.ids, [], unk_token="[UNK]"), "a BPE of characters, as Gemma and mmBERT"),
    ],
)
def test_other_kinds_are_refused_by_name(model: models.Model, named: str):
    tokenizer = Tokenizer(model)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    base = load_vocabulary({"tokenizer.json": tokenizer.to_str().encode()}, "folder")
    with pytest.raises(UserError, match=f"`add` takes BERT's WordPiece, .* this .* has {named}"):
        add_words(base, ["tab"])
