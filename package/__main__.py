"""``python -m clozeworks`` is the command ``clozeworks``."""

from .cli.main import main

if __name__ == "__main__":
    main()
