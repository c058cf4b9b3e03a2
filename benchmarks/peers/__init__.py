"""Peers, each in an environment of its own with its newest version, as their requirements exclude
each other, and the lines of a page of results that stand beside them.

The scripts in this folder run there: they import nothing of Clozeworks. An environment is made when
it is first asked for, in the folder that ``CLOZEWORKS_PEERS`` names, by default in
``~/.cache/clozeworks-peers``; together they take 5 GB.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

REQUIREMENTS = {
    "tokenizers": (
        "tokenizers==0.23.3",
        "gigatoken==0.10.0",
        "kitoken==0.11.1",
        "flash-tokenizer==1.2.0",
        "tiktoken==0.14.0",
        "pyarrow==26.0.1",
    ),
    "datasets": ("datasets==5.2.0", "transformers==5.23.0", "torch==2.13.0", "accelerate==1.15.0"),
    "streaming": ("mosaicml-streaming==0.13.0", "torch==2.13.0"),
    "datatrove": ("datatrove[io,processing]==0.10.1", "spacy==3.8.18"),
    "text-dedup": ("text-dedup==0.4.0",),
    "wikiextractor": ("wikiextractor==3.1.0",),
}
# PyTorch's index has builds without CUDA; a mirror of PyPI serves one of the two.
PIP = (
    "-m",
    "pip",
    "install",
    "--quiet",
    "--extra-index-url",
    "https://download.pytorch.org/whl/cpu",
)


def title(name: str) -> str:
    """Return the first package of an environment with its version."""
    return re.sub(r"(\[.*\])?==", " ", REQUIREMENTS[name][0])


def environment(name: str) -> str:
    """Return the Python of a peer's environment; the first time it is made."""
    default = Path.home() / ".cache" / "clozeworks-peers"
    folder = Path(os.environ.get("CLOZEWORKS_PEERS", default)) / name
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if not ready.exists():
        print(f"installing {' '.join(REQUIREMENTS[name])}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, *PIP, *REQUIREMENTS[name]], check=True)
        ready.touch()
    return str(python)


def run_peer(name: str, script: str, *arguments: object) -> Any:
    """Return the JSON that a script of this folder prints last, run by a peer's Python."""
    path = Path(__file__).with_name(f"{script}.py")
    command = [environment(name), str(path), *map(str, arguments)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(ended.stdout.splitlines()[-1])


def print_figure(what: str, ours: str, peer: str, theirs: str, ratio: float) -> None:
    """Print a line of the results' table; `peer` is its name, version and setting."""
    print(f"| {what} | {ours} | {peer}: {theirs} | {ratio:.2g} |", flush=True)
