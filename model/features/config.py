"""The configuration of ``clozeworks features``, without an import of torch: ``--help`` is fast."""

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from ...pipeline.config import check, check_ranges, option
from ..config import Device, device_option


@dataclass(frozen=True, kw_only=True)
class FeaturesConfig:
    """Which hidden states are extracted, of what, and how they are computed."""

    layers: tuple[int, ...] = option(
        (-1,),
        "Hidden states to extract: 0 is the embeddings, 1 the first layer, -1 the last, -2 the "
        "one before it.",
    )
    per: Literal["word", "token", "text"] = option(
        "token",
        "Write one vector per word (its first token's), per token, or per text (the mean of its "
        "tokens, including [CLS] and [SEP]).",
    )
    text: str | None = option(
        None, "Column of the text in a table; the default is text or sentence."
    )
    # [CLS], a token and [SEP].
    max_length: Annotated[int, Meta(ge=3)] | None = option(
        None,
        "Longest row in tokens; longer texts are cut. The default is the length used in "
        "pre-training.",
    )
    precision: Literal["auto", "fp32", "bf16"] = option(
        "fp32",
        "Number format of matrix products; auto is bf16 on a GPU that supports it, fp16 on a V100 "
        "or T4, else fp32.",
        group="Hardware",
    )
    device: Device = device_option("compute on")

    def __post_init__(self) -> None:
        check(len(self.layers) > 0, "layers", self.layers, "must name a layer")
        check_ranges(self)
