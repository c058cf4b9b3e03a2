"""A dump to documents, beside WikiExtractor; whole processes, start-up included.

The dump is repeated, every copy with its own ids and a sentence of its own.
"""

import bz2
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

from .environments import python_of, version_of
from .inputs import Inputs
from .process import run_command, run_measured
from .table import Row

PAGES_A_STREAM = 100  # as Wikimedia packs them


def rows(inputs: Inputs) -> Iterator[Row]:
    path = inputs.work / "dump.xml.bz2"
    for megabytes in (inputs.megabytes / 5, 2 * inputs.megabytes):
        num_mb = repeat_dump(inputs.dump, path, megabytes)
        for workers in (1, 2):
            output = f"--output={inputs.work / 'of-dump'}"
            ours = run_command("ingest", path, output, f"--workers={workers}", "--overwrite")
            theirs = None
            peer = "WikiExtractor"
            if python := python_of(inputs.peers, "venv"):
                # One process cleans articles, another writes them. With templates it takes many
                # times as long.
                command = [python, "-m", "wikiextractor.WikiExtractor", "--no-templates", "--quiet"]
                command += ["--processes", str(workers), "-o", str(inputs.work / "extracted")]
                theirs = run_measured([*command, str(path)])
                peer = f"WikiExtractor {version_of(python, 'wikiextractor')}"
            what = f"a dump in bz2, {num_mb:.0f} MB of XML, to documents"
            if workers == 1:
                figures = (ours.cpu_s, theirs and theirs.cpu_s)
                unit = "s of CPU"
            else:
                what += ", two workers"
                figures = (ours.wall_s, theirs and theirs.wall_s)
                unit = "s by the clock"
            peer += ", without templates"
            yield Row(what, figures[0], peer, figures[1], unit, f"{ours.peak_mb:.0f} MB")


def repeat_dump(dump: Path, path: Path, megabytes: float) -> float:
    """Write a multistream dump of about `megabytes` of XML and return its actual size."""
    head, *pages = bz2.decompress(dump.read_bytes()).split(b"<page>")
    pages = [b"<page>" + page.partition(b"</page>")[0] + b"</page>\n" for page in pages]
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


def copies_of_pages(pages: list[bytes], megabytes: float) -> Iterator[bytes]:
    """Yield the text of streams: the pages again and again, ids and last sentences changed in each
    copy.
    """
    num_copies = max(1, round(megabytes * 1e6 / sum(map(len, pages))))
    for copy in range(num_copies):
        sentence = f"This is copy {copy} of it, made for a measurement.".encode()
        for start in range(0, len(pages), PAGES_A_STREAM):
            yield b"".join(
                copy_page(page, copy, sentence) for page in pages[start : start + PAGES_A_STREAM]
            )


def copy_page(page: bytes, copy: int, sentence: bytes) -> bytes:
    page = re.sub(
        rb"<id>(\d+)</id>", lambda match: b"<id>%d%06d</id>" % (int(match[1]), copy), page, count=1
    )
    return page.replace(b"</text>", b"\n\n" + sentence + b"</text>")
