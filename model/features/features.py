"""Write hidden states of a frozen encoder to Parquet: a vector for each word, token or text.

The file has one row per vector, in the order of the data:

text       int64    number of the text, from 0: the line, or the row of the table
index      int32    number of the word or token in its text, from 0 (not if `per` is text)
word       string   the word, or the token in a column ``token`` (not if `per` is text)
layer_12   fixed_size_list<float32>, the hidden state, one column per layer; 0 is the
           embeddings

Shapes: B rows of a batch, L their padded length, V layers, P vectors, D hidden size.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor, nn

from ...pipeline.config import identity_fields
from ...pipeline.errors import UserError
from ...pipeline.manifests import SCHEMA_VERSION, VERSION_KEY
from ...pipeline.ragged import offsets_of, owners, places
from ...pipeline.storage.directory import write_file
from ..checkpoint import Checkpoint, files_digest
from ..copies import local_copy, refuse_remote
from ..encoders.catalogue import make_encoder
from ..encoders.encoder import Encoder, UnsetWeights
from ..notices import print_notice
from ..tasks.batches import Feature, TaskBatch, filled, make_batch, num_cut
from ..tasks.classify import TEXT_COLUMNS
from ..tasks.example_tables import SUFFIXES, is_hub, lines_of, read_rows
from ..tasks.tagged import split_words
from ..tokenizer import TextTokenizer, TokenRow
from ..training.device import find_device, oom_as_run_error, trim_memory
from ..training.graphs import make_inference, widths_of
from ..training.logs import ProgressCallback
from .config import FeaturesConfig


def extract_features(
    checkpoint: str | Path,
    data: str | Path,
    output: str | Path,
    config: FeaturesConfig,
    progress: ProgressCallback | None = None,
    *,
    overwrite: bool = False,
    texts_at_once: int = 1000,
) -> dict[str, int]:
    """Write the hidden states of the texts in `data` (plain text with one a line, a table, or a
    data set of the Hub) to the Parquet file `output`; return the numbers of ``texts`` and
    ``vectors``.

    `progress` is called with ``stage``, ``step`` and ``steps`` (texts). A row group has the vectors
    of `texts_at_once`, which bounds the memory. Raises `UserError` for bad input.
    """
    output = Path(output)
    if output.resolve() == Path(data).resolve():
        raise UserError(f"`output` is the data itself ({output}); give another file.")
    refuse_remote(output)
    if output.exists() and not overwrite:
        raise UserError(
            f"{output} exists. Choose another `output`, or replace it with `overwrite`."
        )
    data = local_copy(data)
    # Read once more below, as they may not fit into memory. Counted first: mistakes in them are
    # reported before a model is loaded.
    num_texts = sum(1 for _ in read_texts(data, config))
    if not num_texts:
        raise UserError(f"{data} contains no texts.")
    opened = Checkpoint.open(checkpoint)
    extractor = Extractor(opened, config)
    digest = None if is_hub(data) else files_digest([data])
    made_from = {"data": digest, "checkpoint": opened.digest(), **identity_fields(config)}
    footer = {b"clozeworks": json.dumps(made_from).encode(), VERSION_KEY: str(SCHEMA_VERSION)}
    schema = extractor.table([], 0).schema.with_metadata(footer)
    # A dictionary of words saves space; hidden states hardly repeat.
    words: Any = {"use_dictionary": ["word", "token"], "write_page_checksum": True}
    with (
        write_file(str(output)) as file,
        pq.ParquetWriter(file, schema, compression="zstd", **words) as writer,
        oom_as_run_error("max_length"),
    ):
        texts = read_texts(data, config)
        num_done = 0
        while part := list(islice(texts, texts_at_once)):
            writer.write_table(extractor.table(part, num_done))
            num_done += len(part)
            if progress:
                progress({"stage": "features", "step": num_done, "steps": num_texts})
    if notice := extractor.tokenizer.unknown_notice():
        print_notice(notice)
    if extractor.num_cut:
        print_notice(
            f"Cut {extractor.num_cut:,} of {num_texts:,} texts to {extractor.max_length} "
            "tokens; `max_length` takes more, up to the model's."
        )
    return {"texts": num_texts, "vectors": pq.read_metadata(output).num_rows}


def read_texts(data: Path, config: FeaturesConfig) -> Iterator[str]:
    """Yield the texts of a text file, a table or a data set of the Hub, in order."""
    if is_hub(data) or data.suffix.lower() in SUFFIXES:
        for row in read_rows(data):
            yield row.text(*([config.text] if config.text else TEXT_COLUMNS))
        return
    if config.text:
        raise UserError(f"`text` is for tables, but {data} is read as text; leave it out.")
    for _, line in lines_of(data):
        yield line


class Extractor:
    """An encoder on its device, and which hidden states to extract, of `batch_tokens` at once."""

    def __init__(
        self, checkpoint: Checkpoint, config: FeaturesConfig, batch_tokens: int = 4096
    ) -> None:
        self.config = config
        self.batch_tokens = batch_tokens
        self.max_length = config.max_length or checkpoint.trained_length()
        self.tokenizer: TextTokenizer = checkpoint.text_tokenizer(self.max_length)
        self.layers = resolve_layers(config.layers, checkpoint.shape.num_hidden_layers)
        self.num_cut = 0
        """Texts that were longer than a row."""
        with UnsetWeights():
            encoder = make_encoder(checkpoint.shape)
        # Its name in a whole model gives the weights the names of the checkpoint. No hidden state
        # depends on the pooler, which checkpoints of some tasks lack.
        whole = nn.ModuleDict({encoder.prefix: encoder})
        checkpoint.load_into(whole, new=encoder.optional_weights)
        device = find_device(config.device)
        self.encoder: Encoder = encoder.to(device).eval()
        self.inference = make_inference(device, config.precision)

    def table(self, texts: Sequence[str], first: int) -> pa.Table:
        """Return the vectors of `texts`, numbered from `first`."""
        features: list[Feature] = []
        names: list[str] = []
        num_vectors: list[int] = []
        for index, token_ids in enumerate(self.tokenizer.token_ids(texts)):
            row, own_names, positions = self._read(texts[index], token_ids)
            features.append(Feature(row, None, index, positions))
            names += own_names
            num_vectors.append(len(own_names))
        self.num_cut += num_cut(features)
        columns = {"text": pa.array(owners(num_vectors) + first, pa.int64())}
        if self.config.per != "text":
            columns["index"] = pa.array(places(num_vectors), pa.int32())
            columns[self.config.per] = pa.array(names, pa.string())
        vectors_VPD = self._vectors(features, offsets_of(num_vectors))
        for layer, vectors_PD in zip(self.layers, vectors_VPD, strict=True):
            # Arrow takes vectors of equal length over as one flat array.
            flat = pa.array(vectors_PD.reshape(-1))
            size = self.encoder.config.hidden_size
            columns[f"layer_{layer}"] = pa.FixedSizeListArray.from_arrays(flat, size)
        return pa.table(columns)

    def _read(self, text: str, token_ids: list[int]) -> tuple[TokenRow, list[str], np.ndarray]:
        """Return a text as a row, its words or tokens, and where each of them begins, int64; of the
        text as a whole one empty name, and all positions.
        """
        tokenizer = self.tokenizer
        names = [""]
        pieces = [[token] for token in token_ids]
        if self.config.per == "word":
            names = list(split_words(text).words)
            pieces = tokenizer.word_ids(names, [True] * len(names))
            # A word of control characters alone has no tokens, but needs one to be read from.
            pieces = [piece or [tokenizer.unknown] for piece in pieces]
        elif self.config.per == "token":
            names = [tokenizer.token(token) for token in token_ids]
        row = tokenizer.row(list(chain.from_iterable(pieces)), None, self.max_length)
        num_tokens = len(row.input_ids)
        if self.config.per == "text":
            return row, names, np.arange(num_tokens)
        # After [CLS]; what begins beyond the row's end is cut.
        positions = 1 + offsets_of(list(map(len, pieces)))[:-1]
        positions = positions[positions < num_tokens - 1]
        return row, names[: len(positions)], positions

    @torch.inference_mode()
    def _vectors(self, features: list[Feature], offsets: np.ndarray) -> np.ndarray:
        """Return the vectors (V, P, D): those of feature ``i`` from ``offsets[i]`` on."""
        hidden_size = self.encoder.config.hidden_size
        vectors_VPD = np.empty((len(self.layers), offsets[-1], hidden_size), np.float32)
        lengths = [feature.length for feature in features]
        # Longest first: a batch that does not fit into memory fails early.
        order = np.argsort(lengths, kind="stable")[::-1]
        widths = widths_of(self.inference.graphs, self.encoder.config.num_positions)
        start = 0
        while start < len(order):
            width = filled(lengths[order[start]], widths)
            num_rows = max(1, self.batch_tokens // width)
            chosen = order[start : start + num_rows]
            start += num_rows
            batch = make_batch([features[index] for index in chosen], widths)
            states_BVLD = self.inference.run(self._states, batch)
            for index, states_VLD in zip(chosen, states_BVLD.cpu().numpy(), strict=True):
                read_VPD = states_VLD[:, features[index].context]
                if self.config.per == "text":
                    read_VPD = read_VPD.mean(1, keepdims=True)
                first, end = offsets[index : index + 2]
                vectors_VPD[:, first:end] = read_VPD
            trim_memory(self.inference.device, start)
        return vectors_VPD

    def _states(self, batch: TaskBatch) -> Tensor:
        states = self.encoder.hidden_states(*batch[:4], all_layers=True)
        return torch.stack([states[layer] for layer in self.layers], 1).float()


def resolve_layers(layers: Sequence[int], num_layers: int) -> list[int]:
    """Return layers as indices, 0 being the embeddings; -1 is the last layer, -2 the one before."""
    for layer in layers:
        if not -num_layers - 1 <= layer <= num_layers:
            raise UserError(
                f"`layers` contains {layer}, but the model has layers 0 (the embeddings) to "
                f"{num_layers}."
            )
    # The embeddings and 12 layers are 13 states: -1 % 13 is 12.
    resolved = [layer % (num_layers + 1) for layer in layers]
    if len(set(resolved)) < len(resolved):
        named = ", ".join(map(str, layers))
        raise UserError(f"`layers` {named} names a layer twice; the last one, {num_layers}, is -1.")
    return resolved
