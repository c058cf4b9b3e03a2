"""What the user is told of the data while it is read."""

import os
import sys


def print_notice(line: str) -> None:
    """Write a line to standard error; of the processes that torchrun started, the first alone does."""
    if os.environ.get("RANK", "0") == "0":
        print(line, file=sys.stderr)
