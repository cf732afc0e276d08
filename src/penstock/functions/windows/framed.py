"""Aggregate functions over the frame of each row.

COUNT, SUM and AVG subtract exact running totals, so that a sum of floats is the nearest double to the exact sum
whatever the frame; MIN and MAX look up a table of powers of two. Every other aggregate is computed for each different
frame from its rows; COLLECT_LIST keeps the order of the window.

Cost: the partition; the rows of all different frames for functions other than COUNT, SUM, AVG, MIN and MAX.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from penstock.data.arrays import Bools, Floats, Ints, Positions
from penstock.data.column_view import gather, null_mask
from penstock.data.hashing import expand
from penstock.data.ordering import rank_rows
from penstock.functions.aggregates import AGGREGATES
from penstock.functions.aggregates.base import Parts, Rows, Selection, doubles, integers, is_true
from penstock.functions.aggregates.collect import listed
from penstock.functions.aggregates.parts import CountPart, DecimalSumPart, FloatSumPart, IntegerSumPart
from penstock.functions.aggregates.result import Numbers, shown
from penstock.functions.exact import FloatSums, decimal_words, settle
from penstock.functions.windows.frame import frame_rows
from penstock.functions.windows.layout import Layout
from penstock.plan.node import AggregateCall, SortKey, WindowCall

_MASK, _BITS = np.int64(0xFFFFFFFF), np.int64(32)


def as_aggregate(call: WindowCall) -> AggregateCall:
    """The aggregate call that a window call makes over each frame."""
    return AggregateCall(call.function, call.args, call.type, call.distinct, call.filter, call.options)


def framed(call: WindowCall, rows: Layout) -> pa.Array:
    """An aggregate over the frame of every row."""
    low, high = frame_rows(call.frame, rows)
    quick = _QUICK.get(call.function)
    if quick is not None and not call.distinct:
        return quick(call, rows, _used(call, rows), low, high)
    return _by_frame(call, rows, low, high)


def _used(call: WindowCall, rows: Layout) -> Bools:
    """Which rows count: the filter is TRUE and no argument is NULL."""
    used = np.ones(len(rows), np.bool_)
    if call.filter is not None:
        used &= is_true(rows.columns[call.filter])
    for index in call.args:
        nulls = null_mask(rows.columns[index])
        if nulls is not None:
            used &= ~nulls
    return used


def _between(values: Ints, low: Positions, high: Positions) -> Ints:
    """Sums of ranges, by running totals (of rows, when there are several columns)."""
    totals = np.zeros((len(values) + 1, *values.shape[1:]), np.int64)
    np.cumsum(values, axis=0, out=totals[1:])
    return totals[high] - totals[low]


def _count(call: WindowCall, rows: Layout, used: Bools, low: Positions, high: Positions) -> pa.Array:
    return Numbers(_between(used.astype(np.int64), low, high), None, pa.int64()).array()


def _settled(block: Ints) -> Ints:
    settle(block)
    return block


def _total(call: WindowCall, rows: Layout, used: Bools, low: Positions, high: Positions) -> pa.Array:
    """SUM and AVG: one slot per row, filled with the difference of two running totals, read as in a group."""
    column = rows.columns[call.args[0]]
    inner = AggregateCall(call.function, (0,), call.type, options=call.options)
    parts = Parts([column.type])
    function = AGGREGATES.load(call.function)(inner, parts)
    for _, part in parts.all():
        part.reserve(len(rows))
        if isinstance(part, CountPart):
            part.values.append(0, _between(used.astype(np.int64), low, high))
        elif isinstance(part, FloatSumPart):
            _fill_floats(part, np.where(used, doubles(column), 0.0), low, high)
        else:
            assert isinstance(part, IntegerSumPart | DecimalSumPart)
            limbs = _limbs(column, part.sums.limbs)
            part.sums.rows.append(0, _settled(_between(np.where(used[:, None], limbs, 0), low, high)))
    return shown(function.result(np.arange(len(rows))))


def _limbs(column: pa.Array, count: int) -> Ints:
    """The values of an integer or decimal column in limbs of 32 bits, the highest one signed."""
    if pa.types.is_decimal(column.type):
        words = decimal_words(column)
        low, high = words[:, 0], words[:, 1]
        if count == 4:
            return np.stack([low & _MASK, (low >> _BITS) & _MASK, high & _MASK, high >> _BITS], axis=1)
    else:
        low = integers(column)
    return np.stack([low & _MASK, low >> _BITS], axis=1)


def _fill_floats(part: FloatSumPart, values: Floats, low: Positions, high: Positions) -> None:
    odd = ~np.isfinite(values)
    slots = np.arange(len(values))
    single = FloatSums()
    single.reserve(len(values))
    single.add(slots, slots, [np.where(odd, 0.0, values)], np.ones(len(values), np.int64))
    limbs = _settled(_between(single.sums.rows.data[: len(values)], low, high))
    outside: dict[int, int] = {}
    if single.crowded:
        running = [0, *itertools.accumulate(single.outside(row) for row in range(len(values)))]
        spans = enumerate(zip(low.tolist(), high.tolist(), strict=True))
        outside = {row: excess for row, (a, b) in spans if (excess := running[b] - running[a])}
    counts = None
    if odd.any():
        kinds = np.stack([np.isnan(values), values == np.inf, values == -np.inf], axis=1)
        counts = _between(kinds.astype(np.int64), low, high)
    part.put(limbs, counts, outside)


def _extreme(call: WindowCall, rows: Layout, used: Bools, low: Positions, high: Positions) -> pa.Array:
    """The least or greatest rank within ranges, from minima over lengths of powers of two."""
    column = rows.columns[call.args[0]]
    count = len(rows)
    if count == 0:
        return column
    order, _ = rank_rows([column], [SortKey(0)])
    ranks = np.empty(count, np.int64)
    ranks[order] = np.arange(count)
    table = [np.where(used, ranks if call.function == "Min" else count - 1 - ranks, count)]
    longest = int((high - low).max())
    while 2 << len(table) - 1 <= longest:
        last, step = table[-1], 1 << (len(table) - 1)
        table.append(np.minimum(last[:-step], last[step:]) if len(last) > step else last)
    lengths = high - low
    level = np.maximum(np.frexp(np.maximum(lengths, 1).astype(np.float64))[1] - 1, 0)
    best = np.full(count, count, np.int64)
    for index, minima in enumerate(table):
        chosen = np.flatnonzero((level == index) & (lengths > 0))
        best[chosen] = np.minimum(minima[low[chosen]], minima[high[chosen] - (1 << index)])
    filled = best < count
    rank = np.where(filled, best if call.function == "Min" else count - 1 - best, 0)
    return column.take(pa.array(order[rank], mask=None if filled.all() else ~filled))


_Quick = Callable[[WindowCall, Layout, Bools, Positions, Positions], pa.Array]
_QUICK: dict[str, _Quick] = {
    "Count": _count,
    "Sum": _total,
    "Average": _total,
    "Min": _extreme,
    "Max": _extreme,
}


def _by_frame(call: WindowCall, rows: Layout, low: Positions, high: Positions) -> pa.Array:
    """Any aggregate, from the rows of each different frame."""
    frames, which = np.unique(low * (len(rows) + 1) + high, return_inverse=True)
    starts, ends = np.divmod(frames, len(rows) + 1)
    sizes = ends - starts
    offset, _ = expand(sizes)
    owner = np.repeat(np.arange(len(frames)), sizes)
    at = starts[owner] + offset
    used = _used(call, rows)[at] if call.function not in ("MinBy", "MaxBy") else np.ones(len(at), np.bool_)
    at, owner = at[used], owner[used]
    if call.function == "CollectList":
        values = gather([rows.columns[call.args[0]]], at)[0]
        return listed(values, owner, len(frames)).take(pa.array(which))
    inner = AggregateCall(
        call.function, tuple(range(len(call.args))), call.type, call.distinct, None, call.options
    )
    columns = gather([rows.columns[index] for index in call.args], at)
    parts = Parts([column.type for column in columns])
    function = AGGREGATES.load(call.function)(inner, parts)
    slots = np.arange(len(frames))
    for chosen, part in parts.all():
        part.reserve(len(frames))
        part.update(_selected(chosen, owner, slots, columns))
    return shown(function.result(slots)).take(pa.array(which))


def _selected(chosen: Selection, owner: Positions, slots: Positions, columns: tuple[pa.Array, ...]) -> Rows:
    passes = np.ones(len(owner), np.bool_)
    for index in chosen.required:
        nulls = null_mask(columns[chosen.args[index]])
        if nulls is not None:
            passes &= ~nulls
    passing = np.flatnonzero(passes)
    picked = gather([columns[index] for index in chosen.args], passing)
    return Rows(slots, owner[passing], np.ones(len(passing), np.int64), picked)
