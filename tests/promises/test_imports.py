"""The arrows between the packages run one way, read from the source files without importing them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONTRACTS = {
    f"pipeline.{name}"
    for name in (
        "config",
        "errors",
        "languages",
        "manifests",
        "mixture",
        "parsing",
        "schemas",
        "seeding",
    )
}
STORAGE = CONTRACTS | {"pipeline.storage"}
EXECUTION = STORAGE | {"pipeline.execution"}
# A package may import itself and these; a name covers the modules below it.
ALLOWED = {
    **dict.fromkeys(CONTRACTS, CONTRACTS),
    "pipeline.storage": CONTRACTS,
    "pipeline.execution": STORAGE,
    "pipeline.sources": EXECUTION,
    "pipeline.vocabulary": EXECUTION,
    "pipeline.documents": EXECUTION | {"pipeline.sources"},
    "pipeline.instances": EXECUTION | {"pipeline.vocabulary"},
    "pipeline.auditing": EXECUTION | {"pipeline.vocabulary", "pipeline.instances"},
    "model": STORAGE | {"pipeline.vocabulary.vocabulary", "pipeline.instances.masking"},
    "cli": {"pipeline", "model"},
}


def module_name(path: Path) -> str:
    """Return a file's dotted name below the root; a package's ``__init__.py`` is the package
    itself.
    """
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {
    module_name(path): path
    for folder in ("pipeline", "model", "cli")
    for path in (ROOT / folder).rglob("*.py")
}


def imports_of(module: str) -> Iterator[str]:
    """Yield the modules that one imports anywhere in its code, ours by their names below the root."""
    package = module.split(".") if MODULES[module].name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) - node.level + 1]] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{origin}.{alias.name}" for alias in node.names]
            yield from (name if name in MODULES else origin for name in names)


def within(module: str, packages: set[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


EDGES = sorted({(module, found) for module in MODULES for found in imports_of(module)})
OURS = [(module, found) for module, found in EDGES if found in MODULES]


@pytest.mark.parametrize("package", ALLOWED)
def test_the_arrows_run_one_way(package: str):
    edges = {(module, found) for module, found in OURS if within(module, {package})}
    assert edges or package in CONTRACTS
    assert not {edge for edge in edges if not within(edge[1], ALLOWED[package] | {package})}


def test_every_package_has_a_rule():
    # `pipeline` and `model` themselves are the public names, imported lazily from anywhere inside.
    assert {module for module in MODULES if not within(module, set(ALLOWED))} == {"pipeline"}


def test_the_graph_is_not_empty():
    assert ("pipeline.documents.pipeline", "pipeline.sources.formats") in OURS
    assert ("model.bert", "torch") in EDGES


@pytest.mark.parametrize(
    ("library", "packages"),
    [("apache_beam", {"pipeline.execution.beam"}), ("torch", {"model", "cli"}), ("click", {"cli"})],
)
def test_only_some_packages_import_a_library(library: str, packages: set[str]):
    assert not {
        module
        for module, found in EDGES
        if within(found, {library}) and not within(module, packages)
    }
