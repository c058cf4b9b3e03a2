"""What most tests of pre-training train on."""

import pytest

from tests.fixtures.instances_fixture import write_instances


@pytest.fixture(scope="module")
def instances(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a directory of small instances, which no test changes."""
    return str(write_instances(tmp_path_factory.mktemp("data") / "instances"))
