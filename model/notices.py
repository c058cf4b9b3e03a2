"""What a run says to its user, and how its user asks it to stop; imports nothing heavy."""

import logging
import os
import threading
from typing import Self


def print_notice(line: str) -> None:
    """Log a line for the user, on the first rank alone."""
    if os.environ.get("RANK", "0") == "0":
        logging.getLogger("clozeworks").warning("%s", line)


class StopRequest(threading.Event):
    """Lets another thread end a training early: an update is finished first, and all is saved."""

    def request(self) -> None:
        """Ask the training to stop; may be called from any thread."""
        self.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass
