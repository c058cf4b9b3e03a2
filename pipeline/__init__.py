"""From raw text to masked sentence pairs: pure functions, and the units of work that call them; nothing imports torch.

Each stage's ``pipeline.py`` wires it together; the other files are rules. ``execution/`` runs units of work and owns
files and output directories. Below everything are the contracts: ``config`` (the options), ``schemas`` (the columns),
``languages`` (their codes), ``seeding`` (all randomness) and ``errors``.

The names below are the public API (see docs/api.md). They load on first use, so importing this package is cheap.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .audit.checks import audit
    from .audit.verdict import Audit
    from .build.pipeline import build
    from .config import BuildConfig, IngestConfig, RunOptions, VocabConfig
    from .errors import UserError
    from .execution.counters import Counters
    from .ingest.pipeline import ingest
    from .sources.documents import read_documents, read_documents_transform
    from .sources.records import RawDocument
    from .vocab.pipeline import learn_vocabulary
    from .vocab.vocabulary import Vocabulary, read_vocabulary

__all__ = [
    "Audit",
    "BuildConfig",
    "Counters",
    "IngestConfig",
    "RawDocument",
    "RunOptions",
    "UserError",
    "VocabConfig",
    "Vocabulary",
    "audit",
    "build",
    "ingest",
    "learn_vocabulary",
    "read_documents",
    "read_documents_transform",
    "read_vocabulary",
]

_MODULES = {
    "Audit": "audit.verdict",
    "BuildConfig": "config",
    "Counters": "execution.counters",
    "IngestConfig": "config",
    "RawDocument": "sources.records",
    "RunOptions": "config",
    "UserError": "errors",
    "VocabConfig": "config",
    "Vocabulary": "vocab.vocabulary",
    "audit": "audit.checks",
    "build": "build.pipeline",
    "ingest": "ingest.pipeline",
    "learn_vocabulary": "vocab.pipeline",
    "read_documents": "sources.documents",
    "read_documents_transform": "sources.documents",
    "read_vocabulary": "vocab.vocabulary",
}


class _Package(ModuleType):
    """This package, in which `ingest`, `build` and `audit` are functions although subpackages have the same names.

    Import what lies in those with ``from``: ``import clozeworks.pipeline.audit.signs as signs`` finds the function.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        # Importing a subpackage binds it to its parent, which would hide the function from `__getattr__`.
        if not (name in _MODULES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
