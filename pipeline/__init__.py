"""Turn raw text into masked sentence pairs: pure functions, and the units of work that call them;
nothing imports torch.

Each stage's ``pipeline.py`` wires it together; the other files are rules. ``execution/`` runs units
of work and owns files and output directories. Below everything are the contracts: ``config`` (the
options), ``schemas`` (the columns), ``languages`` (their codes), ``seeding`` (all randomness) and
``errors``.

The names in ``__init__.pyi`` are the public API (see docs/api.md). They load on first use, so
importing this package is cheap.
"""

from typing import TYPE_CHECKING

from .lazy import lazy_names

if not TYPE_CHECKING:  # which reads the stub
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
