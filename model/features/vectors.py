"""Turn texts into vectors: the hidden states of an encoder for each word, token or text, as an Arrow table.

Shapes: B rows, L padded length, P positions read, U units (words, tokens or texts), S layers, D hidden size.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import nn

from ...pipeline.errors import UserError
from ..bert import BertModel
from ..checkpoint import load_weights, read_config
from ..finetuning.predict import check_fit
from ..tasks.sentence_rows import SentenceExample, SentenceRow, sentence_rows
from ..tasks.task import Feature, make_batch
from ..tokenizer import TextTokenizer
from ..training.device import find_device, trim_memory, uses_bf16
from .config import FeaturesConfig

Report = Callable[[int, int], None]
"""Called with the number of texts done, and of tokens computed since the last call."""


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
                lengths = np.bincount([row.example for row in rows], [len(row.tokens) for row in rows]).astype(int)
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
            rows, units, positions, len(text_U), lambda share, tokens: report(first + int(share * len(texts)), tokens)
        )
        columns: list[pa.Array] = [pa.array(text_U + first, pa.int64())]
        if self.config.per != "text":
            index_U = np.arange(len(text_U)) - starts[text_U]
            columns += [pa.array(index_U, pa.int32()), pa.array(names, pa.string())]
        vector = self.schema.field(-1).type
        for values_UD in self._combined(vectors_USD):
            flat = np.ascontiguousarray(values_UD, dtype=vector.value_type.to_pandas_dtype()).reshape(-1)
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
        """Return the mean hidden state (U, S, D), float32, of each unit; `units` belong to each row's `positions`."""
        device = next(self.bert.parameters()).device
        sums_USD = torch.zeros(num_units, len(self.layers), self.bert.config.hidden_size)
        num_done = 0
        for number, chosen in enumerate(_batches(rows, self.config.batch_tokens)):
            batch = make_batch([Feature((rows[index].row,), None, index) for index in chosen]).to(device)
            row_P = np.repeat(np.arange(len(chosen)), [len(positions[index]) for index in chosen])
            position_P = np.concatenate([positions[index] for index in chosen])
            at_P = torch.from_numpy(row_P).to(device), torch.from_numpy(position_P).to(device)
            with torch.autocast(device.type, torch.bfloat16, enabled=uses_bf16(self.config.precision, device)):
                states = self.bert.hidden_states(*batch[:4], all_layers=True)
            states_PSD = torch.stack([states[layer][at_P].float() for layer in self.layers], 1).cpu()
            sums_USD.index_add_(0, torch.from_numpy(np.concatenate([units[index] for index in chosen])), states_PSD)
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
    """Load the encoder and its tokenizer onto the device; raises `UserError` for layers it does not have."""
    shape, tokenizer = read_config(checkpoint), TextTokenizer(checkpoint)
    max_length = config.max_length or shape.max_position_embeddings
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
    """Return layers as indices, 0 being the embeddings; negative ones count from the last layer, -1.

    >>> resolve_layers([-1, -2, 0], 12)
    [12, 11, 0]
    """
    for layer in layers:
        if not -num_layers - 1 <= layer <= num_layers:
            raise UserError(f"--layers contains {layer}, but the model has layers 0 (the embeddings) to {num_layers}.")
    resolved = [layer % (num_layers + 1) for layer in layers]
    if len(set(resolved)) < len(resolved):
        raise UserError(f"--layers names a layer twice: of {num_layers} layers, {num_layers} and -1 are the same.")
    return resolved


def _schema(config: FeaturesConfig, layers: Sequence[int], hidden_size: int) -> pa.Schema:
    unit = [] if config.per == "text" else [pa.field("index", pa.int32()), pa.field(config.per, pa.string())]
    size = hidden_size * len(layers) if config.combine == "concat" else hidden_size
    names = [f"layer_{layer}" for layer in layers] if config.combine == "none" else ["vector"]
    vector = pa.list_(pa.float32() if config.dtype == "float32" else pa.float16(), size)
    return pa.schema([pa.field("text", pa.int64()), *unit, *(pa.field(name, vector) for name in names)])


def _whole_rows(rows: Sequence[SentenceRow]) -> list[np.ndarray]:
    """Return the positions of each row's own tokens, with [CLS] of a text's first row and [SEP] of its last."""
    positions = []
    for index, row in enumerate(rows):
        is_first = index == 0 or rows[index - 1].example != row.example
        is_last = index + 1 == len(rows) or rows[index + 1].example != row.example
        end = [len(row.row.input_ids) - 1] if is_last else []
        positions.append(np.array([*([0] if is_first else []), *row.token_positions, *end], dtype=np.int64))
    return positions


def _batches(rows: Sequence[SentenceRow], max_tokens: int) -> Iterator[list[int]]:
    """Yield batches of row indices, of similar length, with at most `max_tokens` tokens including padding."""
    batch: list[int] = []
    # Longest first, so that a batch's first row has the length that all are padded to.
    for index in sorted(range(len(rows)), key=lambda index: -len(rows[index].row.input_ids)):
        if batch and (len(batch) + 1) * len(rows[batch[0]].row.input_ids) > max_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
