"""VARIANCE, STDDEV, SKEWNESS, KURTOSIS: rational arithmetic over exact sums of powers, rounded once.

NULL over no rows; the sample functions are NULL over one row; skewness and kurtosis of equal values are NULL; NaN when a value is
NaN or infinite. `RegrReplacement` (of regr_sxx and regr_syy) is the sum of squared differences from the mean.

Invertible. State: 56 bytes per group for the sum, 112 for the squares; skewness and kurtosis keep Python integers.
Cost: delta, and some microseconds per touched group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Self

import numpy as np
import pyarrow as pa

from penstock.data.arrays import Positions
from penstock.functions.aggregates.base import Function, Parts, Rows, doubles, selection
from penstock.functions.aggregates.parts import CountPart, FloatSumPart, count_of, float_sum_of
from penstock.functions.exact import split_doubles
from penstock.functions.rounding import ratio, root
from penstock.plan.node import AggregateCall
from penstock.state.slot_numbers import SlotNumbers
from penstock.state.state import Composite, State

_FINEST = 1074


def central(
    count: CountPart, first: FloatSumPart, second: FloatSumPart, slots: Positions
) -> list[tuple[int, int, int]]:
    """For each slot: the count n, and n * (sum of squared differences from the mean) as an integer over 2**shift."""
    fine = first.sums.crowded or second.sums.crowded
    shift = 2 * _FINEST if fine else -second.sums.base
    triples = zip(
        count.at(slots).tolist(),
        first.sums.integers(slots, fine=fine),
        second.sums.integers(slots, fine=fine),
        strict=True,
    )
    return [(n, n * squares - total * total, shift) for n, total, squares in triples]


def _variance(n: int, spread: int, shift: int, free: int) -> float | None:
    return None if n - free <= 0 else ratio(spread, (n * (n - free)) << shift)


def _deviation(n: int, spread: int, shift: int, free: int) -> float | None:
    return None if n - free <= 0 else root(spread, (n * (n - free)) << shift)


def _squares(n: int, spread: int, shift: int, free: int) -> float | None:
    return ratio(spread, n << shift)


class _SecondMoment:
    def __init__(
        self,
        call: AggregateCall,
        parts: Parts,
        finish: Callable[[int, int, int, int], float | None],
        *,
        free: int,
    ) -> None:
        chosen = selection(call)
        self._finish = finish
        self._free = free
        self._count = count_of(parts, chosen)
        self._first = float_sum_of(parts, chosen, 0)
        self._second = float_sum_of(parts, chosen, 0, 0)

    def result(self, slots: Positions) -> pa.Array:
        rows = central(self._count, self._first, self._second, slots)
        odd = self._first.odd(slots).tolist()
        values: list[float | None] = []
        for (n, spread, shift), strange in zip(rows, odd, strict=True):
            if n <= 0 or (strange and n - self._free <= 0):
                values.append(None)
            else:
                values.append(float("nan") if strange else self._finish(n, spread, shift, self._free))
        return pa.array(values, pa.float64())


def make_var_pop(call: AggregateCall, parts: Parts) -> Function:
    """Spark's `var_pop`."""
    return _SecondMoment(call, parts, _variance, free=0)


def make_var_samp(call: AggregateCall, parts: Parts) -> Function:
    """Spark's `variance` and `var_samp`."""
    return _SecondMoment(call, parts, _variance, free=1)


def make_stddev_pop(call: AggregateCall, parts: Parts) -> Function:
    """Spark's `stddev_pop`."""
    return _SecondMoment(call, parts, _deviation, free=0)


def make_stddev_samp(call: AggregateCall, parts: Parts) -> Function:
    """Spark's `stddev`, `std` and `stddev_samp`."""
    return _SecondMoment(call, parts, _deviation, free=1)


def make_squares(call: AggregateCall, parts: Parts) -> Function:
    """What Catalyst makes of `regr_sxx` and `regr_syy`."""
    return _SecondMoment(call, parts, _squares, free=0)


class PowerPart(Composite):
    """Exact sums of the first four powers, as Python integers in units of 2**-1074 to that power."""

    def __init__(self) -> None:
        self._sums = SlotNumbers(4)

    def states(self) -> Iterator[tuple[str, State]]:
        yield "sums", self._sums

    def reserve(self, size: int) -> None:
        """Nothing is dense here."""

    def update(self, rows: Rows) -> None:
        values = doubles(rows.columns[0])
        finite = np.isfinite(values)
        mantissas, exponents, negative = split_doubles(np.ascontiguousarray(values[finite]))
        chosen = zip(
            rows.slots[finite].tolist(),
            mantissas.tolist(),
            exponents.tolist(),
            negative.tolist(),
            rows.weights[finite].tolist(),
            strict=True,
        )
        for slot, mantissa, exponent, minus, weight in chosen:
            x = mantissa << (exponent + _FINEST)
            x = -x if minus else x
            square = x * x
            powers = (x, square, square * x, square * square)
            self._sums.put(
                slot,
                tuple(old + weight * power for old, power in zip(self._sums.at(slot), powers, strict=True)),
            )

    def merge(self, other: Self, slots: Positions, others: Positions) -> None:
        for slot, other_slot in zip(slots.tolist(), others.tolist(), strict=True):
            pairs = zip(self._sums.at(slot), other._sums.at(other_slot), strict=True)
            self._sums.put(slot, tuple(mine + more for mine, more in pairs))

    def at(self, slot: int) -> tuple[int, int, int, int]:
        """The sums of x, x**2, x**3 and x**4 of a slot."""
        first, second, third, fourth = self._sums.at(slot)
        return first, second, third, fourth


class _HigherMoment:
    def __init__(self, call: AggregateCall, parts: Parts, *, order: int) -> None:
        chosen = selection(call)
        self._order = order
        self._count = count_of(parts, chosen)
        self._odd = float_sum_of(parts, chosen, 0)
        self._powers = parts.share(chosen, PowerPart, "powers")

    def result(self, slots: Positions) -> pa.Array:
        rows = zip(slots.tolist(), self._count.at(slots).tolist(), self._odd.odd(slots).tolist(), strict=True)
        values = [
            None if n <= 0 else float("nan") if odd else self._moment(n, *self._powers.at(slot))
            for slot, n, odd in rows
        ]
        return pa.array(values, pa.float64())

    def _moment(self, n: int, sum1: int, sum2: int, sum3: int, sum4: int) -> float | None:
        mean = Fraction(sum1, n)
        second = sum2 - sum1 * mean
        if second == 0:
            return None
        if self._order == 3:
            third = sum3 - 3 * mean * sum2 + 2 * mean * mean * sum1
            square = n * third * third / second**3
            size = root(square.numerator, square.denominator)
            return -size if third < 0 else size
        fourth = sum4 - 4 * mean * sum3 + 6 * mean * mean * sum2 - 3 * mean**3 * sum1
        excess = n * fourth / (second * second) - 3
        return ratio(excess.numerator, excess.denominator)


def make_skewness(call: AggregateCall, parts: Parts) -> Function:
    """Spark's `skewness`."""
    return _HigherMoment(call, parts, order=3)


def make_kurtosis(call: AggregateCall, parts: Parts) -> Function:
    """Spark's `kurtosis` (the excess over that of a normal distribution)."""
    return _HigherMoment(call, parts, order=4)
