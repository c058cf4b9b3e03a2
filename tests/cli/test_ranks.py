"""Mistakes under torchrun: reported once if all processes make them, else by the one that does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

RAISE = """
import os, sys
from clozeworks.cli import main
main.RANKS_WAIT_S = 2.0
from clozeworks.pipeline.errors import UserError
messages = {messages!r}
def fail(args, **options):
    if message := messages.get(os.environ["RANK"]):
        raise UserError(message)
main.commands.main = fail
main.main([])
"""


def errors_of(messages: dict[str, str], folder: Path) -> list[str]:
    """Run two processes; those in `messages` fail with a message. Return the lines of errors."""
    (folder / "script.py").write_text(RAISE.format(messages=messages))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    ended = subprocess.run(
        [*command, folder / "script.py"], capture_output=True, text=True, env=os.environ
    )
    assert ended.returncode == 1  # torchrun's own, where a process failed
    assert "exitcode  : 2 " in ended.stderr
    return sorted(line for line in ended.stderr.splitlines() if line.startswith("Error: "))


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ({"0": "no such file", "1": "no such file"}, ["Error: no such file"]),
        ({"1": "only here"}, ["Error: only here"]),
    ],
)
def test_a_mistake_is_reported_once(messages: dict[str, str], expected: list[str], tmp_path: Path):
    assert errors_of(messages, tmp_path) == expected
