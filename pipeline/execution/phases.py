"""A stage as phases over units of work, each unit done whole or not at all.

A *unit* (a range of input, a partition, a shard) reads, transforms and writes whole files in one
fused step, and leaves a *record*: counters and the names of its files. A *phase* is planned from
the records of the phases before it, once all of their units are done. Everything a run needs to
know lies in the output directory::

    .work/scatter/plan.json      the units of the phase: names, costs, payloads
    .work/scatter/00012.json     the record of unit 12; a unit that has one is never done again
    .work/errors/scatter-12.txt  the message of a user's mistake that a worker met

So runners pass nothing but unit numbers around, and a killed run resumes on any runner with any
number of workers.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Generic, TypeVar

import msgspec
import pyarrow as pa

from .. import storage
from ..errors import RunError, UserError
from ..parsing import parse_json
from ..storage.directory import WORK
from ..storage.stage import StageDirectory

NUM_READERS = 16  # records read at a time, because object stores are slow to answer
ERRORS = f"{WORK}/errors"
LAYOUT = 2  # of plans, records and the files between phases: increase it so that no newer code resumes from older files
_ADVICE = "Rerun with --overwrite to start over."


@dataclass(frozen=True, kw_only=True)
class Record:
    """What a unit leaves behind: its files, by their names in the directory, and what subclasses
    add.
    """

    files: tuple[str, ...]


P = TypeVar("P")
R = TypeVar("R", bound=Record)
T = TypeVar("T")


@dataclass(frozen=True)
class Unit(Generic[P]):
    """One piece of work."""

    name: str
    cost: int
    """Bytes to read, for the order of the units and the progress bar."""
    payload: P
    """What the unit works on: a dataclass or a string. Small: plans must stay small at any size of
    the corpus.
    """


@dataclass(frozen=True)
class Phase(Generic[P, R]):
    """One phase of a stage."""

    name: str
    """Of its folder below ``.work/``, and of its step in a cluster's user interface."""
    plan: Callable[[StageDirectory], list[Unit[P]]] | None
    """Returns the units; may read the records of the phases before, and raise `UserError`. None for
    the first phase, whose units the launching process plans: they would be too large to travel with
    the phase.
    """
    work: Callable[[StageDirectory, P], R]
    """Does one unit; may raise `UserError`."""
    payload: Any
    """Type of the payloads."""
    record: type[R]


@dataclass(frozen=True)
class _Stamped(Generic[T]):
    """A plan or a record, with the fingerprint of the work that it belongs to and the layout of its
    files.
    """

    fingerprint: str
    content: T
    layout: int = 1


def _write(directory: StageDirectory, name: str, content: Any) -> None:
    directory.write_bytes(
        name, msgspec.json.encode(_Stamped(directory.fingerprint, content, LAYOUT))
    )


def _read(directory: StageDirectory, name: str, kind: Any) -> Any:
    """Return the plan or record in a file; None if it belongs to other work or another layout."""
    path = directory.file(name)
    stamped = parse_json(storage.read_bytes(path), _Stamped[kind], path, _ADVICE)
    return (
        stamped.content
        if (stamped.fingerprint, stamped.layout) == (directory.fingerprint, LAYOUT)
        else None
    )


def write_plan(directory: StageDirectory, phase: Phase[P, R], units: Sequence[Unit[P]]) -> None:
    """Keep the units of a phase."""
    _write(directory, _plan_file(phase.name), units)


def read_plan(directory: StageDirectory, phase: Phase[P, R]) -> Sequence[Unit[P]]:
    """Return the units of a phase that is planned; a process reads them once for all of its units."""
    return _read_plan(directory, phase.name, phase.payload)


@lru_cache(maxsize=4)
def _read_plan(directory: StageDirectory, name: str, payload: Any) -> Sequence[Unit[Any]]:
    path = directory.file(_plan_file(name))
    units = (
        _read(directory, _plan_file(name), list[Unit[payload]]) if storage.exists(path) else None
    )
    if units is None:
        raise UserError(f"{path} is missing or was written by another version. {_ADVICE}")
    return units


@lru_cache(maxsize=8)
def unit_names(directory: StageDirectory, phase_name: str) -> Sequence[str]:
    """Return the names of the units of a planned phase, after which their files are named."""
    return [unit.name for unit in _read_plan(directory, phase_name, msgspec.Raw)]


def read_records(directory: StageDirectory, phase: str, kind: type[R]) -> list[R]:
    """Return the records of all units of a finished phase, in the order of its plan."""
    records = list(_records(directory, phase, kind))
    missing = [
        name
        for name, record in zip(unit_names(directory, phase), records, strict=True)
        if record is None
    ]
    if missing:
        raise UserError(
            f"The files of {phase} {missing[0]} in {directory.path} are missing; rerun to recreate them."
        )
    return [record for record in records if record is not None]


def _records(directory: StageDirectory, phase: str, kind: type[R]) -> Iterator[R | None]:
    """Yield the record of each unit; None if it has none, or if a file of the unit is missing."""
    there = finished_units(directory, phase)

    @cache
    def names_in(folder: str) -> set[str]:
        return set(storage.file_names(directory.file(folder) if folder else directory.path))

    def read(number: int) -> R | None:
        return _read(directory, _record_file(phase, number), kind) if number in there else None

    with ThreadPoolExecutor(NUM_READERS) as pool:
        for record in pool.map(read, range(len(unit_names(directory, phase)))):
            files = (file.rpartition("/") for file in record.files) if record else ()
            yield record if all(name in names_in(folder) for folder, _, name in files) else None


def finished_units(directory: StageDirectory, phase: str) -> set[int]:
    """Return the numbers of the units that have left a record."""
    names = (
        name.removesuffix(".json") for name in storage.file_names(directory.file(f"{WORK}/{phase}"))
    )
    return {int(name) for name in names if name.isdecimal()}


def do_unit(number: int, directory: StageDirectory, phase: Phase[P, R]) -> None:
    """Do one unit and leave its record; do nothing once a unit has left an error, for the run is
    about to end.
    """
    with _errors_written_down(directory, f"{phase.name}-{number}"):
        if read_errors(directory):
            return
        pa.set_memory_pool(
            pa.system_memory_pool()
        )  # Arrow's own keeps what is freed: 80 MB more at the peak
        unit = read_plan(directory, phase)[number]
        _write(directory, _record_file(phase.name, number), phase.work(directory, unit.payload))


def plan_phase(directory: StageDirectory, phase: Phase[P, R]) -> list[int]:
    """Plan a phase whose predecessors are done; return its unfinished units, the most expensive
    first (none after an error).
    """
    with _errors_written_down(directory, f"{phase.name}-plan"):
        if read_errors(directory):
            return []
        # A resumed run keeps the plan that is there.
        if phase.plan and not storage.exists(directory.file(_plan_file(phase.name))):
            write_plan(directory, phase, phase.plan(directory))
        records = _records(directory, phase.name, phase.record)
        todo = [number for number, record in enumerate(records) if record is None]
        units = read_plan(directory, phase)
        return sorted(todo, key=lambda number: (-units[number].cost, number))


@contextmanager
def _errors_written_down(directory: StageDirectory, name: str) -> Iterator[None]:
    """Write down the message of a `UserError` that the body raises, for the launching process.

    Raise `RunError` with the same message if it cannot be written down, because the disk is full or
    the store cannot be reached.
    """
    try:
        yield
    except UserError as error:
        try:
            directory.write_bytes(f"{ERRORS}/{name}.txt", str(error).encode())
        except (UserError, RunError):
            raise RunError(str(error)) from None
        raise


def stop_units(directory: StageDirectory) -> None:
    """Let no unit begin any more, wherever it runs; the next run removes the note."""
    directory.write_bytes(f"{ERRORS}/stopped.txt", b"The run was interrupted.")


def read_errors(directory: StageDirectory) -> list[str]:
    """Return the messages of the mistakes that workers met so far."""
    folder = directory.file(ERRORS)
    return [
        storage.read_bytes(storage.join(folder, name)).decode()
        for name in storage.file_names(folder)
    ]


def _plan_file(phase: str) -> str:
    return f"{WORK}/{phase}/plan.json"


def _record_file(phase: str, number: int) -> str:
    return f"{WORK}/{phase}/{number:05d}.json"
