"""The shape of a ModernBERT, and both forms of its ``config.json``."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from msgspec import Meta, Struct

from ...pipeline.config import Count, NotNegative, Share, check
from ...pipeline.errors import UserError
from ...pipeline.parsing import convert
from .config import SIZES, EncoderConfig, TokenId

if TYPE_CHECKING:
    import numpy as np

ETTIN_SIZES = {
    "ettin-17m": (7, 256, 4),
    "ettin-32m": (10, 384, 6),
    "ettin-68m": (19, 512, 8),
}
"""Deep and narrow ones, with ModernBERT-base's proportions in each layer (arXiv 2507.11412, and the
authors' training configurations, JHU-CLSP/ettin-encoder-vs-decoder). Ettin's 150m and 400m are base
and large.
"""
MODERNBERT_SIZES = {
    **{name: SIZES[name] for name in ("tiny", "mini", "small", "medium")},
    "base": (22, 768, 12),
    "large": (28, 1024, 16),
    **ETTIN_SIZES,
}
"""Base and large are ModernBERT's own (arXiv 2412.13663, table 3), those up to medium BERT's."""
SHORT_ROWS = 1024
"""Tokens of rows up to which a new ModernBERT has one base frequency in all layers; a larger one in
those that attend to whole rows if a run extends it beyond them.
"""
Base = Annotated[float, Meta(ge=1)]
GLOBAL = "full_attention"
LOCAL = "sliding_attention"


@dataclass(frozen=True, kw_only=True)
class ModernBertConfig(EncoderConfig):
    """The shape of a ModernBERT, with the names of ``transformers.ModernBertConfig`` before its
    version 5 and ModernBERT-base's defaults.

    Sizes that are not ModernBERT's own get a feed-forward part with as many weights as BERT's: its
    three matrices are 8/3 times as wide as the hidden size, to the nearest multiple of 64; narrower
    ones get initial weights whose products are as large as in ModernBERT-base.

    >>> mini = ModernBertConfig.named("mini")
    >>> mini.intermediate_size, mini.initializer_range
    (704, 0.0346)
    """

    model_type: ClassVar[str] = "modernbert"
    title: ClassVar[str] = "ModernBERT"
    hf_prefix: ClassVar[str] = "ModernBert"
    objectives: ClassVar[tuple[str, ...]] = ("mlm",)
    default_dropout: ClassVar[float] = 0.0
    dropout_fields: ClassVar[tuple[str, ...]] = (
        "embedding_dropout",
        "attention_dropout",
        "mlp_dropout",
        "classifier_dropout",
    )
    # It has no segments: without this, `transformers` passes token types that the model refuses.
    tokenizer_settings: ClassVar[Mapping[str, Any]] = {
        "model_input_names": ["input_ids", "attention_mask"]
    }
    # No published one differs.
    fixed: ClassVar[Mapping[str, Any]] = {
        "attention_bias": False,
        "mlp_bias": False,
        "norm_bias": False,
        "classifier_bias": False,
        "decoder_bias": True,
        "tie_word_embeddings": True,
        "classifier_activation": "gelu",
    }
    sizes: ClassVar[Mapping[str, tuple[int, int, int]]] = MODERNBERT_SIZES
    vocab_size: Count = 50368
    num_hidden_layers: Count = 22
    intermediate_size: Count = 1152
    """The size of the values and, once more, of their gates."""
    max_position_embeddings: Count = 8192
    """Tokens of the longest rows it is meant for; no weight depends on it."""
    hidden_activation: str = "gelu"
    global_attn_every_n_layers: Count = 3
    """Of this many layers the first attends to whole rows, the others within a window."""
    local_attention: Count = 128
    """Tokens of a window, half of them on either side."""
    global_rope_theta: Base = 160_000.0
    """Base frequency of the rotary positions in layers that attend to whole rows."""
    local_rope_theta: Base = 10_000.0
    """The same in those that attend within a window."""
    embedding_dropout: Share = 0.0
    attention_dropout: Share = 0.0
    mlp_dropout: Share = 0.0
    classifier_dropout: Share = 0.0
    classifier_pooling: str = "cls"
    """What a row is classified by: the state of its first token (cls; as ``transformers`` has it,
    where a file does not say), or the mean of all.
    """
    norm_eps: NotNegative = 1e-5
    pad_token_id: TokenId = 50283
    cls_token_id: TokenId = 50281
    sep_token_id: TokenId = 50282

    def __post_init__(self) -> None:
        super().__post_init__()
        activation = self.hidden_activation
        check(activation == "gelu", "hidden_activation", activation, "only gelu is known")
        pooling = self.classifier_pooling
        check(pooling in ("cls", "mean"), "classifier_pooling", pooling, "must be cls or mean")
        if self.hidden_size // self.num_attention_heads % 2:
            raise UserError(
                f"A hidden size of {self.hidden_size} gives {self.num_attention_heads} attention "
                "heads an odd size, but rotary positions turn pairs of numbers; make it even."
            )

    @property
    def classifier_sigma(self) -> float:
        return self.hidden_size**-0.5

    @property
    def classifier_rate(self) -> float:
        return self.classifier_dropout

    @property
    def span_rate(self) -> float:
        return self.classifier_dropout

    def is_global(self, layer: int) -> bool:
        """Return whether the layer with this index attends to whole rows."""
        return layer % self.global_attn_every_n_layers == 0

    def window(self, layer: int) -> int | None:
        """Return how many tokens away a layer attends to, on either side; None for whole rows."""
        return None if self.is_global(layer) else self.local_attention // 2

    @property
    def windows(self) -> tuple[int | None, ...]:
        return tuple({self.window(layer): None for layer in range(self.num_hidden_layers)})

    def rope_theta(self, layer: int) -> float:
        """Return the base frequency of a layer's rotary positions."""
        return self.global_rope_theta if self.is_global(layer) else self.local_rope_theta

    def num_parameters(self) -> int:
        hidden = self.hidden_size
        layer = 4 * hidden**2 + 3 * hidden * self.intermediate_size + 2 * hidden
        # The first layer has one LayerNorm less, but there is one after the last, and one after
        # the embeddings.
        return hidden * (self.vocab_size + 1) + self.num_hidden_layers * layer

    def encoder_flops(self, lengths: "np.ndarray") -> float:
        hidden = self.hidden_size
        # Queries, keys, values and output; then values, gates and output of the feed-forward part.
        projections_per_token = 8 * hidden**2 + 6 * hidden * self.intermediate_size
        flops = float(self.num_hidden_layers * projections_per_token * lengths.sum())
        for layer in range(self.num_hidden_layers):
            flops += 4 * hidden * self._num_attended(lengths, self.window(layer))
        return flops

    def activation_bytes(self) -> float:
        # Two bytes each: queries, keys, values, attention's output, the states after each product
        # and LayerNorm; values and gates, and their product. The input is fp32.
        layer = 18 * self.hidden_size + 6 * self.intermediate_size
        return self.num_hidden_layers * layer + self.logit_bytes()

    @staticmethod
    def _num_attended(lengths: "np.ndarray", window: int | None) -> float:
        """Return how many pairs of a query and a key there are in rows of these lengths."""
        lengths = lengths.astype(float)
        if window is None:
            return float((lengths**2).sum())
        # A token sees itself and `window` others on either side, of which those near an end lack
        # 1 + 2 + ... + reach.
        reach = lengths.clip(max=window + 1) - 1
        missing = reach * (reach + 1)
        return float((lengths * (2 * reach + 1) - missing).sum())

    @classmethod
    def _fields_by_size(cls, size: str, shape: Mapping[str, Any]) -> dict[str, Any]:
        hidden = shape["hidden_size"]
        if size in ETTIN_SIZES:
            intermediate = 3 * hidden // 2
        else:
            by_weights = max(64, 64 * round(hidden * 8 / 3 / 64))
            # ModernBERT itself has its own for its two hidden sizes.
            intermediate = {768: 1152, 1024: 2624}.get(hidden, by_weights)
        fields = {
            **super()._fields_by_size(size, shape),
            "intermediate_size": intermediate,
            # As in the published ones: masked words alone teach the first token nothing about its
            # row.
            "classifier_pooling": "mean",
        }
        # ModernBERT itself was trained with 10,000 on rows of 1,024 tokens, then extended to 8,192.
        if shape.get("max_position_embeddings", cls.max_position_embeddings) <= SHORT_ROWS:
            fields["global_rope_theta"] = cls.local_rope_theta
        return fields

    def with_positions(self, num_positions: int) -> Self:
        """See `EncoderConfig`; beyond `SHORT_ROWS` with the base frequency of a new one."""
        longer = super().with_positions(num_positions)
        if self.max_position_embeddings <= SHORT_ROWS < num_positions:
            return replace(longer, global_rope_theta=type(self).global_rope_theta)
        return longer

    @classmethod
    def from_hf(cls, values: dict[str, Any], path: object = "config.json") -> Self:
        """See `EncoderConfig`; the form before version 5 of ``transformers`` is read too."""
        return super().from_hf({**values, **_old_form(values, path)}, path)

    def to_hf(self, architecture: str | None = None) -> dict[str, Any]:
        """Return the content of ``config.json``, which version 4 and 5 of ``transformers`` read."""
        return {
            **super().to_hf(architecture),
            "bos_token_id": self.cls_token_id,
            "eos_token_id": self.sep_token_id,
            # Version 5 reads these instead of the old names, which it leaves alone.
            "layer_types": _layer_types(self.num_hidden_layers, self.global_attn_every_n_layers),
            "rope_parameters": {
                GLOBAL: {"rope_type": "default", "rope_theta": self.global_rope_theta},
                LOCAL: {"rope_type": "default", "rope_theta": self.local_rope_theta},
            },
        }


def _layer_types(num_layers: int, every: int) -> list[str]:
    return [LOCAL if layer % every else GLOBAL for layer in range(num_layers)]


class _Rope(Struct):
    rope_type: str = "default"
    rope_theta: float | None = None


class _NewForm(Struct):
    layer_types: list[str] | None = None
    rope_parameters: dict[str, _Rope | None] | None = None


def _old_form(values: Mapping[str, Any], path: object) -> dict[str, Any]:
    """Return the fields before version 5 for those of version 5 in `values`."""
    # Version 5                                       before
    # layer_types: [full, sliding, sliding, full]     global_attn_every_n_layers: 3
    # rope_parameters: {full: {rope_theta: 160000}}   global_rope_theta: 160000
    new = convert(values, _NewForm, path, "Use another checkpoint.")
    fields: dict[str, Any] = {}
    if new.layer_types:
        num_layers = len(new.layer_types)
        globals_ = [index for index, kind in enumerate(new.layer_types) if kind == GLOBAL]
        every = globals_[1] if len(globals_) > 1 else num_layers
        # One or two layers of a period of three do not show it: the old field does.
        given = values.get("global_attn_every_n_layers")
        if isinstance(given, int) and given >= num_layers == every:
            every = given
        if new.layer_types != _layer_types(num_layers, every):
            raise UserError(
                f"{path}: layer_types does not alternate between full_attention and "
                "sliding_attention in a fixed period, beginning with full_attention; only that is "
                "read."
            )
        fields["global_attn_every_n_layers"] = every
    for kind, name in ((GLOBAL, "global_rope_theta"), (LOCAL, "local_rope_theta")):
        rope = (new.rope_parameters or {}).get(kind)
        if rope is None:
            continue
        if rope.rope_type != "default":
            raise UserError(f"{path}: rope_type is {rope.rope_type!r}, but only 'default' is read.")
        if rope.rope_theta is not None:
            fields[name] = rope.rope_theta
    # A file before version 5 may leave the local base frequency to the global one.
    if "local_rope_theta" in values and values["local_rope_theta"] is None:
        fields.setdefault("local_rope_theta", values.get("global_rope_theta", 160_000.0))
    return fields
