"""The tiny models that tests of tasks and of fine-tuning share."""

from pathlib import Path

import pytest
from clozeworks.model.encoders.attention import PackedRows
from clozeworks.model.tokenizer import TextTokenizer

from tests.fixtures.checkpoint_fixture import make_checkpoint
from tests.fixtures.packed_attention import attend


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("model") / "checkpoint")


@pytest.fixture(scope="session")
def tokenizer(checkpoint: Path) -> TextTokenizer:
    return TextTokenizer(checkpoint)


@pytest.fixture
def packed_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PackedRows, "attend", attend)
