"""The order of values and rows, exactly as Spark sorts them.

NaN is greater than every number and equal to itself, -0.0 equals 0.0, text and binary compare by bytes, arrays and structs
element by element with NULL first. Values become unsigned 64-bit words whose order is the order of the values; where words
cannot hold all of a value (text, nested types), ranks within the batch do.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.arrays import Bools, Floats, Numbers, Positions, Words
from penstock.data.column_view import PAIR
from penstock.data.hashing import elements, expand
from penstock.data.sorting import order_words

_SIGN = np.uint64(1 << 63)
_NAN_BITS = np.uint64(0x7FF8000000000000)
_MOST_WORDS = 3  # of a prefix
_CHUNK = 32_768  # values encoded at a time, so that intermediate words stay in the cache
_MOST_CELLS = 4_000_000  # of a table with a row for each place of the longest list
_LEAST_ROOM = 16  # bits of a second column beside the first one, below which packing does not pay


class Key(Protocol):
    """A column to sort by: its position, direction, and where NULL goes."""

    @property
    def column(self) -> int: ...
    @property
    def descending(self) -> bool: ...
    @property
    def nulls_first(self) -> bool: ...


def is_fixed(kind: pa.DataType) -> bool:
    """Whether values of this type fit into words completely."""
    return word_count(kind) > 0


def word_count(kind: pa.DataType) -> int:
    """How many words a value of this type takes; 0 when it does not fit."""
    if pa.types.is_decimal128(kind):
        return 1 if kind.precision <= 18 else 2
    simple = (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_duration(kind)
        or pa.types.is_time(kind)
    )
    return 1 if simple else 0


def _raw(column: pa.Array, dtype: npt.DTypeLike) -> Numbers:
    data = column.buffers()[1]
    if data is None:
        return np.zeros(len(column), dtype)
    return np.frombuffer(data, dtype)[column.offset : column.offset + len(column)]


def _of_floats(values: Floats, *, merge_zeros: bool) -> Words:
    if len(values) > _CHUNK:
        words = np.empty(len(values), np.uint64)
        for start in range(0, len(values), _CHUNK):
            part = slice(start, start + _CHUNK)
            words[part] = _of_floats(values[part], merge_zeros=merge_zeros)
        return words
    bits = values.view(np.uint64)
    is_nan = np.isnan(values)
    if is_nan.any():
        bits = np.where(is_nan, _NAN_BITS, bits)
    if merge_zeros:
        bits = np.where(bits == _SIGN, np.uint64(0), bits)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def encode(column: pa.Array, *, merge_zeros: bool = True) -> tuple[Words, ...]:
    """Return the words of a fixed-width column, most significant first; words of NULL mean nothing.

    With `merge_zeros` -0.0 and 0.0 have the same word, as Spark compares them; without, `decode` gives back the very value.
    """
    kind = column.type
    if pa.types.is_decimal128(kind):
        data = _raw(column, np.dtype((np.int64, 2)))
        low, high = data[:, 0].view(np.uint64), data[:, 1].view(np.uint64)
        return (low ^ _SIGN,) if kind.precision <= 18 else (high ^ _SIGN, low.copy())
    if pa.types.is_boolean(kind):
        filled = column if column.null_count == 0 else column.fill_null(False)
        return (filled.cast(pa.uint8()).to_numpy(zero_copy_only=False).astype(np.uint64),)
    if pa.types.is_floating(kind):
        values = _raw(column, np.float64 if kind.bit_width == 64 else np.float32).astype(
            np.float64, copy=False
        )
        return (_of_floats(values, merge_zeros=merge_zeros),)
    values = _raw(column, f"i{kind.bit_width // 8}").astype(np.int64, copy=False)
    return (values.view(np.uint64) ^ _SIGN,)


def decode(words: Sequence[Words], kind: pa.DataType, valid: Bools | None = None) -> pa.Array:
    """Return the values of words that `encode` gave; NULL where `valid` is false."""
    mask = None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    if pa.types.is_boolean(kind):
        data = np.packbits(words[0] != 0, bitorder="little")
    else:
        data = np.ascontiguousarray(decode_values(words, kind))
    return pa.Array.from_buffers(kind, len(words[0]), [mask, pa.py_buffer(data)])


def decode_values(words: Sequence[Words], kind: pa.DataType) -> Numbers:
    """The same as NumPy values, for all types but booleans."""
    if pa.types.is_decimal128(kind):
        data = np.empty(len(words[0]), PAIR)
        if kind.precision <= 18:
            data["low"] = words[0] ^ _SIGN
            data["high"] = (data["low"].view(np.int64) >> np.int64(63)).view(np.uint64)
        else:
            data["high"] = words[0] ^ _SIGN
            data["low"] = words[1]
        return data
    if pa.types.is_floating(kind):
        raw = np.where(words[0] & _SIGN, words[0] ^ _SIGN, ~words[0]).view(np.float64)
        return raw if kind.bit_width == 64 else raw.astype(np.float32)
    return (words[0] ^ _SIGN).view(np.int64).astype(f"i{kind.bit_width // 8}", copy=False)


def _of_bytes(column: pa.Array) -> tuple[Words, Words]:
    """The first sixteen bytes of each text or binary value, most significant first, padded with zeros."""
    wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    column = column if wide else column.cast(pa.large_binary())
    _, offsets_buffer, data_buffer = column.buffers()
    words = np.zeros((2, len(column)), np.uint64)
    if data_buffer is None or len(column) == 0:
        return words[0], words[1]
    offsets = np.frombuffer(offsets_buffer, np.int64)[column.offset : column.offset + len(column) + 1]
    data = np.frombuffer(data_buffer, np.uint8)
    starts, lengths = offsets[:-1], offsets[1:] - offsets[:-1]
    for at in range(min(16, int(lengths.max()))):
        inside = (lengths > at).nonzero()[0]
        words[at >> 3, inside] |= data[starts[inside] + at].astype(np.uint64) << np.uint64(56 - 8 * (at & 7))
    return words[0], words[1]


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_large_string(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary(kind)
    )


def _bits(kind: pa.DataType) -> int:
    """Bits that a value takes in a prefix."""
    if pa.types.is_boolean(kind):
        return 1
    if pa.types.is_integer(kind) or pa.types.is_date32(kind):
        return int(kind.bit_width)
    if _is_bytes(kind):
        return 128
    return 64 * word_count(kind)


def _chosen(kinds: Sequence[pa.DataType], keys: Sequence[Key]) -> list[tuple[int, bool, bool]]:
    """The columns that make up a prefix: the keys, then all others, up to the first one that does not fit completely."""
    rest = [index for index in range(len(kinds)) if index not in {key.column for key in keys}]
    wanted = [(key.column, key.descending, key.nulls_first) for key in keys] + [
        (at, False, True) for at in rest
    ]
    for last, (index, _, _) in enumerate(wanted):
        if not is_fixed(kinds[index]):
            return wanted[: last + 1]
    return wanted


def prefix_words(kinds: Sequence[pa.DataType], keys: Sequence[Key]) -> int:
    """How many words `prefix` gives for rows of these types."""
    bits = sum(1 + _bits(kinds[index]) for index, _, _ in _chosen(kinds, keys))
    return max(1, min(_MOST_WORDS, -(-bits // 64)))


def prefix(columns: Sequence[pa.Array], keys: Sequence[Key]) -> tuple[Words, ...]:
    """Return words per row that never contradict the order of the keys and then of the whole row; equal words say nothing.

    They are the leading bits of all values laid end to end, each after a bit for NULL.
    """
    kinds = [column.type for column in columns]
    count = prefix_words(kinds, keys)
    words = np.zeros((count, len(columns[0])), np.uint64)
    at = 0
    for index, descending, nulls_first in _chosen(kinds, keys):
        column = columns[index]
        missing = pc.is_null(column).to_numpy(zero_copy_only=False) if column.null_count else None
        flag = np.full(len(column), nulls_first, np.uint64)
        if missing is not None:
            flag ^= missing
        _put_bits(words, at, flag, 1)
        at += 1
        for word, bits in _parts(column):
            value = ~word if descending else word
            if missing is not None:
                value = np.where(missing, np.uint64(0), value)
            _put_bits(words, at, value, bits)
            at += bits
        if at >= 64 * count:
            break
    return tuple(words)


def _parts(column: pa.Array) -> list[tuple[Words, int]]:
    """The words of a column and how many of their low bits count."""
    kind = column.type
    if _is_bytes(kind):
        return [(word, 64) for word in _of_bytes(column)]
    if not is_fixed(kind):
        return []
    words = encode(column)
    bits = _bits(kind)
    if bits < 64 and bits > 1:
        return [((words[0] ^ _SIGN) + np.uint64(1 << (bits - 1)), bits)]
    return [(word, min(bits, 64)) for word in words]


def _put_bits(words: Words, at: int, value: Words, bits: int) -> None:
    """Write the low `bits` bits of a value at a bit position counted from the most significant one; what does not fit is cut."""
    word, used = at >> 6, at & 63
    if word >= len(words):
        return
    if bits < 64:
        value = value & np.uint64((1 << bits) - 1)
    room = 64 - used
    if bits <= room:
        words[word] |= value << np.uint64(room - bits)
        return
    words[word] |= value >> np.uint64(bits - room)
    if word + 1 < len(words):
        words[word + 1] |= value << np.uint64(64 - bits + room)


def _compare(left: Any, right: Any) -> int:
    """Compare two plain Python values (None first, NaN last, lists and structs element by element)."""
    if left is None or right is None:
        return (right is None) - (left is None)
    if isinstance(left, dict):
        return _compare(list(left.values()), list(right.values()))
    if isinstance(left, list | tuple):
        for left_item, right_item in zip(left, right, strict=False):
            sign = _compare(left_item, right_item)
            if sign:
                return sign
        return (len(left) > len(right)) - (len(left) < len(right))
    if isinstance(left, str):
        left, right = left.encode(), right.encode()
    if isinstance(left, float):
        is_nan, other_is_nan = left != left, right != right
        if is_nan or other_is_nan:
            return int(is_nan) - int(other_is_nan)
    return int(left > right) - int(left < right)


def _rank_slowly(column: pa.Array) -> Words:
    values = column.to_pylist()
    if pa.types.is_map(column.type):
        # Spark does not order maps; rows that hold them still need one order, whatever the order of their entries.
        values = [
            None if entries is None else sorted(entries, key=functools.cmp_to_key(_compare))
            for entries in values
        ]
    order = sorted(range(len(values)), key=functools.cmp_to_key(lambda a, b: _compare(values[a], values[b])))
    ranks = np.zeros(len(values), np.uint64)
    rank = 0
    for previous, row in itertools.pairwise(order):
        rank += _compare(values[previous], values[row]) != 0
        ranks[row] = rank
    return ranks


def exact_words(column: pa.Array) -> tuple[Words, ...]:
    """Return words that order and tell apart all values of this batch, NULL excepted."""
    kind = column.type
    if is_fixed(kind):
        return encode(column)
    if _is_bytes(kind):
        ranks = pc.rank(column, sort_keys="ascending", tiebreaker="dense")
        return (ranks.to_numpy(zero_copy_only=False),)
    if pa.types.is_null(kind):
        return (np.zeros(len(column), np.uint64),)
    if pa.types.is_struct(kind):
        return (_dense([word for field in column.flatten() for word in _null_first(field)], len(column)),)
    if pa.types.is_large_list(kind):
        return (_rank_lists(column),)
    return (_rank_slowly(column),)


def _null_first(column: pa.Array) -> list[Words]:
    """The words of values inside of others, where NULL comes first."""
    valid = pc.is_valid(column).to_numpy(zero_copy_only=False)
    return [valid.astype(np.uint64), *(np.where(valid, word, np.uint64(0)) for word in exact_words(column))]


def _dense(words: Sequence[Words], count: int) -> Words:
    """The rank of every row of words; equal rows have the same one."""
    ranks = np.zeros(count, np.uint64)
    if words:
        order = np.lexsort(tuple(reversed(words)))
        ranks[order] = np.cumsum(is_start(*(word[order] for word in words))) - 1
    return ranks


def _rank_lists(column: pa.Array) -> Words:
    """Ranks of lists, element by element, of which one that ends comes before one that goes on."""
    bounds, items = elements(column)
    counts = bounds[1:] - bounds[:-1]
    longest = int(counts.max(initial=0))
    if longest * len(column) > _MOST_CELLS:
        return _rank_slowly(column)
    places, _ = expand(counts)
    table = np.zeros((longest, len(column)), np.uint64)
    table[places, np.repeat(np.arange(len(column)), counts)] = _dense(_null_first(items), len(items)) + 1
    return _dense(list(table), len(column))


def _directed(column: pa.Array, *, descending: bool, nulls_first: bool) -> list[Words]:
    words = [~word if descending else word for word in exact_words(column)]
    if column.null_count and not pa.types.is_null(column.type):
        missing = pc.is_null(column).to_numpy(zero_copy_only=False)
        words = [np.where(missing, np.uint64(0), word) for word in words]
        words.insert(0, (missing != nulls_first).astype(np.uint64))
    return words


def run_lengths(starts: Positions, count: int) -> Positions:
    """Return the lengths of consecutive runs that begin at `starts` and end at `count`; np.diff takes ten times as long."""
    lengths = np.empty(len(starts), np.int64)
    if len(starts):
        np.subtract(starts[1:], starts[:-1], out=lengths[:-1])
        lengths[-1] = count - starts[-1]
    return lengths


def is_start(*columns: Numbers) -> Bools:
    """Return which rows of sorted columns of one length differ from the row before."""
    fresh = np.zeros(len(columns[0]), np.bool_)
    fresh[:1] = True
    for column in columns:
        fresh[1:] |= column[1:] != column[:-1]
    return fresh


def run_starts(*columns: Numbers) -> Positions:
    """Return where runs of equal rows begin in sorted columns of one length."""
    return is_start(*columns).nonzero()[0]


def compare_words(left: Sequence[Numbers], right: Sequence[Numbers]) -> tuple[Bools, Bools]:
    """Compare rows of words, the first word most significant: return where the left row is less, and where both are equal."""
    less: Bools = left[0] < right[0]
    equal: Bools = left[0] == right[0]
    for left_word, right_word in zip(left[1:], right[1:], strict=True):
        less |= equal & (left_word < right_word)
        equal &= left_word == right_word
    return less, equal


def sort_positions(keys: Sequence[Numbers], *, merging: bool = False) -> Positions:
    """Return the positions that sort rows by several integer columns, the first one most significant; it may not be negative.

    The first column and the leading bits of the second one that vary are packed into a word, and words are sorted; what else
    there is rarely matters, and is looked at only for rows whose words tie. `merging` says that the rows are a few sequences
    that are in order already.
    """
    first = keys[0]
    if len(keys) == 1:
        return np.argsort(first, kind="stable")
    if len(first) < 256:
        return np.lexsort(tuple(reversed(keys)))
    least, most = int(first.min()), int(first.max())
    room = 64 - (most - least).bit_length()
    if room < _LEAST_ROOM:
        return np.lexsort(tuple(reversed(keys)))
    second = keys[1].astype(np.int64).view(np.uint64) ^ _SIGN if keys[1].dtype.kind == "i" else keys[1]
    lowest = second.min()
    span = int(second.max() - lowest).bit_length()
    word = np.empty(len(first), np.uint64)
    for start in range(0, len(first), _CHUNK):
        part = slice(start, start + _CHUNK)
        packed = np.subtract(second[part], lowest, out=word[part])
        if span > room:
            packed >>= np.uint64(span - room)
        if room < 64:
            packed |= (first[part] - first.dtype.type(least)).astype(np.uint64) << np.uint64(room)
    if merging:
        order = word.argsort(kind="stable")
        word = word.take(order)
    else:
        order, word = order_words(word)
    rest = keys[1:] if span > room else keys[2:]
    same = word[1:] == word[:-1]
    if rest and same.any():
        _break_ties(order, same, rest)
    return order


def _break_ties(order: Positions, same: Bools, keys: Sequence[Numbers]) -> None:
    """Sort again, in place, the rows that are the `same` as the row before them, by more columns."""
    tied = np.zeros(len(order), np.bool_)
    tied[1:] |= same
    tied[:-1] |= same
    positions = tied.nonzero()[0]
    block = np.cumsum(~np.concatenate(([False], same)))[positions]
    rows = order[positions]
    chosen = [key[rows] for key in keys]
    # Most ties are of equal rows, or in order already: the position decides those.
    columns = (block, *chosen)
    less, equal = compare_words([key[:-1] for key in columns], [key[1:] for key in columns])
    if not (less | equal).all():
        order[positions] = rows[np.lexsort((*reversed(chosen), block))]


def _refine(
    order: Positions, classes: Positions, column: pa.Array, *, descending: bool, nulls_first: bool
) -> Positions:
    """Sort the positions of every class by one more column, in place; return the finer classes."""
    count = len(order)
    starts = run_starts(classes)
    if len(starts) == count:
        return classes
    sizes = run_lengths(starts, count)
    positions = (sizes > 1).repeat(sizes).nonzero()[0]
    rows, outer = order[positions], classes[positions]
    all_rows = len(positions) == len(column) and len(starts) == 1 and bool((rows == np.arange(count)).all())
    words = _directed(
        column if all_rows else column.take(pa.array(rows)), descending=descending, nulls_first=nulls_first
    )
    if len(starts) == 1 and len(words) == 1:
        inner = np.argsort(words[0], kind="stable")
    else:
        inner = sort_positions((outer, *words))
    order[positions] = rows[inner]
    outer = outer[inner]
    # Classes of one row, which lie between the others, start anew as they did before.
    new = np.ones(count, np.bool_)
    new[positions] = False
    new[positions[run_starts(outer, *(word[inner] for word in words))]] = True
    finer: Positions = np.cumsum(new)
    return finer


def _classes(count: int, starts: Positions) -> Positions:
    """Number the runs that begin at `starts`."""
    return np.arange(len(starts)).repeat(run_lengths(starts, count))


def rank_rows(
    columns: Sequence[pa.Array], keys: Sequence[Key], groups: Positions | None = None
) -> tuple[Positions, Positions]:
    """Sort rows by group and keys, the whole row breaking ties; return positions, and for each position its peer class.

    Rows are peers when they have the same group (a number that is not negative) and equal keys. Among rows that are equal in
    every column -0.0 comes before 0.0.
    """
    order, peers, _ = rank_classes(columns, keys, groups)
    return order, peers


def rank_classes(
    columns: Sequence[pa.Array], keys: Sequence[Key], groups: Positions | None = None
) -> tuple[Positions, Positions, Positions]:
    """The same with a third class: rows of one group that are equal in every column, as rows of a multiset are."""
    count = len(columns[0]) if columns else len(groups) if groups is not None else 0
    order = np.arange(count)
    classes = np.zeros(count, np.int64)
    if count == 0:
        return order, classes, classes
    first = list(keys)
    if groups is not None:
        words: list[Words] = []
        if first:
            key = first.pop(0)
            words = _directed(columns[key.column], descending=key.descending, nulls_first=key.nulls_first)
        order = sort_positions((groups, *words))
        classes = _classes(count, run_starts(groups[order], *(word[order] for word in words)))
    for key in first:
        classes = _refine(
            order, classes, columns[key.column], descending=key.descending, nulls_first=key.nulls_first
        )
    peers = classes
    sorted_by = {key.column for key in keys}
    for index, column in enumerate(columns):
        if index not in sorted_by:
            classes = _refine(order, classes, column, descending=False, nulls_first=True)
    for column in columns:
        if pa.types.is_floating(column.type):
            classes = _refine(order, classes, _zeros_apart(column), descending=False, nulls_first=True)
    return order, peers, classes


def _zeros_apart(column: pa.Array) -> pa.Array:
    """A float column as integers in the same order, with -0.0 before 0.0."""
    words = encode(column, merge_zeros=False)[0] ^ _SIGN
    missing = pc.is_null(column).to_numpy(zero_copy_only=False) if column.null_count else None
    return pa.array(words.view(np.int64), mask=missing)


def sort_rows(columns: Sequence[pa.Array], keys: Sequence[Key]) -> Positions:
    """Return the positions of rows in the order of the keys, the whole row breaking ties."""
    return rank_rows(columns, keys)[0]
