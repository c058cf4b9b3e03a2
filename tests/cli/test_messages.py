"""Messages to the letter: each mistake is one line that says what to do."""

import ast
import errno
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from clozeworks.cli.failures import describe_failure
from clozeworks.cli.main import commands, main
from clozeworks.cli.output import warn, with_flags
from clozeworks.pipeline.languages import check_language

from tests.fixtures.command_fixture import error_of
from tests.fixtures.manifest_fixture import write_manifest

SENTENCES = [f"The cat sat on the mat of house number {i}." for i in range(120)]
HUB = "If it is a model on the Hugging Face Hub, download it: hf download"
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
    for name, stage in (("documents", "ingest"), ("vocab", "vocab"), ("instances", "build")):
        (tmp_path / "corpus" / name).mkdir(parents=True)
        write_manifest(tmp_path / "corpus" / name, stage)
    (tmp_path / "corpus" / "vocab" / "vocab.txt").touch()
    (tmp_path / "corpus" / "run").mkdir()
    (tmp_path / "corpus" / "run" / "config.json").touch()
    return tmp_path


def run(line: str) -> None:
    main(line.split())


def error_of_line(capsys: pytest.CaptureFixture[str], line: str) -> str:
    return error_of(capsys, *line.split())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("vocab nothere --output v", "nothere does not exist: give a directory written by"),
        ("vocab empty --output v", "The folder empty is empty: give a directory written by"),
        ("vocab notes.md --output v", "notes.md is a file: give a directory written by"),
        ("vocab other --output v", "other has no manifest.json: give a directory written by"),
        ("vocab vocab --output v", "vocab was written by `clozeworks vocab`, not by `clozeworks"),
        ("finetune sst2 d --checkpoint c --output o --epochs inf", "--epochs is inf: expected"),
        ("show nothere", "nothere does not exist: give a directory written by `clozeworks ingest`"),
        ("vocab corpus --output v", "corpus has no manifest.json: give corpus/documents."),
        ("pretrain corpus --output r", "corpus has no manifest.json: give corpus/instances."),
        ("show corpus", "corpus has no manifest.json: give corpus/documents or corpus/instances."),
        ("audit corpus", "corpus has no manifest.json: give corpus/documents or corpus/instances"),
        (
            "vocab corpus/documents --compare corpus --output v",
            "corpus has no vocabulary: give corpus/vocab.",
        ),
        (
            "fill corpus [MASK]",
            "corpus is not a model directory: config.json is missing; give corpus/run.",
        ),
        ("audit vocab", "vocab was written by `clozeworks vocab`; audit judges instances."),
        ("show vocab", "vocab was written by `clozeworks vocab`; show reads documents and"),
        ("ingest nothere.xml --output d", "nothere.xml does not exist."),
        ("ingest empty --output d", "The folder empty is empty."),
        ("ingest *.foo --output d", "*.foo matches no file."),
        ("ingest other/letter.md --format text --output notes.md", "notes.md is a file, but"),
        ("ingest notes.md --format text --output other", "other already contains other files"),
        ("ingest notes.md", "Missing option '--output'. See `clozeworks ingest --help`."),
        ("ingst notes.md", "No such command 'ingst'. Did you mean 'ingest'? See `clozeworks"),
        ("vocab d --algorythm bpe", "No such option '--algorythm'. Did you mean '--algorithm'?"),
        ("pretrain vocab --output run", "vocab was written by `clozeworks vocab`, not by"),
        ("fill no/model [MASK]", f"no/model does not exist. {HUB} no/model --local-dir no/model"),
        ("evaluate empty notes.md", "empty is not a model directory: config.json is missing."),
        ("results nothere", "nothere does not exist."),
        ("run nothere.toml", "nothere.toml cannot be read: No such file or directory."),
    ],
)
def test_wrong_paths(line: str, message: str, capsys):
    found = error_of_line(capsys, line)
    assert found.startswith(f"Error: {message}") and found.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("audit i --report r.pdf", "--report writes a web page, which a browser prints as PDF:"),
        ("features c d --output x.csv", "--output writes Parquet (pyarrow, pandas, DuckDB read"),
        (
            "ingest https://example.org/a/wiki.xml.bz2 --output d",
            "https://example.org/a/wiki.xml.bz2 cannot be opened: use a local path, s3://BUCKET/… "
            "or gs://BUCKET/…; download what is on the web.",
        ),
        ("finetune reviews.csv --checkpoint c --output o", "There is no task 'reviews.csv';"),
        ("run keys.toml", "keys.toml is not valid (object contains unknown field stages)."),
        ("run options.toml", "options.toml: stage 1 (build): No such option '--dupe-factor'. See"),
        ("run corpus.toml", "corpus.toml: stage 1 (corpus): --mask-rate is 0.9: expected float <="),
    ],
)
def test_what_was_meant_is_named(line: str, message: str, capsys, folder: Path):
    (folder / "keys.toml").write_text('[[stages]]\ncommand = "build"\n')
    build = 'arguments = ["d"]\nvocab = "v"\noutput = "i"\ndupe-factor = 3\n'
    (folder / "options.toml").write_text(f'[[stage]]\ncommand = "build"\n{build}')
    corpus = 'arguments = ["d"]\noutput = "c"\nmask-rate = 0.9\n'
    (folder / "corpus.toml").write_text(f'[[stage]]\ncommand = "corpus"\n{corpus}')
    assert error_of_line(capsys, line).startswith(f"Error: {message}")


@pytest.mark.parametrize("language", ["ukrainian", "jp"])
def test_a_language_is_given_by_its_code(language: str, capsys):
    pytest.importorskip("babel", reason="it knows the names of languages")
    assert error_of_line(capsys, f"ingest notes.md --output d --language {language}") == (
        f"Error: --language is {language}, which is not the code of a language: give one such as "
        "en, uk or zh.\n"
    )


def test_a_code_of_three_letters_is_that_of_two(folder: Path):
    pytest.importorskip("babel", reason="it knows the names of languages")
    (folder / "lines.txt").write_text("\n".join(SENTENCES) + "\n")
    run("ingest lines.txt --output d --language ukr --documents line --min-characters 1")
    assert json.loads((folder / "d" / "manifest.json").read_text())["languages"] == {"uk": 120}


def test_codes_of_wikipedias_and_regions_are_languages():
    for code in ("simple", "zh-yue", "be-x-old", "uk-UA", "en_GB", "nds", "no", "sh", "azb", "und"):
        check_language(code)


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
    assert error_of_line(capsys, f"build documents --vocab {vocabulary} --output i") == (
        f"Error: {fault}: give a directory with a vocabulary, a vocab.txt or a tokenizer.json.\n"
    )


def test_a_sentence_per_line_is_read_or_the_switch_is_named(capsys, folder: Path):
    lines = folder / "lines"
    lines.mkdir()
    (lines / "corpus.txt").write_text("\n".join(SENTENCES) + "\n")
    fault = error_of_line(capsys, "ingest lines --output d --workers 1")
    assert fault == (
        f"Error: The sources hold 1 document; {NEEDED}. If each line or paragraph is a document, "
        "give --documents line or blank-line; to keep short documents, lower --min-characters.\n"
    )
    line = "ingest lines --output d --workers 1 --documents line"
    assert error_of_line(capsys, line).startswith(
        f"Error: The sources hold 0 documents; {NEEDED}, and these were left out: 120 x documents "
        "too short. If "
    )
    run(f"{line} --min-characters 1")
    assert "108 rows" in capsys.readouterr().out
    run("vocab d --output v --size 5000")
    assert "too seldom to be learned; --size 200 suits it" in capsys.readouterr().err
    for size, advice in ((5000, "--size 300 suits it"), (300, "")):  # of 256 bytes and five others
        run(f"vocab d --output b --algorithm bpe --overwrite --size {size}")
        assert advice in (error := capsys.readouterr().err) and bool(advice) == ("too " in error)
    longer = [SENTENCES[0].replace("cat", "cat and dog " * 100) for _ in range(40)]
    (folder / "long.txt").write_text("\n".join(f"{i} {line}" for i, line in enumerate(longer)))
    run("ingest long.txt --output l --documents line")
    run("vocab l --output w --size 100")
    assert "too seldom" not in capsys.readouterr().err


def test_repeated_ids_are_warned_of_by_their_shares(capsys, folder: Path):
    text = "The patient came on day {} and went home again on day {}. It was a long day. " * 3
    rows = [
        json.dumps({"patient": f"p{i // 4}", "text": text.replace("{}", f"{i}")}) for i in range(40)
    ]
    (folder / "notes.jsonl").write_text("\n".join(rows))
    run("ingest notes.jsonl --output notes --workers 1 --id-column patient --max-bad 0.9")
    warning = " ".join(capsys.readouterr().err.split())
    removed = "removed 30 repeated ids, 75.0% of the documents and 75.0% of the words; for example "
    assert removed in warning
    assert "; --documents sentence joins neighbouring rows of an id, in one split" in warning


def test_rows_without_prose_are_counted_where_there_are_too_few_documents(capsys, folder: Path):
    row = json.dumps({"url": "https://en.wikipedia.org/wiki/Ent", "text": "<p>A town.</p>"})
    (folder / "html.jsonl").write_text(f"{row}\n" * 5 + "no JSON\n")
    line = "ingest html.jsonl --output d --workers 1 --max-bad 1"
    assert error_of_line(capsys, line).startswith(
        f"Error: The sources hold 0 documents; {NEEDED}, and these were left out: 5 x rows without "
        "prose, 1 x not json. If "
    )


@pytest.mark.slow
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
    assert "v/vocab.txt is missing: recreate all of v" in error_of_line(
        capsys, "vocab d --output v --size 100"
    )


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            OSError(errno.ENAMETOOLONG, "File name too long", "a"),
            "File name too long: a. Fix this and rerun; it resumes.",
        ),
        (OSError("odd"), "odd. Fix this and rerun; it resumes."),
        (
            MemoryError(),
            "Out of memory. Rerun with fewer --workers, or in training with a smaller "
            "--micro-batch-size; a smaller model or --batch-size needs another --output.",
        ),
        (
            RuntimeError("can't start new thread"),
            "The system's limit on threads or memory has been reached (`ulimit -a`). Raise it, "
            "then rerun the same command.",
        ),
    ],
)
def test_errors_of_the_system_are_one_line_and_code_1(
    error: Exception, line: str, capsys, monkeypatch
):
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(commands.commands["results"], "callback", fail)
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as ended:
        main(["results", "."])
    assert (ended.value.code, capsys.readouterr().err) == (1, f"Error: {line}\n")


@pytest.mark.parametrize(
    "line, how",
    [
        ("vocab . --output v", "; rerun the same command to resume"),
        (
            "vocab . --output v --overwrite",
            "; rerun the same command without --overwrite to resume",
        ),
        ("show run", ""),
    ],
)
def test_an_interrupted_command_says_how_it_resumes(line: str, how: str, capsys, monkeypatch):
    def interrupt(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands.commands[line.split()[0]], "callback", interrupt)
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit, match="130"):
        main(line.split())
    assert capsys.readouterr().err.strip() == f"Error: Interrupted{how}."


def test_a_summary_warns_of_what_was_skipped(capsys, folder: Path):
    (folder / "texts").mkdir()
    for i in range(9):
        (folder / "texts" / f"{i}.txt").write_text(f"Text number {i} is quite short. " * 20)
    for name in ("none.txt", "nothing.txt"):
        (folder / "texts" / name).write_text("")
    (folder / "texts" / "a.jsonl").write_text("no JSON\n")
    (folder / "texts" / "cover.jpg").write_text("")
    run("ingest texts --output d --workers 1 --max-bad 0.5")
    assert capsys.readouterr().err.splitlines() == [
        "Warning: bad input: 2 x empty file, 1 x not json; for example empty file at "
        "texts/none.txt; d/bad lists it.",
        "Warning: skipped 1 file of unknown format, for example texts/cover.jpg; give --format to "
        "read all.",
        "Warning: the language of 9 documents is unknown: sentences are split as in English; give "
        "--language for them.",
    ]
    run("ingest texts --output named --workers 1 --max-bad 0.5 --language en")
    assert "unknown:" not in capsys.readouterr().err
    assert "empty file at texts/none.txt" in error_of_line(
        capsys, "ingest texts --output other-texts --workers 1"
    )


ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = [path for folder in ("pipeline", "model") for path in (ROOT / folder).rglob("*.py")]
COMMAND = re.compile(r"`clozeworks [^`]*`")  # a whole command to type may have flags
FLAG = re.compile(r"(?<![\w-])--[a-z{]")
OTHER_PROGRAMS = {
    "pipeline/execution/beam.py",  # passes options on to Apache Beam
    "model/checkpoint.py",  # hf download … --local-dir
    "model/finetuning/finetune.py",  # the command line in a model's card
}


def texts_of_code(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string but docstrings and help, {} for what is filled in."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    done: set[ast.AST] = set()
    for node in ast.walk(tree):  # from the outside inwards
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_option = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "option"
        if is_docstring or is_option:
            done.update(ast.walk(node))
        if node in done:
            continue
        if isinstance(node, ast.JoinedStr):
            parts = [getattr(part, "value", "") for part in node.values]
            yield node.lineno, "".join(part if isinstance(part, str) else "{}" for part in parts)
            done.update(node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def test_the_libraries_name_fields_and_no_flags():
    faults = []
    for path in sorted(LIBRARIES):
        name = path.relative_to(ROOT).as_posix()
        if name not in OTHER_PROGRAMS:
            for line, text in texts_of_code(path):
                if FLAG.search(COMMAND.sub("", text)):
                    faults.append(f"{name}:{line}")
    # Write `max_bad` instead of --max-bad; the command line spells it as a flag.
    assert faults == []


def test_copies_of_remote_files_have_the_names_that_the_user_gave():
    message = "2 rows (/var/tmp/clozeworks-a_1b/s3/bucket/dev.tsv) are cut at `max_length`."
    spelled = "2 rows (s3://bucket/dev.tsv) are cut at --max-length."
    assert with_flags(message) == spelled
    assert with_flags("/tmp/clozeworks-a1b.log") == "/tmp/clozeworks-a1b.log"


def test_the_command_line_spells_fields_as_flags(capsys):
    message = "`max_bad` is 2, but lower `near_duplicates` of `transformers` or `cased`"
    spelled = with_flags(message)
    assert spelled == "--max-bad is 2, but lower --near-duplicates of `transformers` or --cased"
    with commands.make_context("clozeworks", ["ingest", "x"]):
        warn(message)
    assert capsys.readouterr().err == f"Warning: {spelled}.\n"


def test_no_room_for_a_library_is_out_of_memory():
    error = ImportError("libtorch_cpu.so: failed to map segment from shared object")
    message = f"Out of memory: {error}. Free some, or raise `ulimit -v`."
    assert describe_failure(error) == (message, 1)
