"""A stable 64-bit hash of rows, and the shard of a hash; `penstock.data.equality` decides when two hashes meet.

The hash is the same in every process, on every machine and for every Arrow layout of the same values (slices, offsets, with or
without a validity bitmap, small or large text), because state, shards and checkpoints rely on it: a change of what it gives is
a change of the state format. It follows Spark's grouping: NULL equals NULL, all NaNs are equal, -0.0 equals 0.0, and a map
does not depend on the order of its entries.

A column becomes one 64-bit word per row: integers, dates and times their sign-extended value, floats the bits of their
normalised double, text and lists the sum of their mixed (element, position) pairs, so that nothing loops over rows. Words are
then mixed column by column with the finaliser of splitmix64.

**Shards.** The shard of a row is a part of the state format, too: `((hash >> 24) & 0xFFFF) % shards`, where `hash` is that of the
row's key columns.

- Bits 24 to 39, because they are in hashes and in the words of a run alike: the word of an indexed row keeps the high 40 bits of
  its key's hash (`penstock.state.run`), and the low 24 bits of the word are those of the row. The top bits order the
  rows of a run and choose the bucket of its offset table; were they to choose the shard as well, all rows of a shard
  would share a bucket.
- At most 65,536 shards, one per value of the 16 bits. When their number is a power of two, every shard has equally
  many values. Otherwise some shards have one value more than others: 1 of 655 for 100 shards, so that a shard is at
  most `1 / (65536 // shards)` larger than another (below 1 % up to 655 shards).
- Key columns have a canonical order, because (a, b) and (b, a) hash differently: ascending positions
  (`canonical_keys`). The two inputs of an equi-join must agree, so there the pairs are in order of the left column,
  then of the right one (`canonical_pairs`). The compiler arranges rows in this order and an exchange hashes them in
  it; an input of a join that goes to rows which are there already takes their order (`penstock.plan.distribution`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.arrays import Positions
from penstock.data.column_view import null_mask, unpack_bits, view

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
_SHARD_SHIFT, _SHARD_BITS = np.uint64(24), np.uint64(0xFFFF)
MOST_SHARDS = 65_536

_FIRST_BYTES = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)
_SALTS = np.arange(1, _WORDS_IN_TURN + 1, dtype=np.uint64) * _GOLDEN


def hash_rows(columns: Sequence[pa.Array], rows: int | None = None) -> Hashes:
    """Return the hash of every row over the given columns; `rows` says how many there are when there is no column.

    >>> import pyarrow as pa
    >>> bool((hash_rows([pa.array([1, None])]) == hash_rows([pa.array([0, 1, None])[1:]])).all())
    True
    """
    return _hash(columns, len(columns[0]) if columns else rows or 0, _GOLDEN)


def hash_wide(columns: Sequence[pa.Array], rows: int | None = None) -> tuple[Hashes, Hashes]:
    """Return a 128-bit hash of every row as two words: the identity of rows whose values are not kept."""
    count = len(columns[0]) if columns else rows or 0
    return _hash(columns, count, _GOLDEN), _hash(columns, count, _ODD)


def shard_of(hashes: Hashes, shards: int) -> Positions:
    """Return the shard, from 0, of every key hash, or of every word of a run that is sorted by that key.

    >>> import pyarrow as pa
    >>> shard_of(hash_rows([pa.array([1, 2, 3, None])]), 8).tolist()
    [0, 3, 3, 6]
    """
    if not 1 <= shards <= MOST_SHARDS:
        raise ValueError(f"{shards} shards; there are 1 to {MOST_SHARDS:,}")
    return (((hashes >> _SHARD_SHIFT) & _SHARD_BITS) % np.uint64(shards)).astype(np.int64)


def canonical_keys(columns: Sequence[int]) -> tuple[int, ...]:
    """Return the columns of a key in the order in which they are hashed, each once.

    >>> canonical_keys([3, 0, 3])
    (0, 3)
    """
    return tuple(sorted(set(columns)))


@dataclass(frozen=True, slots=True)
class KeyPairs:
    """The keys of an equi-join in the order in which both inputs hash them; `null_safe[i]` is that of the i-th pair."""

    left: tuple[int, ...]
    right: tuple[int, ...]
    null_safe: tuple[bool, ...]


def canonical_pairs(
    left: Sequence[int], right: Sequence[int], null_safe: Sequence[bool] | None = None
) -> KeyPairs:
    """Return the key pairs of an equi-join in canonical order, each once; without `null_safe` no pair is NULL-safe.

    >>> canonical_pairs([4, 1], [0, 2])
    KeyPairs(left=(1, 4), right=(2, 0), null_safe=(False, False))
    """
    safe = [False] * len(left) if null_safe is None else null_safe
    pairs = sorted(set(zip(left, right, safe, strict=True)))
    return KeyPairs(
        tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs), tuple(pair[2] for pair in pairs)
    )


def tells_apart(columns: Sequence[pa.Array]) -> bool:
    """Whether rows of equal hashes are equal: the hash of one integer is a permutation of it.

    Floats are left out because rows of a multiset tell -0.0 and 0.0 apart, NULL because its word is also that of a number.
    """
    if len(columns) != 1 or columns[0].null_count:
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
    function = _WORDS.get(kind.id)
    if function is None:
        function = _words_of_floats if pa.types.is_floating(kind) else _words_of_numbers
        _WORDS[kind.id] = function
    return function


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
        positions, first = expand(counts)
        begins, left = np.repeat(starts, counts) + positions * 8, np.repeat(lengths, counts) - positions * 8
        salts = (positions + 1).astype(np.uint64) * _GOLDEN
        return _sum_by(_mix(_text_words(words, begins, left) + salts), first, counts) + result
    # The same sum with a pass per word, over the rows that have it: faster when all texts are short.
    result += np.where(lengths > 0, _mix(_text_words(words, starts, lengths) + _GOLDEN), np.uint64(0))
    rows = np.flatnonzero(lengths > 8)
    for offset in range(8, longest, 8):
        next_words = _text_words(words, starts[rows] + offset, lengths[rows] - offset)
        result[rows] += _mix(next_words + _SALTS[offset >> 3])
        rows = rows[lengths[rows] > offset + 8]
    return result


def _text_words(words: npt.NDArray[np.uint64], begins: Positions, left: Positions) -> Hashes:
    """The bytes from each of some ascending offsets, at most 8 and at most the `left` ones, as little-endian words."""
    last = len(words) - 1
    if begins[-1] <= last:
        texts = words[begins]
    else:
        # A word that would end past the buffer is read from further left and shifted.
        clamped = np.minimum(begins, last)
        texts = words[clamped] >> (np.minimum(begins - clamped, 7) * 8).astype(np.uint64)
    texts &= _FIRST_BYTES.take(np.minimum(left, 8))
    return texts


def _words_of_lists(array: pa.Array) -> Hashes:
    kind = array.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return _words_of_lists(array.cast(pa.large_list(kind.value_field)))
    bounds, items = elements(array)
    counts = bounds[1:] - bounds[:-1]
    if len(counts) and counts[0] and (counts == counts[0]).all():
        return _words_of_vectors(items, int(counts[0]))
    positions, first = expand(counts)
    mixed = _mix(_mix(_words(items) + _GOLDEN) + (positions + 1).astype(np.uint64) * _GOLDEN)
    return _sum_by(mixed, first, counts) + counts.astype(np.uint64)


def _words_of_vectors(items: pa.Array, width: int) -> Hashes:
    """The same for lists of one length, whose items lie end to end, without a place for each item."""
    salts = np.arange(1, width + 1, dtype=np.uint64) * _GOLDEN
    words = np.empty(len(items) // width, np.uint64)
    block = max(_CHUNK // width, 1)
    for start in range(0, len(words), block):
        part = items.slice(start * width, block * width)
        mixed = _mix(_words(part) + _GOLDEN).reshape(-1, width)
        mixed += salts
        words[start : start + block] = _mix(mixed).sum(axis=1, dtype=np.uint64)
    words += np.uint64(width)
    return words


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
    """For ranges of these lengths laid end to end: the position of each item within its range, and where ranges begin."""
    first = np.cumsum(counts) - counts
    return np.arange(int(counts.sum())) - np.repeat(first, counts), first


def _sum_by(words: Hashes, first: Positions, counts: Positions) -> Hashes:
    """Sums of ranges laid end to end; an empty range sums to zero."""
    sums = np.zeros(len(counts), np.uint64)
    filled = counts > 0
    if filled.any():
        sums[filled] = np.add.reduceat(words, first[filled])
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
