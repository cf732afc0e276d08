"""Event times as numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.data.arrays import Bools

Micros = npt.NDArray[np.int64]
_DAY = 86_400_000_000


def micros(column: pa.Array) -> tuple[Micros, Bools]:
    """The times of a key in microseconds, and which of them are there; of a struct, those of its first field."""
    if pa.types.is_struct(column.type):
        times, valid = micros(column.flatten()[0])
        return times, valid & column.is_valid().to_numpy(zero_copy_only=False)
    days = pa.types.is_date32(column.type)
    numbers = (column.cast(pa.int32()) if days else column).cast(pa.int64()).fill_null(0)
    times = numbers.to_numpy(zero_copy_only=False)
    return (times * _DAY if days else times), column.is_valid().to_numpy(zero_copy_only=False)
