"""Ask a training to stop.

This module imports nothing heavy, because the command line handles signals with it.
"""

import threading
from typing import Self


class StopRequest:
    """Lets another thread end a training early: the current update is finished, and all is saved.

    A training loop enters it while it can stop, and looks at it before each update. The command
    line's kind handles signals between entering and leaving, and only then.
    """

    def __init__(self) -> None:
        self._event = threading.Event()

    def request(self) -> None:
        """Ask the training to stop; may be called from any thread."""
        self._event.set()

    @property
    def is_requested(self) -> bool:
        """Whether the training has been asked to stop."""
        return self._event.is_set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass
