"""README's commands run as written, on the quickstart's corpus; only sizes are made small."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from clozeworks.cli.main import main

from tests.fixtures.degenerate import may_be_degenerate

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
QUICKSTART = ROOT / "examples" / "quickstart"
README = (ROOT / "README.md").read_text(encoding="utf-8")
# Appended to a command: the last of two equal options counts.
SMALLER = {
    "corpus": ["--validation-share", "0.1", "--duplicates", "1"],
    "build": ["--duplicates", "1"],
    "pretrain": ["--steps", "3", "--batch-size", "4"],
    "finetune": ["--epochs", "1", "--max-length", "32"],
}


def readme_commands() -> list[list[str]]:
    """Return the arguments of each `clozeworks` command in README, but for other machines'."""
    text = README.replace("\\\n", " ")
    lines = re.findall(r"^\$ clozeworks (.+)$", text, re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines if "://" not in line]


@pytest.fixture
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lay out the files that README's commands name."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(QUICKSTART, "examples/quickstart")
    return tmp_path


def test_readmes_commands_run(user_folder: Path, capsys: pytest.CaptureFixture[str]):
    commands = readme_commands()
    names = [arguments[0] for arguments in commands]
    assert names[:3] == ["corpus", "pretrain", "fill"]
    printed: dict[str, str] = {}
    for arguments in commands:
        if arguments[0] == "build":
            assert_a_killed_build_resumes_to_the_same_bytes()
        with may_be_degenerate() if arguments[0] == "finetune" else nullcontext():
            main([*arguments, *SMALLER.get(arguments[0], [])])
        printed[arguments[0]] = capsys.readouterr().out
    assert "tokens per word" in printed["corpus"]
    assert "already finished" in printed["build"]
    assert (user_folder / "report.html").exists()
    assert len((user_folder / "predictions.tsv").read_text().splitlines()) == 401


def assert_a_killed_build_resumes_to_the_same_bytes():
    """Run the block that kills `build`, in a shell, and compare what it prints."""
    block = re.search(r"\$ timeout .*?```", README.replace("\\\n", " "), re.DOTALL)
    assert block is not None
    commands = re.findall(r"^\$ (.+)$", block[0], re.MULTILINE)
    assert len(commands) == 3
    smaller = " ".join(SMALLER["build"])
    script = [f"{line} {smaller}" if "clozeworks" in line else line for line in commands]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = ["bash", "-c", "\n".join(script)]
    shown = subprocess.check_output(command, env={**os.environ, "PATH": path}, text=True)
    digests = [line.split()[0] for line in shown.splitlines() if "parquet" in line]
    assert len(digests) == 2 and len(set(digests)) == 1
