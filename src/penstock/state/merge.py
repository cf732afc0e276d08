"""The merge of two runs in small steps: a tick pays for a few thousand rows of it, never for all.

Fixed-width values and text are written into memory reserved for the whole result, so that the last step copies nothing. Other
types (booleans, nested values) are kept as pieces and put together at the end.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.data.equality import equal_rows, group_rows
from penstock.data.hashing import Hashes
from penstock.data.view import Positions, View, null_mask
from penstock.state.run import TABLE_FROM, Run, TableBuilder, make_run
from penstock.state.width import Small, narrow

_CHUNK = 16_384  # rows of either side per chunk: small enough for the cache, large enough to hide the calls
_LEAST_CHUNK = 512


def merge_runs(left: Run, right: Run) -> Run:
    """Return both runs as one, at once."""
    if len(left) == 0 or len(right) == 0:
        return left if len(right) == 0 else right
    merge = Merge(left, right)
    merge.advance(len(left) + len(right))
    return merge.result()


class Merge:
    """Two runs on their way into one; they stay readable until `result` replaces them."""

    __slots__ = ("_at", "_columns", "_done", "_table", "_weights", "_words", "left", "right")

    def __init__(self, left: Run, right: Run) -> None:
        self.left, self.right = left, right
        capacity = len(left) + len(right)
        self._done = 0
        self._at = [0, 0]
        self._words: Hashes = np.empty(capacity, np.uint64)
        self._weights: Small = np.empty(capacity, np.promote_types(left.weights.dtype, right.weights.dtype))
        self._columns = [_writer(a, b, capacity) for a, b in zip(left.views, right.views, strict=True)]
        self._table = TableBuilder(capacity) if capacity >= TABLE_FROM else None

    def advance(self, rows: int) -> bool:
        """Merge at least this many more rows if there are as many, and say whether all are done."""
        size = max(min(rows, _CHUNK), _LEAST_CHUNK)
        while rows > 0 and not self.finished:
            rows -= self._chunk(size)
        return self.finished

    @property
    def finished(self) -> bool:
        return self._at == [len(self.left), len(self.right)]

    def result(self) -> Run:
        """The merged run, once it is finished."""
        done = self._done
        columns = [column.finish(done) for column in self._columns]
        table = self._table.finish(done) if self._table else None
        return make_run(self._words[:done], columns, narrow(self._weights[:done]), table)

    def memory(self) -> int:
        """Bytes written so far."""
        return self._done * (8 + self._weights.itemsize) + sum(column.memory() for column in self._columns)

    def _chunk(self, size: int) -> int:
        left, right = self.left.words, self.right.words
        i, j = self._at
        # The chunk ends with the smaller of the two words a chunk away, so that equal words are never parted.
        heads = [words[at + size - 1] for words, at in ((left, i), (right, j)) if at + size <= len(words)]
        if heads:
            bound = min(heads)
            i_end = i + int(np.searchsorted(left[i:], bound, "right"))
            j_end = j + int(np.searchsorted(right[j:], bound, "right"))
        else:
            i_end, j_end = len(left), len(right)
        self._at = [i_end, j_end]
        order, words, weights = _interleave(self.left, slice(i, i_end), self.right, slice(j, j_end))
        start, end = self._done, self._done + len(order)
        self._words[start:end] = words
        if self._table:
            self._table.extend(words, start)
        if not np.can_cast(weights.dtype, self._weights.dtype):
            self._weights = self._weights.astype(weights.dtype)
        self._weights[start:end] = weights
        for writer in self._columns:
            writer.write(start, order, slice(i, i_end), slice(j, j_end))
        self._done = end
        return i_end - i + j_end - j


def _interleave(left: Run, i: slice, right: Run, j: slice) -> tuple[Positions, Hashes, Small]:
    """Merge two pieces: (positions in left piece + right piece, words, weights) of the rows that remain."""
    a, b = left.words[i], right.words[j]
    place = np.searchsorted(a, b, "right") + np.arange(len(b))
    order = np.empty(len(a) + len(b), np.int64)
    from_left = np.ones(len(order), np.bool_)
    from_left[place] = False
    order[from_left] = np.arange(len(a))
    order[place] = np.arange(len(a), len(order))
    words = np.concatenate([a, b]).take(order)
    weights = np.concatenate([left.weights[i], right.weights[j]]).take(order)
    twins = words[1:] == words[:-1]
    if twins.any():
        kept, weights = _cancel(left, i, right, j, order, words, weights, twins)
        order, words, weights = order[kept], words[kept], weights[kept]
    return order, words, weights


def _cancel(
    left: Run,
    i: slice,
    right: Run,
    j: slice,
    order: Positions,
    words: Hashes,
    weights: Small,
    twins: npt.NDArray[np.bool_],
) -> tuple[npt.NDArray[np.bool_], Small]:
    """Add up the weights of equal rows: (which rows remain, weights)."""
    pairs = _cancel_pairs(left, i, right, j, order, weights, np.flatnonzero(twins))
    if pairs is not None:
        return pairs
    near = np.zeros(len(order), np.bool_)
    near[1:] |= twins
    near[:-1] |= twins
    rows = np.flatnonzero(near)
    at = order[rows]
    count = i.stop - i.start
    of_left = at < count
    columns = [
        pa.concat_arrays([a.gather(at[of_left] + i.start), b.gather(at[~of_left] - count + j.start)])
        for a, b in zip(left.views, right.views, strict=True)
    ]
    # The rows of the left piece come first in the columns, those of the right piece behind them.
    rows = np.concatenate([rows[of_left], rows[~of_left]])
    grouped, starts = group_rows(words[rows], columns, as_rows=True)
    sums = np.add.reduceat(weights[rows[grouped]].astype(np.int64), starts)
    kept = np.ones(len(order), np.bool_)
    kept[rows] = False
    first = rows[grouped[starts]]
    kept[first[sums != 0]] = True
    weights = weights.astype(np.int64)
    weights[first] = sums
    return kept, narrow(weights)


def _cancel_pairs(
    left: Run, i: slice, right: Run, j: slice, order: Positions, weights: Small, first: Positions
) -> tuple[npt.NDArray[np.bool_], Small] | None:
    """The same where words meet only two by two, one of each side; None where there are more."""
    count = i.stop - i.start
    a, b = order[first], order[first + 1] - count
    if (first[1:] - first[:-1] == 1).any() or (b < 0).any() or (a >= count).any():
        return None
    same = equal_rows(left.views, a + i.start, right.views, b + j.start, as_rows=True)
    if not same.all():
        first = first[same]
    sums = weights[first].astype(np.int64) + weights[first + 1]
    kept = np.ones(len(order), np.bool_)
    kept[first] = sums != 0
    kept[first + 1] = False
    summed = weights.astype(np.int64)
    summed[first] = sums
    return kept, narrow(summed)


class _Writer(Protocol):
    """One column of the result."""

    def write(self, start: int, order: Positions, i: slice, j: slice) -> None: ...

    def finish(self, rows: int) -> pa.Array: ...

    def memory(self) -> int: ...


def _writer(left: View, right: View, capacity: int) -> _Writer:
    kind = left.array.type
    if left.values is not None and right.values is not None:
        return _FixedWriter(left, right, capacity)
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return _TextWriter(left, right, capacity)
    return _PieceWriter(left, right)


class _Validity:
    """The NULLs of a column as a byte per row; nothing when neither side has any."""

    __slots__ = ("valid",)

    def __init__(self, left: View, right: View, capacity: int) -> None:
        has_nulls = left.bits is not None or right.bits is not None
        self.valid: npt.NDArray[np.bool_] | None = np.empty(capacity, np.bool_) if has_nulls else None

    def buffer(self, rows: int) -> pa.Buffer | None:
        if self.valid is None:
            return None
        return pa.py_buffer(np.packbits(self.valid[:rows], bitorder="little"))


class _FixedWriter:
    """Numbers, dates, times and decimals."""

    __slots__ = ("_left", "_out", "_right", "_rows", "_validity")

    def __init__(self, left: View, right: View, capacity: int) -> None:
        assert left.values is not None
        self._left, self._right = left, right
        self._out: npt.NDArray[Any] = np.empty(capacity, left.values.dtype)
        self._validity = _Validity(left, right, capacity)
        self._rows = 0

    def write(self, start: int, order: Positions, i: slice, j: slice) -> None:
        assert self._left.values is not None
        assert self._right.values is not None
        both = np.concatenate([self._left.values[i], self._right.values[j]])
        end = start + len(order)
        both.take(order, out=self._out[start:end], mode="clip")
        if self._validity.valid is not None:
            valid = np.concatenate([_valid(self._left.array, i), _valid(self._right.array, j)])
            self._validity.valid[start:end] = valid.take(order)
        self._rows = end

    def finish(self, rows: int) -> pa.Array:
        values = pa.py_buffer(self._out[:rows])
        return pa.Array.from_buffers(self._left.array.type, rows, [self._validity.buffer(rows), values])

    def memory(self) -> int:
        return self._rows * self._out.itemsize


class _TextWriter:
    """large_string and large_binary."""

    __slots__ = ("_data", "_left", "_offsets", "_right", "_rows", "_validity")

    def __init__(self, left: View, right: View, capacity: int) -> None:
        self._left, self._right = left, right
        self._offsets = np.zeros(capacity + 1, np.int64)
        self._data = np.empty(_text_bytes(left.array) + _text_bytes(right.array), np.uint8)
        self._validity = _Validity(left, right, capacity)
        self._rows = 0

    def write(self, start: int, order: Positions, i: slice, j: slice) -> None:
        pieces = [self._left.array[i], self._right.array[j]]
        piece = pa.concat_arrays(pieces).take(pa.array(order))
        end = start + len(order)
        if end > start:
            _, offset_buffer, data = piece.buffers()
            offsets = np.frombuffer(offset_buffer, np.int64)[piece.offset : piece.offset + len(piece) + 1]
            at, size = int(self._offsets[start]), int(offsets[-1] - offsets[0])
            self._offsets[start + 1 : end + 1] = offsets[1:] + (at - offsets[0])
            if size:
                self._data[at : at + size] = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
            if self._validity.valid is not None:
                self._validity.valid[start:end] = _valid(piece, slice(0, len(piece)))
        self._rows = end

    def finish(self, rows: int) -> pa.Array:
        offsets = self._offsets[: rows + 1]
        data = self._data[: int(offsets[-1])]
        buffers = [self._validity.buffer(rows), pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.Array.from_buffers(self._left.array.type, rows, buffers)

    def memory(self) -> int:
        return self._rows * 8 + int(self._offsets[self._rows])


class _PieceWriter:
    """Everything else, put together at the end."""

    __slots__ = ("_left", "_pieces", "_right")

    def __init__(self, left: View, right: View) -> None:
        self._left, self._right = left, right
        self._pieces: list[pa.Array] = [left.array.slice(0, 0)]

    def write(self, start: int, order: Positions, i: slice, j: slice) -> None:
        both = pa.concat_arrays([self._left.array[i], self._right.array[j]])
        self._pieces.append(both.take(pa.array(order)))

    def finish(self, rows: int) -> pa.Array:
        return pa.concat_arrays(self._pieces)

    def memory(self) -> int:
        return int(sum(piece.nbytes for piece in self._pieces))


def _valid(array: pa.Array, rows: slice) -> npt.NDArray[np.bool_]:
    nulls = null_mask(array[rows])
    return np.ones(rows.stop - rows.start, np.bool_) if nulls is None else ~nulls


def _text_bytes(array: pa.Array) -> int:
    if len(array) == 0:
        return 0
    offsets = np.frombuffer(array.buffers()[1], np.int64)
    return int(offsets[array.offset + len(array)] - offsets[array.offset])
