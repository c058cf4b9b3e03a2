"""An opened stage, and the plans and records of units of work that its directory keeps, so that any
runner can resume.

A *unit* (a range of input, a partition, a shard) reads, transforms and writes whole files in one
step, and leaves a *record*: counters and the names of its files. A unit is done whole or not at
all. Everything a run needs to know lies in the output directory::

    .work/setup.json             what all phases need to know; see `stages.StagePlan`
    .work/scatter/plan.json      the units of a phase: names, costs, payloads
    .work/scatter/00012.json     the record of unit 12; a unit that has one is never done again
    .work/errors/scatter-12.txt  the message of a user's mistake that a worker met

So runners pass nothing but unit numbers around.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Generic, Self, TypeVar

import msgspec

from .. import storage
from ..errors import RunError, UserError
from ..parsing import parse_json
from ..storage.directory import WORK, OutputDirectory

NUM_READERS = 16
"""Records read at a time, because object stores are slow to answer."""
ERRORS = f"{WORK}/errors"
WORK_FORMAT = 5
"""Version of plans, records and temporary tables. Increase it with every change to them, so that
newer code does not resume from older files."""
_ADVICE = "Rerun with `overwrite` to start over."

S = TypeVar("S")
P = TypeVar("P")
R = TypeVar("R", bound="Record")
T = TypeVar("T")


@dataclass(frozen=True)
class OpenedStage(OutputDirectory, Generic[S]):
    """The output directory of an opened stage; travels to the workers."""

    fingerprint: str
    """Of the work: configuration, inputs, library versions."""
    opened: float = 0.0
    """When its work began or resumed, in seconds since the epoch: a process that outlives its run
    must not mistake that run's plans for this one's."""
    setup: S = field(kw_only=True, compare=False)
    """Facts about the inputs that all phases need; see `stages.StagePlan`."""
    writers: Mapping[str, str] = field(kw_only=True, compare=False, default_factory=dict)
    """The phase that writes each temporary table: of all, or of those that a phase reads."""

    def reading(self, tables: Iterable[str]) -> Self:
        """Return the directory with these temporary tables, by name, and no others."""
        return replace(self, writers={table: self.writers[table] for table in tables})


@dataclass(frozen=True)
class Unit(Generic[P]):
    """One piece of work."""

    name: str
    """Its files are named after it."""
    cost: int
    """Bytes to read, for the order of the units and the progress bar."""
    payload: P
    """The work: a dataclass or plain values. Small, as plans must stay small at any corpus size."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """The trace of a finished unit; subclasses add counts and results."""

    files: tuple[str, ...]
    """The names of its files in the directory."""


@dataclass(frozen=True)
class _Stamped(Generic[T]):
    """A plan or a record, with the fingerprint of its work and the layout of its files."""

    fingerprint: str
    content: T
    layout: int = 1


def write_stamped(directory: OpenedStage[Any], name: str, content: Any) -> None:
    """Write plain values or dataclasses to a JSON file that only the same work reads back."""
    stamped = _Stamped(directory.fingerprint, content, WORK_FORMAT)
    directory.write_bytes(name, msgspec.json.encode(stamped))


def read_stamped(directory: OpenedStage[Any], name: str, kind: Any) -> Any:
    """Return the content of a file; None if it belongs to other work or has another layout."""
    path = directory.file(name)
    stamped = parse_json(storage.read_bytes(path), _Stamped[kind], path, _ADVICE)
    if stamped.fingerprint != directory.fingerprint or stamped.layout != WORK_FORMAT:
        return None
    return stamped.content


def write_units(directory: OpenedStage[Any], phase: str, units: Sequence[Unit[Any]]) -> None:
    """Write the plan of a phase."""
    write_stamped(directory, _plan_file(phase), units)


def is_planned(directory: OutputDirectory, phase: str) -> bool:
    """Return whether a phase has a plan."""
    return storage.exists(directory.file(_plan_file(phase)))


@lru_cache(maxsize=4)
def read_units(directory: OpenedStage[Any], phase: str, payload_type: Any) -> Sequence[Unit[Any]]:
    """Return the units of a planned phase; a process reads them once for all that it does, until
    the stage is opened again.
    """
    units = None
    if is_planned(directory, phase):
        units = read_stamped(directory, _plan_file(phase), list[Unit[payload_type]])
    if units is None:
        # Another version may cut the work otherwise: its records would not fit these units.
        path = directory.file(_plan_file(phase))
        raise UserError(f"{path} is missing or was written by another version. {_ADVICE}")
    return units


@lru_cache(maxsize=8)
def unit_names(directory: OpenedStage[Any], phase: str) -> Sequence[str]:
    """Return the names of the units of a planned phase, in order."""
    return [unit.name for unit in read_units(directory, phase, msgspec.Raw)]


def write_record(directory: OpenedStage[Any], phase: str, number: int, record: Record) -> None:
    """Mark a unit as done."""
    write_stamped(directory, f"{WORK}/{phase}/{number:05d}.json", record)


def read_records(directory: OpenedStage[Any], phase: str, kind: type[R]) -> list[R]:
    """Return the records of all units of a finished phase, in the order of its plan."""
    names = unit_names(directory, phase)
    records: list[R] = []
    for name, record in zip(names, _records(directory, phase, kind), strict=True):
        if record is None:
            raise UserError(
                f"The files of {phase} {name} in {directory.path} are missing; "
                "rerun to recreate them."
            )
        records.append(record)
    return records


def unfinished_units(directory: OpenedStage[Any], phase: str, kind: type[Record]) -> list[int]:
    """Return the numbers of the units without a record, or whose files are missing."""
    records = _records(directory, phase, kind)
    return [number for number, record in enumerate(records) if record is None]


def _records(directory: OpenedStage[Any], phase: str, kind: type[R]) -> Iterator[R | None]:
    """Yield the record of each unit; None if it has none, or if one of its files is missing."""
    # One listing, so that no unit that has no record costs a request of an object store.
    finished = finished_units(directory, phase)
    names_in_folder: dict[str, set[str]] = {}

    def file_exists(file: str) -> bool:
        folder, _, name = file.rpartition("/")
        if folder not in names_in_folder:  # one listing of a folder serves all of its files
            names_in_folder[folder] = set(storage.file_names(directory.file(folder)))
        return name in names_in_folder[folder]

    def read(number: int) -> R | None:
        if number not in finished:
            return None
        return read_stamped(directory, f"{WORK}/{phase}/{number:05d}.json", kind)

    with ThreadPoolExecutor(NUM_READERS) as pool:
        for record in pool.map(read, range(len(unit_names(directory, phase)))):
            if record is not None and all(file_exists(file) for file in record.files):
                yield record
            else:
                yield None


def finished_units(directory: OutputDirectory, phase: str) -> set[int]:
    """Return the numbers of the units that have left a record."""
    # 00012.json, but not plan.json.
    files = storage.file_names(directory.file(f"{WORK}/{phase}"))
    stems = (file.removesuffix(".json") for file in files)
    return {int(stem) for stem in stems if stem.isdecimal()}


@contextmanager
def errors_written_down(directory: OutputDirectory, place: str) -> Iterator[None]:
    """Write down the message of a `UserError` that the body raises, for the launching process.

    Raise `RunError` with the same message if it cannot be written down, because the disk is full
    or the store cannot be reached.
    """
    try:
        yield
    except UserError as error:
        try:
            directory.write_bytes(f"{ERRORS}/{place}.txt", str(error).encode())
        except (UserError, RunError):
            raise RunError(str(error)) from None
        raise


def stop_units(directory: OutputDirectory) -> None:
    """Stop workers from starting further units. The next run clears the marker."""
    directory.write_bytes(f"{ERRORS}/stopped.txt", b"The run was interrupted.")


def read_errors(directory: OutputDirectory) -> list[str]:
    """Return the messages of the mistakes that workers have met."""
    folder = directory.file(ERRORS)
    files = storage.file_names(folder)
    return [storage.read_bytes(storage.join(folder, file)).decode() for file in files]


def raise_first_error(directory: OutputDirectory) -> None:
    """Raise the `UserError` of a mistake that any worker has met."""
    errors = read_errors(directory)
    if errors:
        raise UserError(errors[0])


def clear_errors(directory: OutputDirectory) -> None:
    """Forget the mistakes of an earlier run."""
    directory.remove(ERRORS)


def _plan_file(phase: str) -> str:
    return f"{WORK}/{phase}/plan.json"
