"""Programs of the examples import what lies beside them; so do their tests."""

import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
for name in ("paper", "compare", "clusters"):
    sys.path.insert(0, str(EXAMPLES / name))
