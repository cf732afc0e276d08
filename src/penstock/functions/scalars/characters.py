"""Columns of text as matrices of bytes, one for each length, and numbers as columns of digits."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]


def by_length(column: pa.Array, shortest: int, longest: int) -> Iterator[tuple[Numbers, Bytes]]:
    """The rows whose texts have the same number of bytes, and those bytes; texts of other lengths and NULL are left out."""
    offsets, data = _buffers(column)
    lengths = np.diff(offsets)
    if column.null_count:
        lengths = np.where(column.is_valid().to_numpy(zero_copy_only=False), lengths, -1)
    for length in np.unique(lengths).tolist():
        if shortest <= length <= longest:
            rows = np.flatnonzero(lengths == length)
            yield rows, data[offsets[rows][:, None] + np.arange(length)]


def _buffers(column: pa.Array) -> tuple[Numbers, Bytes]:
    _, offsets, data = column.buffers()
    if offsets is None or not len(column):
        return np.zeros(len(column) + 1, np.int64), np.zeros(0, np.uint8)
    starts = np.frombuffer(offsets, np.int64, len(column) + 1, offset=8 * column.offset)
    return starts, np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)


def number(matrix: Bytes, start: int, stop: int) -> Numbers:
    """The number that the digits of some columns make."""
    total = np.zeros(len(matrix), np.int64)
    for place in range(start, stop):
        total = total * 10 + (matrix[:, place].astype(np.int64) - 48)
    return total


def are_digits(matrix: Bytes, start: int, stop: int) -> npt.NDArray[np.bool_]:
    """Which rows have digits in some columns."""
    part = matrix[:, start:stop]
    return np.asarray(((part >= 48) & (part <= 57)).all(axis=1))


@lru_cache(maxsize=16)
def padded(width: int, count: int) -> pa.Array:
    """The numbers below a count as text of at least the given width."""
    return pa.array([f"{value:0{width}d}" for value in range(count)], pa.large_string())
