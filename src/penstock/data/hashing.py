"""A stable 64-bit hash of rows; `penstock.data.equality` decides when two hashes meet.

The hash is the same in every process, on every machine and for every Arrow layout of the same values (slices, offsets, with or
without a validity bitmap, small or large text), because state, shards and checkpoints rely on it: a change of what it gives is
a change of the state format. It follows Spark's grouping: NULL equals NULL, all NaNs are equal, -0.0 equals 0.0, and a map
does not depend on the order of its entries.

A column becomes one 64-bit word per row: integers, dates and times their sign-extended value, floats the bits of their
normalised double, text and lists the sum of their mixed (element, position) pairs, so that nothing loops over rows. Words are
then mixed column by column with the finaliser of splitmix64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.column_view import Positions, null_mask, unpack_bits, view

Hashes = npt.NDArray[np.uint64]

_CHUNK = 32_768  # rows hashed at a time, so that intermediate words stay in the cache
_WORDS_IN_TURN = 16
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_ODD = np.uint64(0xD6E8FEB86659FD93)
_NULL = np.uint64(0x7C3A1F0B5D2E9486)
_NAN = np.uint64(0x7FF8000000000000)
_SHIFT_30, _SHIFT_27, _SHIFT_31 = np.uint64(30), np.uint64(27), np.uint64(31)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)

_FIRST_BYTES = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)
_SALTS = np.arange(1, _WORDS_IN_TURN + 1, dtype=np.uint64) * _GOLDEN

_mask = _ALL


@contextmanager
def weakened(mask: int) -> Iterator[None]:
    """Keep only some bits of every hash while the context is open: a test uses it to make collisions common."""
    global _mask
    before, _mask = _mask, np.uint64(mask)
    try:
        yield
    finally:
        _mask = before


def hash_rows(columns: Sequence[pa.Array], rows: int | None = None) -> Hashes:
    """Return the hash of every row over the given columns; `rows` says how many there are when there is no column.

    >>> import pyarrow as pa
    >>> bool((hash_rows([pa.array([1, None])]) == hash_rows([pa.array([0, 1, None])[1:]])).all())
    True
    """
    hashes = _hash(columns, len(columns[0]) if columns else rows or 0, _GOLDEN)
    if _mask != _ALL:
        hashes &= _mask
    return hashes


def hash_wide(columns: Sequence[pa.Array], rows: int | None = None) -> tuple[Hashes, Hashes]:
    """Return a 128-bit hash of every row as two words: the identity of rows whose values are not kept."""
    count = len(columns[0]) if columns else rows or 0
    return _hash(columns, count, _GOLDEN), _hash(columns, count, _ODD)


def tells_apart(columns: Sequence[pa.Array]) -> bool:
    """Whether rows of equal hashes are equal: the hash of one integer is a permutation of it.

    Floats are left out because rows of a multiset tell -0.0 and 0.0 apart, NULL because its word is also that of a number.
    """
    if len(columns) != 1 or _mask != _ALL or columns[0].null_count:
        return False
    values = view(columns[0]).values
    return values is not None and values.dtype.kind in "iu"


def normalized(array: pa.Array) -> pa.Array:
    """Return a float column as Spark shows grouping keys: -0.0 becomes 0.0; other types are returned as they are."""
    if not pa.types.is_floating(array.type):
        return array
    return pc.if_else(pc.equal(array, pa.scalar(0.0, array.type)), pa.scalar(0.0, array.type), array)


def _mix(words: Hashes) -> Hashes:
    """The finaliser of splitmix64, in place."""
    words ^= words >> _SHIFT_30
    words *= _MIX_1
    words ^= words >> _SHIFT_27
    words *= _MIX_2
    words ^= words >> _SHIFT_31
    return words


def _hash(columns: Sequence[pa.Array], count: int, seed: np.uint64) -> Hashes:
    if count > _CHUNK:
        result = np.empty(count, np.uint64)
        for start in range(0, count, _CHUNK):
            part = [column.slice(start, _CHUNK) for column in columns]
            result[start : start + _CHUNK] = _hash(part, min(_CHUNK, count - start), seed)
        return result
    hashes = np.full(count, seed, np.uint64)
    for column in columns:
        hashes *= _ODD
        hashes += _words(column)
        _mix(hashes)
    return hashes


def _words(array: pa.Array) -> Hashes:
    """One word per row; a NULL has a word of its own."""
    words = _word_function(array.type)(array)
    nulls = null_mask(array)
    if nulls is not None:
        words = np.where(nulls, _NULL, words)
    return words


def _word_function(kind: pa.DataType) -> Callable[[pa.Array], Hashes]:
    known = _WORDS.get(kind.id)
    if known is None:
        known = _words_of_numbers
        if pa.types.is_floating(kind):
            known = _words_of_floats
        _WORDS[kind.id] = known
    return known


def _words_of_numbers(array: pa.Array) -> Hashes:
    values = view(array).values
    if values is None:
        raise TypeError(f"rows of type {array.type} cannot be hashed")
    if values.dtype.kind == "V":
        mixed: Hashes = _mix(values["low"] * _ODD) + values["high"]
        return mixed
    if values.dtype.itemsize == 8:
        return values.view(np.uint64)
    return values.astype(np.int64).view(np.uint64)


def _words_of_floats(array: pa.Array) -> Hashes:
    values = view(array).values
    assert values is not None
    # Adding 0.0 turns -0.0 into 0.0 and copies.
    doubles = values.astype(np.float64) + 0.0
    words: Hashes = doubles.view(np.uint64)
    nans = np.isnan(doubles)
    if nans.any():
        words[nans] = _NAN
    return words


def _words_of_booleans(array: pa.Array) -> Hashes:
    if len(array) == 0:
        return np.zeros(0, np.uint64)
    bits = np.frombuffer(array.buffers()[1], np.uint8)
    return unpack_bits(bits, array.offset, len(array)).astype(np.uint64)


def _words_of_nulls(array: pa.Array) -> Hashes:
    return np.full(len(array), _NULL, np.uint64)


def _words_of_text(array: pa.Array) -> Hashes:
    kind = array.type
    if pa.types.is_fixed_size_binary(kind):
        return _words_of_text(array.cast(pa.large_binary()))
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return _words_of_text(array.cast(pa.large_binary()))
    if len(array) == 0:
        return np.zeros(0, np.uint64)
    large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    _, offset_buffer, data = array.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64 if large else np.int32)
    bounds = offsets[array.offset : array.offset + len(array) + 1].astype(np.int64)
    starts, lengths = bounds[:-1], bounds[1:] - bounds[:-1]
    size = data.size if data is not None else 0
    if size < 8:
        data = pa.py_buffer((data.to_pybytes() if data is not None else b"") + bytes(8))
        size = data.size
    # All 8-byte words of the buffer, overlapping: the word at byte i is words[i].
    words = np.ndarray(shape=(size - 7,), dtype="<u8", buffer=data, strides=(1,))
    result = lengths.astype(np.uint64)
    longest = int(lengths.max())
    if longest > 8 * _WORDS_IN_TURN:
        counts = (lengths + 7) >> 3
        place, first = expand(counts)
        at, left = np.repeat(starts, counts) + place * 8, np.repeat(lengths, counts) - place * 8
        salt = (place + 1).astype(np.uint64) * _GOLDEN
        return _sum_by(_mix(_text_words(words, at, left) + salt), first, counts) + result
    # The same sum with a pass per word, over the rows that have it: faster when all texts are short.
    result += np.where(lengths > 0, _mix(_text_words(words, starts, lengths) + _GOLDEN), np.uint64(0))
    rows = np.flatnonzero(lengths > 8)
    for done in range(8, longest, 8):
        word = _text_words(words, starts[rows] + done, lengths[rows] - done)
        result[rows] += _mix(word + _SALTS[done >> 3])
        rows = rows[lengths[rows] > done + 8]
    return result


def _text_words(words: npt.NDArray[np.uint64], at: Positions, left: Positions) -> Hashes:
    """The next bytes at each place, at most 8 of the `left` ones, as little-endian words; places ascend."""
    last = len(words) - 1
    if at[-1] <= last:
        found = words[at]
    else:
        # A word that would end past the buffer is read from further left and shifted into place.
        clamped = np.minimum(at, last)
        found = words[clamped] >> (np.minimum(at - clamped, 7) * 8).astype(np.uint64)
    found &= _FIRST_BYTES.take(np.minimum(left, 8))
    return found


def _words_of_lists(array: pa.Array) -> Hashes:
    kind = array.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return _words_of_lists(array.cast(pa.large_list(kind.value_field)))
    bounds, items = elements(array)
    counts = bounds[1:] - bounds[:-1]
    place, first = expand(counts)
    mixed = _mix(_mix(_words(items) + _GOLDEN) + (place + 1).astype(np.uint64) * _GOLDEN)
    return _sum_by(mixed, first, counts) + counts.astype(np.uint64)


def _words_of_maps(array: pa.Array) -> Hashes:
    bounds, entries = elements(array)
    counts = bounds[1:] - bounds[:-1]
    _, first = expand(counts)
    # No position is mixed in: the order of entries does not matter.
    return _sum_by(_hash(entries.flatten(), len(entries), _GOLDEN), first, counts) + counts.astype(np.uint64)


def _words_of_structs(array: pa.Array) -> Hashes:
    return _hash(array.flatten(), len(array), _GOLDEN)


def elements(array: pa.Array) -> tuple[Positions, pa.Array]:
    """The bounds of the lists or maps of an array, from 0, and their elements."""
    if len(array) == 0:
        return np.zeros(1, np.int64), array.values.slice(0, 0)
    bounds = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    return bounds - bounds[0], array.values.slice(int(bounds[0]), int(bounds[-1] - bounds[0]))


def expand(counts: Positions) -> tuple[Positions, Positions]:
    """For ranges of the given lengths laid end to end: the place within its range of each item, and where ranges begin."""
    first = np.cumsum(counts) - counts
    return np.arange(int(counts.sum())) - np.repeat(first, counts), first


def _sum_by(words: Hashes, first: Positions, counts: Positions) -> Hashes:
    """Sums of ranges laid end to end; an empty range sums to zero."""
    sums = np.zeros(len(counts), np.uint64)
    some = counts > 0
    if some.any():
        sums[some] = np.add.reduceat(words, first[some])
    return sums


_WORDS: dict[int, Callable[[pa.Array], Hashes]] = {
    pa.bool_().id: _words_of_booleans,
    pa.null().id: _words_of_nulls,
    pa.string().id: _words_of_text,
    pa.binary().id: _words_of_text,
    pa.large_string().id: _words_of_text,
    pa.large_binary().id: _words_of_text,
    pa.string_view().id: _words_of_text,
    pa.binary_view().id: _words_of_text,
    pa.binary(1).id: _words_of_text,
    pa.list_(pa.null()).id: _words_of_lists,
    pa.large_list(pa.null()).id: _words_of_lists,
    pa.list_(pa.null(), 1).id: _words_of_lists,
    pa.list_view(pa.null()).id: _words_of_lists,
    pa.large_list_view(pa.null()).id: _words_of_lists,
    pa.map_(pa.int8(), pa.int8()).id: _words_of_maps,
    pa.struct([]).id: _words_of_structs,
}
