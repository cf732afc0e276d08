"""NumPy views of Arrow columns without copying: values, validity bits, and gathering rows by position.

PyArrow's `take` costs 15-30 us a call however few the rows; NumPy's costs 1-2 us. A tick gathers small numbers of rows from
many columns, so fixed-width columns go through NumPy here, and the rest through PyArrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.data.arrays import Bools, Positions

# 128-bit values are pairs of words; equal values have equal pairs.
PAIR = np.dtype([("low", "<u8"), ("high", "<u8")])
# Arrow types whose values have one width. Timestamps, dates, times and durations are their integers.
_DTYPES: dict[int, np.dtype[Any]] = {
    pa.int8().id: np.dtype(np.int8),
    pa.int16().id: np.dtype(np.int16),
    pa.int32().id: np.dtype(np.int32),
    pa.int64().id: np.dtype(np.int64),
    pa.uint8().id: np.dtype(np.uint8),
    pa.uint16().id: np.dtype(np.uint16),
    pa.uint32().id: np.dtype(np.uint32),
    pa.uint64().id: np.dtype(np.uint64),
    pa.float16().id: np.dtype(np.float16),
    pa.float32().id: np.dtype(np.float32),
    pa.float64().id: np.dtype(np.float64),
    pa.date32().id: np.dtype(np.int32),
    pa.date64().id: np.dtype(np.int64),
    pa.time32("s").id: np.dtype(np.int32),
    pa.time64("us").id: np.dtype(np.int64),
    pa.timestamp("us").id: np.dtype(np.int64),
    pa.duration("us").id: np.dtype(np.int64),
    pa.decimal128(1).id: PAIR,
    pa.month_day_nano_interval().id: PAIR,
}
_LARGE_LIST = pa.large_list(pa.null()).id
_MANY = 32_768  # rows from which columns are joined in NumPy


class ColumnView(NamedTuple):
    """A column as NumPy sees it: `values` is None for text, bytes, booleans and nested types."""

    # A tick makes dozens of these: a tuple is made in half the time of a frozen dataclass.

    array: pa.Array
    values: npt.NDArray[Any] | None
    bits: npt.NDArray[np.uint8] | None
    offset: int

    def nulls(self, positions: Positions) -> Bools | None:
        """Which of the rows at these positions are NULL; None when the column cannot have any."""
        if self.bits is None:
            # Without bits, either no row is NULL or all are, in a column of type NULL.
            return np.ones(len(positions), np.bool_) if self.array.null_count else None
        return ~_bits_at(self.bits, positions, self.offset)

    def gather(self, positions: Positions) -> pa.Array:
        """The rows at these positions, as an Arrow array."""
        if self.values is None:
            vectors = vectors_at(self.array, positions)
            return (
                self.array.take(pa.array(positions)) if vectors is None else _lists(vectors, self.array.type)
            )
        values = self.values.take(positions)
        if self.bits is None:
            return pa.Array.from_buffers(self.array.type, len(values), [None, pa.py_buffer(values)], 0)
        valid = _bits_at(self.bits, positions, self.offset)
        packed = np.packbits(valid, bitorder="little")
        return pa.Array.from_buffers(
            self.array.type, len(values), [pa.py_buffer(packed), pa.py_buffer(values)]
        )


def view(array: pa.Array) -> ColumnView:
    """Return the NumPy view of an Arrow array."""
    dtype = _DTYPES.get(array.type.id)
    buffers = array.buffers()
    offset = array.offset
    values = None
    if dtype is not None:
        length = len(array)
        values = (
            np.frombuffer(buffers[1], dtype, length, offset * dtype.itemsize)
            if length
            else np.zeros(0, dtype)
        )
    validity = buffers[0]
    bits = None if validity is None or array.null_count == 0 else np.frombuffer(validity, np.uint8)
    return ColumnView(array, values, bits, offset)


def views(columns: Sequence[pa.Array]) -> tuple[ColumnView, ...]:
    """Return the NumPy views of several columns."""
    return tuple(view(column) for column in columns)


def gather(columns: Sequence[pa.Array], positions: Positions) -> tuple[pa.Array, ...]:
    """The rows at these positions of several columns."""
    return tuple(view(column).gather(positions) for column in columns)


def vectors_at(array: pa.Array, positions: Positions) -> npt.NDArray[Any] | None:
    """The lists at these positions as the rows of a matrix; None when they are not all numbers, of one length, without a NULL.

    PyArrow copies lists one by one: for vectors of 128 numbers it takes nine times as long.
    """
    kind = array.type
    if kind.id != _LARGE_LIST or kind.value_type.id not in _DTYPES or len(positions) == 0:
        return None
    column = view(array)
    if column.bits is not None and not _bits_at(column.bits, positions, column.offset).all():
        return None
    items = array.values
    values = view(items).values
    if items.null_count or values is None:
        return None
    offsets = np.frombuffer(array.buffers()[1], np.int64)
    at = positions + array.offset if array.offset else positions
    starts = offsets.take(at)
    widths = offsets.take(at + 1) - starts
    width = int(widths[0])
    if width == 0 or (widths != width).any():
        return None
    step = values.dtype.itemsize
    # All lists that there could be, overlapping: the one that begins at number i is windows[i].
    windows = np.ndarray((len(values) - width + 1, width), values.dtype, values, strides=(step, step))
    vectors: npt.NDArray[Any] = windows[starts]
    return vectors


def _lists(vectors: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """The rows of a matrix as lists."""
    count, width = vectors.shape
    items = pa.Array.from_buffers(kind.value_type, count * width, [None, pa.py_buffer(vectors)], 0)
    offsets = np.arange(0, (count + 1) * width, width)
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets)], 0, children=[items])


def join_pieces(pieces: Sequence[tuple[ColumnView, Positions | None]]) -> pa.Array:
    """The rows at some positions, or all rows, of several columns of one type, end to end; there is at least one piece.

    Many numbers are written where they stay: Arrow's own way needs two copies, and new memory for both.
    """
    counts = [len(column.array) if at is None else len(at) for column, at in pieces]
    total = sum(counts)
    numbers = [column.values for column, _ in pieces if column.values is not None and column.bits is None]
    if total < _MANY or len(numbers) < len(pieces):
        return pa.concat_arrays([column.array if at is None else column.gather(at) for column, at in pieces])
    out = np.empty(total, numbers[0].dtype)
    end = 0
    for values, (_, at), count in zip(numbers, pieces, counts, strict=True):
        target = out[end : end + count]
        if at is None:
            target[:] = values
        else:
            values.take(at, out=target, mode="clip")
        end += count
    return pa.Array.from_buffers(pieces[0][0].array.type, total, [None, pa.py_buffer(out)], 0)


def null_mask(array: pa.Array) -> Bools | None:
    """Which rows are NULL; None when none is."""
    if array.null_count == 0:
        return None
    validity = array.buffers()[0]
    if validity is None:
        return np.ones(len(array), np.bool_)
    return ~unpack_bits(np.frombuffer(validity, np.uint8), array.offset, len(array))


def true_mask(array: pa.Array) -> Bools:
    """Which rows of a boolean column are TRUE: neither FALSE nor NULL."""
    if len(array) == 0:
        return np.zeros(0, np.bool_)
    validity, bits = array.buffers()
    mask = unpack_bits(np.frombuffer(bits, np.uint8), array.offset, len(array))
    if validity is not None:
        mask &= unpack_bits(np.frombuffer(validity, np.uint8), array.offset, len(array))
    return mask


def unpack_bits(bits: npt.NDArray[np.uint8], offset: int, length: int) -> Bools:
    """The bits `offset` .. `offset + length` of a bitmap as booleans."""
    start = offset >> 3
    inner = offset & 7
    chosen = bits[start : (offset + length + 7) >> 3]
    return np.unpackbits(chosen, count=inner + length, bitorder="little")[inner:].view(np.bool_)


def _bits_at(bits: npt.NDArray[np.uint8], positions: Positions, offset: int) -> Bools:
    bit_positions = positions + offset if offset else positions
    valid: Bools = (
        (bits.take(bit_positions >> 3) >> (bit_positions & 7).astype(np.uint8)) & np.uint8(1)
    ).view(np.bool_)
    return valid
