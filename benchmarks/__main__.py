"""Measure every stage beside its peers and print the table of a results page.

    python -m benchmarks [GROUP...] [--text PARQUET] [--dump DUMP] [--megabytes 50]
        [--peers FOLDER] [--install]

GROUP is one or more of ingest, tokenizing, vocab, instances, near_duplicates, loader and training;
by default all. PARQUET has the columns of `wikimedia/wikipedia`, DUMP is a Wikipedia dump in
.xml.bz2; by default both are the quickstart's, which is enough to try it, but too little text for
figures that mean something. `--install` makes what is missing of the peers' environments in FOLDER
(3 GB, from PyPI); a peer that is absent has a row that says so. Nothing else should run meanwhile.
"""

import argparse
import datetime
import multiprocessing
import os
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .environments import install
from .inputs import QUICKSTART, Inputs
from .table import HEADER, print_rows

GROUPS = ("ingest", "tokenizing", "vocab", "instances", "near_duplicates", "loader", "training")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("groups", nargs="*", metavar="GROUP", choices=[[], *GROUPS])
    parser.add_argument("--text", type=Path)
    parser.add_argument("--dump", type=Path, default=QUICKSTART / "enwiki-excerpt.xml.bz2")
    parser.add_argument("--megabytes", type=float, default=50)
    peers = Path.home() / ".cache" / "clozeworks" / "peers"
    parser.add_argument("--peers", type=Path, default=peers)
    parser.add_argument("--install", action="store_true")
    arguments = parser.parse_args()
    if arguments.install:
        install(arguments.peers)
    with tempfile.TemporaryDirectory() as folder:
        inputs = Inputs(
            Path(folder), arguments.peers, arguments.text, arguments.dump, arguments.megabytes
        )
        print_page(arguments.groups or GROUPS, inputs)


def print_page(groups: Sequence[str], inputs: Inputs) -> None:
    print(f"# {datetime.date.today():%-d %B %Y}: every stage beside its peers, in one run\n")
    print(
        f"{os.cpu_count()} cores of {processor()}, Python {platform.python_version()}; the text is "
        f"{inputs.text_mb:.1f} MB in {len(inputs.texts()):,} documents.\n"
    )
    print(HEADER, flush=True)
    spawn = multiprocessing.get_context("spawn")
    for group in groups:
        # A process each: what one has loaded or cached is no other's, and one may fail.
        process = spawn.Process(target=print_rows, args=(group, inputs))
        process.start()
        process.join()
        if process.exitcode:
            print(f"| {group} | failed | | | `python -m benchmarks {group}` |", flush=True)


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(": ")[2]
    return platform.processor()


if __name__ == "__main__":
    main()
