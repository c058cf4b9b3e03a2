"""Equal conditions for the tests on every machine.

One thread computes, here and in every process that a test starts: the number of threads decides the
order of sums, and with it the last bits that some tests compare; and threads that wait for each
other beside other processes would slow the tests down. Hypothesis has no deadlines, which a busy
machine would miss.
"""

import logging
import os
import sys
from pathlib import Path

import hypothesis
import pytest
from clozeworks.cli.output import NoticeHandler

ROOT = str(Path(__file__).parents[1])
sys.path.insert(0, ROOT)  # for `tests.fixtures`, in subprocesses as well
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH")]))
from tests.fixtures.object_stores import s3 as s3  # noqa: E402 (a fixture of several folders)

os.environ["OMP_NUM_THREADS"] = "1"
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")


@pytest.fixture(autouse=True)
def print_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python prints what the libraries log for the user if nobody handles it; pytest handles it."""
    monkeypatch.setattr(logging.getLogger("clozeworks"), "handlers", [NoticeHandler()])
