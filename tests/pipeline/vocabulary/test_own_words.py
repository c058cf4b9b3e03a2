"""Words of one's own: their places, what `transformers` makes of them, and what costs most."""

from pathlib import Path

import click
import numpy as np
import pytest
from clozeworks.cli.main import commands, main
from clozeworks.model.pretraining.new_vocabulary import old_pieces
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.vocabulary.files import read_vocabulary, vocabulary_files
from clozeworks.pipeline.vocabulary.normalization import Normalization
from clozeworks.pipeline.vocabulary.own_words import add_words, suggest_words
from clozeworks.pipeline.vocabulary.vocabulary import SPECIAL_TOKENS, Vocabulary

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
    found = suggest_words(str(documents), base, 5)
    # 2 x (5 - 1) is more than 6 x (2 - 1), and "ate" is one piece.
    assert [tuple(word) for word in found] == [("abate", 2, 5), ("ab", 6, 2)]
    assert np.all([word.num_pieces > 1 for word in found])
    main(["words", base, str(documents), "-n", "1"])
    assert capsys.readouterr().out == "abate\t2\t5\n"
