"""TensorBoard's event files, written without its thread: if the disk is full, the caller gets the
error.
"""

import os
import socket
import time
from pathlib import Path
from typing import Any


class EventFile:
    """A new event file in `folder`; TensorBoard then hides what older files there have from
    `first_step` on.
    """

    def __init__(self, folder: Path, first_step: int):
        # Imported here because it takes half a second, and only the first rank writes logs.
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        events: Any = event_pb2  # protocol buffers have no types
        summaries: Any = summary_pb2
        self._event = events.Event
        self._summary = summaries.Summary
        folder.mkdir(parents=True, exist_ok=True)
        # TensorBoard finds files by this prefix, and reads them in the order of the first number.
        prefix = f"events.out.tfevents.{int(time.time()):010d}"
        name = f"{prefix}.{socket.gethostname()}.{os.getpid()}.{time.time_ns()}"
        self._file = (folder / name).open("wb")
        self._records = RecordWriter(self._file)
        # Every reader expects the version first.
        self._add(step=first_step, file_version="brain.Event:2")
        # A resumed run computes the steps after its checkpoint again. At a start, TensorBoard drops
        # the points of older files from this step on, so that no curve runs back over itself.
        self._add(step=first_step, session_log=events.SessionLog(status=events.SessionLog.START))

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        """Add one point of a curve."""
        point = self._summary.Value(tag=tag, simple_value=value)
        self._add(step=step, summary=self._summary(value=[point]))

    def _add(self, **fields: Any) -> None:
        event = self._event(wall_time=time.time(), **fields)
        self._records.write(event.SerializeToString())

    def flush(self) -> None:
        """Write everything to disk."""
        self._file.flush()

    def close(self) -> None:
        """Write everything to disk and close the file, even if that fails."""
        try:
            self._file.flush()
        finally:
            # What could not be written stays in the buffer, which would try again, and print its
            # error, when it is deleted.
            self._file.raw.close()
