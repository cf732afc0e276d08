"""Writers of the columns of a run, front to back, in memory or in scratch files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.data.arrays import Numbers, Positions
from penstock.data.column_view import ColumnView, null_mask, view
from penstock.state.narrow import narrow
from penstock.state.scratch import NewArray, Scratch, moved_columns
from penstock.state.text_writer import TextWriter, Validity, is_text, text_bytes


class NumberWriter:
    """A NumPy column of the result; integers take as few bytes as the rows that have come need."""

    __slots__ = ("_new", "_out", "_rows")

    def __init__(self, dtype: np.dtype[Any], capacity: int, new: NewArray) -> None:
        self._new = new
        self._out: Numbers = new(capacity, np.int8 if dtype.kind == "i" else dtype)
        self._rows = 0

    def write(self, start: int, values: Numbers) -> None:
        if values.dtype != self._out.dtype:
            values = narrow(values)
            if not np.can_cast(values.dtype, self._out.dtype):
                wider = self._new(len(self._out), values.dtype)
                wider[:start] = self._out[:start]
                self._out = wider
        self._rows = start + len(values)
        self._out[start : self._rows] = values

    def finish(self, rows: int) -> Numbers:
        if not self._out.flags.owndata:
            return self._out[:rows]
        # This frees the memory that was reserved for rows that are gone.
        self._out.resize(rows, refcheck=False)
        return self._out

    def moved(self, new: NewArray, scratch: Scratch) -> Any:
        """What `use` takes to go on in scratch files: only this may fail."""
        return new, _moved(self._out, self._rows, new)

    def use(self, arrays: Any) -> None:
        self._new, self._out = arrays

    def memory(self) -> int:
        return self._rows * self._out.itemsize


def _moved(array: npt.NDArray[Any], used: int, new: NewArray) -> npt.NDArray[Any]:
    """An array of the same size with the first elements of another one."""
    copy = new(len(array), array.dtype)
    copy[:used] = array[:used]
    return copy


class ColumnWriter(Protocol):
    """One column of the result.

    `moved` makes what `use` takes to go on in scratch files: only the first may fail.
    """

    def write(self, start: int, column: ColumnView, order: Positions) -> None: ...

    def finish(self, rows: int) -> pa.Array: ...

    def moved(self, new: NewArray, scratch: Scratch) -> Any: ...

    def use(self, arrays: Any) -> None: ...

    def memory(self) -> int: ...


def column_writer(
    pieces: Sequence[ColumnView], capacity: int, new: NewArray, scratch: Scratch | None
) -> ColumnWriter:
    kind = pieces[0].array.type
    if pieces[0].values is not None:
        return FixedWriter(pieces, capacity, new)
    if is_text(kind):
        return TextColumnWriter(pieces, capacity, new)
    if pa.types.is_large_list(kind) and all(_is_plain(piece.array.values) for piece in pieces):
        return ListWriter(pieces, capacity, new)
    return PieceWriter(pieces, scratch)


def _is_plain(items: pa.Array) -> bool:
    return items.null_count == 0 and view(items).values is not None


class FixedWriter:
    """Numbers, dates, times and decimals."""

    __slots__ = ("_new", "_out", "_rows", "_type", "_validity")

    def __init__(self, pieces: Sequence[ColumnView], capacity: int, new: NewArray) -> None:
        assert pieces[0].values is not None
        self._new = new
        self._type = pieces[0].array.type
        self._out: npt.NDArray[Any] = new(capacity, pieces[0].values.dtype)
        self._validity = Validity(capacity, new) if _has_nulls(pieces) else None
        self._rows = 0

    def write(self, start: int, column: ColumnView, order: Positions) -> None:
        assert column.values is not None
        end = start + len(order)
        column.values.take(order, out=self._out[start:end], mode="clip")
        if self._validity is not None:
            self._validity.write(start, end, column.nulls(order))
        self._rows = end

    def finish(self, rows: int) -> pa.Array:
        valid = None if self._validity is None else self._validity.buffer(rows)
        return pa.Array.from_buffers(self._type, rows, [valid, pa.py_buffer(self._out[:rows])])

    def moved(self, new: NewArray, scratch: Scratch) -> Any:
        validity = None if self._validity is None else self._validity.moved(self._rows, new)
        return _moved(self._out, self._rows, new), validity

    def use(self, arrays: Any) -> None:
        self._out, self._validity = arrays

    def memory(self) -> int:
        return self._rows * self._out.itemsize


class TextColumnWriter:
    """large_string and large_binary."""

    __slots__ = ("_text",)

    def __init__(self, pieces: Sequence[ColumnView], capacity: int, new: NewArray) -> None:
        size = sum(text_bytes(piece.array) for piece in pieces)
        self._text = TextWriter(pieces[0].array.type, capacity, size, new, nulls=_has_nulls(pieces))

    def write(self, start: int, column: ColumnView, order: Positions) -> None:
        self._text.append(column.array.take(pa.array(order)))

    def finish(self, rows: int) -> pa.Array:
        return self._text.finish()

    def moved(self, new: NewArray, scratch: Scratch) -> Any:
        return self._text.moved(new)

    def use(self, arrays: Any) -> None:
        self._text = arrays

    def memory(self) -> int:
        return self._text.memory()


class ListWriter:
    """Lists of numbers without a NULL among them."""

    __slots__ = ("_items", "_offsets", "_rows", "_type", "_validity")

    def __init__(self, pieces: Sequence[ColumnView], capacity: int, new: NewArray) -> None:
        self._type = pieces[0].array.type
        self._offsets: npt.NDArray[np.int64] = new(capacity + 1, np.int64)
        self._offsets[0] = 0
        items = [_list_items(piece.array) for piece in pieces]
        self._items: Numbers = new(sum(map(len, items)), items[0].dtype)
        self._validity = Validity(capacity, new) if _has_nulls(pieces) else None
        self._rows = 0

    def write(self, start: int, column: ColumnView, order: Positions) -> None:
        piece = column.gather(order)
        end = start + len(order)
        if end > start:
            offsets = np.frombuffer(piece.buffers()[1], np.int64)[
                piece.offset : piece.offset + len(piece) + 1
            ]
            at, items = int(self._offsets[start]), _list_items(piece)
            self._offsets[start + 1 : end + 1] = offsets[1:] + (at - offsets[0])
            self._items[at : at + len(items)] = items
            if self._validity is not None:
                self._validity.write(start, end, null_mask(piece))
        self._rows = end

    def finish(self, rows: int) -> pa.Array:
        offsets = self._offsets[: rows + 1]
        count = int(offsets[-1])
        items = pa.Array.from_buffers(
            self._type.value_type, count, [None, pa.py_buffer(self._items[:count])], 0
        )
        valid = None if self._validity is None else self._validity.buffer(rows)
        return pa.Array.from_buffers(self._type, rows, [valid, pa.py_buffer(offsets)], children=[items])

    def moved(self, new: NewArray, scratch: Scratch) -> Any:
        validity = None if self._validity is None else self._validity.moved(self._rows, new)
        offsets = _moved(self._offsets, self._rows + 1, new)
        return offsets, _moved(self._items, int(self._offsets[self._rows]), new), validity

    def use(self, arrays: Any) -> None:
        self._offsets, self._items, self._validity = arrays

    def memory(self) -> int:
        return self._rows * 8 + int(self._offsets[self._rows]) * self._items.itemsize


def _list_items(array: pa.Array) -> Numbers:
    """The numbers from the first of a list's to the last, those of NULLs that have some between them as well."""
    values = view(array.values).values
    assert values is not None
    if len(array) == 0:
        return values[:0]
    offsets = np.frombuffer(array.buffers()[1], np.int64)
    return values[int(offsets[array.offset]) : int(offsets[array.offset + len(array)])]


class PieceWriter:
    """Everything else, put together at the end, in memory."""

    __slots__ = ("_pieces", "_scratch")

    def __init__(self, pieces: Sequence[ColumnView], scratch: Scratch | None) -> None:
        self._pieces: list[pa.Array] = [pieces[0].array.slice(0, 0)]
        self._scratch = scratch

    def write(self, start: int, column: ColumnView, order: Positions) -> None:
        self._pieces.append(column.array.take(pa.array(order)))

    def finish(self, rows: int) -> pa.Array:
        column = pa.concat_arrays(self._pieces)
        return column if self._scratch is None else moved_columns((column,), self._scratch)[0]

    def moved(self, new: NewArray, scratch: Scratch) -> Any:
        return scratch

    def use(self, arrays: Any) -> None:
        self._scratch = arrays

    def memory(self) -> int:
        return int(sum(piece.nbytes for piece in self._pieces))


def _has_nulls(pieces: Sequence[ColumnView]) -> bool:
    return any(piece.bits is not None for piece in pieces)
