"""A small world to torture: files of every kind, made by clozeworks' own commands."""

import bz2
import gzip
import hashlib
import json
import shutil
import signal
from pathlib import Path

from .trial import kill_at, run

CORPUS = Path(__file__).parents[2] / "examples" / "quickstart" / "corpus"
SIZE = "--num-layers 1 --hidden-size 32 --num-heads 2 --batch-size 8 --dropout 0 --device cpu"
NUM_PAGES = 24

COMMANDS = {
    "ingest": "ingest sources --output OUT --shards 3 --min-characters 50 --workers 1",
    "vocab": "vocab documents --output OUT --size 400 --workers 1",
    "build": "build documents --vocab vocab --output OUT --duplicates 2 --max-length 32"
    " --workers 1",
    "pretrain": f"pretrain instances --output OUT {SIZE} --steps 12 --checkpoint-every 4"
    " --evaluate-every 4",
    "finetune": "finetune classify word-order --checkpoint run --output OUT"
    " --learning-rates 1e-3,2e-3 --epochs 2 --batch-size 8 --max-length 24"
    " --device cpu",
    "features": "features run lines.txt --output OUT --device cpu",
    "predict": "predict task lines.txt --output OUT --device cpu",
    "audit": "audit instances --report OUT",
}
"""The commands that write; OUT is what they write."""
FILES = {"features": ".parquet", "predict": ".jsonl", "audit": ".html"}
"""Commands whose OUT is a file, and its suffix."""


def output_of(stage: str) -> str:
    """Return the name of the folder or file that a command writes in a trial."""
    return "out" + FILES.get(stage, "")


def command(stage: str, output: str) -> str:
    """Return the command of a stage, with its output."""
    return COMMANDS[stage].replace("OUT", output)


def make_world(folder: Path) -> None:
    """Write all inputs below `folder`, and what each stage makes of them, whole and half."""
    folder.mkdir(parents=True)
    _write_sources(folder)
    _write_tasks(folder)
    stages = {"ingest": "documents", "vocab": "vocab", "build": "instances", "pretrain": "run"}
    stages |= {"finetune": "task", "features": "features.parquet", "predict": "predictions.jsonl"}
    for stage, output in stages.items():
        outcome = run(folder, command(stage, output).split())
        if not outcome.is_done:
            raise RuntimeError(f"{stage}: {outcome}")
    second_run = "learning-rate-0.002-batch-size-8-epochs-2-seed-0/summary.json"
    halves = {
        "ingest": ("documents-half", "/gather/", 3),
        "pretrain": ("run-half", "step-0000012", 1),
        "finetune": ("task-half", second_run, 1),
    }
    for stage, (output, path, number) in halves.items():
        outcome = run(folder, command(stage, output).split(), kill_at(("os.rename",), number, path))
        if outcome.exit_code != -signal.SIGKILL:
            raise RuntimeError(f"{stage} was not killed: {outcome}")


def _write_sources(folder: Path) -> None:
    sources = folder / "sources"
    sources.mkdir()
    dump = bz2.decompress((CORPUS / "enwiki-excerpt.xml.bz2").read_bytes()).decode()
    head, *pages = dump.split("  <page>")
    parts = [head, *(f"  <page>{page}" for page in pages[:NUM_PAGES]), "</mediawiki>\n"]
    xml = "".join(parts).encode()
    (sources / "dump.xml").write_bytes(xml)
    streams = ("".join(parts[start : start + 8]).encode() for start in range(0, len(parts), 8))
    (folder / "dump.xml.bz2").write_bytes(b"".join(map(bz2.compress, streams)))
    (folder / "dump.xml.gz").write_bytes(gzip.compress(xml, mtime=0))
    books = sorted((CORPUS / "books").iterdir())
    texts = [book.read_text()[2000:12_000] for book in books[:8]]
    for number, text in enumerate(texts):
        (sources / f"book-{number}.txt").write_text(text)
    header, footer = (
        f"*** {word} OF THE PROJECT GUTENBERG EBOOK A ***" for word in ("START", "END")
    )
    gutenberg = f"Title: A\n\n{header}\n\n{texts[0]}\n\n{footer}\n\nEnd\n"
    (folder / "gutenberg.txt").write_text(gutenberg)
    (folder / "rows.jsonl").write_text(
        "".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in enumerate(texts))
    )
    articles = (
        f'<doc id="{i}" url="u" title="T{i}">\nT{i}\n\n{text}\n</doc>\n'
        for i, text in enumerate(texts)
    )
    (folder / "wiki_00").write_text("".join(articles))
    (folder / "lines.txt").write_text(
        "".join(f"{line}\n" for line in " ".join(texts[0].split()).split(". ")[:40])
    )
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(
        pa.table({"id": list(range(len(texts))), "text": texts}), folder / "rows.parquet"
    )


def _write_tasks(folder: Path) -> None:
    labelled = folder / "word-order"
    labelled.mkdir()
    examples = CORPUS.parent / "word-order"
    for name in ("train.tsv", "dev.tsv"):
        lines = (examples / name).read_text().splitlines(keepends=True)
        (labelled / name).write_text("".join(lines[:41]))
    (folder / "squad").mkdir()
    answer = {"text": "London", "answer_start": 11}
    questions = [
        {"id": str(i), "question": f"Where is house {i}?", "answers": [answer]} for i in range(8)
    ]
    paragraphs = [{"context": "It lies in London, on the river.", "qas": questions}]
    articles = [{"title": "A", "paragraphs": paragraphs}]
    (folder / "ner").mkdir()
    words = "".join("Mr. O\nDickens B-PER\nlived O\nin O\nLondon B-LOC\n. O\n\n" for _ in range(8))
    for split in ("train", "dev"):
        (folder / "squad" / f"{split}.json").write_text(
            json.dumps({"version": "1.1", "data": articles})
        )
        (folder / "ner" / f"{split}.txt").write_text(words)
    recipe = (
        '[[stage]]\ncommand = "ingest"\narguments = ["sources"]\noutput = "{output}/documents"\n'
    )
    recipe += "shards = 2\nvalidation-share = 0.1\nmin-characters = 50\n"
    recipe += '[[stage]]\ncommand = "results"\narguments = ["task"]\n'
    (folder / "recipe.toml").write_text(recipe)


def digest(path: Path) -> str:
    """Return one digest of all files at and below `path`, without times."""
    sha = hashlib.sha256()
    for file in sorted([path] if path.is_file() else path.rglob("*")):
        of_the_machine = file.name in ("timings.json", "speed.csv") or "logs" in file.parts
        if file.is_file() and not of_the_machine:
            sha.update(f"{file.relative_to(path.parent).as_posix().partition('/')[2]}\0".encode())
            sha.update(_without_times(file))
    return sha.hexdigest()


def _without_times(file: Path) -> bytes:
    content = file.read_bytes()
    if file.name == "summary.json" and b'"seconds"' in content:
        return json.dumps(
            {key: value for key, value in json.loads(content).items() if key != "seconds"}
        ).encode()
    if file.name == "results.csv":
        return b"\n".join(line.rpartition(b",")[0] for line in content.splitlines())
    return content


def copy_world(world: Path, folder: Path) -> None:
    """Copy the world to `folder`, which is replaced."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(world, folder, ignore=_special_files)


def _special_files(folder: str, names: list[str]) -> list[str]:
    paths = {name: Path(folder, name) for name in names}
    return [name for name, path in paths.items() if not (path.is_file() or path.is_dir())]
