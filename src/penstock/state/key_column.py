"""Columns of keys by slot: written when a slot is taken, compared when a hash comes again, read when rows leave the operator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.arrays import Bools, Positions
from penstock.data.column_view import null_mask, view
from penstock.data.equality import equal_rows
from penstock.state.heap import Heap
from penstock.state.limits import LIMITS
from penstock.state.slot_array import SlotArray
from penstock.state.state import Composite, Image, State

_NONE = -1  # the address of no key
_PIECE = 1 << 16  # slots that are looked at together
_LOOKED_AT = 8  # slots at most for each changed key: a copy then ends long before the next one is due


class KeyColumn(State, Protocol):
    """One column of keys."""

    def reserve(self, size: int) -> None:
        """Make room for slots below `size`."""

    def put(self, slots: Positions, column: pa.Array, reused: int) -> None:
        """Write one key per slot; the first `reused` slots had other keys before, the others are new and ascend one by one."""

    def equal(self, slots: Positions, column: pa.Array, rows: Positions) -> Bools:
        """Compare the keys at slots with rows of a column, pairwise."""

    def take(self, slots: Positions) -> pa.Array:
        """Return the keys at slots."""

    def forget(self, slots: Positions) -> None:
        """Take note that slots have no key any more. Called between ticks."""

    def compact(self, slots: int, live: int, fuel: int) -> None:
        """Give up the room of dead keys, some of it for each changed one; `live` slots below `slots` have a key.
        Called between ticks."""


def key_column(kind: pa.DataType, *, as_rows: bool) -> KeyColumn:
    """Return storage for keys of a type; `as_rows` tells -0.0 and 0.0 apart."""
    if pa.types.is_boolean(kind) or view(pa.array([], kind)).values is not None:
        return FixedColumn(kind, as_rows=as_rows)
    return HeapColumn(kind, as_rows=as_rows)


class FixedColumn(Composite):
    """Keys of one width, in an array by slot."""

    __slots__ = ("_as_rows", "_is_boolean", "_is_float", "_kind", "_nulls", "_values")

    def __init__(self, kind: pa.DataType, *, as_rows: bool) -> None:
        self._kind = kind
        self._as_rows = as_rows
        self._is_boolean = pa.types.is_boolean(kind)
        self._is_float = pa.types.is_floating(kind)
        probe = np.zeros(0, np.uint8) if self._is_boolean else view(pa.array([], kind)).values
        assert probe is not None
        self._values = SlotArray(probe.dtype)
        self._nulls = SlotArray(np.bool_)  # as long as the values once there was a NULL, else empty

    def states(self) -> Iterator[tuple[str, State]]:
        yield "values", self._values
        yield "nulls", self._nulls

    def _plain(self, column: pa.Array, rows: Positions | None) -> npt.NDArray[Any]:
        if self._is_boolean:
            values: npt.NDArray[Any] = column.cast(pa.uint8()).fill_null(0).to_numpy(zero_copy_only=False)
        else:
            fixed = view(column).values
            assert fixed is not None
            values = fixed
        if rows is not None:
            values = values.take(rows)
        # Adding 0.0 turns -0.0 into 0.0.
        return values + 0.0 if self._is_float and not self._as_rows else values

    def reserve(self, size: int) -> None:
        self._values.reserve(size)
        if self._nulls.size:
            self._nulls.reserve(size)

    def put(self, slots: Positions, column: pa.Array, reused: int) -> None:
        nulls = null_mask(column)
        values = self._plain(column, None)
        if nulls is not None:
            values = np.where(nulls, np.zeros(1, values.dtype), values)
            self._nulls.reserve(self._values.size)
        self._values.assign(slots, values, reused)
        if self._nulls.size:
            self._nulls.assign(slots, np.zeros(len(slots), np.bool_) if nulls is None else nulls, reused)

    def equal(self, slots: Positions, column: pa.Array, rows: Positions) -> Bools:
        """Compare the keys at slots with rows of a column, pairwise."""
        mine, other = self._values.data[slots], self._plain(column, rows)
        equal: Bools = mine == other
        if self._is_float:
            if self._as_rows:
                equal &= np.signbit(mine) == np.signbit(other)
            equal |= (mine != mine) & (other != other)
        if not self._nulls.size and column.null_count == 0:
            return equal
        nulls = null_mask(column)
        none = np.zeros(len(rows), np.bool_)
        my_nulls = self._nulls.data[slots] if self._nulls.size else none
        other_nulls = none if nulls is None else nulls[rows]
        result: Bools = (equal | my_nulls) & (my_nulls == other_nulls)
        return result

    def take(self, slots: Positions) -> pa.Array:
        """Return the keys at slots."""
        values = self._values.data[slots]
        valid = ~self._nulls.data[slots] if self._nulls.size else None
        mask = None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
        if self._is_boolean:
            data = pa.py_buffer(np.packbits(values != 0, bitorder="little"))
        else:
            data = pa.py_buffer(values)
        return pa.Array.from_buffers(self._kind, len(values), [mask, data])

    def forget(self, slots: Positions) -> None:
        """Their keys may stay."""

    def compact(self, slots: int, live: int, fuel: int) -> None:
        """Nothing is left behind by dead keys."""


@dataclass(slots=True)
class _Copying:
    """How far the slots have been looked at whose keys are copied: those below `at`, of those below `until`."""

    at: int
    until: int
    paid: int = 0  # slots that changed keys have paid for


class HeapColumn(Composite):
    """Keys of any width: an address by slot in a heap, or none. Once most of the heap is dead, the live keys are
    copied, a few in each tick."""

    __slots__ = ("_addresses", "_as_rows", "_copying", "_forgotten", "_heap", "_kind")

    def __init__(self, kind: pa.DataType, *, as_rows: bool) -> None:
        self._kind = kind
        self._as_rows = as_rows
        self._addresses = SlotArray(np.int64)
        self._heap = Heap(kind)
        self._copying: _Copying | None = None
        self._forgotten = 0  # keys that have died since the last time

    def states(self) -> Iterator[tuple[str, State]]:
        yield "addresses", self._addresses
        yield "heap", self._heap

    def reserve(self, size: int) -> None:
        self._addresses.reserve(size)

    def put(self, slots: Positions, column: pa.Array, reused: int) -> None:
        if len(slots):
            start = self._heap.append(column)
            self._addresses.assign(slots, np.arange(start, start + len(column)), reused)

    def take(self, slots: Positions) -> pa.Array:
        return self._heap.take(self._addresses.data[slots])

    def equal(self, slots: Positions, column: pa.Array, rows: Positions) -> Bools:
        mine = self.take(slots)
        if pa.types.is_nested(self._kind):
            return equal_rows([mine], np.arange(len(mine)), [column], rows, as_rows=self._as_rows)
        other = column.take(pa.array(rows))
        equal = pc.equal(mine, other)
        if equal.null_count == 0:
            return np.asarray(equal.to_numpy(zero_copy_only=False), np.bool_)
        both = pc.and_(pc.is_null(mine), pc.is_null(other))
        decided = pc.fill_null(pc.or_kleene(equal, both), False)
        return np.asarray(decided.to_numpy(zero_copy_only=False), np.bool_)

    def forget(self, slots: Positions) -> None:
        self._addresses.put(slots, _NONE)
        self._addresses.commit()
        self._forgotten += len(slots)

    def compact(self, slots: int, live: int, fuel: int) -> None:
        changed = self._heap.changed + self._forgotten
        if changed == 0:
            return
        try:
            self._heap.work(fuel)
            if self._copying is not None:
                self._copying.paid += min(fuel, _LOOKED_AT) * changed
                self._copy(self._copying)
            elif self._heap.size > 2 * live + LIMITS.spare:
                self._heap.begin_copy(live)
                self._copying = _Copying(0, slots)
            self._forgotten = 0
        except BaseException:
            self._copying = None  # what is half done begins again
            self._heap.stop()
            raise

    def _copy(self, copying: _Copying) -> None:
        """Copy the keys of as many more slots as are paid for, once they are worth the calls."""
        below = self._heap.below
        assert below is not None
        if copying.paid >= min(LIMITS.paid_chunk, copying.until - copying.at):
            end = min(copying.at + max(1, copying.paid // self._heap.wide), copying.until)
            copying.paid = 0
            while copying.at < end:
                stop = min(copying.at + _PIECE, end)
                addresses = self._addresses.data[copying.at : stop]
                slots = ((addresses >= 0) & (addresses < below)).nonzero()[0]
                if len(slots):
                    copies = self._heap.copy(addresses[slots])
                    self._addresses.put(slots + copying.at, copies)
                    self._addresses.commit()
                copying.at = stop
            if copying.at == copying.until:
                self._copying = None
                self._heap.end_copy()

    def save(self) -> Image:
        copying = self._copying
        values = {
            "forgotten": self._forgotten,
            "copying": None if copying is None else [copying.at, copying.until, copying.paid],
        }
        return Image(values, parts=super().save().parts)

    def load(self, image: Image) -> None:
        super().load(image)
        self._forgotten = image.values["forgotten"]
        copying = image.values["copying"]
        self._copying = None if copying is None else _Copying(*copying)
