"""Window frames: for every row, the rows [low, high) that its function reads.

RANGE offsets are added to the value of the only order column (against its direction when it descends), in the type of
that column, as Spark does: an overflow is an error; NULL and NaN have only their peers. An offset is a number in the
unit of the column.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.data.arrays import Bools, Positions, Words
from penstock.data.column_view import null_mask, view
from penstock.data.ordering import encode
from penstock.errors import DataError
from penstock.functions.windows.layout import Layout
from penstock.plan.node import Frame
from penstock.state.ordered import lower_bounds


def frame_rows(frame: Frame, rows: Layout) -> tuple[Positions, Positions]:
    """Return where the frame of each row begins and ends; an empty one begins where it ends."""
    if frame.unit == "rows":
        position = np.arange(len(rows))
        low = (
            rows.begin if frame.lower is None else np.clip(position + int(frame.lower), rows.begin, rows.end)
        )
        high = (
            rows.end
            if frame.upper is None
            else np.clip(position + int(frame.upper) + 1, rows.begin, rows.end)
        )
    else:
        low, high = _range_low(frame.lower, rows), _range_high(frame.upper, rows)
    return low, np.maximum(low, high)


def _is_current(bound: Any) -> bool:
    return isinstance(bound, int) and bound == 0


def _range_low(bound: Any, rows: Layout) -> Positions:
    if bound is None:
        return rows.begin
    return rows.peer_begin if _is_current(bound) else _search(bound, rows, after=False)


def _range_high(bound: Any, rows: Layout) -> Positions:
    if bound is None:
        return rows.end
    return rows.peer_end if _is_current(bound) else _search(bound, rows, after=True)


def _search(bound: Any, rows: Layout, *, after: bool) -> Positions:
    """Where the rows begin whose order value is not before (or, with `after`, is behind) that of each row plus an offset."""
    key = rows.order[0]
    column = rows.columns[key.column]
    nulls = null_mask(column)
    begin, end = rows.begin, rows.end
    if nulls is not None:
        # The NULLs of a partition are at one end of it.
        before = np.concatenate(([0], np.cumsum(nulls)))
        missing = before[end] - before[begin]
        begin, end = (begin + missing, end) if key.nulls_first else (begin, end - missing)
    words, wanted = encode(column), _shifted(column, bound, descending=key.descending, nulls=nulls)
    if key.descending:
        words, wanted = tuple(~word for word in words), tuple(~word for word in wanted)
    bounds = lower_bounds(words, wanted, begin, end, after=after)
    if nulls is not None:
        bounds = np.where(nulls, rows.peer_end if after else rows.peer_begin, bounds)
    return bounds


def _shifted(column: pa.Array, bound: Any, *, descending: bool, nulls: Bools | None) -> tuple[Words, ...]:
    """The order words of each value plus (minus, when descending) an offset."""
    kind = column.type
    if pa.types.is_decimal(kind) and kind.precision > 18:
        exact = Decimal(bound) * (-1 if descending else 1)
        sums = [None if value is None else value + exact for value in column.to_pylist()]
        return encode(pa.array(sums, pa.decimal128(38, kind.scale)))
    values = view(column).values
    assert values is not None
    if pa.types.is_floating(kind):
        step = values.dtype.type(-bound if descending else bound)
        return encode(pa.array(values + step))
    if pa.types.is_decimal(kind):
        numbers = values["low"].view(np.int64)
        offset = int(Decimal(bound).scaleb(kind.scale))
        lowest, highest = -(10**kind.precision) + 1, 10**kind.precision - 1
    else:
        numbers = values.astype(np.int64)
        offset = int(bound)
        lowest, highest = -(1 << (kind.bit_width - 1)), (1 << (kind.bit_width - 1)) - 1
    offset = -offset if descending else offset
    over = (numbers > highest - offset) if offset > 0 else (numbers < lowest - offset)
    if nulls is not None:
        over &= ~nulls
    if over.any():
        raise DataError(
            f"a window frame overflows: {int(numbers[np.argmax(over)])} + {offset} is not a {kind}",
            code="DATA_OVERFLOW",
            hint="cast the order column to a wider type",
        )
    shifted = numbers + np.int64(offset)
    return (shifted.view(np.uint64) ^ np.uint64(1 << 63),)
