"""A job: the output directory of a stage, from its claim to its manifest.

A *stage* (`ingest`, `vocab`, `build`) is done in *phases*, one after another, and a phase in
*units*: ranges of input, partitions, shards. A unit reads, transforms and writes whole files, and
leaves a *record*; it is done whole or not at all. All that a run needs to know lies in the output
directory, so runners pass nothing but the numbers of units around, and any runner resumes what
another began::

    manifest.json                       finished; the last file
    .work/3f9c…/job.json                begun: what was asked for, and what all phases need to know
    .work/3f9c…/scatter/plan.json       the units of a phase: names, costs, payloads
    .work/3f9c…/scatter/00012.json      the record of unit 12: done, never done again

The folder below ``.work`` is named for the work (configuration, inputs, library versions, and the
format of these files), so nothing in it can be of other work: files need no stamp, and a worker
that outlives its run writes where nobody reads.
"""

import os
import time
import typing
from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

import msgspec
import pyarrow as pa
from msgspec import structs, to_builtins

from .. import storage
from ..data_card import CARD, data_card
from ..errors import RunError, UserError
from ..manifests import Manifest, StoredHead, VocabularyManifest
from ..memory import trim_heap
from ..parsing import canonical_json, convert_values, digest_of, digest_of_fields, parse_json
from ..storage.directory import WORK, OutputDirectory
from ..storage.state import JOB, MANIFEST, TIMINGS, Begun, begun_in, clear_stage, look, work_folder


@dataclass(frozen=True)
class Unit:
    """One piece of work; its files are named after it."""

    name: str
    cost: int
    """Bytes to read, for the order of the units and the progress bar."""
    payload: Any
    """A dataclass or plain values. Small, as plans must stay small at any corpus size."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """The trace of a finished unit; subclasses add counts and results."""

    files: tuple[str, ...] = ()
    """The names of its files in the output directory; not those of temporary tables."""


@dataclass(frozen=True)
class Phase:
    """One phase of a stage: how its work is cut into units, and how a unit is done.

    Subclasses are frozen dataclasses of options, because they travel to the workers; what is known
    only once the inputs are read is in `Job.setup`.
    """

    name: ClassVar[str]
    """The name of its folder, and of its step in a cluster's user interface."""
    payload_type: ClassVar[Any] = None
    record_type: ClassVar[Any]

    def plan(self, job: "Job") -> Sequence[Unit]:
        """Return the units, from the records of earlier phases, by default one; those of a first
        phase are in its stage's `Plan`. May raise `UserError`.
        """
        return [Unit(self.name, cost=1, payload=None)]

    @abstractmethod
    def do(self, job: "Job", unit: Unit) -> Record:
        """Do a unit and return its record; may raise `UserError`."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The work of a stage, known once its inputs are read."""

    head: StoredHead
    setup: Any
    """Facts about the inputs that all phases need: a small dataclass."""
    units: Sequence[Unit]
    """The units of the first phase."""


class Stage:
    """A stage with its inputs, options and output directory; subclasses are frozen dataclasses."""

    name: ClassVar[str]
    """The name of its command."""
    setup_type: ClassVar[Any]
    output: str

    def __post_init__(self) -> None:
        for name, value in list(vars(self).items()):
            if isinstance(value, os.PathLike):
                object.__setattr__(self, name, os.fspath(value))
        config = getattr(self, "config", None)
        kind = typing.get_type_hints(type(self)).get("config")
        if kind is not None and not isinstance(config, kind):
            raise UserError(f"{self.name} takes {kind.__name__}, not {type(config).__name__}.")

    @abstractmethod
    def plan(self) -> Plan:
        """Read the inputs; raise `UserError` if they, or an option, are wrong. Writes nothing."""

    @cached_property
    @abstractmethod
    def phases(self) -> Sequence[Phase]:
        """The phases in their order."""

    @abstractmethod
    def manifest(self, job: "Job", head: StoredHead) -> Manifest:
        """Return the manifest of finished work; may raise `UserError`."""

    def paths(self) -> dict[str, str]:
        """Return the paths that the stage reads or writes, by field."""
        return {name: value for name, value in vars(self).items() if isinstance(value, str)}

    def absolute(self) -> Self:
        """Return the stage with absolute paths, for workers in other folders."""
        paths = {name: storage.absolute(path) for name, path in self.paths().items()}
        return replace(cast(Any, self), **paths)


Setup = TypeVar("Setup")


@dataclass(frozen=True)
class _OwnBegun(Begun, Generic[Setup]):
    """The content of ``job.json``."""

    setup: Setup
    opened: float
    """When the work began or resumed, in seconds since the epoch."""


ERRORS = "errors"
"""The folder of what `beam` writes down."""
_ADVICE = "Rerun with `overwrite` to start over."


def _read_checked(path: str) -> bytes:
    """Return the JSON of a temporary file; raise `UserError` unless it is as it was written."""
    content, _, digest = storage.read_bytes(path).rpartition(b"\n")
    if digest != digest_of(content).encode():
        raise UserError(f"{path} is damaged (its digest differs). {_ADVICE}")
    return content


# A process reads a file once for all that it does: a folder is that of one work alone.
@lru_cache(maxsize=8)
def _read_once(path: str, kind: Any) -> Any:
    try:
        return parse_json(_read_checked(path), kind, path, _ADVICE)
    except FileNotFoundError:
        raise RunError(
            f"{path} is missing: another process may have removed it; rerun to resume."
        ) from None


@dataclass(frozen=True)
class Job(OutputDirectory):
    """The output directory of a stage that has begun; travels to the workers."""

    work: str
    """Its folder below ``.work``."""
    setup_type: Any = field(default=None, compare=False)

    def temporary(self, name: str) -> str:
        """Return the name, in this directory, of a file that is gone at the end."""
        return f"{WORK}/{self.work}/{name}"

    @property
    def _folder(self) -> str:
        return f"{self.path.rstrip('/')}/{WORK}/{self.work}"

    def is_finished(self) -> bool:
        """Return whether the manifest is there."""
        return storage.exists(self.file(MANIFEST))

    @property
    def setup(self) -> Any:
        """What all phases need to know of the inputs; see `Plan`."""
        return self._begun.setup

    @property
    def _begun(self) -> _OwnBegun[Any]:
        return _read_once(f"{self._folder}/{JOB}", _OwnBegun[self.setup_type])

    # Units and their records.

    def units(self, phase: str) -> Sequence[Unit]:
        """Return the units of a planned phase, their payloads as plain values."""
        return _read_once(f"{self._folder}/{phase}/plan.json", list[Unit])

    def start(self, phase: Phase) -> list[int]:
        """Plan a phase, unless a killed run has; return its unfinished units, dearest first."""
        # A plan that exists stays, because the records of its units refer to it by number.
        if not storage.exists(f"{self._folder}/{phase.name}/plan.json"):
            self._write_checked(f"{phase.name}/plan.json", phase.plan(self))
        units = self.units(phase.name)
        unfinished = set(range(len(units))) - self._records(phase).keys()
        # An expensive unit that began last would keep one worker busy while the others idle.
        return sorted(unfinished, key=lambda number: (-units[number].cost, number))

    def do(self, number: int, phase: Phase) -> None:
        """Do one unit and leave its record."""
        stored = self.units(phase.name)[number]
        unit = replace(stored, payload=convert_values(stored.payload, phase.payload_type))
        self._write_checked(f"{phase.name}/{number:05d}.json", phase.do(self, unit))
        # What was freed would else stay with the thread that freed it.
        pa.default_memory_pool().release_unused()
        trim_heap()

    def _write_checked(self, name: str, value: Any) -> None:
        # A bit that flips on the disk is then an error, not another count.
        content = msgspec.json.encode(value)
        digest = digest_of(content).encode()
        self.write_bytes(self.temporary(name), content + b"\n" + digest)

    def finished_units(self, phase: str) -> set[int]:
        """Return the numbers of the units that have left a record."""
        # 00012.json, but not plan.json.
        files = storage.file_names(f"{self._folder}/{phase}")
        stems = (file.removesuffix(".json") for file in files)
        return {int(stem) for stem in stems if stem.isdecimal()}

    def records(self, phase: Phase | type[Phase]) -> list[Any]:
        """Return the records of all units of a finished phase, in the order of its plan."""
        units = self.units(phase.name)
        records = self._records(phase)
        for number, unit in enumerate(units):
            if number not in records:
                raise UserError(
                    f"The files of {phase.name} {unit.name} in {self.path} are missing; "
                    "rerun to recreate them."
                )
        return [records[number] for number in range(len(units))]

    def _records(self, phase: Phase | type[Phase]) -> dict[int, Any]:
        """Return the records of the units that have one, and all of their files in the output."""

        def read(number: int) -> Any:
            path = f"{self._folder}/{phase.name}/{number:05d}.json"
            return parse_json(_read_checked(path), phase.record_type, path, _ADVICE)

        numbers = self.finished_units(phase.name)
        if not numbers:
            return {}
        with ThreadPoolExecutor(storage.NUM_READERS) as pool:
            records = dict(zip(numbers, pool.map(read, numbers), strict=True))
        # One listing of a folder serves all of its files.
        results = set(storage.file_names(self.path))
        return {
            number: record for number, record in records.items() if results.issuperset(record.files)
        }

    def finish(self, stage: Stage) -> Manifest:
        """Write the manifest of a stage whose phases are done, delete what is temporary, and return
        the manifest with its digest. The time goes into a file of its own.
        """
        # Not from `stage.plan`, which would read the inputs again, perhaps elsewhere.
        begun = self._begun
        manifest = stage.manifest(self, begun.head)
        # Fields at their defaults are left out, but for the version and options.
        always = {"schema_version": manifest.schema_version, "config": asdict(manifest.config)}
        fields = {**to_builtins(manifest), **always}
        digest = digest_of_fields(fields)
        if not isinstance(manifest, VocabularyManifest):
            self.write_bytes(CARD, data_card(manifest).encode())
        seconds = round(time.time() - begun.opened, 3)
        self.write_bytes(TIMINGS, canonical_json({"seconds": seconds}))
        # From here on the stage is finished; a kill before the next line only leaves litter.
        self.write_bytes(MANIFEST, canonical_json({**fields, "digest": digest}))
        self.remove(WORK)
        return structs.replace(manifest, digest=digest)


def open_job(stage: Stage, plan: Plan, overwrite: bool) -> tuple[Job, Manifest | None]:
    """Begin or resume the work of a stage; return its job, and the manifest if it is finished.

    Raise as `storage.state.look`.
    """
    state, manifest = look(stage.output, plan.head, overwrite=overwrite)
    job = Job(stage.output, work_folder(plan.head), stage.setup_type)
    if state == "finished":
        job.remove(WORK)  # left by a process that was killed beside its manifest
        return job, manifest
    if state == "replaced":
        clear_stage(stage.output)
    elif state == "begun":
        job.remove(job.temporary(ERRORS))  # let units begin again
    # Again when resuming, which changes nothing: the same work has the same units. Later phases are
    # planned once those before are done.
    job._write_checked(f"{stage.phases[0].name}/plan.json", plan.units)
    # Last: with it, the stage has begun.
    job._write_checked(JOB, _OwnBegun(plan.head, plan.setup, opened=time.time()))
    _read_once.cache_clear()  # of the same work, begun before
    return job, None


def job_of(stage: Stage) -> Job | None:
    """Return the job of a stage that has begun, anywhere, and is not finished; None if none."""
    # The manifest first: a process killed after writing it leaves a job too.
    if storage.exists(storage.join(stage.output, MANIFEST)):
        return None
    for folder in begun_in(stage.output):
        return Job(stage.output, folder, stage.setup_type)
    return None
