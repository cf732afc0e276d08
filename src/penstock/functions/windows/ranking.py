"""ROW_NUMBER, RANK, DENSE_RANK, PERCENT_RANK, CUME_DIST, NTILE: positions in the order of a partition.

Rows that tie in the order are numbered by the whole row, in ascending order of its columns with NULL first. Cost: the partition.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.functions.windows.layout import Layout
from penstock.plan.node import WindowCall


def _integers(values: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array(values.astype(np.int32))


def row_number(call: WindowCall, rows: Layout) -> pa.Array:
    """The position of a row, from 1."""
    return _integers(np.arange(len(rows)) - rows.begin + 1)


def rank(call: WindowCall, rows: Layout) -> pa.Array:
    """The position of the first peer."""
    return _integers(rows.peer_begin - rows.begin + 1)


def dense_rank(call: WindowCall, rows: Layout) -> pa.Array:
    """The number of different peers so far."""
    seen = np.cumsum(rows.peer_begin == np.arange(len(rows)))
    return _integers(seen - seen[rows.begin] + 1 if len(rows) else seen)


def percent_rank(call: WindowCall, rows: Layout) -> pa.Array:
    """(rank - 1) / (rows - 1), and 0 for a single row."""
    others = np.maximum(rows.end - rows.begin - 1, 1)
    return pa.array((rows.peer_begin - rows.begin) / others)


def cume_dist(call: WindowCall, rows: Layout) -> pa.Array:
    """The share of rows up to the last peer."""
    return pa.array((rows.peer_end - rows.begin) / np.maximum(rows.end - rows.begin, 1))


def ntile(call: WindowCall, rows: Layout) -> pa.Array:
    """The bucket of a row; the first buckets take one row more when they cannot all be equal."""
    buckets = int(call.option("buckets", 1))
    position, size = np.arange(len(rows)) - rows.begin, rows.end - rows.begin
    small, larger = size // buckets, size % buckets
    border = larger * (small + 1)
    behind = larger + (position - border) // np.maximum(small, 1)
    return _integers(np.where(position < border, position // (small + 1), behind) + 1)
