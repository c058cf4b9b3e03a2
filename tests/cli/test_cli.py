"""The command line: its help, exit codes and imports. Exact messages are in test_messages.py."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pyarrow.parquet as pq
import pytest
from clozeworks.cli.main import commands, main
from clozeworks.cli.options import COMMON
from clozeworks.model.config import PretrainConfig
from clozeworks.model.features.config import FeaturesConfig
from clozeworks.model.finetuning.config import FinetuneConfig
from clozeworks.pipeline.config import identity_fields

from tests.fixtures.command_fixture import error_of
from tests.fixtures.process_fixture import TIME_LIMIT_S

COMMANDS = commands.commands
NAMES = (
    *("corpus", "ingest", "vocab", "words", "build", "audit", "show", "pretrain", "merge"),
    *("evaluate", "fill", "finetune", "predict", "features", "results", "export", "run"),
)
GROUPED = ("ingest", "vocab", "build", "pretrain", "finetune", "features")


def help_of(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    main([name, "--help"])
    return capsys.readouterr().out


def test_the_surface_is_the_documented_one():
    assert tuple(COMMANDS) == NAMES


def test_the_summaries_of_commands_are_whole_sentences(capsys: pytest.CaptureFixture[str]):
    main(["--help"])
    summaries = capsys.readouterr().out.split("Commands:\n")[1]
    assert "..." not in summaries
    assert all(
        re.search(rf"^  {name} +[A-Z].*?\.$", summaries, re.MULTILINE | re.DOTALL)
        for name in COMMANDS
    )


@pytest.mark.parametrize(
    ("words", "completions"),
    [
        (["pre"], ["plain,predict", "plain,pretrain"]),
        (["pretrain", "--model", "ti"], ["plain,tiny"]),
        (["pretrain", "--hou"], ["plain,--hours"]),
        (["build", "docu"], ["file,docu"]),  # the shell completes file names
    ],
)
def test_the_shell_completes_commands_options_values_and_files(
    words: list[str], completions: list[str], capsys, monkeypatch
):
    line = {"COMP_WORDS": " ".join(["clozeworks", *words]), "COMP_CWORD": str(len(words))}
    for name, value in {"_CLOZEWORKS_COMPLETE": "bash_complete", **line}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        main([])
    assert sorted(capsys.readouterr().out.split()) == completions


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_option_is_explained_by_a_sentence(name: str):
    for parameter in COMMANDS[name].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name
            assert parameter.help.endswith((".", ").")), parameter.name
            assert parameter.help[0].isupper() or parameter.help[0] in "[{", parameter.name


@pytest.mark.parametrize("name", NAMES)
def test_help_lists_every_option_with_its_default(name: str, capsys: pytest.CaptureFixture[str]):
    text = help_of(name, capsys)
    words = " ".join(text.split())
    assert 'default: ""' not in words
    for option in COMMANDS[name].params:
        if isinstance(option, click.Option):
            assert len(re.findall(rf"^  (-\w, )?{option.opts[0]}(?= |$)", text, re.MULTILINE)) == 1
            if option.show_default and not option.is_flag:
                assert f"[default: {option.default}" in words


@pytest.mark.parametrize("name", GROUPED)
def test_help_shows_options_in_groups_the_common_ones_first(name: str, capsys):
    headings = re.findall(r"^(\w.*):$", help_of(name, capsys), re.MULTILINE)
    assert headings[0] == COMMON
    assert len(headings) > 1
    assert len(set(headings)) == len(headings)


@pytest.mark.parametrize(
    ("config", "names"),
    [
        (
            PretrainConfig,
            "micro_batch_size evaluate_every checkpoint_every checkpoint_minutes archive_every "
            " license compile deterministic device also",
        ),
        (
            FinetuneConfig,
            "micro_batch_size deterministic device learning_rates batch_size epochs seeds "
            "seed metric class_weights group",
        ),
        (FeaturesConfig, "device"),
    ],
)
def test_some_options_may_change_when_work_is_resumed(config: type, names: str):
    fields = {field.name for field in dataclasses.fields(config)}
    assert fields - set(identity_fields(config())) == set(names.split())


@pytest.mark.slow
def test_closed_streams_do_no_harm(tmp_path: Path):
    for number in range(4):
        text = f"The text of file {number} is short. Still it is a text."
        (tmp_path / f"{number}.txt").write_text(text)
    ingest = f"ingest {tmp_path} --output {tmp_path}.out --min-characters 1 --workers 2"
    script = f"{sys.executable} -m clozeworks.cli.main {ingest} <&- >&- 2>&-"
    assert subprocess.run(script, shell=True, timeout=TIME_LIMIT_S).returncode == 0


def test_a_bug_keeps_its_traceback(monkeypatch):
    def fail(**_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(COMMANDS["results"], "callback", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        main(["results", "."])


def test_a_dry_run_says_what_there_is_to_do_and_writes_nothing(capsys, tmp_path: Path):
    for i in range(9):
        (tmp_path / f"{i}.txt").write_text(f"Text number {i} is quite short. " * 200)
    before = sorted(tmp_path.iterdir())
    output = str(tmp_path.parent / "none")
    main(["ingest", str(tmp_path), "--output", output, "--shards=3", "--dry-run"])
    table = capsys.readouterr().out
    assert re.search(r"units of work +1\b", table) and " kB " in table
    assert sorted(tmp_path.iterdir()) == before
    assert not (tmp_path.parent / "none").exists()
    inside = f"{tmp_path}/out"
    assert inside in error_of(capsys, "ingest", str(tmp_path), "--output", inside, "--dry-run")


def test_a_book_that_lost_much_as_headings_is_warned_about(capsys, tmp_path: Path):
    books = tmp_path / "books"
    books.mkdir()
    for wind in ("North", "South", "East", "West", "Zephyr"):
        prose = f"The {wind} wind went on over the grey and empty fields of the land. " * 4
        (books / f"{wind}.txt").write_text("\n\n".join([prose, "Down the Grey River"] * 200))
    main(["ingest", str(books), "--output", str(tmp_path / "documents"), "--language=en"])
    assert "Warning: 5 books lost over 3% of the words as headings" in capsys.readouterr().err


def test_a_text_in_another_encoding_is_refused_until_it_is_given(capsys, tmp_path: Path):
    source = tmp_path / "texts"
    source.mkdir()
    words = ["Собака", "Кошка", "Корова", "Птица", "Рыба", "Лошадь"]
    sentences = [f"{word} номер {i} спит в доме у реки." for i in range(9) for word in words]
    text = "\n\n".join(sentences)
    (source / "ru.txt").write_bytes(text.encode("koi8-r"))
    output = tmp_path / "documents"
    command = ["ingest", str(source), "--output", str(output), "--documents=blank-line"]
    command += ["--min-characters=10", "--language=ru", "--workers=1"]
    error = error_of(capsys, *command)
    refusal = (
        "texts/ru.txt is not UTF-8: if it is koi8-r, as chardet guesses, give --encoding koi8-r."
    )
    assert refusal in error
    main([*command, "--encoding=KOI8-R"])
    manifest = json.loads((output / "manifest.json").read_text())
    assert manifest["inputs"][0]["encoding"] == "koi8-r"
    (shard,) = output.glob("train-*.parquet")
    stored = pq.read_table(shard)["sentences"].to_pylist()
    assert {sentence for document in stored for sentence in document} <= set(sentences)
    assert "--encoding is koi9" in error_of(capsys, *command, "--encoding=koi9")
