"""Measure every stage beside its newest peers, and print the table of a page of results.

    python -m benchmarks [ROW...] [--text PARQUET] [--dump DUMP]

PARQUET has columns ``id`` and ``text`` (for instance of `wikimedia/wikipedia`), DUMP is a Wikipedia
dump in .xml.bz2; by default the quickstart's text and no dump. Each row is a process of its own,
which can be run alone: the command is printed before its lines. The machine must be idle; peers are
installed when they are first needed (see `benchmarks.peers`).
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

QUICKSTART = Path(__file__).parents[1] / "examples" / "quickstart" / "corpus"
ROWS = {
    "tokenise": (
        "-m benchmarks.tokenizing wordpiece {shard}",
        "-m benchmarks.tokenizing bpe {shard}",
    ),
    "vocab": ("-m benchmarks.vocab {shard}",),
    "ingest": ("-m benchmarks.ingest --dump {dump} --megabytes 140",),
    "near_duplicates": ("-m benchmarks.near_duplicates {text}",),
    "build": ("-m benchmarks.build wordpiece documents",),
    "load": ("-m benchmarks.loading instances",),
    "pretrain": (
        "-m benchmarks.pretrain instances",
        "-m benchmarks.pretrain instances --precision bf16",
    ),
    "finetuning": ("-m benchmarks.finetuning",),
}
STAGES = (
    "ingest {text} --output documents --language en",
    "vocab documents --output wordpiece",
    "vocab documents --output bpe --algorithm bpe --cased",
    "build documents --vocab wordpiece --output instances --duplicates 1",
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="*", default=list(ROWS), metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--text", type=Path)
    parser.add_argument("--dump", type=Path)
    given = parser.parse_args()
    if unknown := set(given.rows) - set(ROWS):
        parser.error(f"no such row: {', '.join(unknown)}; there are {', '.join(ROWS)}")
    with tempfile.TemporaryDirectory() as folder:
        text = given.text.resolve() if given.text else quickstart_text(Path(folder))
        names = {"text": text, "dump": given.dump and given.dump.resolve()}
        for stage in STAGES:
            call = "from clozeworks.cli.main import main; main()"
            arguments = shlex.split(stage.format(**names))
            run(folder, ["-c", call, *arguments], stdout=subprocess.DEVNULL)
        names["shard"] = next(Path(folder, "documents").glob("train-*.parquet"))
        print("| what | clozeworks | peer, version, setting | ratio |\n|---|---|---|---|")
        for command in (command for row in given.rows for command in ROWS[row]):
            if "{dump}" in command and not given.dump:
                continue
            print(f"| `python {command.format(shard='SHARD', text='TEXT', dump='DUMP')}` | | | |")
            sys.stdout.flush()
            run(folder, shlex.split(command.format(**names)))


def quickstart_text(folder: Path) -> Path:
    paths = sorted(QUICKSTART.rglob("*.txt"))
    texts = [path.read_text(encoding="utf-8") for path in paths]
    pq.write_table(
        pa.table({"id": [path.stem for path in paths], "text": texts}), folder / "text.parquet"
    )
    return folder / "text.parquet"


def run(folder: str, arguments: list[str], stdout: int | None = None) -> None:
    """Run Python in `folder`, with the checkout's packages."""
    paths = {"PYTHONPATH": str(Path(__file__).parents[1])}
    subprocess.run(
        [sys.executable, *arguments], cwd=folder, env={**os.environ, **paths}, stdout=stdout
    ).check_returncode()


if __name__ == "__main__":
    main()
