"""Side-by-side measurements against named peers; each module prints a table with ratios from one
run.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

if not importlib.util.find_spec("clozeworks"):  # a checkout that is not installed
    sys.modules["clozeworks"] = ModuleType("clozeworks")
    sys.modules["clozeworks"].__path__ = [str(Path(__file__).parents[1])]
