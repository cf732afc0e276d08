"""Writes text and bytes, piece by piece, into arrays that were made for all of it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.data.arrays import Bools
from penstock.data.column_view import null_mask
from penstock.state.scratch import NewArray


class Validity:
    """The NULLs of a column as a byte per row."""

    __slots__ = ("_new", "_valid")

    def __init__(self, capacity: int, new: NewArray) -> None:
        self._new = new
        self._valid: Bools = new(capacity, np.bool_)

    def write(self, start: int, end: int, nulls: Bools | None) -> None:
        """The next rows, and which of them are NULL."""
        self._valid[start:end] = True if nulls is None else ~nulls

    def moved(self, rows: int, new: NewArray) -> Validity:
        """The same first rows in other arrays."""
        copy = Validity(len(self._valid), new)
        copy._valid[:rows] = self._valid[:rows]
        return copy

    def buffer(self, rows: int) -> pa.Buffer:
        """The bitmap of the first rows."""
        packed = np.packbits(self._valid[:rows], bitorder="little")
        if self._new is np.empty:
            return pa.py_buffer(packed)
        bits = self._new(len(packed), np.uint8)
        bits[:] = packed
        return pa.py_buffer(bits)


class TextWriter:
    """A column of large_string or large_binary with room for so many rows and bytes."""

    __slots__ = ("_data", "_offsets", "_rows", "_type", "_validity")

    def __init__(self, kind: pa.DataType, rows: int, size: int, new: NewArray, *, nulls: bool) -> None:
        self._type = kind
        self._offsets: npt.NDArray[np.int64] = new(rows + 1, np.int64)
        self._offsets[0] = 0
        self._data: npt.NDArray[np.uint8] = new(size, np.uint8)
        self._validity = Validity(rows, new) if nulls else None
        self._rows = 0

    def append(self, piece: pa.Array) -> None:
        """The next rows."""
        start, end = self._rows, self._rows + len(piece)
        if end == start:
            return
        _, offset_buffer, data = piece.buffers()
        offsets = np.frombuffer(offset_buffer, np.int64)[piece.offset : piece.offset + len(piece) + 1]
        at, size = int(self._offsets[start]), int(offsets[-1] - offsets[0])
        self._offsets[start + 1 : end + 1] = offsets[1:] + (at - offsets[0])
        if size:
            self._data[at : at + size] = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
        if self._validity is not None:
            self._validity.write(start, end, null_mask(piece))
        self._rows = end

    def finish(self) -> pa.Array:
        """The rows that have come."""
        rows = self._rows
        offsets = self._offsets[: rows + 1]
        data = self._data[: int(offsets[-1])]
        valid = None if self._validity is None else self._validity.buffer(rows)
        return pa.Array.from_buffers(self._type, rows, [valid, pa.py_buffer(offsets), pa.py_buffer(data)])

    def moved(self, new: NewArray) -> TextWriter:
        """The same, in other arrays."""
        rows, size = self._rows, self.text_size
        copy = TextWriter(
            self._type, len(self._offsets) - 1, len(self._data), new, nulls=self._validity is not None
        )
        copy._offsets[: rows + 1] = self._offsets[: rows + 1]
        copy._data[:size] = self._data[:size]
        if self._validity is not None:
            copy._validity = self._validity.moved(rows, new)
        copy._rows = rows
        return copy

    @property
    def rows(self) -> int:
        """Rows that have come."""
        return self._rows

    @property
    def capacity(self) -> int:
        """Bytes of all its arrays."""
        return len(self._offsets) * 9 + len(self._data)

    @property
    def text_size(self) -> int:
        """Bytes of text so far."""
        return int(self._offsets[self._rows])

    def memory(self) -> int:
        """Bytes written so far."""
        return self._rows * 8 + self.text_size


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type can be written here."""
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))


def text_bytes(array: pa.Array) -> int:
    """Bytes of the text of a column."""
    if len(array) == 0:
        return 0
    offsets = np.frombuffer(array.buffers()[1], np.int64)
    return int(offsets[array.offset + len(array)] - offsets[array.offset])
