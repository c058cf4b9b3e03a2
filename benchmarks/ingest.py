"""Ingest end to end: speed by source, beside WikiExtractor for dumps; two workers; memory and time
at 10x.

    python -m benchmarks.ingest --dump DUMP --table PARQUET [SOURCE...] [--megabytes 300]

DUMP is a Wikipedia dump in .xml.bz2, PARQUET a file with the columns of `wikimedia/wikipedia`. Each
is repeated, every copy with its own ids and a sentence of its own, up to a tenth of `--megabytes`
(of XML or text) and up to all of it. A SOURCE is anything else that ingest reads, such as a folder
of books or a .txt; it is measured as it is. Each run is a process of its own, measured end to end
with its child processes: start-up, reading and writing included. Rates per core use CPU time; the
slope from the small run to the large one is the rate without start-up costs. WikiExtractor is
measured without its templates, which take it many times as long.
"""

import argparse
import bz2
import os
import re
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from .build import read_sentences, text_bytes
from .peers import environment, print_figure, title
from .process import Usage, run_command, run_measured

PAGES_A_STREAM = 100  # as Wikimedia packs them
COPY = "This is copy {} of it, made for a measurement."


class Run(NamedTuple):
    """One run of ingest."""

    source: str
    # Of XML or text, uncompressed; where the source is taken as it is, of the documents' text.
    mb_in: float
    usage: Usage
    mb_out: float  # of text in the documents

    @property
    def rate(self) -> float:
        """MB of input per second of CPU time."""
        return self.mb_in / self.usage.cpu_s


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sources", nargs="*", type=Path)
    parser.add_argument("--dump", type=Path)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--megabytes", type=float, default=300)
    arguments = parser.parse_args()
    runs: list[Run] = []
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        sizes = (arguments.megabytes / 10, arguments.megabytes)
        if arguments.dump:
            path = work / "dump.xml.bz2"
            pair: list[Run] = []
            for size in sizes:
                mb_in = repeat_dump(arguments.dump, path, size)
                pair.append(ingest(path, mb_in, work))
                runs.append(pair[-1])
                runs.append(extract(path, mb_in, work))
                print_compared(*runs[-2:])
            runs.append(ingest(path, pair[1].mb_in, work, workers=2))
            speed_up = pair[1].usage.wall_s / runs[-1].usage.wall_s
            lines.append(compare_sizes(*pair))
            lines.append(f"two workers are {speed_up:.2f} times as fast as one")
        if arguments.table:
            path = work / "table.parquet"
            pair = [ingest(path, repeat_table(arguments.table, path, size), work) for size in sizes]
            lines.append(compare_sizes(*pair))
            runs += pair
        runs += [ingest(source, None, work) for source in arguments.sources]
    print_runs(runs)
    print("\n".join(lines))


def ingest(source: Path, mb_in: float | None, work: Path, *, workers: int = 1) -> Run:
    """Run `clozeworks ingest` on one source."""
    output = work / "documents"
    usage = run_command(
        "ingest", source, f"--output={output}", f"--workers={workers}", "--overwrite"
    )
    mb_out = text_bytes(read_sentences(str(output))) / 1e6
    name = source.name if workers == 1 else f"{source.name}, {workers} workers"
    return Run(name, mb_out if mb_in is None else mb_in, usage, mb_out)


def extract(dump: Path, mb_in: float, work: Path) -> Run:
    """Run WikiExtractor on a dump, with a process to clean articles and one to write them."""
    output = work / "extracted"
    command = [environment("wikiextractor"), "-m", "wikiextractor.WikiExtractor", "--no-templates"]
    usage = run_measured([*command, "--processes", "1", "--quiet", "-o", str(output), str(dump)])
    mb_out = sum(path.stat().st_size for path in output.rglob("wiki_*")) / 1e6
    return Run("WikiExtractor", mb_in, usage, mb_out)


def print_compared(run: Run, peer: Run) -> None:
    ours, theirs = run.usage, peer.usage
    print_figure(
        f"a bz2 dump of {run.mb_in:.0f} MB of XML to documents",
        f"{ours.cpu_s:.1f} s of CPU, {ours.peak_mb:.0f} MB",
        f"{title('wikiextractor')} without templates, one process",
        f"{theirs.cpu_s:.1f} s, {theirs.peak_mb:.0f} MB",
        theirs.cpu_s / ours.cpu_s,
    )


def repeat_dump(dump: Path, path: Path, megabytes: float) -> float:
    """Write a multistream dump of about `megabytes` of XML and return its actual size."""
    head, pages = read_pages(dump)
    xml = 0.0
    with path.open("wb") as file, ThreadPoolExecutor(os.cpu_count()) as pool:
        file.write(bz2.compress(head))
        streams = copies_of_pages(pages, megabytes)
        # A few at a time, so that the copies are never all in memory.
        while batch := list(islice(streams, 8)):
            xml += sum(map(len, batch)) / 1e6
            file.writelines(pool.map(bz2.compress, batch))
        file.write(bz2.compress(b"</mediawiki>\n"))
    return xml


def read_pages(dump: Path) -> tuple[bytes, list[bytes]]:
    head, *pages = bz2.decompress(dump.read_bytes()).split(b"<page>")
    return head, [b"<page>" + page.partition(b"</page>")[0] + b"</page>\n" for page in pages]


def copies_of_pages(pages: list[bytes], megabytes: float) -> Iterator[bytes]:
    """Yield the text of streams: the pages again and again, ids and last sentences changed in each
    copy.
    """
    num_copies = max(1, round(megabytes * 1e6 / sum(map(len, pages))))
    for copy in range(num_copies):
        sentence = COPY.format(copy).encode()
        for start in range(0, len(pages), PAGES_A_STREAM):
            yield b"".join(
                copy_page(page, copy, sentence) for page in pages[start : start + PAGES_A_STREAM]
            )


def copy_page(page: bytes, copy: int, sentence: bytes) -> bytes:
    page = re.sub(
        rb"<id>(\d+)</id>", lambda match: b"<id>%d%06d</id>" % (int(match[1]), copy), page, count=1
    )
    return page.replace(b"</text>", b"\n\n" + sentence + b"</text>")


def repeat_table(table: Path, path: Path, megabytes: float) -> float:
    """Write a Parquet file of about `megabytes` of text and return its actual size."""
    whole = pq.read_table(table, columns=["id", "url", "title", "text"])
    sizes = pc.call_function("binary_length", [whole["text"]]).to_pylist()
    written = copy = 0
    with pq.ParquetWriter(path, whole.schema) as writer:
        while written < megabytes * 1e6:
            rows = 0
            while rows < len(sizes) and written < megabytes * 1e6:
                written += sizes[rows]
                rows += 1
            writer.write_table(copy_rows(whole.slice(0, rows), copy), row_group_size=1000)
            copy += 1
    return written / 1e6


def copy_rows(table: pa.Table, copy: int) -> pa.Table:
    added = {"id": f"-{copy}", "text": "\n" + COPY.format(copy)}
    for name, text in added.items():
        index = table.schema.get_field_index(name)
        column = pc.call_function("cast", [table[name]], pc.CastOptions(pa.string()))
        changed = pc.call_function(
            "binary_join_element_wise", [column, pa.scalar(text), pa.scalar("")]
        )
        table = table.set_column(index, name, changed)
    return table


def compare_sizes(small: Run, large: Run) -> str:
    times = large.mb_in / small.mb_in
    slope = (large.mb_in - small.mb_in) / (large.usage.cpu_s - small.usage.cpu_s)
    return (
        f"{large.source}: {times:.1f} times the input takes "
        f"{large.usage.cpu_s / small.usage.cpu_s:.1f} times the CPU time and "
        f"{large.usage.peak_mb / small.usage.peak_mb:.2f} times the memory; slope {slope:.1f} MB/s"
    )


def print_runs(runs: list[Run]) -> None:
    table = Table(
        "source",
        "MB in",
        "MB of text out",
        "s",
        "CPU s",
        "MB/s",
        "peak MB",
        title="rates by CPU time",
    )
    for run in runs:
        usage = run.usage
        figures = (run.mb_in, run.mb_out, usage.wall_s, usage.cpu_s, run.rate)
        table.add_row(run.source, *(f"{figure:.1f}" for figure in figures), f"{usage.peak_mb:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
