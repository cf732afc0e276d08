"""LAG, LEAD, NTH_VALUE, FIRST and LAST over a frame: the value of another row.

Cost: the partition.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.arrays import Bools, Positions
from penstock.data.column_view import null_mask
from penstock.functions.windows.frame import frame_rows
from penstock.functions.windows.layout import Layout
from penstock.plan.node import WindowCall


def _pick(column: pa.Array, positions: Positions, exists: Bools) -> pa.Array:
    """The values at positions, NULL where none exists."""
    return column.take(pa.array(positions, mask=None if exists.all() else ~exists))


def _filled(column: pa.Array) -> Positions:
    """The positions of values that are not NULL."""
    nulls = null_mask(column)
    return np.arange(len(column)) if nulls is None else np.flatnonzero(~nulls)


def _nth(filled: Positions, index: Positions, low: Positions, high: Positions) -> tuple[Positions, Bools]:
    """The filled position of an index, and whether it lies within [low, high)."""
    inside = (index >= 0) & (index < len(filled))
    positions = filled[np.where(inside, index, 0)] if len(filled) else np.zeros(len(index), np.int64)
    return positions, inside & (positions >= low) & (positions < high)


def shift(call: WindowCall, rows: Layout) -> pa.Array:
    """LAG and LEAD: the value so many rows before or behind, counting only values that are not NULL with IGNORE NULLS."""
    column = rows.columns[call.args[0]]
    step = int(call.option("offset", 1)) * (-1 if call.function == "Lag" else 1)
    current = np.arange(len(rows))
    if call.option("ignoreNulls", False) and step:
        filled = _filled(column)
        nearest = (
            np.searchsorted(filled, current, "right") - 1
            if step > 0
            else np.searchsorted(filled, current, "left")
        )
        positions, exists = _nth(filled, nearest + step, rows.begin, rows.end)
    else:
        positions = current + step
        exists = (positions >= rows.begin) & (positions < rows.end)
    values = _pick(column, np.where(exists, positions, 0), exists)
    if len(call.args) > 1:
        values = pc.if_else(pa.array(exists), values, rows.columns[call.args[1]])
    return values


def nth_value(call: WindowCall, rows: Layout) -> pa.Array:
    """The value of the n-th row of the frame."""
    return _nth_of_frame(call, rows, int(call.option("offset", 1)) - 1)


def first_value(call: WindowCall, rows: Layout) -> pa.Array:
    """The value of the first row of the frame."""
    return _nth_of_frame(call, rows, 0)


def last_value(call: WindowCall, rows: Layout) -> pa.Array:
    """The value of the last row of the frame."""
    column = rows.columns[call.args[0]]
    low, high = frame_rows(call.frame, rows)
    if call.option("ignoreNulls", False):
        filled = _filled(column)
        positions, exists = _nth(filled, np.searchsorted(filled, high, "left") - 1, low, high)
    else:
        positions, exists = high - 1, high > low
    return _pick(column, np.where(exists, positions, 0), exists)


def _nth_of_frame(call: WindowCall, rows: Layout, index: int) -> pa.Array:
    column = rows.columns[call.args[0]]
    low, high = frame_rows(call.frame, rows)
    if call.option("ignoreNulls", False):
        filled = _filled(column)
        positions, exists = _nth(filled, np.searchsorted(filled, low, "left") + index, low, high)
    else:
        positions = low + index
        exists = positions < high
    return _pick(column, np.where(exists, positions, 0), exists)
