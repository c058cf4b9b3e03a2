"""Run all benchmarks, each in its own process, on your own sources or on the quickstart's.

    python -m benchmarks [SOURCE...] [--vocab VOCABULARY] [--dump DUMP]...

SOURCE is anything that `clozeworks ingest` reads; each becomes its own directory of documents.
VOCABULARY is a ``vocab.txt`` (use the published one for comparable numbers); by default it is
learned from the first source. The wikitext cleaner needs dumps: without them it is skipped.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

QUICKSTART = Path(__file__).parents[1] / "examples" / "quickstart" / "corpus"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sources", nargs="*", default=[str(QUICKSTART)])
    parser.add_argument("--vocab")
    parser.add_argument("--dump", action="append", default=[])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        documents = [work / f"documents-{i}" for i in range(len(arguments.sources))]
        for source, output in zip(arguments.sources, documents, strict=True):
            stage("ingest", source, f"--output={output}")
        vocabulary = arguments.vocab
        if vocabulary is None:
            stage("vocab", documents[0], f"--output={work / 'vocab'}")
            vocabulary = work / "vocab" / "vocab.txt"
        shards = [str(path) for path in sorted(documents[0].glob("train-*.parquet"))]
        benchmark("tokenizing", vocabulary, *shards)
        benchmark("vocab", *shards[:2])
        benchmark("build", vocabulary, *documents)
        if arguments.dump:
            benchmark("wikitext_quality", *arguments.dump)
            benchmark("ingest", "--dump", arguments.dump[0], *arguments.sources)
        instances = work / "instances"
        options = (f"--vocab={vocabulary}", f"--output={instances}", "--duplicates=1")
        stage("build", documents[0], *options)
        benchmark("pretrain", instances)


def stage(command: str, *arguments: object) -> None:
    run("-c", "from clozeworks.cli.main import main; main()", command, *arguments)


def benchmark(name: str, *arguments: object) -> None:
    print(f"\n== {name}", flush=True)
    run("-m", f"{__package__}.{name}", *arguments)


def run(*arguments: object) -> None:
    subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=Path(__file__).parents[1], check=True
    )


if __name__ == "__main__":
    main()
