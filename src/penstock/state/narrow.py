"""Integers in as few bytes as they need: nearly all weights are 1 or -1, and groups are fewer than two thousand million."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Small = npt.NDArray[np.signedinteger]


def narrow(numbers: Small) -> Small:
    """Return numbers in one byte each where they fit, else in four where they fit, else in eight."""
    if numbers.dtype == np.int8 or len(numbers) == 0:
        return numbers.astype(np.int8, copy=False)
    least, most = int(numbers.min()), int(numbers.max())
    if least >= -(2**7) and most < 2**7:
        return numbers.astype(np.int8)
    if least >= -(2**31) and most < 2**31:
        return numbers.astype(np.int32, copy=False)
    return numbers


def all_one(weights: Small) -> bool:
    """Whether rows are only inserted, once each."""
    # The first ones tell most deltas with retractions apart without looking at all.
    return bool((weights[:64] == 1).all() and (weights == 1).all())
