"""Environments of the peers, each apart from ours: their dependencies contradict each other.

`transformers` and `datasets` are peers as well; they come with ``.[test]``, at the versions of
constraints.txt.
"""

import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

PINS = {
    "venv": [
        "flash-tokenizer==1.2.0",
        "gigatoken==0.10.0",
        "kitoken==0.11.1",
        "tiktoken==0.14.0",
        "tokenizers==0.23.3",
        "wikiextractor==3.1.0",
    ],
    "streaming": ["mosaicml-streaming==0.13.0"],
    "datatrove": ["datatrove[io,processing]==0.10.1"],
    "text-dedup": ["text-dedup==0.4.0"],
}


def install(folder: Path) -> None:
    """Make the environments that are not in `folder` yet."""
    for name, packages in PINS.items():
        if python_of(folder, name):
            continue
        venv.create(folder / name, with_pip=True)
        pip = [str(folder / name / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, *packages], check=True, stdout=sys.stderr)
        (folder / name / "ready").touch()


def python_of(folder: Path, name: str) -> str | None:
    """Return the interpreter of an environment, None if it is absent or half made."""
    if not (folder / name / "ready").exists():
        return None
    return str(folder / name / "bin" / "python")


def version_of(python: str, package: str) -> str:
    program = f"import importlib.metadata as m; print(m.version({package!r}))"
    found = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def run_script(folder: Path, name: str, script: str, *arguments: object) -> dict[str, Any] | None:
    """Run a script of `benchmarks/peers` and return what it found; None if its environment is
    absent or it fails.
    """
    python = python_of(folder, name)
    if python is None:
        return None
    path = Path(__file__).parent / "peers" / f"{script}.py"
    command = [python, str(path), *map(str, arguments)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if ended.returncode:
        print(f"{script}.py of {name} failed", file=sys.stderr)
        return None
    return json.loads(ended.stdout.splitlines()[-1])
