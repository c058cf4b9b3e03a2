"""The click commands: they parse, make a config and call; the work is done in ``pipeline`` and ``model``."""
