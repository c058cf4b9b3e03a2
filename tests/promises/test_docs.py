"""README and docs/: every command parses, every link leads somewhere, doctests hold."""

import doctest
import importlib
import re
import shlex
from pathlib import Path

import clozeworks.model
import clozeworks.pipeline
import pytest
from clozeworks.cli.main import DATA_STAGES, commands

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")

EXAMPLES = [
    ".".join(("clozeworks", *path.relative_to(ROOT).with_suffix("").parts))
    for folder in ("pipeline", "model", "cli")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


def commands_of(page: Path) -> list[str]:
    """Return the `clozeworks` commands in a page's blocks; one may follow a pipe, or `timeout`."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    return re.findall(r"^\$ (?:.*\| |timeout -s KILL \d )?clozeworks (.+)$", text, re.MULTILINE)


def parse(line: str) -> None:
    """Parse a command without running it; raises what click raises for a mistake in it."""
    name, *arguments = shlex.split(line, comments=True)
    if name in DATA_STAGES and "--" in arguments:  # Beam's own options follow
        arguments = arguments[: arguments.index("--")]
    commands.commands[name].make_context(name, arguments)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_parses(page):
    lines = commands_of(page)
    mentions = re.findall(
        r"^\$ .*\bclozeworks [a-z]+ ", page.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(lines) == len(mentions)
    for line in lines:
        parse(line)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "page",
    [*PAGES, *sorted((ROOT / "examples").glob("*/README.md"))],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_every_link_of_a_page_leads_somewhere(page: Path):
    for address, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        if ":" in address:  # on other sites
            continue
        target = page.parent / address if address else page
        assert target.exists(), address
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{address}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_mark_of_markdown_is_shown_as_it_is(page: Path):
    # Python-Markdown, which makes the site, leaves the backslash of `\<`, which GitHub takes.
    without_code = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
    assert not re.findall(r"\\[<>&]", without_code)


@pytest.mark.slow
def test_the_reference_has_all_public_names():
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    names = set()
    for package in (clozeworks.pipeline, clozeworks.model):
        names |= {f"{package.__name__}.{name}" for name in package.__all__}
    assert set(re.findall(r"^::: (.+)$", page, re.MULTILINE)) == names


@pytest.mark.parametrize("module", EXAMPLES)
def test_the_examples_in_docstrings_hold(module):
    assert not doctest.testmod(importlib.import_module(module)).failed


def test_the_quick_tests_are_there():
    quick = re.search(r"^QUICK := .*\)$", (ROOT / "Makefile").read_text(), re.MULTILINE | re.DOTALL)
    assert quick is not None
    for name in re.findall(r"[\w/]+\.py", quick[0].partition("\n\n")[0]):
        assert (ROOT / "tests" / name).exists(), name
