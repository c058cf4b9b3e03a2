"""Start ``clozeworks``: an interrupt while Python still imports it is one line too."""

import os
import sys


def start() -> None:
    """Run the command line of this process."""
    try:
        from .main import main
    except KeyboardInterrupt:
        print("Error: Interrupted; rerun the same command to resume.", file=sys.stderr, flush=True)
        os._exit(130)
    main()


if __name__ == "__main__":
    start()
