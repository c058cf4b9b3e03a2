"""What every encoder has, and all that others see of it: rows in, hidden states out, in padded or
packed layout. Packed tokens may lie in blocks, so that the compiler knows a factor of their number.

Tensor names end in their shape: B rows, L padded length, T tokens computed (the real ones, or B *
L), G blocks of N packed tokens, D hidden size.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from .attention import PackedRows, PaddedRows, computed_length
from .config import EncoderConfig


class Encoder(nn.Module, ABC):
    """An encoder; parameter names and results as in ``transformers``."""

    prefix: ClassVar[str]
    """Name of the encoder in a model with a head, and so before its weights' names."""
    optional_modules: ClassVar[tuple[str, ...]] = ()
    """Names of modules that checkpoints may lack, because no hidden state depends on them."""
    span_layer: ClassVar[str]
    """Name of the last layer of ``transformers``' model for questions on this encoder."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.config = config

    @property
    @abstractmethod
    def word_embeddings(self) -> nn.Embedding:
        """The table of the vocabulary."""

    @property
    @abstractmethod
    def parts(self) -> Iterable[nn.Module]:
        """The modules that run one after the other, to be compiled one by one."""

    @abstractmethod
    def compute_states(
        self, tokens: Tensor, types: Tensor, positions: Tensor, layout: PaddedRows | PackedRows
    ) -> list[Tensor]:
        """Return the states (..., D) of the embeddings and after each layer, the last as heads take
        it; tokens are (T,), or in blocks (G, N).
        """

    @abstractmethod
    def pool(self, states_BLD: Tensor, mask_BL: Tensor | None) -> Tensor:
        """Return a vector for each row (B, D) from its last states; `mask_BL` is True at tokens."""

    def task_head(self) -> nn.Module:
        """Return new layers before a task's last layer; BERT's are in its pooler."""
        return nn.Identity()

    def row_classifier(self, num_outputs: int) -> nn.Module:
        """Return a new last layer of a task that classifies rows."""
        return linear(self.config.hidden_size, num_outputs, self.config.classifier_sigma)

    def forward(self, input_ids_BL: Tensor, *others: Tensor | None) -> Tensor:
        """Return the last hidden states (B, L, D); the arguments are those of `hidden_states`."""
        (last_BLD,) = self.hidden_states(input_ids_BL, *others)
        return last_BLD

    def hidden_states(
        self,
        input_ids_BL: Tensor,
        token_type_ids_BL: Tensor | None = None,
        attention_mask_BL: Tensor | None = None,
        token_index_T: Tensor | None = None,
        *,
        all_layers: bool = False,
    ) -> list[Tensor]:
        """Return the hidden states (B, L, D) of the last layer; if `all_layers`, of the embeddings
        and each layer. Rows are padded on the right; `attention_mask_BL` is True at real tokens.
        With `token_index_T` (see `real_tokens`) padding is not computed, and its states are 0.
        """
        num_rows, max_length = input_ids_BL.shape
        if token_type_ids_BL is None:
            token_type_ids_BL = torch.zeros_like(input_ids_BL)
        key_mask_B11L = None
        if attention_mask_BL is not None:
            key_mask_B11L = attention_mask_BL.bool()[:, None, None, :]
        positions_L = torch.arange(max_length, device=input_ids_BL.device)
        positions_BL = positions_L.expand(num_rows, max_length)

        layout = PaddedRows(
            num_rows, max_length, token_index_T, key_mask_B11L, self.config.is_decoder
        )
        # Packed once, before the embeddings; then only attention unpacks and packs again.
        length = 0 if token_index_T is None else computed_length(token_index_T)
        states = self.compute_states(
            layout.pack(input_ids_BL.reshape(-1), length),
            layout.pack(token_type_ids_BL.reshape(-1), length),
            layout.pack(positions_BL.reshape(-1), length),
            layout,
        )
        wanted = states if all_layers else states[-1:]
        return [layout.unpack(state_TD).view(num_rows, max_length, -1) for state_TD in wanted]

    def packed_states(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor,
        position_ids: Tensor,
        row_starts: Tensor,
        max_length: int,
    ) -> Tensor:
        """Return the last states (T, D) of rows as in `PackedRows`; tokens are (T,), or (G, N)."""
        layout = PackedRows(row_starts, max_length, self.config.is_decoder)
        states = self.compute_states(input_ids, token_type_ids, position_ids, layout)
        return states[-1].flatten(0, -2)

    def compile_parts(self, **options: Any) -> None:
        """Compile each of `parts` by itself; `options` are those of ``torch.compile``."""
        # Layers of a kind share one graph, so compiling takes as long for 24 layers as for 2, and a
        # layer's gradients can be sent to other ranks before the next layer's are known.
        for part in self.parts:
            # Batches differ in their number of tokens: a graph for the first one's would be
            # compiled again at once.
            part.compile(dynamic=True, **options)

    @property
    def optional_weights(self) -> tuple[str, ...]:
        """Prefixes of the weights of `optional_modules`, in a model with a head."""
        return tuple(f"{self.prefix}.{name}." for name in self.optional_modules)


def real_tokens(attention_mask_BL: Tensor) -> Tensor:
    """Return the flat indices of the real tokens (T,), int64; on a GPU this waits for it.

    >>> real_tokens(torch.tensor([[1, 1, 0], [1, 1, 1]]))
    tensor([0, 1, 3, 4, 5])
    """
    # The result's size depends on its values, which the CPU must know before it goes on.
    return attention_mask_BL.reshape(-1).nonzero().squeeze(1)


def linear(num_inputs: int, num_outputs: int, sigma: float, *, bias: bool = True) -> nn.Linear:
    """Return a linear layer whose initial weights have a standard deviation of their own."""
    layer = nn.Linear(num_inputs, num_outputs, bias=bias)
    layer.initial_sigma = sigma  # pyright: ignore[reportArgumentType]
    return layer


class UnsetWeights(TorchFunctionMode):
    """Makes modules whose weights are then read: drawing them takes half a second for `base`."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.__name__ in ("kaiming_uniform_", "normal_", "uniform_"):
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


def initialise(model: nn.Module, config: EncoderConfig, generator: torch.Generator) -> None:
    """Draw all weights in the order of the modules, as google-research's BERT does: normal, cut off
    at 2 sigma, the configuration's unless the module has its own (`linear`); biases are 0,
    LayerNorm's weights 1. Other modules stay as PyTorch makes them.
    """
    # One generator in one order: a seed makes the same model on every machine. The padding's
    # embedding is drawn like the others, as in google-research's.
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            sigma = getattr(module, "initial_sigma", config.initializer_range)
            nn.init.trunc_normal_(
                module.weight, std=sigma, a=-2 * sigma, b=2 * sigma, generator=generator
            )
        if isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
        if isinstance(module, nn.Linear | nn.LayerNorm) and module.bias is not None:
            nn.init.zeros_(module.bias)
