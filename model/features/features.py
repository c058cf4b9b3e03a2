"""Hidden states of an encoder, to Parquet: a vector for each word, token or text.

One row a vector, in the order of the data:

text       int64    number of the text, from 0: the line, the row of the table, or the sentence
index      int32    number of the word or token in its text, from 0 (not with ``--per text``)
word       string   the word, or the token in a column ``token`` (not with ``--per text``)
layer_12   fixed_size_list<float32 or float16>, the hidden state, a column a layer; 0 are the embeddings. With
           ``--combine`` there is one column ``vector`` instead

The file's footer holds under ``clozeworks`` what it was made from. Texts are computed part after part, so that memory
is bounded; finished parts lie in ``FILE.work`` until the end, and an interrupted command goes on after them. The same
command gives the same bytes on the CPU with the same number of threads, interrupted or not.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ...pipeline.errors import UserError
from ..checkpoint import files_digest, model_digest
from ..mirror import local_copy, local_file
from ..pretraining.run import claim
from ..tasks.classify import TEXT_COLUMNS
from ..tasks.conll import read_documents, split_words
from ..tasks.sentence_rows import SentenceExample
from ..tasks.tables import SUFFIXES, is_hub, read_rows, text_lines
from ..training.device import oom_as_user_error
from .config import FeaturesConfig
from .vectors import Extractor, Report, make_extractor

IDENTITY = "features.json"
PARTS = "parts"
METADATA = b"clozeworks"
NUM_TEXTS = b"num_texts"
PART_BYTES = 64 << 20
"""Of the vectors of a part, if each character were a token."""
PART_CHARACTERS = 250_000

Progress = Callable[[dict[str, Any]], None]


def extract_features(
    checkpoint: str | Path,
    data: str | Path,
    output: str | Path,
    config: FeaturesConfig,
    progress: Progress | None = None,
    *,
    overwrite: bool = False,
) -> dict[str, int]:
    """Write the hidden states of the texts in `data` to the Parquet file `output`; return ``texts`` and ``vectors``.

    `data` is plain text, a table, a file of CoNLL columns, or a data set of the hub (``hf:nyu-mll/glue:sst2:test``),
    which is streamed. The same call goes on with unfinished work; `overwrite` starts anew. `progress` is called with
    ``stage``, ``step`` and ``steps`` (texts) and ``tokens_per_second``. Raises `UserError` for bad input, and where
    `output` holds something else.
    """
    with local_file(output) as local:
        return _extract_features(checkpoint, local_copy(data), local, config, progress, overwrite)


def _extract_features(
    checkpoint: str | Path,
    data: Path,
    output: Path,
    config: FeaturesConfig,
    progress: Progress | None,
    overwrite: bool,
) -> dict[str, int]:
    data, digest = _opened(data)
    if output.resolve() == data.resolve():
        raise UserError(f"--output is DATA itself ({output}); give another file.")
    num_texts = sum(1 for _ in read_texts(data, config))
    if not num_texts:
        raise UserError(f"{data} holds no texts.")
    identity = _identity(checkpoint, digest, config)
    work = output.with_name(f"{output.name}.work")
    if not _is_finished(output, identity, overwrite):
        extractor = make_extractor(checkpoint, config)
        claim(work, identity, overwrite, (PARTS, IDENTITY))
        (work / PARTS).mkdir(exist_ok=True)
        report = _reporter(progress, num_texts)
        with oom_as_user_error("--batch-tokens"):
            parts = list(_write_parts(extractor, read_texts(data, config), work / PARTS, num_texts, report))
        _join(parts, output, extractor.schema.with_metadata({METADATA: json.dumps(identity).encode()}))
    if (work / IDENTITY).exists():
        shutil.rmtree(work)
    return {"texts": num_texts, "vectors": pq.read_metadata(output).num_rows}


def _opened(data: Path) -> tuple[Path, str]:
    """Return what to read and a digest of it; of a data set of the hub the revision and the split as they are now."""
    if is_hub(data):
        # Imported here, for it needs `datasets`.
        from ...pipeline.execution.hub import open_set

        found = open_set(str(data))
        return Path(found.address), found.digest
    if not data.is_file():
        raise UserError(f"There is no file {data}.")
    return data, files_digest([data])


def read_texts(data: Path, config: FeaturesConfig) -> Iterator[SentenceExample]:
    """Yield the texts in a file, in order; a sentence of CoNLL columns has its document around it."""
    kind = _kind(data) if config.format == "auto" else config.format
    if is_hub(data) and kind != "table":
        raise UserError(f"--format is {kind}, but {data} is a table; leave it out.")
    if config.text and kind != "table":
        raise UserError(f"--text is for tables, but {data} is read as {kind}; leave it out.")
    match kind:
        case "text":
            with data.open("rb") as file:
                for _, line in text_lines(file, str(data)):
                    yield SentenceExample([split_words(line)], 0)
        case "table":
            for row in read_rows(data):
                column = config.text or next((name for name in TEXT_COLUMNS if name in row.values), TEXT_COLUMNS[0])
                yield SentenceExample([split_words(row.text(column))], 0)
        case _:
            for document in read_documents(data, labelled=False):
                yield from (SentenceExample(document, number) for number in range(len(document)))


def _kind(data: Path) -> str:
    if is_hub(data) or data.suffix in SUFFIXES:
        return "table"
    return "text" if data.suffix == ".txt" else "columns"


def _identity(checkpoint: str | Path, digest: str, config: FeaturesConfig) -> dict[str, Any]:
    """Return all that decides what is written; where it is computed is no part of it."""
    options = {name: value for name, value in asdict(config).items() if name != "device"}
    digests = {"data": digest, "checkpoint": model_digest(checkpoint)}
    return {**digests, **json.loads(json.dumps(options))}


def _is_finished(output: Path, identity: dict[str, Any], overwrite: bool) -> bool:
    """Tell whether `output` holds the features already; raises `UserError` where it holds something else."""
    if overwrite or not output.exists():
        return False
    try:
        stored = json.loads((pq.read_schema(output).metadata or {}).get(METADATA, b"{}"))
    except (pa.ArrowInvalid, OSError):
        stored = {}
    names = [name for name, value in identity.items() if stored.get(name) != value]
    if names:
        changes = ", ".join(f"{name} {stored.get(name)} (now {identity[name]})" for name in names)
        raise UserError(f"{output} was made with {changes}; give another --output, or --overwrite to start anew.")
    return True


def _reporter(progress: Progress | None, num_texts: int) -> Report:
    started, num_tokens = time.perf_counter(), 0

    def report(num_done: int, new_tokens: int) -> None:
        nonlocal num_tokens
        num_tokens += new_tokens
        if progress:
            speed = num_tokens / (time.perf_counter() - started)
            progress({"stage": "features", "step": num_done, "steps": num_texts, "tokens_per_second": speed})

    return report


def _write_parts(
    extractor: Extractor, texts: Iterator[SentenceExample], folder: Path, num_texts: int, report: Report
) -> Iterator[Path]:
    """Write the parts that are not there yet, and yield the paths of all."""
    first = 0
    while first < num_texts:
        path = folder / f"part-{first:09d}.parquet"
        if not path.exists():
            chosen = _take(texts, _part_characters(extractor))
            table = extractor.table(chosen, first, report)
            with _write(path, table.schema.with_metadata({NUM_TEXTS: str(len(chosen))})) as writer:
                writer.write_table(table)
            first += len(chosen)
        else:
            first += sum(1 for _ in islice(texts, int(pq.read_schema(path).metadata[NUM_TEXTS])))
        yield path


def _part_characters(extractor: Extractor) -> int:
    vector_bytes = sum(
        4 * field.type.list_size for field in extractor.schema if pa.types.is_fixed_size_list(field.type)
    )
    return PART_CHARACTERS if extractor.config.per == "text" else min(PART_CHARACTERS, PART_BYTES // vector_bytes)


def _take(texts: Iterator[SentenceExample], num_characters: int) -> list[SentenceExample]:
    """Return the next texts, as many as make `num_characters`; at least one."""
    taken: list[SentenceExample] = []
    for text in texts:
        taken.append(text)
        num_characters -= sum(len(word) + 1 for word in text.sentence.words)
        if num_characters <= 0:
            break
    return taken


def _join(parts: Sequence[Path], output: Path, schema: pa.Schema) -> None:
    """Write the rows of all parts to `output`, a part at a time."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with _write(output, schema) as writer:
        for part in parts:
            with pq.ParquetFile(part) as file:
                writer.write_table(file.read().cast(schema))


@contextmanager
def _write(path: Path, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """Write a Parquet file under another name, then rename, so that `path` is never seen half-written."""
    partial = path.with_name(f"{path.name}.partial")
    # Numbers of hidden states hardly repeat, so that a dictionary of them would only cost.
    words: Any = [field.name for field in schema if pa.types.is_string(field.type)]
    try:
        with pq.ParquetWriter(partial, schema, compression="zstd", use_dictionary=words) as writer:
            yield writer
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
