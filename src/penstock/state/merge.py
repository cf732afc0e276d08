"""The merge of runs in small steps: a tick pays for a few thousand rows of it, never for all.

Fixed-width values and text are written into memory reserved for the whole result, so that the last step copies nothing. Other
types (booleans, nested values) are kept as pieces and put together at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.data.column_view import Bools, ColumnView, Positions, null_mask, view
from penstock.data.equality import equal_rows, group_rows
from penstock.data.hashing import Hashes
from penstock.state.narrow import Small, narrow
from penstock.state.run import TABLE_FROM, Run, TableBuilder, make_run

_CHUNK = 16_384  # rows of each run per chunk: small enough for the cache, large enough to hide the calls
_LEAST_CHUNK = 512


def merge_runs(runs: Sequence[Run]) -> Run:
    """Return runs, at least one, as one, at once."""
    some = [run for run in runs if len(run)]
    if len(some) < 2:
        return some[0] if some else runs[0]
    total = sum(map(len, some))
    if total <= _CHUNK:
        order, words, weights, columns = _in_order(some, [slice(0, len(run)) for run in some])
        return make_run(words, [column.gather(order) for column in columns], weights)
    merge = Merge(some)
    merge.advance(total)
    return merge.result()


class Merge:
    """Runs on their way into one; they stay readable until `result` replaces them."""

    __slots__ = ("_at", "_done", "_runs", "_table", "_weights", "_words", "_writers")

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = tuple(runs)
        capacity = sum(map(len, runs))
        self._done = 0
        self._at = [0] * len(runs)
        self._words: Hashes = np.empty(capacity, np.uint64)
        self._weights: Small = np.empty(capacity, np.result_type(*(run.weights.dtype for run in runs)))
        self._writers = [
            _writer(column, capacity) for column in zip(*(run.views for run in runs), strict=True)
        ]
        self._table = TableBuilder(capacity) if capacity >= TABLE_FROM else None

    def advance(self, rows: int) -> bool:
        """Merge at least this many more rows if there are as many, and say whether all are done."""
        size = max(min(rows, _CHUNK), _LEAST_CHUNK)
        while rows > 0 and not self.finished:
            rows -= self._chunk(size)
        return self.finished

    @property
    def finished(self) -> bool:
        return all(at == len(run) for at, run in zip(self._at, self._runs, strict=True))

    def result(self) -> Run:
        """The merged run, once it is finished."""
        done = self._done
        columns = [writer.finish(done) for writer in self._writers]
        table = self._table.finish(done) if self._table else None
        return make_run(self._words[:done], columns, narrow(self._weights[:done]), table)

    def memory(self) -> int:
        """Bytes written so far."""
        return self._done * (8 + self._weights.itemsize) + sum(writer.memory() for writer in self._writers)

    def _chunk(self, size: int) -> int:
        # The chunk ends with the smallest of the words a chunk away, so that equal words are never parted.
        here = list(zip(self._runs, self._at, strict=True))
        heads = [run.words[at + size - 1] for run, at in here if at + size <= len(run)]
        if heads:
            bound = min(heads)
            ends = [at + int(run.words[at:].searchsorted(bound, "right")) for run, at in here]
        else:
            ends = [len(run) for run in self._runs]
        some = [(run, slice(at, end)) for (run, at), end in zip(here, ends, strict=True) if end > at]
        taken = sum(ends) - sum(self._at)
        self._at = ends
        order, words, weights, columns = _in_order([run for run, _ in some], [part for _, part in some])
        start, end = self._done, self._done + len(order)
        self._words[start:end] = words
        if self._table:
            self._table.extend(words, start)
        if not np.can_cast(weights.dtype, self._weights.dtype):
            self._weights = self._weights.astype(weights.dtype)
        self._weights[start:end] = weights
        for writer, column in zip(self._writers, columns, strict=True):
            writer.write(start, column, order)
        self._done = end
        return taken


def _in_order(
    runs: Sequence[Run], parts: Sequence[slice]
) -> tuple[Positions, Hashes, Small, tuple[ColumnView, ...]]:
    """Parts of runs in the order of their words: positions in the columns, words, weights of the rows that remain; the columns."""
    words: Hashes = np.concatenate([run.words[part] for run, part in zip(runs, parts, strict=True)])
    # This sort merges what is in order already.
    order: Positions = words.argsort(kind="stable")
    words = words.take(order)
    weights: Small = np.concatenate([run.weights[part] for run, part in zip(runs, parts, strict=True)]).take(
        order
    )
    columns = tuple(_joined(column, parts) for column in zip(*(run.views for run in runs), strict=True))
    twins = (words[1:] == words[:-1]).nonzero()[0]
    if len(twins):
        kept, weights = _cancel(columns, order, words, weights, twins)
        order, words, weights = order[kept], words[kept], weights[kept]
    return order, words, weights, columns


def _joined(pieces: Sequence[ColumnView], parts: Sequence[slice]) -> ColumnView:
    """Parts of several columns of one type, end to end."""
    values = [
        piece.values[part]
        for piece, part in zip(pieces, parts, strict=True)
        if piece.values is not None and piece.bits is None
    ]
    if len(values) == len(pieces):
        return ColumnView(pieces[0].array, np.concatenate(values), None, 0)
    return view(pa.concat_arrays([piece.array[part] for piece, part in zip(pieces, parts, strict=True)]))


def _cancel(
    columns: Sequence[ColumnView], order: Positions, words: Hashes, weights: Small, twins: Positions
) -> tuple[Bools, Small]:
    """Add up the weights of equal rows: (which rows remain, weights). `twins` are places whose word is that of the next one."""
    kept = np.ones(len(order), np.bool_)
    summed = weights.astype(np.int64)
    same = equal_rows(columns, order[twins], columns, order[twins + 1], as_rows=True)
    if not (twins[1:] - twins[:-1] == 1).any():
        first = twins if same.all() else twins[same]
        summed[first] += summed[first + 1]
        kept[first + 1] = False
    else:
        near = np.zeros(len(order), np.bool_)
        near[twins] = True
        near[twins + 1] = True
        rows = near.nonzero()[0]
        grouped, starts = group_rows(
            words[rows], [column.gather(order[rows]) for column in columns], as_rows=True
        )
        first = rows[grouped[starts]]
        summed[first] = np.add.reduceat(summed[rows[grouped]], starts)
        kept[rows] = False
        kept[first] = True
    kept[first] = summed[first] != 0
    return kept, narrow(summed)


class _Writer(Protocol):
    """One column of the result."""

    def write(self, start: int, column: ColumnView, order: Positions) -> None: ...

    def finish(self, rows: int) -> pa.Array: ...

    def memory(self) -> int: ...


def _writer(pieces: Sequence[ColumnView], capacity: int) -> _Writer:
    kind = pieces[0].array.type
    if pieces[0].values is not None:
        return _FixedWriter(pieces, capacity)
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return _TextWriter(pieces, capacity)
    return _PieceWriter(pieces)


class _Validity:
    """The NULLs of a column as a byte per row; nothing when no piece has any."""

    __slots__ = ("_valid",)

    def __init__(self, pieces: Sequence[ColumnView], capacity: int) -> None:
        has_nulls = any(piece.bits is not None for piece in pieces)
        self._valid: Bools | None = np.empty(capacity, np.bool_) if has_nulls else None

    def write(self, start: int, end: int, nulls: Bools | None) -> None:
        if self._valid is not None:
            self._valid[start:end] = True if nulls is None else ~nulls

    def buffer(self, rows: int) -> pa.Buffer | None:
        if self._valid is None:
            return None
        return pa.py_buffer(np.packbits(self._valid[:rows], bitorder="little"))


class _FixedWriter:
    """Numbers, dates, times and decimals."""

    __slots__ = ("_out", "_rows", "_type", "_validity")

    def __init__(self, pieces: Sequence[ColumnView], capacity: int) -> None:
        assert pieces[0].values is not None
        self._type = pieces[0].array.type
        self._out: npt.NDArray[Any] = np.empty(capacity, pieces[0].values.dtype)
        self._validity = _Validity(pieces, capacity)
        self._rows = 0

    def write(self, start: int, column: ColumnView, order: Positions) -> None:
        assert column.values is not None
        end = start + len(order)
        column.values.take(order, out=self._out[start:end], mode="clip")
        self._validity.write(start, end, column.nulls(order))
        self._rows = end

    def finish(self, rows: int) -> pa.Array:
        values = pa.py_buffer(self._out[:rows])
        return pa.Array.from_buffers(self._type, rows, [self._validity.buffer(rows), values])

    def memory(self) -> int:
        return self._rows * self._out.itemsize


class _TextWriter:
    """large_string and large_binary."""

    __slots__ = ("_data", "_offsets", "_rows", "_type", "_validity")

    def __init__(self, pieces: Sequence[ColumnView], capacity: int) -> None:
        self._type = pieces[0].array.type
        self._offsets = np.zeros(capacity + 1, np.int64)
        self._data = np.empty(sum(_text_bytes(piece.array) for piece in pieces), np.uint8)
        self._validity = _Validity(pieces, capacity)
        self._rows = 0

    def write(self, start: int, column: ColumnView, order: Positions) -> None:
        piece = column.array.take(pa.array(order))
        end = start + len(order)
        if end > start:
            _, offset_buffer, data = piece.buffers()
            offsets = np.frombuffer(offset_buffer, np.int64)[piece.offset : piece.offset + len(piece) + 1]
            at, size = int(self._offsets[start]), int(offsets[-1] - offsets[0])
            self._offsets[start + 1 : end + 1] = offsets[1:] + (at - offsets[0])
            if size:
                self._data[at : at + size] = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
            self._validity.write(start, end, null_mask(piece))
        self._rows = end

    def finish(self, rows: int) -> pa.Array:
        offsets = self._offsets[: rows + 1]
        data = self._data[: int(offsets[-1])]
        buffers = [self._validity.buffer(rows), pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.Array.from_buffers(self._type, rows, buffers)

    def memory(self) -> int:
        return self._rows * 8 + int(self._offsets[self._rows])


class _PieceWriter:
    """Everything else, put together at the end."""

    __slots__ = ("_pieces",)

    def __init__(self, pieces: Sequence[ColumnView]) -> None:
        self._pieces: list[pa.Array] = [pieces[0].array.slice(0, 0)]

    def write(self, start: int, column: ColumnView, order: Positions) -> None:
        self._pieces.append(column.array.take(pa.array(order)))

    def finish(self, rows: int) -> pa.Array:
        return pa.concat_arrays(self._pieces)

    def memory(self) -> int:
        return int(sum(piece.nbytes for piece in self._pieces))


def _text_bytes(array: pa.Array) -> int:
    if len(array) == 0:
        return 0
    offsets = np.frombuffer(array.buffers()[1], np.int64)
    return int(offsets[array.offset + len(array)] - offsets[array.offset])
