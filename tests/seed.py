"""The seeds of everything random in a test run.

`SEED` follows from the committed source: the same code is asked the same questions, here and in CI, and other code other ones. `FRESH` is
another one in every run, for generated queries. `PENSTOCK_TEST_SEED` sets both, so that a run can be repeated.
"""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

VARIABLE = "PENSTOCK_TEST_SEED"


def _seed_of_source() -> int:
    """A number that changes with the committed source, and with nothing else; the same one without Git."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD:src"]
    tree = subprocess.run(command, capture_output=True, text=True, check=False)
    return int(tree.stdout[:8] or "0", 16)


_GIVEN = os.environ.get(VARIABLE)
SEED = int(_GIVEN) if _GIVEN else _seed_of_source()
FRESH = int(_GIVEN) if _GIVEN else random.SystemRandom().randrange(2**32)
