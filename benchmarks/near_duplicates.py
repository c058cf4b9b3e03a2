"""Near-duplicates by MinHash: all of `ingest`, beside datatrove's and text-dedup's own programs.

Whole processes with one worker each, start-up included; all read the same Parquet file.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

from .environments import python_of, version_of
from .inputs import Inputs
from .process import run_command, run_measured
from .table import Row

UNIT = "MB/s"


def rows(inputs: Inputs) -> Iterator[Row]:
    output = f"--output={inputs.work / 'without-near-duplicates'}"
    usage = run_command("ingest", inputs.text, output, "--near-duplicates=0.8", "--overwrite")
    ours = inputs.text_mb / usage.cpu_s
    work = inputs.work / "peer-duplicates"
    script = Path(__file__).parent / "peers" / "minhash.py"
    commands = {
        "datatrove": [str(script), str(inputs.text), str(work / "datatrove")],
        "text-dedup": [
            *("-m", "text_dedup.minhash", "--path=parquet", f"--data_files={inputs.text}"),
            *("--split=train", "--column=text", "--num_proc=1", "--threshold=0.8"),
            *("--hash_func=xxh3", "--hash_bits=32", "--no-local"),
            *(f"--cache_dir={work / 'cache'}", f"--output={work / 'text-dedup'}"),
        ],
    }
    settings = {
        "datatrove": "14 buckets of 8 hashes, 5-grams",
        "text-dedup": "xxh3, 32 bits, 5-grams",
    }
    for name, arguments in commands.items():
        theirs = None
        peer = name
        if python := python_of(inputs.peers, name):
            theirs = inputs.text_mb / run_measured([python, *arguments]).cpu_s
            peer = f"{name} {version_of(python, name)}"
        what = f"`ingest --near-duplicates 0.8` beside {name}, per core"
        yield Row(what, ours, f"{peer}, {settings[name]}", theirs, UNIT)
    shutil.rmtree(work, ignore_errors=True)
