"""Build instances end to end, beside google-research's algorithm and `datasets.map`.

Measured are speed, size, memory, what a second worker brings, and what ten times the text takes.

    python -m benchmarks.build VOCABULARY DOCUMENTS...

VOCABULARY is a directory or a ``vocab.txt``, DOCUMENTS are directories from `clozeworks ingest`.
Each build is its own process, measured end to end: start-up, reading and writing included. Rates
per core use CPU time; wall-clock time is shown beside it. The peer gets a sample of the documents,
because its time is linear.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from clozeworks.pipeline.manifests import DocumentsManifest
from clozeworks.pipeline.storage.state import read_manifest
from clozeworks.pipeline.vocabulary.files import read_vocabulary
from rich.console import Console
from rich.table import Table

from .google_research import create_instances, make_tokenizer
from .peers import environment, print_figure, title
from .process import run_command, run_measured

MAX_LENGTH = 128
SAMPLE_BYTES = 1 << 20  # of text for the peer
SMALL_BYTES = 20 << 20  # of text in each of the shards that are built alone, and ten together


class Build(NamedTuple):
    """What a build cost and produced."""

    wall_s: float
    cpu_s: float
    peak_mb: float  # of the largest process
    num_tokens: int
    num_bytes: int


def main(vocabulary: str, *documents: str) -> None:
    table = Table(
        *("documents", "duplicates", "M tokens", "s", "CPU s", "M tokens/s", "peer", "ratio"),
        *("MB/s of text", "bytes/token", "peak MB"),
        title=f"one worker, length {MAX_LENGTH}; rates by CPU time",
    )
    with tempfile.TemporaryDirectory() as work:
        for path in documents:
            for duplicates in (5, 1):
                built = build(path, vocabulary, Path(work, "out"), duplicates=duplicates)
                peer = peer_rate(path, vocabulary, duplicates)
                add_row(table, path, duplicates, built, peer)
                rate = built.num_tokens / built.cpu_s
                print_figure(
                    f"documents to instances, {duplicates} passes",
                    f"{rate / 1e6:.1f} M tokens/s of CPU",
                    "google-research/bert's script, ported without TensorFlow",
                    f"{peer / 1e6:.2f}",
                    rate / peer,
                )
        compare_with_map(documents[0], vocabulary, Path(work))
        Console().print(table)
        print_scaling(documents[0], vocabulary, Path(work))


def build(
    documents: str | Path,
    vocabulary: str,
    output: Path,
    *,
    duplicates: int = 5,
    workers: int = 1,
    pairing: str = "balanced",
) -> Build:
    """Run `clozeworks build` as a process and measure it."""
    options = [
        f"--duplicates={duplicates}",
        f"--max-length={MAX_LENGTH}",
        f"--workers={workers}",
        f"--pairing={pairing}",
        "--overwrite",
    ]
    usage = run_command("build", documents, f"--vocab={vocabulary}", f"--output={output}", *options)
    shards = sorted(output.glob("*.parquet"))
    return Build(
        *usage,
        num_tokens=sum(count_tokens(shard) for shard in shards),
        num_bytes=sum(shard.stat().st_size for shard in shards),
    )


def count_tokens(shard: Path) -> int:
    metadata = pq.ParquetFile(shard).metadata
    # The first column is `input_ids`: its values are the tokens.
    columns = [metadata.row_group(i).column(0) for i in range(metadata.num_row_groups)]
    return sum(column.num_values for column in columns)


def add_row(table: Table, path: str, duplicates: int, built: Build, peer: float) -> None:
    rate = built.num_tokens / built.cpu_s
    text_mb = text_bytes(read_sentences(path)) / 1e6
    table.add_row(
        Path(path).name,
        str(duplicates),
        f"{built.num_tokens / 1e6:.1f}",
        f"{built.wall_s:.1f}",
        f"{built.cpu_s:.1f}",
        f"{rate / 1e6:.2f}",
        f"{peer / 1e6:.2f}",
        f"{rate / peer:.0f}",
        f"{text_mb / built.cpu_s:.1f}",
        f"{built.num_bytes / built.num_tokens:.3f}",
        f"{built.peak_mb:.0f}",
    )


def read_sentences(documents: str) -> pa.ChunkedArray:
    """Return the sentences of all documents, list<string> [num_documents]."""
    shards = [shard.name for shard in read_manifest(documents, DocumentsManifest).shards]
    tables = [pq.read_table(Path(documents, name), columns=["sentences"]) for name in shards]
    return pa.concat_tables(tables)["sentences"]


def text_bytes(sentences: pa.ChunkedArray) -> int:
    flat = pc.call_function("list_flatten", [sentences])
    lengths = pc.call_function("binary_length", [flat])
    return pc.call_function("sum", [lengths]).as_py()


def peer_rate(documents: str, vocabulary_path: str, duplicates: int) -> float:
    """Return the tokens per second that google-research's algorithm makes."""
    vocabulary = read_vocabulary(vocabulary_path)
    tokenize = make_tokenizer(vocabulary.tokens, vocabulary.normalization.lowercase)
    texts: list[list[str]] = []
    num_bytes = 0
    for sentences in read_sentences(documents):
        texts.append(sentences.as_py())
        num_bytes += sum(map(len, texts[-1]))
        # Its random next sentences need a second document.
        if num_bytes > SAMPLE_BYTES and len(texts) > 1:
            break
    begin = time.process_time()
    tokenized = []
    for text in texts:
        sentences_of_tokens = [tokens for tokens in map(tokenize, text) if tokens]
        if sentences_of_tokens:
            tokenized.append(sentences_of_tokens)
    instances = create_instances(tokenized, vocabulary.tokens, MAX_LENGTH, duplicates)
    num_tokens = sum(len(tokens) for tokens, *_ in instances)
    return num_tokens / (time.process_time() - begin)


def compare_with_map(documents: str, vocabulary: str, work: Path) -> None:
    """Build masked rows without pairs, beside `datasets.map` on the same text."""
    texts = pc.call_function("binary_join", [read_sentences(documents).combine_chunks(), "\n"])
    path = work / "texts.parquet"
    pq.write_table(pa.table({"text": texts}), path)
    built = build(documents, vocabulary, work / "out", duplicates=1, pairing="none")
    script = Path(__file__).parent / "peers" / "group_texts.py"
    usage = run_measured([environment("datasets"), str(script), str(path), vocabulary, str(work)])
    lengths = pc.call_function("binary_length", [texts])
    megabytes = pc.call_function("sum", [lengths]).as_py() / 1e6
    print_figure(
        f"documents of {megabytes:.0f} MB to rows without pairs, one process",
        f"{built.cpu_s:.1f} s of CPU, {built.peak_mb:.0f} MB",
        f"{title('datasets')}, `map` with a fast tokenizer and `group_texts`, not masked",
        f"{usage.cpu_s:.1f} s, {usage.peak_mb:.0f} MB",
        usage.cpu_s / built.cpu_s,
    )


def print_scaling(documents: str, vocabulary: str, work: Path) -> None:
    """Build one shard of `SMALL_BYTES`, then ten, these with one worker and with two."""
    one = reshard(documents, work / "1", 1)
    ten = reshard(documents, work / "10", 10)
    runs = {
        "one shard, one worker": build(one, vocabulary, work / "out"),
        "ten shards, one worker": build(ten, vocabulary, work / "out"),
        "ten shards, two workers": build(ten, vocabulary, work / "out", workers=2),
    }
    table = Table(
        "text",
        "s",
        "CPU s",
        "peak MB of a process",
        title=f"shards of {SMALL_BYTES >> 20} MB of text",
    )
    for name, built in runs.items():
        table.add_row(name, f"{built.wall_s:.1f}", f"{built.cpu_s:.1f}", f"{built.peak_mb:.0f}")
    Console().print(table)
    small, large, two = runs.values()
    print(f"ten times the text takes {large.cpu_s / small.cpu_s:.1f} times the CPU time")
    print(f"two workers are {large.wall_s / two.wall_s:.2f} times as fast as one")


def reshard(documents: str, folder: Path, num_shards: int) -> Path:
    """Rewrite the documents as `num_shards` shards of `SMALL_BYTES` of text.

    Documents are repeated if there are too few.
    """
    folder.mkdir()
    tables = [pq.read_table(path) for path in sorted(Path(documents).glob("*.parquet"))]
    table = pa.concat_tables(tables)
    group = {"source": "mixed", "language": "und", "characters": SMALL_BYTES}
    share = SMALL_BYTES / text_bytes(table["sentences"])
    rows = max(2, min(len(table), int(len(table) * share)))
    manifest = json.loads(Path(documents, "manifest.json").read_text())
    manifest["shards"] = []
    for index in range(num_shards):
        name = f"train-{index:05d}-of-{num_shards:05d}.parquet"
        numbers = range(index * rows, (index + 1) * rows)
        rows_of_shard = pa.array([number % len(table) for number in numbers])
        shard_table = table.take(rows_of_shard)
        pq.write_table(shard_table, folder / name, compression="zstd", row_group_size=1000)
        size = (folder / name).stat().st_size
        shard = {"name": name, "split": "train", "rows": rows, "bytes": size, "sha256": name}
        manifest["shards"].append({**shard, "counts": {}, "groups": [{**group, "documents": rows}]})
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


if __name__ == "__main__":
    main(*sys.argv[1:])
