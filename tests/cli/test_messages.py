"""Messages to the letter: each mistake is one line that says what to do."""

from pathlib import Path

import pytest
from clozeworks.cli.main import COMMANDS, main
from manifest_fixture import write_manifest

SENTENCES = [f"The cat sat on the mat of house number {i}." for i in range(120)]
NEEDED = "at least 4 different ones are needed"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with an empty folder, a file and a vocabulary's manifest."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.md").write_text("# Notes\n")
    (tmp_path / "vocab").mkdir()
    write_manifest(tmp_path / "vocab", "vocab")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.md").write_text("Dear all\n")
    return tmp_path


def run(line: str) -> None:
    main(line.split())


def error_of(capsys: pytest.CaptureFixture[str], line: str) -> str:
    """Run a command that must end with code 2; return what it prints to standard error."""
    with pytest.raises(SystemExit) as ended:
        run(line)
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "vocab nothere --output v",
            "nothere does not exist: give a directory written by `clozeworks ingest`.",
        ),
        (
            "vocab empty --output v",
            "The folder empty is empty: give a directory written by `clozeworks ingest`.",
        ),
        (
            "vocab notes.md --output v",
            "notes.md is a file: give a directory written by `clozeworks ingest`.",
        ),
        (
            "vocab other --output v",
            "other has no manifest.json: give a directory written by `clozeworks ingest`.",
        ),
        (
            "vocab vocab --output v",
            "vocab was written by `clozeworks vocab`, not by `clozeworks ingest`.",
        ),
        (
            "finetune sst2 d --checkpoint c --output o --epochs inf",
            "--epochs is inf, but must be above 0 and finite.",
        ),
        (
            "results empty --json --csv",
            "Give either --json or --csv, not both. See `clozeworks results --help`.",
        ),
        (
            "show nothere",
            "nothere does not exist: give a directory written by clozeworks ingest, vocab or build.",
        ),
        (
            "audit empty",
            "The folder empty is empty: give a directory written by clozeworks ingest, vocab or build.",
        ),
        (
            "audit vocab",
            "vocab was written by `clozeworks vocab`; audit measures instances and documents.",
        ),
        (
            "show vocab",
            "vocab was written by `clozeworks vocab`; show reads documents and instances.",
        ),
        ("ingest nothere.xml --output d", "nothere.xml does not exist."),
        ("ingest empty --output d", "The folder empty is empty."),
        ("ingest *.foo --output d", "*.foo matches no file."),
        (
            "ingest other/letter.md --format text --output notes.md",
            "notes.md is a file, but --output must be a directory.",
        ),
        (
            "ingest notes.md --format text --output other",
            "other already contains other files (letter.md, …). Choose another --output.",
        ),
        ("ingest notes.md", "Missing option '--output'. See `clozeworks ingest --help`."),
        (
            "ingst notes.md",
            "No such command 'ingst'. Did you mean 'ingest'? See `clozeworks --help`.",
        ),
    ],
)
def test_wrong_paths(line: str, message: str, capsys):
    assert error_of(capsys, line) == f"Error: {message}\n"


HUB = "If it is a model on the Hugging Face Hub, download it: hf download"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "pretrain nothere --output run",
            "nothere does not exist: give a directory written by `clozeworks build`.",
        ),
        (
            "pretrain empty --output run",
            "The folder empty is empty: give a directory written by `clozeworks build`.",
        ),
        (
            "pretrain vocab --output run",
            "vocab was written by `clozeworks vocab`, not by `clozeworks build`.",
        ),
        ("fill no/model [MASK]", f"no/model does not exist. {HUB} no/model --local-dir no/model"),
        ("fill empty [MASK]", "empty is not a model directory: config.json is missing."),
        ("fill no-model [MASK]", f"no-model does not exist. {HUB} no-model --local-dir no-model"),
        (
            "fill tuned [MASK]",
            "tuned is a fine-tuned model, without the masked-LM head: use `clozeworks predict`.",
        ),
        (
            "evaluate empty notes.md",
            "notes.md is a file, but empty is not a fine-tuned model (it has no task.json): fine-tune it with "
            "`clozeworks finetune`, or give a directory of instances.",
        ),
        ("results nothere", "nothere does not exist."),
        ("run nothere.toml", "nothere.toml cannot be read: No such file or directory."),
        (
            "ingest notes.md --output d --config c.toml",
            "--config c.toml: ingest has no option 'min-charcters'; did you mean min-characters.",
        ),
    ],
)
def test_wrong_models_and_options(line: str, message: str, capsys, folder: Path):
    (folder / "tuned").mkdir()
    (folder / "tuned" / "task.json").write_text("{}")
    (folder / "c.toml").write_text("min-charcters = 3\n")
    assert error_of(capsys, line) == f"Error: {message}\n"


@pytest.mark.parametrize(
    ("vocabulary", "fault"),
    [
        ("nothere", "nothere does not exist"),
        ("vocab.txt", "vocab.txt does not exist"),
        ("empty", "The folder empty is empty"),
        ("notes.md", "notes.md is a file"),
    ],
)
def test_a_vocabulary_that_is_none(vocabulary: str, fault: str, capsys, folder: Path):
    (folder / "documents").mkdir()
    (folder / "documents" / "train-00000-of-00001.parquet").touch()
    write_manifest(folder / "documents", "ingest", {"train-00000-of-00001.parquet": 0})
    assert error_of(capsys, f"build documents --vocab {vocabulary} --output i") == (
        f"Error: {fault}: give a directory with a vocabulary, a vocab.txt or a tokenizer.json.\n"
    )


def test_a_sentence_per_line_is_read_or_the_switch_is_named(capsys, folder: Path):
    lines = folder / "lines"
    lines.mkdir()
    (lines / "corpus.txt").write_text("\n".join(SENTENCES) + "\n")
    assert error_of(capsys, "ingest lines --output d --workers 1") == (
        f"Error: The sources hold 1 document; {NEEDED}. Of 1 read, 0 are too short (--min-characters, "
        "--min-sentences), 0 repeat others. If each line or paragraph is a document, give --documents line or "
        "blank-line, and --overwrite.\n"
    )
    assert error_of(capsys, "ingest lines --output d --workers 1 --overwrite --documents line") == (
        f"Error: The sources hold 0 documents; {NEEDED}. Of 120 read, 120 are too short (--min-characters, "
        "--min-sentences), 0 repeat others. To keep short documents, lower --min-characters, and give --overwrite.\n"
    )
    run("ingest lines --output d --workers 1 --overwrite --documents line --min-characters 1")
    assert "118 rows" in capsys.readouterr().out


def test_blank_lines_between_documents_need_no_switch(capsys, folder: Path):
    (folder / "c.txt").write_text(
        "\n\n".join("\n".join(SENTENCES[i : i + 10]) for i in range(0, 120, 10)) + "\n"
    )
    run("ingest c.txt --output d --workers 1")
    assert "10 rows" in capsys.readouterr().out


def test_a_finished_stage_says_so(capsys, folder: Path):
    (folder / "c.txt").write_text(
        "\n\n".join("\n".join(SENTENCES[i : i + 10]) for i in range(0, 120, 10)) + "\n"
    )
    lines = (
        "ingest c.txt --output d --workers 1",
        "vocab d --output v --size 100",
        "build d --vocab v --output i --max-length 32",
    )
    for line in lines:
        run(line)
    assert "already finished" not in capsys.readouterr().out
    for line in lines:
        for again in (line, f"{line} --dry-run"):
            run(again)
            rows = [" ".join(row.split()) for row in capsys.readouterr().out.splitlines()]
            assert "state already finished, nothing to do" in rows
    (folder / "v" / "vocab.txt").unlink()
    assert "v/vocab.txt is missing: recreate all of v" in error_of(
        capsys, "vocab d --output v --size 100"
    )


def test_the_summaries_of_commands_are_not_cut(capsys):
    run("--help")
    text = " ".join(capsys.readouterr().out.split())
    for command in COMMANDS:
        assert command.get_short_help_str(1000) in text
