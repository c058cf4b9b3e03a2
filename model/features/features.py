"""Hidden states of an encoder, to Parquet: a vector for each word, token or text.

One row a vector, in the order of the data:

text       int64    number of the text, from 0: the line, the row of the table, or the sentence
index      int32    number of the word or token in its text, from 0 (not with ``--per text``)
word       string   the word, or the token in a column ``token`` (not with ``--per text``)
layer_12   fixed_size_list<float32 or float16>, the hidden state, a column a layer; 0 are the embeddings. With
           ``--combine`` there is one column ``vector`` instead

The file's footer holds under ``clozeworks`` what it was made from, and the schema version. Texts
are computed in parts; finished parts lie in ``FILE.work`` until the end, and an interrupted command
resumes after them, but not with a remote output.

Shapes: B rows, L padded length, P positions read, U units (words, tokens or texts), S layers, D
hidden size.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import nn

from ...pipeline import storage
from ...pipeline.config import identity_fields
from ...pipeline.errors import UserError
from ...pipeline.manifests import SCHEMA_VERSION, VERSION_KEY
from ...pipeline.parsing import parse_json
from ...pipeline.storage.directory import (
    TEMPORARY,
    WORK,
    OutputDirectory,
    changed_fields,
    claimed,
    locked,
    other_settings,
    unwritable_as_user_error,
)
from ..bert import BertModel
from ..checkpoint import files_digest, load_weights, model_digest, read_config
from ..mirror import local_copy, local_file
from ..tasks.classification import TEXT_COLUMNS
from ..tasks.conll import read_conll, split_words
from ..tasks.sentence_rows import SentenceExample, SentenceRow, sentence_rows
from ..tasks.tables import SUFFIXES, is_hub, read_rows, text_lines
from ..tasks.task import Feature, make_batch
from ..tokenizer import TextTokenizer, check_fit, trained_length
from ..training.device import autocast, find_device, oom_as_user_error, product_dtype, trim_memory
from ..training.logs import Clock, ProgressCallback
from .config import FeaturesConfig

IDENTITY = "features.json"
PARTS = "parts"
METADATA = b"clozeworks"
PART_BYTES = 64 << 20
"""Of the vectors of a part, if each character were a token."""
PART_CHARACTERS = 250_000
Report = Callable[[int, int], None]
"""Called with the number of texts done, and of tokens computed since the last call."""


def extract_features(
    checkpoint: str | Path,
    data: str | Path,
    output: str | Path,
    config: FeaturesConfig,
    progress: ProgressCallback | None = None,
    *,
    overwrite: bool = False,
) -> dict[str, int]:
    """Write the hidden states of the texts in `data` to the Parquet file `output`; return ``texts``
    and ``vectors``.

    `data` is plain text, a table, a file of CoNLL columns, or a data set of the Hub
    (``hf:nyu-mll/glue:sst2:test``), which is streamed. The same call resumes unfinished work,
    unless `output` is remote; `overwrite` starts over. `progress` is called with ``stage``,
    ``step`` and ``steps`` (texts) and ``tokens_per_second``. Raises `UserError` for bad input, and
    where `output` holds something else.
    """
    if Path(output).resolve() == Path(data).resolve():
        raise UserError(f"`output` is the data itself ({output}); give another file.")
    with local_file(output) as local:
        data, digest = _opened(local_copy(data))
        num_texts = sum(1 for _ in read_texts(data, config))
        if not num_texts:
            raise UserError(f"{data} contains no texts.")
        identity = _identity(checkpoint, digest, config)
        work = local.with_name(f"{local.name}.work")
        if not _is_finished(local, identity, overwrite):
            extractor = make_extractor(checkpoint, config)
            footer = {METADATA: json.dumps(identity).encode(), VERSION_KEY: str(SCHEMA_VERSION)}
            schema = extractor.schema.with_metadata(footer)
            with claimed(str(work), identity, IDENTITY, (PARTS,), overwrite=overwrite) as directory:
                report = _reporter(progress, num_texts)
                with oom_as_user_error("batch_tokens"):
                    parts = list(
                        _write_parts(extractor, read_texts(data, config), directory, report)
                    )
                with (
                    unwritable_as_user_error(local),
                    storage.write_atomically(str(local), directory.file(TEMPORARY)) as file,
                    _open_writer(file, schema) as writer,
                ):
                    for part in parts:
                        writer.write_table(_read_part(part, schema))
        if (work / IDENTITY).exists() or (work.is_dir() and not any(work.iterdir())):
            with locked(str(work)):
                # The identity goes last, so that what a kill leaves still has an owner.
                OutputDirectory(str(work)).remove(PARTS, WORK, IDENTITY)
                work.rmdir()
        return {"texts": num_texts, "vectors": pq.read_metadata(local).num_rows}


def _opened(data: Path) -> tuple[Path, str]:
    """Return what to read and a digest of it; of a data set of the Hub the revision and the split
    as they are now.
    """
    if is_hub(data):
        # Imported here, for it needs `datasets`.
        from ...pipeline.storage.hub import open_set

        found = open_set(str(data))
        return Path(found.address), found.digest
    if not data.is_file():
        raise UserError(f"{data} does not exist.")
    return data, files_digest([data])


def read_texts(data: Path, config: FeaturesConfig) -> Iterator[SentenceExample]:
    """Yield the texts in a file, in order; a sentence of CoNLL columns has its document around it."""
    kind = config.format
    if kind == "auto":
        by_suffix = "text" if data.suffix == ".txt" else "columns"
        kind = "table" if is_hub(data) or data.suffix in SUFFIXES else by_suffix
    if is_hub(data) and kind != "table":
        raise UserError(f"`format` is {kind}, but {data} is a table; leave it out.")
    if config.text and kind != "table":
        raise UserError(f"`text` is for tables, but {data} is read as {kind}; leave it out.")
    match kind:
        case "text":
            with data.open("rb") as file:
                for _, line in text_lines(file, str(data)):
                    yield SentenceExample([split_words(line)], 0)
        case "table":
            for row in read_rows(data):
                column = config.text or next(
                    (name for name in TEXT_COLUMNS if name in row.values), TEXT_COLUMNS[0]
                )
                yield SentenceExample([split_words(row.text(column))], 0)
        case _:
            for document in read_conll(data, labelled=False):
                yield from (SentenceExample(document, number) for number in range(len(document)))


def _identity(checkpoint: str | Path, digest: str, config: FeaturesConfig) -> dict[str, Any]:
    """Return all that decides what is written; where and how it is computed is no part of it."""
    options = identity_fields(config)
    digests = {"data": digest, "checkpoint": model_digest(checkpoint)}
    return {**digests, **json.loads(json.dumps(options))}


def _is_finished(output: Path, identity: dict[str, Any], overwrite: bool) -> bool:
    """Return whether `output` holds the features already; raises `UserError` if it holds anything
    else.
    """
    if overwrite or not output.exists():
        return False
    try:
        content = (pq.read_schema(output).metadata or {})[METADATA]
    except (pa.ArrowException, OSError, KeyError):
        what_next = "Choose another `output`, or start over with `overwrite`."
        raise UserError(f"{output} was not written by clozeworks features. {what_next}") from None
    if changes := changed_fields(parse_json(content, dict[str, Any], output), identity):
        raise other_settings(str(output), changes)
    return True


def _reporter(progress: ProgressCallback | None, num_texts: int) -> Report:
    clock = Clock()

    def report(num_done: int, num_tokens: int) -> None:
        clock.count(num_rows=0, num_tokens=num_tokens)
        if progress:
            speed = clock.rates()["tokens_per_second"]
            progress(
                {
                    "stage": "features",
                    "step": num_done,
                    "steps": num_texts,
                    "tokens_per_second": speed,
                }
            )

    return report


def _write_parts(
    extractor: "Extractor",
    texts: Iterator[SentenceExample],
    directory: OutputDirectory,
    report: Report,
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


def _next_texts(texts: Iterator[SentenceExample], extractor: "Extractor") -> list[SentenceExample]:
    """Return the texts of the next part; none at the end."""
    vectors = (field.type for field in extractor.schema if pa.types.is_fixed_size_list(field.type))
    vector_bytes = sum(4 * vector.list_size for vector in vectors)
    per_text = extractor.config.per == "text"
    num_characters = (
        PART_CHARACTERS if per_text else min(PART_CHARACTERS, PART_BYTES // vector_bytes)
    )
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


@dataclass(frozen=True, kw_only=True)
class Extractor:
    """An encoder, and which of its hidden states to extract."""

    config: FeaturesConfig
    tokenizer: TextTokenizer
    bert: BertModel
    layers: list[int]
    max_length: int
    schema: pa.Schema

    def table(self, texts: Sequence[SentenceExample], first: int, report: Report) -> pa.Table:
        """Return the vectors of `texts`, numbered from `first`."""
        rows = list(sentence_rows(texts, self.tokenizer, self.max_length))
        names: list[str] = []
        match self.config.per:
            case "word":
                reads = [(row.words, row.word_positions) for row in rows]
                lengths = [len(text.sentence.words) for text in texts]
                names = [word for text in texts for word in text.sentence.words]
            case "token":
                reads = [(row.tokens, row.token_positions) for row in rows]
                lengths = np.bincount(
                    [row.example for row in rows], [len(row.tokens) for row in rows]
                ).astype(int)
                ids = (token for row in rows for token in row.row.input_ids[row.token_positions])
                names = [self.tokenizer.token(token) for token in ids]
            case _:
                reads = [(np.zeros_like(positions), positions) for positions in _whole_rows(rows)]
                lengths = [1] * len(texts)
        starts = np.cumsum([0, *lengths])
        text_U = np.repeat(np.arange(len(texts)), lengths)
        units = [starts[row.example] + inside for row, (inside, _) in zip(rows, reads, strict=True)]
        positions = [positions for _, positions in reads]
        vectors_USD = self._vectors(
            rows,
            units,
            positions,
            len(text_U),
            lambda share, tokens: report(first + int(share * len(texts)), tokens),
        )
        columns: list[pa.Array] = [pa.array(text_U + first, pa.int64())]
        if self.config.per != "text":
            index_U = np.arange(len(text_U)) - starts[text_U]
            columns += [pa.array(index_U, pa.int32()), pa.array(names, pa.string())]
        vector = self.schema.field(-1).type
        for values_UD in self._combined(vectors_USD):
            flat = np.ascontiguousarray(
                values_UD, dtype=vector.value_type.to_pandas_dtype()
            ).reshape(-1)
            columns.append(pa.FixedSizeListArray.from_arrays(pa.array(flat), type=vector))
        return pa.Table.from_arrays(columns, schema=self.schema)

    @torch.inference_mode()
    def _vectors(
        self,
        rows: Sequence[SentenceRow],
        units: Sequence[np.ndarray],
        positions: Sequence[np.ndarray],
        num_units: int,
        report: Callable[[float, int], None],
    ) -> np.ndarray:
        """Return the mean hidden state (U, S, D), float32, of each unit; `units` belong to each
        row's `positions`.
        """
        device = next(self.bert.parameters()).device
        sums_USD = torch.zeros(num_units, len(self.layers), self.bert.config.hidden_size)
        num_done = 0
        for number, chosen in enumerate(_batches(rows, self.config.batch_tokens)):
            batch = make_batch([Feature((rows[index].row,), None, index) for index in chosen]).to(
                device
            )
            row_P = np.repeat(np.arange(len(chosen)), [len(positions[index]) for index in chosen])
            position_P = np.concatenate([positions[index] for index in chosen])
            at_P = torch.from_numpy(row_P).to(device), torch.from_numpy(position_P).to(device)
            with autocast(device, product_dtype(self.config.precision, device)):
                states = self.bert.hidden_states(*batch[:4], all_layers=True)
            states_PSD = torch.stack(
                [states[layer][at_P].float() for layer in self.layers], 1
            ).cpu()
            sums_USD.index_add_(
                0, torch.from_numpy(np.concatenate([units[index] for index in chosen])), states_PSD
            )
            num_done += len(chosen)
            trim_memory(device, number)
            report(num_done / len(rows), sum(len(rows[index].row.input_ids) for index in chosen))
        counts_U = np.bincount(np.concatenate(units), minlength=num_units)
        return sums_USD.div_(torch.from_numpy(counts_U)[:, None, None]).numpy()

    def _combined(self, vectors_USD: np.ndarray) -> list[np.ndarray]:
        match self.config.combine:
            case "concat":
                return [vectors_USD.reshape(len(vectors_USD), -1)]
            case "sum":
                return [vectors_USD.sum(1)]
            case _:
                return list(vectors_USD.transpose(1, 0, 2))


def make_extractor(checkpoint: str | Path, config: FeaturesConfig) -> Extractor:
    """Load the encoder and its tokenizer onto the device; raises `UserError` for layers it does not
    have.
    """
    shape, tokenizer = read_config(checkpoint), TextTokenizer(checkpoint)
    max_length = config.max_length or trained_length(checkpoint, shape.max_position_embeddings)
    check_fit(tokenizer, shape, max_length, checkpoint)
    layers = resolve_layers(config.layers, shape.num_hidden_layers)
    bert = BertModel(shape)
    load_weights(nn.ModuleDict({"bert": bert}), checkpoint, new=("bert.pooler.",))
    return Extractor(
        config=config,
        tokenizer=tokenizer,
        bert=bert.to(find_device(config.device)).eval(),
        layers=layers,
        max_length=max_length,
        schema=_schema(config, layers, shape.hidden_size),
    )


def resolve_layers(layers: Sequence[int], num_layers: int) -> list[int]:
    """Return layers as indices, 0 being the embeddings; negative ones count from the last layer,
    -1.

    >>> resolve_layers([-1, -2, 0], 12)
    [12, 11, 0]
    """
    for layer in layers:
        if not -num_layers - 1 <= layer <= num_layers:
            raise UserError(
                f"`layers` contains {layer}, but the model has layers 0 (the embeddings) to {num_layers}."
            )
    resolved = [layer % (num_layers + 1) for layer in layers]
    if len(set(resolved)) < len(resolved):
        raise UserError(
            f"`layers` names a layer twice: of {num_layers} layers, {num_layers} and -1 are the same."
        )
    return resolved


def _schema(config: FeaturesConfig, layers: Sequence[int], hidden_size: int) -> pa.Schema:
    unit = (
        []
        if config.per == "text"
        else [pa.field("index", pa.int32()), pa.field(config.per, pa.string())]
    )
    size = hidden_size * len(layers) if config.combine == "concat" else hidden_size
    names = [f"layer_{layer}" for layer in layers] if config.combine == "none" else ["vector"]
    vector = pa.list_(pa.float32() if config.dtype == "float32" else pa.float16(), size)
    return pa.schema(
        [pa.field("text", pa.int64()), *unit, *(pa.field(name, vector) for name in names)]
    )


def _whole_rows(rows: Sequence[SentenceRow]) -> list[np.ndarray]:
    """Return the positions of each row's own tokens, with [CLS] of a text's first row and [SEP] of
    its last.
    """
    positions = []
    for index, row in enumerate(rows):
        is_first = index == 0 or rows[index - 1].example != row.example
        is_last = index + 1 == len(rows) or rows[index + 1].example != row.example
        end = [len(row.row.input_ids) - 1] if is_last else []
        positions.append(
            np.array([*([0] if is_first else []), *row.token_positions, *end], dtype=np.int64)
        )
    return positions


def _batches(rows: Sequence[SentenceRow], max_tokens: int) -> Iterator[list[int]]:
    """Yield batches of row indices, of similar length, with at most `max_tokens` tokens including
    padding.
    """
    batch: list[int] = []
    # Longest first, so that a batch's first row has the length that all are padded to.
    for index in sorted(range(len(rows)), key=lambda index: -len(rows[index].row.input_ids)):
        if batch and (len(batch) + 1) * len(rows[batch[0]].row.input_ids) > max_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
