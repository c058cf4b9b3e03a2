"""Say something to the user; imports nothing heavy."""

import logging
import os


def print_notice(line: str) -> None:
    """Log a line for the user, who sees it on standard error unless logging is set up otherwise.

    Under torchrun only the first rank does.
    """
    if os.environ.get("RANK", "0") == "0":
        logging.getLogger("clozeworks").warning("%s", line)
