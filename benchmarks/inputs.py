"""What the rows are measured on: a text, and what our stages make of it, each when it is needed."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from .process import run_command

ROOT = Path(__file__).parents[1]
QUICKSTART = ROOT / "examples" / "quickstart" / "corpus"


@dataclass
class Inputs:
    """Paths within `work`; the peers' environments are in `peers`."""

    work: Path
    peers: Path
    source: Path | None
    """Parquet with the columns ``id`` and ``text``; the quickstart's documents if None."""
    dump: Path
    megabytes: float
    """Of text; a third of the XML."""

    @cached_property
    def text(self) -> Path:
        """Parquet with ``id`` and ``text`` of about `megabytes`."""
        path = self.work / "text.parquet"
        if path.exists():
            return path
        if self.source is None:
            run_command("ingest", QUICKSTART, f"--output={self.work / 'quickstart'}")
            sentences = read_documents(self.work / "quickstart")
            texts = [" ".join(document) for document in sentences.to_pylist()]
            table = pa.table({"id": list(map(str, range(len(texts)))), "text": texts})
        else:
            table = pq.read_table(self.source, columns=["id", "text"])
        rows = 0
        num_bytes = 0
        while rows < len(table) and num_bytes < self.megabytes * 1e6:
            num_bytes += len(table["text"][rows].as_py().encode())
            rows += 1
        pq.write_table(table.slice(0, rows), path, row_group_size=1000)
        return path

    @cached_property
    def text_mb(self) -> float:
        return sum(len(text.encode()) for text in self.texts()) / 1e6

    def texts(self) -> list[str]:
        return pq.read_table(self.text, columns=["text"])["text"].to_pylist()

    @cached_property
    def documents(self) -> Path:
        return self._made("documents", "ingest", self.text)

    @cached_property
    def wordpiece(self) -> Path:
        return self._made("wordpiece", "vocab", self.documents)

    @cached_property
    def bpe(self) -> Path:
        """Byte-level BPE, cased, as gigatoken reads it."""
        return self._made("bpe", "vocab", self.documents, "--algorithm=bpe", "--cased")

    @cached_property
    def instances(self) -> Path:
        return self._made(
            *("instances", "build", self.documents),
            *(f"--vocab={self.wordpiece}", "--duplicates=1", "--max-length=128"),
        )

    def _made(self, name: str, command: str, *arguments: object) -> Path:
        path = self.work / name
        if not (path / "manifest.json").exists():
            run_command(command, *arguments, f"--output={path}")
        return path

    def sentences(self) -> pa.ChunkedArray:
        return pa.chunked_array(
            [chunk.flatten() for chunk in read_documents(self.documents).chunks]
        )


def read_documents(folder: Path) -> pa.ChunkedArray:
    """Return the sentences of each document, list<string> [num_documents]."""
    manifest = json.loads((folder / "manifest.json").read_text())
    tables = [
        pq.read_table(folder / shard["name"], columns=["sentences"]) for shard in manifest["shards"]
    ]
    return pa.concat_tables(tables)["sentences"]
