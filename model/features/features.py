"""Hidden states of an encoder, to Parquet: a vector for each word, token or text.

One row a vector, in the order of the data:

text       int64    number of the text, from 0: the line, the row of the table, or the sentence
index      int32    number of the word or token in its text, from 0 (not with ``--per text``)
word       string   the word, or the token in a column ``token`` (not with ``--per text``)
layer_12   fixed_size_list<float32 or float16>, the hidden state, a column a layer; 0 are the embeddings. With
           ``--combine`` there is one column ``vector`` instead

The file's footer holds under ``clozeworks`` what it was made from. Texts are computed part after part, so that memory
is bounded; finished parts lie in ``FILE.work`` until the end, and an interrupted command resumes after them. The same
command gives the same bytes on the CPU with the same number of threads, interrupted or not.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from ...pipeline.errors import UserError
from ...pipeline.execution import storage
from ...pipeline.execution.directory import (
    TEMPORARY,
    OutputDirectory,
    changed_fields,
    claimed,
    locked,
    other_settings,
    unwritable_as_user_error,
)
from ...pipeline.parsing import parse_json
from ..checkpoint import files_digest, model_digest
from ..mirror import local_copy, local_file
from ..tasks.classification import TEXT_COLUMNS
from ..tasks.conll import read_documents, split_words
from ..tasks.sentence_rows import SentenceExample
from ..tasks.tables import SUFFIXES, is_hub, read_rows, text_lines
from ..training.device import oom_as_user_error
from ..training.logs import ProgressCallback
from .config import FeaturesConfig
from .vectors import Extractor, Report, make_extractor

IDENTITY = "features.json"
PARTS = "parts"
METADATA = b"clozeworks"
PART_BYTES = 64 << 20
"""Of the vectors of a part, if each character were a token."""
PART_CHARACTERS = 250_000


def extract_features(
    checkpoint: str | Path,
    data: str | Path,
    output: str | Path,
    config: FeaturesConfig,
    progress: ProgressCallback | None = None,
    *,
    overwrite: bool = False,
) -> dict[str, int]:
    """Write the hidden states of the texts in `data` to the Parquet file `output`; return ``texts`` and ``vectors``.

    `data` is plain text, a table, a file of CoNLL columns, or a data set of the hub (``hf:nyu-mll/glue:sst2:test``),
    which is streamed. The same call resumes unfinished work; `overwrite` starts over. `progress` is called with
    ``stage``, ``step`` and ``steps`` (texts) and ``tokens_per_second``. Raises `UserError` for bad input, and where
    `output` holds something else.
    """
    with local_file(output) as local:
        data, digest = _opened(local_copy(data))
        if local.resolve() == data.resolve():
            raise UserError(f"--output is DATA itself ({local}); give another file.")
        num_texts = sum(1 for _ in read_texts(data, config))
        if not num_texts:
            raise UserError(f"{data} holds no texts.")
        identity = _identity(checkpoint, digest, config)
        work = local.with_name(f"{local.name}.work")
        if not _is_finished(local, identity, overwrite):
            extractor = make_extractor(checkpoint, config)
            schema = extractor.schema.with_metadata({METADATA: json.dumps(identity).encode()})
            with claimed(str(work), identity, IDENTITY, (PARTS,), overwrite=overwrite) as directory:
                report = _reporter(progress, num_texts)
                with oom_as_user_error("--batch-tokens"):
                    parts = list(_write_parts(extractor, read_texts(data, config), directory, report))
                with (
                    unwritable_as_user_error(local),
                    storage.write_atomically(str(local), directory.file(TEMPORARY)) as file,
                    _open_writer(file, schema) as writer,
                ):
                    for part in parts:
                        writer.write_table(_read_part(part, schema))
        if (work / IDENTITY).exists():
            with locked(str(work)):
                storage.remove(str(work))
        return {"texts": num_texts, "vectors": pq.read_metadata(local).num_rows}


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
    kind = config.format
    if kind == "auto":
        by_suffix = "text" if data.suffix == ".txt" else "columns"
        kind = "table" if is_hub(data) or data.suffix in SUFFIXES else by_suffix
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


def _identity(checkpoint: str | Path, digest: str, config: FeaturesConfig) -> dict[str, Any]:
    """Return all that decides what is written; where it is computed is no part of it."""
    options = {name: value for name, value in asdict(config).items() if name != "device"}
    digests = {"data": digest, "checkpoint": model_digest(checkpoint)}
    return {**digests, **json.loads(json.dumps(options))}


def _is_finished(output: Path, identity: dict[str, Any], overwrite: bool) -> bool:
    """Return whether `output` holds the features already; raises `UserError` if it holds anything else."""
    if overwrite or not output.exists():
        return False
    try:
        content = (pq.read_schema(output).metadata or {})[METADATA]
    except (pa.ArrowException, OSError, KeyError):
        what_next = "Choose another --output, or start over with --overwrite."
        raise UserError(f"{output} was not written by clozeworks features. {what_next}") from None
    if changes := changed_fields(parse_json(content, dict[str, Any], output), identity):
        raise other_settings(str(output), changes)
    return True


def _reporter(progress: ProgressCallback | None, num_texts: int) -> Report:
    started, num_tokens = time.perf_counter(), 0

    def report(num_done: int, new_tokens: int) -> None:
        nonlocal num_tokens
        num_tokens += new_tokens
        if progress:
            speed = num_tokens / (time.perf_counter() - started)
            progress({"stage": "features", "step": num_done, "steps": num_texts, "tokens_per_second": speed})

    return report


def _write_parts(
    extractor: Extractor, texts: Iterator[SentenceExample], directory: OutputDirectory, report: Report
) -> Iterator[Path]:
    """Write the parts that do not exist yet, and yield the paths of all."""
    first = 0
    while chosen := _next_texts(texts, extractor):
        name = f"{PARTS}/part-{first:09d}-{len(chosen)}.parquet"
        path = Path(directory.file(name))
        if not path.exists():
            table = extractor.table(chosen, first, report)
            with directory.write(name) as file, _open_writer(file, table.schema) as writer:
                writer.write_table(table)
        first += len(chosen)
        yield path


def _next_texts(texts: Iterator[SentenceExample], extractor: Extractor) -> list[SentenceExample]:
    """Return the texts of the next part; none at the end."""
    vectors = (field.type for field in extractor.schema if pa.types.is_fixed_size_list(field.type))
    vector_bytes = sum(4 * vector.list_size for vector in vectors)
    per_text = extractor.config.per == "text"
    num_characters = PART_CHARACTERS if per_text else min(PART_CHARACTERS, PART_BYTES // vector_bytes)
    taken: list[SentenceExample] = []
    for text in texts:
        taken.append(text)
        num_characters -= sum(len(word) + 1 for word in text.sentence.words)
        if num_characters <= 0:
            break
    return taken


def _read_part(part: Path, schema: pa.Schema) -> pa.Table:
    try:
        with pq.ParquetFile(part) as file:
            return file.read().cast(schema)
    except (OSError, ValueError, pa.ArrowException):
        raise UserError(f"{part} is damaged. Delete it and rerun; it resumes.") from None


def _open_writer(file: BinaryIO, schema: pa.Schema) -> pq.ParquetWriter:
    # Numbers of hidden states hardly repeat, so that a dictionary of them would only cost.
    words: Any = [field.name for field in schema if pa.types.is_string(field.type)]
    return pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=words)
