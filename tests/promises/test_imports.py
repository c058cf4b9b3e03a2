"""Imports run one way, between packages and inside them; read from the files, not by importing."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONTRACTS = {
    f"pipeline.{name}"
    for name in (
        *("arrow", "config", "counters", "encodings", "errors", "languages", "manifests"),
        *("memory", "mixture", "parsing", "ragged", "schemas", "seeding", "source_formats"),
        *("lazy", "data_card"),
    )
}
STORAGE = CONTRACTS | {"pipeline.storage"}
EXECUTION = STORAGE | {"pipeline.execution"}
STAGES = {
    f"pipeline.{name}" for name in ("text", "sources", "documents", "vocabulary", "instances")
}
# A package may import itself and these; a name covers the modules below it.
ALLOWED = {
    **dict.fromkeys(CONTRACTS, CONTRACTS),
    "pipeline.text": CONTRACTS,
    "pipeline.storage": CONTRACTS,
    "pipeline.execution": STORAGE,
    "pipeline.sources": EXECUTION | {"pipeline.text"},
    "pipeline.vocabulary": EXECUTION,
    "pipeline.documents": EXECUTION | {"pipeline.sources", "pipeline.text"},
    "pipeline.instances": EXECUTION | {"pipeline.vocabulary"},
    "pipeline.auditing": EXECUTION | {"pipeline.text", "pipeline.vocabulary", "pipeline.instances"},
    "pipeline.transforms": EXECUTION | STAGES,
    "pipeline.corpus": EXECUTION | STAGES,
    "model": STORAGE
    | {
        "pipeline.sources.hub", "pipeline.vocabulary.files", "pipeline.vocabulary.tokenize",
        "pipeline.vocabulary.vocabulary", "pipeline.instances.masking", "pipeline.instances.rows",
    },
    "cli": {"pipeline", "model"},
}  # fmt: skip
ENCODER = {
    f"model.{name}"
    for name in ("checkpoint", "config", "encoders", "copies", "notices", "tokenizer")
}
BELOW_LOOPS = ENCODER | {"model.training"}
ALONE = ("config", "notices", "encoders", "copies", "tokenizer", "torch_file", "card")
# The same inside `model`: what each of its modules and packages may import of the others.
ALLOWED_IN_MODEL = {
    **{f"model.{name}": set[str]() for name in ALONE},
    "model.training": {
        *("model.card", "model.checkpoint", "model.config", "model.notices"),
        *("model.encoders.config", "model.encoders.transfer"),
    },
    "model.checkpoint": ENCODER - {"model.checkpoint", "model.config"} | {"model.torch_file"},
    "model.export": {"model.card", "model.checkpoint", "model.config"},
    "model.tasks": BELOW_LOOPS,
    "model.minimal_pairs": BELOW_LOOPS | {"model.tasks.example_tables"},
    "model.features": BELOW_LOOPS | {"model.tasks"},
    "model.pretraining": BELOW_LOOPS | {"model.card"},
    "model.finetuning": BELOW_LOOPS | {"model.card", "model.tasks"},
}
# The modules of `cli` that commands share; only `main` imports the commands themselves.
SHARED_BY_COMMANDS = {
    f"cli.{name}"
    for name in ("data_summary", "failures", "options", "output", "process", "progress")
}


def module_name(path: Path) -> str:
    """Return a file's dotted name below the root; ``__init__.py`` is the package itself."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {
    module_name(path): path
    for folder in ("pipeline", "model", "cli")
    for path in (ROOT / folder).rglob("*.py")
}


def imports_of(module: str) -> Iterator[str]:
    """Yield what a module imports anywhere in its code, our own modules by names below the root."""
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


EDGES = sorted({(module, imported) for module in MODULES for imported in imports_of(module)})
OURS = [(module, imported) for module, imported in EDGES if imported in MODULES]


def imports_outside(package: str, allowed: set[str]) -> set[tuple[str, str]]:
    """Return the imports of our own modules in `package` that lead elsewhere."""
    return {
        (module, imported)
        for module, imported in OURS
        if within(module, {package}) and not within(imported, allowed | {package})
    }


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_the_arrows_run_one_way(package: str):
    assert not imports_outside(package, ALLOWED[package])


@pytest.mark.parametrize("package", ALLOWED_IN_MODEL)
def test_the_arrows_inside_the_model_run_one_way(package: str):
    assert not imports_outside(package, ALLOWED_IN_MODEL[package] | {"pipeline"})


def test_commands_import_only_what_they_share():
    entries = ("cli.main", "cli.__main__")
    inside = [
        (module, imported)
        for module, imported in OURS
        if within(module, {"cli"}) and within(imported, {"cli"}) and module not in entries
    ]
    assert inside
    assert not [edge for edge in inside if edge[1] not in SHARED_BY_COMMANDS]


def test_no_import_runs_in_a_circle():
    # Imports inside functions count as well: a circle that is put off is still one.
    imports: dict[str, set[str]] = {module: set() for module in MODULES}
    for module, imported in OURS:
        imports[module].add(imported)
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_every_package_has_a_rule():
    # `pipeline` and `model` themselves are the public names, imported lazily from anywhere inside.
    assert {module for module in MODULES if not within(module, set(ALLOWED))} == {"pipeline"}
    model = {module for module in MODULES if within(module, {"model"})}
    assert {module for module in model if not within(module, set(ALLOWED_IN_MODEL))} == {"model"}


def test_the_graph_is_not_empty():
    assert ("pipeline.documents.pipeline", "pipeline.sources.formats") in OURS
    assert ("model.encoders.bert", "torch") in EDGES


@pytest.mark.parametrize(
    ("library", "packages"),
    [("apache_beam", {"pipeline.execution.beam"}), ("torch", {"model", "cli"}), ("click", {"cli"})],
)
def test_only_some_packages_import_a_library(library: str, packages: set[str]):
    assert not {
        module
        for module, imported in EDGES
        if within(imported, {library}) and not within(module, packages)
    }
