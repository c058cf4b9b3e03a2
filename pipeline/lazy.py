"""Load the public names of a package when they are first used (PEP 562)."""

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from .errors import how_to_install


def lazy_names(
    package: str, file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package, for the names that the stub
    beside its `file` imports, one a line.
    """
    stub = Path(file).with_name("__init__.pyi").read_text(encoding="utf-8")
    imports = re.findall(r"^from (\S+) import (\w+) as", stub, re.MULTILINE)
    modules = {name: module for module, name in imports}
    names = sorted(modules)

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(import_module(modules[name], package), name)
        except ModuleNotFoundError as error:
            if install := how_to_install(error):
                error.msg = f"{package}.{name} needs {install}"
            raise

    return load, lambda: names, names
