"""Hidden states of texts: of each word, token or text.

Shapes: B rows, L padded length, P positions read, U units (words, tokens or texts), S layers, D
hidden size.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from ...pipeline.errors import UserError
from ...pipeline.ragged import offsets_of, owners, places
from ..checkpoint import Checkpoint
from ..encoders.catalogue import make_encoder
from ..encoders.encoder import Encoder
from ..tasks.batches import Feature, make_batch
from ..tasks.sentence_rows import SentenceExample, SentenceRow, sentence_rows
from ..tokenizer import TextTokenizer
from ..training.device import autocast, find_device, pinned_attention, product_dtype, trim_memory
from ..training.transfers import fetch, one_behind, send
from .config import FeaturesConfig

Report = Callable[[int, int], None]
"""Called with the number of texts done, and of tokens computed since the last call."""


@dataclass(frozen=True, kw_only=True)
class Extractor:
    """An encoder, and which of its hidden states to extract."""

    config: FeaturesConfig
    tokenizer: TextTokenizer
    encoder: Encoder
    layers: list[int]
    max_length: int
    schema: pa.Schema

    @property
    def bytes_per_unit(self) -> int:
        """Bytes of a unit's vectors in fp32."""
        types = [field.type for field in self.schema]
        return sum(4 * kind.list_size for kind in types if pa.types.is_fixed_size_list(kind))

    def table(self, texts: Sequence[SentenceExample], first: int, report: Report) -> pa.Table:
        """Return the vectors of `texts`, numbered from `first`."""

        def report_share(share: float, num_tokens: int) -> None:
            report(first + int(share * len(texts)), num_tokens)

        rows = list(sentence_rows(texts, self.tokenizer, self.max_length))
        units = self._units(rows, texts)
        vectors_USD = self._vectors(rows, units, report_share)

        columns = [pa.array(units.text_U + first, pa.int64())]
        if self.config.per != "text":
            columns.append(pa.array(units.index_U, pa.int32()))
            columns.append(pa.array(units.names, pa.string()))
        for values_UD in self._combined(vectors_USD):
            columns.append(self._vector_column(values_UD))
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _vector_column(self, values_UD: np.ndarray) -> pa.FixedSizeListArray:
        # All columns of vectors have one type, and the last column is always one of them.
        vector_type = self.schema.field(-1).type
        number_type = vector_type.value_type.to_pandas_dtype()
        # Arrow keeps vectors of equal length as one flat array, which it can take over as it is; a
        # list of lists would make an object of each number.
        flat = np.ascontiguousarray(values_UD, dtype=number_type).reshape(-1)
        return pa.FixedSizeListArray.from_arrays(pa.array(flat), type=vector_type)

    def _units(
        self, rows: Sequence[SentenceRow], texts: Sequence[SentenceExample]
    ) -> "_UnitsOfTexts":
        names: list[str] = []
        match self.config.per:
            case "word":
                indices = [row.words for row in rows]
                positions = [row.word_positions for row in rows]
                lengths = [len(text.sentence.words) for text in texts]
                names = [word for text in texts for word in text.sentence.words]
            case "token":
                indices = [row.tokens for row in rows]
                positions = [row.token_positions for row in rows]
                lengths = [0] * len(texts)
                # A long text has several rows, but each of its tokens is read from one of them.
                for row in rows:
                    lengths[row.example] += len(row.tokens)
                    ids = row.row.input_ids[row.token_positions]
                    names.extend(self.tokenizer.token(token) for token in ids)
            case _:
                positions = _whole_rows(rows)
                # A text is the only unit in itself, number 0, wherever it is read.
                indices = [np.zeros_like(row_positions) for row_positions in positions]
                lengths = [1] * len(texts)
        return _UnitsOfTexts(rows, lengths, names, indices, positions)

    @torch.inference_mode()
    def _vectors(
        self,
        rows: Sequence[SentenceRow],
        units: "_UnitsOfTexts",
        report: Callable[[float, int], None],
    ) -> np.ndarray:
        """Return the mean hidden states (U, S, D), float32, of the positions of each unit."""
        num_units = len(units.text_U)
        device = next(self.encoder.parameters()).device
        sums_USD = torch.zeros(num_units, len(self.layers), self.encoder.config.hidden_size)
        num_done = 0

        def launch(chosen: list[int]) -> Callable[[], tuple[list[int], Tensor]]:
            batch_rows = [rows[index] for index in chosen]
            positions = [units.positions[index] for index in chosen]
            computed = fetch(self._read_states(batch_rows, positions, device))
            return lambda: (chosen, computed())

        launched = map(launch, _batches(rows, self.config.batch_tokens))
        for number, (chosen, states_PSD) in enumerate(one_behind(launched)):
            # Added up, as a unit may be read from several positions, and a text from several rows.
            unit_P = np.concatenate([units.units[index] for index in chosen])
            sums_USD.index_add_(0, torch.from_numpy(unit_P), states_PSD)

            num_done += len(chosen)
            trim_memory(device, number)
            num_tokens = sum(len(rows[index].row.input_ids) for index in chosen)
            report(num_done / len(rows), num_tokens)
        counts_U = np.bincount(np.concatenate(units.units), minlength=num_units)
        counts_U11 = torch.from_numpy(counts_U)[:, None, None]
        return sums_USD.div_(counts_U11).numpy()

    def _read_states(
        self, rows: Sequence[SentenceRow], positions: Sequence[np.ndarray], device: torch.device
    ) -> Tensor:
        """Return the states (P, S, D), fp32, at `positions` of each of the rows."""
        features = [Feature((row.row,), None, index) for index, row in enumerate(rows)]
        batch = make_batch(features).to(device)
        dtype = product_dtype(self.config.precision, device)
        with autocast(device, dtype), pinned_attention():
            states = self.encoder.hidden_states(*batch[:4], all_layers=True)
        # One row of the batch after the other: here positions 1 and 2 of row 0, and 1 of row 1.
        #
        #     row_P         0 0 1
        #     position_P    1 2 1
        lengths = [len(row_positions) for row_positions in positions]
        row_P = owners(lengths)
        at_row_P = send(torch.from_numpy(row_P), device)
        at_position_P = send(torch.from_numpy(np.concatenate(positions)), device)
        # Only what is read leaves the GPU.
        read_states = []
        for layer in self.layers:
            layer_PD = states[layer][at_row_P, at_position_P]
            read_states.append(layer_PD.float())
        return torch.stack(read_states, 1)

    def _combined(self, vectors_USD: np.ndarray) -> list[np.ndarray]:
        match self.config.combine:
            case "concat":
                return [vectors_USD.reshape(len(vectors_USD), -1)]
            case "sum":
                return [vectors_USD.sum(1)]
            case _:
                return list(vectors_USD.transpose(1, 0, 2))


class _UnitsOfTexts:
    """The words, tokens or texts that get a vector, and the positions it is the mean of."""

    # Two texts, in words, and as wholes:
    #
    #     row                [CLS] cats pur ##r [SEP]      [CLS] dogs [SEP]
    #     per word
    #       positions               1    2                        1
    #       units                   0    1                        2
    #     per text
    #       positions          0    1    2   3    4          0    1    2
    #       units              0    0    0   0    0          1    1    1

    def __init__(
        self,
        rows: Sequence[SentenceRow],
        lengths: Sequence[int],
        names: list[str],
        indices: Sequence[np.ndarray],
        positions: list[np.ndarray],
    ):
        # Texts of 2 and 1 words:   lengths 2 1   starts 0 2 3   text_U 0 0 1   index_U 0 1 0
        starts = offsets_of(lengths)
        self.text_U = owners(lengths)
        """Number of each unit's text."""
        self.index_U = places(lengths)
        """Number of each unit in its text."""
        self.names = names
        """The words or tokens; empty for texts."""
        self.positions = positions
        """Those read from each row."""
        self.units = [
            starts[row.example] + index_in_text
            for row, index_in_text in zip(rows, indices, strict=True)
        ]
        """The unit of each of these positions."""


def make_extractor(checkpoint: Checkpoint, config: FeaturesConfig) -> Extractor:
    """Load the encoder and its tokenizer onto the device.

    Raises `UserError` for layers it does not have.
    """
    shape = checkpoint.shape
    max_length = config.max_length or checkpoint.trained_length()
    tokenizer = checkpoint.text_tokenizer(max_length)
    layers = resolve_layers(config.layers, shape.num_hidden_layers)
    encoder = make_encoder(shape)
    # Its name in a whole model gives the weights the names of the checkpoint. No hidden state
    # depends on the pooler, which checkpoints of some tasks lack.
    whole = nn.ModuleDict({encoder.prefix: encoder})
    checkpoint.load_into(whole, new=encoder.optional_weights)
    device = find_device(config.device)
    return Extractor(
        config=config,
        tokenizer=tokenizer,
        encoder=encoder.to(device).eval(),
        layers=layers,
        max_length=max_length,
        schema=_schema(config, layers, shape.hidden_size),
    )


def resolve_layers(layers: Sequence[int], num_layers: int) -> list[int]:
    """Return layers as indices, 0 being the embeddings; -1 is the last layer, -2 the one before.

    >>> resolve_layers([-1, -2, 0], 12)
    [12, 11, 0]
    """
    for layer in layers:
        if not -num_layers - 1 <= layer <= num_layers:
            raise UserError(
                f"`layers` contains {layer}, but the model has layers 0 (the embeddings) to "
                f"{num_layers}."
            )
    # The embeddings and 12 layers are 13 states: -1 % 13 is 12.
    resolved = [layer % (num_layers + 1) for layer in layers]
    if len(set(resolved)) < len(resolved):
        raise UserError(
            f"`layers` names a layer twice: of {num_layers} layers, {num_layers} and -1 are the "
            "same."
        )
    return resolved


def _schema(config: FeaturesConfig, layers: Sequence[int], hidden_size: int) -> pa.Schema:
    fields = [pa.field("text", pa.int64())]
    if config.per != "text":
        fields.append(pa.field("index", pa.int32()))
        fields.append(pa.field(config.per, pa.string()))
    number = pa.float32()
    if config.dtype == "float16":
        number = pa.float16()
    match config.combine:
        case "none":
            vector = pa.list_(number, hidden_size)
            fields.extend(pa.field(f"layer_{layer}", vector) for layer in layers)
        case "concat":
            fields.append(pa.field("vector", pa.list_(number, hidden_size * len(layers))))
        case _:
            fields.append(pa.field("vector", pa.list_(number, hidden_size)))
    return pa.schema(fields)


def _whole_rows(rows: Sequence[SentenceRow]) -> list[np.ndarray]:
    """Return the positions of the tokens read from each row, with [CLS] of a text's first row and
    [SEP] of its last.
    """
    # Two rows of text 0 and one of text 1; each text gets one [CLS] and one [SEP]:
    #
    #     row.example     0      0      1
    #     before        None     0      0
    #     after           0      1    None
    #     read          [CLS]  [SEP]   both
    examples = [None, *(row.example for row in rows), None]
    all_positions = []
    for row, before, after in zip(rows, examples[:-2], examples[2:], strict=True):
        positions = row.token_positions.tolist()
        if before != row.example:
            positions.insert(0, 0)
        if after != row.example:
            last_position = len(row.row.input_ids) - 1
            positions.append(last_position)
        all_positions.append(np.array(positions, dtype=np.int64))
    return all_positions


def _batches(rows: Sequence[SentenceRow], max_tokens: int) -> Iterator[list[int]]:
    """Yield batches of row indices, of similar length, with at most `max_tokens` tokens including
    padding.
    """
    lengths = [len(row.row.input_ids) for row in rows]
    # Longest first, so a batch's first row has the length that all are padded to; and a batch that
    # does not fit into memory fails early.
    by_length = sorted(range(len(rows)), key=lambda index: -lengths[index])
    first = 0
    while first < len(by_length):
        num_rows = max(1, max_tokens // lengths[by_length[first]])
        yield by_length[first : first + num_rows]
        first += num_rows
