"""The configuration of ``clozeworks features``: one documented field an option.

This module imports no torch, so that ``--help`` is quick.
"""

from dataclasses import dataclass
from typing import Literal

from ...pipeline.config import check, option


@dataclass(frozen=True, kw_only=True)
class FeaturesConfig:
    """Which hidden states are taken, of what, and how they are computed."""

    layers: tuple[int, ...] = option(
        (-1,), "Which hidden states: 0 are the embeddings, 1 the first layer's, -1 the last one's, -2 those before it."
    )
    combine: Literal["none", "concat", "sum"] = option(
        "none", "Write a column for each layer, or one of all layers, one after the other or added up."
    )
    per: Literal["word", "token", "text"] = option(
        "token",
        "What has a vector: each word (that of its first token), each token, or each text (the mean of its tokens, "
        "[CLS] and [SEP] among them).",
    )
    format: Literal["auto", "text", "table", "columns"] = option(
        "auto",
        "What DATA is: a text a line, a table, or CoNLL columns; auto takes .txt for text, and for columns what has "
        "no table's suffix. A data set of the hub is a table.",
    )
    text: str | None = option(None, "Column of the text in a table; by default text or sentence.")
    max_length: int | None = option(
        None, "Longest row in tokens, longer texts are cut into windows; by default what the model has positions for."
    )
    batch_tokens: int = option(4096, "Number of tokens computed at once, padding included.")
    dtype: Literal["float32", "float16"] = option("float32", "Number format of the vectors in the file.")
    precision: Literal["auto", "fp32", "bf16"] = option(
        "fp32", "Number format of the matrix products; auto is bf16 on a GPU that has it, else fp32."
    )
    device: Literal["auto", "cpu", "cuda"] = option("auto", "Where to compute; auto takes a GPU if there is one.")

    def __post_init__(self) -> None:
        distinct = len(self.layers) > 0 and len(set(self.layers)) == len(self.layers)
        check(distinct, "layers", self.layers, "must be different numbers")
        check(self.max_length is None or self.max_length >= 3, "max_length", self.max_length, "must be at least 3")
        check(self.batch_tokens >= 1, "batch_tokens", self.batch_tokens, "must be at least 1")
