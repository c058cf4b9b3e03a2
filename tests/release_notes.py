"""Print the notes of a release: ``python tests/release_notes.py v0.1.0``.

They are the changelog's first section. A tag that is not the package's version, or a section that
says "unreleased", ends with an error.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def release_notes(tag: str, changelog: str, version: str) -> str:
    if tag != f"v{version}":
        raise SystemExit(f"The tag is {tag}, but package/__init__.py says {version}.")
    heading, notes = re.findall(r"^## (.+)\n((?:(?!## ).*\n?)*)", changelog, re.MULTILINE)[0]
    if not re.fullmatch(rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", heading):
        raise SystemExit(f"CHANGELOG.md begins with {heading!r}, not with {version} and its date.")
    return notes.strip()


if __name__ == "__main__":
    initial = (ROOT / "package/__init__.py").read_text()
    [version] = re.findall(r'^__version__ = "(.+)"$', initial, re.MULTILINE)
    print(release_notes(sys.argv[1], (ROOT / "CHANGELOG.md").read_text(), version))
