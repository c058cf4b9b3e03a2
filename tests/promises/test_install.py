"""``install.sh`` says and installs what was asked for."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere PyPI's PyTorch is for CPUs")
@pytest.mark.parametrize(
    ("asked", "needs_torch"),
    [
        (["."], False),
        ([".[data]"], False),
        ([".[data, search]", "transformers", "torchtext"], False),
        ([".[data,train]"], True),
        ([".[test]"], True),  # by clozeworks[…,train]
        ([".", "torch==2.12"], True),
    ],
)
def test_pytorch_comes_only_to_those_who_ask_for_it(
    asked: list[str], needs_torch: bool, tmp_path: Path
):
    if not (ROOT / "install.sh").exists():
        pytest.skip("the package is installed, without install.sh")
    for name in ("install.sh", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    # A Python without PyTorch, and a uv that only says what it is asked for.
    for path, content in (
        (".venv/bin/python", f'[ "$1" = -c ] && exit 1\nexec {sys.executable} "$@"'),
        ("bin/uv", 'echo "uv $*"'),
    ):
        program = tmp_path / path
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\n{content}\n")
        program.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "TORCH_INDEX": f"file://{tmp_path}",  # which is out of reach
    }
    command = [str(tmp_path / "install.sh"), *asked]
    said = subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE, check=True)
    assert ("CUDA" in said.stdout) == ("3.0 GB" in said.stdout) == needs_torch
    [installed] = [line for line in said.stdout.splitlines() if line.startswith("uv ")]
    assert installed.endswith(f"--editable {' '.join(asked)}")
