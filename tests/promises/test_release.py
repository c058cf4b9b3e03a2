"""A release: its notes, its workflow, and how to cite it."""

import re
from pathlib import Path

import pytest
import yaml

from tests.fixtures.release_notes import release_notes

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
CHANGELOG = """# Changelog

## 1.2.0 (2026-12-01)

- New.

## 1.1.0 (2026-11-01)

- Old.
"""


def test_the_notes_are_the_first_section_of_the_changelog():
    assert release_notes("v1.2.0", CHANGELOG, "1.2.0") == "- New."


@pytest.mark.parametrize(
    ("tag", "changelog", "message"),
    [
        ("v1.3.0", CHANGELOG, r"The tag is v1\.3\.0, but package/__init__\.py says 1\.2\.0"),
        ("v1.2.0", CHANGELOG.replace("2026-12-01", "unreleased"), "not with 1.2.0 and its date"),
        ("v1.2.0", CHANGELOG.replace("## 1.2.0", "## 1.1.9"), "not with 1.2.0 and its date"),
    ],
)
def test_a_release_that_is_not_ready_is_refused(tag: str, changelog: str, message: str):
    with pytest.raises(SystemExit, match=message):
        release_notes(tag, changelog, "1.2.0")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_have_least_permissions_and_pinned_actions(path: Path):
    workflow = yaml.safe_load(path.read_text())
    granted = [workflow["permissions"]]
    granted += [job["permissions"] for job in workflow["jobs"].values() if "permissions" in job]
    assert all(isinstance(permissions, dict) for permissions in granted)
    assert not workflow["permissions"].keys() - {"contents"}
    for action in re.findall(r"uses: (\S+)", path.read_text()):
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action), action


def test_every_tested_version_has_hashes():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [number for number, line in enumerate(lines) if "==" in line and line[0] not in " #"]
    assert all("    --hash=sha256:" in lines[number + 1] for number in pins)
    names = {lines[number].partition("==")[0] for number in pins}
    assert {"pip", "setuptools", "torch", "apache-beam", "ruff", "mkdocs"} <= names


def test_the_citation_has_what_its_format_requires():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert citation["message"] and citation["title"] and citation["authors"][0]["name"]
    assert citation["license"] == "Apache-2.0"
