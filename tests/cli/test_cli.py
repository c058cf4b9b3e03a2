"""The command line: its help, its errors, and what it imports."""

import dataclasses
import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from clozeworks.cli.main import commands, main
from clozeworks.pipeline.config import BuildConfig

COMMANDS = commands.commands


def fails(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """Run the command line; it must end with code 2 and one line, which is returned."""
    with pytest.raises(SystemExit) as ended:
        main(args)
    assert ended.value.code == 2
    message = capsys.readouterr().err
    assert message.startswith("Error: ")
    assert message.count("\n") == 1
    return message


def test_the_surface_is_the_documented_one():
    expected = "ingest vocab build audit show pretrain evaluate fill finetune predict features results export run"
    assert set(COMMANDS) == set(expected.split())


def test_the_summaries_of_commands_are_whole_sentences(capsys: pytest.CaptureFixture[str]):
    main(["--help"])
    summaries = capsys.readouterr().out.split("Commands:\n")[1]
    assert "..." not in summaries
    assert all(
        re.search(rf"^  {name} +[A-Z].*?\.$", summaries, re.MULTILINE | re.DOTALL)
        for name in COMMANDS
    )


def test_help_loads_nothing_heavy():
    script = (
        "import sys\n"
        "from clozeworks.cli.main import main\n"
        "main(['--help'])\n"
        "heavy = {'torch', 'apache_beam', 'numpy', 'pyarrow', 'rich', 'tokenizers'} & set(sys.modules)\n"
        "print('heavy:', sorted(heavy))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert ended.stdout.endswith("heavy: []\n")


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


def test_help_distinguishes_lists_of_names_and_of_numbers():
    shown = {
        option.opts[0]: option.type.name
        for name in ("ingest", "build")
        for option in COMMANDS[name].params
    }
    assert shown["--keep-language"] == "names"
    assert shown["--mask-split"] == "numbers"


def test_options_are_the_fields_of_the_configuration():
    options = {parameter.name: parameter for parameter in COMMANDS["build"].params}
    for field in dataclasses.fields(BuildConfig):
        typed = (
            str(field.default).strip("()").replace(" ", "")
            if field.name == "mask_split"
            else field.default
        )
        assert options[field.name].default == typed
    assert "--mask-split" in options["mask_split"].opts


def test_mistakes_are_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    output = ("--output", str(tmp_path / "out"))
    assert (
        "no such option"
        in fails(capsys, "build", "docs", "--vocab", "v", *output, "--mask-rat", "1").lower()
    )
    assert "--mask-rate" in fails(
        capsys, "build", "docs", "--vocab", "v", *output, "--mask-rate", "0.9"
    )
    assert "nowhere" in fails(capsys, "ingest", str(tmp_path / "nowhere.xml"), *output)
    assert "clozeworks ingest" in fails(capsys, "vocab", str(tmp_path), *output)
    assert "Apache Beam has no option --projekt=x" in fails(
        capsys, *some_text(tmp_path), *output, "--", "--projekt=x"
    )
    wrong = fails(capsys, *some_text(tmp_path), *output, "--", "--direct_num_workers=two")
    assert (
        "Apache Beam's options are wrong: argument --direct_num_workers: invalid int value: 'two'"
        in wrong
    )
    assert "three percentages that sum to 100" in fails(
        capsys, "build", "d", "--vocab", "v", *output, "--mask-split", "80,10,20"
    )


def test_closed_streams_do_no_harm(tmp_path: Path):
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text(
            f"The text of file {number} is short. Still it is a text."
        )
    ingest = f"ingest {tmp_path} --min-characters 1 --workers 2"
    script = (
        f"{sys.executable} -m clozeworks.cli.main {ingest} --output {tmp_path}.out <&- >&- 2>&-"
    )
    assert subprocess.run(script, shell=True, timeout=60, check=False).returncode == 0


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            OSError(errno.ENAMETOOLONG, "File name too long", "a"),
            "File name too long: a. Fix this and rerun; it resumes.",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied", "a"),
            "Permission denied: a. Fix this and rerun; it resumes.",
        ),
        (OSError("odd"), "odd. Fix this and rerun; it resumes."),
        (
            MemoryError(),
            "Out of memory. Rerun with fewer --workers, or in training with a smaller --micro-batch-size; a smaller "
            "model or --batch-size needs another --output.",
        ),
        (
            RuntimeError("can't start new thread"),
            "The system's limit on threads or memory has been reached (`ulimit -a`). Raise it, then rerun the same "
            "command.",
        ),
    ],
)
def test_errors_of_the_system_are_one_line_and_code_1(
    error: Exception, line: str, capsys, monkeypatch
):
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(COMMANDS["results"], "callback", fail)
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as ended:
        main(["results", "."])
    assert (ended.value.code, capsys.readouterr().err) == (1, f"Error: {line}\n")


@pytest.mark.parametrize("without", ["", " without --overwrite"])
def test_an_interrupted_command_says_how_it_resumes(without: str, capsys, monkeypatch):
    def interrupt(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(COMMANDS["vocab"], "callback", interrupt)
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit, match="130"):
        main(["vocab", ".", "--output", "v", *(["--overwrite"] if without else [])])
    assert (
        capsys.readouterr().err.strip()
        == f"Error: Interrupted; rerun the same command{without} to resume."
    )


def test_a_bug_keeps_its_traceback(monkeypatch):
    def fail(**_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(COMMANDS["results"], "callback", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        main(["results", "."])


def test_a_dry_run_says_what_it_would_take_and_writes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    for i in range(9):
        (tmp_path / f"{i}.txt").write_text(f"Text number {i} is quite short. " * 200)
    before = sorted(tmp_path.iterdir())
    main(
        [
            "ingest",
            str(tmp_path),
            "--output",
            str(tmp_path.parent / "none"),
            "--shards=3",
            "--dry-run",
        ]
    )
    table = capsys.readouterr().out
    assert "1 range of 9 files, then 3 shards" in table
    assert "0.1 MB" in table
    assert sorted(tmp_path.iterdir()) == before
    assert not (tmp_path.parent / "none").exists()
    assert "is inside the source" in fails(
        capsys, "ingest", str(tmp_path), "--output", f"{tmp_path}/out", "--dry-run"
    )


def test_what_was_left_out_is_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    source = tmp_path / "texts"
    source.mkdir()
    for i in range(9):
        (source / f"{i}.txt").write_text(f"Text number {i} is quite short. " * 20)
    (source / "none.txt").write_text("")
    (source / "cover.jpg").write_text("")
    main(["ingest", str(source), "--output", f"{tmp_path}/out", "--workers=1", "--max-bad=0.2"])
    warnings = capsys.readouterr().err.splitlines()
    assert warnings == [
        "Warning: bad input: 1 x empty file; for example empty file at texts/none.txt.",
        "Warning: skipped 1 file of unknown format, for example texts/cover.jpg; give --format to read all.",
        "Warning: the language of 9 documents is unknown: sentences are split as in English; give --language for them.",
    ]
    named = f"{tmp_path}/named"
    main(
        ["ingest", str(source), "--output", named, "--workers=1", "--max-bad=0.2", "--language=en"]
    )
    assert "unknown:" not in capsys.readouterr().err
    assert "empty file at texts/none.txt" in fails(
        capsys, "ingest", str(source), "--output", f"{tmp_path}/other", "--workers=1"
    )


def some_text(folder: Path) -> tuple[str, str]:
    (folder / "a.txt").write_text("A text.\n")
    return "ingest", str(folder / "a.txt")


def test_a_config_file_gives_defaults_and_its_mistakes_are_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    config = tmp_path / "c.toml"
    arguments = (
        "build",
        "docs",
        "--vocab",
        "v",
        "--output",
        str(tmp_path / "out"),
        "--config",
        str(config),
    )
    for content, message in {
        "[build]\nmask-rate = 0.9\n": "--mask-rate is 0.9",
        "mask-rate = 0.9\nseed = 1\n[build]\nseed = 2\n": "--mask-rate is 0.9",
        "mask-rate = 0.1\n[build]\nmask_rate = 0.9\n": "--mask-rate is 0.9",
        "mask_rat = 0.2\n": "no option 'mask-rat'; did you mean mask-rate",
        "mask-rat = 0.2\n[build]\nseed = 2\n": "no option 'mask-rat'",
        "build = 3\n": "build has no option 'build'",
        "[bulid]\nseed = 2\n": "there is no command 'bulid'; did you mean build",
        "[build\n": "c.toml is not valid (expected ']'",
    }.items():
        config.write_text(content)
        assert message in fails(capsys, *arguments)
    config.unlink()
    assert "c.toml cannot be read: No such file or directory" in fails(capsys, *arguments)


def test_a_recipes_mistakes_are_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    recipe = tmp_path / "r.toml"
    assert "cannot be read" in fails(capsys, "run", str(recipe))
    recipe.write_text('[[stage]]\ncommand = "brew"\n')
    assert "'brew'" in fails(capsys, "run", str(recipe))
    recipe.write_text("[stage]\n")
    assert "stage: expected array, got object" in fails(capsys, "run", str(recipe))
    recipe.write_text("[[stage]]\nseed = 0\n")
    assert "stage '': there is no command ''" in fails(capsys, "run", str(recipe))
    recipe.write_text('[[stage]]\ncommand = "vocab"\nseed = {}\n')
    assert "stage 1 (vocab), seed: a table is not a value" in fails(capsys, "run", str(recipe))
