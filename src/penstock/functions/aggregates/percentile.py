"""PERCENTILE, MEDIAN, PERCENTILE_CONT, PERCENTILE_DISC and MODE, from the counted values of a group.

Percentiles interpolate in double arithmetic exactly as Spark does. MODE takes the smallest of several most frequent
values (Spark: any of them), unless its WITHIN GROUP (ORDER BY ... DESC) asks for the greatest.

Needs ordered state (all values of the group). Cost: the touched groups.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.data.arrays import Floats, Ints, Positions
from penstock.data.column_view import gather, view
from penstock.errors import DataError
from penstock.functions.aggregates.base import Function, Parts, Rows, integers, selection
from penstock.functions.aggregates.parts import MultisetPart, multiset_of
from penstock.plan.node import AggregateCall, SortKey
from penstock.state.multiset import GroupRows, multiset


def _as_doubles(column: pa.Array) -> Floats:
    if pa.types.is_decimal(column.type):
        return np.array([float(value) for value in column.to_pylist()], np.float64)
    values = view(column).values
    assert values is not None
    return values.astype(np.float64)


class WeightedPart(MultisetPart):
    """Counted values whose second column says how often each row counts."""

    __slots__ = ()

    def update(self, rows: Rows) -> None:
        times = integers(rows.columns[1])
        if (times < 0).any():
            raise DataError(
                "PERCENTILE has a negative frequency",
                code="DATA_NEGATIVE_FREQUENCY",
                condition="NEGATIVE_VALUES_IN_FREQUENCY_EXPRESSION",
                hint="frequencies must be zero or positive",
            )
        super().update(Rows(rows.touched, rows.groups, rows.weights * times, rows.columns[:1]))


class _Percentile:
    def __init__(self, call: AggregateCall, parts: Parts, *, discrete: bool) -> None:
        chosen = selection(call)
        self._kind = parts.types[call.args[0]]
        if len(call.args) > 1:
            key = (SortKey(0),)
            self._values: MultisetPart = parts.share(
                chosen, lambda: WeightedPart(multiset([self._kind], key)), "weighted", key
            )
        else:
            self._values = multiset_of(parts, chosen)
        self._times = int(call.option("frequency", 1))
        wanted = call.option("percentage", 0.5)
        self._many = isinstance(wanted, list | tuple)
        self._wanted = [float(value) for value in (wanted if self._many else [wanted])]
        self._reverse = bool(call.option("reverse", False))
        self._discrete = discrete

    def result(self, slots: Positions) -> pa.Array:
        read = self._values.read(slots)
        counts = read.counts * self._times
        totals = np.bincount(read.groups, counts, len(slots)).astype(np.int64)
        filled = totals > 0
        begin = np.cumsum(totals) - totals
        ends = np.cumsum(counts)
        results = [self._at(read, ends, begin[filled], totals[filled], share) for share in self._wanted]
        kind = pa.float64()
        if pa.types.is_duration(self._kind):
            kind, results = self._kind, [np.trunc(values).astype(np.int64) for values in results]
        positions = pa.array(np.cumsum(filled) - 1, mask=~filled)
        if not self._many:
            return _numbers(results[0], kind).take(positions)
        flat = np.stack(results, axis=1).reshape(-1) if results else np.zeros(0)
        offsets = np.arange(int(filled.sum()) + 1) * len(results)
        return pa.LargeListArray.from_arrays(pa.array(offsets), _numbers(flat, kind)).take(positions)

    def _pick(self, read: GroupRows, ends: Ints, begin: Ints, totals: Ints, rank: Ints) -> Floats:
        """The value of a rank (from 0) in the order of each group."""
        if self._reverse:
            rank = totals - 1 - rank
        at = np.searchsorted(ends, begin + rank, "right")
        return _as_doubles(gather(read.columns, at)[0])

    def _at(self, read: GroupRows, ends: Ints, begin: Ints, totals: Ints, share: float) -> Floats:
        if self._discrete:
            rank = np.ceil(totals * share).astype(np.int64)
            return self._pick(read, ends, begin, totals, np.maximum(rank, 1) - 1)
        position = (totals - 1) * share
        lower, higher = np.floor(position), np.ceil(position)
        low = self._pick(read, ends, begin, totals, lower.astype(np.int64))
        high = self._pick(read, ends, begin, totals, higher.astype(np.int64))
        with np.errstate(invalid="ignore", over="ignore"):
            between = (higher - position) * low + (position - lower) * high
        return np.where((higher == lower) | (low == high), low, between)


def _numbers(values: npt.NDArray[np.generic], kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


class _Mode:
    def __init__(self, call: AggregateCall, parts: Parts) -> None:
        self._values = multiset_of(parts, selection(call))
        self._greatest = call.option("reverseOpt") is False

    def result(self, slots: Positions) -> pa.Array:
        read = self._values.read(slots)
        groups, counts = read.groups, read.counts
        # The first (or last) entry of each group in the order of its count.
        tie = np.arange(len(read))
        order = np.lexsort((tie if self._greatest else -tie, counts, groups))
        last = np.flatnonzero(np.concatenate((groups[order][1:] != groups[order][:-1], [True]))[: len(order)])
        best = order[last]
        positions = np.full(len(slots), -1, np.int64)
        positions[groups[best]] = best
        return read.columns[0].take(pa.array(positions, mask=positions < 0))


def make_percentile(call: AggregateCall, parts: Parts) -> Function:
    """Spark's `percentile`, `median` and `percentile_cont`; options `percentage`, `frequency`, `reverse`; or a second
    argument is the frequency."""
    return _Percentile(call, parts, discrete=False)


def make_percentile_disc(call: AggregateCall, parts: Parts) -> Function:
    """Spark's `percentile_disc`; options `percentage`, `reverse`."""
    return _Percentile(call, parts, discrete=True)


def make_mode(call: AggregateCall, parts: Parts) -> Function:
    """Spark's `mode`; option `reverseOpt` False asks for the greatest of several modes."""
    return _Mode(call, parts)
