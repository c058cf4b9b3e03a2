"""What foreign text does to a terminal and a spreadsheet: nothing."""

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from clozeworks.cli.finetune import _class_rows
from clozeworks.cli.main import main
from clozeworks.cli.output import make_console, print_table

from tests.fixtures.command_fixture import error_of

HOSTILE = "\x1b]8;;http://evil\x07T\x9b2J\r\x7f"


@pytest.fixture
def sources(tmp_path: Path) -> list[str]:
    """Four documents, two in files with odd names."""
    names = ["a\x1b[31m.txt", "книга.txt", "c.txt", "d.txt"]
    for name, animal in zip(names, ("cat", "dog", "hen", "cow"), strict=True):
        (tmp_path / name).write_text(f"The {animal} sat on the mat. " * 30)
    return [str(tmp_path / name) for name in names]


def test_a_console_shows_controls_and_writes_its_own():
    file = io.StringIO()
    console = make_console(file=file, force_terminal=True, highlight=False)
    console.print(f"[red]{HOSTILE}", style="bold")
    shown = "␛]8;;http://evil␇T\N{REPLACEMENT CHARACTER}2J␍␡"
    assert file.getvalue() == f"\x1b[1m[red]{shown}\x1b[0m\n"


@pytest.mark.parametrize("num_columns", ["0", "20", "nonsense"])
def test_a_table_is_whole_whatever_the_terminal_says(num_columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", num_columns)
    print_table(["source", "documents"], [["a source of some length", "12"]])
    assert "a source of some length" in capsys.readouterr().out


def test_documents_are_shown_without_their_controls(sources, tmp_path, capsys):
    documents = str(tmp_path / "documents")
    main(["ingest", *sources, "--output", documents])
    main(["show", documents])
    with pytest.raises(SystemExit):
        main(["audit", sources[0]])
    shown = "".join(capsys.readouterr())
    assert "␛[31m" in shown and "\x1b" not in shown


def test_a_terminal_without_unicode_gets_escapes(sources, tmp_path):
    command = [Path(sys.executable).parent / "clozeworks", "ingest", *sources]
    ended = subprocess.run(
        [*command, "--language", "en", "--output", tmp_path / "книга"],
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert r"\u043a\u043d\u0438\u0433\u0430" in ended.stdout  # книга


@pytest.mark.parametrize("command", [["fill", "model"], ["audit"], ["vocab", "--output", "v"]])
def test_a_name_or_text_that_is_not_utf_8_is_refused(command, capsys):
    name = os.fsdecode(b"caf\xe9")
    assert error_of(capsys, *command, name).startswith(r"Error: caf\udce9 is not UTF-8: rename")


@pytest.mark.slow
def test_a_reader_that_stops_is_no_failure(sources, tmp_path):
    main(["ingest", *sources, "--output", str(tmp_path / "documents")])
    command = [sys.executable, "-m", "clozeworks.cli", "show", tmp_path / "documents"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as shown:
        assert shown.stdout is not None and shown.stderr is not None
        shown.stdout.close()
        assert (shown.stderr.read(), shown.wait()) == (b"", 0)


@pytest.mark.slow
def test_an_interrupt_while_the_program_is_imported_is_one_line():
    script = (
        "import sys, importlib.abc, clozeworks.cli.__main__ as program\n"
        "class Interrupt(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'click': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "program.start()"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr.count("\n")) == (130, 1)


def test_events_are_json_lines(sources, tmp_path, capsys):
    documents = str(tmp_path / "documents")
    begun = time.time()
    main(["--log-format", "json", "--quiet", "ingest", *sources, "--output", documents])
    printed = capsys.readouterr()
    (warning,) = [json.loads(line) for line in printed.err.splitlines()]
    assert warning["level"] == "warning" and warning["message"].startswith("the language of 4 ")
    assert begun - 1 < warning["time"] < time.time() + 1 and not printed.out
    with pytest.raises(SystemExit):
        main(["--log-format", "json", "show", str(tmp_path / "nothing")])
    error = json.loads(capsys.readouterr().err)
    assert (error["level"], error["exit_code"]) == ("error", 2)
    assert "nothing does not exist" in error["message"]
    main(["show", documents])  # the next command prints as people read
    assert not capsys.readouterr().err


def test_an_option_comes_from_the_environment(sources, tmp_path, monkeypatch):
    monkeypatch.setenv("CLOZEWORKS_INGEST_LANGUAGE", "de")
    main(["ingest", *sources, "--output", str(tmp_path / "documents")])
    manifest = json.loads((tmp_path / "documents" / "manifest.json").read_text())
    assert manifest["config"]["language"] == "de"


def test_options_for_beam_are_found_behind_options_of_the_program(capsys):
    line = "--quiet ingest nothing --output x -- --runner=DirectRunner"
    assert "nothing" in error_of(capsys, *line.split())


@pytest.mark.parametrize(
    "address",
    [
        "s3://key:secret@bucket/x",
        "s3://key:sec/secret@bucket/x",
        "https://user:secret@host/a?b=1",
        "gs://user:secret@bucket/x",
    ],
)
def test_secrets_in_addresses_are_not_repeated(address: str, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["ingest", address, "--output", str(tmp_path / "out")])
    error = capsys.readouterr().err
    assert "secret" not in error
    # The query of an address on the web is no wildcard.
    assert not address.startswith("https") or "https://***@host/a?b=1 cannot be opened" in error


def test_of_many_classes_those_with_most_mistakes_are_shown():
    figures = {"precision": 1.0, "recall": 1.0, "f1": 1.0, "count": 5}
    classes = {f"{number}": dict(figures) for number in range(40)}
    classes["37"]["recall"] = 0.2
    names = [name for name, _ in _class_rows({"classes": classes, "confusion": []})]
    assert (len(names), names[0], names[-1]) == (21, "class 37", "20 other classes")
    confusion = [[2, 1, 2], [0, 5, 0], [0, 0, 5]]
    (_, first), *_ = _class_rows({"classes": dict.fromkeys("abc", figures), "confusion": confusion})
    assert first.endswith("of 5; 2 taken for c")
