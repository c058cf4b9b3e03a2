"""Open and finish data stages: phases over one output directory, up to its manifest.

A stage is done in three steps, and any of them may run on another machine than the one before:

- **open** reads the inputs, claims the output directory, and writes down what the phases need;
- each **phase** is planned and done, unit by unit (see `phases`);
- **finish** sums the records up into ``manifest.json``, the last file.
"""

import socket
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

import msgspec

from .. import storage
from ..errors import RunError, UserError
from ..manifests import Manifest, StoredHead
from ..parsing import parse_json
from ..storage.directory import WORK, OutputDirectory
from ..storage.stage import HEAD_FILE, MANIFEST, begin_stage, read_head, write_manifest
from .phases import Phase
from .units import (
    WORK_FORMAT,
    OpenedStage,
    Unit,
    clear_errors,
    errors_written_down,
    write_units,
)

SETUP = f"{WORK}/setup.json"

S = TypeVar("S")
M = TypeVar("M", bound=Manifest)


@dataclass(frozen=True, kw_only=True)
class StagePlan(Generic[S]):
    """The work of a stage, known once its inputs are read."""

    head: StoredHead
    """See `storage.stage.manifest_head`."""
    setup: S
    """Facts about the inputs that all phases need: a small dataclass."""
    units: Sequence[Unit[Any]]
    """Of the first phase."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Small files to write into the output directory before the first phase, by name."""


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What a stage takes, in bytes, from the sizes of its input: expect errors of up to a half."""

    units: str
    input_bytes: int
    output_bytes: int
    temporary_bytes: int


class Stage(Generic[S, M]):
    """A stage with its inputs, options and output directory; subclasses are frozen dataclasses."""

    name: ClassVar[str]
    """The name of its command, and its ``stage`` in the manifest."""
    setup_type: ClassVar[Any]
    """S."""

    output: str

    @abstractmethod
    def plan(self) -> StagePlan[S]:
        """Read the inputs; raise `UserError` if they, or an option, are wrong. Writes nothing."""

    @abstractmethod
    def needs(self, plan: StagePlan[S]) -> Needs:
        """Estimate what the work of `plan` takes."""

    @abstractmethod
    def phases(self) -> Iterator[Phase[S, Any, Any]]:
        """Yield the phases in their order, with the tables that they read and write."""

    @abstractmethod
    def manifest(self, directory: OpenedStage[S], head: StoredHead) -> M:
        """Return the manifest of the finished work; raise `UserError` if too much of the input was
        bad.
        """

    @abstractmethod
    def absolute(self) -> Self:
        """Return the stage with absolute paths, for workers in other folders."""


@dataclass(frozen=True)
class _SetupFile(Generic[S]):
    fingerprint: str
    begun: float
    """Seconds since the epoch; see `OpenedStage.opened`."""
    setup: S
    layout: int
    version: str
    """Of clozeworks, on the machine that opened the stage."""


def open_stage(
    stage: Stage[S, M], plan: StagePlan[S], overwrite: bool
) -> tuple[OpenedStage[S], M | None]:
    """Begin or resume a stage; return its directory, and its manifest if it is finished already.

    Raise `UserError` if the directory belongs to other work; see `storage.stage.look_at_stage`.
    """
    directory = OpenedStage(
        stage.output,
        plan.head.fingerprint,
        time.time(),
        setup=plan.setup,
        writers=table_writers(stage),
    )
    manifest = begin_stage(stage.output, plan.head, overwrite)
    if manifest is not None:
        return directory, cast(M, manifest)
    clear_errors(directory)
    for name, content in plan.files.items():
        directory.write_bytes(name, content)
    # Again when resuming, which changes nothing: the same inputs, by the fingerprint, give the same
    # units. Later phases are planned once those before them are done.
    first_phase = next(stage.phases())
    write_units(directory, first_phase.name, plan.units)
    # The setup goes last: with it, workers take the stage for opened.
    setup = _SetupFile(
        directory.fingerprint, directory.opened, plan.setup, WORK_FORMAT, installed_version()
    )
    directory.write_bytes(SETUP, msgspec.json.encode(setup))
    return directory, None


def table_writers(stage: Stage[Any, Any]) -> dict[str, str]:
    """Return the phase that writes each table; raises `TypeError` unless each is written before it
    is read.
    """
    writers: dict[str, str] = {}
    for phase in stage.phases():
        for table in phase.reads:
            if table.name not in writers:
                raise TypeError(
                    f"{phase.name} reads {table.name}, but no phase before it writes it"
                )
        writers |= dict.fromkeys((table.name for table in phase.writes), phase.name)
    return writers


def opened_directory(stage: Stage[S, Any]) -> OpenedStage[S] | None:
    """Return the directory of a stage that has been opened, anywhere; None if it is finished.

    Raise `UserError` if another version of clozeworks has opened it, on another machine.
    """
    # Check the manifest first: a process killed after writing it leaves a setup too.
    if storage.exists(storage.join(stage.output, MANIFEST)):
        return None
    path = storage.join(stage.output, SETUP)
    if not storage.exists(path):
        raise RunError(f"{path} is missing: another process may have removed it; rerun to resume.")
    stored = parse_json(storage.read_bytes(path), _SetupFile[stage.setup_type], path)
    directory = OpenedStage(
        stage.output,
        stored.fingerprint,
        stored.begun,
        setup=stored.setup,
        writers=table_writers(stage),
    )
    check_version(directory, installed_version(), stored.version)
    if stored.layout != WORK_FORMAT:
        raise RunError(f"{path} was written by another version of clozeworks.")
    return directory


def check_version(directory: OutputDirectory, here: str, of_opener: str) -> None:
    """Raise `UserError` if this machine has other versions than the one that opened a stage.

    It is written down, so that the run ends: an engine would try this machine again and again.
    """
    if here == of_opener:
        return
    host = socket.gethostname()
    with errors_written_down(directory, f"version-{host}"):
        raise UserError(
            f"{host} has {here}, but the run was opened by {of_opener}: install the same on all "
            "machines."
        )


@cache
def installed_version() -> str:
    """Return the version of clozeworks on this machine, after its name."""
    return f"clozeworks {version('clozeworks')}"


def finish_stage(stage: Stage[S, M], directory: OpenedStage[S]) -> M:
    """Write the manifest of a stage whose phases are done, and return it."""
    with errors_written_down(directory, "finish"):
        # Not from `stage.plan`, which would read the inputs again, perhaps on another machine.
        head = read_head(stage.output)
        if head is None:
            raise RunError(f"{directory.file(HEAD_FILE)} is missing: rerun to resume.")
        manifest = stage.manifest(directory, head)
        return write_manifest(directory, manifest, time.time() - directory.opened)
