"""The figures of README and docs/comparison.md are those of the newest results pages."""

import re
from pathlib import Path

import pytest

from benchmarks.__main__ import GROUPS
from benchmarks.environments import run_script
from benchmarks.table import Row

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = max(RESULTS.glob("*-speed.md"))
UNITS = {"M": 1e6, "ms": 1e-3}


def table_after(path: Path, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a line that starts so, without its header."""
    lines = path.read_text("utf-8").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(heading))
    rows = []
    for line in lines[first + 1 :]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("| ").split(" | ")])
        elif rows:
            break
    return rows[2:]


MEASURED = table_after(PAGE, "# ")
CITED = [
    pytest.param(row, id=f"{path.name}, {row[0]}")
    for path in (ROOT / "README.md", ROOT / "docs/comparison.md")
    for row in table_after(path, "## How fast")
]


@pytest.mark.parametrize("row", CITED)
def test_a_row_of_readme_and_of_the_comparison_is_one_of_the_newest_page(row: list[str]) -> None:
    if page := re.search(r"results/([\w-]+\.md)", " ".join(row)):
        # Of a page that was measured elsewhere, such as on a GPU, all figures stand there.
        text = (RESULTS / page[1]).read_text("utf-8")
        absent = [n for n in re.findall(r"\d[\d,]*[\d.]\d", " ".join(row[1:])) if n not in text]
        assert not absent, f"{page[1]} does not have {absent}"
    else:
        assert row[:4] in [measured[:4] for measured in MEASURED], f"{PAGE.name} has no such row"


@pytest.mark.parametrize("row", MEASURED, ids=lambda row: row[0])
def test_a_row_of_the_newest_page_has_its_command_and_the_ratio_of_its_figures(row: list[str]):
    _, ours, peer, ratio, command = row
    assert re.fullmatch(r"`python -m benchmarks [\w ]+`", command)
    assert command.split()[-1].strip("`") in GROUPS
    if peer.endswith(": absent"):
        assert ratio == "–"
        return
    theirs = peer.rpartition(": ")[2]
    is_time = not theirs.endswith("/s")
    quotient = figure(theirs) / figure(ours) if is_time else figure(ours) / figure(theirs)
    assert float(ratio) == pytest.approx(quotient, rel=0.1, abs=0.06)


def figure(text: str) -> float:
    number, unit = re.match(r"([\d.,]+) (\w+)", text).groups()  # pyright: ignore[reportOptionalMemberAccess]
    return float(number.replace(",", "")) * UNITS.get(unit, 1)


def test_an_absent_peer_has_a_row_that_says_so(tmp_path: Path) -> None:
    assert run_script(tmp_path, "streaming", "stream", "rows.npz", tmp_path, 256) is None
    row = Row("load batches", 76_543, "`streaming`, shuffled", None, "rows/s").markdown("loader")
    assert row == (
        "| load batches | 77,000 rows/s | `streaming`, shuffled: absent | – "
        "| `python -m benchmarks loader` |"
    )


@pytest.mark.parametrize(
    ("ours", "theirs", "unit", "cells"),
    [
        (1.04, 3.53, "s", "1.0 s | peer: 3.5 s | 3.4"),
        (10_940_000, 660_400, "tokens/s", "11 M tokens/s | peer: 660,000 tokens/s | 17"),
        (4.14, 0.373, "MB/s", "4.1 MB/s | peer: 0.37 MB/s | 11"),
        (15.8, 24.7, "s of CPU", "16 s of CPU | peer: 25 s of CPU | 1.6"),
        (998.7, 1250, "rows/s", "999 rows/s | peer: 1,200 rows/s | 0.8"),
    ],
)
def test_a_ratio_above_1_is_ours_ahead(ours: float, theirs: float, unit: str, cells: str) -> None:
    assert f"| {cells} |" in Row("what", ours, "peer", theirs, unit).markdown("ingest")
