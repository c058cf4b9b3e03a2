"""A stage as phases over units of work, each unit done whole or not at all.

A *unit* (a range of input, a partition, a shard) reads, transforms and writes whole files in one fused step, and leaves
a *record*: counters and the names of its files. A *phase* is planned from the records of the phases before it, once all
of their units are done. Everything a run needs to know lies in the output directory::

    .work/scatter/plan.json      the units of the phase: names, costs, payloads
    .work/scatter/00012.json     the record of unit 12; a unit that has one is never done again
    .work/errors/scatter-12.txt  the message of a user's mistake that a worker met

So runners pass nothing but unit numbers around, and a killed run resumes on any runner with any number of workers. A
plan holds no list of files: a unit derives the names of the files it reads from the plan of the phase that wrote them.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Generic, TypeVar

import msgspec
import pyarrow as pa

from ..errors import UserError
from ..parsing import parse_json
from . import storage
from .directory import WORK, StageDirectory

NUM_READERS = 16  # records read at a time, because object stores are slow to answer
_ERRORS = f"{WORK}/errors"
_ADVICE = "Rerun with --overwrite to start over."


@dataclass(frozen=True, kw_only=True)
class Record:
    """What a unit leaves behind: its files, by their names in the directory, and what subclasses add."""

    files: tuple[str, ...]


P = TypeVar("P")
R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Unit(Generic[P]):
    """One piece of work."""

    name: str
    cost: int
    """Bytes to read, for the order of the units and the progress bar."""
    payload: P
    """What the unit works on: a dataclass or a string. Small: plans must stay small at any size of the corpus."""


@dataclass(frozen=True)
class Phase(Generic[P, R]):
    """One phase of a stage."""

    name: str
    """Of its folder below ``.work/``, and of its step in a cluster's user interface."""
    plan: Callable[[StageDirectory], list[Unit[P]]] | None
    """Returns the units; may read the records of the phases before, and raise `UserError`. None for the first phase,
    whose units the launching process plans: they would be too large to travel with the phase."""
    work: Callable[[StageDirectory, P], R]
    """Does one unit; may raise `UserError`."""
    payload: Any
    """Type of the payloads."""
    record: type[R]


@dataclass(frozen=True)
class _Plan(Generic[P]):
    fingerprint: str
    units: list[Unit[P]]


@dataclass(frozen=True)
class _Envelope(Generic[R]):
    fingerprint: str
    record: R


def write_plan(directory: StageDirectory, phase: Phase[P, R], units: Sequence[Unit[P]]) -> None:
    """Keep the units of a phase."""
    directory.write_bytes(_plan_file(phase.name), msgspec.json.encode(_Plan(directory.fingerprint, list(units))))


def read_plan(directory: StageDirectory, phase: Phase[P, R]) -> Sequence[Unit[P]]:
    """Return the units of a phase that is planned; a process reads them once for all of its units."""
    return _read_plan(directory, phase.name, phase.payload)


@lru_cache(maxsize=4)
def _read_plan(directory: StageDirectory, name: str, payload: Any) -> Sequence[Unit[Any]]:
    path = directory.file(_plan_file(name))
    plan = parse_json(storage.read_bytes(path), _Plan[payload], path, _ADVICE) if storage.exists(path) else None
    if plan is None or plan.fingerprint != directory.fingerprint:
        raise UserError(f"{path} is missing. {_ADVICE}")
    return plan.units


@lru_cache(maxsize=8)
def unit_names(directory: StageDirectory, phase_name: str) -> Sequence[str]:
    """Return the names of the units of a planned phase, after which their files are named."""
    return [unit.name for unit in _read_plan(directory, phase_name, msgspec.Raw)]


def unfinished(directory: StageDirectory, phase: Phase[P, R]) -> list[int]:
    """Return the numbers of the units of a planned phase that have no record, the most expensive first."""
    units = read_plan(directory, phase)
    records = _records(directory, phase.name, phase.record)
    todo = [number for number, record in enumerate(records) if record is None]
    return sorted(todo, key=lambda number: (-units[number].cost, number))


def read_records(directory: StageDirectory, phase: str, kind: type[R]) -> list[R]:
    """Return the records of all units of a finished phase, in the order of its plan."""
    records = list(_records(directory, phase, kind))
    missing = [name for name, record in zip(unit_names(directory, phase), records, strict=True) if record is None]
    if missing:
        raise UserError(f"{directory.path} has lost the files of {phase} {missing[0]}; rerun to restore them.")
    return [record for record in records if record is not None]


def _records(directory: StageDirectory, phase: str, kind: type[R]) -> Iterator[R | None]:
    """Yield the record of each unit; None if it has none, or if a file of the unit is missing."""
    there = finished_units(directory, phase)

    @cache
    def names_in(folder: str) -> set[str]:
        return set(storage.file_names(directory.file(folder) if folder else directory.path))

    def read(number: int) -> R | None:
        if number not in there:
            return None
        path = directory.file(_record_file(phase, number))
        envelope = parse_json(storage.read_bytes(path), _Envelope[kind], path, _ADVICE)
        return envelope.record if envelope.fingerprint == directory.fingerprint else None

    with ThreadPoolExecutor(NUM_READERS) as pool:
        for record in pool.map(read, range(len(unit_names(directory, phase)))):
            files = (file.rpartition("/") for file in record.files) if record else ()
            yield record if all(name in names_in(folder) for folder, _, name in files) else None


def finished_units(directory: StageDirectory, phase: str) -> set[int]:
    """Return the numbers of the units that have left a record."""
    names = (name.removesuffix(".json") for name in storage.file_names(directory.file(f"{WORK}/{phase}")))
    return {int(name) for name in names if name.isdecimal()}


def do_unit(number: int, directory: StageDirectory, phase: Phase[P, R]) -> None:
    """Do one unit and leave its record.

    A `UserError` is written down before it is raised, because a runner may lose its class on the way. Once a unit has
    left one, the others do nothing: the run is about to end.
    """
    if read_errors(directory):
        return
    pa.set_memory_pool(pa.system_memory_pool())  # Arrow's own keeps what is freed: 80 MB more at the peak
    unit = read_plan(directory, phase)[number]
    with _errors_written_down(directory, f"{phase.name}-{number}"):
        envelope = _Envelope(directory.fingerprint, phase.work(directory, unit.payload))
    directory.write_bytes(_record_file(phase.name, number), msgspec.json.encode(envelope))


def plan_phase(directory: StageDirectory, phase: Phase[P, R]) -> list[int]:
    """Plan a phase whose predecessors are done; return the numbers of its unfinished units, none after an error."""
    if read_errors(directory):
        return []
    with _errors_written_down(directory, f"{phase.name}-plan"):
        # A resumed run keeps the plan that is there.
        if phase.plan and not storage.exists(directory.file(_plan_file(phase.name))):
            write_plan(directory, phase, phase.plan(directory))
        return unfinished(directory, phase)


@contextmanager
def _errors_written_down(directory: StageDirectory, name: str) -> Iterator[None]:
    """Write down the message of a `UserError` that the body raises, for the launching process."""
    try:
        yield
    except UserError as error:
        directory.write_bytes(f"{_ERRORS}/{name}.txt", str(error).encode())
        raise


def read_errors(directory: StageDirectory) -> list[str]:
    """Return the messages of the mistakes that workers met so far."""
    folder = directory.file(_ERRORS)
    return [storage.read_bytes(storage.join(folder, name)).decode() for name in storage.file_names(folder)]


def forget_errors(directory: StageDirectory) -> None:
    """Remove the messages that an earlier run left."""
    storage.remove(directory.file(_ERRORS))


def _plan_file(phase: str) -> str:
    return f"{WORK}/{phase}/plan.json"


def _record_file(phase: str, number: int) -> str:
    return f"{WORK}/{phase}/{number:05d}.json"
