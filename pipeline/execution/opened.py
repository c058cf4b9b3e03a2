"""A stage that has been opened: its directory, and what its phases find there."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, Self, TypeVar

from ..storage.stage import StageDirectory

S = TypeVar("S")


@dataclass(frozen=True)
class OpenedStage(StageDirectory, Generic[S]):
    """The output directory of an opened stage; travels to the workers."""

    setup: S = field(kw_only=True, compare=False)
    """Facts about the inputs that all phases need; see `stages.StagePlan`."""
    writers: Mapping[str, str] = field(kw_only=True, compare=False, default_factory=dict)
    """The phase that writes each temporary table: of all, or of those that a phase reads."""

    def showing(self, tables: Iterable[str]) -> Self:
        """Return it with these tables to read, and no others."""
        return replace(self, writers={name: self.writers[name] for name in tables})
