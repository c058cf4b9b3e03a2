"""A stage that has been opened: its directory, and what its phases find there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ..storage.stage import StageDirectory

S = TypeVar("S")


@dataclass(frozen=True)
class OpenedStage(StageDirectory, Generic[S]):
    """The output directory of an opened stage; travels to the workers."""

    setup: S = field(kw_only=True, compare=False)
    """Facts about the inputs that all phases need; see `stages.StagePlan`."""
    writers: Mapping[str, str] = field(kw_only=True, compare=False, default_factory=dict)
    """The phase that writes each temporary table: of all, or of those that a phase reads."""
