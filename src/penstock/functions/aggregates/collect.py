"""COLLECT_LIST, COLLECT_SET and LISTAGG: the values of a group in a documented order.

A view has no order of arrival, so lists come in ascending order of their values; LISTAGG follows its WITHIN GROUP
(ORDER BY ...), ties in the order of the values. NULL is left out; without any value lists are empty and LISTAGG is
NULL. A set holds equal values once, except that every NaN is a value of its own, as in Spark.

Needs ordered state (all values of the group). Cost: the touched groups.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.arrays import Ints, Positions
from penstock.data.column_view import gather
from penstock.functions.aggregates.base import Function, Parts, doubles, selection
from penstock.functions.aggregates.parts import multiset_of
from penstock.plan.node import AggregateCall, SortKey


def listed(values: pa.Array, groups: Positions, slots: int) -> pa.Array:
    """Return one list per slot from values that come group by group."""
    offsets = np.zeros(slots + 1, np.int64)
    np.cumsum(np.bincount(groups, minlength=slots), out=offsets[1:])
    return pa.LargeListArray.from_arrays(pa.array(offsets), values)


class _CollectList:
    def __init__(self, call: AggregateCall, parts: Parts) -> None:
        self._values = multiset_of(parts, selection(call))

    def result(self, slots: Positions) -> pa.Array:
        read = self._values.read(slots)
        rows = np.repeat(np.arange(len(read)), read.counts)
        return listed(gather(read.columns, rows)[0], read.groups[rows], len(slots))


class _CollectSet:
    def __init__(self, call: AggregateCall, parts: Parts) -> None:
        self._values = multiset_of(parts, selection(call))

    def result(self, slots: Positions) -> pa.Array:
        read = self._values.read(slots)
        times: Ints = np.ones(len(read), np.int64)
        if pa.types.is_floating(read.columns[0].type):
            values = doubles(read.columns[0])
            times = np.where(np.isnan(values), read.counts, times)
            # Both zeros are in order, -0.0 first, and one of them is enough.
            times[1:][(values[1:] == 0) & (values[:-1] == 0) & (read.groups[1:] == read.groups[:-1])] = 0
        rows = np.repeat(np.arange(len(read)), times)
        return listed(gather(read.columns, rows)[0], read.groups[rows], len(slots))


class _ListAgg:
    def __init__(self, call: AggregateCall, parts: Parts) -> None:
        order = tuple(SortKey(*key) for key in call.option("order", ())) or (SortKey(0),)
        self._values = multiset_of(parts, selection(call, required=(0,)), order)
        self._delimiter = call.option("delimiter")

    def result(self, slots: Positions) -> pa.Array:
        read = self._values.read(slots)
        rows = np.repeat(np.arange(len(read)), read.counts)
        values = gather(read.columns, rows)[0]
        kind = values.type
        lists = listed(values, read.groups[rows], len(slots))
        empty = b"" if pa.types.is_large_binary(kind) else ""
        separator = empty if self._delimiter is None else self._delimiter
        joined = pc.binary_join(lists.cast(pa.list_(kind)), pa.scalar(separator, kind))
        filled = np.bincount(read.groups, minlength=len(slots)) > 0
        return pc.if_else(pa.array(filled), joined, pa.scalar(None, kind))


def make_list(call: AggregateCall, parts: Parts) -> Function:
    """Spark's `collect_list` and `array_agg`."""
    return _CollectList(call, parts)


def make_set(call: AggregateCall, parts: Parts) -> Function:
    """Spark's `collect_set`."""
    return _CollectSet(call, parts)


def make_list_agg(call: AggregateCall, parts: Parts) -> Function:
    """Spark's `listagg` and `string_agg`; options `delimiter` and `order`: (argument, descending, nulls first) per key."""
    return _ListAgg(call, parts)
