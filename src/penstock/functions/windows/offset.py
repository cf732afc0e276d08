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


def _pick(column: pa.Array, places: Positions, there: Bools) -> pa.Array:
    """The values at places, NULL where there is none."""
    return column.take(pa.array(places, mask=None if there.all() else ~there))


def _filled(column: pa.Array) -> Positions:
    """The places of values that are not NULL."""
    nulls = null_mask(column)
    return np.arange(len(column)) if nulls is None else np.flatnonzero(~nulls)


def _nth(filled: Positions, index: Positions, low: Positions, high: Positions) -> tuple[Positions, Bools]:
    """The filled place of an index, and whether it lies within [low, high)."""
    inside = (index >= 0) & (index < len(filled))
    places = filled[np.where(inside, index, 0)] if len(filled) else np.zeros(len(index), np.int64)
    return places, inside & (places >= low) & (places < high)


def shift(call: WindowCall, rows: Layout) -> pa.Array:
    """LAG and LEAD: the value so many rows before or behind, counting only values that are not NULL if told so."""
    column = rows.columns[call.args[0]]
    step = int(call.option("offset", 1)) * (-1 if call.function == "Lag" else 1)
    here = np.arange(len(rows))
    if call.option("ignoreNulls", False) and step:
        filled = _filled(column)
        nearest = (
            np.searchsorted(filled, here, "right") - 1 if step > 0 else np.searchsorted(filled, here, "left")
        )
        places, there = _nth(filled, nearest + step, rows.begin, rows.end)
    else:
        places = here + step
        there = (places >= rows.begin) & (places < rows.end)
    found = _pick(column, np.where(there, places, 0), there)
    if len(call.args) > 1:
        found = pc.if_else(pa.array(there), found, rows.columns[call.args[1]])
    return found


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
        places, there = _nth(filled, np.searchsorted(filled, high, "left") - 1, low, high)
    else:
        places, there = high - 1, high > low
    return _pick(column, np.where(there, places, 0), there)


def _nth_of_frame(call: WindowCall, rows: Layout, index: int) -> pa.Array:
    column = rows.columns[call.args[0]]
    low, high = frame_rows(call.frame, rows)
    if call.option("ignoreNulls", False):
        filled = _filled(column)
        places, there = _nth(filled, np.searchsorted(filled, low, "left") + index, low, high)
    else:
        places = low + index
        there = places < high
    return _pick(column, np.where(there, places, 0), there)
