"""The output directory of a search: the best model, and a folder for each run."""

import shutil
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ...pipeline.storage.directory import OutputDirectory
from ..card import CARD
from ..checkpoint import TASK
from .records import (
    RECORD,
    RUNS,
    SUMMARY,
    RunRecord,
    Trial,
    best_of,
    read_records,
    read_summary,
    run_name,
)
from .results import RESULTS, results_table
from .train import CHECKPOINT

MODEL = "model"
"""The folder of a run's model, as long as it is the best one."""


class SearchFolder:
    """What a search writes, and reads again when it resumes."""

    def __init__(self, path: Path):
        self.path = path
        self.files = OutputDirectory(str(path))

    def of_run(self, trial: Trial) -> Path:
        """Return where the record and the logs of a run are."""
        return self.path / RUNS / run_name(trial)

    def is_done(self, trial: Trial) -> bool:
        """Return whether the run is recorded: its scores, and its model if that is the best."""
        return (self.of_run(trial) / RECORD).exists()

    def is_complete(self, grid: Iterable[Trial], test_digest: str) -> bool:
        """Return whether all runs are done, the card is there, and the predictions are of the test
        files with this digest.
        """
        if not all(map(self.is_done, grid)) or not (self.path / CARD).is_file():
            return False
        summary = read_summary(self.path)
        return summary is not None and summary.test_digest == test_digest

    def forget_end(self) -> None:
        """Delete the summary, and the card too, so that nobody exports the next best model with the
        figures of this one.
        """
        for name in (SUMMARY, CARD):
            (self.path / name).unlink(missing_ok=True)

    def model_of(self, trial: Trial) -> str:
        """Return the name in the directory of a run's model, until the run is recorded."""
        return str(self.of_run(trial).relative_to(self.path) / MODEL)

    def record(self, record: RunRecord) -> None:
        """Write a run's record, with which it is done."""
        name = self.of_run(record).relative_to(self.path) / RECORD
        self.files.write_json(str(name), msgspec.to_builtins(record))

    def settle(self) -> None:
        """Move the best run's model, if it is not there yet, to the directory, write the table of
        all runs, and delete other models, and checkpoints.

        A model waits in its run's directory until the run is recorded. While files are moved there
        is no ``task.json``, without which nothing reads them.
        """
        records = read_records(self.path)
        best = best_of(records)
        for record in records:
            directory = self.of_run(record)
            model = directory / MODEL
            if record is best and (model / TASK).exists():
                self._replace_model(model)
            shutil.rmtree(model, ignore_errors=True)
            checkpoint = directory / CHECKPOINT
            checkpoint.unlink(missing_ok=True)
            checkpoint.with_suffix(".partial").unlink(missing_ok=True)
        self.files.write_bytes(RESULTS, results_table(records))

    def _replace_model(self, model: Path) -> None:
        (self.path / TASK).unlink(missing_ok=True)
        shutil.rmtree(self.path / "test", ignore_errors=True)  # of the model before
        files = sorted(filter(Path.is_file, model.rglob("*")))
        files.sort(key=lambda file: file.name == TASK)  # False before True: task.json comes last
        for file in files:
            target = self.path / file.relative_to(model)
            target.parent.mkdir(exist_ok=True)
            file.replace(target)
