"""Notices to the user about the data, while it is read."""

import os
import sys


def print_notice(line: str) -> None:
    """Write a line to standard error; under torchrun, only on the first rank."""
    if os.environ.get("RANK", "0") == "0":
        print(line, file=sys.stderr)
