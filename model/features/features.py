"""Write hidden states of an encoder to Parquet: a vector for each word, token or text.

The file has one row per vector, in the order of the data:

text       int64    number of the text, from 0: the line, the row of the table, or the sentence
index      int32    number of the word or token in its text, from 0 (not if `per` is text)
word       string   the word, or the token in a column ``token`` (not if `per` is text)
layer_12   fixed_size_list<float32 or float16>, the hidden state, one column per layer; 0 is the
           embeddings. Combined layers have one column ``vector`` instead

The file's footer holds under ``clozeworks`` what it was made from, and the schema version. Texts
are computed in parts; finished parts lie in ``FILE.work`` until the end, and an interrupted command
resumes after them, but not with a remote output.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from ...pipeline import storage
from ...pipeline.config import identity_fields
from ...pipeline.errors import UserError
from ...pipeline.manifests import SCHEMA_VERSION, VERSION_KEY
from ...pipeline.parsing import parse_json
from ...pipeline.storage.claim import Found, changed_fields, claimed, decide
from ...pipeline.storage.directory import (
    TEMPORARY,
    WORK,
    OutputDirectory,
    locked,
    unwritable_as_user_error,
)
from ..checkpoint import Checkpoint
from ..copies import local_copy, refuse_remote
from ..tasks.sentence_rows import SentenceExample
from ..training.device import oom_as_user_error
from ..training.logs import Clock, ProgressCallback
from .config import FeaturesConfig
from .extractor import Extractor, Report, make_extractor
from .texts import data_and_digest, read_texts

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
    """Write the hidden states of the texts in `data` to the Parquet file `output`.

    Return the numbers of ``texts`` and ``vectors``.

    `data` is plain text, a table, a file of CoNLL columns, or a data set of the Hub
    (``hf:nyu-mll/glue:sst2:test``), which is streamed. The same call resumes unfinished work;
    `overwrite` starts over. `progress` is called with ``stage``,
    ``step`` and ``steps`` (texts) and ``tokens_per_second``. Raises `UserError` for bad input, and
    if `output` holds something else.
    """
    if Path(output).resolve() == Path(data).resolve():
        raise UserError(f"`output` is the data itself ({output}); give another file.")
    refuse_remote(output)
    local = Path(output)
    data, digest = data_and_digest(local_copy(data))
    # The texts are read twice, as they may not fit into memory. Counted first: mistakes in
    # them are reported before a model is loaded.
    num_texts = sum(1 for _ in read_texts(data, config))
    if not num_texts:
        raise UserError(f"{data} contains no texts.")
    opened = Checkpoint.open(checkpoint)
    identity = _identity(opened, digest, config)
    work = local.with_name(f"{local.name}.work")
    if not _is_finished(local, identity, overwrite):
        extractor = make_extractor(opened, config)
        report = _reporter(progress, num_texts)
        with claimed(str(work), identity, IDENTITY, (PARTS,), overwrite=overwrite) as directory:
            with oom_as_user_error("batch_tokens"):
                texts = read_texts(data, config)
                parts = list(_write_parts(extractor, texts, directory, report))
            footer = {METADATA: json.dumps(identity).encode(), VERSION_KEY: str(SCHEMA_VERSION)}
            schema = extractor.schema.with_metadata(footer)
            _join_parts(parts, local, directory, schema)
    _remove_work(work)
    return {"texts": num_texts, "vectors": pq.read_metadata(local).num_rows}


def _join_parts(
    parts: Sequence[Path], output: Path, directory: OutputDirectory, schema: pa.Schema
) -> None:
    with (
        unwritable_as_user_error(output),
        storage.write_atomically(str(output), directory.file(TEMPORARY)) as file,
        _open_writer(file, schema) as writer,
    ):
        for part in parts:
            writer.write_table(_read_part(part, schema))


def _remove_work(work: Path) -> None:
    # A folder of this name with other content is the user's own; it stays.
    is_empty = work.is_dir() and not any(work.iterdir())
    if not is_empty and not (work / IDENTITY).exists():
        return
    with locked(str(work)):
        # The identity goes last, so that what a kill leaves still has an owner.
        OutputDirectory(str(work)).remove(PARTS, WORK, IDENTITY)
    with suppress(OSError):  # another process has begun
        work.rmdir()


def _identity(checkpoint: Checkpoint, digest: str, config: FeaturesConfig) -> dict[str, Any]:
    """Return all that decides what is written, but not where and how it is computed."""
    options = identity_fields(config)
    return {"data": digest, "checkpoint": checkpoint.digest(), **options}


def _is_finished(output: Path, identity: dict[str, Any], overwrite: bool) -> bool:
    """Return whether `output` holds the features already.

    Raises `UserError` if it holds anything else.
    """
    if overwrite or not output.exists():
        return False
    try:
        content = (pq.read_schema(output).metadata or {})[METADATA]
    except (pa.ArrowException, OSError, KeyError):
        raise UserError(
            f"{output} was not written by clozeworks features. Choose another `output`, or start "
            "over with `overwrite`."
        ) from None
    written = parse_json(content, dict[str, Any], output)
    found = Found(changes=changed_fields(written, identity), is_finished=True)
    return decide(str(output), found, overwrite=False) == "finished"


def _reporter(progress: ProgressCallback | None, num_texts: int) -> Report:
    clock = Clock()

    def report(num_done: int, num_tokens: int) -> None:
        clock.count(num_rows=0, num_tokens=num_tokens)
        if progress:
            progress(
                {
                    "stage": "features",
                    "step": num_done,
                    "steps": num_texts,
                    "tokens_per_second": clock.rates()["tokens_per_second"],
                }
            )

    return report


def _write_parts(
    extractor: Extractor,
    texts: Iterator[SentenceExample],
    directory: OutputDirectory,
    report: Report,
) -> Iterator[Path]:
    """Write the parts that do not exist yet, and yield the paths of all."""
    first = 0
    while part := _next_texts(texts, extractor):
        # A part's name says which texts it holds. It is written under another name and renamed at
        # its end, so one that exists is whole.
        name = f"{PARTS}/part-{first:09d}-{len(part)}.parquet"
        path = Path(directory.file(name))
        if not path.exists():
            table = extractor.table(part, first, report)
            with directory.write(name) as file, _open_writer(file, table.schema) as writer:
                writer.write_table(table)
        first += len(part)
        yield path


def _next_texts(texts: Iterator[SentenceExample], extractor: Extractor) -> list[SentenceExample]:
    """Return the texts of the next part; none at the end.

    Its end must not depend on anything but the texts and the config: a resumed run takes the same.
    """
    characters_left = PART_CHARACTERS
    if extractor.config.per != "text":
        # A word or token has a character or more, so this bounds their number in a part.
        characters_left = min(PART_CHARACTERS, PART_BYTES // extractor.bytes_per_unit)
    part: list[SentenceExample] = []
    for text in texts:
        part.append(text)
        # With the space after each word. A text without words still has a vector.
        characters_left -= max(1, sum(len(word) + 1 for word in text.sentence.words))
        if characters_left <= 0:
            break
    return part


def _read_part(part: Path, schema: pa.Schema) -> pa.Table:
    try:
        with pq.ParquetFile(part, page_checksum_verification=True) as file:
            return file.read().cast(schema)
    except (OSError, ValueError, pa.ArrowException):
        raise UserError(f"{part} is damaged. Delete it and rerun; it resumes.") from None


def _open_writer(file: BinaryIO, schema: pa.Schema) -> pq.ParquetWriter:
    # A dictionary of words saves space; hidden states hardly repeat, so theirs would only cost.
    words: Any = [field.name for field in schema if pa.types.is_string(field.type)]
    return pq.ParquetWriter(
        file, schema, compression="zstd", use_dictionary=words, write_page_checksum=True
    )
