"""The seed of everything random in a test run: a fresh one, or that of a run that is to be repeated."""

from __future__ import annotations

import os
import random

VARIABLE = "PENSTOCK_TEST_SEED"
SEED = int(os.environ.get(VARIABLE) or random.SystemRandom().randrange(2**32))
