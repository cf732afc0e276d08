"""Spark's hash functions over columns: murmur3 (32 bits) and xxhash64, each value hashed with the hash before it as the seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Words = Any  # an array of unsigned words, or one of them
Ends = npt.NDArray[np.int64]
_EXACT = Context(prec=40)
_LONG_DIGITS = 18  # decimals up to here are hashed as a number


@dataclass(frozen=True, slots=True)
class Algorithm:
    """How 32-bit words, 64-bit words and bytes are mixed into seeds, in unsigned arithmetic."""

    unsigned: type[np.unsignedinteger[Any]]
    signed: type[np.signedinteger[Any]]
    word: Callable[[Words, Words], Words]
    double_word: Callable[[Words, Words], Words]
    data: Callable[[Words, Ends, Ends, Words], Words]


def hashed(algorithm: Algorithm, columns: Sequence[pa.Array], seed: int, length: int) -> Words:
    """The hash of every row."""
    seeds = np.full(length, seed, algorithm.signed).view(algorithm.unsigned)
    with np.errstate(over="ignore"):
        for column in columns:
            seeds = _mixed(algorithm, column, seeds)
    return seeds.view(algorithm.signed)


def _mixed(algorithm: Algorithm, column: pa.Array, seeds: Words) -> Words:
    """The seeds with the values of a column mixed in; NULL leaves its seed."""
    if column.null_count == len(column):
        return seeds
    kind = column.type
    if pa.types.is_struct(kind):
        mixed = seeds
        for field in column.flatten():
            mixed = _mixed(algorithm, field, mixed)
    elif pa.types.is_large_list(kind):
        mixed = _lists(algorithm, column, seeds)
    else:
        mixed = _plain(algorithm, column, seeds)
    if not column.null_count:
        return mixed
    return np.where(column.is_valid().to_numpy(zero_copy_only=False), mixed, seeds)


def _lists(algorithm: Algorithm, column: pa.Array, seeds: Words) -> Words:
    offsets = np.asarray(column.offsets).astype(np.int64)
    lengths = np.diff(offsets)
    if column.null_count:
        lengths = np.where(column.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    mixed = seeds.copy()
    for place in range(int(lengths.max(initial=0))):
        rows = np.flatnonzero(lengths > place)
        elements = column.values.take(pa.array(offsets[rows] + place))
        mixed[rows] = _mixed(algorithm, elements, mixed[rows])
    return mixed


def _plain(algorithm: Algorithm, column: pa.Array, seeds: Words) -> Words:
    kind = column.type
    if pa.types.is_decimal(kind):
        return _decimals(algorithm, column, seeds)
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        _, offsets, data = column.buffers()
        ends = np.frombuffer(offsets, np.int64, len(column) + 1, offset=8 * column.offset)
        content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        return algorithm.data(content, ends[:-1], ends[1:], seeds)
    numbers = _numbers(column)
    if numbers.dtype.itemsize == 8:
        return algorithm.double_word(numbers.view(np.uint64), seeds)
    return algorithm.word(numbers.astype(np.int32).view(np.uint32), seeds)


def _numbers(column: pa.Array) -> npt.NDArray[Any]:
    """Values as signed numbers of 8, 16, 32 or 64 bits; floats as their bits, one zero and one NaN."""
    kind = column.type
    if pa.types.is_boolean(kind):
        column = pc.cast(column, pa.int8())
    elif pa.types.is_date(kind):
        column = pc.cast(column, pa.int32())
    elif pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_time(kind):
        column = pc.cast(column, pa.int64())
    numbers: npt.NDArray[Any] = column.fill_null(0).to_numpy(zero_copy_only=False)
    if not pa.types.is_floating(kind):
        return np.ascontiguousarray(numbers)
    bits = np.where(numbers == 0, 0, np.where(np.isnan(numbers), np.nan, numbers)).astype(numbers.dtype)
    return bits.view(np.int64 if bits.dtype.itemsize == 8 else np.int32)


def _decimals(algorithm: Algorithm, column: pa.Array, seeds: Words) -> Words:
    scale = column.type.scale
    unscaled = [0 if value is None else int(value.scaleb(scale, _EXACT)) for value in column.to_pylist()]
    if column.type.precision <= _LONG_DIGITS:
        return algorithm.double_word(np.array(unscaled, np.int64).view(np.uint64), seeds)
    # As many bytes as the number needs with its sign.
    parts = [
        value.to_bytes((value if value >= 0 else ~value).bit_length() // 8 + 1, "big", signed=True)
        for value in unscaled
    ]
    ends = np.cumsum([0, *map(len, parts)])
    return algorithm.data(np.frombuffer(b"".join(parts), np.uint8), ends[:-1], ends[1:], seeds)


def _rotated(words: Words, bits: int) -> Words:
    size = words.dtype.itemsize * 8
    kind = words.dtype.type
    return (words << kind(bits)) | (words >> kind(size - bits))


def _loaded(content: npt.NDArray[np.uint8], places: Ends, width: int) -> Words:
    """Little-endian words of some bytes that begin at the places."""
    return np.ascontiguousarray(content[places[:, None] + np.arange(width)]).view(f"<u{width}")[:, 0]


# ------------------------------------------------------------------ murmur3

_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)


def _mix_key(key: Words) -> Words:
    return _rotated(key * _C1, 15) * _C2


def _mix_hash(state: Words, key: Words) -> Words:
    return _rotated(state ^ _mix_key(key), 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _finish(state: Words, length: Any) -> Words:
    state = state ^ length
    state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return state ^ (state >> np.uint32(16))


def _murmur_word(words: Words, seeds: Words) -> Words:
    return _finish(_mix_hash(seeds, words), np.uint32(4))


def _murmur_double_word(words: Words, seeds: Words) -> Words:
    low, high = words.astype(np.uint32), (words >> np.uint64(32)).astype(np.uint32)
    return _finish(_mix_hash(_mix_hash(seeds, low), high), np.uint32(8))


def _murmur_data(content: npt.NDArray[np.uint8], starts: Ends, ends: Ends, seeds: Words) -> Words:
    state = seeds.copy()
    lengths = ends - starts
    words = lengths // 4
    for place in range(int(words.max(initial=0))):
        rows = np.flatnonzero(words > place)
        state[rows] = _mix_hash(state[rows], _loaded(content, starts[rows] + 4 * place, 4))
    for place in range(3):
        # The bytes at the end count one by one, with their sign.
        rows = np.flatnonzero(lengths % 4 > place)
        if len(rows):
            last = content[starts[rows] + 4 * words[rows] + place].view(np.int8).astype(np.int32)
            state[rows] = _mix_hash(state[rows], last.view(np.uint32))
    return _finish(state, lengths.astype(np.uint32))


# ------------------------------------------------------------------ xxhash64

_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)


def _avalanche(state: Words) -> Words:
    state = (state ^ (state >> np.uint64(33))) * _P2
    state = (state ^ (state >> np.uint64(29))) * _P3
    return state ^ (state >> np.uint64(32))


def _four_bytes(state: Words, words: Words) -> Words:
    return _rotated(state ^ (words.astype(np.uint64) * _P1), 23) * _P2 + _P3


def _eight_bytes(state: Words, words: Words) -> Words:
    return _rotated(state ^ (_rotated(words * _P2, 31) * _P1), 27) * _P1 + _P4


def _xx_word(words: Words, seeds: Words) -> Words:
    return _avalanche(_four_bytes(seeds + _P5 + np.uint64(4), words))


def _xx_double_word(words: Words, seeds: Words) -> Words:
    return _avalanche(_eight_bytes(seeds + _P5 + np.uint64(8), words))


def _stripes(content: npt.NDArray[np.uint8], starts: Ends, count: Ends, seeds: Words) -> Words:
    """The state after blocks of 32 bytes, of which every row here has at least one."""
    lanes = [seeds + _P1 + _P2, seeds + _P2, seeds.copy(), seeds - _P1]
    for place in range(int(count.max())):
        rows = np.flatnonzero(count > place)
        for lane in range(4):
            words = _loaded(content, starts[rows] + 32 * place + 8 * lane, 8)
            lanes[lane][rows] = _rotated(lanes[lane][rows] + words * _P2, 31) * _P1
    state = _rotated(lanes[0], 1) + _rotated(lanes[1], 7) + _rotated(lanes[2], 12) + _rotated(lanes[3], 18)
    for lane in lanes:
        state = (state ^ (_rotated(lane * _P2, 31) * _P1)) * _P1 + _P4
    return state


def _xx_data(content: npt.NDArray[np.uint8], starts: Ends, ends: Ends, seeds: Words) -> Words:
    lengths = ends - starts
    state = seeds + _P5
    long = np.flatnonzero(lengths >= 32)
    if len(long):
        state[long] = _stripes(content, starts[long], lengths[long] // 32, seeds[long])
    state = state + lengths.astype(np.uint64)
    done = starts + lengths // 32 * 32
    for width, mix in ((8, _eight_bytes), (4, _four_bytes)):
        while len(rows := np.flatnonzero(done + width <= ends)):
            state[rows] = mix(state[rows], _loaded(content, done[rows], width))
            done[rows] += width
            if width == 4:
                break
    while len(rows := np.flatnonzero(done < ends)):
        byte = content[done[rows]].astype(np.uint64)
        state[rows] = _rotated(state[rows] ^ (byte * _P5), 11) * _P1
        done[rows] += 1
    return _avalanche(state)


MURMUR = Algorithm(np.uint32, np.int32, _murmur_word, _murmur_double_word, _murmur_data)
XXHASH = Algorithm(np.uint64, np.int64, _xx_word, _xx_double_word, _xx_data)
