"""Turn raw text into masked sentence pairs: pure functions, and the units of work that call them;
nothing imports torch.

Each stage's ``pipeline.py`` wires it together; the other files are rules. ``execution/`` runs units
of work and owns files and output directories. Below everything are the contracts: ``config`` (the
options), ``schemas`` (the columns), ``languages`` (their codes), ``seeding`` (all randomness) and
``errors``.

The names below are the public API (see docs/api.md). They load on first use, so importing this
package is cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import how_to_install

if TYPE_CHECKING:
    from .auditing.checks import audit as audit
    from .auditing.verdict import Audit as Audit
    from .config import BuildConfig as BuildConfig
    from .config import IngestConfig as IngestConfig
    from .config import RunOptions as RunOptions
    from .config import VocabConfig as VocabConfig
    from .corpus import CorpusManifests as CorpusManifests
    from .corpus import make_corpus as make_corpus
    from .counters import Counters as Counters
    from .documents.pipeline import ingest as ingest
    from .errors import UserError as UserError
    from .instances.pipeline import build as build
    from .sources.formats import read_documents as read_documents
    from .sources.streams import RawDocument as RawDocument
    from .transforms import BuildInstances as BuildInstances
    from .transforms import Ingest as Ingest
    from .transforms import LearnVocabulary as LearnVocabulary
    from .transforms import ReadDocuments as ReadDocuments
    from .vocabulary.files import read_vocabulary as read_vocabulary
    from .vocabulary.pipeline import learn_vocabulary as learn_vocabulary
    from .vocabulary.vocabulary import Vocabulary as Vocabulary

_NAMES_OF_MODULES = {
    "auditing.checks": ("audit",),
    "auditing.verdict": ("Audit",),
    "config": ("BuildConfig", "IngestConfig", "RunOptions", "VocabConfig"),
    "corpus": ("CorpusManifests", "make_corpus"),
    "counters": ("Counters",),
    "documents.pipeline": ("ingest",),
    "errors": ("UserError",),
    "instances.pipeline": ("build",),
    "sources.formats": ("read_documents",),
    "sources.streams": ("RawDocument",),
    "transforms": ("BuildInstances", "Ingest", "LearnVocabulary", "ReadDocuments"),
    "vocabulary.files": ("read_vocabulary",),
    "vocabulary.pipeline": ("learn_vocabulary",),
    "vocabulary.vocabulary": ("Vocabulary",),
}
_MODULES = {name: module for module, names in _NAMES_OF_MODULES.items() for name in names}
if not TYPE_CHECKING:  # which sees the names above
    __all__ = [*sorted(_MODULES)]


# A module's `__getattr__` is called for names that it does not have yet (PEP 562).
def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    except ModuleNotFoundError as error:
        if install := how_to_install(error):
            error.msg = f"clozeworks.pipeline.{name} needs {install}"
        raise


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
