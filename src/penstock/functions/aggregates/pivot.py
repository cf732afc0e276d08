"""PIVOT: the values of a group as an array, each at the place of its row's pivot value.

Catalyst groups by the pivot column first, so that a group has one row for each pivot value at most. The state of a
place is therefore the sum of what was inserted less what was deleted: the number of values, 0 or 1, and the bits of
the value. Sums can be undone and merged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import numpy as np
import pyarrow as pa

from penstock.data.arrays import Ints, Positions
from penstock.data.column_view import PAIR
from penstock.data.equality import equal_rows
from penstock.data.types import kernel_type
from penstock.errors import InternalError
from penstock.functions.aggregates.base import Function, Parts, Rows, selection
from penstock.plan.node import AggregateCall
from penstock.state.slot_array import SlotArray
from penstock.state.state import Composite, State


class PivotPart(Composite):
    """How many values every place of a group has, and the sums of their bits."""

    __slots__ = ("_kind", "_pivots", "_words", "bits", "counts")

    def __init__(self, pivots: pa.Array, kind: pa.DataType) -> None:
        self._pivots = pivots
        self._kind = kind
        self._words = 2 if pa.types.is_decimal(kind) else 1
        self.counts = SlotArray(np.int64, len(pivots))
        self.bits = SlotArray(np.int64, len(pivots) * self._words)

    def states(self) -> Iterator[tuple[str, State]]:
        yield "counts", self.counts
        yield "bits", self.bits

    def reserve(self, size: int) -> None:
        self.counts.reserve(size)
        self.bits.reserve(size)

    def update(self, rows: Rows) -> None:
        pivot, value = rows.columns
        places = self._places(pivot)
        listed = np.flatnonzero(places >= 0)
        groups, places, weights = rows.groups[listed], places[listed], rows.weights[listed]
        bits = _bits(value.take(pa.array(listed)), self._words)
        counts, words = self.counts.data[rows.touched], self.bits.data[rows.touched]
        new_counts, new_words = counts.copy(), words.copy()
        with np.errstate(over="ignore"):
            np.add.at(new_counts, (groups, places), weights)
            for word in range(self._words):
                np.add.at(new_words, (groups, places * self._words + word), bits[:, word] * weights)
        self.counts.put(rows.touched, new_counts, counts)
        self.bits.put(rows.touched, new_words, words)

    def merge(self, other: Self, slots: Positions, others: Positions) -> None:
        counts, words = self.counts.data[slots], self.bits.data[slots]
        with np.errstate(over="ignore"):
            self.counts.put(slots, counts + other.counts.data[others], counts)
            self.bits.put(slots, words + other.bits.data[others], words)

    def _places(self, pivot: pa.Array) -> Positions:
        """The place of each row's pivot value, -1 for one that is not listed."""
        places = np.full(len(pivot), -1, np.int64)
        rows = np.arange(len(pivot))
        for place, listed in enumerate(self._pivots):
            if _can_match(listed):
                places[equal_rows([pivot], rows, [self._pivots], np.full(len(pivot), place))] = place
        return places

    def result(self, slots: Positions) -> pa.Array:
        """The arrays at slots."""
        counts = self.counts.data[slots]
        if counts.size and (counts.min() < 0 or counts.max() > 1):
            raise InternalError("a group of a PIVOT has two rows of one pivot value")
        words = self.bits.data[slots].reshape(-1, self._words)
        values = _values(words, counts.ravel() == 0, self._kind)
        offsets = np.arange(len(slots) + 1) * len(self._pivots)
        return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values)


def _can_match(listed: pa.Scalar) -> bool:
    """Whether Spark finds a listed value again: it looks NaN up by == and binary values by their place in memory."""
    value = listed.as_py()
    return not isinstance(value, bytes) and value == value


def _bits(column: pa.Array, words: int) -> Ints:
    """The values of a fixed-width column as rows of 64-bit words."""
    kind = column.type
    if words == 2:
        data = np.frombuffer(column.buffers()[1], np.int64).reshape(-1, 2)
        return data[column.offset : column.offset + len(column)]
    values = column.cast(pa.int8()).to_numpy() if pa.types.is_boolean(kind) else column.to_numpy()
    if pa.types.is_floating(kind):
        values = values.view(f"i{values.itemsize}")
    result: Ints = values.astype(np.int64).reshape(-1, 1)
    return result


def _values(words: Ints, missing: np.ndarray, kind: pa.DataType) -> pa.Array:
    mask = None if not missing.any() else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    if pa.types.is_boolean(kind):
        data = np.packbits(words[:, 0] != 0, bitorder="little")
    elif pa.types.is_decimal(kind):
        data = np.ascontiguousarray(words).view(PAIR)
    else:
        data = np.ascontiguousarray(words[:, 0].astype(f"i{kind.bit_width // 8}"))
    return pa.Array.from_buffers(kind, len(words), [mask, pa.py_buffer(data)])


class _Pivot:
    def __init__(self, call: AggregateCall, parts: Parts) -> None:
        kind = kernel_type(call.type).value_type
        listed = call.option("pivotColumnValues")
        pivots = pa.array([item.value for item in listed], parts.types[call.args[0]])
        self._part = parts.share(
            selection(call, required=(1,)), lambda: PivotPart(pivots, kind), "pivot", repr(listed)
        )

    def result(self, slots: Positions) -> pa.Array:
        return self._part.result(slots)


def make_pivot(call: AggregateCall, parts: Parts) -> Function:
    """Catalyst's `PivotFirst`; option `pivotColumnValues`: the listed values of the first argument, as constants."""
    return _Pivot(call, parts)
