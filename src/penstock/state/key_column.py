"""Columns of keys by slot: written when a slot is taken, compared when a hash is met again, read when rows are given out.

A slot that is written is dead or new, so nothing here needs to be taken back when a tick fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.column_view import Bools, Positions, null_mask, view
from penstock.data.equality import equal_rows
from penstock.state.dense import Dense


class KeyColumn(Protocol):
    """One column of keys."""

    def reserve(self, size: int) -> None: ...
    def put(self, slots: Positions, column: pa.Array) -> None: ...
    def equal(self, slots: Positions, column: pa.Array, rows: Positions) -> Bools: ...
    def take(self, slots: Positions) -> pa.Array: ...
    def compact(self, live: Callable[[], Positions], count: int) -> None: ...
    def memory(self) -> int: ...


def key_column(kind: pa.DataType, *, as_rows: bool) -> KeyColumn:
    """Return storage for keys of a type; `as_rows` tells -0.0 and 0.0 apart."""
    if pa.types.is_boolean(kind) or view(pa.array([], kind)).values is not None:
        return FixedColumn(kind, as_rows=as_rows)
    return HeapColumn(kind, as_rows=as_rows)


class FixedColumn:
    """Keys of one width, in an array by slot."""

    __slots__ = ("_as_rows", "_kind", "_nulls", "_values")

    def __init__(self, kind: pa.DataType, *, as_rows: bool) -> None:
        self._kind = kind
        self._as_rows = as_rows
        probe = np.zeros(0, np.uint8) if pa.types.is_boolean(kind) else view(pa.array([], kind)).values
        assert probe is not None
        self._values = Dense(probe.dtype)
        self._nulls: Dense | None = None

    def _plain(self, column: pa.Array, rows: Positions | None) -> npt.NDArray[Any]:
        if pa.types.is_boolean(self._kind):
            values: npt.NDArray[Any] = column.cast(pa.uint8()).fill_null(0).to_numpy(zero_copy_only=False)
        else:
            found = view(column).values
            assert found is not None
            values = found
        if rows is not None:
            values = values.take(rows)
        # Adding 0.0 turns -0.0 into 0.0.
        return values + 0.0 if values.dtype.kind == "f" and not self._as_rows else values

    def reserve(self, size: int) -> None:
        self._values.reserve(size)
        if self._nulls is not None:
            self._nulls.reserve(size)

    def put(self, slots: Positions, column: pa.Array) -> None:
        """Write one key per slot."""
        nulls = null_mask(column)
        values = self._plain(column, None)
        if nulls is not None:
            values = np.where(nulls, np.zeros(1, values.dtype), values)
            if self._nulls is None:
                self._nulls = Dense(np.bool_)
                self._nulls.reserve(len(self._values.data))
        if self._nulls is not None:
            self._nulls.data[slots] = False if nulls is None else nulls
        self._values.data[slots] = values

    def equal(self, slots: Positions, column: pa.Array, rows: Positions) -> Bools:
        """Compare the keys at slots with rows of a column, pairwise."""
        mine, other = self._values.data[slots], self._plain(column, rows)
        equal: Bools = mine == other
        if mine.dtype.kind == "f":
            if self._as_rows:
                equal &= np.signbit(mine) == np.signbit(other)
            equal |= (mine != mine) & (other != other)
        nulls = null_mask(column)
        if nulls is None and self._nulls is None:
            return equal
        none = np.zeros(len(rows), np.bool_)
        here = none if self._nulls is None else self._nulls.data[slots]
        there = none if nulls is None else nulls[rows]
        both: Bools = (equal | here) & (here == there)
        return both

    def take(self, slots: Positions) -> pa.Array:
        """Return the keys at slots."""
        values = self._values.data[slots]
        valid = None if self._nulls is None else ~self._nulls.data[slots]
        mask = None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
        if pa.types.is_boolean(self._kind):
            data = pa.py_buffer(np.packbits(values != 0, bitorder="little"))
        else:
            data = pa.py_buffer(values)
        return pa.Array.from_buffers(self._kind, len(values), [mask, data])

    def compact(self, live: Callable[[], Positions], count: int) -> None:
        """Nothing is left behind by dead keys."""

    def memory(self) -> int:
        return self._values.memory() + (0 if self._nulls is None else self._nulls.memory())


class HeapColumn:
    """Keys of any width: a place by slot in a heap of Arrow arrays that only grows, until most of it is dead."""

    __slots__ = ("_as_rows", "_chunks", "_kind", "_places", "_size", "_starts")

    def __init__(self, kind: pa.DataType, *, as_rows: bool) -> None:
        self._kind = kind
        self._as_rows = as_rows
        self._places = Dense(np.int64)
        self._chunks: list[pa.Array] = []
        self._starts: list[int] = []
        self._size = 0

    def reserve(self, size: int) -> None:
        self._places.reserve(size)

    def put(self, slots: Positions, column: pa.Array) -> None:
        """Write one key per slot."""
        if len(slots) == 0:
            return
        self._places.data[slots] = np.arange(self._size, self._size + len(column))
        self._chunks.append(column)
        self._starts.append(self._size)
        self._size += len(column)
        # Adjacent chunks join without moving any place.
        while len(self._chunks) > 1 and len(self._chunks[-1]) * 8 >= len(self._chunks[-2]):
            newest = self._chunks.pop()
            self._starts.pop()
            self._chunks[-1] = pa.concat_arrays([self._chunks[-1], newest])

    def take(self, slots: Positions) -> pa.Array:
        """Return the keys at slots."""
        if len(slots) == 0:
            return pa.array([], self._kind)
        places = self._places.data[slots]
        if len(self._chunks) == 1:
            return self._chunks[0].take(pa.array(places))
        owner = np.searchsorted(np.array(self._starts), places, "right") - 1
        order = np.argsort(owner, kind="stable")
        bounds = np.searchsorted(owner[order], np.arange(len(self._chunks) + 1))
        parts = [
            chunk.take(pa.array(places[order[low:high]] - start))
            for chunk, start, low, high in zip(self._chunks, self._starts, bounds, bounds[1:], strict=False)
            if high > low
        ]
        joined = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return joined.take(pa.array(back))

    def equal(self, slots: Positions, column: pa.Array, rows: Positions) -> Bools:
        """Compare the keys at slots with rows of a column, pairwise."""
        mine = self.take(slots)
        if pa.types.is_nested(self._kind):
            return equal_rows([mine], np.arange(len(mine)), [column], rows, as_rows=self._as_rows)
        other = column.take(pa.array(rows))
        equal = pc.equal(mine, other)
        if equal.null_count == 0:
            return np.asarray(equal.to_numpy(zero_copy_only=False), np.bool_)
        both = pc.and_(pc.is_null(mine), pc.is_null(other))
        known = pc.fill_null(pc.or_kleene(equal, both), False)
        return np.asarray(known.to_numpy(zero_copy_only=False), np.bool_)

    def compact(self, live: Callable[[], Positions], count: int) -> None:
        """Rewrite the heap when most of it is dead."""
        if self._size > 2 * count + 4096:
            slots = live()
            kept = self.take(slots)
            self._chunks, self._starts, self._size = ([kept], [0], len(kept)) if len(kept) else ([], [], 0)
            self._places.data[slots] = np.arange(len(kept))

    def memory(self) -> int:
        return self._places.memory() + sum(int(chunk.nbytes) for chunk in self._chunks)
