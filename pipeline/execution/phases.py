"""Phases: the steps of a stage, each planned once all units of the one before are done.

A phase says which temporary tables it reads and writes; `stages.table_writers` checks that each is
written before it is read.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from ..memory import release_memory
from .tables import TemporaryTable
from .units import (
    OpenedStage,
    Record,
    Unit,
    errors_written_down,
    is_planned,
    raise_first_error,
    read_records,
    read_units,
    unfinished_units,
    write_record,
    write_units,
)

S = TypeVar("S")
P = TypeVar("P")
R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Phase(Generic[S, P, R]):
    """One phase of a stage: how its work is cut into units, and how a unit is done.

    Subclasses are frozen dataclasses, because they travel to the workers. Their fields are options
    that the user gave. What is known only once the inputs are read, all phases of a stage find in
    `OpenedStage.setup`.
    """

    reads: tuple[TemporaryTable, ...] = field(default=(), kw_only=True)
    """Tables of earlier phases."""
    writes: tuple[TemporaryTable, ...] = field(default=(), kw_only=True)
    """Tables for later phases."""

    name: ClassVar[str]
    """Of its folder below ``.work/``, and of its step in a cluster's user interface."""
    payload_type: ClassVar[Any]
    """Of the units' payloads: P."""
    record_type: ClassVar[Any]
    """Of the units' records: R."""

    def plan(self, directory: OpenedStage[S]) -> Sequence[Unit[P]]:
        """Return the units; may read the records of earlier phases, and raise `UserError`.

        The first phase of a stage has no such method: its units are those of `StagePlan`.
        """
        raise TypeError(f"the units of {self.name} are planned when its stage is opened")

    @abstractmethod
    def do(self, directory: OpenedStage[S], unit: Unit[P]) -> R:
        """Do one unit and return its record; may raise `UserError`."""

    @classmethod
    def records(cls, directory: OpenedStage[Any]) -> list[R]:
        """Return the records of all units, once the phase is finished."""
        return read_records(directory, cls.name, cls.record_type)


def plan_phase(directory: OpenedStage[S], phase: Phase[S, Any, Any]) -> list[int]:
    """Plan a phase whose predecessors are done, unless a killed run has left its plan.

    Return the numbers of its unfinished units, the most expensive first. Raise the `UserError` of
    the plan, or of any unit that has failed.
    """
    raise_first_error(directory)
    with errors_written_down(directory, f"{phase.name}-plan"):
        # A plan that exists stays, because the records of its units refer to it by number.
        if not is_planned(directory, phase.name):
            readable = directory.reading(table.name for table in phase.reads)
            write_units(directory, phase.name, phase.plan(readable))
        units = read_units(directory, phase.name, phase.payload_type)
        unfinished = unfinished_units(directory, phase.name, phase.record_type)
        # An expensive unit that began last would keep one worker busy while the others idle.
        return sorted(unfinished, key=lambda number: (-units[number].cost, number))


def do_unit(number: int, directory: OpenedStage[S], phase: Phase[S, Any, Any]) -> None:
    """Do one unit and leave its record.

    Raise the `UserError` of the first unit that has failed, if any: the run is ending, and a
    runner that tries a failed unit again must fail again.
    """
    raise_first_error(directory)
    with errors_written_down(directory, f"{phase.name}-{number}"):
        unit = read_units(directory, phase.name, phase.payload_type)[number]
        record = phase.do(directory.reading(table.name for table in phase.reads), unit)
        write_record(directory, phase.name, number, record)
    release_memory()
