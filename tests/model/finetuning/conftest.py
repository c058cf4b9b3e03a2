"""A small task, and a search over its learning rates and seeds, that several tests look at."""

from pathlib import Path
from typing import Any

import pytest
from clozeworks.model.finetuning.finetune import finetune
from clozeworks.model.finetuning.results import FinetuneSummary

from tests.fixtures.finetune_fixture import quick, write_reviews


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_reviews(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def trained(
    tmp_path_factory: pytest.TempPathFactory, checkpoint: Path, data: Path
) -> tuple[Path, FinetuneSummary, list[dict[str, Any]]]:
    output, live = tmp_path_factory.mktemp("run") / "sst2", []
    config = quick(learning_rates=(1e-7, 2e-3), seeds=2)
    return output, finetune("sst2", data, checkpoint, output, config, live.append), live
