"""Exact sums by slot: the order of additions never matters, and taking a value out gives the previous bits back.

A sum is a wide integer in limbs of 32 bits, each in an int64, the highest one signed. Within a tick limbs may run
over their 32 bits; `settle` carries. Floating-point numbers are integers times a power of two, so their sum is a wide
integer too: those within the window of the limbs go there, the rare others are Python integers, and NaN and the
infinities are counted. A result is rounded once, when it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.data.arrays import Bools, Floats, Ints, Positions
from penstock.errors import DataError
from penstock.functions.rounding import ratio
from penstock.state.slot_array import SlotArray
from penstock.state.slot_numbers import SlotNumbers
from penstock.state.state import Composite, State

_MASK = np.int64(0xFFFFFFFF)
_BITS = np.int64(32)
_SAFE = 1 << 29  # additions of 33-bit parts that an int64 limb takes before it must carry
_CHUNK = 16_384  # rows at a time, so that intermediate arrays stay in the cache
_FEW = 100  # sums up to which Python's integers are faster
_FINEST = 1074  # every finite double is an integer times 2**-1074


class WideSums(Composite):
    """Exact integers by slot, settled."""

    __slots__ = ("limbs", "rows")

    def __init__(self, limbs: int) -> None:
        self.limbs = limbs
        self.rows = SlotArray(np.int64, limbs)

    def states(self) -> Iterator[tuple[str, State]]:
        yield "limbs", self.rows

    def integers(self, slots: Positions) -> list[int]:
        """Return the sums as Python integers."""
        return integers_of(self.rows.data[slots])

    def change(self, touched: Positions, add: Callable[[Ints], None]) -> None:
        """Let `add` change the rows of the touched slots, then settle them."""
        old = self.rows.data[touched]
        block = old.copy()
        add(block)
        settle(block)
        self.rows.put(touched, block, old)

    def merge(self, other: WideSums, slots: Positions, others: Positions) -> None:
        """Add the sums of other slots to those at slots, pairwise; slots differ."""

        def add(block: Ints) -> None:
            block += other.rows.data[others]

        self.change(slots, add)


def add_limbs(block: Ints, groups: Positions, limb: int, values: Ints) -> None:
    """Add values times 2**(32*limb) to rows (which may repeat)."""
    np.add.at(block.reshape(-1), groups * block.shape[1] + limb, values)


def add_one(block: Ints, row: int, value: int) -> None:
    """Add one value of any size to a row and settle it; the way of weights that the limbs cannot take."""
    settle(block[row : row + 1])
    limbs = block.shape[1]
    total = integers_of(block[row : row + 1])[0] + value
    top = 32 * (limbs - 1)
    if not -(1 << 63) <= total >> top < 1 << 63:
        raise DataError("a sum overflows", code="DATA_OVERFLOW", hint=f"it needs {total.bit_length()} bits")
    low = [(total >> (32 * limb)) & 0xFFFFFFFF for limb in range(limbs - 1)]
    block[row] = [*low, total >> top]


def settle(block: Ints) -> None:
    """Carry, in place, so that every limb but the highest is in [0, 2**32)."""
    for start in range(0, len(block), _CHUNK):
        part = block[start : start + _CHUNK]
        for limb in range(block.shape[1] - 1):
            part[:, limb + 1] += part[:, limb] >> _BITS
            part[:, limb] &= _MASK


def integers_of(block: Ints) -> list[int]:
    """Return settled sums as Python integers."""
    width = 4 * (block.shape[1] - 1)
    packed = np.empty((len(block), width + 8), np.uint8)
    packed[:, :width] = np.ascontiguousarray(block[:, :-1].astype("<u4")).view(np.uint8)
    packed[:, width:] = np.ascontiguousarray(block[:, -1:].astype("<i8")).view(np.uint8)
    raw, step = packed.tobytes(), width + 8
    return [int.from_bytes(raw[at : at + step], "little", signed=True) for at in range(0, len(raw), step)]


def magnitude(block: Ints) -> tuple[Ints, Bools, int]:
    """Split settled sums into limbs of their absolute value (one row per limb, lowest first), their sign, and the first limb.

    Limbs that are zero in all sums are left out: numbers of one kind use few of them.
    """
    limbs = block.shape[1]
    parts = np.zeros((limbs + 1, len(block)), np.int64)
    parts[:limbs] = block.T
    negative = parts[limbs - 1] < 0
    minus = negative.nonzero()[0]
    if len(minus):
        flipped = -parts[:, minus]
        for limb in range(limbs - 1):
            flipped[limb + 1] += flipped[limb] >> _BITS
            flipped[limb] &= _MASK
        parts[:, minus] = flipped
    parts[limbs] = parts[limbs - 1] >> _BITS
    parts[limbs - 1] &= _MASK
    used = np.flatnonzero(parts.any(axis=1))
    if len(used) == 0:
        return parts[:1], negative, 0
    return parts[used[0] : used[-1] + 1], negative, int(used[0])


def divide(parts: Ints, divisors: Ints, *, extra: int) -> tuple[Ints, Bools]:
    """Divide by positive integers below 2**31: quotient limbs, with `extra` more limbs below, and whether a rest remains."""
    count, width = parts.shape
    quotient = np.zeros((count + extra, width), np.int64)
    rest = np.zeros(width, np.int64)
    for limb in range(count - 1, -1 - extra, -1):
        rest <<= _BITS
        if limb >= 0:
            rest |= parts[limb]
        np.floor_divide(rest, divisors, out=quotient[limb + extra])
        rest -= quotient[limb + extra] * divisors
    return quotient, rest != 0


def nearest(parts: Ints, negative: Bools, base: int, inexact: Bools | None = None) -> Floats:
    """Return the doubles nearest to the limbs times 2**base; `inexact` says that something below was cut off."""
    count, width = parts.shape
    filled = np.zeros((count + 2, width), np.int64)
    filled[2:] = parts
    nonzero = filled != 0
    high = count + 1 - np.argmax(nonzero[::-1], axis=0)
    columns = np.arange(width)
    top = filled[high, columns]
    sticky = (np.argmax(nonzero, axis=0) < high - 2) & (top != 0)
    if inexact is not None:
        sticky |= inexact
    # 64 significant bits with the highest one set, the last one sticky: the conversion to double then rounds correctly.
    used = np.frexp(top.astype(np.float64))[1].astype(np.int64)
    room = 32 - used
    lowest = filled[high - 2, columns].astype(np.uint64)
    upper = (top.astype(np.uint64) << np.uint64(32)) | filled[high - 1, columns].astype(np.uint64)
    left, right = room.astype(np.uint64), used.astype(np.uint64)
    word = (upper << left) | (lowest >> right)
    sticky |= (lowest & ((np.uint64(1) << right) - np.uint64(1))) != 0
    word |= sticky.astype(np.uint64)
    result: Floats = np.ldexp(word.astype(np.float64), (base + 32 * (high - 4) + used).astype(np.int32))
    return np.where(negative, -result, result) if negative.any() else result


def split_doubles(values: Floats) -> tuple[Ints, Ints, Bools]:
    """Return mantissas, exponents of their lowest bits and signs of finite doubles."""
    bits = values.view(np.int64)
    exponent = (bits >> np.int64(52)) & np.int64(0x7FF)
    mantissa = bits & np.int64((1 << 52) - 1)
    mantissa |= (exponent != 0).astype(np.int64) << np.int64(52)
    return mantissa, np.maximum(exponent, 1) - 1075, bits < 0


def _is_heavy(weights: Ints) -> bool:
    """Whether weights are so large that limbs must be settled while they are added."""
    return int(np.abs(weights).max(initial=0)) * len(weights) >= _SAFE // 8


def _in_chunks(compute: Callable[[slice], Floats], count: int) -> Floats:
    """Put the results of a computation together that takes a bounded number of rows at a time."""
    if count <= _CHUNK:
        return compute(slice(0, count))
    pieces = [compute(slice(at, min(at + _CHUNK, count))) for at in range(0, count, _CHUNK)]
    return np.concatenate(pieces, axis=-1)


class FloatSums(Composite):
    """Exact sums of doubles, or of products of two doubles, by slot.

    7 limbs from 2**-114 take every number between 2**-62 and 2**98; 14 limbs from 2**-228 take their products. `unit` is
    the power of two in which numbers outside of the window are counted.
    """

    __slots__ = ("_outside", "base", "sums", "unit")

    def __init__(self, *, products: bool = False) -> None:
        self.sums = WideSums(14 if products else 7)
        self.base = -228 if products else -114
        self.unit = 2 * _FINEST if products else _FINEST
        self._outside = SlotNumbers()

    def states(self) -> Iterator[tuple[str, State]]:
        yield "sums", self.sums
        yield "outside", self._outside

    def reserve(self, size: int) -> None:
        self.sums.rows.reserve(size)

    def add(self, touched: Positions, groups: Positions, factors: Sequence[Floats], weights: Ints) -> None:
        """Add weight * product of the factors (one or two arrays of finite doubles) at the slots `touched[groups]`."""
        self.sums.change(touched, lambda block: self._add_all(block, touched, groups, factors, weights))

    def _add_all(
        self, block: Ints, touched: Positions, groups: Positions, factors: Sequence[Floats], weights: Ints
    ) -> None:
        heavy = _is_heavy(weights)
        for start in range(0, len(groups), _CHUNK):
            part = slice(start, start + _CHUNK)
            self._add_chunk(block, touched, groups[part], [factor[part] for factor in factors], weights[part])
            if heavy:
                settle(block)

    def _add_chunk(
        self, block: Ints, touched: Positions, groups: Positions, factors: Sequence[Floats], weights: Ints
    ) -> None:
        parts = [split_doubles(factor) for factor in factors]
        mantissa, exponent, negative = parts[0]
        if len(parts) == 1:
            signed = np.where(negative, -weights, weights)
            self._add(block, touched, groups, [(mantissa, 0)], exponent, signed)
        else:
            other, other_exponent, other_negative = parts[1]
            half, mask = np.int64(27), np.int64((1 << 27) - 1)
            a, b, c, d = mantissa >> half, mantissa & mask, other >> half, other & mask
            pieces = [(b * d, 0), (a * d, 27), (b * c, 27), (a * c, 54)]
            signed = np.where(negative != other_negative, -weights, weights)
            self._add(block, touched, groups, pieces, exponent + other_exponent, signed)

    def _add(
        self,
        block: Ints,
        touched: Positions,
        groups: Positions,
        pieces: list[tuple[Ints, int]],
        exponent: Ints,
        weights: Ints,
    ) -> None:
        """Add weights * (sum of piece * 2**shift) * 2**exponent; every piece is below 2**54."""
        if _is_heavy(weights) and len(weights) > 1:
            middle = len(weights) // 2
            for half in (slice(0, middle), slice(middle, None)):
                part = [(piece[half], shift) for piece, shift in pieces]
                self._add(block, touched, groups[half], part, exponent[half], weights[half])
                settle(block)
            return
        start = exponent - self.base
        zero = pieces[0][0] == 0
        for piece, _ in pieces[1:]:
            zero &= piece == 0
        start[zero] = 0
        limbs = self.sums.limbs
        inside = (start >= 0) & (start + pieces[-1][1] < 32 * (limbs - 2)) & (np.abs(weights) < _SAFE // 8)
        if not inside.all():
            self._add_outside(touched.take(groups), pieces, exponent, weights, (~inside).nonzero()[0])
            groups, weights, start = groups[inside], weights[inside], start[inside]
            pieces = [(piece[inside], shift) for piece, shift in pieces]
        flat = block.reshape(-1)
        for piece, shift in pieces:
            bit = start + shift if shift else start
            offset = bit & np.int64(31)
            low = (piece & _MASK) << offset
            high = (piece >> _BITS) << offset
            index = groups * limbs + (bit >> np.int64(5))
            np.add.at(flat, index, (low & _MASK) * weights)
            np.add.at(flat, index + 1, ((low >> _BITS) + (high & _MASK)) * weights)
            np.add.at(flat, index + 2, (high >> _BITS) * weights)

    def _add_outside(
        self, slots: Positions, pieces: list[tuple[Ints, int]], exponent: Ints, weights: Ints, rows: Positions
    ) -> None:
        for row in rows.tolist():
            value = sum(int(piece[row]) << shift for piece, shift in pieces) * int(weights[row])
            slot = int(slots[row])
            self._outside.put(slot, (self.outside(slot) + (value << (int(exponent[row]) + self.unit)),))

    def put(self, limbs: Ints, outside: Mapping[int, int]) -> None:
        """Set the sums of the first slots: settled limbs, and by slot what lies outside of them."""
        self.sums.rows.append(0, limbs)
        for slot, value in outside.items():
            self._outside.put(slot, (value,))

    def merge(self, other: FloatSums, slots: Positions, others: Positions) -> None:
        """Add the sums of other slots to those at slots, pairwise; slots differ."""
        self.sums.merge(other.sums, slots, others)
        if other.crowded:
            for slot, other_slot in zip(slots.tolist(), others.tolist(), strict=True):
                self._outside.put(slot, (self.outside(slot) + other.outside(other_slot),))

    def outside(self, slot: int) -> int:
        """The part of the sum of a slot outside of its limbs, in units of 2**-unit."""
        return self._outside.at(slot)[0]

    @property
    def crowded(self) -> bool:
        """Whether there are numbers outside of the window."""
        return len(self._outside) > 0

    def integers(self, slots: Positions, *, fine: bool = True) -> list[int]:
        """Return the sums as integers in units of 2**-unit, or, when it is not `crowded`, of 2**base."""
        coarse = self.sums.integers(slots)
        if not fine:
            return coarse
        shift = self.base + self.unit
        scaled = [value << shift for value in coarse]
        if self.crowded:
            scaled = [value + self.outside(slot) for value, slot in zip(scaled, slots.tolist(), strict=True)]
        return scaled

    def doubles(self, slots: Positions) -> Floats:
        """Return the sums, each rounded once; zero is +0.0."""
        return _in_chunks(lambda part: self._nearest(slots[part])[0], len(slots))

    def means(self, slots: Positions, divisors: Ints) -> Floats:
        """Return the sums over positive divisors, each rounded once."""
        return _in_chunks(lambda part: self._nearest(slots[part], divisors[part])[1], len(slots))

    def both(self, slots: Positions, divisors: Ints) -> Floats:
        """Return the sums and the means as two rows, for less than their price one by one."""
        return _in_chunks(lambda part: self._nearest(slots[part], divisors[part], both=True), len(slots))

    def _nearest(self, slots: Positions, divisors: Ints | None = None, *, both: bool = False) -> Floats:
        """Rows of doubles: the sums (without divisors, or with `both`), and with divisors the means."""
        count = len(slots)
        if count <= _FEW:
            return self._nearest_few(slots, divisors)
        result = np.empty((2, count), np.float64)
        parts, negative, skipped = magnitude(self.sums.rows.data[slots])
        base, inexact = self.base + 32 * skipped, None
        if divisors is not None:
            # Three more limbs keep 64 significant bits in the smallest quotient.
            quotient, inexact = divide(parts, np.clip(divisors, 1, (1 << 31) - 1), extra=3)
            base -= 96
            if both:
                wide = np.zeros((len(quotient), 2 * count), np.int64)
                wide[3:, :count] = parts
                wide[:, count:] = quotient
                quotient, negative = wide, np.concatenate((negative, negative))
                inexact = np.concatenate((np.zeros(count, np.bool_), inexact))
            parts = quotient
        rows = slice(0, 1) if divisors is None else slice(0 if both else 1, 2)
        result[rows] = nearest(parts, negative, base, inexact).reshape(-1, count)
        for row in range(2)[rows]:
            divided = divisors if row else None
            slow = self._slow(slots, divided)
            for at, value in zip(slow.tolist(), self.integers(slots[slow]) if len(slow) else (), strict=True):
                result[row, at] = ratio(value, (1 if divided is None else int(divided[at])) << self.unit)
        return result

    def _nearest_few(self, slots: Positions, divisors: Ints | None) -> Floats:
        """The same one by one: Python's division of integers rounds once, and costs less than the calls for many."""
        unit = self.unit if self.crowded else -self.base
        values = self.integers(slots, fine=self.crowded)
        result = np.empty((2, len(slots)), np.float64)
        result[0] = [ratio(value, 1 << unit) for value in values]
        if divisors is not None:
            pairs = zip(values, divisors.tolist(), strict=True)
            result[1] = [ratio(value, divisor << unit) for value, divisor in pairs]
        return result

    def _slow(self, slots: Positions, divisors: Ints | None) -> Positions:
        """Which sums the limbs alone do not give."""
        odd = np.zeros(len(slots), np.bool_) if divisors is None else divisors >= 1 << 31
        if self.crowded:
            odd |= np.isin(slots, np.array(self._outside.slots(), np.int64))
        return odd.nonzero()[0]


class IntegerSums(Composite):
    """Exact sums of 64-bit integers by slot."""

    __slots__ = ("sums",)

    def __init__(self) -> None:
        self.sums = WideSums(2)

    def states(self) -> Iterator[tuple[str, State]]:
        yield "sums", self.sums

    def reserve(self, size: int) -> None:
        self.sums.rows.reserve(size)

    def add(self, touched: Positions, groups: Positions, values: Ints, weights: Ints) -> None:
        """Add weight * value at the slots `touched[groups]`."""
        self.sums.change(touched, lambda block: self._add(block, groups, values, weights))

    def _add(self, block: Ints, groups: Positions, values: Ints, weights: Ints) -> None:
        if int(np.abs(weights).max(initial=0)) * len(weights) >= _SAFE:
            if len(weights) == 1:
                add_one(block, int(groups[0]), int(values[0]) * int(weights[0]))
                return
            middle = len(weights) // 2
            for half in (slice(0, middle), slice(middle, None)):
                self._add(block, groups[half], values[half], weights[half])
                settle(block)
            return
        add_limbs(block, groups, 0, (values & _MASK) * weights)
        add_limbs(block, groups, 1, (values >> _BITS) * weights)

    def merge(self, other: IntegerSums, slots: Positions, others: Positions) -> None:
        """Add the sums of other slots to those at slots, pairwise; slots differ."""
        self.sums.merge(other.sums, slots, others)

    def words(self, slots: Positions) -> tuple[Ints, Bools]:
        """Return the sums modulo 2**64, and where they do not fit into 64 bits."""
        block = self.sums.rows.data[slots]
        high = block[:, 1]
        return (high << _BITS) | block[:, 0], (high < -(1 << 31)) | (high >= 1 << 31)

    def integers(self, slots: Positions) -> list[int]:
        return self.sums.integers(slots)

    def doubles(self, slots: Positions, divisors: Ints) -> Floats:
        """Return the sums over positive divisors, each rounded once."""
        words, wide = self.words(slots)
        result = words.astype(np.float64) / divisors.astype(np.float64)
        exact = 1 << 53
        slow = (wide | (words > exact) | (words < -exact) | (divisors > exact)).nonzero()[0]
        for at, value in zip(slow.tolist(), self.integers(slots[slow]), strict=True):
            result[at] = ratio(value, int(divisors[at]))
        return result


class DecimalSums(Composite):
    """Exact sums of unscaled decimals by slot: 2 limbs while the values fit into 64 bits, 4 beyond."""

    __slots__ = ("narrow", "sums")

    def __init__(self, precision: int) -> None:
        self.narrow = IntegerSums() if precision <= 18 else None
        self.sums = self.narrow.sums if self.narrow else WideSums(4)

    def states(self) -> Iterator[tuple[str, State]]:
        yield "sums", self.sums

    def reserve(self, size: int) -> None:
        self.sums.rows.reserve(size)

    def add(self, touched: Positions, groups: Positions, values: Ints, weights: Ints) -> None:
        """Add weight * value; `values` are rows of two words, low and high, of 128-bit integers."""
        if self.narrow:
            self.narrow.add(touched, groups, values[:, 0], weights)
        else:
            self.sums.change(touched, lambda block: self._add(block, groups, values, weights))

    def _add(self, block: Ints, groups: Positions, values: Ints, weights: Ints) -> None:
        if int(np.abs(weights).max(initial=0)) * len(weights) >= _SAFE and len(weights) > 1:
            middle = len(weights) // 2
            for half in (slice(0, middle), slice(middle, None)):
                self._add(block, groups[half], values[half], weights[half])
                settle(block)
            return
        if len(weights) == 1 and abs(int(weights[0])) >= _SAFE:
            value = (int(values[0, 1]) << 64) | (int(values[0, 0]) & ((1 << 64) - 1))
            add_one(block, int(groups[0]), value * int(weights[0]))
            return
        low, high = values[:, 0], values[:, 1]
        for limb, part in enumerate((low & _MASK, (low >> _BITS) & _MASK, high & _MASK, high >> _BITS)):
            add_limbs(block, groups, limb, part * weights)

    def merge(self, other: DecimalSums, slots: Positions, others: Positions) -> None:
        """Add the sums of other slots to those at slots, pairwise; slots differ."""
        self.sums.merge(other.sums, slots, others)

    def integers(self, slots: Positions) -> list[int]:
        return self.sums.integers(slots)

    def words(self, slots: Positions, precision: int) -> tuple[Ints, Bools]:
        """Return the sums as rows of two 64-bit words, and where they have more than `precision` digits."""
        block = self.sums.rows.data[slots]
        words = np.empty((len(block), 2), np.int64)
        if self.narrow:
            words[:, 0] = (block[:, 1] << _BITS) | block[:, 0]
            words[:, 1] = block[:, 1] >> _BITS
            about = block[:, 1].astype(np.float64) * 2.0**32
        else:
            words[:, 0] = (block[:, 1] << _BITS) | block[:, 0]
            words[:, 1] = (block[:, 3] << _BITS) | block[:, 2]
            about = block[:, 3].astype(np.float64) * 2.0**96 + block[:, 2].astype(np.float64) * 2.0**64
        limit = 10**precision
        wide = np.zeros(len(block), np.bool_)
        near = (np.abs(about) > 0.99 * limit - 2.0**65).nonzero()[0]
        if len(near):
            wide[near] = [abs(value) >= limit for value in self.integers(slots[near])]
        return words, wide


def decimal_words(column: pa.Array) -> Ints:
    """Return a decimal128 column as rows of two 64-bit words, low and high (a view)."""
    data = column.buffers()[1]
    if data is None:
        return np.zeros((0, 2), np.int64)
    words = np.frombuffer(data, np.int64).reshape(-1, 2)
    return words[column.offset : column.offset + len(column)]


def integer_words(values: Sequence[int]) -> Ints:
    """Return Python integers of up to 128 bits as rows of two 64-bit words."""
    raw: Any = b"".join(value.to_bytes(16, "little", signed=True) for value in values)
    return np.frombuffer(raw, np.int64).reshape(-1, 2).copy()
