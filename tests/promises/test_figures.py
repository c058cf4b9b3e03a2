"""Figures of README and docs/comparison.md are those of the page that has them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPARISON = ROOT / "docs" / "comparison.md"
RESULTS = ROOT / "benchmarks" / "results"


def rows_of(text: str) -> list[list[str]]:
    """Return the cells of the rows of tables that have a ratio at their end."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    return [row for row in rows if len(row) == 4 and re.match(r"\d", row[3])]


def thousands(text: str) -> set[int]:
    return {round(int(figure.replace(",", "")), -3) for figure in re.findall(r"\d{3},\d{3}", text)}


def page_rows() -> set[tuple[str, ...]]:
    newest = max(RESULTS.glob("*-speed.md"))
    return {tuple(row) for row in rows_of(newest.read_text())}


@pytest.mark.parametrize("row", rows_of(COMPARISON.read_text()), ids=lambda row: row[0][:40])
def test_a_row_of_the_comparison_is_on_the_newest_page(row):
    if "H100" in row[0]:  # on a page of its own
        (page,) = RESULTS.glob("*-gpu.md")
        assert thousands(" ".join(row)) <= thousands(page.read_text())
    else:
        assert tuple(row) in page_rows()


def test_readme_has_rows_of_the_comparison():
    known = [tuple(row) for row in rows_of(COMPARISON.read_text())]
    rows = rows_of((ROOT / "README.md").read_text())
    assert rows
    assert [row[0] for row in rows if tuple(row) not in known] == []
