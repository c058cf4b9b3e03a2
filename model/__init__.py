"""The encoder, pre-training, fine-tuning and evaluation, in plain PyTorch, without Beam.

The names in ``__init__.pyi`` are the public API (see docs/api.md). They load on first use, so
importing this package is cheap.
"""

from typing import TYPE_CHECKING

from ..pipeline.lazy import lazy_names

if not TYPE_CHECKING:  # which reads the stub
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
