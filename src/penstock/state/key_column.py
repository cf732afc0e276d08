"""Columns of keys by slot: written when a slot is taken, compared when a hash comes again, read when rows leave the operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.arrays import Bools, Positions
from penstock.data.column_view import null_mask, view
from penstock.data.equality import equal_rows
from penstock.state.scratch import Piece, Scratch, moved_columns, with_room
from penstock.state.slot_array import SlotArray
from penstock.state.state import Composite, Image, State
from penstock.state.text_writer import TextWriter, is_text, joined_text, text_bytes

_PIECE = 1 << 16  # values that are read at once


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

    def compact(self, live: Callable[[], Positions], count: int) -> None:
        """Give up the room of dead keys; `live` gives the slots that have a key, `count` of them. Called between ticks."""


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

    def compact(self, live: Callable[[], Positions], count: int) -> None:
        """Nothing is left behind by dead keys."""


class HeapColumn(Composite):
    """Keys of any width: a position by slot in a heap of Arrow arrays that only grows, until most of it is dead."""

    __slots__ = ("_as_rows", "_heap", "_kind", "_positions")

    def __init__(self, kind: pa.DataType, *, as_rows: bool) -> None:
        self._kind = kind
        self._as_rows = as_rows
        self._positions = SlotArray(np.int64)
        self._heap = Heap(kind)

    def states(self) -> Iterator[tuple[str, State]]:
        yield "places", self._positions
        yield "heap", self._heap

    def reserve(self, size: int) -> None:
        self._positions.reserve(size)

    def put(self, slots: Positions, column: pa.Array, reused: int) -> None:
        if len(slots):
            start = self._heap.append(column)
            self._positions.assign(slots, np.arange(start, start + len(column)), reused)

    def take(self, slots: Positions) -> pa.Array:
        return self._heap.take(self._positions.data[slots])

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

    def compact(self, live: Callable[[], Positions], count: int) -> None:
        if self._heap.size > 2 * count + 4096:
            slots = live()
            self._heap.keep(self._positions.data[slots])
            self._positions.put(slots, np.arange(len(slots)))
            self._positions.commit()


class Heap:
    """Values in the order in which they came, in chunks; those of a tick that fails go again."""

    __slots__ = ("_before", "_chunks", "_generation", "_kind", "_mapped", "_starts", "size")

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._mapped: frozenset[int] = frozenset()  # where chunks start that lie in files
        self._chunks: tuple[pa.Array, ...] = ()
        self._starts: tuple[int, ...] = ()
        self.size = 0
        self._generation = 0  # counts how often positions got other values
        self._before: tuple[tuple[pa.Array, ...], tuple[int, ...], int] = ((), (), 0)

    def append(self, values: pa.Array) -> int:
        """Put values behind the others, and return the position of the first one."""
        start = self.size
        self._chunks, self._starts = (*self._chunks, values), (*self._starts, start)
        self.size += len(values)
        return start

    def take(self, positions: Positions) -> pa.Array:
        """The values at these positions."""
        if len(positions) == 0:
            return pa.array([], self._kind)
        if len(self._chunks) == 1:
            return self._chunks[0].take(pa.array(positions))
        owner = np.searchsorted(np.array(self._starts), positions, "right") - 1
        order = np.argsort(owner, kind="stable")
        bounds = np.searchsorted(owner[order], np.arange(len(self._chunks) + 1))
        parts = [
            chunk.take(pa.array(positions[order[low:high]] - start))
            for chunk, start, low, high in zip(self._chunks, self._starts, bounds, bounds[1:], strict=False)
            if high > low
        ]
        joined = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return joined.take(pa.array(back))

    def keep(self, positions: Positions) -> None:
        """Hold the values at these positions instead of all, in their order; called between ticks."""
        scratch = (
            with_room(self.memory() * len(positions) // max(1, self.size)) if is_text(self._kind) else None
        )
        if scratch is None:
            values = self.take(positions)
        else:
            pieces = range(0, len(positions), _PIECE)
            writer = TextWriter(
                self._kind,
                len(positions),
                sum(map(text_bytes, self._chunks)),
                scratch.region(self.memory() + 9 * len(positions) + _PIECE).empty,
                nulls=any(chunk.null_count for chunk in self._chunks),
            )
            for start in pieces:
                writer.append(self.take(positions[start : start + _PIECE]))
            values = writer.finish()
        self._mapped = frozenset() if scratch is None else frozenset((0,))
        self._chunks, self._starts = ((values,), (0,)) if len(values) else ((), ())
        self.size = len(values)
        self._generation += 1
        self.commit()

    def commit(self) -> None:
        self._before = (self._chunks, self._starts, self.size)

    def rollback(self) -> None:
        self._chunks, self._starts, self.size = self._before

    def maintain(self, fuel: int) -> None:
        """Join adjacent chunks of similar size, which moves no value to another position: there are a logarithmic number of them."""
        sizes = [len(chunk) for chunk in self._chunks]
        while len(sizes) > 1 and sizes[-1] * 8 >= sizes[-2]:
            newest = sizes.pop()
            sizes[-1] += newest
        if len(sizes) < len(self._chunks):
            self._join(len(sizes) - 1)

    def _join(self, first: int) -> None:
        """Let the chunks from one on be one."""
        chunks = self._chunks[first:]
        start, joined_starts = self._starts[first], self._starts[first:]
        scratch = with_room(sum(int(chunk.nbytes) for chunk in chunks))
        if scratch is None:
            joined = pa.concat_arrays(chunks)
        elif is_text(self._kind):
            size = sum(int(chunk.nbytes) + len(chunk) for chunk in chunks)
            joined = joined_text(chunks, scratch.region(size + _PIECE).empty)
        else:
            (joined,) = moved_columns((pa.concat_arrays(chunks),), scratch)
        mapped = self._mapped.difference(joined_starts)
        self._mapped = mapped if scratch is None else mapped | {start}
        self._chunks = (*self._chunks[:first], joined)
        self._starts = self._starts[: first + 1]
        self.commit()

    def memory(self) -> int:
        return sum(int(chunk.nbytes) for chunk in self._chunks)

    def mapped(self) -> int:
        return sum(
            int(chunk.nbytes)
            for chunk, start in zip(self._chunks, self._starts, strict=True)
            if start in self._mapped
        )

    def pieces(self) -> Iterator[Piece]:
        for chunk, start in zip(self._chunks, self._starts, strict=True):
            if start not in self._mapped:
                yield Piece(int(chunk.nbytes), partial(self._move, start))

    def _move(self, start: int, scratch: Scratch) -> None:
        at = self._starts.index(start)
        moved = moved_columns((self._chunks[at],), scratch)
        self._chunks = (*self._chunks[:at], *moved, *self._chunks[at + 1 :])
        self._mapped |= {start}
        self.commit()

    def save(self) -> Image:
        chunks, starts, _ = self._before
        names = [
            f"{self._generation} {start} {len(chunk)}" for chunk, start in zip(chunks, starts, strict=True)
        ]
        parts = {
            name: Image(arrays={"values": chunk}, fixed=True)
            for name, chunk in zip(names, chunks, strict=True)
        }
        return Image({"generation": self._generation, "chunks": names}, parts=parts)

    def load(self, image: Image) -> None:
        self._chunks, self._starts, self.size, self._mapped = (), (), 0, frozenset()
        for name in image.values["chunks"]:
            chunk = image.parts[name].arrays["values"]
            assert isinstance(chunk, pa.Array)
            start = self.append(chunk)
            if image.parts[name].mapped:
                self._mapped |= {start}
        self._generation = image.values["generation"]
        self.commit()
