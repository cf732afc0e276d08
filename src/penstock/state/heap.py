"""Values of any width by address, in chunks that only grow: the dead ones go when the live ones have been copied behind them.

Chunks of similar size become one, so that there are a logarithmic number of them; no value gets another address by
that. A join of many values, and a copy of the live ones, goes on for many ticks: each changed row pays for some
values, and until it is done reads go to the old chunks. Text is written into memory, or a scratch file, made for all
of it. Other types are put together by Arrow, and only as far as that takes a bounded number of bytes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from penstock.data.arrays import Positions
from penstock.state.limits import LIMITS
from penstock.state.scratch import Piece, Scratch, moved_columns, with_room
from penstock.state.state import Image, Leaf
from penstock.state.text_writer import TextWriter, is_text, text_bytes

_SIMILAR = 8  # a chunk is joined with those behind it when they are this part of it together
_AT_ONCE = 1 << 22  # bytes of values that are joined at once
_WIDE = 128  # bytes of a value from which it counts as two, up to four
_ALIGNMENT = 1 << 12  # bytes for the alignment of arrays


@dataclass(slots=True)
class _Writing:
    """A chunk of text on its way: where it begins, the values that it has room for, and the chunks that are joined in
    it, if any are."""

    start: int
    room: int
    writer: TextWriter
    chunks: int
    mapped: bool

    @property
    def rows(self) -> int:
        """Values that are written."""
        return self.writer.rows


class Heap(Leaf):
    """Values in the order in which they came; those of a tick that fails go again."""

    __slots__ = (
        "_before",
        "_below",
        "_changed",
        "_chunks",
        "_copy",
        "_end",
        "_join",
        "_kind",
        "_mapped",
        "_paid",
        "_starts",
    )

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._mapped: frozenset[int] = frozenset()  # where chunks start that lie in files
        self._use((), (), 0)

    def _use(self, chunks: tuple[pa.Array, ...], starts: tuple[int, ...], end: int, changed: int = 0) -> None:
        self._join: _Writing | None = None
        self._copy: _Writing | None = None
        self._below: int | None = None  # what is alive below this address is being copied
        self._paid = 0  # values of the join that changed rows have paid for
        self._chunks, self._starts, self._end, self._changed = chunks, starts, end, changed
        self._before = chunks, starts, end, changed

    @property
    def size(self) -> int:
        """Values, dead ones too."""
        return sum(map(len, self._chunks))

    @property
    def changed(self) -> int:
        """Values that ticks have put here since the last `work`."""
        return self._changed

    def append(self, values: pa.Array) -> int:
        """Put values behind the others, and return the address of the first one."""
        start = self._end
        self._chunks, self._starts = (*self._chunks, values), (*self._starts, start)
        self._end += len(values)
        self._changed += len(values)
        return start

    def take(self, addresses: Positions) -> pa.Array:
        """The values at these addresses; any value, or NULL, for addresses below zero."""
        if len(addresses) == 0 or not self._chunks:
            return pa.nulls(len(addresses), self._kind)
        first = self._starts[0]
        addresses = np.maximum(addresses, first)
        if len(self._chunks) == 1:
            return self._chunks[0].take(pa.array(addresses - first if first else addresses))
        owner = np.searchsorted(np.array(self._starts), addresses, "right") - 1
        order = np.argsort(owner, kind="stable")
        bounds = np.searchsorted(owner[order], np.arange(len(self._chunks) + 1))
        parts = [
            chunk.take(pa.array(addresses[order[low:high]] - start))
            for chunk, start, low, high in zip(self._chunks, self._starts, bounds, bounds[1:], strict=False)
            if high > low
        ]
        joined = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return joined.take(pa.array(back))

    def commit(self) -> None:
        self._before = (self._chunks, self._starts, self._end, self._changed)

    def rollback(self) -> None:
        self._chunks, self._starts, self._end, self._changed = self._before

    # Between ticks

    @property
    def below(self) -> int | None:
        """The address below which live values are to be copied; None when there is nothing to copy."""
        return self._below

    @property
    def wide(self) -> int:
        """How many times as wide as usual ones the values are, from 1 to 4."""
        return _wide(self._chunks)

    def begin_copy(self, count: int) -> None:
        """Copy what lives, at most `count` values, behind what there is."""
        below = self._end
        # Without a value to copy, the next ones that come are at that address.
        copy = self._writing(below, count, self._chunks, joined=0) if count and is_text(self._kind) else None
        self._join, self._paid = None, 0
        end = below if copy is None else below + count
        self._copy, self._below, self._end = copy, below, end
        self._before = (self._chunks, self._starts, end, self._changed)

    def copy(self, addresses: Positions) -> Positions:
        """Copy the values at some addresses, and return the new ones."""
        values = self.take(addresses)
        copy = self._copy
        if copy is None:
            changed = self._changed
            start = self.append(values)
            self._changed = changed
        else:
            start = copy.start + copy.rows
            copy.writer.append(values)
            self._replace(copy.start, 1 if copy.start in self._starts else 0, copy)
        self.commit()
        return np.arange(start, start + len(values))

    def end_copy(self) -> None:
        """Forget the values that have been copied."""
        assert self._below is not None
        first = bisect_left(self._starts, self._below)
        self._chunks, self._starts = self._chunks[first:], self._starts[first:]
        self._copy, self._below = None, None
        self._before = (self._chunks, self._starts, self._end, self._changed)

    def stop(self) -> None:
        """Leave what is half done: it begins again."""
        self._join, self._copy, self._below, self._paid = None, None, None, 0

    def work(self, fuel: int) -> None:
        """Join chunks, `fuel` values for each changed one."""
        changed = self._changed
        if self._join is not None:
            self._advance(fuel * changed)
        self._join_few()
        if self._join is None:
            self._begin_join()
        self._changed = 0
        self._before = (self._chunks, self._starts, self._end, 0)

    def _joinable(self) -> int:
        """The first chunk that may be joined with others: behind what is being joined, or copied."""
        first = 0 if self._below is None else bisect_left(self._starts, self._below)
        if self._copy is not None and self._copy.start in self._starts:
            first += 1
        return first if self._join is None else self._starts.index(self._join.start) + self._join.chunks

    def _similar(self, values: int | None = None, size: int | None = None) -> int:
        """The first of the last chunks that are to be one, together at most so many values and bytes."""
        first, at = self._joinable(), len(self._chunks) - 1
        if at <= first:
            return at
        count, width = len(self._chunks[at]), _size(self._chunks[at])
        while at > first:
            chunk, start = self._chunks[at - 1], self._starts[at - 1]
            count, width = count + len(chunk), width + _size(chunk)
            is_near = start + len(chunk) == self._starts[at]
            is_similar = (count - len(chunk)) * _SIMILAR >= len(chunk)
            fits = (values is None or count <= values) and (size is None or width <= size)
            if not (is_near and is_similar and fits):
                break
            at -= 1
        return at

    def _join_few(self) -> None:
        """Join the last chunks at once, as far as they are small."""
        first = self._similar(LIMITS.at_once if is_text(self._kind) else None, _AT_ONCE)
        if 0 <= first < len(self._chunks) - 1:
            chunks = self._chunks[first:]
            start, joined = self._starts[first], pa.concat_arrays(chunks)
            scratch = with_room(int(joined.nbytes))
            if scratch is not None:
                (joined,) = moved_columns((joined,), scratch)
            self._put(start, len(chunks), joined, mapped=scratch is not None)

    def _begin_join(self) -> None:
        """Begin to join the last chunks."""
        if not is_text(self._kind):
            return
        first = self._similar()
        if 0 <= first < len(self._chunks) - 1:
            chunks = self._chunks[first:]
            self._join = self._writing(self._starts[first], sum(map(len, chunks)), chunks, joined=len(chunks))

    def _advance(self, paid: int) -> None:
        """Join as many more values as are paid for, once they are worth the calls."""
        join = self._join
        assert join is not None
        self._paid += paid
        first = self._starts.index(join.start)
        chunks = self._chunks[first : first + join.chunks]
        if self._paid >= LIMITS.paid_chunk:
            self._write(join, chunks, self._paid // _wide(chunks))
            self._paid = 0
            if join.rows == join.room:
                self._join = None
                self._replace(join.start, join.chunks, join)

    def _write(self, join: _Writing, chunks: Sequence[pa.Array], count: int) -> None:
        """Write the next values of chunks that are joined."""
        at = join.rows
        end = min(at + count, join.room)
        for chunk, start in zip(chunks, _starts_of(chunks), strict=True):
            if start < end and at < start + len(chunk):
                first = max(at - start, 0)
                join.writer.append(chunk.slice(first, min(end - start, len(chunk)) - first))

    def _writing(self, start: int, room: int, chunks: Sequence[pa.Array], *, joined: int) -> _Writing:
        """A chunk for so many of the values of others."""
        size = sum(map(text_bytes, chunks))
        scratch = with_room(size + 9 * room)
        new = np.empty if scratch is None else scratch.region(size + 10 * room + _ALIGNMENT).empty
        nulls = any(chunk.null_count for chunk in chunks)
        writer = TextWriter(self._kind, room, size, new, nulls=nulls)
        return _Writing(start, room, writer, joined, scratch is not None)

    def _replace(self, start: int, count: int, writing: _Writing) -> None:
        self._put(start, count, writing.writer.finish(), mapped=writing.mapped)

    def _put(self, start: int, count: int, chunk: pa.Array, *, mapped: bool) -> None:
        """Let a chunk stand for so many others, from an address on."""
        first = bisect_left(self._starts, start)
        in_files = self._mapped.difference(self._starts[first : first + count])
        chunks = (*self._chunks[:first], chunk, *self._chunks[first + count :])
        starts = (*self._starts[:first], start, *self._starts[first + count :])
        self._mapped = in_files | {start} if mapped else in_files
        self._chunks, self._starts = chunks, starts
        self._before = (chunks, starts, self._end, self._changed)

    def memory(self) -> int:
        joined = 0 if self._join is None else self._join.writer.memory()
        return joined + sum(int(chunk.nbytes) for chunk in self._chunks)

    def mapped(self) -> int:
        joined = self._join.writer.memory() if self._join is not None and self._join.mapped else 0
        return joined + sum(
            int(chunk.nbytes)
            for chunk, start in zip(self._chunks, self._starts, strict=True)
            if start in self._mapped
        )

    def pieces(self) -> Iterator[Piece]:
        """Chunks and a half-done join that lie in memory."""
        for chunk, start in zip(self._chunks, self._starts, strict=True):
            if start not in self._mapped:
                yield Piece(int(chunk.nbytes), partial(self._move, start))
        if self._join is not None and not self._join.mapped:
            yield Piece(self._join.writer.memory(), partial(_move_writing, self._join))

    def _move(self, start: int, scratch: Scratch) -> None:
        if self._copy is not None and self._copy.start == start:
            _move_writing(self._copy, scratch)
            self._replace(start, 1, self._copy)
        else:
            (moved,) = moved_columns((self._chunks[self._starts.index(start)],), scratch)
            self._put(start, 1, moved, mapped=True)

    def save(self) -> Image:
        """The chunks by where they start, and how far they are joined and copied: replayed ticks find the same chunks."""
        chunks, starts, end, changed = self._before
        names = [f"{start} {len(chunk)}" for chunk, start in zip(chunks, starts, strict=True)]
        parts = {
            name: Image(arrays={"values": chunk}, fixed=True)
            for name, chunk in zip(names, chunks, strict=True)
        }
        join, copy = self._join, self._copy
        values = {
            "chunks": names,
            "end": end,
            "changed": changed,
            "below": self._below,
            "paid": self._paid,
            "join": None if join is None else [join.start, join.chunks, join.rows],
            "copy": None if copy is None else [copy.start, copy.room],
        }
        return Image(values, parts=parts)

    def load(self, image: Image) -> None:
        saved = image.values
        starts = tuple(int(name.split()[0]) for name in saved["chunks"])
        chunks = tuple(_values(image.parts[name]) for name in saved["chunks"])
        self._mapped = frozenset(
            start for name, start in zip(saved["chunks"], starts, strict=True) if image.parts[name].mapped
        )
        self._use(chunks, starts, saved["end"], saved["changed"])
        self._below, self._paid = saved["below"], saved["paid"]
        if saved["join"] is not None:
            start, count, written = saved["join"]
            first = starts.index(start)
            joined = chunks[first : first + count]
            self._join = self._writing(start, sum(map(len, joined)), joined, joined=count)
            self._write(self._join, joined, written)
        if saved["copy"] is not None:
            assert self._below is not None
            start, room = saved["copy"]
            self._copy = self._writing(start, room, chunks[: bisect_left(starts, self._below)], joined=0)
            if start in starts:
                self._copy.writer.append(chunks[starts.index(start)])
                self._replace(start, 1, self._copy)


def _move_writing(writing: _Writing, scratch: Scratch) -> None:
    """Write what is left, and what is written, to a scratch file."""
    writing.writer = writing.writer.moved(scratch.region(writing.writer.capacity + _ALIGNMENT).empty)
    writing.mapped = True


def _values(image: Image) -> pa.Array:
    values = image.arrays["values"]
    assert isinstance(values, pa.Array)
    return values


def _wide(chunks: Sequence[pa.Array]) -> int:
    return min(1 + sum(map(_size, chunks)) // (_WIDE * max(1, sum(map(len, chunks)))), 4)


def _size(chunk: pa.Array) -> int:
    """Bytes of a chunk: of text always the same, also once it has been saved and loaded."""
    return text_bytes(chunk) + 8 * len(chunk) if is_text(chunk.type) else int(chunk.nbytes)


def _starts_of(chunks: Sequence[pa.Array]) -> Iterator[int]:
    """Where chunks begin that stand one behind the other."""
    start = 0
    for chunk in chunks:
        yield start
        start += len(chunk)
