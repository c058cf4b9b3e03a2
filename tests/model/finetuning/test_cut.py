"""No silent truncation: a line per file says how many examples did not fit."""

import io
import json

import pytest
from clozeworks.cli.main import main
from clozeworks.model.checkpoint import Checkpoint
from clozeworks.model.finetuning import predict as predictor
from clozeworks.model.finetuning.config import FinetuneConfig
from clozeworks.model.finetuning.setup import set_up
from clozeworks.model.notices import print_notice
from clozeworks.model.tasks.batches import num_cut
from clozeworks.model.tasks.catalogue import GLUE
from clozeworks.model.tasks.ner import EntityRecognition
from clozeworks.model.tasks.sentence_rows import SentenceExample
from clozeworks.model.tasks.squad import Squad
from clozeworks.model.tasks.tagged import split_words
from clozeworks.model.tasks.task import report_cut

from tests.fixtures.degenerate import may_be_degenerate
from tests.fixtures.task_files import write_lines


def words(num: int) -> str:
    return " ".join(["film"] * num)


def test_rows_know_how_many_tokens_had_no_room(tokenizer):
    tokens = list(range(8))
    assert [tokenizer.row(tokens, None, size)[2] for size in (11, 10, 9, 4)] == [0, 0, 1, 6]
    assert [tokenizer.row(tokens, tokens, size)[2] for size in (20, 19, 18, 5)] == [0, 0, 1, 14]
    assert tokenizer.row([], None, 2)[2] == 0


def test_an_example_is_cut_where_one_of_its_tokens_is(tokenizer):
    texts = (words(8), words(9), "film")
    single = [GLUE["sst2"].parse_line(text, "") for text in texts]
    assert num_cut(GLUE["sst2"].encode(single, tokenizer)) == 0
    pairs = [GLUE["mrpc"].parse_line(f"{words(num)}\tgood", "") for num in (124, 125, 200)]
    assert num_cut(GLUE["mrpc"].encode(pairs, tokenizer)) == 2


def test_passages_and_sentences_are_read_in_windows_but_questions_are_cut(tokenizer, capsys):
    task = Squad(version="1.1", max_length=16, stride=4, max_question_length=5)
    questions = [task.parse_line(f"{words(num)}\t{words(100)}", "") for num in (5, 6, 12)]
    features = task.encode(questions, tokenizer)
    assert len(features) > 20
    assert num_cut(features) == 2
    report_cut(task, "dev", 2, 3)
    assert capsys.readouterr().err == "dev: 2 of 3 questions cut at 5 tokens.\n"
    sentence = SentenceExample([split_words(words(100))], 0)
    assert (
        num_cut(EntityRecognition(types=("x",), max_length=16).encode([sentence], tokenizer)) == 0
    )


@pytest.mark.parametrize("rank, expected", [(None, "so\n"), ("0", "so\n"), ("1", "")])
def test_only_the_first_process_prints(rank, expected, monkeypatch, capsys):
    monkeypatch.delenv("RANK", raising=False)
    if rank:
        monkeypatch.setenv("RANK", rank)
    print_notice("so")
    assert capsys.readouterr().err == expected


def test_unknown_tokens_are_a_notice(checkpoint, tmp_path, capsys):
    rows = [f"{word} strange,{label}" for word in ("unheard", "unseen") for label in "ab"]
    for split in ("train", "dev"):
        write_lines(tmp_path / f"{split}.csv", "text,label", *rows)
    set_up("classify", tmp_path, Checkpoint.open(checkpoint), FinetuneConfig(max_length=8))
    assert "100% of the tokens are unknown" in capsys.readouterr().err


@pytest.mark.slow
def test_each_command_says_what_is_cut_in_one_line_a_file(
    checkpoint, tmp_path, capsys, monkeypatch
):
    data = tmp_path / "data"
    for name, lengths in (("train", (3, 7, 8, 20)), ("dev", (6, 6)), ("test", (9, 9, 1))):
        write_lines(
            data / f"{name}.csv",
            "text,label",
            *(f"{words(num)},{'ab'[i % 2]}" for i, num in enumerate(lengths)),
        )
    run = str(tmp_path / "run")
    options = ["--max-length", "8", "--epochs", "1", "--learning-rates", "1e-5", "--device", "cpu"]

    def fine_tune(output: str) -> None:
        command = ["finetune", "classify", str(data), "--checkpoint", str(checkpoint)]
        with may_be_degenerate():
            main([*command, "--output", output, *options])

    fine_tune(run)
    assert capsys.readouterr().err.splitlines()[1:3] == [
        "train: 3 of 4 examples cut at --max-length 8.",
        "test: 2 of 3 examples cut at --max-length 8.",
    ]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["train_examples_cut"], summary["dev_examples_cut"]) == (3, 0)

    (checkpoint / "tokenizer_config.json").write_text(
        '{"do_lower_case": true, "model_max_length": 7}'
    )
    fine_tune(f"{run}-7")
    assert capsys.readouterr().err.splitlines()[1] == (
        f"5 of 6 rows are longer than in the pre-training of {checkpoint}, "
        "whose positions past 7 are untrained; give --max-length 7."
    )
    options.append("--random-weights")
    fine_tune(f"{run}-random")
    assert "untrained" not in capsys.readouterr().err

    for command in (["evaluate", run], ["predict", "--output", str(tmp_path / "out.tsv"), run]):
        main([*command, str(data / "test.csv")])
        assert (
            capsys.readouterr().err
            == f"{data / 'test.csv'}: 2 of 3 examples cut at --max-length 8.\n"
        )
        main([*command, str(data / "dev.csv")])
        assert not capsys.readouterr().err
    main(["evaluate", run, str(data)])
    assert not capsys.readouterr().err

    # One line, however many parts the examples are read in.
    monkeypatch.setattr(predictor, "EXAMPLES_AT_ONCE", 2)
    monkeypatch.setattr(
        "sys.stdin", io.TextIOWrapper(io.BytesIO(f"{words(7)}\ngood\n{words(8)}\n".encode()))
    )
    main(["predict", run, "-", "--output", "-"])
    shown = capsys.readouterr()
    assert shown.err == "standard input: 2 of 3 examples cut at --max-length 8.\n"
    assert len(shown.out.splitlines()) == 4
