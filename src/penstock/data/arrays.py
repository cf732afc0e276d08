"""The types of NumPy arrays that the kernel passes around."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[Any]
"""Numbers of any one type."""
Positions = npt.NDArray[np.int64]
"""Positions of rows, of slots, or of entries of another array."""
Words = npt.NDArray[np.uint64]
"""Unsigned integers whose order is the order of values or of hashes."""
